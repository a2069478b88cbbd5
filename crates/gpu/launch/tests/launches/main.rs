//! Graphs are learnt from a stand-in for CUDA on the software GPU, and launched from doorbell's channel with the same
//! results.

mod beside;
mod chain;
mod gone;
mod machines;
mod memsets;
mod order;
mod parameters;
mod quiet;
mod random;
mod random_chains;
mod refused;
mod rig;
mod stores;

use cuda_graph::words::Graph;
use gpu::Channel;
use rig::Rig;
use test_support::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn learn(rig: &Rig, channel: &mut Channel, graph: &Graph) -> launch::Graph {
    try_learn(rig, channel, graph).unwrap()
}

fn try_learn(rig: &Rig, channel: &mut Channel, graph: &Graph) -> Result<launch::Graph, launch::Error> {
    // SAFETY: stand-in kernels in memory of the rig, which outlives the test's launches.
    unsafe { launch::Graph::learn(rig.watched, channel, &mut rig.launching(graph)) }
}
