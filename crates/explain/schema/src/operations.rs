//! One row for each copy and each launch, with when and where.

use crate::place::Place;
use crate::python::FrameRow;
use serde::{Deserialize, Serialize};

/// What a kernel is launched with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Shape {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub cluster: Option<[u32; 3]>,
    pub registers: u32,
    /// Bytes a block.
    pub shared_memory: u32,
    /// Address of the code that the GPU starts.
    pub program: u64,
    /// Address of the kernel, where `program` is code that runs before it (a profiler's); else `None`.
    pub kernel: Option<u64>,
}

impl Shape {
    /// Address of the kernel's code, as far as is known.
    pub fn code(&self) -> u64 {
        self.kernel.unwrap_or(self.program)
    }

    /// True for a QMD without blocks: it runs nothing and only orders or starts others.
    pub fn is_empty(&self) -> bool {
        self.grid.contains(&0)
    }
}

/// When, by whom and on which channel something was submitted.
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
    /// `None` where it was submitted outside of any call, and where calls were not recorded.
    pub call: Option<InCall>,
    /// Ranges of NVTX around it, as `text` or `domain:text`: those of the thread, the outermost first, then those of the process.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ranges: Vec<String>,
}

/// The call of CUDA's in which something was submitted: the outermost one of its thread.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InCall {
    /// As programs write it; `unknown` for one of a newer doorbell.
    pub name: &'static str,
    /// Counts the calls of the thread, from 1.
    pub number: u32,
    /// The handles that were passed: the stream (0 default, 1 legacy, 2 per thread), and what it was about: a kernel, a graph, an address.
    #[serde(serialize_with = "crate::wide::hex")]
    pub stream: u64,
    #[serde(serialize_with = "crate::wide::hex")]
    pub object: u64,
    /// The line of the user's Python code that made the call; `None` where there was none, or none was recorded.
    pub python: Option<FrameRow>,
}

/// How bytes were moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    CopyEngine,
    /// The bytes came in the command stream.
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
    /// GPU virtual address; `None` where the bytes do not come from memory.
    pub src: Option<u64>,
    pub src_place: Option<Place>,
    /// Which GPU's memory, if it is a GPU's.
    pub src_gpu: Option<u32>,
    pub dst: u64,
    pub dst_place: Place,
    pub dst_gpu: Option<u32>,
    pub bytes: u64,
    pub lines: u32,
    /// May overlap the copies before it.
    pub pipelined: bool,
    /// Both sides are linear in memory.
    pub pitch: bool,
    /// Address and payload of the semaphore that is released with it.
    pub semaphore: Option<u64>,
    #[serde(serialize_with = "crate::wide::hex_if_any")]
    pub payload: Option<u64>,
    /// Physical addresses, which only a privileged channel may use.
    pub physical: bool,
    /// When it ran (recorded with `record --gpu-times`), also on the recording's clock; `None` where that is not known, and for inline writes.
    pub gpu: Option<GpuTime>,
    pub start_seconds: Option<f64>,
    pub end_seconds: Option<f64>,
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
    /// Nanoseconds, worked out as `start` says, and the earliest that it can have been. It was before the end.
    #[serde(serialize_with = "crate::wide::decimal")]
    pub start_ns: u64,
    #[serde(serialize_with = "crate::wide::decimal")]
    pub earliest_ns: u64,
    pub start: Start,
    /// From the doorbell to the start.
    pub queued_ns: u64,
    /// By how much the CPU's time of the doorbell may be off on the GPU's clock.
    pub clock_error_ns: u64,
}

impl GpuTime {
    pub fn duration_ns(&self) -> u64 {
        self.end_ns.saturating_sub(self.start_ns)
    }
}

/// What a kernel's start is worked out from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Its doorbell: the stream was idle.
    AfterTheDoorbell,
    /// The end of the kernel before it in its stream.
    AfterTheOneBefore,
    /// It started between `earliest_ns` and `end_ns`: it waited for another channel, or ran beside others.
    Bounded,
    /// Nothing: the GPU stored the start, too. (Copies and fills.)
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
    /// `pcas` or `inline_qmd`.
    pub how: &'static str,
    pub qmd: u64,
    /// `None` if the QMD was never in the stream.
    pub shape: Option<Shape>,
    /// A QMD without blocks: it only orders or starts others.
    pub empty: bool,
    /// Launched before and not written since.
    pub again: bool,
    /// The kernel, where the call that launched it is known: the name of its symbol, and that as C++ writes it.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// When it ran (recorded with `record --gpu-times`); `None` where that is not known.
    pub gpu: Option<GpuTime>,
    /// Some of its registers were set in words that are not on the tape.
    pub guessed: bool,
}
