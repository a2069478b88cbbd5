//! Why calls of CUDA's took long.

use crate::symbols::Symbols;
use serde::Serialize;

/// What a moment of a call, or all that made it slow, is put down to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// What calls of its kind take when nothing is in their way.
    Usual,
    /// The call is there to wait for the GPU.
    Gpu,
    /// The same, while the GPU ran kernels or copies that the call waits for.
    Engine,
    /// A kernel or a copy that the call waits for was submitted and did not run yet.
    Queue,
    /// The call waits for a stream in which functions of the host's were.
    HostFunction,
    /// A mutex or a rwlock that another thread had.
    Lock,
    /// A condition or a semaphore: another thread had to do something.
    Condition,
    /// An ioctl: the driver in the kernel.
    DriverCall,
    /// Somebody else had the CPU.
    Preempted,
    /// The kernel had to give it a page that was not there, or not for it.
    PageFault,
    /// Code came to the GPU: a module, or a kernel that was launched for the first time.
    CodeLoading,
    /// Memory was made, pinned or given back.
    Memory,
    /// A stream, an event or a graph was made, changed or given back.
    Making,
    /// The first launch of a graph since it was made or changed.
    GraphUpload,
    /// The CPU copied from or to pageable memory.
    Pageable,
    /// More was submitted than the channel has room for: the CPU waited for the GPU to take it.
    FullRing,
    /// Off CPU, for nothing that was seen.
    Asleep,
    /// On a CPU, and nothing was seen that was in the way.
    Unknown,
}

impl Cause {
    /// As tables have it.
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

    /// The time is what the call is for, not something in its way.
    pub fn is_by_design(self) -> bool {
        matches!(self, Cause::Usual | Cause::Gpu | Cause::Engine)
    }
}

/// Where the time of CUDA's calls went.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Why {
    pub complete: bool,
    pub incomplete_because: Vec<String>,
    /// What the recording has nothing of, so that its causes are among the unknown ones.
    pub not_watched: Vec<String>,
    /// Time that a hypervisor took from all CPUs of the machine together, to a hundredth of a second; absent if it is not known. Which
    /// calls it was taken from is not known.
    pub stolen_ns: Option<u64>,
    /// Why a flight recorder saved this recording, and what happened; absent from other recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub saved_because: Option<String>,
    pub calls: u64,
    /// From begin to end of each call, all of them together.
    pub ns: u64,
    /// Calls that lost this or more are slow.
    pub slow_from_ns: u64,
    pub slow: u64,
    /// What all calls' time is put down to, the most first. The sum of these times is `ns`.
    pub causes: Vec<CauseRow>,
    /// Where copies of pageable memory come from, the dearest first.
    pub pageable: Vec<PageableRow>,
    /// Calls in which their thread was when it, or the recording, ended, and the first of them.
    pub unfinished: u64,
    pub first_unfinished: Vec<UnfinishedRow>,
    /// Waits for Python's lock between calls: they make no call slow.
    pub between: Between,
    /// The calls that lost the most, or those that were asked for.
    pub worst: Vec<SlowCall>,
    /// Calls that waited for the GPU for `slow_from_ns` or more, where the GPU's times were recorded, and those that waited the longest.
    pub long_waits: u64,
    pub waits: Vec<SlowCall>,
    /// Names from the source of the places in these rows.
    pub symbols: Symbols,
}

/// Time between two calls of a thread in which it waited for Python's lock (GIL).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Between {
    /// Pairs of calls with such a wait between them, all their waits, and the longest of one pair.
    pub gaps: u64,
    pub ns: u64,
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
    /// The call that came after it.
    pub call: String,
    pub number: u32,
    /// All of them together, and how many.
    pub ns: u64,
    pub waits: u64,
    /// The lock's condition.
    pub lock: String,
    /// Who had it, the longest first, and what they did for the most of their longest turn.
    pub because: Vec<LinkRow>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CauseRow {
    pub cause: Cause,
    pub ns: u64,
    /// Calls that have a part of it.
    pub calls: u64,
    /// The longest part that one call has.
    pub longest_ns: u64,
    /// While the process began: before it had launched and copied a thousand times.
    pub starting_ns: u64,
    /// What to do about it, where something can be done.
    pub advice: Option<&'static str>,
}

/// Copies of pageable memory from one place in the program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PageableRow {
    pub site: String,
    pub call: String,
    pub calls: u64,
    pub bytes: u64,
    pub ns: u64,
}

/// A call that had not returned.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct UnfinishedRow {
    pub at: f64,
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    pub call: String,
    pub number: u32,
    /// Until its thread, or the recording, ended.
    pub ns: u64,
}

/// A call and what its time is put down to.
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
    pub number: u32,
    /// The kernel that it launched, if it has a name.
    pub kernel: Option<String>,
    pub size: u64,
    pub stream: u64,
    pub site: String,
    pub ns: u64,
    /// What is not by design.
    pub lost_ns: u64,
    /// The largest part of what was lost; absent if nothing was. Of a wait for the GPU the largest part of that.
    pub cause: Option<Cause>,
    /// All of its time, the longest part first.
    pub parts: Vec<PartRow>,
    /// Bytes that it moved out of or into pageable memory.
    pub pageable_bytes: u64,
    /// The stream had this many functions of the host's to wait for.
    pub host_functions: u64,
    /// Page faults in it.
    pub page_faults: PageFaults,
    /// What to do about it, and how much of the call that saves at most, where that is known.
    pub advice: Option<String>,
    pub saves_ns: Option<u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct PageFaults {
    /// The page was in memory, or a new one.
    pub minor: u64,
    /// It was read from a disk, or waited for.
    pub major: u64,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct PartRow {
    pub cause: Cause,
    pub ns: u64,
    /// Which lock, which driver calls, who had the CPU: the longest first.
    pub of: Vec<OfRow>,
}

/// A lock that was waited for, a driver call, a thread that had the CPU, a kernel, a copy, or a kind of page faults: `minor`, `major`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OfRow {
    pub what: String,
    pub ns: u64,
    /// How often.
    pub times: u64,
    /// A kernel of which only bounds are known: it may have run for a shorter time.
    pub at_most: bool,
    /// A lock: how long of that nobody had it, as far as is known. The thread was not woken then, or had no CPU.
    pub free_ns: Option<u64>,
    /// Who had it, or brought it about, and why that took so long: one after the other.
    pub because: Vec<LinkRow>,
}

/// What a thread did that another one waited for.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkRow {
    pub pid: i32,
    pub tid: i32,
    pub thread: String,
    /// `held`, `signalled`, or `meanwhile` for a driver call that ran at the same time.
    pub how: &'static str,
    /// The lock or condition.
    pub what: String,
    /// Of the time that was waited, and in how many turns.
    pub ns: u64,
    pub times: u64,
    /// CUDA's call that it was in.
    pub call: Option<String>,
    /// What it did for the most of that time; of several turns, of the longest.
    pub doing: Cause,
    /// Which lock, which driver calls, who had the CPU.
    pub doing_what: Option<String>,
    pub doing_ns: u64,
}
