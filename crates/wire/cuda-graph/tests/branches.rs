//! Launches on several channels: which part waits for which. With one channel, the words are the same as before.

mod graphs;

use cuda_graph::{Branches, Own, Recipe, Refused, Segment, learn};
use graph_words::{Graph, Kernel, Step};
use graphs::{USER, channel};
use pushbuf::qmd::PcasAction;

const TRACKERS: [u64; 2] = [0x2_0100_0140, 0x2_0100_0240];
const START: PcasAction = PcasAction::InvalidatePrefetchCopySchedule;

fn learnt(graph: &Graph) -> Recipe {
    let (upload, again) = (graph.upload_segments(), graph.again_segments(1));
    let segments = |all: &'static [(usize, Vec<u32>)]| {
        all.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>()
    };
    let [upload, again] = [upload, again].map(|all| segments(Box::leak(Box::new(all))));
    learn(&[channel(), channel(), channel()], &upload, &[&again]).unwrap()
}

/// Channel, number of kernels that the part adds, parts that it follows, and whether it begins the launch.
fn told(branches: &Branches) -> Vec<(usize, u32, Vec<usize>, bool)> {
    branches.parts.iter().map(|part| (part.channel, part.adds, part.after.clone(), part.begins)).collect()
}

#[test]
fn a_fork_has_a_part_for_each_stretch_between_waits_for_others() {
    let branches = Branches::of(&learnt(&Graph::fork()), &TRACKERS).unwrap();
    let expected = [(0, 1, vec![], true), (1, 1, vec![0], false), (0, 1, vec![], false), (0, 1, vec![1], false)];
    assert_eq!(told(&branches), expected);
    // Each begins with a wait for its own channel, and counts from there.
    for part in &branches.parts {
        assert_eq!(part.counts.iter().map(|count| count.more).collect::<Vec<_>>(), [0]);
    }
    // QMDs add to the tracker of the channel that starts them.
    let of = |tracker: u64| branches.upload.iter().filter(|word| **word == tracker as u32).count();
    assert_eq!(TRACKERS.map(of), [3, 1]);
}

#[test]
fn on_one_channel_it_is_the_launch_that_it_is_without_branches() {
    for graph in [Graph::fork(), Graph::memset(USER), Graph::chain(7), Graph::diamond()] {
        let recipe = learnt(&graph);
        let (own, branches) = (Own::of(&recipe, TRACKERS[0]).unwrap(), Branches::of(&recipe, &TRACKERS[..1]).unwrap());
        assert_eq!((&branches.upload, &branches.qmds, &branches.touched), (&own.upload, &own.qmds, &own.touched));
        let [part] = &branches.parts[..] else { panic!("{branches:?}") };
        assert_eq!((&part.launch, &part.counts, part.adds), (&own.launch, &own.counts, own.adds));
    }
}

#[test]
fn a_join_without_kernels_is_no_part() {
    // The second channel ends with a wait for the first, and starts no work after it; then the first channel continues.
    let kernels = (0..3).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    let launch = vec![
        Step::Wait(2, -2),
        Step::Set(0),
        Step::Start(0, START),
        Step::On(1),
        Step::Wait(0, 2),
        Step::Set(1),
        Step::Start(1, START),
        Step::On(2),
        Step::Wait(1, 2),
        Step::On(0),
        Step::Wait(1, 2),
        Step::Set(2),
        Step::Start(2, START),
    ];
    let recipe = learnt(&Graph { kernels, launch, ..Graph::default() });
    let three = [TRACKERS[0], TRACKERS[1], 0x2_0100_0340];
    let expected = [(0, 1, vec![], true), (1, 1, vec![0], false), (0, 1, vec![1], false)];
    assert_eq!(told(&Branches::of(&recipe, &three).unwrap()), expected);
    // Three CUDA channels on two doorbell channels: the third shares the first.
    assert_eq!(told(&Branches::of(&recipe, &TRACKERS).unwrap()), expected);
}

#[test]
fn a_kernel_that_two_channels_act_on_is_refused() {
    // The first kernel decrements the third; the other decrement is made by the second channel.
    let decrements = |to| vec![(to, graph_words::DECREMENT)];
    let kernels = vec![
        Kernel { then: decrements(2), ..Kernel::default() },
        Kernel { then: decrements(2), ..Kernel::default() },
        Kernel { waits_for: 2, releases: Some(0), ..Kernel::default() },
    ];
    let launch = vec![Step::Wait(0, -2), Step::Set(0), Step::Start(0, START), Step::On(1), Step::Start(1, START)];
    let recipe = learnt(&Graph { kernels, launch, ..Graph::default() });
    assert!(matches!(Branches::of(&recipe, &TRACKERS), Err(Refused::Form { .. })));
    assert_eq!(Branches::of(&recipe, &TRACKERS[..1]).unwrap().parts.len(), 1);
    assert!(matches!(Branches::of(&recipe, &[]), Err(Refused::NoChannel(0))));
    assert!(matches!(Branches::of(&recipe, &[6]), Err(Refused::Alignment { .. })));
}
