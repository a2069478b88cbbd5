//! One row for each time that a kernel ran (recorded with `record --gpu-times`).

use crate::operations::{GpuTime, Shape, When};
use serde::Serialize;

/// A kernel that ran: launched by itself, or in a launch of a graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRun {
    /// Its launch.
    #[serde(flatten)]
    pub when: When,
    /// The name of its symbol, and that as C++ writes it.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// Address of its code.
    pub code: u64,
    pub in_graph: bool,
    /// What it was launched with. (Not written: a launch by itself has it, and graphs have it for each of their kernels.)
    #[serde(skip)]
    pub shape: Shape,
    /// On the recording's clock.
    pub start_seconds: Option<f64>,
    pub end_seconds: Option<f64>,
    pub gpu: GpuTime,
}
