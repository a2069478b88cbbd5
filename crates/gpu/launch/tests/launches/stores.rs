//! Chains whose first bytes the CPU stores into GPU memory before the launch.

use crate::chain::{Frames, MOST};
use crate::rig::{Rig, TIMEOUT, gate};
use crate::try_learn;
use cuda_graph::words::{Graph, Kernel};
use doorbell_softgpu::standin::{self, Operation};
use gpu::{Channel, ChannelOptions, Engine, Error, Memory};
use launch::{Chain, ChainBeside, ChainOptions, Step, Stored, Transfer, Way};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use test_support::counting::cost;

const STORES: Option<Way> = Some(Way::Stores);

fn stored(memory: &Arc<Memory>) -> ChainOptions {
    ChainOptions { stored: vec![Stored::Memory(memory.clone())], ..ChainOptions::default() }
}

struct Beside {
    copies: Channel,
    chain: ChainBeside,
    frames: Frames,
}

fn beside(rig: &Rig, bytes: u64) -> Beside {
    let mut frames = Frames::new(rig, bytes);
    let mut copies = Channel::new(frames.channel.space(), Engine::Copy(2), ChannelOptions::default()).unwrap();
    let channel = &mut frames.channel as *mut Channel;
    // SAFETY: the steps name no channel; stand-in kernels in memory of the frames.
    let chain = unsafe {
        ChainBeside::prepare(&mut *channel, &mut copies, &frames.steps(STORES), stored(&frames.video)).unwrap()
    };
    Beside { copies, chain, frames }
}

fn one(frames: &mut Frames) -> Chain {
    let channel = &mut frames.channel as *mut Channel;
    // SAFETY: as above.
    unsafe { Chain::prepare(&mut *channel, &frames.steps(STORES), stored(&frames.video)) }.unwrap()
}

#[test]
fn new_bytes_each_time_come_back_right_on_one_channel_and_on_two() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 5);
    for bytes in [1, 8, 100, 4095, 4096, MOST] {
        let Beside { mut copies, mut chain, mut frames } = beside(&rig, bytes);
        assert_eq!(chain.ways(), [STORES, None, Some(Way::CopyEngine)]);
        let mut single = one(&mut frames);
        assert_eq!(single.ways(), chain.ways());
        for seed in 0..40 {
            frames.fill(seed);
            let (allocations, _) = cost(false, || {
                if seed % 4 == 3 {
                    let ticket = single.launch(&mut frames.channel).unwrap();
                    frames.channel.wait(ticket, TIMEOUT).unwrap();
                } else {
                    let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
                    copies.wait(ticket, TIMEOUT).unwrap();
                }
            });
            assert!(frames.right(seed), "{bytes} bytes, launch {seed}");
            assert_eq!(allocations, 0);
        }
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn new_parameters_go_along() {
    let rig = Rig::new();
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 64);
    let kernel = chain.nodes()[0].number;
    let other = frames.channel.space().alloc_host(0x1000).unwrap();
    for round in 0..32u64 {
        let to = other.va() + 64 * (round % 16);
        frames.host.word64(0).store(1000 + round, Ordering::Relaxed);
        let (allocations, _) = cost(false, || {
            chain.set_parameter(kernel, 0, &to.to_le_bytes()).unwrap();
            let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
            copies.wait(ticket, TIMEOUT).unwrap();
        });
        assert_eq!((other.word64(64 * (round % 16)).load(Ordering::Acquire), allocations), (1000 + round, 0));
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn while_the_last_launch_is_not_over_nothing_is_stored_or_launched() {
    let rig = Rig::new();
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 64);
    let mut single = one(&mut frames);
    let mut there = [0; 64];
    for round in 0..3u8 {
        let gate = gate(&mut frames.channel);
        frames.fill(2 * round);
        frames.host.read(0, &mut there);
        let alone = round == 1;
        let ticket = match alone {
            true => single.launch(&mut frames.channel),
            false => chain.launch(&mut frames.channel, &mut copies),
        };
        let (ticket, sent) = (ticket.unwrap(), there);
        frames.host.write(0, &[0xee; 64]);
        let entries = (frames.channel.entries_written(), copies.entries_written());
        for _ in 0..3 {
            let refused = match alone {
                true => single.launch(&mut frames.channel).map(drop),
                false => {
                    assert!(chain.ready(&mut frames.channel, &mut copies).is_err());
                    chain.launch(&mut frames.channel, &mut copies).map(drop)
                }
            };
            assert!(matches!(refused, Err(Error::RingFull(1))), "{refused:?}");
            // With new parameters, too.
            let kernel = chain.nodes()[0].number;
            let bytes = 64u32.to_le_bytes();
            chain.set_parameter(kernel, 16, &bytes).unwrap();
        }
        assert_eq!((frames.channel.entries_written(), copies.entries_written()), entries);
        frames.video.read(0, &mut there);
        assert_eq!(there, sent, "stored over bytes that an unfinished launch reads");
        gate.set(1);
        if alone { frames.channel.wait(ticket, TIMEOUT) } else { copies.wait(ticket, TIMEOUT) }.unwrap();
        assert!(frames.right(2 * round));
        if !alone {
            // The end of the copies is the chain's end: the next launch is not refused, even if the other channel
            // lags.
            frames.fill(2 * round + 1);
            let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
            copies.wait(ticket, TIMEOUT).unwrap();
            assert!(frames.right(2 * round + 1));
        }
        frames.channel.idle(TIMEOUT).unwrap();
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn several_steps_may_be_stored_and_what_cannot_be_is_refused() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 64);
    let (host, video) = (frames.host.region(), frames.video.region());
    let copy = |to: &gpu::Region, from: &gpu::Region, bytes, by| {
        Step::Copy(Transfer { to: to.clone(), from: from.clone(), bytes, by })
    };
    let half = |region: &gpu::Region| region.part(32, 32).unwrap();
    let back = || copy(&host.part(MOST, MOST).unwrap(), &video.part(MOST, MOST).unwrap(), 64, None);
    let graph = Step::Launch(&frames.graph);
    let steps = [copy(&video, &host, 32, STORES), copy(&half(&video), &half(&host), 32, STORES), graph.clone(), back()];
    // SAFETY: a stand-in kernel in memory of the test, and host memory.
    let mut chain = unsafe { Chain::prepare(&mut frames.channel, &steps, stored(&frames.video)) }.unwrap();
    frames.fill(7);
    let ticket = chain.launch(&mut frames.channel).unwrap();
    frames.channel.wait(ticket, TIMEOUT).unwrap();
    assert!(frames.right(7));
    let big = frames.channel.space().alloc_host(MOST + 8).unwrap();
    let of_cuda = frames.channel.space().pin(rig.host.va(), 64).unwrap();
    let entries = frames.channel.entries_written();
    let host_pin = Arc::new(frames.channel.space().pin(rig.host.va(), 64).unwrap());
    let all = || ChainOptions {
        stored: vec![Stored::Memory(frames.video.clone()), Stored::Pin(host_pin.clone())],
        ..ChainOptions::default()
    };
    let refused: Vec<(&str, ChainOptions, Vec<Step<'_>>)> = vec![
        ("step 1", all(), vec![graph.clone(), copy(&video, &host, 8, STORES)]),
        ("before all others", all(), vec![copy(&video, &host, 8, None), copy(&video, &host, 8, STORES)]),
        ("the CPU reads what it stores", all(), vec![copy(&video, &video, 8, STORES), graph.clone()]),
        ("into the GPU's memory", all(), vec![copy(&host, &host, 8, STORES), graph.clone()]),
        ("into the GPU's memory", all(), vec![copy(of_cuda.region(), &host, 8, STORES), graph.clone()]),
        ("64 KiB are stored at most", all(), vec![copy(&video, &big.region(), MOST + 4, STORES), graph.clone()]),
        ("ChainOptions::stored", ChainOptions::default(), vec![copy(&video, &host, 8, STORES), graph.clone()]),
        ("do not lie within", all(), vec![copy(&video, &host.part(0, 4).unwrap(), 8, STORES), graph.clone()]),
        ("no length for memory", all(), vec![copy(&video, &host, 0, STORES), graph.clone()]),
        ("a step behind them", all(), vec![copy(&video, &host, 8, STORES)]),
    ];
    for (why, options, steps) in refused {
        // SAFETY: as above.
        let error = unsafe { Chain::prepare(&mut frames.channel, &steps, options) }.unwrap_err();
        assert!(error.to_string().contains(why), "{why}: {error}");
    }
    assert_eq!((frames.channel.entries_written(), rig.faults()), (entries, 0));
}

/// Bytes into CUDA's memory, a kernel that copies them, and CUDA frees one of the two.
#[test]
fn memory_of_cudas_that_is_freed_ends_the_chain() {
    let rig = Rig::new();
    for source in [false, true] {
        let mut channel = rig.channel();
        let mut copies = Channel::new(channel.space(), Engine::Copy(2), ChannelOptions::default()).unwrap();
        let (from, to) = (rig.cuda.alloc_host(0x1000).unwrap(), rig.cuda.alloc_video(0x2000).unwrap());
        let back = channel.space().alloc_host(0x1000).unwrap();
        let mut graph = rig.logging(Graph::chain(1));
        graph.kernels[0] = Kernel {
            code: Some(rig.code(Operation::Copy)),
            parameters: standin::copy(back.va(), to.va(), 64),
            releases: Some(0),
            ..Kernel::default()
        };
        let graph = try_learn(&rig, &mut channel, &graph).unwrap();
        let pin = |memory: &Memory| channel.space().pin(memory.va(), 64).unwrap();
        let (source_pin, pin) = (pin(&from), Arc::new(pin(&to)));
        let transfer = |to: &gpu::Region, from: &gpu::Region, by| {
            Step::Copy(Transfer { to: to.clone(), from: from.clone(), bytes: 64, by })
        };
        let steps = [
            transfer(pin.region(), source_pin.region(), STORES),
            Step::Launch(&graph),
            transfer(&back.region().part(64, 64).unwrap(), &back.region(), None),
        ];
        let options = ChainOptions { stored: vec![Stored::Pin(pin.clone())], ..ChainOptions::default() };
        // SAFETY: a stand-in kernel in memory of the test, and host memory.
        let mut chain = unsafe { ChainBeside::prepare(&mut channel, &mut copies, &steps, options) }.unwrap();
        drop(graph);
        from.write(0, &[3; 64]);
        let ticket = chain.launch(&mut channel, &mut copies).unwrap();
        copies.wait(ticket, TIMEOUT).unwrap();
        assert_eq!(back.word(64).load(Ordering::Acquire), 0x0303_0303);
        // The free waits for the pending launch.
        rig.turns(Operation::Copy, 500);
        let ticket = chain.launch(&mut channel, &mut copies).unwrap();
        let (gone, stays) = if source { (from, to) } else { (to, from) };
        drop(gone);
        assert!(copies.done(ticket), "the memory went under a chain");
        for _ in 0..2 {
            assert!(matches!(chain.launch(&mut channel, &mut copies), Err(Error::Stale)));
        }
        drop((chain, stays));
        channel.idle(TIMEOUT).unwrap();
        assert_eq!((rig.faults(), channel.error(), copies.error()), (0, None, None));
        rig.turns(Operation::Copy, 0);
    }
}

#[test]
fn a_chain_that_is_dropped_while_it_runs_is_finished_and_stops_no_channel() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 300);
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 64);
    frames.fill(9);
    let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
    drop(chain);
    copies.wait(ticket, TIMEOUT).unwrap();
    assert!(frames.right(9) && rig.faults() == 0);
    let mut again = one(&mut frames);
    frames.fill(10);
    let ticket = again.launch(&mut frames.channel).unwrap();
    frames.channel.wait(ticket, TIMEOUT).unwrap();
    assert!(frames.right(10));
}

#[test]
fn a_chain_into_pinned_memory_that_is_dropped_while_it_runs_waits_for_nothing() {
    let rig = Rig::new();
    let mut frames = Frames::new(&rig, 64);
    let to = rig.cuda.alloc_video(0x1000).unwrap();
    let pin = Arc::new(frames.channel.space().pin(to.va(), 64).unwrap());
    let transfer = Transfer { to: pin.region().clone(), from: frames.host.region(), bytes: 64, by: STORES };
    let steps = [Step::Copy(transfer), Step::Launch(&frames.graph)];
    let options = ChainOptions { stored: vec![Stored::Pin(pin)], ..ChainOptions::default() };
    // SAFETY: a stand-in kernel in memory of the frames, and host memory.
    let mut chain = unsafe { Chain::prepare(&mut frames.channel, &steps, options) }.unwrap();
    let gate = gate(&mut frames.channel);
    let ticket = chain.launch(&mut frames.channel).unwrap();
    drop(steps);
    let start = Instant::now();
    drop(chain);
    assert!(start.elapsed() < Duration::from_millis(500), "the drop waited for the launch");
    gate.set(1);
    frames.channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!((frames.channel.error(), rig.faults()), (None, 0));
}
