//! Graphs are learnt from a stand-in for CUDA, and launched from a channel of ours with the same results.

mod rig;

use gpu::Channel;
use graph_words::Graph;
use launch::Graph as Ours;
use rig::{Rig, TIMEOUT};

fn learn(rig: &Rig, channel: &mut Channel, graph: &Graph) -> Ours {
    // SAFETY: stand-in kernels in memory of the rig, which outlives the test's launches.
    unsafe { Ours::learn(rig.watched, channel, rig.launching(graph)) }.unwrap()
}

#[test]
fn chains_run_in_their_order_with_several_launches_under_way() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    for n in [1, 2, 3, 10, 100] {
        let graph = rig.logging(Graph::chain(n));
        let mut ours = learn(&rig, &mut channel, &graph);
        // The upload of ours starts nothing.
        let once: Vec<u32> = if n == 1 { vec![0] } else { (1..=n as u32).collect() };
        assert_eq!(rig.log(), once.repeat(3), "{n} kernels");
        rig.clear_log();
        let mut last = None;
        for _ in 0..ours.slots().min(8) {
            last = Some(ours.launch(&mut channel).unwrap());
        }
        channel.wait(last.unwrap(), TIMEOUT).unwrap();
        assert_eq!(rig.log(), once.repeat(8), "{n} kernels");
        rig.clear_log();
    }
    assert_eq!(rig.faults(), 0);
}
