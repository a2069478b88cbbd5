//! One row for each run of a kernel (recorded with `record --gpu-times`).

use crate::operations::{GpuTime, Ran, Shape, When};
use serde::Serialize;

/// A kernel that ran: launched by itself, or in a launch of a graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRun {
    /// Its launch.
    #[serde(flatten)]
    pub when: When,
    /// [`crate::operations::LaunchRow::number`]; `None` in a launch of a graph. (Not written.)
    #[serde(skip)]
    pub launch: Option<u32>,
    /// The name of its symbol, and the name in C++ syntax.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// Address of its code.
    pub code: u64,
    /// It ran in a launch of a graph, or CUDA launched it for itself.
    pub in_graph: bool,
    /// Its launch parameters. (Not written: a single launch has them in its row, and graphs have them for each of their
    /// kernels.)
    #[serde(skip)]
    pub shape: Shape,
    #[serde(flatten)]
    pub ran: Ran,
    pub gpu: GpuTime,
}
