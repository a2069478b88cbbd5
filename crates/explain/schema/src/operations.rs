//! One row for each copy and each launch, with when and where.

use crate::place::Place;
use crate::python::FrameRow;
use serde::{Deserialize, Serialize};

/// A kernel's launch parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    /// Blocks in x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block in x, y, z.
    pub block: [u32; 3],
    /// Blocks of a cluster, if it has clusters.
    pub cluster: Option<[u32; 3]>,
    /// Registers of a thread.
    pub registers: u32,
    /// Bytes a block.
    pub shared_memory: u32,
    /// Address of the code that the GPU starts.
    pub program: u64,
    /// Address of the kernel, if `program` is code that runs before it (a profiler's); else `None`.
    pub kernel: Option<u64>,
}

impl Shape {
    /// Address of the kernel's code, as far as is known.
    pub fn code(&self) -> u64 {
        self.kernel.unwrap_or(self.program)
    }

    /// True for a QMD without blocks: it runs no code, and only orders or starts others.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// The time, the thread and the channel of a submission.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct When {
    /// Number of the submission, as in `--submissions`.
    pub submission: u64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub tsc: u64,
    pub seconds: Option<f64>,
    /// Index of the process image, and the process.
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub slot: u32,
    pub generation: u32,
    pub engine: String,
    /// `None` if it was submitted outside of any call, or if calls were not recorded.
    pub call: Option<InCall>,
    /// NVTX ranges around it, as `text` or `domain:text`: those of the thread, the outermost first, then those of the
    /// process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
}

/// The CUDA call that made a submission: the outermost one of its thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InCall {
    /// Its name in CUDA's API; `unknown` for one that only a newer doorbell knows.
    pub name: &'static str,
    /// Counts the calls of the thread, from 1.
    pub number: u32,
    /// The handles that were passed: the stream (0 default, 1 legacy, 2 per thread), and the object: a kernel, a graph,
    /// an address.
    #[serde(serialize_with = "crate::wide::hex")]
    pub stream: u64,
    /// What it was about: the handle of a kernel, a graph or an event, or an address.
    #[serde(serialize_with = "crate::wide::hex")]
    pub object: u64,
    /// The line of the user's Python code that made the call; `None` if there was none, or none was recorded.
    pub python: Option<FrameRow>,
}

/// How bytes were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    CopyEngine,
    /// The bytes were in the command stream.
    Inline,
    /// A pattern, by the copy engine.
    Fill,
}

/// A copy, an inline write or a fill.
impl Mode {
    pub fn name(self) -> &'static str {
        match self {
            Mode::CopyEngine => "copy engine",
            Mode::Inline => "inline",
            Mode::Fill => "fill",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CopyRow {
    #[serde(flatten)]
    pub when: When,
    pub mode: Mode,
    /// GPU virtual address; `None` if the bytes do not come from memory.
    pub src: Option<u64>,
    pub src_place: Option<Place>,
    /// Which GPU's memory, if it is a GPU's.
    pub src_gpu: Option<u32>,
    /// GPU virtual address.
    pub dst: u64,
    pub dst_place: Place,
    /// Which GPU's memory, if it is a GPU's.
    pub dst_gpu: Option<u32>,
    pub bytes: u64,
    /// Lines of the transfer.
    pub lines: u32,
    /// May overlap the copies before it.
    pub pipelined: bool,
    /// Both sides are linear in memory.
    pub pitch: bool,
    /// Address and payload of the semaphore that is released with it.
    pub semaphore: Option<u64>,
    /// What is written there.
    #[serde(serialize_with = "crate::wide::hex_if_any")]
    pub payload: Option<u64>,
    /// Physical addresses, which only a privileged channel may use.
    pub physical: bool,
    /// When it ran (recorded with `record --gpu-times`), also on the recording's clock. `None` if that is not known,
    /// and for inline writes.
    pub gpu: Option<GpuTime>,
    #[serde(flatten)]
    pub ran: Ran,
    /// All inline data is on the tape.
    pub complete: bool,
    /// Some of its registers were set in words that are not on the tape: addresses and sizes may be wrong.
    pub guessed: bool,
}

/// When a kernel or a copy ran, by the GPU's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct GpuTime {
    /// Nanoseconds, as the GPU stored them.
    #[serde(serialize_with = "crate::wide::decimal")]
    pub end_ns: u64,
    /// Nanoseconds, computed as `start` describes. The start was before the end.
    #[serde(serialize_with = "crate::wide::decimal")]
    pub start_ns: u64,
    /// It did not start before.
    #[serde(serialize_with = "crate::wide::decimal")]
    pub earliest_ns: u64,
    pub start: Start,
    /// From the doorbell to the start.
    pub queued_ns: u64,
    /// Maximum error of the doorbell's CPU time on the GPU's clock.
    pub clock_error_ns: u64,
}

impl GpuTime {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// When a kernel or a copy ran, by the recording's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Ran {
    /// Its start and its end. (Written as seconds.)
    #[serde(skip)]
    pub tsc: Option<[u64; 2]>,
    /// When it started, in seconds of the recording.
    pub start_seconds: Option<f64>,
    /// When it ended.
    pub end_seconds: Option<f64>,
}

/// The event from which a kernel's start is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Its doorbell: the stream was idle.
    AfterTheDoorbell,
    /// The end of the kernel before it in its stream.
    AfterTheOneBefore,
    /// It started between `earliest_ns` and `end_ns`: it waited for another channel, or ran at the same time as others.
    Bounded,
    /// None: the GPU stored the start, too. (Copies and fills.)
    Stored,
}

impl Start {
    pub fn name(self) -> &'static str {
        match self {
            Start::AfterTheDoorbell => "after_the_doorbell",
            Start::AfterTheOneBefore => "after_the_one_before",
            Start::Bounded => "bounded",
            Start::Stored => "stored",
        }
    }
}

/// A kernel launch.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LaunchRow {
    #[serde(flatten)]
    pub when: When,
    /// Its number among the launches of its submission. (Not written.)
    #[serde(skip)]
    pub number: u32,
    /// `pcas` or `inline_qmd`.
    pub how: &'static str,
    /// Address of the QMD.
    pub qmd: u64,
    /// `None` if the QMD was never in the stream.
    pub shape: Option<Shape>,
    /// A QMD without blocks: it only orders or starts others.
    pub empty: bool,
    /// Launched before and not written since.
    pub again: bool,
    /// The kernel, if the call that launched it is known: the name of its symbol, and the name in C++ syntax.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// When it ran (recorded with `record --gpu-times`); `None` if that is not known.
    pub gpu: Option<GpuTime>,
    /// Some of its registers were set in words that are not on the tape.
    pub guessed: bool,
}
