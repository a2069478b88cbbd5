//! Events of context switches: when a thread of the program was taken off a CPU, by whom, and when it came back.
//!
//! Written by the recorder, from the kernel's records, as events of the thread [`WRITER`], in the order of time. A
//! [`SwitchesBody`] comes first and says what was allowed; tapes without context switches have none of these.

/// The thread number under which these events stand: no thread's.
pub const WRITER: i32 = -1;

/// Layout of the bodies here.
pub const LAYOUT: u32 = 1;

/// Event kinds, beside those of [`crate::event::kind`].
pub mod kind {
    pub const SWITCHES: u16 = 64;
    pub const SWITCH: u16 = 65;
    pub const LOST: u16 = 66;
    pub const TASK: u16 = 67;
    pub const DEADLINE: u16 = 68;
}

/// Which switches are on the tape.
pub mod scope {
    /// None: the text that follows says why.
    pub const REFUSED: u32 = 0;
    /// Those of the program's threads on all CPUs, with the thread on the other side of each.
    pub const ALL_CPUS: u32 = 1;
    /// Those of the program's threads; who took the CPU is not known.
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
    /// The thread left the CPU; else it came onto it.
    pub const OUT: u16 = 1;
    /// It left although it could have run on.
    pub const PREEMPTED: u16 = 2;
}

/// A thread of the program left a CPU, or came onto one.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SwitchBody {
    pub tid: i32,
    /// Who came in its place, or was there before it: 0 nobody (idle), -1 not known.
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

/// A thread, the program's or not, that came onto a CPU behind one of the program's, once for each; or one of the program's
/// that got a name.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskBody {
    pub tid: i32,
    pub pid: i32,
    /// As [`crate::lock::SchedBody::policy`]; -1 if it was gone already, or only its name is told.
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    pub pad: u32,
    /// Its name, zeros behind it; empty if it was gone already, or names are not told.
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
