//! The contents of `show --locks`.

use crate::cuda_calls::Calls;
use crate::histogram::Step;
use crate::symbols::{Places, Symbols};
use serde::Serialize;
use std::collections::BTreeMap;

/// The contents of `show --locks`. Times in nanoseconds, times of day in seconds of the recording's clock.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Locks {
    /// False if the tape was recorded without `--locks`: then all else is empty.
    pub recorded: bool,
    /// The recording has only waits and the holds that they waited for (`record --locks=waits`). Operations are not counted, and
    /// holds and the order of locks are not known.
    pub waits_only: bool,
    /// Every operation of the recorded kinds is on the tape.
    pub complete: bool,
    /// Why it is not complete, one sentence each.
    pub incomplete_because: Vec<String>,
    /// Operations by function, over all locks. Empty if they are not counted (`waits_only`).
    pub operations: BTreeMap<&'static str, u64>,
    /// Operations that took a mutex or rwlock that was not free.
    pub contended: u64,
    /// Events that did not fit into the rings; counts and times lack them.
    pub lost_events: u64,
    /// Whether context switches are on the tape. Without them it is not known which threads were on a CPU.
    pub switches: SwitchesRow,
    /// By name, the longest waits first.
    pub locks: Vec<LockRow>,
    /// Waits for mutexes and rwlocks, the longest first.
    pub waits: Vec<WaitRow>,
    /// Number of all such waits; larger than `waits` if not all were kept.
    pub waits_seen: u64,
    pub cycles: Vec<Cycle>,
    /// Locks that were taken while another was held, by name.
    pub order: Vec<OrderRow>,
    pub inversions: Vec<Inversion>,
    /// A thread had a real-time policy at some time.
    pub real_time: bool,
    /// Locks held or waited for when their thread, or the recording, ended.
    pub left: Vec<LeftRow>,
    pub threads: Vec<ThreadRow>,
    /// CUDA calls, if they are on the tape.
    pub calls: Option<Calls>,
    /// Names from the source for places in the rows, once these were looked up.
    pub symbols: Symbols,
    #[serde(skip)]
    pub places: Places,
}

/// The context switches in the recording.
#[derive(Clone, Debug, Default, Serialize)]
pub struct SwitchesRow {
    /// `all_cpus`: with the thread before and after each switch; `program`: without it; `none`.
    pub scope: &'static str,
    /// Why there are none.
    pub reason: String,
    /// Switches of the program's threads.
    pub count: u64,
    /// Records, of any thread, that did not fit into the kernel's buffers.
    pub lost: u64,
}

/// How long a thread was off CPU in a time.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OffCpu {
    /// Time off CPU.
    pub off_ns: u64,
    /// The part of it in which the thread could have run on. In the rest it slept, or waited.
    pub preempted_ns: u64,
    /// The thread that had its CPU the longest while it was preempted; absent if that is not known.
    pub by_tid: Option<i32>,
    /// Name of that thread.
    pub by: String,
    pub by_ns: u64,
}

/// The locks of one name: made at one place, or one that is part of a module.
#[derive(Clone, Debug, Default, Serialize)]
pub struct LockRow {
    /// `libcuda+0x3f21c0/mutex`: the lock's place and its kind. The place is the lock's address if that is in a module, else
    /// where the lock was made, else where it was used first.
    pub name: String,
    /// How `name` was found: `static`, `made` or `first_use`.
    pub named_by: &'static str,
    /// Locks of this name.
    pub instances: u64,
    /// Kind, protocol and whether processes share it; empty for the defaults.
    pub attributes: Vec<&'static str>,
    /// Operations by function.
    pub operations: BTreeMap<&'static str, u64>,
    pub failed: u64,
    /// Taken again on return from a wait for a condition.
    pub reacquired: u64,
    pub contended: u64,
    pub wait_ns: u64,
    pub longest_wait_ns: u64,
    /// Median and 99th percentile of the waits; absent without waits.
    pub wait_p50_ns: Option<u64>,
    /// 99 of 100 waits are not longer, ns; null without any.
    pub wait_p99_ns: Option<u64>,
    /// How many waits took how long.
    pub wait_histogram: Vec<Step>,
    /// Total of all holds, and the longest; absent if they are not known (`waits_only`).
    pub hold_ns: Option<u64>,
    /// Longest hold, ns; null if `waits_only`.
    pub longest_hold_ns: Option<u64>,
    /// Where the longest hold began, and its thread, with the index of its process image.
    pub longest_hold_site: Option<String>,
    /// Index of that thread's process image.
    pub longest_hold_process: Option<u32>,
    /// Thread of the longest hold.
    pub longest_hold_tid: Option<i32>,
    /// The CUDA call in which it began, and its time off CPU.
    pub longest_hold_inside: Option<String>,
    pub longest_hold_off_cpu: Option<OffCpu>,
    /// Unlocks by a thread that had not taken it.
    pub foreign_unlocks: u64,
}

/// A wait and the threads that held it up.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WaitRow {
    /// When it began, seconds and time stamp.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    /// Index of the process image: threads of two processes may have the same number.
    pub process: u32,
    pub tid: i32,
    pub thread: String,
    pub lock: String,
    /// The function.
    pub operation: &'static str,
    /// Where the thread called.
    pub site: String,
    pub wait_ns: u64,
    /// What the call returned.
    pub result: i32,
    /// It was still waiting when the recording, or the part of it, ended: `wait_ns` is the minimum.
    pub unfinished: bool,
    /// How long of it no thread held the lock: the waiter was woken and did not run, or others were faster.
    pub free_ns: u64,
    /// The waiter's time off CPU; absent without context switches.
    pub off_cpu: Option<OffCpu>,
    /// A lower bound of the time off CPU in which the thread was preempted, or in which no thread held the lock (it was not
    /// woken, or was woken and did not run).
    pub ready_ns: Option<u64>,
    /// The CUDA call in which it waited.
    pub inside: Option<String>,
    /// Number of holds during the wait, and their total (those of readers added up).
    pub holds: u64,
    /// How long they were, those of readers added up.
    pub held_ns: u64,
    /// Holds of threads that requested the lock later than this one and got it earlier, and how many of these only read.
    pub overtaken: u64,
    /// Of these the ones that only read.
    pub overtaken_by_readers: u64,
    /// The threads that held it the longest part of the wait, the longest first. Empty if no such hold is on the tape.
    pub holders: Vec<HolderRow>,
    /// What explains most of it. (Not written.)
    #[serde(skip)]
    pub pattern: Option<WaitPattern>,
}

/// A wait in words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitPattern {
    /// `70,812 readers overtook this writer`
    pub what: String,
    /// What that means.
    pub more: Option<&'static str>,
    /// The lock policy that would help, or why none does.
    pub help: Option<String>,
}

impl WaitPattern {
    /// Each with a point at its end.
    pub fn lines(&self) -> Vec<String> {
        let more = self.more.map_or(String::new(), |more| format!(": {more}"));
        let help = self.help.iter().map(|help| format!("{help}."));
        std::iter::once(format!("{}{more}.", self.what)).chain(help).collect()
    }
}

#[derive(Clone, Debug, Default, Serialize)]
pub struct HolderRow {
    pub tid: i32,
    pub thread: String,
    /// Where it took the lock. Empty if that was not recorded, because the wait began before an attach: then the lock itself named the thread.
    pub site: String,
    /// When, seconds and time stamp.
    pub since: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    /// Time held, ns; if `begin_unknown`, at least.
    pub hold_ns: u64,
    /// How much of the wait it held the lock.
    pub of_wait_ns: u64,
    /// It had not ended when the recording did.
    pub unfinished: bool,
    /// It is not known when it took the lock: it had it at `since`, and held it for at least `hold_ns`.
    pub begin_unknown: bool,
    /// It is not known exactly when it released the lock: `of_wait_ns` is the maximum.
    pub end_unknown: bool,
    /// Its time off CPU within `of_wait_ns`; absent without context switches.
    pub off_cpu: Option<OffCpu>,
    /// The CUDA call in which it took it.
    pub inside: Option<String>,
    /// What it waited for itself during that time, what the holder of that lock waited for, and so on.
    pub behind: Vec<BehindRow>,
}

/// A holder waited for another lock.
#[derive(Clone, Debug, Serialize)]
pub struct BehindRow {
    pub lock: String,
    /// How much of its hold, within the wait in question.
    pub wait_ns: u64,
    /// The thread that held that lock the longest part of the wait; absent if that is not on the tape.
    pub holder: Option<i32>,
    /// Name of that thread.
    pub holder_name: String,
    /// The CUDA call in which that thread took it.
    pub inside: Option<String>,
}

/// Locks that were taken in a circle of orders.
#[derive(Clone, Debug, Serialize)]
pub struct Cycle {
    pub edges: Vec<OrderRow>,
    /// One thread took all of them: it cannot deadlock alone.
    pub one_thread: bool,
}

/// A lock was taken while another was held.
#[derive(Clone, Debug, Serialize)]
pub struct OrderRow {
    /// The lock that was held.
    pub held: String,
    /// The lock that was then taken.
    pub taken: String,
    pub count: u64,
    /// Empty if that was not recorded.
    pub held_site: String,
    /// Where the second was taken.
    pub taken_site: String,
    /// Some of the threads that did.
    pub tids: Vec<i32>,
}

/// A thread waited for one of lower priority.
#[derive(Clone, Debug, Serialize)]
pub struct Inversion {
    /// When the wait began, seconds.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub lock: String,
    pub wait_ns: u64,
    /// Index of the process image.
    pub process: u32,
    pub tid: i32,
    pub thread: String,
    /// The waiter's policy and priority.
    pub sched: String,
    /// Where it was called.
    pub site: String,
    pub holder: HolderRow,
    /// The holder's policy and priority.
    pub holder_sched: String,
    /// Scheduling of the thread that had the holder's CPU.
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
    /// Empty if that was not recorded.
    pub site: String,
    /// Since when, seconds.
    pub since: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    /// True if it waited for the lock, false if it held it.
    pub waiting: bool,
    /// It is not known since when it held the lock: `since` and `tsc` are the time at which this was seen.
    pub since_unknown: bool,
}

/// A thread's row.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadRow {
    /// Index of the process image.
    pub process: u32,
    pub tid: i32,
    pub name: String,
    /// Its policy at its first event.
    pub sched: String,
    /// Later changes: seconds, and the new policy.
    pub changes: Vec<(f64, String)>,
}
