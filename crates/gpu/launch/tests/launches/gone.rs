//! Memory, contexts and channels that end while launches are pending.

use crate::rig::{DATA, LOG, Rig, TIMEOUT, gate, opens_soon};
use crate::{learn, try_learn};
use cuda_graph::words::{Graph, Step};
use doorbell_softgpu::standin::{self, Operation};
use doorbell_softgpu::{Planted, StandIn};
use gpu::Error;
use launch::Set;
use rm::abi::uvm;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

#[test]
fn memory_that_cuda_frees_waits_for_launches_that_may_touch_it() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let memory = rig.cuda.alloc_host(0x1000).unwrap();
    let mut graph = rig.logging(Graph::chain(2));
    for kernel in graph.kernels.iter_mut().skip(1) {
        kernel.code = Some(rig.code(Operation::Store));
        kernel.parameters = standin::pointer_and_word(memory.va(), 5);
    }
    let mut ours = learn(&rig, &mut channel, &graph);
    let gate = gate(&mut channel);
    let ticket = ours.launch(&mut channel).unwrap();
    let opens = opens_soon(gate);
    // The memory is not pinned: only a kernel's parameters name it.
    drop(memory);
    assert!(channel.done(ticket), "the memory went under a launch");
    opens.join().unwrap();
    assert_eq!((rig.faults(), channel.error()), (0, None));
}

/// CUDA's functions that free wait for launches first, and then make driver calls with locks that other threads need.
#[test]
fn a_driver_call_of_a_free_that_has_waited_for_launches_does_not_wait_for_later_ones() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = learn(&rig, &mut channel, &rig.logging(Graph::chain(2)));
    let [first, second] = [0, 1].map(|_| rig.cuda.alloc_host(0x1000).unwrap());
    let start = Instant::now();
    let (gate, ticket) = rig.watched.after_launches(|| {
        let gate = gate(&mut channel);
        let ticket = ours.launch(&mut channel).unwrap();
        drop(first);
        (gate, ticket)
    });
    assert!(!channel.done(ticket) && start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
    // Any other free waits.
    let opens = opens_soon(gate);
    drop(second);
    assert!(channel.done(ticket), "the memory went under a launch");
    opens.join().unwrap();
    assert_eq!((rig.faults(), channel.error()), (0, None));
}

#[test]
fn a_graph_whose_code_cuda_has_unmapped_is_not_launched_any_more() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let code = rig.cuda.alloc_video(0x1000).unwrap();
    code.write(0, &StandIn::new(Operation::Log).code());
    let mut graph = rig.logging(Graph::chain(3));
    graph.kernels[2].code = Some(code.va());
    let mut ours = learn(&rig, &mut channel, &graph);
    drop(rig.cuda.alloc_video(0x1000).unwrap());
    let gate = gate(&mut channel);
    let ticket = ours.launch(&mut channel).unwrap();
    let opens = opens_soon(gate);
    drop(code);
    assert!(channel.done(ticket), "the code went under a launch");
    opens.join().unwrap();
    let before = rig.kernels();
    assert!(matches!(ours.launch(&mut channel), Err(Error::Stale)));
    let set = ours.launch_with(&mut channel, &[Set { node: 1, offset: 8, bytes: &[7] }]);
    assert!(matches!(set, Err(launch::Error::Gpu(Error::Stale))));
    channel.idle(TIMEOUT).unwrap();
    assert_eq!((rig.kernels(), rig.faults(), channel.error()), (before, 0, None));
}

/// cudaGraphExecUpdate overwrites the parameters of the executable graph; after cudaGraphExecDestroy its memory is reused.
#[test]
fn an_executable_graph_that_is_updated_or_destroyed_changes_nothing_of_its_copy() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(4));
    let mut ours = learn(&rig, &mut channel, &graph);
    let mut launches = |ours: &mut launch::Graph| {
        rig.clear_log();
        let ticket = ours.launch(&mut channel).unwrap();
        channel.wait(ticket, TIMEOUT).unwrap();
        rig.log()
    };
    assert_eq!(launches(&mut ours), [1, 2, 3, 4]);
    // At the same places, and in the other order.
    let mut updated = rig.logging(Graph::chain(4));
    for (i, kernel) in updated.kernels.iter_mut().enumerate().filter(|(_, kernel)| !kernel.is_empty()) {
        kernel.parameters = standin::pointer_and_word(rig.host.va() + LOG, 10 + i as u32);
    }
    rig.clear_log();
    rig.launch(&updated, 0);
    rig.settle();
    assert_eq!(rig.log(), [11, 12, 13, 14], "CUDA's own launches are those of the updated graph");
    assert_eq!(launches(&mut ours), [1, 2, 3, 4]);
    // Destroyed: other bytes where its QMDs, banks and counters were. (The code is stored after them and stays.)
    rig.video.write(0, &vec![0xa5; 0x8_0000]);
    rig.host.write(0, &vec![0xa5; LOG as usize]);
    assert_eq!(launches(&mut ours), [1, 2, 3, 4]);
    assert_eq!((rig.faults(), channel.error()), (0, None));
}

#[test]
fn a_context_that_is_destroyed_ends_launches_with_an_error() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = learn(&rig, &mut channel, &rig.logging(Graph::chain(2)));
    ours.launch(&mut channel).unwrap();
    let uvm = rig.watched.graph().uvm_fd().unwrap();
    let mut call = uvm::UnregisterGpu { uuid: rig.watched.gpus()[0], status: 0 };
    // SAFETY: the request's struct; the call is only reported, not made.
    unsafe { rig.watched.ioctl(uvm, uvm::UNREGISTER_GPU_VASPACE, (&raw mut call).cast(), || 0) };
    assert!(matches!(ours.launch(&mut channel), Err(Error::NoContext)));
    channel.idle(TIMEOUT).unwrap();
}

#[test]
fn a_graph_whose_copy_names_memory_that_is_gone_is_not_launched_any_more() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let memory = rig.cuda.alloc_host(0x1000).unwrap();
    let mut graph = rig.logging(Graph::chain(1));
    graph.launch.push(Step::Memcpy { from: rig.host.va() + DATA, to: memory.va(), bytes: 64 });
    let mut ours = learn(&rig, &mut channel, &graph);
    let other = rig.cuda.alloc_host(0x1000).unwrap();
    drop(other);
    ours.launch(&mut channel).unwrap();
    drop(memory);
    let before = rig.kernels();
    for _ in 0..3 {
        assert!(matches!(ours.launch(&mut channel), Err(Error::Stale)));
    }
    channel.idle(TIMEOUT).unwrap();
    assert_eq!((rig.kernels(), rig.faults()), (before, 0), "nothing of it was submitted");
}

#[test]
fn memory_that_no_pin_can_hold_is_refused_with_the_node() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let memory = rig.cuda.alloc_host(0x1000).unwrap();
    let mut graph = rig.logging(Graph::chain(1));
    graph.launch.push(Step::Memcpy { from: memory.va(), to: memory.va() + 0x800, bytes: 64 });
    let (mut number, mut memory) = (0, Some(memory));
    // Freed with the last of the launches that are learnt.
    let mut launch = || {
        rig.launch(&graph, number);
        number += 1;
        if number == 3 {
            memory = None;
        }
        Ok::<(), String>(())
    };
    // SAFETY: stand-in kernels in memory of the rig.
    let error = unsafe { launch::Graph::learn(rig.watched, &mut channel, &mut launch) }.unwrap_err();
    assert!(matches!(error, launch::Error::NotPinned { what: "memcpy", .. }), "{error}");
    assert!(memory.is_none());
}

#[test]
fn a_killed_channel_is_an_error_and_no_wait() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(2));
    let mut ours = learn(&rig, &mut channel, &graph);
    rig.driver.machine.plant(Some(Planted::DeadChannel { entry: 1, xid: 31 }));
    let ticket = ours.launch(&mut channel).unwrap();
    assert!(matches!(channel.wait(ticket, TIMEOUT), Err(Error::ChannelKilled(31))));
    rig.driver.machine.plant(None);
    assert!(matches!(ours.launch(&mut channel), Err(Error::ChannelKilled(31))));
    let again = try_learn(&rig, &mut channel, &graph).unwrap_err();
    assert!(matches!(again, launch::Error::Gpu(Error::ChannelKilled(31))), "{again}");
    // Another channel still works, with the same CUDA graph.
    let mut other = rig.channel();
    let mut second = learn(&rig, &mut other, &graph);
    rig.clear_log();
    let ticket = second.launch(&mut other).unwrap();
    other.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(rig.log(), [1, 2]);
}

#[test]
fn a_forks_child_gets_errors_and_frees_nothing_of_its_parents() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(2));
    let mut ours = learn(&rig, &mut channel, &graph);
    let ticket = ours.launch(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    // SAFETY: the child only makes calls that take no lock, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let plain = matches!(ours.launch(&mut channel), Err(Error::Forked));
        let _ = ours.set_parameter(1, 8, &[9]);
        let changed = matches!(ours.launch(&mut channel), Err(Error::Forked));
        let wait = matches!(channel.wait(ticket, TIMEOUT), Err(Error::Forked));
        let done = !channel.done(ticket);
        drop((ours, channel));
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(i32::from(!(plain && changed && wait && done))) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child's calls were errors");
    rig.clear_log();
    let ticket = ours.launch(&mut channel).unwrap();
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!(rig.log(), [1, 2]);
}

/// CUDA frees in a child (a program's own clean-up) while its parent's launch is pending.
#[test]
fn a_forks_child_waits_for_no_launch_of_its_parents() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let mut ours = learn(&rig, &mut channel, &rig.logging(Graph::chain(2)));
    let memory = rig.cuda.alloc_host(0x1000).unwrap();
    let gate = gate(&mut channel);
    let ticket = ours.launch(&mut channel).unwrap();
    let uvm = rig.watched.graph().uvm_fd().unwrap();
    let free = || {
        let mut call = uvm::Range { base: memory.va(), length: memory.length(), status: 0, ..Default::default() };
        let start = Instant::now();
        // SAFETY: the request's struct; the call is only reported, not made.
        unsafe { rig.watched.ioctl(uvm, uvm::FREE, (&raw mut call).cast(), || 0) };
        start.elapsed() < Duration::from_secs(2)
    };
    // SAFETY: the child makes calls that wait for no other thread, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let at_once = free();
        // SAFETY: ends the child immediately.
        unsafe { libc::_exit(i32::from(!at_once)) };
    }
    let mut status = 0;
    // SAFETY: waits for the child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0, "the child waited");
    gate.set(1);
    channel.wait(ticket, TIMEOUT).unwrap();
}

#[test]
fn a_graph_that_is_dropped_while_it_runs_is_finished_first() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(2));
    for round in 0..4 {
        let mut ours = learn(&rig, &mut channel, &graph);
        rig.turns(Operation::Log, 10);
        rig.clear_log();
        for _ in 0..4 {
            ours.launch(&mut channel).unwrap();
        }
        drop(ours);
        // Its memory is allocated again immediately.
        let other = channel.space().alloc_video(0x1_0000).unwrap();
        other.write(0, &[0xff; 0x1_0000]);
        channel.idle(TIMEOUT).unwrap();
        rig.turns(Operation::Log, 0);
        assert_eq!((rig.log(), rig.faults()), ([1, 2].repeat(4), 0), "round {round}");
    }
}

#[test]
fn a_graph_with_pinned_memory_is_dropped_under_a_launch_and_stops_nothing() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let data = rig.host.va() + DATA;
    let mut graph = rig.logging(Graph::chain(1));
    graph.launch.push(Step::Memcpy { from: data, to: data + 64, bytes: 64 });
    let mut ours = learn(&rig, &mut channel, &graph);
    let gate = gate(&mut channel);
    rig.set_data(0, 7);
    let ticket = ours.launch(&mut channel).unwrap();
    // (A pin that is dropped by itself waits for a second and then stops the channel.)
    drop(ours);
    std::thread::sleep(Duration::from_millis(20));
    gate.set(1);
    channel.wait(ticket, TIMEOUT).unwrap();
    assert_eq!((rig.data(16), rig.faults()), (7, 0));
}

#[test]
fn a_channel_that_is_dropped_under_a_launch_ends_it() {
    let rig = Rig::new();
    let graph = rig.logging(Graph::chain(2));
    let mut channel = rig.channel();
    let mut ours = learn(&rig, &mut channel, &graph);
    rig.turns(Operation::Log, 20);
    ours.launch(&mut channel).unwrap();
    drop(channel);
    drop(ours);
    assert_eq!(rig.faults(), 0);
    let mut next = rig.channel();
    let mut ours = learn(&rig, &mut next, &graph);
    let ticket = ours.launch(&mut next).unwrap();
    next.wait(ticket, TIMEOUT).unwrap();
}

#[test]
fn transfers_and_launches_do_not_share_a_channel() {
    let rig = Rig::new();
    let mut channel = rig.channel();
    let graph = rig.logging(Graph::chain(1));
    let mut ours = learn(&rig, &mut channel, &graph);
    let memory = channel.space().alloc_host(0x1000).unwrap();
    let refused = gpu::Prepared::inline(&mut channel, &memory.region(), 8, gpu::InlineMode::Headers).unwrap_err();
    assert!(matches!(refused, Error::OtherUse { has: "launches" }), "{refused}");
    let mut other = launch::channel(channel.space()).unwrap();
    gpu::Prepared::inline(&mut other, &memory.region(), 8, gpu::InlineMode::Headers).unwrap();
    let refused = try_learn(&rig, &mut other, &graph).unwrap_err();
    assert!(matches!(refused, launch::Error::Gpu(Error::OtherUse { has: "transfers" })), "{refused}");
    assert_eq!(rig.log().len(), 3, "refused before CUDA was asked to launch it");
    // A pushbuffer between launches: its number follows the numbers that the launches add.
    rig.turns(Operation::Log, 10);
    let done = gpu::Semaphores::new(channel.space()).unwrap().alloc().unwrap();
    for n in 1..20 {
        ours.launch(&mut channel).unwrap();
        let mut words = gpu::Pushbuffer::new(channel.space(), 64).unwrap();
        words.host_release(&done, n).unwrap();
        let words = words.validate(&channel).unwrap();
        let ticket = channel.submit(&words).unwrap();
        if n.is_multiple_of(10) {
            channel.wait(ticket, TIMEOUT).unwrap();
        }
    }
    channel.idle(TIMEOUT).unwrap();
    done.wait(19, Duration::from_secs(1)).unwrap();
    assert_eq!(rig.host.word(crate::rig::LOG).load(Ordering::Acquire), 3 + 19);
}
