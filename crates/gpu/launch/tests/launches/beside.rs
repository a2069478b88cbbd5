//! Chains whose copies have a separate channel.

use crate::chain::{Frames, MOST};
use crate::rig::{Rig, TIMEOUT, gate};
use doorbell_softgpu::Planted;
use doorbell_softgpu::standin::Operation;
use gpu::{Channel, ChannelOptions, Engine, Entry, Error};
use launch::{ChainBeside, ChainOptions, Way};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use test_support::counting::cost;

struct Beside {
    copies: Channel,
    chain: ChainBeside,
    frames: Frames,
}

fn beside(rig: &Rig, bytes: u64, by: Option<Way>) -> Beside {
    let mut frames = Frames::new(rig, bytes);
    let mut copies = Channel::new(frames.channel.space(), Engine::Copy(2), ChannelOptions::default()).unwrap();
    let channel = &mut frames.channel as *mut Channel;
    // SAFETY: the steps name no channel; stand-in kernels in memory of the frames.
    let chain = unsafe { ChainBeside::prepare(&mut *channel, &mut copies, &frames.steps(by), ChainOptions::default()) };
    Beside { copies, chain: chain.unwrap(), frames }
}

#[test]
fn results_are_right_and_the_channels_ring_once_each() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 5);
    for bytes in [8, 4096, MOST] {
        for by in [None, Some(Way::CopyEngine), Some(Way::Inline)] {
            let Beside { mut copies, mut chain, mut frames } = beside(&rig, bytes, by);
            for round in 0..3 {
                frames.fill(round);
                let before = (frames.channel.entries_written(), copies.entries_written());
                let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
                copies.wait(ticket, TIMEOUT).unwrap();
                assert!(frames.right(round), "{bytes} bytes {by:?}, round {round}");
                let written = (frames.channel.entries_written() - before.0, copies.entries_written() - before.1);
                assert_eq!(written, (1, 1));
            }
        }
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn many_are_queued_between_launches_of_graphs_that_wait_for_them() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 3);
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 8, Some(Way::CopyEngine));
    let kernel = chain.nodes()[0].number;
    let space = frames.channel.space().clone();
    let results = space.alloc_host(0x4000).unwrap();
    frames.host.word64(0).store(77, Ordering::Relaxed);
    // Input of a launch after the chain: the graph's own kernel copies the result that the chain has copied back.
    frames.graph.set_parameter(kernel, 8, &(frames.host.va() + MOST).to_le_bytes()).unwrap();
    // No launch runs until the first one is refused: however fast the GPU is, there are more launches than slots.
    let gate = gate(&mut frames.channel);
    let (mut launched, mut refused) = (0, 0);
    let mut wait = || {
        gate.set(1);
        refused += 1;
        std::thread::yield_now();
    };
    while launched < 100 {
        match chain.launch(&mut frames.channel, &mut copies) {
            Ok(_) => {}
            Err(Error::RingFull(_)) => {
                wait();
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        frames.graph.set_parameter(kernel, 0, &(results.va() + 8 * launched).to_le_bytes()).unwrap();
        while matches!(frames.graph.launch(&mut frames.channel), Err(Error::RingFull(_))) {
            wait();
        }
        launched += 1;
    }
    frames.channel.idle(TIMEOUT).unwrap();
    copies.idle(TIMEOUT).unwrap();
    assert!(refused > 0, "more were asked for than there are slots");
    assert!((0..100).all(|n| results.word64(8 * n).load(Ordering::Acquire) == 77));
    assert_eq!(rig.faults(), 0);
}

#[test]
fn new_parameters_go_along_and_nothing_is_allocated() {
    let rig = Rig::new();
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 64, None);
    let kernel = chain.nodes()[0].number;
    let (allocations, _) = cost(false, || {
        for n in 0..20u32 {
            let bytes = if n.is_multiple_of(2) { 64 } else { 8u32 };
            chain.set_parameter(kernel, 16, &bytes.to_le_bytes()).unwrap();
            let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
            copies.wait(ticket, TIMEOUT).unwrap();
        }
    });
    assert_eq!((allocations, rig.faults()), (0, 0));
}

#[test]
fn what_is_wrong_launches_neither_half() {
    let rig = Rig::new();
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 8, None);
    let mut other = Channel::new(frames.channel.space(), Engine::Copy(3), ChannelOptions::default()).unwrap();
    let entries = frames.channel.entries_written();
    assert!(matches!(chain.launch(&mut frames.channel, &mut other), Err(Error::OtherChannel)));
    let mut launches = launch::channel(frames.channel.space()).unwrap();
    assert!(matches!(chain.launch(&mut launches, &mut copies), Err(Error::OtherChannel)));
    assert_eq!(frames.channel.entries_written(), entries);
    // The number that was given back is used next.
    frames.fill(4);
    let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
    copies.wait(ticket, TIMEOUT).unwrap();
    assert!(frames.right(4));
    let channel = &mut frames.channel as *mut Channel;
    let steps = frames.steps(None);
    // SAFETY: as above.
    let prepare = |copies: &mut Channel| unsafe {
        ChainBeside::prepare(&mut *channel, copies, &steps, ChainOptions::default())
            .map(drop)
            .map_err(|e| e.to_string())
    };
    let why = prepare(&mut launches).unwrap_err();
    assert!(why.contains("channel of a copy engine"), "{why}");
    let uuid = rig.watched.gpus()[0];
    let space = rig.watched.address_space(Arc::new(rig.driver), uuid, Entry::OwnClient).unwrap();
    let mut elsewhere = Channel::new(&space, Engine::Copy(2), ChannelOptions::default()).unwrap();
    let why = prepare(&mut elsewhere).unwrap_err();
    assert!(why.contains("another address space"), "{why}");
    // A dead channel also ends the chain: an error, and no wait.
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 1, xid: 31 }));
    let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
    assert!(matches!(copies.wait(ticket, TIMEOUT), Err(Error::ChannelKilled(31))));
    assert!(matches!(frames.channel.idle(TIMEOUT), Err(Error::ChannelKilled(31))));
    rig.driver.machine.plant(None);
    assert!(matches!(chain.launch(&mut frames.channel, &mut copies), Err(Error::ChannelKilled(31))));
    // (Memory waits a second for a channel that has not ended.)
    drop((copies, chain));
}

#[test]
fn the_channel_of_copies_goes_when_all_is_over_and_not_just_its_ticket() {
    let rig = Rig::new();
    for round in 0..3 {
        let Beside { mut copies, mut chain, mut frames } = beside(&rig, 8, None);
        frames.fill(round);
        let ticket = chain.launch(&mut frames.channel, &mut copies).unwrap();
        copies.wait(ticket, TIMEOUT).unwrap();
        frames.channel.idle(TIMEOUT).unwrap();
        // The launch channel sees the end after the ticket. So the copy channel consumes one more entry before it ends.
        let before = rig.entries();
        drop(copies);
        assert!(frames.right(round) && rig.entries() == before + 1, "round {round}");
    }
    assert_eq!(rig.faults(), 0);
}

#[test]
fn a_chain_that_is_dropped_while_it_runs_is_finished_first() {
    let rig = Rig::new();
    rig.turns(Operation::Copy, 300);
    let Beside { mut copies, mut chain, mut frames } = beside(&rig, 64, Some(Way::CopyEngine));
    frames.fill(9);
    let mut last = None;
    for _ in 0..4 {
        last = Some(chain.launch(&mut frames.channel, &mut copies).unwrap());
    }
    drop(chain);
    let other = frames.channel.space().alloc_video(0x1_0000).unwrap();
    other.write(0, &[0xff; 0x1_0000]);
    copies.wait(last.unwrap(), TIMEOUT).unwrap();
    assert!(frames.right(9) && rig.faults() == 0);
}
