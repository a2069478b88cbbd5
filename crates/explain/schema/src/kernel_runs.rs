//! One row for each time that a kernel ran (recorded with `record --gpu-times`).

use crate::operations::{GpuTime, When};
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
    /// On the recording's clock.
    pub start_seconds: Option<f64>,
    pub end_seconds: Option<f64>,
    pub gpu: GpuTime,
}
