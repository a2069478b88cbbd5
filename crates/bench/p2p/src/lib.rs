//! The matrix of copies between GPUs, as p2pBandwidthLatencyTest shows it: from each to each, one direction alone, both at once,
//! latency; by copy engine, by kernels, by CUDA's own copies, and without peer access, through host memory.
//!
//! The invariant: a rate is that of one direction, and a sum of two is called a sum; every way is verified between every pair before it is
//! timed; what is compared took turns in the same rounds; of the software GPU nothing is a rate or a time.

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

/// GPUs of a matrix.
pub const MOST: u32 = 8;
