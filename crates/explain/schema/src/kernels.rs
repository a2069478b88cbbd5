//! One row for each kernel of a recording.

use crate::histogram::Step;
use crate::kernel_times::KernelTimes;
use crate::operations::Shape;
use crate::python::MainLine;
use crate::streams::StreamKind;
use serde::Serialize;

/// The kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kernels {
    /// The most frequent first.
    pub kernels: Vec<KernelRow>,
    /// Launches whose QMD was never in the stream: which kernel ran is not known.
    pub without_qmd: u64,
    /// Launches of graphs that are not understood, and of graphs that were uploaded before the recording: which kernels they ran is not known.
    pub unknown_graph_launches: u64,
    /// Graphs that kernels may launch. What the GPU launches itself is not counted.
    pub device_graphs: u64,
    /// Launches of kernels that may launch others (CUDA's device runtime).
    pub device_parents: u64,
    /// Whether the GPU's times were recorded (`record --gpu-times`).
    pub gpu_times: bool,
    /// For the whole recording, even if rows were filtered; `None` if times were not requested.
    pub kernel_times: Option<Vec<KernelTimes>>,
    /// Streams whose kernels have times, the busiest first. Empty if rows were filtered: gaps are between all kernels
    /// of a stream.
    pub streams: Vec<StreamRow>,
}

/// A kernel, identified by its name, or by the address of its code if it has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    /// The name of its symbol, and the name in C++ syntax.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// Address of its code; the first one if it had several.
    pub code: u64,
    /// Its launches outside of graphs, and how often graphs ran it. `None` if rows were filtered: graphs are counted
    /// over the whole recording.
    pub launches: u64,
    /// How often graphs ran it; null where rows were chosen (`--thread`, `--between`, ...): graphs are of the whole
    /// recording.
    pub in_graphs: Option<u64>,
    /// Whether not each launch of its graphs runs it (conditional nodes, disabled nodes, launches by the GPU): then `in_graphs` is the minimum
    pub conditional: bool,
    /// Its share of all kernel runs, from 0 to 1.
    pub share: f64,
    /// Its most frequent shape, how many launches had that shape, and the number of shapes.
    pub shape: Shape,
    /// How often it was launched so.
    pub shape_launches: u64,
    /// In how many ways it was launched.
    pub shapes: u64,
    /// Threads that launched it, and streams; 0 if calls were not recorded.
    pub threads: u64,
    /// Streams that it was launched in; 0 where calls were not recorded.
    pub streams: u64,
    /// The calls that launched it, the most frequent first.
    pub calls: Vec<CallCount>,
    /// The line of Python that launched it most often; absent if none was recorded.
    pub python: Option<MainLine>,
    /// Times of its first and last launch outside of graphs.
    pub first_seconds: Option<f64>,
    /// When it was last launched by itself.
    pub last_seconds: Option<f64>,
    /// How long it ran on the GPU; `None` if no run has a known time.
    pub gpu: Option<GpuTimes>,
    /// How many of these runs took how long.
    pub gpu_histogram: Vec<Step>,
}

/// How long a kernel ran, over all runs with a known time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuTimes {
    /// Runs with a time.
    pub runs: u64,
    /// Those among them with known bounds only: they may have been shorter.
    pub bounded: u64,
    /// Nanoseconds of all of them.
    pub total_ns: u64,
    /// Of the shortest.
    pub shortest_ns: u64,
    /// Of the longest.
    pub longest_ns: u64,
    /// From the doorbell to the start, total over all runs.
    pub queued_ns: u64,
}

impl GpuTimes {
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.runs.max(1)
    }
}

/// A stream on a channel, over all of its kernels with known times.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StreamRow {
    /// Index of the process image, and the process.
    pub process: u32,
    pub pid: i32,
    pub slot: u32,
    pub generation: u32,
    /// The driver's device instance.
    pub gpu: Option<u32>,
    pub engine: String,
    /// The handle that was passed (0 default, 1 legacy, 2 per thread); `None` outside of any call.
    #[serde(serialize_with = "crate::wide::hex_if_any")]
    pub stream: Option<u64>,
    /// Its priority and green context; null if it was created without them, or if its creation was not recorded.
    pub kind: Option<StreamKind>,
    /// Kernels, and those among them with known bounds only: with these the stream may have been less busy.
    pub runs: u64,
    /// Those of them of which only bounds are known: with these the stream may have been less busy.
    pub bounded: u64,
    /// From the first start to the last end.
    pub span_ns: u64,
    /// Time in which at least one of its kernels ran, and its share of `span_ns`, from 0 to 1.
    pub busy_ns: u64,
    /// Which part of `span_ns` that is, from 0 to 1: how well the stream used the GPU.
    pub share: f64,
    /// From the doorbell to the start, total over all of them.
    pub queued_ns: u64,
    /// Gaps of more than 10 us in which its kernels did not run: their number, their total, and the longest.
    pub gaps: u64,
    /// All of these together.
    pub gaps_ns: u64,
    /// The longest gap.
    pub longest_gap_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallCount {
    pub name: &'static str,
    pub launches: u64,
}
