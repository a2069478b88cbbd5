//! Events of page faults: when threads of the program waited for a page from the kernel. And of the time that a
//! hypervisor took from the CPUs.
//!
//! Written by the recorder, from the kernel's records, as events of the thread [`WRITER`]. The first is a
//! [`WatchedBody`] with what was allowed. Older tapes do not have these.

/// The thread number of these events, which no thread has.
pub const WRITER: i32 = -2;

/// Layout of the bodies here.
pub const LAYOUT: u32 = 1;

/// Faults in one event, at most.
pub const MOST: usize = 512;

/// Event kinds, in addition to those of [`crate::event::kind`].
pub mod kind {
    pub const WATCHED: u16 = 72;
    pub const FAULTS: u16 = 73;
    /// [`crate::switch::LostBody`]. 0 records mean an unknown number.
    pub const LOST: u16 = 74;
    pub const STOLEN: u16 = 75;
}

/// Which faults are on the tape.
pub mod scope {
    /// None. The text that follows has the reason.
    pub const REFUSED: u32 = 0;
    /// All of the program's.
    pub const ALL: u32 = 1;
    /// Those of the program's own code, not those of system calls that read or write its memory.
    pub const PROGRAM: u32 = 2;
}

/// What is known of time that a hypervisor took.
pub mod steal {
    /// There is one, and it does not report that.
    pub const NOT_KNOWN: u32 = 0;
    /// There is no hypervisor.
    pub const NONE: u32 = 1;
    /// It reports the time: [`super::StolenBody`].
    pub const COUNTED: u32 = 2;
}

/// Page faults are recorded, or why not. `text` bytes of UTF-8 follow.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WatchedBody {
    /// [`LAYOUT`]
    pub layout: u32,
    /// One of [`scope`].
    pub scope: u32,
    /// One of [`steal`].
    pub steal: u32,
    pub text: u32,
}

/// Flag of a [`FaultsBody`]'s head: the thread waited for the page to be read. Without it the page was in memory, or was made.
pub const MAJOR: u16 = 1;

/// Page faults of one thread, one after the other. `count` of [`Fault`] follow. The head's time is when the first began.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultsBody {
    pub tid: i32,
    pub count: u32,
}

/// One of them, ticks.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// From the end of the one before it, 0 for the first.
    pub after: u32,
    /// From its begin to its end.
    pub ticks: u32,
}

/// A hypervisor took so much time from all CPUs together since the event before, or since the recording began.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StolenBody {
    pub ns: u64,
}
