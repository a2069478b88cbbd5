//! One row for each kernel of a recording.

use crate::histogram::Step;
use crate::kernel_times::KernelTimes;
use crate::operations::Shape;
use crate::python::MainLine;
use serde::Serialize;

/// The kernels.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Kernels {
    /// The one that ran most often first.
    pub kernels: Vec<KernelRow>,
    /// Launches whose QMD was never in the stream: which kernel ran is not known.
    pub without_qmd: u64,
    /// Launches of graphs that are not understood, and of graphs that were uploaded before the recording: which kernels they ran is not known.
    pub unknown_graph_launches: u64,
    /// Whether the GPU's times were recorded (`record --gpu-times`).
    pub gpu_times: bool,
    /// Of the whole recording, whatever was chosen; `None` where times were not asked for.
    pub kernel_times: Option<Vec<KernelTimes>>,
    /// Streams whose kernels have times, the busiest first. Empty where rows were chosen: gaps are between all kernels of a stream.
    pub streams: Vec<StreamRow>,
}

/// A kernel, by its name; by the address of its code where it has none.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    /// The name of its symbol, and that as C++ writes it.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// Address of its code; where it lay at more than one, the first.
    pub code: u64,
    /// Launches of its own, and how often graphs ran it. `None` where rows were chosen: graphs are of the whole recording.
    pub launches: u64,
    pub in_graphs: Option<u64>,
    /// Of all that ran, from 0 to 1.
    pub share: f64,
    /// How it was launched most often, how often so, and in how many ways.
    pub shape: Shape,
    pub shape_launches: u64,
    pub shapes: u64,
    /// Threads that launched it, and streams; 0 where calls were not recorded.
    pub threads: u64,
    pub streams: u64,
    /// The calls that launched it, the commonest first.
    pub calls: Vec<CallCount>,
    /// The line of Python that launched it most often; absent where none was recorded.
    pub python: Option<MainLine>,
    /// Of the first and of the last launch of its own.
    pub first_seconds: Option<f64>,
    pub last_seconds: Option<f64>,
    /// How long it ran on the GPU; `None` where no time of it is known.
    pub gpu: Option<GpuTimes>,
    /// How many of these runs took how long.
    pub gpu_histogram: Vec<Step>,
}

/// How long a kernel ran, over all runs of which that is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct GpuTimes {
    /// Runs with a time.
    pub runs: u64,
    /// Those of them of which only bounds are known: they may have been shorter.
    pub bounded: u64,
    pub total_ns: u64,
    pub shortest_ns: u64,
    pub longest_ns: u64,
    /// From the doorbell to the start, of all runs together.
    pub queued_ns: u64,
}

impl GpuTimes {
    pub fn mean_ns(&self) -> u64 {
        self.total_ns / self.runs.max(1)
    }
}

/// A stream on a channel, over all of its kernels of which the times are known.
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
    /// Kernels, and those of them of which only bounds are known: with these the stream may have been less busy.
    pub runs: u64,
    pub bounded: u64,
    /// From the first start to the last end.
    pub span_ns: u64,
    /// At least one of its kernels ran, and which part of `span_ns` that is, from 0 to 1.
    pub busy_ns: u64,
    pub share: f64,
    /// From the doorbell to the start, of all of them together.
    pub queued_ns: u64,
    /// Gaps of more than 10 us in which none of its kernels ran, all of these together, and the longest gap.
    pub gaps: u64,
    pub gaps_ns: u64,
    pub longest_gap_ns: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CallCount {
    pub name: &'static str,
    pub launches: u64,
}
