//! What `show --locks` tells.

use crate::cuda_calls::Calls;
use crate::histogram::Step;
use crate::symbols::{Places, Symbols};
use serde::Serialize;
use std::collections::BTreeMap;

/// All that `show --locks` tells. Times in nanoseconds, times of day in seconds of the recording's clock.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Locks {
    /// False if the tape was recorded without `--locks`: then all else is empty.
    pub recorded: bool,
    /// The recording has waits and the holds that they were for, not all operations (`record --locks=waits`): operations are not
    /// counted, and holds and the order of locks are not known.
    pub waits_only: bool,
    /// Every operation of the recorded kinds is on the tape.
    pub complete: bool,
    /// Why it is not complete, one sentence each.
    pub incomplete_because: Vec<String>,
    /// Operations by function, over all locks. Empty where they are not counted (`waits_only`).
    pub operations: BTreeMap<&'static str, u64>,
    /// Operations that took a mutex or rwlock that was not free.
    pub contended: u64,
    /// Events that did not fit into the rings; counts and times lack them.
    pub lost_events: u64,
    /// Whether context switches are on the tape: without them it is not known who was on a CPU.
    pub switches: SwitchesRow,
    /// By name, the one that was waited for longest first.
    pub locks: Vec<LockRow>,
    /// Waits for mutexes and rwlocks, the longest first.
    pub waits: Vec<WaitRow>,
    /// All such waits; more than `waits` has if not all were kept.
    pub waits_seen: u64,
    pub cycles: Vec<Cycle>,
    /// Locks that were taken while another was held, by name.
    pub order: Vec<OrderRow>,
    pub inversions: Vec<Inversion>,
    /// A thread had a real-time policy at some time.
    pub real_time: bool,
    /// Held or waited for when their thread, or the recording, ended.
    pub left: Vec<LeftRow>,
    pub threads: Vec<ThreadRow>,
    /// CUDA's calls, if they are on the tape.
    pub calls: Option<Calls>,
    /// Names from the source of places in the rows, once somebody has looked them up.
    pub symbols: Symbols,
    #[serde(skip)]
    pub places: Places,
}

/// The context switches in the recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SwitchesRow {
    /// `all_cpus`: with who came and went; `program`: without; `none`.
    pub scope: &'static str,
    /// Why there are none.
    pub reason: String,
    /// Of the program's threads.
    pub count: u64,
    /// Records, of any thread, that did not fit into the kernel's buffers.
    pub lost: u64,
}

/// How long a thread was off CPU in a time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OffCpu {
    pub off_ns: u64,
    /// Of this: it could have run on. The rest: it slept, or waited for something.
    pub preempted_ns: u64,
    /// Who had its CPU the longest while it was preempted; absent if that is not known.
    pub by_tid: Option<i32>,
    pub by: String,
    pub by_ns: u64,
}

/// The locks of one name: made at one place, or one that lies in a module.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LockRow {
    /// `libcuda+0x3f21c0/mutex`: where it lies if it is part of a module, else where it was made, else where it was used
    /// first; and what it is.
    pub name: String,
    /// How `name` was found: `static`, `made` or `first_use`.
    pub named_by: &'static str,
    /// Locks of this name.
    pub instances: u64,
    /// Kind, protocol and whether processes share it; empty for the usual.
    pub attributes: Vec<&'static str>,
    pub operations: BTreeMap<&'static str, u64>,
    pub failed: u64,
    /// Taken again by the return from a wait for a condition.
    pub reacquired: u64,
    pub contended: u64,
    pub wait_ns: u64,
    pub longest_wait_ns: u64,
    /// Half of the waits, and 99 in 100, are not longer; absent without any.
    pub wait_p50_ns: Option<u64>,
    pub wait_p99_ns: Option<u64>,
    /// How many waits took how long.
    pub wait_histogram: Vec<Step>,
    /// All holds together, and the longest; absent where they are not known (`waits_only`).
    pub hold_ns: Option<u64>,
    pub longest_hold_ns: Option<u64>,
    /// Where the longest hold began, and its thread, with the index of its process image.
    pub longest_hold_site: Option<String>,
    pub longest_hold_process: Option<u32>,
    pub longest_hold_tid: Option<i32>,
    /// The call of CUDA's in which it began, and its time off CPU.
    pub longest_hold_inside: Option<String>,
    pub longest_hold_off_cpu: Option<OffCpu>,
    /// Unlocks by a thread that had not taken it.
    pub foreign_unlocks: u64,
}

/// A wait and who was in its way.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WaitRow {
    /// When it began, seconds and time stamp.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    /// Index of the process image: two processes may have threads of one number.
    pub process: u32,
    pub tid: i32,
    pub thread: String,
    pub lock: String,
    pub operation: &'static str,
    /// Where the thread called.
    pub site: String,
    pub wait_ns: u64,
    /// What the call returned.
    pub result: i32,
    /// It still waited when the recording ended.
    pub unfinished: bool,
    /// How much of it nobody held the lock: the thread was woken and not run, or others were faster.
    pub free_ns: u64,
    /// The waiter's time off CPU; absent without context switches.
    pub off_cpu: Option<OffCpu>,
    /// Of that, at least: it was preempted, or nobody held the lock (it was not woken, or woken and not run).
    pub ready_ns: Option<u64>,
    /// The call of CUDA's in which it waited.
    pub inside: Option<String>,
    /// Holds in the wait, all together, and how long they were (those of readers added up).
    pub holds: u64,
    pub held_ns: u64,
    /// Of these holds the ones of threads that asked for the lock later than this one and got it earlier, and how many of them only read.
    pub overtaken: u64,
    pub overtaken_by_readers: u64,
    /// The threads that held it the longest part of the wait, the longest first. Empty: nobody whose hold is on the tape.
    pub holders: Vec<HolderRow>,
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct HolderRow {
    pub tid: i32,
    pub thread: String,
    /// Where it took the lock.
    pub site: String,
    /// When, seconds and time stamp.
    pub since: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub hold_ns: u64,
    /// How much of the wait it held the lock.
    pub of_wait_ns: u64,
    pub unfinished: bool,
    /// When it took the lock is not known: it had it at `since`, and held it for `hold_ns` at least.
    pub begin_unknown: bool,
    /// When it released the lock is not known exactly: `of_wait_ns` is what it can have been at most.
    pub end_unknown: bool,
    /// Of `of_wait_ns`: its time off CPU; absent without context switches.
    pub off_cpu: Option<OffCpu>,
    /// The call of CUDA's in which it took it.
    pub inside: Option<String>,
    /// What it waited for itself meanwhile, what the thread that held that waited for, and so on.
    pub behind: Vec<BehindRow>,
}

/// A holder waited for another lock.
#[derive(Clone, Debug, Serialize)]
pub struct BehindRow {
    pub lock: String,
    /// How much of its hold, so far as that matters here.
    pub wait_ns: u64,
    /// Who held that lock the longest part of the wait; absent if that is not on the tape.
    pub holder: Option<i32>,
    pub holder_name: String,
    /// The call of CUDA's in which that one took it.
    pub inside: Option<String>,
}

/// Locks that were taken in a circle of orders.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    pub edges: Vec<OrderRow>,
    /// All of it was done by one thread: it cannot deadlock alone.
    pub one_thread: bool,
}

/// A lock was taken while another was held.
#[derive(Clone, Debug, Serialize)]
pub struct OrderRow {
    pub held: String,
    pub taken: String,
    pub count: u64,
    pub held_site: String,
    pub taken_site: String,
    /// Some of the threads that did.
    pub tids: Vec<i32>,
}

/// A thread waited for one of lower priority.
#[derive(Clone, Debug, Serialize)]
pub struct Inversion {
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub lock: String,
    pub wait_ns: u64,
    /// Index of the process image.
    pub process: u32,
    pub tid: i32,
    pub thread: String,
    pub sched: String,
    pub site: String,
    pub holder: HolderRow,
    pub holder_sched: String,
    /// Of the thread that had the holder's CPU.
    pub by_sched: Option<String>,
    /// Priority inheritance could have shortened it.
    pub inheritance_helps: bool,
    pub why: &'static str,
}

#[derive(Clone, Debug, Serialize)]
pub struct LeftRow {
    /// Index of the process image.
    pub process: u32,
    pub tid: i32,
    pub thread: String,
    pub lock: String,
    pub site: String,
    pub since: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    /// It waited for it; else it held it.
    pub waiting: bool,
    /// Since when it held it is not known: `since` and `tsc` are of the time at which that was seen.
    pub since_unknown: bool,
}

/// A thread as a reader sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadRow {
    /// Index of the process image.
    pub process: u32,
    pub tid: i32,
    pub name: String,
    /// At its first event.
    pub sched: String,
    /// Later ones: seconds, and what it became.
    pub changes: Vec<(f64, String)>,
}
