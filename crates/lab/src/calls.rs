//! CUDA's calls as something that can be timed and compared like a route: a launch, a graph's, and what a thread needs before
//! it can work.

pub mod graph;
pub mod launch;
pub mod setup;
mod word;
