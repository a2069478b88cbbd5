//! How a loop is started.

use std::time::Duration;
use submit::{Buffer, Graph};

/// Bytes that the chain reads or writes: host memory of [`submit::Session::allocate`]'s.
#[derive(Clone, Copy, Debug)]
pub struct Part {
    pub buffer: Buffer,
    pub at: u64,
    pub bytes: u64,
}

/// When frames are launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pace {
    /// At ticks that are so far apart.
    Period(Duration),
    /// When an input is committed.
    Frames,
}

/// Which input is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Take {
    /// One after the other. The producer finds [`crate::Error::Full`] where the loop is behind.
    #[default]
    InOrder,
    /// The newest; older ones count as skipped. The producer is never behind.
    Newest,
}

/// What happens where the loop is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Late {
    /// Ticks whose time is over are missed: nothing is launched for them, and an input each is skipped as long as a newer one is there. An input whose own
    /// deadline has passed is not launched; its result says so.
    #[default]
    Skip,
    /// Nothing is left out: the loop launches without a pause until it has caught up.
    CatchUp,
    /// As `Skip`, and the newest input is taken then; the ones before it are skipped.
    Latest,
}

/// What happens where nobody has read a result whose slot is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Full {
    /// The oldest is written over, and counted as an overrun.
    #[default]
    Overwrite,
    /// The loop ends ([`crate::Reason::Unread`]). Nothing is lost.
    Stop,
}

/// How the thread waits for a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Waiting {
    /// It sleeps for most of the time that results take as a rule, spins around that moment (0.3 ms at most), and naps after it.
    #[default]
    Nap,
    /// It spins until the next tick, or for 10 ms as frames come; then it naps.
    Spin,
}

/// Before whom the thread runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    #[default]
    Ordinary,
    /// SCHED_FIFO, 1 to 99.
    Fifo(i32),
    /// SCHED_DEADLINE. The kernel gives it only to threads that may run on all CPUs.
    Deadline { runtime: Duration, deadline: Duration, period: Duration },
}

/// What the thread asks the kernel for.
#[derive(Clone, Debug, Default)]
pub struct Scheduling {
    pub class: Class,
    /// Only this CPU.
    pub cpu: Option<usize>,
    /// The loop's memory and 64 KiB of the thread's stack stay in memory (mlock).
    pub lock_memory: bool,
    /// What is refused is an error of the start. Otherwise [`crate::Loop::refused`] names it, and the loop runs.
    pub required: bool,
}

/// How a loop is started. [`LoopOptions::new`] has the rest.
#[derive(Clone, Debug)]
pub struct LoopOptions {
    /// What [`submit::Session::prepare_chain`] has made. One launch of it is under way at a time. Nobody else launches it.
    pub graph: Graph,
    /// Where the chain reads. `None`: there are no inputs, and each tick is launched.
    pub input: Option<Part>,
    /// Where the chain writes. `None`: results are heads alone.
    pub output: Option<Part>,
    pub slots: u32,
    pub results: u32,
    pub pace: Pace,
    /// When tick 0 is, of CLOCK_MONOTONIC in nanoseconds, so that loops may have the same ticks; those before the start are no ticks of this loop. 0: a period
    /// after the start.
    pub first: u64,
    pub take: Take,
    pub late: Late,
    pub full: Full,
    /// When the result of an input without a deadline is late: so long after its tick or its commit. `None`: at the next tick; as frames come, never.
    pub deadline: Option<Duration>,
    pub waiting: Waiting,
    /// The thread spins so long before a tick, or for the next input before it sleeps.
    pub spin: Duration,
    /// The longest that a result, or a lane that another thread has, is waited for.
    pub limit: Duration,
    /// The eventfd is signalled for each so many results, and when the loop ends. 0: only then.
    pub signal_each: u32,
    pub scheduling: Scheduling,
    /// The thread's, up to 15 bytes.
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
