//! Copies and launches as one chain with a single doorbell.

use crate::rig::{Rig, TIMEOUT, gate};
use crate::try_learn;
use cuda_graph::words::{Graph, Kernel};
use doorbell_softgpu::Planted;
use doorbell_softgpu::standin::{self, Operation};
use gpu::{Channel, ChannelOptions, Engine, Entry, Error, Memory, Place};
use launch::{Chain, ChainOptions, Order, Step, Transfer, Way};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use test_support::counting::cost;

pub const MOST: u64 = 64 << 10;

/// Bytes in, a kernel that copies them, bytes out.
pub struct Frames {
    pub channel: Channel,
    pub graph: launch::Graph,
    pub host: Arc<Memory>,
    pub video: Arc<Memory>,
    bytes: u64,
}

impl Frames {
    pub fn new(rig: &Rig, bytes: u64) -> Frames {
        let mut channel = rig.channel();
        let host = channel.space().alloc_host(4 * MOST).unwrap();
        let video = channel.space().alloc_video(2 * MOST).unwrap();
        let graph = try_learn(rig, &mut channel, &copies(rig, &video, bytes)).unwrap();
        Frames { channel, graph, host, video, bytes }
    }

    /// From the first part of host memory, to the second.
    pub fn steps(&self, by: Option<Way>) -> [Step<'_>; 3] {
        let (host, video, bytes) = (self.host.region(), self.video.region(), self.bytes);
        let copy = |to, from, by| Step::Copy(Transfer { to, from, bytes, by });
        [
            copy(video.clone(), host.clone(), by),
            Step::Launch(&self.graph),
            copy(host.part(MOST, MOST).unwrap(), video.part(MOST, MOST).unwrap(), None),
        ]
    }

    fn chain(&mut self, by: Option<Way>, options: ChainOptions) -> Chain {
        let channel = &mut self.channel as *mut Channel;
        // SAFETY: the steps name no channel; stand-in kernels in memory of self.
        unsafe { Chain::prepare(&mut *channel, &self.steps(by), options) }.unwrap()
    }

    pub fn fill(&self, seed: u8) {
        let data: Vec<u8> = (0..self.bytes as usize + 8).map(|i| (i as u8).wrapping_mul(31) ^ seed).collect();
        self.host.write(0, &data);
        self.host.write(MOST, &vec![!seed; self.bytes as usize + 8]);
    }

    /// Whether the sent bytes were returned, with no byte more.
    pub fn right(&self, seed: u8) -> bool {
        let mut found = vec![0; self.bytes as usize + 8];
        self.host.read(MOST, &mut found);
        let sent = |i: usize| (i as u8).wrapping_mul(31) ^ seed;
        let whole = self.bytes as usize;
        found.iter().enumerate().all(|(i, byte)| *byte == if i < whole { sent(i) } else { !seed })
    }
}

/// A graph of a kernel that copies from the first half of GPU memory to the second.
fn copies(rig: &Rig, video: &Memory, bytes: u64) -> Graph {
    let mut graph = rig.logging(Graph::chain(1));
    graph.kernels[0] = Kernel {
        code: Some(rig.code(Operation::Copy)),
        parameters: standin::copy(video.va() + MOST, video.va(), bytes as u32),
        releases: Some(0),
        ..Kernel::default()
    };
    graph
}

#[test]
fn results_are_right_for_every_size_way_and_order() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 5);
    for bytes in [1, 8, 100, 4095, 16 << 10, (16 << 10) + 4, 0x8000, MOST] {
        let mut frames = Frames::new(&rig, bytes);
        let all = [None, Some(Way::CopyEngine), Some(Way::Inline)];
        for (n, by) in all.into_iter().enumerate() {
            for order in [Order::Counter, Order::AsCuda, Order::Engines] {
                let counter = if n == 0 { Place::Host } else { Place::Video };
                let mut chain = frames.chain(by, ChainOptions { order, counter, ..Default::default() });
                let first = by.unwrap_or(if bytes <= 16 << 10 { Way::Inline } else { Way::CopyEngine });
                assert_eq!(chain.ways(), [Some(first), None, Some(Way::CopyEngine)]);
                for round in 0..2 {
                    let seed = (bytes as u8).wrapping_add(40 * n as u8 + 3 * round);
                    frames.fill(seed);
                    let entries = frames.channel.entries_written();
                    let ticket = chain.launch(&mut frames.channel).unwrap();
                    assert!(frames.channel.entries_written() - entries <= 2, "one segment, and a mark at times");
                    frames.channel.wait(ticket, TIMEOUT).unwrap();
                    assert!(frames.right(seed), "{bytes} bytes {by:?} {order:?} {counter:?}, round {round}");
                }
            }
        }
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn many_chains_are_queued_each_with_its_own_bytes_and_parameters() {
    const CHAINS: u64 = 300;
    let rig = Rig::new();
    rig.turns(Operation::Copy, 3);
    let mut frames = Frames::new(&rig, 8);
    let mut chain = frames.chain(None, ChainOptions::default());
    let kernel = chain.nodes()[0].number;
    let results = frames.channel.space().alloc_host(8 * CHAINS).unwrap();
    // The GPU waits until more were asked for than there are slots.
    let gate = gate(&mut frames.channel);
    let (mut launched, mut refused) = (0, 0);
    while launched < CHAINS {
        // The chain's copy takes the bytes from the time of submission, whatever is written later.
        frames.host.word64(0).store(launched + 1, Ordering::Relaxed);
        chain.set_parameter(kernel, 0, &(results.va() + 8 * launched).to_le_bytes()).unwrap();
        match chain.launch(&mut frames.channel) {
            Ok(_) => launched += 1,
            Err(Error::RingFull(slots)) => {
                assert_eq!(slots as usize, chain.slots());
                refused += 1;
                gate.set(1);
                std::thread::yield_now();
            }
            Err(error) => panic!("{error}"),
        }
    }
    frames.channel.idle(TIMEOUT).unwrap();
    assert!(refused > 0, "more were asked for than there are slots");
    let found: Vec<u64> = (0..CHAINS).map(|n| results.word64(8 * n).load(Ordering::Acquire)).collect();
    assert_eq!(found, (1..=CHAINS).collect::<Vec<_>>());
    assert_eq!(rig.faults(), 0);
}

#[test]
fn chains_graphs_and_chains_of_several_graphs_take_turns_on_one_channel() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let one = rig.logging(Graph::chain(2));
    let mut two = rig.logging(Graph::diamond());
    let mut third = one.clone();
    (two.at.qmds, two.at.banks) = (one.at.qmd(8), one.at.bank(8));
    (third.at.qmds, third.at.banks) = (one.at.qmd(16), one.at.bank(16));
    let mut beside = try_learn(&rig, &mut channel, &third).unwrap();
    let mut one = try_learn(&rig, &mut channel, &one).unwrap();
    let two = try_learn(&rig, &mut channel, &two).unwrap();
    for graph in [&mut one, &mut beside] {
        graph.set_parameter(1, 8, &77u32.to_le_bytes()).unwrap();
    }
    let memory = channel.space().alloc_host(0x1000).unwrap();
    let number = memory.region();
    let copy = |to: u64, from: u64, by| {
        let part = |at| number.part(at, 4).unwrap();
        Step::Copy(Transfer { to: part(to), from: part(from), bytes: 4, by })
    };
    let steps = [
        Step::Launch(&one),
        copy(0, 8, Some(Way::Inline)),
        Step::Launch(&two),
        Step::Launch(&one),
        copy(4, 0, None),
        copy(16, 4, None),
        copy(20, 8, Some(Way::Inline)),
    ];
    for order in [Order::Counter, Order::AsCuda, Order::Engines] {
        let options = ChainOptions { order, ..Default::default() };
        // SAFETY: stand-in kernels in memory of the rig.
        let mut chain = unsafe { Chain::prepare(&mut channel, &steps, options) }.unwrap();
        assert_eq!(chain.nodes().len(), 2 * one.nodes().len() + two.nodes().len());
        // The second copy of the first graph has its own parameter.
        chain.set_parameter(one.nodes().len() + two.nodes().len() + 2, 8, &99u32.to_le_bytes()).unwrap();
        rig.turns(Operation::Log, 4);
        rig.clear_log();
        memory.write(0, &[0; 32]);
        memory.word(8).store(5, Ordering::Relaxed);
        for _ in 0..4 {
            chain.launch(&mut channel).unwrap();
            beside.launch(&mut channel).unwrap();
        }
        channel.idle(TIMEOUT).unwrap();
        rig.turns(Operation::Log, 0);
        let log = rig.log();
        for (n, turn) in log.chunks(10).enumerate() {
            assert_eq!((&turn[..3], &turn[5..]), (&[77, 2, 0][..], &[3, 77, 99, 77, 2][..]), "turn {n}: {log:?}");
        }
        assert_eq!(log.len(), 40);
        assert_eq!([0, 4, 16, 20].map(|at| memory.word(at).load(Ordering::Acquire)), [5; 4], "{order:?}");
    }
    assert_eq!(rig.faults(), 0);
}

/// Only a wait keeps a copy after a kernel in order here: the same words without the wait copy the old bytes back.
#[test]
fn a_chain_without_the_wait_between_kernel_and_copy_is_found() {
    let rig = Rig::new();
    for waits in [true, false] {
        let frames = Frames::new(&rig, 8);
        let Frames { mut channel, graph, host, video, .. } = frames;
        drop(graph);
        rig.turns(Operation::Copy, 2000);
        let recipe = rig.recipe(&copies(&rig, &video, 8));
        let memory = channel.space().alloc_for_launch(0x1_0000).unwrap();
        let mut at = memory.va();
        let moved = recipe.relocate(|_, block| {
            at += 0x1000;
            match block.memory {
                cuda_graph::Memory::Qmd(_) | cuda_graph::Memory::Bank(_) => at - 0x1000,
                _ => block.address,
            }
        });
        let counter = gpu::Counter::new(channel.space(), Place::Video).unwrap();
        let own = cuda_graph::Own::of(&moved.unwrap(), counter.va()).unwrap();
        let (mut words, mut counts) = (own.launch.clone(), Vec::new());
        let acquire = |to: u64| cuda_graph::words::words(|w| w.host_semaphore(0, to, 0, WAIT).unwrap());
        // The first wait is for the tracker.
        words[..6].copy_from_slice(&acquire(channel.tracker()));
        if waits {
            counts.push((words.len() + 3, own.adds));
            words.extend(acquire(counter.va()));
        }
        let (from, to) = (video.va() + MOST, host.va() + MOST);
        words.extend(cuda_graph::words::words(|w| w.copy(4, from, to, 8, 0x182).unwrap()));
        let end = words.len() + 3;
        words.extend(cuda_graph::words::words(|w| w.copy_release(4, channel.tracker(), 0, false).unwrap()));
        let launch = gpu::LaunchWords {
            upload: &own.upload,
            launch: &words,
            counts: &[(3, 0), (end, 1)],
            adds: 1,
            qmds: &own.qmds,
            memory: &[memory],
            touched: &[host.region(), video.region()],
            needed: &[],
            parameters: (0, 0),
        };
        let adds = own.adds;
        let chain = gpu::ChainWords { counter: Some(&counter), counts: &counts, adds, ..Default::default() };
        // SAFETY: a stand-in kernel in memory of the test.
        let mut launch = unsafe { gpu::Launch::prepare_chain(&mut channel, launch, chain) }.unwrap();
        video.write(0, &[7; 8]);
        video.write(MOST, &[1; 8]);
        let ticket = launch.submit(&mut channel).unwrap();
        channel.wait(ticket, TIMEOUT).unwrap();
        let mut found = [0; 8];
        host.read(MOST, &mut found);
        assert_eq!(found, if waits { [7; 8] } else { [1; 8] });
        // (Without the wait, the chain's ticket does not include the kernel.)
        if !waits {
            let start = std::time::Instant::now();
            while video.word(MOST).load(Ordering::Acquire) != 0x0707_0707 {
                assert!(start.elapsed() < TIMEOUT);
                std::thread::yield_now();
            }
        }
        rig.turns(Operation::Copy, 0);
    }
    assert_eq!(rig.faults(), 0);
}

const WAIT: pushbuf::semaphore::Execute = pushbuf::semaphore::Execute {
    operation: pushbuf::semaphore::Operation::AcquireCircGeq,
    ..pushbuf::semaphore::Execute::RELEASE
};

#[test]
fn what_no_chain_can_be_is_refused_before_anything_is_submitted() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 64);
    let video = frames.video.region();
    let elsewhere = {
        let other = gpu::Device::open(Arc::new(rig.driver), 0).unwrap();
        gpu::AddressSpace::new(&other).unwrap().alloc_host(0x1000).unwrap()
    };
    let of_cuda = frames.channel.space().pin(rig.host.va(), 64).unwrap();
    let copy = |to: &gpu::Region, from: &gpu::Region, bytes, by| {
        Step::Copy(Transfer { to: to.clone(), from: from.clone(), bytes, by })
    };
    let host = frames.host.region();
    let chain = frames.chain(None, ChainOptions::default()).into_graph();
    let entries = frames.channel.entries_written();
    let refused: Vec<(&str, Vec<Step<'_>>)> = vec![
        ("1 to 256 steps", vec![]),
        ("1 to 256 steps", vec![copy(&video, &host, 8, None); 257]),
        ("the CPU reads what goes inline", vec![copy(&host, &video, 8, Some(Way::Inline))]),
        ("64 KiB go inline at most", vec![copy(&video, &host, MOST + 4, Some(Way::Inline))]),
        ("do not lie within", vec![copy(&video, &host, 4 * MOST + 1, None)]),
        ("no length for memory", vec![copy(&video, &host, 0, None)]),
        ("another address space", vec![copy(&video, &elsewhere.region(), 8, None)]),
        ("cannot be part of another", vec![Step::Launch(&chain)]),
    ];
    for (why, steps) in refused {
        // SAFETY: stand-in kernels in memory of the test.
        let error = unsafe { Chain::prepare(&mut frames.channel, &steps, ChainOptions::default()) }.unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    assert_eq!(frames.channel.entries_written(), entries);
    // CUDA's memory is copied by the copy engine unless the caller declares that the CPU can read it.
    for by in [None, Some(Way::Inline)] {
        let steps = [copy(&video, of_cuda.region(), 8, by), Step::Launch(&frames.graph)];
        // SAFETY: as above; it is host memory.
        let chain = unsafe { Chain::prepare(&mut frames.channel, &steps, ChainOptions::default()) }.unwrap();
        assert_eq!(chain.ways(), [Some(by.unwrap_or(Way::CopyEngine)), None]);
    }
}

#[test]
fn the_validator_refuses_what_a_chains_words_must_not_say() {
    let rig = Rig::new();
    let Frames { mut channel, host, video, .. } = Frames::new(&rig, 8);
    let tracker = channel.tracker();
    let counter = gpu::Counter::new(channel.space(), Place::Host).unwrap();
    let inside = video.va();
    let mut try_words = |middle: &dyn Fn(&mut pushbuf::encode::Words<'_>),
                         counts: &[(usize, u32)],
                         last: u32,
                         blocks: &[(usize, usize)]| {
        let mut words = cuda_graph::words::words(|w| w.host_semaphore(0, tracker, 0, WAIT).unwrap());
        words.extend(cuda_graph::words::words(middle));
        let end = words.len() + 3;
        words.extend(cuda_graph::words::words(|w| w.copy_release(4, tracker, 0, false).unwrap()));
        let launch = gpu::LaunchWords {
            upload: &[],
            launch: &words,
            counts: &[(3, 0), (end, last)],
            adds: 1,
            qmds: &[],
            memory: &[],
            touched: &[host.region(), video.region()],
            needed: &[],
            parameters: (0, 0),
        };
        let from = host.region().part(0, 8).unwrap();
        let source = gpu::Source { from, blocks: blocks.to_vec() };
        let sources = if blocks.is_empty() { &[][..] } else { std::slice::from_ref(&source) };
        let chain = gpu::ChainWords { counter: Some(&counter), counts, adds: 1, sources, ..Default::default() };
        // SAFETY: it starts no kernel.
        unsafe { gpu::Launch::prepare_chain(&mut channel, launch, chain) }.map(drop).map_err(|error| error.to_string())
    };
    let data = |w: &mut pushbuf::encode::Words<'_>| w.inline(1, inside, &[0; 8], 1).unwrap();
    // Six words of the wait, then two headers with two words each, one with one, and the header of the data.
    let at = 6 + 3 + 3 + 2 + 1;
    assert_eq!(try_words(&data, &[], 1, &[(at, 2)]), Ok(()));
    let wait = |w: &mut pushbuf::encode::Words<'_>| w.host_semaphore(0, counter.va(), 0, WAIT).unwrap();
    assert_eq!(try_words(&wait, &[(9, 1)], 1, &[]), Ok(()));
    for (why, result) in [
        ("does not set the tracker", try_words(&data, &[], 0, &[])),
        ("no payload", try_words(&wait, &[(8, 1)], 1, &[])),
        ("no payload", try_words(&wait, &[(9, 2)], 1, &[])),
        ("no inline data", try_words(&data, &[], 1, &[(at - 1, 2)])),
        ("no inline data", try_words(&data, &[], 1, &[(at, 3)])),
        ("does not fill its words", try_words(&data, &[], 1, &[(at, 1)])),
        ("address", try_words(&|w| w.copy(4, inside, 0x1000, 8, 0x182).unwrap(), &[], 1, &[])),
        ("address", try_words(&|w| w.copy(4, counter.va() + 4, inside, 8, 0x182).unwrap(), &[], 1, &[])),
        ("address", try_words(&|w| w.host_semaphore(0, counter.va() + 64, 0, WAIT).unwrap(), &[], 1, &[])),
        ("holds the channel group", try_words(&|w| w.host_semaphore(0, inside, 0, WAIT).unwrap(), &[], 1, &[])),
    ] {
        assert!(result.as_ref().is_err_and(|error| error.contains(why)), "{why}: {result:?}");
    }
}

#[test]
fn memory_that_is_freed_waits_for_the_chain_and_ends_it() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 8);
    let of_cuda = rig.cuda.alloc_host(0x1000).unwrap();
    let pin = frames.channel.space().pin(of_cuda.va(), 64).unwrap();
    for by in [Way::CopyEngine, Way::Inline] {
        let transfer = |to, from, by| Step::Copy(Transfer { to, from, bytes: 8, by });
        let steps = [
            transfer(frames.video.region(), pin.region().clone(), Some(by)),
            Step::Launch(&frames.graph),
            transfer(frames.host.region().part(MOST, 8).unwrap(), frames.video.region().part(MOST, 8).unwrap(), None),
        ];
        // SAFETY: a stand-in kernel in memory of the test, and host memory.
        let mut chain = unsafe { Chain::prepare(&mut frames.channel, &steps, ChainOptions::default()) }.unwrap();
        of_cuda.write(0, &[by as u8 + 1; 8]);
        let ticket = chain.launch(&mut frames.channel).unwrap();
        frames.channel.wait(ticket, TIMEOUT).unwrap();
        assert_eq!(frames.host.word(MOST).load(Ordering::Acquire), 0x0101_0101 * (by as u32 + 1));
        if by == Way::CopyEngine {
            continue;
        }
        rig.turns(Operation::Copy, 2000);
        let ticket = chain.launch(&mut frames.channel).unwrap();
        drop(of_cuda);
        assert!(frames.channel.done(ticket), "the memory went under a chain");
        for _ in 0..2 {
            assert!(matches!(chain.launch(&mut frames.channel), Err(Error::Stale)));
        }
        break;
    }
    assert_eq!((rig.faults(), frames.channel.error()), (0, None));
}

#[test]
fn a_graph_whose_local_memory_has_moved_is_part_of_no_chain() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 8);
    let mut chain = frames.chain(None, ChainOptions::default());
    chain.launch(&mut frames.channel).unwrap();
    rig.watched.local_memory_moves();
    assert!(matches!(chain.launch(&mut frames.channel), Err(Error::LocalMemoryMoved)));
    let steps = [Step::Launch(&frames.graph)];
    // SAFETY: a stand-in kernel in memory of the test.
    let refused = unsafe { Chain::prepare(&mut frames.channel, &steps, ChainOptions::default()) };
    assert!(matches!(refused, Err(launch::Error::Gpu(Error::LocalMemoryMoved))), "{refused:?}");
    frames.channel.idle(TIMEOUT).unwrap();
}

#[test]
fn a_killed_channel_and_a_forks_child_answer_errors() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 8);
    let mut chain = frames.chain(None, ChainOptions::default());
    frames.fill(3);
    // SAFETY: the child only makes calls that take no lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let forked = matches!(chain.launch(&mut frames.channel), Err(Error::Forked));
        drop((chain, frames));
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(i32::from(!forked)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child's call was an error");
    let ticket = chain.launch(&mut frames.channel).unwrap();
    frames.channel.wait(ticket, TIMEOUT).unwrap();
    assert!(frames.right(3));
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 1, xid: 31 }));
    let ticket = chain.launch(&mut frames.channel).unwrap();
    assert!(matches!(frames.channel.wait(ticket, TIMEOUT), Err(Error::ChannelKilled(31))));
    rig.driver.machine.plant(None);
    assert!(matches!(chain.launch(&mut frames.channel), Err(Error::ChannelKilled(31))));
}

#[test]
fn a_chain_that_is_dropped_while_it_runs_is_finished_first() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 500);
    let mut frames = Frames::new(&rig, 64);
    for by in [None, Some(Way::CopyEngine)] {
        let mut chain = frames.chain(by, ChainOptions::default());
        frames.fill(9);
        for _ in 0..4 {
            chain.launch(&mut frames.channel).unwrap();
        }
        drop(chain);
        let other = frames.channel.space().alloc_video(0x1_0000).unwrap();
        other.write(0, &[0xff; 0x1_0000]);
        frames.channel.idle(TIMEOUT).unwrap();
        assert!(frames.right(9) && rig.faults() == 0);
    }
}

#[test]
fn a_chain_allocates_nothing_when_it_is_launched() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 4096);
    let mut chain = frames.chain(None, ChainOptions::default());
    let (allocations, _) = cost(false, || {
        for _ in 0..40 {
            let ticket = chain.launch(&mut frames.channel).unwrap();
            frames.channel.wait(ticket, TIMEOUT).unwrap();
        }
    });
    assert_eq!(allocations, 0);
}

#[test]
fn launches_and_copies_of_other_channels_wait_for_each_other() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 8);
    let mut chain = frames.chain(None, ChainOptions::default());
    // Another client in the same address space, as sessions have it for copies.
    let uuid = rig.watched.gpus()[0];
    let space = rig.watched.address_space(Arc::new(rig.driver), uuid, Entry::OwnClient).unwrap();
    assert!(space.shares_addresses(frames.channel.space()));
    let mut copies = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let memory = space.alloc_host(0x1000).unwrap();
    let part = |at| memory.region().part(at, 8).unwrap();
    let mut copy = gpu::Prepared::copy(&mut copies, &part(64), &part(0), 8, gpu::CopyMode::Plain).unwrap();
    let word = |at: u64| memory.word(at).load(Ordering::Acquire);
    // A launch after a copy that itself waits.
    memory.word(0).store(5, Ordering::Release);
    copies.wait_for_word((&memory.region(), 128), 1).unwrap();
    let copied = copy.submit(&mut copies).unwrap();
    let launched = chain.launch_behind(&mut frames.channel, &copies.observer(), copied).unwrap();
    let next = chain.launch(&mut frames.channel).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    assert!(!copies.done(copied) && !frames.channel.done(launched) && !frames.channel.done(next));
    memory.word(128).store(1, Ordering::Release);
    frames.channel.wait(launched, TIMEOUT).unwrap();
    assert!(copies.done(copied) && word(64) == 5);
    frames.channel.wait(next, TIMEOUT).unwrap();
    // A copy after a launch that itself waits, and whose kernel takes long.
    rig.turns(Operation::Copy, 2000);
    let gate = frames.host.region().part(2 * MOST, 4).unwrap();
    frames.channel.wait_for_word((&gate, 0), 1).unwrap();
    let slow = chain.launch(&mut frames.channel).unwrap();
    let rung = copies.entries_written();
    copies.wait_for_other(&frames.channel.observer(), slow).unwrap();
    assert_eq!(copies.entries_written(), rung + 1);
    let copied = copy.submit(&mut copies).unwrap();
    frames.host.word(2 * MOST).store(1, Ordering::Release);
    copies.wait(copied, TIMEOUT).unwrap();
    assert!(frames.channel.done(slow), "the copy went past the launch");
    // A wait for a done ticket adds no entry, and a ticket that was never submitted is refused.
    copies.wait_for_other(&frames.channel.observer(), slow).unwrap();
    assert_eq!(copies.entries_written(), rung + 2);
    let other = Channel::new(&space, Engine::Copy(3), ChannelOptions::default()).unwrap();
    let refused = frames.channel.wait_for_other(&other.observer(), copied);
    assert!(matches!(refused, Err(Error::NotSubmitted(_))), "{refused:?}");
    let alone = gpu::AddressSpace::new(&gpu::Device::open(Arc::new(rig.driver), 0).unwrap()).unwrap();
    let mut alone = Channel::new(&alone, Engine::Copy(2), ChannelOptions::default()).unwrap();
    assert!(!alone.space().shares_addresses(&space));
    copies.wait_for_word((&memory.region(), 128), 2).unwrap();
    let later = copy.submit(&mut copies).unwrap();
    assert!(matches!(alone.wait_for_other(&copies.observer(), later), Err(Error::OtherSpace { .. })));
    memory.word(128).store(2, Ordering::Release);
    copies.wait(later, TIMEOUT).unwrap();
    // A wait for a channel that was killed or dropped with work pending is refused.
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 1, xid: 31 }));
    let never = copy.submit(&mut copies).unwrap();
    assert!(matches!(copies.wait(never, TIMEOUT), Err(Error::ChannelKilled(31))));
    rig.driver.machine.plant(None);
    let gone = copies.observer();
    assert!(matches!(frames.channel.wait_for_other(&gone, never), Err(Error::ChannelKilled(31))));
    drop((copy, copies));
    assert!(matches!(frames.channel.wait_for_other(&gone, never), Err(Error::ChannelStopped)));
    assert!(matches!(frames.channel.wait_for_other(&gone, later), Ok(())));
    let ticket = chain.launch(&mut frames.channel).unwrap();
    frames.channel.wait(ticket, TIMEOUT).unwrap();
}
