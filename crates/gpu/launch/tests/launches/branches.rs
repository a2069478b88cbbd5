//! Graphs of several channels on several doorbell channels: the same results, in an order that their waits allow.

use crate::learn;
use crate::rig::{DATA, Rig, TIMEOUT};
use doorbell_softgpu::Planted;
use doorbell_softgpu::standin::Operation;
use gpu::Channel;
use graph_words::{Graph, Kernel, Step};
use launch::{Branches, Error};
use pushbuf::qmd::PcasAction;
use std::sync::atomic::Ordering;

const START: PcasAction = PcasAction::InvalidatePrefetchCopySchedule;

/// Prepares the graph on this number of channels.
fn branches(rig: &Rig, graph: &Graph, number: usize) -> (Branches, Vec<Channel>) {
    let mut channel = rig.channel();
    let ours = learn(rig, &mut channel, graph);
    let space = rig.enter();
    let mut channels: Vec<Channel> = (0..number).map(|_| launch::channel(&space).unwrap()).collect();
    // SAFETY: stand-in kernels in memory of the rig, which outlives the test's launches.
    let branches = unsafe { Branches::of(&ours, &mut channels) }.unwrap();
    rig.clear_log();
    (branches, channels)
}

/// The log of several launches in flight together.
fn launched(rig: &Rig, branches: &mut Branches, channels: &mut [Channel], times: usize) -> Vec<u32> {
    rig.clear_log();
    for _ in 0..times {
        branches.launch(channels).unwrap();
    }
    branches.wait(channels, TIMEOUT).unwrap();
    assert!(branches.done());
    rig.log()
}

#[test]
fn a_fork_runs_on_as_many_channels_as_there_are() {
    let rig = Rig::new();
    rig.second_channel();
    let graph = rig.logging(Graph::fork());
    rig.turns(Operation::Log, 5);
    for (number, doorbells) in [(1, 1), (2, 4), (3, 4)] {
        let (mut branches, mut channels) = branches(&rig, &graph, number);
        assert_eq!(branches.parts(), doorbells);
        let rung = |channels: &[Channel]| channels.iter().map(Channel::entries_written).collect::<Vec<_>>();
        let before = rung(&channels);
        let log = launched(&rig, &mut branches, &mut channels, 12);
        assert_eq!(log.len(), 48, "{number} channels");
        for launch in log.chunks(4) {
            assert_eq!((launch[0], launch[3], launch[1] + launch[2]), (0, 3, 3), "{number} channels: {launch:?}");
        }
        let used = rung(&channels).iter().zip(&before).filter(|(now, then)| now > then).count();
        assert_eq!(used, number.min(2), "CUDA had two");
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_branch_may_be_a_memset_and_is_seen_by_what_comes_after_it() {
    let rig = Rig::new();
    rig.second_channel();
    // While the second kernel runs, the second channel fills the source of a copy after the join.
    let kernels = (0..3).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    let at = rig.host.va() + DATA;
    let launch = vec![
        Step::Wait(2, -2),
        Step::Set(0),
        Step::Start(0, START),
        Step::On(1),
        Step::Wait(0, 2),
        Step::Memset { at, value: 0x77, bytes: 64 },
        Step::Set(1),
        Step::Start(1, START),
        Step::On(0),
        Step::Wait(1, 2),
        Step::Memcpy { from: at, to: at + 256, bytes: 64 },
        Step::Set(2),
        Step::Start(2, START),
    ];
    let graph = rig.logging(Graph { kernels, launch, ..Graph::default() });
    let (mut branches, mut channels) = branches(&rig, &graph, 2);
    for _ in 0..4 {
        (0..80).for_each(|word| rig.set_data(word, 5));
        assert_eq!(launched(&rig, &mut branches, &mut channels, 3), [0, 1, 2].repeat(3));
        assert!((64..80).all(|word| rig.data(word) == 0x77));
    }
    assert_eq!(rig.faults(), 0);
}

/// Kernels, each a group on one of three channels, that wait for some of those before them. The last waits for all.
fn random(seed: &mut u64) -> (Graph, Vec<Vec<usize>>) {
    let mut draw = |below: u64| {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (*seed >> 33) % below
    };
    let count = 3 + draw(7) as usize;
    let mut waits: Vec<Vec<usize>> = vec![Vec::new()];
    let mut launch = vec![Step::Wait(count - 1, -2), Step::Set(0), Step::Start(0, START)];
    for i in 1..count {
        let is_last = i + 1 == count;
        let mut on: Vec<usize> = (0..i).filter(|_| is_last || draw(3) == 0).collect();
        if on.is_empty() {
            on.push(draw(i as u64) as usize);
        }
        launch.push(Step::On(if is_last { 0 } else { draw(3) as usize }));
        launch.extend(on.iter().map(|j| Step::Wait(*j, 2)));
        launch.extend([Step::Set(i), Step::Start(i, START)]);
        waits.push(on);
    }
    let kernels = (0..count).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    (Graph { kernels, launch, ..Graph::default() }, waits)
}

#[test]
fn random_forks_keep_every_wait_beside_slow_kernels() {
    let rig = Rig::new();
    (0..2).for_each(|_| rig.second_channel());
    let mut seed = 7;
    for round in 0..12 {
        let (graph, waits) = random(&mut seed);
        let graph = rig.logging(graph);
        let (mut branches, mut channels) = branches(&rig, &graph, 1 + round % 3);
        // A kernel that does not wait for a slow one runs before it.
        rig.driver.machine.plant(Some(Planted::SlowKernel { turns: 20 + 30 * (round as u64 % 4) }));
        let log = launched(&rig, &mut branches, &mut channels, 4);
        rig.driver.machine.plant(None);
        assert_eq!(log.len(), 4 * waits.len(), "round {round}");
        for launch in log.chunks(waits.len()) {
            let place = |kernel: usize| launch.iter().position(|ran| *ran == kernel as u32).unwrap();
            for (kernel, before) in waits.iter().enumerate() {
                assert!(
                    before.iter().all(|other| place(*other) < place(kernel)),
                    "round {round}: {launch:?}, {waits:?}"
                );
            }
        }
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn more_launches_than_slots_are_refused_and_leave_nothing_half_done() {
    let rig = Rig::new();
    rig.second_channel();
    let graph = rig.logging(Graph::fork());
    let (mut branches, mut channels) = branches(&rig, &graph, 2);
    rig.driver.machine.plant(Some(Planted::SlowKernel { turns: 3_000 }));
    let mut launched = 0;
    let full = loop {
        match branches.launch(&mut channels) {
            Ok(()) => launched += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Gpu(gpu::Error::RingFull(_))), "{full}");
    rig.driver.machine.plant(None);
    branches.wait(&channels, TIMEOUT).unwrap();
    assert_eq!(
        (rig.log().len(), rig.host.word(crate::rig::LOG).load(Ordering::Acquire)),
        (4 * launched, 4 * launched as u32)
    );
    // Other channels than the prepared ones, and too few.
    assert!(branches.launch(&mut channels[..1]).is_err());
    channels.swap(0, 1);
    assert!(matches!(branches.launch(&mut channels), Err(Error::Gpu(gpu::Error::OtherChannel))));
}

#[test]
fn a_launch_waits_for_branches_of_the_one_before_that_nothing_joined() {
    let rig = Rig::new();
    rig.second_channel();
    let kernels = (0..2).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    let launch = vec![
        Step::Wait(0, -2),
        Step::Wait(1, -2),
        Step::Set(0),
        Step::Start(0, START),
        Step::On(1),
        Step::Wait(0, 2),
        Step::Set(1),
        Step::Start(1, START),
    ];
    let graph = rig.logging(Graph { kernels, launch, ..Graph::default() });
    let (mut branches, mut channels) = branches(&rig, &graph, 2);
    rig.driver.machine.plant(Some(Planted::SlowKernel { turns: 50 }));
    assert_eq!(launched(&rig, &mut branches, &mut channels, 6), [0, 1].repeat(6));
    rig.driver.machine.plant(None);
}
