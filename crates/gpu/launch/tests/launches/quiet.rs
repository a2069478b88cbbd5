//! A launch does not allocate.

use crate::learn;
use crate::rig::{Rig, TIMEOUT};
use cuda_graph::words::Graph;
use launch::Set;
use test_support::counting::cost;

#[test]
fn launches_allocate_and_free_nothing_also_with_new_parameters() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = learn(&rig, &mut channel, &rig.logging(Graph::chain(10)));
    for with in [false, true] {
        let (allocations, _) = cost(false, || {
            for n in 0..20u32 {
                let number = n.to_le_bytes();
                let set = [Set { node: 3, offset: 8, bytes: &number }, Set { node: 7, offset: 8, bytes: &number }];
                let ticket = ours.launch_with(&mut channel, if with { &set } else { &[] }).unwrap();
                channel.wait(ticket, TIMEOUT).unwrap();
            }
        });
        assert_eq!(allocations, 0, "new parameters: {with}");
    }
}
