//! Who waits for whom in a recorded program at this moment.

use crate::now_ranks::{NowRank, NowRecorder};
use serde::Serialize;

/// Who waits for whom, from two looks at the program.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Now {
    /// The program that was started; 0 with `--all`.
    pub pid: i32,
    /// Empty with `record --no-args` and `--all`.
    pub program: String,
    /// Time between the two looks. A wait counts if both have it: the same thread, the same lock or call, the same begin.
    pub apart_ns: u64,
    /// The answer in words, the most important line first.
    pub answer: Vec<String>,
    /// Threads and streams that wait for one another in a circle. None of them can go on, unless a wait has a time limit.
    pub cycles: Vec<NowPath>,
    /// Threads that wait for a mutex, a rwlock or a stream: the longest chain to each thread or stream at which chains end, the longest
    /// first.
    pub chains: Vec<NowPath>,
    /// Every wait that is in both looks, as one row: who waits, in what, for what, and who must act first.
    pub waits: Vec<NowEdge>,
    /// Processes that a signal has stopped.
    pub stopped: Vec<i32>,
    /// Threads that wait, that are in a CUDA call, or for which others wait.
    pub threads: Vec<NowThread>,
    /// Streams for which a thread waits, as far as CUDA's calls are recorded.
    pub streams: Vec<NowStream>,
    /// Streams whose first kernel has not ended half a second after its launch, the longest first. Empty without `record --gpu-times`.
    pub kernels: Vec<NowKernel>,
    /// The processes of a job that are recorded here, if there are several. With `--all` and without a job: the programs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranks: Vec<NowRank>,
    /// With `--all`: the recorders of this user.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub recorders: Vec<NowRecorder>,
    /// Threads that were looked at.
    pub looked_at: usize,
    /// Threads that waited for a mutex or a rwlock in the second look, but not in both for the same one.
    pub short_waits: usize,
    /// Threads that wait for Python's lock, the GIL, in both looks. Its holder is not followed.
    pub python_lock_waits: usize,
    /// Why there may be more than is shown, in words.
    pub not_followed: Vec<String>,
}

/// Threads and streams of which each waits for the next.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowPath {
    /// Of a cycle what it is made of: `locks`, `python_lock` (the GIL), `streams` or `processes`. Of a chain `barrier` if a process has not
    /// come to one in which others wait, `process` if it ends in another process than it begins in, else absent.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub kind: &'static str,
    /// In words.
    pub text: String,
    /// Numbers of the threads, in order.
    pub tids: Vec<i32>,
    /// Handles of the streams, in order.
    #[serde(serialize_with = "crate::wide::hexes")]
    pub streams: Vec<u64>,
    /// What the last one does: of a stream `kernel`, `work` (a copy, a graph: not ended), `word` (it waits for a word), `event` or
    /// `host_function`; of a thread `call`, `stopped`, `traced`, `ended`, `condition`, `semaphore`, `join`, `system_call`, `running` or `unknown`; or of the
    /// lock that it waits for: `unknown_holder`, `free` (no thread had it in either look), `changes` (its holder changes). `cycle`: it waits for
    /// the first one, or is in another cycle.
    pub end: &'static str,
    /// Threads whose chain has the same end, with those of this one.
    pub waiting: usize,
}

/// A wait.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NowEdge {
    /// A thread with its name, a stream, or a kernel.
    pub waiter: String,
    /// The function or the system call in which it waits, or the CUDA call that made the stream wait.
    pub call: String,
    /// The lock, the stream, the event, the word.
    pub on: String,
    /// Who must act first: a thread, a stream, a kernel, a process. Empty if nobody is known.
    pub holder: String,
    pub ns: u64,
}

/// A thread.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowThread {
    pub pid: i32,
    pub tid: i32,
    /// The thread's name.
    pub thread: String,
    /// `running` (in one of the looks), `sleeping`, `uninterruptible`, `stopped`, `traced`, `ended`; `unknown` if the looks differ otherwise.
    pub state: String,
    /// The system call that it sleeps in. Absent if the looks differ, or if it cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_call: Option<String>,
    /// The lock that it waits for, else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waits: Option<NowWait>,
    /// The thread for whose end it waits, by pthread_join. Absent if there is none, or if that has recorded nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub joins: Option<i32>,
    /// The CUDA call that it is in, else absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<NowCall>,
    /// Threads that wait for it, through any number of others.
    pub keeps_waiting: usize,
    /// With `--stacks`: where it is after the second look, then the calls that led there, the innermost first, at most 16.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub stack: Vec<NowFrame>,
    /// With `--stacks`: why there is no stack.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub no_stack: Option<String>,
}

/// A place in the program's code.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NowFrame {
    /// Module and offset, or the address.
    pub place: String,
    /// The function, if the file has symbols.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub function: Option<String>,
    /// File and line, if the file has debug information.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// false: a return address that was found on the stack, where no unwind table leads on. It may be of an older call.
    pub certain: bool,
}

/// A lock that a thread waits for.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowWait {
    /// Module and offset, or the address, and the kind of lock.
    pub lock: String,
    /// `mutex`, `rwlock`, `cond` or `sem`.
    pub kind: &'static str,
    /// Where it is waited for: module and offset.
    pub site: String,
    pub ns: u64,
    /// The wait has a time limit.
    pub has_limit: bool,
    /// The threads for which it waits.
    pub holders: Vec<NowHolder>,
    /// `known`, `unknown`, `free` (no thread had it in either look), `changes` (its holder changes), or `signal`: a condition or semaphore,
    /// which any thread may signal.
    pub holder: &'static str,
}

/// A thread for which another one waits.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowHolder {
    /// Its number; 0 for a reader that was not seen.
    pub tid: i32,
    /// `holds`, `reads`, or `queues`: it waits to write, before readers that come later.
    pub how: &'static str,
    /// How long it has had the lock, or waits to write; absent if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ns: Option<u64>,
}

/// A CUDA call that has not returned.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NowCall {
    pub name: String,
    pub ns: u64,
    /// The stream's handle; 0 is the default stream, or none.
    #[serde(serialize_with = "crate::wide::hex")]
    pub stream: u64,
    /// The event, the graph, the kernel or the memory that the call names.
    #[serde(serialize_with = "crate::wide::hex")]
    pub object: u64,
}

/// A stream for which a thread waits.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NowStream {
    pub pid: i32,
    /// The stream's handle; 0 is the default stream.
    #[serde(serialize_with = "crate::wide::hex")]
    pub stream: u64,
    /// What it has not done: `kernel` (has a name), `work` (another kernel, a copy, a graph), `word` (it waits for a value in memory), `event`
    /// (of another stream) or `host_function`.
    pub waits_for: &'static str,
    /// The CUDA call that gave it this work, by which thread, and how long ago.
    pub call: &'static str,
    pub tid: i32,
    pub ns: u64,
    /// The kernel's handle, the event, the word's address, or the host function's.
    #[serde(serialize_with = "crate::wide::hex")]
    pub object: u64,
    /// The kernel's symbol, if it is known.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub kernel: String,
    /// The word's value; absent if it is not a word, or cannot be read.
    #[serde(serialize_with = "crate::wide::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub there: Option<u64>,
    /// The value that it waits for.
    #[serde(serialize_with = "crate::wide::hex_if_any", skip_serializing_if = "Option::is_none")]
    pub wanted: Option<u64>,
    /// The streams for which it waits: that record the event, or are to write the word.
    #[serde(serialize_with = "crate::wide::hexes")]
    pub streams: Vec<u64>,
    /// The threads for which it waits: in its host function.
    pub tids: Vec<i32>,
    /// Known to be what is not done. Else it is the oldest of `others` + 1 calls that may be it.
    pub is_certain: bool,
    /// How many other calls may be it.
    pub others: usize,
    /// Threads that wait for it, through any number of others.
    pub keeps_waiting: usize,
}

/// A kernel that has not ended.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NowKernel {
    pub pid: i32,
    /// Its name, or the address of its code.
    pub name: String,
    /// The stream's handle; 0 is the default stream, or none.
    #[serde(serialize_with = "crate::wide::hex")]
    pub stream: u64,
    /// The thread that launched it.
    pub tid: i32,
    /// Time since its launch.
    pub ns: u64,
    /// Kernels that were launched after it in this stream and have not ended.
    pub after: u64,
}
