//! Why CUDA calls took long.

use crate::holds::HoldsOthers;
use crate::now::Now;
use crate::symbols::Symbols;
use serde::Serialize;

/// The cause of a moment of a call, or of its whole slowness.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The time that calls of its kind usually take.
    Usual,
    /// A call whose purpose is to wait for the GPU.
    Gpu,
    /// The same, while the GPU ran kernels or copies that the call waits for.
    Engine,
    /// A kernel or a copy that the call waits for was submitted and did not run yet.
    Queue,
    /// The call waits for a stream that had host functions.
    HostFunction,
    /// A mutex or a rwlock that another thread had.
    Lock,
    /// A condition or a semaphore: another thread had to act first.
    Condition,
    /// An ioctl: the driver in the kernel.
    DriverCall,
    /// Another thread had the CPU.
    Preempted,
    /// The kernel had to map a page that was missing, or not accessible.
    PageFault,
    /// Code was loaded to the GPU: a module, or a kernel that was launched for the first time.
    CodeLoading,
    /// Memory was allocated, pinned or freed.
    Memory,
    /// A stream, an event or a graph was made, changed or destroyed.
    Making,
    /// The first launch of a graph since it was made or changed.
    GraphUpload,
    /// The CPU copied from or to pageable memory.
    Pageable,
    /// More was submitted than the channel has room for: the CPU waited for the GPU to read it.
    FullRing,
    /// Off CPU, with no event that explains it.
    Asleep,
    /// On a CPU, with no event that explains it.
    Unknown,
}

impl Cause {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Cause::Usual => "usual work",
            Cause::Gpu => "waiting for the GPU",
            Cause::Engine => "engine",
            Cause::Queue => "queue",
            Cause::HostFunction => "host function",
            Cause::Lock => "lock",
            Cause::Condition => "condition",
            Cause::DriverCall => "driver call",
            Cause::Preempted => "CPU taken away",
            Cause::PageFault => "page faults",
            Cause::CodeLoading => "loading code",
            Cause::Memory => "memory",
            Cause::Making => "making objects",
            Cause::GraphUpload => "graph upload",
            Cause::Pageable => "pageable memory",
            Cause::FullRing => "full ring",
            Cause::Asleep => "asleep",
            Cause::Unknown => "unknown",
        }
    }

    /// The time is the purpose of the call, not a delay.
    pub fn is_by_design(self) -> bool {
        matches!(self, Cause::Usual | Cause::Gpu | Cause::Engine)
    }
}

/// Where the time of CUDA calls was spent.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Why {
    /// Nothing is missing that is known of.
    pub complete: bool,
    /// Else why.
    pub incomplete_because: Vec<String>,
    /// Kinds of events that the recording lacks, so that their causes count as unknown.
    pub not_watched: Vec<String>,
    /// Time that a hypervisor took from all CPUs of the machine together, to a hundredth of a second; absent if it is not known. Which
    /// calls it was taken from is not known.
    pub stolen_ns: Option<u64>,
    /// Why a flight recorder saved this recording, and what happened; absent from other recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_because: Option<String>,
    /// Who waited for whom at the end. Absent if no thread waited for a lock, was in a call, or waited for a kernel for 100 ms then.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub moment: Option<Moment>,
    /// Calls of CUDA's.
    pub calls: u64,
    /// From begin to end of each call, total over all calls.
    pub ns: u64,
    /// Calls that lost this or more are slow.
    pub slow_from_ns: u64,
    /// How many are.
    pub slow: u64,
    /// Slow calls that are not in `slow`: those of the first 1,000 launches and copies of a process that makes more. `--starting` includes them.
    pub slow_starting: u64,
    /// The causes of all calls' time, the largest first. These times add up to `ns`.
    pub causes: Vec<CauseRow>,
    /// The places that copy pageable memory, the most expensive first.
    pub pageable: Vec<PageableRow>,
    /// Calls that had not returned when their thread, or the recording, ended, and the first of them.
    pub unfinished: u64,
    pub first_unfinished: Vec<UnfinishedRow>,
    /// Waits for Python's lock between calls: they make no call slow.
    pub between: Between,
    /// The calls that lost the most time, or the requested ones.
    pub worst: Vec<SlowCall>,
    /// What `doorbell run --fix` would have saved of the calls in `worst`, for each fix that would have saved something.
    pub fixes: Vec<FixRow>,
    /// If the GPU's times were recorded: number of calls that waited for the GPU for `slow_from_ns` or more, and the longest of them.
    pub long_waits: u64,
    pub waits: Vec<SlowCall>,
    /// Names from the source for the places in these rows.
    pub symbols: Symbols,
}

/// Who waited for whom when a flight recorder saved the recording, or when the recording ended.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Moment {
    /// In words: `at the moment of saving (hang > 10s)`, `when the recording ended`.
    pub when: String,
    /// By the two looks in the file, or by what the threads did when they or the recording ended.
    pub now: Now,
}

/// Time between two calls of a thread in which it waited for Python's lock (GIL).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Between {
    /// Pairs of calls with such a wait between them, the total of their waits, and the longest wait of one pair.
    pub gaps: u64,
    pub ns: u64,
    /// Of one pair, the most.
    pub longest_ns: u64,
    /// The longest first.
    pub worst: Vec<GapRow>,
}

/// The waits for Python's lock between two calls.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GapRow {
    /// When the first began.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    /// The call after it.
    pub call: String,
    /// Its number among the thread's calls.
    pub number: u32,
    /// Total of these waits, and their number.
    pub ns: u64,
    /// In how many waits; CPython waits 5 ms at a time.
    pub waits: u64,
    /// The lock's condition.
    pub lock: String,
    /// The holders, the longest first, and what each did for most of its longest turn.
    pub because: Vec<LinkRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseRow {
    pub cause: Cause,
    pub ns: u64,
    /// Calls with a part of this cause.
    pub calls: u64,
    /// The longest part in one call.
    pub longest_ns: u64,
    /// Time while the process began: before it had launched and copied a thousand times.
    pub starting_ns: u64,
    /// A remedy, if there is one.
    pub advice: Option<&'static str>,
}

/// Copies of pageable memory from one place in the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageableRow {
    /// Where the call was made.
    pub site: String,
    pub call: String,
    pub calls: u64,
    pub bytes: u64,
    pub ns: u64,
}

/// Waits for locks that other threads held in calls that a fix answers without them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FixRow {
    /// `pins`, `copies` or `memory`.
    pub fix: &'static str,
    /// Number of waits.
    pub calls: u64,
    pub ns: u64,
    pub longest_ns: u64,
    /// The calls in which the locks were held.
    pub answers: Vec<String>,
    /// Other calls of the program, which would have other results with this fix. `doorbell plan` proposes it only if there are none.
    pub not_with: Vec<String>,
}

/// A call that had not returned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnfinishedRow {
    /// Seconds since the recording began.
    pub at: f64,
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    pub call: String,
    /// Its number among the thread's calls.
    pub number: u32,
    /// Until its thread, or the recording, ended.
    pub ns: u64,
}

/// A call and the causes of its time.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SlowCall {
    /// When it began.
    pub at: f64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    pub call: String,
    /// Its number among the thread's calls, as in `call.number` of a submission.
    pub number: u32,
    /// The kernel that it launched, if it has a name.
    pub kernel: Option<String>,
    /// Bytes; blocks of a launch.
    pub size: u64,
    /// The stream's handle.
    pub stream: u64,
    /// Where it was called.
    pub site: String,
    pub ns: u64,
    /// Time that is not by design.
    pub lost_ns: u64,
    /// The largest cause of the lost time; absent if no time was lost. For a wait for the GPU, the largest part of that wait.
    pub cause: Option<Cause>,
    /// All of its time, the longest part first.
    pub parts: Vec<PartRow>,
    /// Bytes that it moved out of or into pageable memory.
    pub pageable_bytes: u64,
    /// Number of host functions in the stream that it waited for.
    pub host_functions: u64,
    /// Page faults in it.
    pub page_faults: PageFaults,
    /// A remedy, and how much of the call that saves at most, if that is known.
    pub advice: Option<String>,
    /// How much of the wait that saves at most; null where it is not known.
    pub saves_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageFaults {
    /// Faults whose page was in memory, or new.
    pub minor: u64,
    /// Faults that read a page from a disk, or waited for one.
    pub major: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartRow {
    pub cause: Cause,
    pub ns: u64,
    /// Which lock, which driver calls, which thread had the CPU: the longest first.
    pub of: Vec<OfRow>,
}

/// A lock that was waited for, a driver call, a thread that had the CPU, a kernel, a copy, or a kind of page faults: `minor`, `major`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfRow {
    /// Lock, driver call, kernel, copy (`copy 4 MiB host to device, pageable`), or thread that had the CPU; of page
    /// faults `minor` or `major`; of `queue` which kernel or copy of another stream ran meanwhile, or that none did; of
    /// `gpu` what is known of it.
    pub what: String,
    pub ns: u64,
    /// Number of times.
    pub times: u64,
    /// A kernel with known bounds only: it may have run for a shorter time.
    pub at_most: bool,
    /// For a lock: how long of that time no thread had it, as far as is known. The waiter was not woken then, or had no CPU.
    pub free_ns: Option<u64>,
    /// The holder or signaller, and why that took so long: one link after the other.
    pub because: Vec<LinkRow>,
}

/// The activity of a thread that another one waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRow {
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    /// `held`, `signalled`, or `meanwhile` for a driver call that ran at the same time.
    pub how: &'static str,
    /// The lock or condition.
    pub what: String,
    /// Its part of the waited time, and the number of its turns.
    pub ns: u64,
    /// In how many turns.
    pub times: u64,
    /// The CUDA call that it was in.
    pub call: Option<String>,
    /// For how long that function was measured to hold other threads up, if the thread held a lock; null if it was not measured, or for less than 0.2 ms.
    pub holds_others: Option<HoldsOthers>,
    /// Its activity for most of that time; of several turns, in the longest.
    pub doing: Cause,
    /// Which lock, which driver calls, which thread had the CPU.
    pub doing_what: Option<String>,
    /// For how long.
    pub doing_ns: u64,
}
