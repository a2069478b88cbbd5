//! What the threads of recorded processes do at one moment, as the recorder reads it from the shared memory and from /proc. Two such
//! looks show who waits for whom (`slow_calls::wait_graph`).
//!
//! Times are ticks of the time stamp counter, so that two looks can be compared exactly.

use crate::file::Rank;
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

/// A recorded process, or one that it has started and that has recorded nothing. Also some that have ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveProcess {
    pub pid: i32,
    /// Empty with `--no-args`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// 0 if unknown.
    pub parent: i32,
    /// When it was started, or first seen; 0 if unknown.
    pub began: u64,
    /// It has recorded nothing, or could not be recorded.
    pub unrecorded: bool,
    /// How it ended, if it has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<LiveEnd>,
    /// The process that traces it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracer: Option<LiveOther>,
    /// Only driver calls are recorded: calls are not known, and holders only from the locks themselves.
    pub paused: bool,
    /// One of [`state`].
    pub state: String,
    /// It is in another pid namespace, where its threads have the numbers that are here. /proc has others.
    pub other_numbers: bool,
    pub threads: Vec<LiveThread>,
    /// The locks that its threads wait for, as the program's memory has them.
    pub locks: Vec<LiveLock>,
    /// What its streams have to do, if calls are recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub streams: Vec<LiveStream>,
    /// The streams in which it launched collectives, in the order of their first ones. Only if calls are recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<LiveCollectives>,
    /// Its part in a job.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<Rank>,
    /// Channels whose last commands the GPU has not read, where that can be seen.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<LiveChannel>,
    /// The last signal of each condition, and the last post of each semaphore, for which its threads wait; of those that are recorded.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signals: Vec<LiveSignal>,
    /// All signals are recorded: a condition that is not in the list was not signalled since the recording began.
    pub has_signals: bool,
    /// Threads that ask for the same thing again and again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub polls: Vec<LivePoll>,
    /// Memory that it shares with others. Only read if a thread waits in such memory, or if a process has ended or is stopped. Of an
    /// ended process: what it had when it was last looked at, if a process that has not ended has it, too.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<LiveShared>,
    /// Of an ended process: pipes and sockets that it had when it was last looked at, and for which a thread waits.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pipes: Vec<LivePipe>,
    /// Python's locks for which its threads wait.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub python: Vec<LiveGil>,
}

impl LiveProcess {
    /// Where an address is in memory that processes share. Addresses of several processes with the same place are the same memory.
    pub fn place(&self, address: u64) -> Option<LivePlace> {
        let of = |s: &LiveShared| {
            let offset = s.offset + (address - s.begin);
            LivePlace { device: s.device.clone(), inode: s.inode, offset, path: s.path.clone() }
        };
        self.shares.iter().find(|s| (s.begin..s.end).contains(&address)).map(of)
    }
}

/// How a process ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveEnd {
    /// `exited 0`, `killed by signal 9`; `ended` if that is not known.
    pub how: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// When the recorder saw that; 0 if unknown.
    pub at: u64,
    /// Nobody has waited for it.
    pub zombie: bool,
}

/// A mapping of memory that other processes may have, too.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveShared {
    pub begin: u64,
    pub end: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// The file, as /proc names it: `00:01`.
    pub device: String,
    pub inode: u64,
    /// Empty with `--no-args`.
    pub path: String,
}

/// A pipe, a fifo or a socket that a process has open.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(default)]
pub struct LivePipe {
    /// `pipe:[123]`
    pub name: String,
    /// One of [`how`].
    pub how: String,
}

/// A place in memory that processes share.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LivePlace {
    pub device: String,
    pub inode: u64,
    pub offset: u64,
    pub path: String,
}

/// A thread: each of a process that /proc has, and those that a lock names as its holder.
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
    /// Of a process's first thread: how often it has gone to sleep by itself. 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub sleeps: u64,
    /// The thread for whose end it waits, by pthread_join.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joins: Option<i32>,
    /// What it waits for in that system call. (Of poll: for one of these.)
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub on: Vec<LiveOn>,
    /// It is a thread of CUDA's driver, and sleeps in a function of the program that the driver has called: the host function of a
    /// stream. Where that function begins, or an address in it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host_function: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<LiveCall>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<LiveHold>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub holds: Vec<LiveHold>,
}

/// What a thread waits for in a system call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveOn {
    /// One of [`on`].
    pub kind: String,
    /// The file or descriptor: a path, `pipe:[123]`, `socket:[123]`. Empty if there is none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// `read` or `write`: what the thread wants to do.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub to: String,
    /// The word in memory that a futex call waits for; its value, and the value that the call expects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<u32>,
    /// Where the word is, if processes share it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<LivePlace>,
    /// The word is in a barrier, by its form.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub barrier: Option<LiveBarrier>,
    /// The number of an ioctl's request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub request: Option<u64>,
    /// The kernel's function in which it sleeps, for an ioctl, and for a sleep that no signal interrupts.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub wchan: String,
    /// Processes that have it, too, and may end the wait. Those first that can.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<LiveOther>,
    /// The search for others ended before it was through.
    pub cut: bool,
}

impl LiveOn {
    /// It is the same wait for the same thing. (States of other processes may differ.)
    pub fn is_same_wait(&self, other: &LiveOn) -> bool {
        let key = |o: &LiveOn| LiveOn { others: Vec::new(), cut: false, ..o.clone() };
        key(self) == key(other)
    }
}

/// A pthread barrier of glibc.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveBarrier {
    /// Threads that wait in it.
    pub arrived: u32,
    /// Threads for which they wait, with them.
    pub count: u32,
}

/// A process that has what a thread waits for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveOther {
    pub pid: i32,
    /// Empty with `--no-args`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// One of [`state`].
    pub state: String,
    /// One of [`how`].
    pub how: String,
    /// Its threads that wait in a futex call for a word at the same place.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tids: Vec<i32>,
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

/// What a stream has to do: the calls whose work is not known to be done, in their order. (Work is known to be done when a call that
/// waits for it, or asks for it, has returned success. So work that is here may be done, too.)
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveStream {
    /// As in [`LiveCall::stream`].
    pub stream: u64,
    pub work: Vec<LiveWork>,
    /// Older work was forgotten: there was too much.
    pub cut: bool,
}

/// A call that gave a stream something to do.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveWork {
    /// [`crate::call::Function::number`]
    pub function: u16,
    /// When the call returned.
    pub tsc: u64,
    pub tid: i32,
    /// As in [`crate::call::CallBody::object`]; of a kernel the handle that the driver got, if that is known.
    pub object: u64,
    /// The value that the stream waits for or writes, and how it compares: [`crate::call::Size::Compare`]. Of a wait for an event: when that
    /// was recorded last, and in which stream; 0 if that is not known.
    #[serde(skip_serializing_if = "is_zero")]
    pub value: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub how: u64,
    /// The word that it waits for has this value now; `None` where the program's memory does not have it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub there: Option<u64>,
    /// The kernel's symbol. Empty with `--no-args`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
}

/// The collectives that a process launched in a stream: kernels that run on all ranks of a job together ([`collective`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveCollectives {
    pub stream: u64,
    /// How many, since the process is recorded. The same number on another rank is the same collective.
    pub launched: u64,
    /// The last one: its symbol, the thread that launched it, and when that call returned. The name is empty with `--no-args`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub name: String,
    pub tid: i32,
    pub tsc: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// A channel with commands that the GPU has not read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveChannel {
    /// Its number on the tape.
    pub channel: u32,
    /// GP_PUT, as the program's last doorbell gave it, and GP_GET, up to which the GPU has read.
    pub put: u32,
    pub get: u32,
    /// The stream whose call rang last.
    pub stream: u64,
    /// Where its USERD is in the process.
    #[serde(skip)]
    pub userd: u64,
}

/// The last signal of a condition, or the last post of a semaphore.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveSignal {
    pub address: u64,
    /// The thread that signalled, and when.
    pub tid: i32,
    pub tsc: u64,
}

/// A thread whose last calls all asked for the same thing, which was not ready.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LivePoll {
    pub tid: i32,
    pub function: u16,
    pub stream: u64,
    pub object: u64,
    /// When it asked first, and last.
    pub since: u64,
    pub last: u64,
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

/// Python's lock (GIL), as the program's memory has it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveGil {
    /// The condition for which threads wait that need it: [`LiveHold::address`] of their waits, which begin again every 5 ms.
    pub condition: u64,
    pub is_locked: bool,
    /// The thread that has it; 0 if it is free, or if that is not known.
    pub holder: i32,
    /// How often another thread got it than the one that had it before. If two looks have the same holder and number, no other thread
    /// had it between them.
    pub switches: u64,
}

/// The calls that led a thread to where it sleeps.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveStack {
    pub pid: i32,
    pub tid: i32,
    /// The innermost first.
    pub frames: Vec<LiveFrame>,
    /// Why there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lacks: Option<String>,
}

/// Where a thread is, or where it continues after a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveFrame {
    pub address: u64,
    /// false: a return address found on the stack, where no unwind table leads on. It may be of an older call.
    pub is_certain: bool,
}

/// A file is Python itself: `libpython3.11.so.1.0`, and `python3.11` where Python is one file.
pub fn is_of_python(name: &str) -> bool {
    let rest = name.strip_prefix("lib").unwrap_or(name).strip_prefix("python");
    rest.is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
}

/// The name of a kernel of NCCL that all ranks run together, from its symbol: `_Z40ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDev...`. (Sends and
/// receives are between two ranks. Others do not launch them.)
pub fn collective(symbol: &str) -> Option<&str> {
    let at = ["ncclDevKernel_", "ncclKernel_"].iter().find_map(|prefix| symbol.find(prefix))?;
    let (before, name) = symbol.split_at(at);
    let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(name.len());
    // (A mangled name begins with its length.)
    let length = before.rsplit(|c: char| !c.is_ascii_digit()).next().and_then(|n| n.parse().ok());
    let name = name.get(..length.map_or(end, |n: usize| n.min(end)))?;
    (!name.contains("SendRecv")).then_some(name)
}

impl LiveProcess {
    /// Adds a thread that another one's lock names as its holder. (0: none.)
    pub fn add_thread(&mut self, tid: i32) {
        if tid > 0 && self.threads.iter().all(|t| t.tid != tid) {
            self.threads.push(LiveThread { tid, ..LiveThread::default() });
        }
    }
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

/// What a thread waits for.
pub mod on {
    pub const PIPE: &str = "pipe";
    pub const SOCKET: &str = "socket";
    pub const FILE: &str = "file";
    /// A file in /dev.
    pub const DEVICE: &str = "device";
    /// An eventfd, a timerfd or the like.
    pub const DESCRIPTOR: &str = "descriptor";
    /// flock, or fcntl with a lock.
    pub const FILE_LOCK: &str = "file_lock";
    pub const FUTEX: &str = "futex";
    /// The end of a child.
    pub const CHILD: &str = "child";
    pub const IOCTL: &str = "ioctl";
    /// epoll, or a poll whose descriptors were not read.
    pub const EVENTS: &str = "events";
    pub const SIGNAL: &str = "signal";
    /// The end of a time.
    pub const TIME: &str = "time";
}

/// How another process has what a thread waits for.
pub mod how {
    /// It can read from the pipe, write to it, or do both.
    pub const READ: &str = "read";
    pub const WRITE: &str = "write";
    pub const BOTH: &str = "both";
    /// It has the file's lock.
    pub const HOLDS: &str = "holds";
    /// It maps the same memory.
    pub const MAPS: &str = "maps";
    /// The child that is waited for.
    pub const CHILD: &str = "child";
    /// The other end of a socket.
    pub const PEER: &str = "peer";
    pub const TRACES: &str = "traces";
}

#[cfg(test)]
mod tests {
    use super::collective;

    #[test]
    fn collectives_are_named_by_their_symbols() {
        let mangled = "_Z39ncclDevKernel_AllReduce_Sum_f32_RING_LL24ncclDevKernelArgsStorageILm4096EE";
        assert_eq!(collective(mangled), Some("ncclDevKernel_AllReduce_Sum_f32_RING_LL"));
        assert_eq!(collective("ncclKernel_Broadcast(int)"), Some("ncclKernel_Broadcast"));
        assert_eq!(collective("_Z99999999999999999999ncclKernel_A\u{e9}"), Some("ncclKernel_A"));
        assert!(
            [collective("ncclDevKernel_SendRecv(x)"), collective("gemm"), collective("")].iter().all(Option::is_none)
        );
    }
}
