//! The matrix of copies between GPUs, as in p2pBandwidthLatencyTest: from each to each, one direction, both at the same time, and latency. Methods:
//! copy engine, kernels, CUDA's own copies, and host memory without peer access.
//!
//! The invariant: a rate is of one direction, and a sum of two is called a sum. Every method is verified between every pair before it is timed.
//! Compared methods took turns in the same rounds. The software GPU has no rates or times.

mod account;
mod matrix;
mod pair;
mod plan;
mod staged;
mod turns;
mod way;

pub use account::{Both, Cell, Matrix, Rate, SCHEMA, Status, Times};
pub use matrix::{News, gpus, run};
pub use plan::Plan;
pub use staged::Staged;
pub use way::Way;

/// Maximum number of GPUs of a matrix.
pub const MOST: u32 = 8;
