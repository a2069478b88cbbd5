//! Graphs of stand-in kernels, written as CUDA writes them, run in their order.

use crate::launch_rig::{DATA_AT, Launcher, graphics, without_waits};
use crate::rig::*;
use cuda_graph::words::{Graph, Kernel, words};
use doorbell_softgpu::Mode;
use doorbell_softgpu::standin::{self, Operation};
use pushbuf::qmd::PcasAction;

#[test]
fn one_kernel_adds_the_threads_of_its_grid() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let mut graph = gpu.logging(Graph::chain(1));
    graph.kernels[0] = Kernel {
        grid: [3, 2, 5],
        block: [32, 2, 1],
        code: Some(Launcher::code(Operation::Add)),
        parameters: standin::pointer_and_word(DATA_AT, 0),
        releases: Some(0),
        ..Kernel::default()
    };
    gpu.set_data(0, 7);
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    assert_eq!((gpu.data(0), gpu.kernels()), (7 + 30 * 64, 1));
}

#[test]
fn chains_run_in_their_order_in_the_upload_and_in_each_launch() {
    for n in [1, 2, 3, 10, 100] {
        let rig = Rig::new();
        let gpu = Launcher::new(&rig);
        let graph = gpu.logging(Graph::chain(n));
        gpu.channel.push(&graph.upload());
        // The CPU does not wait.
        (1..=5).for_each(|k| gpu.channel.push(&graph.again(k)));
        gpu.channel.bell();
        gpu.done(0, 5);
        let once: Vec<u32> = if n == 1 { vec![0] } else { (1..=n as u32).collect() };
        assert_eq!(gpu.log(), once.repeat(6), "{n} kernels");
        assert_eq!((gpu.kernels(), gpu.host.u32(0x800)), (6 * n as u64, 105));
    }
}

#[test]
fn a_chain_is_launched_many_times() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(3));
    gpu.channel.ok(&graph.upload());
    for k in 1..=2000 {
        gpu.channel.push(&graph.again(k));
        gpu.channel.bell();
        if k % 500 == 0 {
            gpu.done(0, k as u32);
        }
    }
    assert_eq!(gpu.log(), [1, 2, 3].repeat(2001));
}

#[test]
fn a_gpu_that_polls_runs_graphs_too() {
    let rig = Rig::with(Mode::Poll);
    let gpu = Launcher::new(&rig);
    gpu.slow(Operation::Log, 10);
    let graph = gpu.logging(Graph::chain(3));
    gpu.channel.push(&graph.upload());
    (1..4).for_each(|k| gpu.channel.push(&graph.again(k)));
    gpu.done(0, 3);
    assert_eq!(gpu.log(), [1, 2, 3].repeat(4));
}

#[test]
fn a_fan_out_runs_before_its_join() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::diamond());
    gpu.channel.push(&graph.upload());
    (1..=3).for_each(|k| gpu.channel.push(&graph.again(k)));
    gpu.channel.bell();
    gpu.done(0, 3);
    for launch in gpu.log().chunks(4) {
        assert_eq!((launch[0], launch[3], launch[1] + launch[2]), (0, 3, 3), "{launch:?}");
    }
    assert_eq!(gpu.log().len(), 16);
}

#[test]
fn the_second_group_waits_for_the_first_ones_counter() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let mut graph = gpu.logging(Graph::memset(DATA_AT));
    let with = |kernel: &mut Kernel, operation, parameters| {
        kernel.code = Some(Launcher::code(operation));
        kernel.parameters = parameters;
    };
    // The word is 9 after the first group, 0 after the memset, and copied from there.
    with(&mut graph.kernels[1], Operation::Store, standin::pointer_and_word(DATA_AT, 9));
    with(&mut graph.kernels[2], Operation::Copy, standin::copy(DATA_AT + 0x100, DATA_AT, 4));
    gpu.slow(Operation::Store, 500);
    gpu.set_data(0, 1);
    for k in 0..3 {
        gpu.set_data(0x40, 1);
        gpu.channel.ok(&if k == 0 { graph.upload() } else { graph.again(k) });
        gpu.done(1, k as u32);
        assert_eq!((gpu.data(0), gpu.data(0x40)), (0, 0));
    }
    // Without the wait the memset is first.
    gpu.channel.ok(&without_waits(&graph.again(3)));
    until(|| gpu.counter(1) == 14 && gpu.counter(0) == 14);
    assert_eq!(gpu.data(0), 9);
}

#[test]
fn a_fork_and_its_join_over_two_channels() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::fork());
    let second = graphics(&rig);
    let channels = [&gpu.channel, &second];
    gpu.slow(Operation::Log, 20);
    let mut first = [true; 2];
    for k in 0..4 {
        let segments = if k == 0 { graph.upload_segments() } else { graph.again_segments(k) };
        for (channel, words) in segments {
            channels[channel].push(&words);
            channels[channel].bell();
            first[channel] = false;
        }
    }
    gpu.done(3, 3);
    assert_eq!(first, [false; 2]);
    for launch in gpu.log().chunks(4) {
        assert_eq!((launch[0], launch[3], launch[1] + launch[2]), (0, 3, 3), "{launch:?}");
    }
    assert_eq!(second.finish(), None);
}

#[test]
fn two_graphs_take_turns_on_one_channel() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let one = gpu.logging(Graph::chain(2));
    let mut two = gpu.logging(Graph::chain(3));
    (two.at.qmds, two.at.banks, two.at.counters) = (one.at.qmd(8), one.at.bank(8), one.at.counter(8));
    gpu.channel.push(&one.upload());
    gpu.channel.push(&words(|w| {
        w.raw(&host_sem(one.at.counter(0), 2, 3)).unwrap();
        w.raw(&two.upload()).unwrap();
    }));
    for k in 1..4 {
        let after = host_sem(two.at.counter(0), 4 * k as u64 - 2, 3);
        gpu.channel.push(&[after, one.again(k)].concat());
        let after = host_sem(one.at.counter(0), 4 * k as u64 + 2, 3);
        gpu.channel.push(&[after, two.again(k)].concat());
    }
    gpu.channel.bell();
    until(|| gpu.counter(8) == 14);
    assert_eq!(gpu.log(), [1, 2, 1, 2, 3].repeat(4));
}

#[test]
fn other_entries_go_on_while_a_kernel_is_active_and_wfi_waits() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let graph = gpu.logging(Graph::chain(1));
    let mut expected = 0;
    let copy_log = |to: u64| copy(graph_log(), to, 4, 0x182);
    let waits: [Vec<u32>; 5] = [
        inc(1, 0x110, &[0]),
        inc(0, 0x78, &[0]),
        inc(0, 0x50, &[7]),
        host_sem(DATA_AT + 0x40, 1, 1 | 1 << 20),
        // SEMAPHOREA to D: RELEASE_WFI 0 is EN.
        inc(0, 0x10, &[hi(DATA_AT + 0x40), lo(DATA_AT + 0x40), 1, 2 | 1 << 24]),
    ];
    for (k, wait) in waits.into_iter().enumerate() {
        let launch = if k == 0 { graph.upload() } else { graph.again(k as i64) };
        let plain = host_sem(DATA_AT + 0x44, 1, 1);
        gpu.channel.ok(&[launch, plain, copy_log(DATA_AT), wait, copy_log(DATA_AT + 4)].concat());
        assert_eq!((gpu.data(0), gpu.data(1)), (expected, expected + 1), "wait {k}");
        expected += 1;
    }
    // Releases without WFI do not wait.
    for (k, release) in [
        host_sem(DATA_AT + 0x40, 1, 1),
        inc(0, 0x10, &[hi(DATA_AT + 0x40), lo(DATA_AT + 0x40), 1, 2 | 1 << 20 | 1 << 24]),
        inc(1, 0x1b00, &[hi(DATA_AT + 0x40), lo(DATA_AT + 0x40), 1, 1 << 28]),
    ]
    .into_iter()
    .enumerate()
    {
        gpu.channel.ok(&[graph.again(5 + k as i64), release, copy_log(DATA_AT)].concat());
        assert_eq!(gpu.data(0), expected);
        expected += 1;
        gpu.done(0, 5 + k as u32);
    }
}

fn graph_log() -> u64 {
    DATA_AT - 0x8_0000 + 0x1000
}

#[test]
fn parameters_change_with_an_inline_write_and_an_invalidation() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let mut graph = gpu.logging(Graph::chain(2));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    let change = graph.set_parameters(2, &standin::pointer_and_word(graph_log(), 77));
    gpu.channel.ok(&[change.clone(), graph.again(1)].concat());
    gpu.done(0, 1);
    assert_eq!(gpu.log(), [1, 2, 1, 77]);
    // Without INVALIDATE_SHADER_CACHES_NO_WFI the kernel sees the earlier parameters.
    let change = graph.set_parameters(2, &standin::pointer_and_word(graph_log(), 78));
    gpu.channel.ok(&[change[..change.len() - 2].to_vec(), graph.again(2)].concat());
    gpu.done(0, 2);
    assert_eq!(gpu.log()[4..], [1, 77]);
    gpu.channel.ok(&[inc(1, 0x21c, &[0x1000]), graph.again(3)].concat());
    gpu.done(0, 3);
    assert_eq!(gpu.log()[6..], [1, 78]);
}

/// The QMD before a chain fetches the head's bank: a later write is too late.
#[test]
fn a_bank_that_was_fetched_ahead_is_not_read_again() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let mut graph = gpu.logging(Graph::chain(2));
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    let change = graph.set_parameters(1, &standin::pointer_and_word(graph_log(), 5));
    let write = &change[..change.len() - 2];
    let act = |kernel, action| words(|w| w.pcas(1, graph.at.qmd(kernel), action).unwrap());
    let order = act(0, PcasAction::InvalidatePrefetchCopySchedule);
    let head = act(1, PcasAction::DecrementDependence);
    let (invalidate, wfi) = (inc(1, 0x1698, &[0x1000]), inc(1, 0x110, &[0]));
    gpu.channel.ok(&[&invalidate, &order, write, &head, &wfi].concat());
    assert_eq!(gpu.log(), [1, 2, 1, 2]);
    gpu.channel.ok(&[write, &invalidate, &order, &head, &wfi].concat());
    assert_eq!(gpu.log(), [1, 2, 1, 2, 5, 2]);
}

#[test]
fn a_qmd_may_invalidate_its_constants_by_itself() {
    for field in ["INVALIDATE_SHADER_CONSTANT_CACHE", "CONSTANT_BUFFER_INVALIDATE"] {
        let rig = Rig::new();
        let gpu = Launcher::new(&rig);
        let mut graph = gpu.logging(Graph::chain(1));
        graph.kernels[0].fields.push((field, 1));
        gpu.channel.ok(&graph.upload());
        gpu.done(0, 0);
        let change = graph.set_parameters(0, &standin::pointer_and_word(graph_log(), 5));
        gpu.channel.ok(&[change[..change.len() - 2].to_vec(), graph.again(1)].concat());
        gpu.done(0, 1);
        assert_eq!(gpu.log(), [0, 5], "{field}");
    }
}

#[test]
fn a_step_checks_and_writes_patterns() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    gpu.slow(Operation::Step, 0);
    let words = 3000;
    let (buffer, wrong) = (DATA_AT, DATA_AT + 0x8000);
    let step = |expected: u32, next: u32| {
        let long = |v: u64| v.to_le_bytes().to_vec();
        let short = |v: u32| v.to_le_bytes().to_vec();
        [long(buffer), short(words), short(expected), short(words), short(next), long(wrong)].concat()
    };
    let mut graph = gpu.logging(Graph::chain(1));
    graph.kernels[0].code = Some(Launcher::code(Operation::Step));
    graph.kernels[0].parameters = step(1, 2);
    gpu.channel.ok(&graph.upload());
    gpu.done(0, 0);
    let seen = gpu.data(0x2000);
    assert_eq!((gpu.data(2999), seen), (standin::pattern(2, 2999), words));
    let change = graph.set_parameters(0, &step(2, 3));
    gpu.channel.ok(&[change, graph.again(1)].concat());
    gpu.done(0, 1);
    assert_eq!((gpu.data(1500), gpu.data(0x2000)), (standin::pattern(3, 1500), words));
}

#[test]
fn unknown_code_runs_nothing_and_its_qmd_still_releases() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    for code in [NOWHERE, graph_log(), 0] {
        let mut graph = gpu.logging(Graph::chain(1));
        graph.kernels[0].code = Some(code);
        gpu.channel.ok(&graph.upload());
        gpu.done(0, 0);
    }
    assert_eq!((gpu.kernels(), gpu.log()), (0, vec![]));
}

#[test]
fn an_armed_qmd_waits_for_schedule_and_runs_once_for_each() {
    let rig = Rig::new();
    let gpu = Launcher::new(&rig);
    let mut graph = gpu.logging(Graph::chain(1));
    graph.launch.clear();
    graph.kernels[0].releases = None;
    // Nothing starts it: the upload arms it.
    gpu.channel.ok(&graph.upload());
    let wfi = inc(1, 0x110, &[0]);
    gpu.channel.ok(&wfi);
    assert!(gpu.log().is_empty());
    let schedule = words(|w| w.pcas(1, graph.at.qmd(0), PcasAction::Schedule).unwrap());
    for n in 1..4 {
        gpu.channel.ok(&[schedule.clone(), wfi.clone()].concat());
        assert_eq!(gpu.log().len(), n);
    }
    // INCREMENT_DEPENDENCE and DECREMENT_DEPENDENCE: one more must come than went.
    let act = |action| words(|w| w.pcas(1, graph.at.qmd(0), action).unwrap());
    let up = act(PcasAction::IncrementDependence);
    let down = act(PcasAction::DecrementDependence);
    gpu.channel.ok(&[up.clone(), up, schedule, down.clone(), wfi.clone()].concat());
    assert_eq!(gpu.log().len(), 3);
    gpu.channel.ok(&[down, wfi].concat());
    assert_eq!(gpu.log().len(), 4);
}
