//! The order of kernels, with several launches pending.

use crate::learn;
use crate::rig::{DATA, Rig, TIMEOUT};
use cuda_graph::words::{Graph, Kernel, Step};
use doorbell_softgpu::Planted;
use doorbell_softgpu::standin::{self, Operation};
use gpu::Channel;
use launch::{Graph as Ours, Kind};
use pushbuf::qmd::PcasAction;

/// Makes this many launches without a wait between them. Returns their log.
fn launched(rig: &Rig, channel: &mut Channel, ours: &mut Ours, times: usize) -> Vec<u32> {
    rig.clear_log();
    let mut last = None;
    for _ in 0..times {
        last = Some(ours.launch(channel).unwrap());
    }
    channel.wait(last.unwrap(), TIMEOUT).unwrap();
    rig.log()
}

#[test]
fn chains_run_in_their_order() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    for n in [1, 2, 3, 10, 100] {
        let graph = rig.logging(Graph::chain(n));
        rig.clear_log();
        let mut ours = learn(&rig, &mut channel, &graph);
        let once: Vec<u32> = if n == 1 { vec![0] } else { (1..=n as u32).collect() };
        assert_eq!(rig.log(), once.repeat(3), "{n} kernels: three launches of CUDA's, and none by the upload of ours");
        assert_eq!(launched(&rig, &mut channel, &mut ours, 8), once.repeat(8), "{n} kernels");
        let kernels = ours.nodes().iter().filter(|node| matches!(node.kind, Kind::Kernel { .. })).count();
        assert_eq!(kernels, n);
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_chain_of_two_thousand_is_launched_by_as_few_words() {
    const KERNELS: usize = 2000;
    let rig = Rig::new();
    let mut channel = rig.channel();
    let video = rig.cuda.alloc_video(8 << 20).unwrap();
    let mut graph = rig.logging(Graph::chain(KERNELS));
    (graph.at.qmds, graph.at.banks) = (video.va(), video.va() + (2 << 20));
    let mut ours = learn(&rig, &mut channel, &graph);
    let once: Vec<u32> = (1..=KERNELS as u32).collect();
    assert!(launched(&rig, &mut channel, &mut ours, 2) == once.repeat(2));
    // Every kernel's parameters change with one launch.
    for node in 1..=KERNELS {
        ours.set_parameter(node, 8, &(node as u32 + 5).to_le_bytes()).unwrap();
    }
    let changed: Vec<u32> = (6..6 + KERNELS as u32).collect();
    assert!(launched(&rig, &mut channel, &mut ours, 2) == changed.repeat(2));
    assert_eq!(rig.faults(), 0);
}

#[test]
fn slow_kernels_are_waited_for_by_the_next_launch() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    for graph in [Graph::chain(1), Graph::chain(4), Graph::diamond()] {
        let graph = rig.logging(graph);
        let mut ours = learn(&rig, &mut channel, &graph);
        rig.turns(Operation::Log, 4);
        let log = launched(&rig, &mut channel, &mut ours, 10);
        rig.turns(Operation::Log, 0);
        let kernels = graph.kernels.iter().filter(|kernel| !kernel.is_empty()).count();
        for launch in log.chunks(kernels) {
            let mut sorted = launch.to_vec();
            sorted.sort_unstable();
            sorted.dedup();
            assert_eq!((sorted.len(), launch[0], launch.last()), (kernels, sorted[0], sorted.last()), "{log:?}");
        }
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_launch_without_the_acquire_in_front_is_found() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(2));
    let mut ours = learn(&rig, &mut channel, &graph);
    rig.turns(Operation::Log, 100);
    let (first, second) = (ours.launch(&mut channel).unwrap(), ours.launch(&mut channel).unwrap());
    channel.wait(second, TIMEOUT).unwrap();
    assert!(first.number() < second.number());
    // The same words without their waits: the GPU refuses to start an active QMD. (The kernel does not end, so the
    // time that the CPU takes between the two launches does not matter.)
    let mut unguarded = channel_without_waits(&rig, &graph);
    rig.turns(Operation::Log, u32::MAX);
    assert_eq!(unguarded.twice(), Some(13), "the scheduler's error, by which CUDA's channels would die, too");
}

/// A launch by doorbell with its acquires removed.
struct Unguarded {
    channel: Channel,
    launch: gpu::Launch,
}

fn channel_without_waits(rig: &Rig, graph: &Graph) -> Unguarded {
    let mut channel = rig.channel();
    let recipe = rig.recipe(graph);
    let memory = channel.space().alloc_video(0x1_0000).unwrap();
    let mut at = memory.va();
    let moved = recipe
        .relocate(|_, block| {
            at += 0x1000;
            if matches!(block.memory, cuda_graph::Memory::Qmd(_) | cuda_graph::Memory::Bank(_)) {
                at - 0x1000
            } else {
                block.address
            }
        })
        .unwrap();
    let own = cuda_graph::Own::of(&moved, channel.tracker()).unwrap();
    // The acquire is a NOP now, and the count changes an unused word: the payload of a release that is not made.
    let mut words = own.launch.clone();
    words[5] = pushbuf::semaphore::Execute {
        operation: pushbuf::semaphore::Operation::AcquireNor,
        ..pushbuf::semaphore::Execute::RELEASE
    }
    .encode();
    let words = gpu::LaunchWords {
        upload: &own.upload,
        launch: &words,
        counts: &[(3, 0)],
        adds: own.adds,
        qmds: &own.qmds,
        memory: &[memory],
        touched: &[],
        needed: &[],
        parameters: (0, 0),
    };
    // SAFETY: stand-in kernels in memory of the rig.
    let launch = unsafe { gpu::Launch::prepare(&mut channel, words).unwrap() };
    Unguarded { channel, launch }
}

impl Unguarded {
    /// Launches twice without a wait. Returns the error that killed the channel.
    fn twice(&mut self) -> Option<u32> {
        let _ = self.launch.submit(&mut self.channel);
        let ticket = self.launch.submit(&mut self.channel);
        let _ = ticket.map(|ticket| self.channel.wait(ticket, TIMEOUT));
        self.channel.error()
    }
}

#[test]
fn a_gpu_whose_kernels_take_long_and_one_that_loses_a_release() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(3));
    let mut ours = learn(&rig, &mut channel, &graph);
    rig.driver.machine.plant(Some(Planted::SlowKernel { turns: 10 }));
    assert_eq!(launched(&rig, &mut channel, &mut ours, 6), [1, 2, 3].repeat(6));
    rig.driver.machine.plant(Some(Planted::LostQmdRelease { nth: 2 }));
    let (first, second) = (ours.launch(&mut channel).unwrap(), ours.launch(&mut channel).unwrap());
    channel.wait(first, TIMEOUT).unwrap();
    let late = channel.wait(second, std::time::Duration::from_millis(20));
    assert!(matches!(late, Err(gpu::Error::Timeout { .. })), "a launch whose end is not told is not done: {late:?}");
    rig.driver.machine.plant(None);
}

#[test]
fn the_kernels_of_a_fan_out_run_before_their_join() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::diamond());
    let mut ours = learn(&rig, &mut channel, &graph);
    let log = launched(&rig, &mut channel, &mut ours, 20);
    assert_eq!(log.len(), 80);
    for launch in log.chunks(4) {
        assert_eq!((launch[0], launch[3], launch[1] + launch[2]), (0, 3, 3), "{launch:?}");
    }
    let after: Vec<_> = ours.nodes().iter().map(|node| node.after.clone()).collect();
    assert_eq!(after, [vec![], vec![0], vec![0], vec![1, 2]]);
}

/// A graph with one of the driver's tables, read as it is: the driver's kernels do not run here.
fn read(rig: &Rig, channel: &mut gpu::Channel, graph: Graph) -> launch::Graph {
    let mut graph = rig.logging(graph);
    let table = graph.table.clone().unwrap();
    graph.put_table(table.at, &table.rows);
    // SAFETY: stand-in kernels in memory of the rig.
    unsafe { launch::Graph::of(&rig.recipe(&graph), channel) }.unwrap()
}

#[test]
fn fans_of_many_kernels_run_without_the_drivers_kernels() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let table = rig.host.va() + DATA;
    for n in [3, 8, 40] {
        let mut ours = read(&rig, &mut channel, Graph::fan_out(n, table));
        let (kernels, all) = (rig.kernels(), n as u32 + 1);
        let log = launched(&rig, &mut channel, &mut ours, 20);
        assert_eq!(rig.kernels() - kernels, 20 * u64::from(all), "QMDs without blocks run nothing");
        for launch in log.chunks(n + 1) {
            assert_eq!(launch[0], 0, "{launch:?}");
            let mut rest = launch[1..].to_vec();
            rest.sort_unstable();
            assert_eq!(rest, (2..=all).collect::<Vec<_>>(), "each once");
        }
    }
    for n in [2, 8, 40] {
        let mut ours = read(&rig, &mut channel, Graph::fan_in(n, table));
        let log = launched(&rig, &mut channel, &mut ours, 20);
        assert_eq!(log.len(), 20 * (n + 1));
        for launch in log.chunks(n + 1) {
            assert_eq!(launch[n], 2 * n as u32, "the one that waits for all is the last: {launch:?}");
            let mut ahead = launch[..n].to_vec();
            ahead.sort_unstable();
            assert_eq!(ahead, (0..n as u32).map(|i| 2 * i).collect::<Vec<_>>());
        }
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn groups_wait_for_one_another_and_memsets_and_copies_stand_between_them() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let data = rig.host.va() + DATA;
    let kernel = |operation, parameters: Vec<u8>, group: Option<usize>, then: Vec<(usize, u64)>| Kernel {
        code: Some(rig.code(operation)),
        parameters,
        releases: group,
        then,
        ..Kernel::default()
    };
    // Word 0: set to 9, doubled into word 64 by the copy engine, set to 0, and copied from there to word 128.
    let mut graph = Graph::memset(data);
    graph.at = rig.places();
    graph.kernels[0] =
        kernel(Operation::Store, standin::pointer_and_word(data + 4, 5), None, vec![(1, cuda_graph::words::SCHEDULE)]);
    graph.kernels[1] = kernel(Operation::Store, standin::pointer_and_word(data, 9), Some(0), Vec::new());
    graph.kernels[2] = kernel(Operation::Copy, standin::copy(data + 512, data, 4), Some(1), Vec::new());
    let memset = graph.launch.iter().position(|step| matches!(step, Step::Memset { .. })).unwrap();
    graph.launch.insert(memset, Step::Memcpy { from: data, to: data + 256, bytes: 8 });
    rig.turns(Operation::Store, 10);
    let mut ours = learn(&rig, &mut channel, &graph);
    let names: Vec<_> = ours.nodes().iter().map(|node| node.kind.name()).collect();
    assert_eq!(names.iter().filter(|name| **name == "kernel").count(), 3);
    assert!(names.contains(&"memcpy") && names.contains(&"memset"), "{names:?}");
    for _ in 0..5 {
        (0..200).for_each(|word| rig.set_data(word, 1));
        let ticket = ours.launch(&mut channel).unwrap();
        channel.wait(ticket, TIMEOUT).unwrap();
        assert_eq!([0, 1, 64, 65, 128].map(|word| rig.data(word)), [0, 0, 9, 5, 0]);
    }
    // And several in flight together: the last one's results.
    (0..200).for_each(|word| rig.set_data(word, 1));
    let tickets: Vec<_> = (0..10).map(|_| ours.launch(&mut channel).unwrap()).collect();
    channel.wait(tickets[9], TIMEOUT).unwrap();
    assert_eq!([0, 64, 128].map(|word| rig.data(word)), [0, 9, 0]);
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_fork_onto_a_second_channel_and_its_join_go_through_one_of_ours() {
    let rig = Rig::new();
    rig.second_channel();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::fork());
    let mut ours = learn(&rig, &mut channel, &graph);
    rig.turns(Operation::Log, 5);
    let log = launched(&rig, &mut channel, &mut ours, 12);
    assert_eq!(log.len(), 48);
    for launch in log.chunks(4) {
        assert_eq!((launch[0], launch[3], launch[1] + launch[2]), (0, 3, 3), "{launch:?}");
    }
}

#[test]
fn graphs_take_turns_on_one_channel_and_run_beside_one_another_on_two() {
    let rig = Rig::new();
    let (mut channel, mut other) = (rig.channel(), rig.channel());
    let one = rig.logging(Graph::chain(2));
    let mut two = rig.logging(Graph::chain(3));
    (two.at.qmds, two.at.banks) = (one.at.qmd(8), one.at.bank(8));
    for (kernel, number) in two.kernels.iter_mut().skip(1).zip(10u32..) {
        kernel.parameters[8..12].copy_from_slice(&number.to_le_bytes());
    }
    let mut ours = learn(&rig, &mut channel, &one);
    let mut second = learn(&rig, &mut channel, &two);
    rig.turns(Operation::Log, 8);
    rig.clear_log();
    let mut last = None;
    for _ in 0..5 {
        ours.launch(&mut channel).unwrap();
        last = Some(second.launch(&mut channel).unwrap());
    }
    channel.wait(last.unwrap(), TIMEOUT).unwrap();
    assert_eq!(rig.log(), [1, 2, 10, 11, 12].repeat(5), "the order of the calls");
    // A launch can only use its own channel.
    assert!(matches!(ours.launch(&mut other), Err(gpu::Error::OtherChannel)));
    let mut beside = learn(&rig, &mut other, &two);
    rig.clear_log();
    let mut tickets = Vec::new();
    for _ in 0..5 {
        tickets.push((ours.launch(&mut channel).unwrap(), beside.launch(&mut other).unwrap()));
    }
    let (a, b) = tickets.pop().unwrap();
    channel.wait(a, TIMEOUT).unwrap();
    other.wait(b, TIMEOUT).unwrap();
    let log = rig.log();
    let of = |wanted: fn(&u32) -> bool| log.iter().copied().filter(wanted).collect::<Vec<_>>();
    assert_eq!((of(|n| *n < 10), of(|n| *n >= 10)), ([1, 2].repeat(5), [10, 11, 12].repeat(5)));
}

#[test]
fn thousands_of_launches_go_round_ring_and_slots_with_cudas_own_between() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(2));
    let mut ours = learn(&rig, &mut channel, &graph);
    let add = standin::pointer_and_word(rig.host.va() + DATA, 0);
    for node in [1, 2] {
        ours.set_parameter(node, 0, &(rig.host.va() + rig_log_at(node)).to_le_bytes()).unwrap();
    }
    assert_eq!(add.len(), 12);
    let (mut launched, mut refused) = (0, 0);
    while launched < 3000 {
        match ours.launch(&mut channel) {
            Ok(_) => launched += 1,
            Err(gpu::Error::RingFull(_)) => {
                refused += 1;
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
        if launched % 1000 == 500 {
            rig.launch(&graph, 3 + launched / 1000);
        }
    }
    channel.idle(TIMEOUT).unwrap();
    assert!(refused > 0, "more are asked for than there are slots");
    for node in [1, 2] {
        assert_eq!(rig.host.word(rig_log_at(node)).load(std::sync::atomic::Ordering::Acquire), 3000);
    }
    assert_eq!(rig.faults(), 0);
}

/// A separate log for a kernel: 3,000 words and their number.
fn rig_log_at(node: usize) -> u64 {
    DATA + 0x4000 * node as u64
}

#[test]
fn a_single_kernel_is_a_graph_of_one_node() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut graph = rig.logging(Graph::chain(1));
    graph.kernels[0] = Kernel {
        grid: [3, 2, 5],
        block: [32, 2, 1],
        code: Some(rig.code(Operation::Add)),
        parameters: standin::pointer_and_word(rig.host.va() + DATA, 0),
        releases: Some(0),
        ..Kernel::default()
    };
    assert!(matches!(graph.launch.last(), Some(Step::Start(0, PcasAction::InvalidatePrefetchCopySchedule))));
    let mut ours = learn(&rig, &mut channel, &graph);
    rig.set_data(0, 0);
    for n in 1..=4 {
        let ticket = ours.launch(&mut channel).unwrap();
        channel.wait(ticket, TIMEOUT).unwrap();
        assert_eq!(rig.data(0), n * 30 * 64);
    }
    let [node] = ours.nodes() else { panic!("{:?}", ours.nodes()) };
    let Kind::Kernel { grid, block, parameters, program, .. } = node.kind else { panic!("{node:?}") };
    assert_eq!((grid, block, parameters, program), ([3, 2, 5], [32, 2, 1], 12, rig.code(Operation::Add)));
}
