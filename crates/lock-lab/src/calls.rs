//! CUDA calls that can be timed like a transfer: the launch of a graph, and what a thread needs before it can work. A single
//! kernel launch is [`lab::launch`].

pub mod graph;
pub mod setup;
