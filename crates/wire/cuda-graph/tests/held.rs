//! Launches written while their stream was busy: no wait is missing, and a wait for earlier work is not a wait for this launch.

mod graphs;

use cuda_graph::words::{ENGINES, Graph, Kernel, Step, words};
use cuda_graph::{Channel, Macros, Own, Recipe, Refused, Segment, Wait, learn, learn_held, released};
use graphs::{USER, channel};
use pushbuf::qmd::PcasAction;
use pushbuf::semaphore::{Execute, Operation};

const TRACKER: u64 = 0x2_0460_0000;

/// A chain of two whose launches wait for this first.
fn waiting(at: u64, payload: u32) -> Graph {
    let execute = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };
    let mut graph = Graph::chain(2);
    graph.launch.insert(0, Step::Raw(words(|w| w.host_semaphore(0, at, payload.into(), execute).unwrap())));
    graph
}

fn by(graph: &Graph, held: Option<&[u64]>) -> Result<Recipe, Refused> {
    on(&[channel(), channel(), channel()], graph, held)
}

fn on(channels: &[Channel], graph: &Graph, held: Option<&[u64]>) -> Result<Recipe, Refused> {
    let launches = [graph.upload_segments(), graph.again_segments(1), graph.again_segments(2)];
    let segments = launches
        .each_ref()
        .map(|launch| launch.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    let [upload, one, two] = &segments;
    match held {
        Some(before) => learn_held(Macros::default(), before, channels, upload, &[one, two]),
        None => learn(channels, upload, &[one, two]),
    }
}

#[test]
fn a_wait_for_earlier_work_is_no_wait_for_the_launch() {
    let graph = waiting(USER, 7);
    let foreign = Refused::ForeignAcquire { address: USER };
    assert_eq!(by(&graph, None).unwrap_err(), foreign, "it may be a host node");
    assert_eq!(by(&graph, Some(&[USER + 16])).unwrap_err(), foreign);
    let recipe = by(&graph, Some(&[USER + 16, USER])).unwrap();
    assert_eq!(recipe.groups[0].acquires[0].1, Wait::Before);
    // doorbell's launch waits only for its tracker, like that of the same graph without the wait.
    let plain = Own::of(&by(&Graph::chain(2), None).unwrap(), TRACKER).unwrap();
    assert_eq!(Own::of(&recipe, TRACKER).unwrap().launch, plain.launch);
    let moved = recipe.relocate(|_, block| block.address).unwrap();
    assert_eq!(moved.groups[0].acquires[0].1, Wait::Before);
}

#[test]
fn so_is_a_wait_for_less_than_the_launch_releases() {
    let graph = Graph::chain(2);
    let (at, (_, last)) = (graph.at.tracker(0), Graph::done(1));
    assert_eq!(by(&waiting(at, last - 1), Some(&[])).unwrap().groups[0].acquires[0].1, Wait::Before);
    for payload in [last, last + 1] {
        let refused = by(&waiting(at, payload), Some(&[at])).unwrap_err();
        assert_eq!(
            refused,
            Refused::ForeignAcquire { address: at },
            "what it releases itself cannot be over: {payload}"
        );
    }
}

#[test]
fn a_wait_for_an_earlier_value_of_the_launchs_own_semaphore_is_ignored() {
    // A fan-in on two channels: the second waits for earlier work in the first channel's stream.
    let execute = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };
    let mut graph = Graph::fan_in(2, USER);
    let (at, (_, last)) = (graph.at.tracker(0), Graph::done(1));
    let second = graph.launch.iter().position(|step| matches!(step, Step::On(1))).unwrap();
    let wait = words(|w| w.host_semaphore(0, at, (last - 1).into(), execute).unwrap());
    graph.launch.insert(second + 1, Step::Raw(wait));
    let recipe = by(&graph, Some(&[at])).unwrap();
    assert_eq!(recipe.groups[1].acquires.iter().map(|(_, wait)| *wait).collect::<Vec<_>>(), [Wait::Before]);
    assert_eq!(Own::of(&recipe, TRACKER).unwrap().counts.len(), 1, "both start at once");
}

#[test]
fn memory_that_later_launches_copy_is_no_table() {
    let mut graph = Graph::memcpy(USER, USER + 0x1000, 8);
    graph.kernels[1].parameters = (USER + 0x1000).to_le_bytes().to_vec();
    let (mut upload, one, two) = (graph.upload_segments(), graph.again_segments(1), graph.again_segments(2));
    let sent = words(|w| w.inline(1, USER + 0x1000, &[7; 8], 0x41).unwrap());
    let (channel_of, copy) = upload.iter_mut().find(|(channel, _)| *channel == 1).unwrap();
    (*channel_of, *copy) = (0, sent);
    let launches = [upload, one, two];
    let segments = launches
        .each_ref()
        .map(|launch| launch.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    let channels = [channel(), Channel { engines: vec![ENGINES[1]], ..channel() }];
    let [upload, one, two] = &segments;
    let recipe = learn_held(Macros::default(), &[], &channels, upload, &[one, two]).unwrap();
    assert!(recipe.nodes.iter().any(|node| node.work.name() == "memcpy"));
}

#[test]
fn groups_without_waits_run_side_by_side() {
    let start = |i| Step::Start(i, PcasAction::InvalidatePrefetchCopySchedule);
    let kernels = (0..3).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    let launch = vec![Step::Set(0), start(0), Step::On(1), Step::Set(1), start(1), Step::On(2), Step::Set(2), start(2)];
    let graph = Graph { kernels, launch, ..Graph::default() };
    let waits = |held| Own::of(&by(&graph, held).unwrap(), TRACKER).unwrap().counts.len();
    assert_eq!((waits(None), waits(Some(&[]))), (3, 1), "a wait that is missing may have been over");
}

#[test]
fn a_copy_without_waits_is_placed_if_the_stream_was_held() {
    let mut graph = Graph::memcpy(USER, USER + 0x1000, 4096);
    // The copy waits for no step, and no step waits for it.
    graph.launch.retain(|step| !matches!(step, Step::WaitFor(_) | Step::Wait(0, 2)));
    let channels = [channel(), Channel { engines: vec![ENGINES[1]], ..channel() }];
    let refused = on(&channels, &graph, None).map(drop).unwrap_err();
    assert!(matches!(refused, Refused::NoPlace { .. }), "{refused}");
    let recipe = on(&channels, &graph, Some(&[])).unwrap();
    assert_eq!(recipe.groups.len(), 3);
    Own::of(&recipe, TRACKER).unwrap();
}

#[test]
fn releases_are_found_among_unknown_methods() {
    let words = words(|w| {
        w.inc(1, 0x2d4, &[7]).unwrap();
        w.host_semaphore(0, USER, 1, Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE }).unwrap();
        w.host_release(0, USER + 16, 1, false).unwrap();
        w.copy_release(4, USER + 32, 1, true).unwrap();
    });
    assert_eq!(released(&[channel()], &[Segment { channel: 0, words: &words }]), [USER + 16, USER + 32]);
}
