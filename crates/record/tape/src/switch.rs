//! Events of context switches: when a thread of the program left a CPU, which thread took its place, and when it got a CPU
//! again.
//!
//! The recorder writes them from the kernel's records, as events of the thread [`WRITER`], in the order of time. The first
//! is a [`SwitchesBody`] with what was allowed. Tapes without context switches do not have these.

/// The thread number of these events, which no thread has.
pub const WRITER: i32 = -1;

/// Layout of the bodies here.
pub const LAYOUT: u32 = 1;

/// Event kinds, in addition to those of [`crate::event::kind`].
pub mod kind {
    pub const SWITCHES: u16 = 64;
    pub const SWITCH: u16 = 65;
    pub const LOST: u16 = 66;
    pub const TASK: u16 = 67;
    pub const DEADLINE: u16 = 68;
}

/// Which switches are on the tape.
pub mod scope {
    /// None. The text that follows has the reason.
    pub const REFUSED: u32 = 0;
    /// Those of the program's threads on all CPUs, with the thread on the other side of each.
    pub const ALL_CPUS: u32 = 1;
    /// Those of the program's threads, without the thread that took the CPU.
    pub const PROGRAM: u32 = 2;
}

/// Context switches are recorded, or why not. `text` bytes of UTF-8 follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchesBody {
    /// [`LAYOUT`]
    pub layout: u32,
    /// One of [`scope`].
    pub scope: u32,
    pub text: u32,
    pub pad: u32,
}

/// Flags of a [`SwitchBody`]'s head.
pub mod switch_flags {
    /// The thread left the CPU; without this flag, it got the CPU.
    pub const OUT: u16 = 1;
    /// It left although it could have run on.
    pub const PREEMPTED: u16 = 2;
}

/// A thread of the program left a CPU, or got one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchBody {
    pub tid: i32,
    /// The thread that took its place, or that had the CPU before it. 0 means none (idle), -1 not known.
    pub other: i32,
    /// Process of `other`; -1 not known.
    pub other_pid: i32,
    pub cpu: u32,
}

/// Records of switches, of any thread, that did not fit into the kernel's buffer.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostBody {
    pub records: u64,
}

/// A thread, the program's or not, that got a CPU after one of the program's, once for each; or a thread of the program
/// that got a name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskBody {
    pub tid: i32,
    pub pid: i32,
    /// As [`crate::lock::SchedBody::policy`]; -1 if it had ended already, or if only its name is recorded.
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    pub pad: u32,
    /// Its name, then zeros; empty if it had ended already, or if names are not recorded.
    pub name: [u8; 16],
}

/// What a thread under SCHED_DEADLINE was granted, ns.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeadlineBody {
    pub tid: i32,
    pub pad: u32,
    pub runtime: u64,
    pub deadline: u64,
    pub period: u64,
}
