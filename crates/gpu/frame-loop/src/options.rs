//! How a loop is started.

use std::time::Duration;
use submit::{Buffer, Graph};

/// Bytes that the chain reads or writes: host memory from [`submit::Session::allocate`].
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub buffer: Buffer,
    pub at: u64,
    pub bytes: u64,
}

/// When frames are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At ticks with this period.
    Period(Duration),
    /// When an input is committed.
    Frames,
}

/// Which input is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// One after the other. If the loop is behind, the producer gets [`crate::Error::Full`].
    #[default]
    InOrder,
    /// The newest; older ones count as skipped. The producer never has to wait.
    Newest,
}

/// What happens if the loop is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// Ticks whose period has passed are missed: they are not launched. For each of them an input is skipped, but never the newest. An input whose own
    /// deadline has passed is not launched; its result has this status.
    #[default]
    Skip,
    /// All ticks and inputs are launched, without a pause until the loop has caught up.
    CatchUp,
    /// As `Skip`, but then takes the newest input; the ones before it are skipped.
    Latest,
}

/// What happens if the slot for the next result has an unread one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// The oldest is overwritten, and counted as an overrun.
    #[default]
    Overwrite,
    /// The loop ends ([`crate::Reason::Unread`]). No result is lost.
    Stop,
}

/// How the thread waits for a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps for most of the usual time of a result, spins around that moment (0.3 ms at most), and naps after it.
    #[default]
    Nap,
    /// It spins until the next tick, or for 10 ms as frames come; then it naps.
    Spin,
}

/// The thread's scheduling class.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    #[default]
    Ordinary,
    /// SCHED_FIFO, 1 to 99.
    Fifo(i32),
    /// SCHED_DEADLINE. The kernel gives it only to threads that may run on all CPUs.
    Deadline { runtime: Duration, deadline: Duration, period: Duration },
}

/// What the thread requests from the kernel.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    pub class: Class,
    /// Only this CPU.
    pub cpu: Option<usize>,
    /// No other thread of the process runs on that CPU while the loop lives (`environment::placement::alone`).
    pub alone: bool,
    /// The loop's memory and 64 KiB of the thread's stack stay in memory (mlock).
    pub lock_memory: bool,
    /// A refused request is an error of the start. Otherwise [`crate::Loop::refused`] names it, and the loop runs.
    pub required: bool,
}

/// How a loop is started. [`LoopOptions::new`] sets the defaults.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// A chain from [`submit::Session::prepare_chain`]. Only one launch of it is pending at a time. No other thread may launch it.
    pub graph: Graph,
    /// Memory that the chain reads. `None`: there are no inputs, and each tick is launched.
    pub input: Option<Part>,
    /// Memory that the chain writes. `None`: results are heads alone.
    pub output: Option<Part>,
    pub slots: u32,
    pub results: u32,
    pub pace: Pace,
    /// Time of tick 0, in nanoseconds of CLOCK_MONOTONIC, so that several loops can share their ticks. Ticks before the start do not belong to this loop. 0: a
    /// period after the start.
    pub first: u64,
    pub take: Take,
    pub late: Late,
    pub full: Full,
    /// For an input without a deadline, its result is late this long after its tick or its commit. `None`: at the next tick; as frames come, never.
    pub deadline: Option<Duration>,
    pub waiting: Waiting,
    /// How long the thread spins before a tick, or for the next input before it sleeps.
    pub spin: Duration,
    /// Maximum wait for a result, or for a lane that another thread has.
    pub limit: Duration,
    /// The eventfd is signalled once for this many results, and when the loop ends. 0: only then.
    pub signal_each: u32,
    pub scheduling: Scheduling,
    /// The thread's name, up to 15 bytes.
    pub name: String,
}

impl LoopOptions {
    pub fn new(graph: Graph, pace: Pace) -> LoopOptions {
        LoopOptions {
            graph,
            input: None,
            output: None,
            slots: 8,
            results: 64,
            pace,
            first: 0,
            take: Take::default(),
            late: Late::default(),
            full: Full::default(),
            deadline: None,
            waiting: Waiting::default(),
            spin: Duration::from_micros(50),
            limit: Duration::from_secs(2),
            signal_each: 1,
            scheduling: Scheduling::default(),
            name: "doorbell-loop".into(),
        }
    }
}
