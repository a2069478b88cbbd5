//! What the compute scheduler refuses, and that a submitter's own checks find each planted fault of launches.

use crate::launch_rig::{Launcher, graphics, without_waits};
use crate::rig::*;
use cuda_graph::words::{Graph, words};
use doorbell_softgpu::Planted;
use doorbell_softgpu::standin::{self, Operation};
use pushbuf::qmd::PcasAction;

const ENGINE: u32 = 13;
const MMU: u32 = 31;

fn act(graph: &Graph, kernel: usize, action: PcasAction) -> Vec<u32> {
    words(|w| w.pcas(1, graph.at.qmd(kernel), action).unwrap())
}

#[test]
fn a_launch_that_does_not_wait_for_the_last_one_kills_the_channel() {
    for n in [1, 2, 10] {
        let rig = Rig::new();
        let gpu = Launcher::new(&rig);
        let graph = gpu.logging(Graph::chain(n));
        gpu.channel.push(&graph.upload());
        gpu.channel.push(&without_waits(&graph.again(1)));
        gpu.channel.bell();
        until(|| gpu.channel.error().is_some());
        assert_eq!(gpu.channel.error(), Some(ENGINE), "{n} kernels");
        rig.copy_channel().alive();
    }
}

#[test]
fn each_action_that_an_active_qmd_cannot_take() {
    for action in [
        PcasAction::Invalidate,
        PcasAction::InvalidateCopySchedule,
        PcasAction::InvalidatePrefetchCopySchedule,
        PcasAction::InvalidatePrefetchCopyForceRequireScheduling,
        PcasAction::Schedule,
        PcasAction::DecrementDependence,
    ] {
        let rig = Rig::new();
        let gpu = Launcher::new(&rig);
        let graph = gpu.logging(Graph::chain(1));
        assert_eq!(gpu.channel.run(&[graph.upload(), act(&graph, 0, action)].concat()), Some(ENGINE), "{action:?}");
        // The kernels of a dead channel do not run, and their QMDs are free again.
        assert!(gpu.log().is_empty());
        let other = rig.compute_channel();
        other.ok(&graph.upload());
        until(|| gpu.counter(0) == 2);
        assert_eq!(gpu.log(), [0]);
    }
}

#[test]
fn a_counter_that_is_0_cannot_be_decremented() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(2));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    // Kernel 2 has no counter; the head has 2, and the last of them starts it.
    let down = |kernel| act(&graph, kernel, PcasAction::DecrementDependence);
    assert_eq!(gpu.channel.run(&down(2)), Some(ENGINE));
}

#[test]
fn a_faulting_kernel_frees_the_qmds_of_concurrent_kernels() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let good = gpu.logging(Graph::diamond());
    for bad in [1, 2] {
        let mut graph = good.clone();
        graph.kernels[bad].parameters = standin::pointer_and_word(NOWHERE, 0);
        let killed = rig.compute_channel().run(&[graph.upload(), inc(1, 0x110, &[0])].concat());
        assert_eq!(killed, Some(MMU));
        gpu.host.set(0x1000, 0);
        let channel = rig.compute_channel();
        channel.ok(&good.upload());
        until(|| gpu.counter(0) == 2 || channel.error().is_some());
        assert_eq!((channel.error(), gpu.log().len()), (None, 4), "kernel {bad}");
    }
}

/// (Unit tests have each limit with its name.)
#[test]
fn a_qmd_beyond_the_limits_of_the_hardware_kills_the_channel_that_starts_it() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    for (threads, runs) in [(1024, true), (1025, false)] {
        let mut graph = gpu.logging(Graph::chain(1));
        graph.kernels[0].block = [threads, 1, 1];
        let killed = rig.compute_channel().run(&[graph.upload(), inc(1, 0x110, &[0])].concat());
        assert_eq!(killed, (!runs).then_some(ENGINE), "{threads} threads");
    }
    assert_eq!(gpu.log(), [0]);
}

#[test]
fn actions_and_dependents_that_are_not_modelled_kill_the_channel() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(1));
    for action in [PcasAction::IncrementPut, PcasAction::IncrementCwdRefCounter, PcasAction::Reserved(4)] {
        let channel = rig.compute_channel();
        channel.ok(&graph.upload());
        gpu.done(0, 0);
        assert_eq!(channel.run(&act(&graph, 0, action)), Some(ENGINE), "{action:?}");
    }
    let mut graph = gpu.logging(Graph::chain(2));
    graph.kernels[1].then = vec![(2, 0)];
    let channel = rig.compute_channel();
    assert_eq!(channel.run(&[graph.upload(), inc(1, 0x110, &[0])].concat()), Some(ENGINE));
}

#[test]
fn a_kernel_that_accesses_unmapped_memory_is_an_mmu_fault() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    for (operation, parameters) in [
        (Operation::Add, standin::pointer_and_word(NOWHERE, 0)),
        (Operation::Store, standin::pointer_and_word(NOWHERE, 0)),
        (Operation::Log, standin::pointer_and_word(NOWHERE, 0)),
        (Operation::Copy, standin::copy(SRC, NOWHERE, 4)),
    ] {
        let mut graph = gpu.logging(Graph::chain(1));
        graph.kernels[0].code = Some(Launcher::code(operation));
        graph.kernels[0].parameters = parameters;
        let channel = rig.compute_channel();
        assert_eq!(channel.run(&[graph.upload(), inc(1, 0x110, &[0])].concat()), Some(MMU), "{operation:?}");
    }
    // A bank that is too short for the parameters.
    let mut graph = gpu.logging(Graph::chain(1));
    graph.kernels[0].fields.push(("CONSTANT_BUFFER_SIZE_SHIFTED4", 0x21));
    assert_eq!(rig.compute_channel().run(&[graph.upload(), inc(1, 0x110, &[0])].concat()), Some(ENGINE));
}

/// Whatever is written over a graph's QMDs and whatever PCAS is sent to them, the GPU continues.
#[test]
fn random_qmds_and_actions_never_stop_the_gpu() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let other = rig.copy_channel();
    let mut killed = 0;
    for seed in 1..=100u64 {
        let graph = gpu.logging(match seed % 3 {
            0 => Graph::chain(3),
            1 => Graph::diamond(),
            _ => Graph::memset(SRC),
        });
        let noise = noise(64, seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut upload = graph.upload();
        for damage in noise[..32].chunks(4).take(seed as usize % 8) {
            let place = usize::from(u16::from_le_bytes([damage[0], damage[1]])) % upload.len();
            upload[place] ^= 1 << (damage[2] % 32);
        }
        let channel = graphics(&rig);
        channel.push(&upload);
        for pair in noise[32..].chunks(2) {
            // Any action, or only some that can follow each other, with a wait for idle.
            let some = [0, 2, 8, 0xc, 7][usize::from(pair[0]) % 5];
            let action = PcasAction::of_word(if seed % 2 == 0 { pair[0].into() } else { some });
            let wait = if seed % 2 == 0 { Vec::new() } else { inc(1, 0x110, &[0]) };
            channel.push(&[wait, act(&graph, usize::from(pair[1]) % graph.kernels.len(), action)].concat());
        }
        channel.bell();
        other.alive();
        killed += u32::from(channel.error().is_some());
        rm::driver::free(&rig.driver, rig.ctl, rig.client, rig.device, channel.group).unwrap();
    }
    println!("{killed} of 100 were killed");
    assert!(killed > 0);
    // The state that they have left does not disturb.
    gpu.host.set(0, 0);
    let graph = gpu.logging(Graph::chain(3));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
}

#[test]
fn a_slow_kernel_finds_launches_that_only_the_cpu_paced() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(3));
    rig.driver.machine.plant(Some(Planted::SlowKernel { turns: 300 }));
    // With the acquires all is well, and the kernels take their time.
    gpu.channel.ok(&graph.upload());
    (1..4).for_each(|k| gpu.channel.push(&graph.again(k)));
    gpu.channel.bell();
    gpu.done(0, 3);
    assert_eq!(gpu.log(), [1, 2, 3].repeat(4));
    // The entries of a launch are consumed long before its kernels have run.
    rig.driver.machine.plant(Some(Planted::SlowKernel { turns: u64::MAX }));
    gpu.channel.ok(&graph.again(4));
    assert_eq!(gpu.channel.run(&without_waits(&graph.again(5))), Some(ENGINE));
}

#[test]
fn a_lost_decrement_leaves_the_launch_undone() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(3));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    // The first decrement is the ordering QMD's, the second the stream's.
    for (k, nth) in [(1, 1), (2, 2)] {
        rig.driver.machine.plant(Some(Planted::LostDecrement { nth }));
        gpu.channel.ok(&graph.again(k));
        gpu.channel.ok(&inc(1, 0x110, &[0]));
        assert_eq!((gpu.counter(0), gpu.log().len() as i64), (4 * k as u32 + 1, 3 * k), "{nth}");
        // The decrement that was lost.
        rig.driver.machine.plant(None);
        gpu.channel.ok(&act(&graph, 1, PcasAction::DecrementDependence));
        gpu.done(0, k as u32);
    }
}

#[test]
fn a_lost_release_of_a_qmd_leaves_the_counter_and_the_next_launch_waits() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(3));
    rig.driver.machine.plant(Some(Planted::LostQmdRelease { nth: 2 }));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    gpu.channel.ok(&graph.again(1));
    gpu.channel.ok(&inc(1, 0x110, &[0]));
    assert_eq!((gpu.counter(0), gpu.log().len()), (5, 6), "the kernels have run");
    let get = gpu.channel.get();
    gpu.channel.push(&graph.again(2));
    gpu.channel.bell();
    settle();
    assert_eq!((gpu.channel.get(), gpu.log().len()), (get, 6));
}

#[test]
fn a_stale_bank_runs_a_kernel_with_its_first_parameters() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let mut graph = gpu.logging(Graph::chain(1));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    rig.driver.machine.plant(Some(Planted::StaleBank));
    let log = u64::from_le_bytes(graph.kernels[0].parameters[..8].try_into().unwrap());
    let change = graph.set_parameters(0, &standin::pointer_and_word(log, 5));
    gpu.channel.ok(&[change.clone(), graph.again(1)].concat());
    gpu.done(0, 1);
    rig.driver.machine.plant(None);
    gpu.channel.ok(&[change, graph.again(2)].concat());
    gpu.done(0, 2);
    assert_eq!(gpu.log(), [0, 0, 5]);
}
