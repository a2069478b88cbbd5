//! What the threads of recorded processes do at one moment, as the recorder reads it from the shared memory and from /proc. Two such
//! looks show who waits for whom (`wait-graph`).
//!
//! Times are ticks of the time stamp counter, so that two looks can be compared exactly. (Streams, semaphores and kernels of the GPU
//! will be lists of [`LiveProcess`], next to its threads.)

use serde::{Deserialize, Serialize};

/// All recorded processes at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Live {
    /// When the rows of threads were read.
    pub tsc: u64,
    /// Ticks per second.
    pub hz: f64,
    /// There are more threads than were looked at.
    pub cut: bool,
    pub processes: Vec<LiveProcess>,
}

/// Two looks at the program, when a flight recorder saved a file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Looks {
    pub first: Live,
    pub second: Live,
}

/// A recorded process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveProcess {
    pub pid: i32,
    /// Only driver calls are recorded: calls are not known, and holders only from the locks themselves.
    pub paused: bool,
    /// One of [`state`].
    pub state: String,
    /// It is in another pid namespace, where its threads have the numbers that are here. /proc has others.
    pub other_numbers: bool,
    pub threads: Vec<LiveThread>,
    /// The locks that its threads wait for, as the program's memory has them.
    pub locks: Vec<LiveLock>,
}

/// A thread: one that has recorded something, or that a lock names as its holder.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveThread {
    pub tid: i32,
    /// Empty with `--no-args`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// One of [`state`].
    pub state: String,
    /// The system call that it sleeps in, if /proc may be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_call: Option<String>,
    /// The thread for whose end it waits, by pthread_join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joins: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<LiveCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<LiveHold>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<LiveHold>,
}

/// The CUDA call that a thread is in.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveCall {
    pub function: String,
    pub began: u64,
    /// [`crate::call::CallBody::seq`]
    pub number: u32,
    pub stream: u64,
    pub object: u64,
    pub kernel: u64,
}

/// A lock that a thread waits for or holds: [`crate::region::HeldLock`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveHold {
    pub address: u64,
    pub site: u64,
    /// 0 if unknown, or while the thread waits for a condition with this mutex.
    pub since: u64,
    /// Operation and attributes, as in the event: [`crate::lock`].
    pub flags: u16,
    /// Of a hold without a time: which turn of the lock it is.
    pub turn: u64,
}

/// What a lock in the program's memory names as its holder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveLock {
    pub address: u64,
    /// The thread that has it alone; 0 for none.
    pub holder: i32,
    /// Readers that have it.
    pub readers: u32,
}

impl LiveHold {
    /// One of [`crate::lock::op`].
    pub fn op(&self) -> u8 {
        (self.flags >> 8) as u8
    }
}

/// Names of the kernel's states of a thread.
pub mod state {
    pub const RUNNING: &str = "running";
    pub const SLEEPING: &str = "sleeping";
    /// In a system call that no signal interrupts.
    pub const UNINTERRUPTIBLE: &str = "uninterruptible";
    /// By SIGSTOP or another signal that stops.
    pub const STOPPED: &str = "stopped";
    /// By a debugger.
    pub const TRACED: &str = "traced";
    pub const ENDED: &str = "ended";
    /// /proc does not have it, or may not be read.
    pub const UNKNOWN: &str = "unknown";
}
