//! What doorbell itself costs, compared with the bare program in the same run.
//!
//! Bare runs and doorbell's modes take turns, round by round, each in a separate process, so that a machine that changes its speed changes it for all. The
//! added cost is the median of the rounds' differences. The measured loops ([`pairs`], [`ring_loop`], [`calls::run_loop`], [`ranges::run_loop`],
//! [`launch_loop::run`]) are separate programs, which the command line starts under doorbell.

use std::path::PathBuf;

mod affinity;
pub mod calls;
pub mod launch_loop;
pub mod launches;
pub mod locks;
mod looped;
pub mod pairs;
pub mod ranges;
pub mod ring_loop;
mod rounds;
mod steps;
pub mod tap;

pub use affinity::stay_on;
pub use rounds::Mode;

/// Options of every measurement here.
#[derive(Clone, Debug)]
pub struct Plan {
    /// doorbell's own program: it starts the loops, and records them.
    pub doorbell: PathBuf,
    /// Number of rounds.
    pub rounds: u32,
    /// Doorbells, pairs or calls of each run.
    pub count: u32,
    /// The measured loops run on this CPU.
    pub cpu: Option<usize>,
}

/// As [`statistics::median`], but 0 for no values.
fn median(mut v: Vec<f64>) -> f64 {
    statistics::median(&mut v).unwrap_or(0.0)
}

/// The machine, for results.
fn machine() -> serde_json::Value {
    let m = recorder::machine();
    serde_json::json!({
        "gpu": m.gpu, "driver": m.driver, "cpu": m.cpu, "kernel": m.kernel, "doorbell": env!("CARGO_PKG_VERSION")
    })
}
