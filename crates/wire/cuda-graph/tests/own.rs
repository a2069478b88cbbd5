//! Launches in doorbell's own form: one counter that counts up, and an upload that starts no kernel.

mod graphs;

use cuda_graph::words::{Graph, Kernel, Step as Do};
use cuda_graph::{Count, Own, Recipe, Refused, Segment, learn};
use graphs::{USER, channel, learn_graph, qmd_at};
use pushbuf::encode::Words;
use pushbuf::header::{Header, Kind};
use pushbuf::qmd::{PcasAction, Qmd};
use pushbuf::semaphore::{Execute, Operation};

const TRACKER: u64 = 0x2_0100_0140;
const START: PcasAction = PcasAction::InvalidatePrefetchCopySchedule;

/// The decoded words of a launch, in order.
#[derive(Debug, PartialEq, Eq)]
enum Said {
    Acquire(u32),
    Pcas(u64, u8),
    /// A write or a fill: how many bytes from where, or 0.
    Fill(u64),
    Copy(u64),
    Write(u64),
    /// The tracker is released with this.
    Release(u32),
}

/// Every method with its value and the index of its word.
fn methods(words: &[u32]) -> Vec<(u8, u16, u32, usize)> {
    let (mut all, mut at) = (Vec::new(), 0);
    while let Some(word) = words.get(at) {
        match Header::parse(*word) {
            Header::Immediate { subch, address, value } => all.push((subch, address, value.into(), at)),
            Header::Methods { kind, subch, address, count } => {
                for i in 0..usize::from(count) {
                    let step = if kind == Kind::Inc { i as u16 } else { 0 };
                    all.push((subch, address + 4 * step, words[at + 1 + i], at + 1 + i));
                }
                at += usize::from(count);
            }
            other => panic!("{other:?}"),
        }
        at += 1;
    }
    all
}

/// The launch, with its payloads as if the tracker had 1,000 before.
fn said(own: &Own) -> Vec<Said> {
    let mut words = own.launch.clone();
    own.counts.iter().for_each(|count| words[count.word] = 1000 + count.more);
    let (mut all, mut set) = (Vec::new(), std::collections::HashMap::new());
    for (subch, method, value, _) in methods(&words) {
        let whole = |hi: u16, lo: u16, set: &std::collections::HashMap<(u8, u16), u32>| {
            u64::from(set[&(subch, hi)]) << 32 | u64::from(set[&(subch, lo)])
        };
        set.insert((subch, method), value);
        match (subch, method) {
            (0, 0x6c) => {
                let execute = Execute::parse(value);
                // The wait does not let other channel groups run, whatever CUDA's wait did: switching takes longer.
                let wait = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };
                assert_eq!((execute, whole(0x60, 0x5c, &set)), (wait, TRACKER));
                all.push(Said::Acquire(set[&(0, 0x64)]));
            }
            (1, 0x2c0) => all.push(Said::Pcas(u64::from(set[&(1, 0x2b4)]) << 8, value as u8)),
            (1, 0x1b4) if whole(0x188, 0x18c, &set) == TRACKER => all.push(Said::Release(value)),
            (1, 0x1b4) => all.push(Said::Write(whole(0x188, 0x18c, &set))),
            (4, 0x300) if value & 3 == 0 => {
                assert_eq!(whole(0x240, 0x244, &set), TRACKER);
                all.push(Said::Release(set[&(4, 0x248)]));
            }
            (4, 0x300) if value >> 10 & 1 != 0 => all.push(Said::Fill(whole(0x408, 0x40c, &set))),
            (4, 0x300) => all.push(Said::Copy(whole(0x408, 0x40c, &set))),
            _ => {}
        }
    }
    all
}

fn own(graph: &Graph) -> Own {
    Own::of(&learn_graph(graph).unwrap(), TRACKER).unwrap()
}

/// The graph of several channels, learnt from words in the order in which the graph has them.
fn learn_several(graph: &Graph, channels: usize) -> Recipe {
    let owned = [graph.upload_segments(), graph.again_segments(1), graph.again_segments(2)];
    let [upload, one, two] = owned
        .each_ref()
        .map(|all| all.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    learn(&vec![channel(); channels], &upload, &[&one, &two]).unwrap()
}

/// The upload starts no kernel: its PCAS are for QMDs that must be scheduled by another QMD. What they release is the tracker.
#[track_caller]
fn starts_nothing(own: &Own) -> Vec<(u64, Qmd)> {
    let all = methods(&own.upload);
    let mut qmds = Vec::new();
    for pair in all.windows(2) {
        if let [(1, 0x18c, low, _), ..] = pair {
            let data = all.iter().filter(|m| m.3 > pair[0].3).skip_while(|m| m.1 != 0x1b4).take_while(|m| m.1 == 0x1b4);
            let words: Vec<u32> = data.map(|m| m.2).collect();
            let high = all.iter().rfind(|m| m.1 == 0x188 && m.3 < pair[0].3).unwrap().2;
            let at = u64::from(high) << 32 | u64::from(*low);
            if own.qmds.contains(&at) {
                qmds.push((at, Qmd::parse(&words).unwrap()));
            }
        }
    }
    assert_eq!(qmds.len(), own.qmds.len());
    for (_, qmd) in &qmds {
        assert!(qmd.releases().all(|(_, release)| release.address == TRACKER));
    }
    let armed: Vec<u64> = all.iter().filter(|m| m.1 == 0x2b4).map(|m| u64::from(m.2) << 8).collect();
    for at in &armed {
        let (_, qmd) = qmds.iter().find(|(other, _)| other == at).unwrap();
        assert_eq!(qmd.field("REQUIRE_SCHEDULING_PCAS"), Some(1), "{at:#x}");
    }
    assert!(all.iter().filter(|m| m.1 == 0x2c0).all(|m| m.2 == START.code().into()));
    assert!(all.iter().all(|m| m.1 != 0x1b00 && m.0 == 1), "no report, and nothing of the host");
    assert_eq!(all.last().map(|m| (m.1, m.2)), Some((0x1698, 0x1000)));
    qmds
}

#[test]
fn one_kernel_is_an_acquire_and_a_pcas() {
    let own = own(&Graph::chain(1));
    let mut buffer = [0; 32];
    let mut words = Words::new(&mut buffer);
    let acquire = Execute { operation: Operation::AcquireCircGeq, ..Execute::RELEASE };
    words.host_semaphore(0, TRACKER, 0, acquire).unwrap();
    words.pcas(1, qmd_at(0), START).unwrap();
    assert_eq!(own.launch, words.as_slice());
    assert_eq!((own.adds, &own.counts[..]), (1, &[Count { word: 3, more: 0 }][..]));
    assert_eq!(starts_nothing(&own).len(), 1);
    assert_eq!(
        own.parameters.iter().map(|p| (p.address, p.bytes)).collect::<Vec<_>>(),
        [(graphs::bank_at(0) + 0x210, 16)]
    );
    assert!(own.touched.is_empty());
}

#[test]
fn chains_start_at_two_qmds_whatever_their_length() {
    for n in [2, 10, 100] {
        let own = own(&Graph::chain(n));
        let wanted = [
            Said::Acquire(1000),
            Said::Pcas(qmd_at(0), START.code()),
            Said::Pcas(qmd_at(1), PcasAction::DecrementDependence.code()),
        ];
        assert_eq!((said(&own), own.adds, own.qmds.len()), (wanted.into(), 1, n + 1));
        starts_nothing(&own);
    }
}

#[test]
fn a_memset_is_released_by_its_engine_and_waited_for() {
    let own = own(&Graph::memset(USER));
    let wanted = [
        Said::Acquire(1000),
        Said::Pcas(qmd_at(0), START.code()),
        Said::Acquire(1001),
        Said::Fill(USER),
        Said::Release(1002),
        Said::Acquire(1002),
        Said::Pcas(qmd_at(2), START.code()),
    ];
    assert_eq!((said(&own), own.adds), (wanted.into(), 3));
    assert_eq!(own.touched.iter().map(|t| (t.address, t.bytes)).collect::<Vec<_>>(), [(USER, 64)]);
    starts_nothing(&own);
}

#[test]
fn a_copy_and_a_write_at_the_end_are_what_the_launch_ends_with() {
    let mut graph = Graph::chain(1);
    graph.launch.push(Do::Memcpy { from: USER, to: USER + 4096, bytes: 128 });
    graph.launch.push(Do::Raw(cuda_graph::words::words(|w| w.inline(1, USER + 64, &[7; 8], 0x41).unwrap())));
    let own = own(&graph);
    // (The words do not order them after the kernel. CUDA leaves out waits for finished work, so doorbell adds a wait.)
    let all = said(&own);
    let wanted = [
        Said::Acquire(1000),
        Said::Pcas(qmd_at(0), START.code()),
        Said::Acquire(1001),
        Said::Copy(USER + 4096),
        Said::Release(1002),
        Said::Acquire(1002),
        Said::Write(USER + 64),
        Said::Write(USER + 64),
        Said::Release(1003),
    ];
    assert_eq!((all, own.adds, own.release), (wanted.into(), 3, None));
    let touched: Vec<_> = own.touched.iter().map(|t| (t.address, t.bytes)).collect();
    assert_eq!(touched, [(USER, 128), (USER + 4096, 128), (USER + 64, 8)]);
}

#[test]
fn inline_data_ahead_of_a_copy_and_a_kernel_is_waited_for() {
    let mut graph = Graph::chain(1);
    let start = graph.launch.iter().position(|what| matches!(what, Do::Start(..))).unwrap();
    graph.launch.insert(start, Do::Raw(cuda_graph::words::words(|w| w.inline(1, USER, &[7; 4], 0x41).unwrap())));
    graph.launch.insert(start + 1, Do::Memcpy { from: USER, to: USER + 4096, bytes: 4 });
    let own = own(&graph);
    let wanted = [
        Said::Acquire(1000),
        Said::Write(USER),
        Said::Release(1001),
        Said::Acquire(1001),
        Said::Copy(USER + 4096),
        Said::Release(1002),
        Said::Acquire(1002),
        Said::Pcas(qmd_at(0), START.code()),
    ];
    assert_eq!((said(&own), own.adds), (wanted.into(), 3));
}

#[test]
fn the_branches_of_a_fork_run_in_parallel() {
    let recipe = learn_several(&Graph::fork(), 2);
    let own = Own::of(&recipe, TRACKER).unwrap();
    let start = |i| Said::Pcas(qmd_at(i), START.code());
    let wanted =
        [Said::Acquire(1000), start(0), Said::Acquire(1001), start(1), start(2), Said::Acquire(1003), start(3)];
    assert_eq!((said(&own), own.adds), (wanted.into(), 4));
    starts_nothing(&own);
}

#[test]
fn a_kernel_that_two_groups_start_is_waited_for_after_the_second() {
    // Kernel 2 waits for kernels 0 and 1. Kernel 1 is in a separate group, which waits for a counter.
    let kernels = vec![
        Kernel { then: vec![(2, cuda_graph::words::DECREMENT)], releases: Some(0), ..Kernel::default() },
        Kernel { then: vec![(2, cuda_graph::words::DECREMENT)], ..Kernel::default() },
        Kernel { waits_for: 2, releases: Some(1), ..Kernel::default() },
    ];
    let launch =
        vec![Do::Wait(1, -2), Do::Set(0), Do::Start(0, START), Do::Wait(0, 2), Do::Set(1), Do::Start(1, START)];
    let own = own(&Graph { kernels, launch, ..Graph::default() });
    let start = |i| Said::Pcas(qmd_at(i), START.code());
    assert_eq!((said(&own), own.adds), (vec![Said::Acquire(1000), start(0), Said::Acquire(1001), start(1)], 2));
}

#[test]
fn a_kernel_whose_end_cannot_be_detected_is_refused() {
    let mut graph = Graph::chain(3);
    graph.kernels.push(Kernel::default());
    graph.launch.push(Do::Start(4, START));
    let refused = Own::of(&learn_graph(&graph).unwrap(), TRACKER).unwrap_err();
    assert_eq!(refused, Refused::Unheard { qmd: qmd_at(4) });
}

#[test]
fn a_kernel_that_its_upload_would_start_is_refused() {
    let mut graph = Graph::diamond();
    graph.kernels[1].fields.push(("REQUIRE_SCHEDULING_PCAS", 0));
    let refused = Own::of(&learn_graph(&graph).unwrap(), TRACKER).unwrap_err();
    assert_eq!(refused, Refused::Armed { qmd: qmd_at(1) });
}

/// The segments of each channel together, the last channel first.
fn by_channel(segments: Vec<(usize, Vec<u32>)>) -> Vec<(usize, Vec<u32>)> {
    let mut sorted = segments;
    sorted.sort_by_key(|(channel, _)| usize::MAX - channel);
    sorted
}

#[test]
fn groups_of_which_only_the_order_on_each_channel_is_known_are_put_into_one_that_their_waits_allow() {
    let (known, graph) = (learn_several(&Graph::fork(), 2), Graph::fork());
    let words =
        [by_channel(graph.upload_segments()), by_channel(graph.again_segments(1)), by_channel(graph.again_segments(2))];
    assert_eq!(words[1].iter().map(|(channel, _)| *channel).collect::<Vec<_>>(), [1, 0, 0]);
    let [upload, one, two] = words
        .each_ref()
        .map(|all| all.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    let recipe = learn(&[channel(), channel()], &upload, &[&one, &two]).unwrap();
    let own = |recipe: &Recipe| Own::of(recipe, TRACKER).unwrap();
    let starts = |own: &Own| own.qmds.len();
    assert_eq!((recipe.edges.len(), starts(&own(&recipe)), own(&recipe).adds), (known.edges.len(), 4, 4));
    let wanted = said(&own(&known));
    // (The branches may change places.)
    let got = said(&own(&recipe));
    assert_eq!((&got[..3], got.last(), got.len()), (&wanted[..3], wanted.last(), wanted.len()));
}

#[test]
fn channels_that_wait_for_each_other_are_refused() {
    let start = |i| Do::Start(i, START);
    let kernels = (0..2).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    let launch = vec![Do::Wait(1, 2), Do::Set(0), start(0), Do::On(1), Do::Wait(0, 2), Do::Set(1), start(1)];
    let graph = Graph { kernels, launch, ..Graph::default() };
    let owned = [graph.upload_segments(), graph.again_segments(1)];
    let [upload, again] = owned
        .each_ref()
        .map(|all| all.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    let refused = learn(&[channel(), channel()], &upload, &[&again]).unwrap_err();
    assert!(matches!(refused, Refused::Order { .. }), "{refused}");
}

#[test]
fn a_wait_for_what_the_same_channel_sets_later_is_refused() {
    let start = |i| Do::Start(i, START);
    let kernels = (0..2).map(|i| Kernel { releases: Some(i), ..Kernel::default() }).collect();
    let launch = vec![Do::Wait(1, 2), Do::Set(0), start(0), Do::Set(1), start(1)];
    let refused = Own::of(&learn_graph(&Graph { kernels, launch, ..Graph::default() }).unwrap(), TRACKER).unwrap_err();
    assert_eq!(refused, Refused::Order { address: graphs::counter_at(1) });
}

#[test]
fn banks_that_a_recording_left_out_and_a_tracker_out_of_place_are_refused() {
    let mut recipe = learn_graph(&Graph::chain(2)).unwrap();
    assert!(matches!(Own::of(&recipe, TRACKER + 2), Err(Refused::Alignment { .. })));
    recipe.banks[0].contents = None;
    assert!(matches!(Own::of(&recipe, TRACKER), Err(Refused::BankLeftOut { .. })));
}

/// A graph whose second channel has only a copy engine, learnt from words that list one channel after the other, from the first channel or from the
/// last.
fn learn_copies(of: impl Fn() -> Graph, backwards: bool) -> Result<Recipe, Refused> {
    let copies = cuda_graph::Channel { engines: vec![0xc8b5], group: Some(0x5c00_0020), ..channel() };
    let owned = [of().upload_segments(), of().again_segments(1), of().again_segments(2)].map(|mut all| {
        all.sort_by_key(|(channel, _)| if backwards { usize::MAX - channel } else { *channel });
        all
    });
    let segments = owned
        .each_ref()
        .map(|all| all.iter().map(|(channel, words)| Segment { channel: *channel, words }).collect::<Vec<_>>());
    let [upload, one, two] = &segments;
    learn(&[channel(), copies], upload, &[one, two])
}

fn memcpy() -> Graph {
    Graph::memcpy(USER, USER + 4096, 128)
}

/// The same without some of its waits, which CUDA leaves out where they are over.
fn memcpy_without(left_out: impl Fn(&Do) -> bool) -> Graph {
    let mut graph = memcpy();
    graph.launch.retain(|step| !left_out(step));
    graph
}

#[test]
fn a_copy_on_a_separate_channel_keeps_its_place_between_kernels() {
    let start = |i| Said::Pcas(qmd_at(i), START.code());
    // As a small one and as a long one were seen: waiting for the kernel, and with that wait left out.
    let forms: [fn(&Do) -> bool; 3] =
        [|_| false, |step| matches!(step, Do::WaitFor(0)), |step| matches!(step, Do::WaitFor(0) | Do::Wait(0, 2))];
    for (form, backwards) in (0..3).flat_map(|form| [(form, false), (form, true)]) {
        let recipe = learn_copies(|| memcpy_without(forms[form]), backwards).unwrap();
        let own = Own::of(&recipe, TRACKER).unwrap();
        let wanted = [
            Said::Acquire(1000),
            start(0),
            Said::Acquire(1001),
            Said::Copy(USER + 4096),
            Said::Release(1002),
            Said::Acquire(1002),
            start(1),
        ];
        assert_eq!((said(&own), own.adds), (wanted.into(), 3), "form {form}, backwards: {backwards}");
        assert_eq!(own.touched.iter().map(|t| t.address).collect::<Vec<_>>(), [USER, USER + 4096]);
        starts_nothing(&own);
        // The recipe gives the same words again, at any address.
        let again = recipe.relocate(|_, block| block.address + 0x10_0000).unwrap();
        assert_eq!((again.nodes.len(), again.groups.len()), (recipe.nodes.len(), recipe.groups.len()));
    }
}

#[test]
fn a_copy_whose_place_the_words_do_not_say_is_refused() {
    for backwards in [false, true] {
        // Either the work that waited for it found it done, or the CPU waited.
        let unheard = learn_copies(|| memcpy_without(|step| matches!(step, Do::WaitFor(1))), backwards);
        assert!(matches!(unheard, Err(Refused::NoPlace { .. })), "{unheard:?}");
        let neither =
            learn_copies(|| memcpy_without(|step| matches!(step, Do::WaitFor(_) | Do::Wait(0, 2))), backwards);
        assert_eq!(neither.unwrap_err(), Refused::NoPlace { address: USER + 4096 });
        // The last copy of a graph waits for the last kernel, and no step waits for the copy.
        let last = || {
            let mut graph = memcpy();
            graph.kernels.truncate(1);
            graph.launch.truncate(8);
            graph
        };
        let own = Own::of(&learn_copies(last, backwards).unwrap(), TRACKER).unwrap();
        let all = said(&own);
        assert!(matches!(all[..5], [_, Said::Pcas(..), Said::Acquire(1001), Said::Copy(_), Said::Release(1002)]));
        assert_eq!((all.len(), own.adds), (5, 2));
        // The copy engine makes its release, which is the launch's last words.
        let release = own.release.unwrap();
        let payloads = own.counts.iter().filter(|count| count.word > release).map(|count| count.more);
        assert_eq!((payloads.collect::<Vec<_>>(), own.launch.len() - release), (vec![2], 6));
    }
}

#[test]
fn a_copy_through_memory_that_changes_is_one_of_pageable_memory() {
    let calls = std::cell::Cell::new(0);
    let of = || {
        calls.set(calls.get() + 1);
        Graph::memcpy(USER + calls.get() * 0x10_0000, USER + 4096, 128)
    };
    assert_eq!(learn_copies(of, false).unwrap_err(), Refused::Staged { address: USER + 3 * 0x10_0000 });
}

#[test]
fn a_release_by_the_copy_engine_that_wakes_the_host_is_refused() {
    // INTERRUPT_TYPE=BLOCKING.
    let wakes = || {
        let mut graph = memcpy();
        let raw = cuda_graph::words::words(|w| {
            w.copy_semaphore(4, USER + 0x8000, 7).unwrap();
            w.inc(4, 0x300, &[0x34]).unwrap();
        });
        graph.launch.insert(7, Do::Raw(raw));
        graph
    };
    assert!(matches!(learn_copies(wakes, false), Err(Refused::Form { .. })));
}

#[test]
fn a_write_waits_for_the_kernel_before_it_even_if_cuda_left_the_wait_out() {
    let write = |at| Do::Raw(cuda_graph::words::words(|w| w.inline(1, at, &[7; 8], 0x41).unwrap()));
    let copy = Do::Memcpy { from: USER, to: USER + 4096, bytes: 128 };
    let submitted = |middle: Vec<Do>| {
        let mut graph = Graph::memset(USER);
        graph.launch = vec![Do::Set(0), Do::Start(0, START), Do::Release];
        graph.launch.extend(middle);
        graph.launch.extend([Do::Release, Do::Set(1), Do::Start(2, START), Do::Release]);
        let own = own(&graph);
        (said(&own), own.adds)
    };
    let start = |i| Said::Pcas(qmd_at(i), START.code());
    for middle in [vec![write(USER)], vec![Do::Wait(0, 2), write(USER)]] {
        let wanted =
            [Said::Acquire(1000), start(0), Said::Acquire(1001), Said::Write(USER), Said::Write(USER), start(2)];
        assert_eq!(submitted(middle), (wanted.into(), 2));
    }
    // The copy engine is another engine: it waits for the writes.
    let (all, adds) = submitted(vec![write(USER), copy]);
    let wanted = [
        Said::Acquire(1000),
        start(0),
        Said::Acquire(1001),
        Said::Write(USER),
        Said::Write(USER),
        Said::Release(1002),
        Said::Acquire(1002),
        Said::Copy(USER + 4096),
        Said::Release(1003),
        Said::Acquire(1003),
        start(2),
    ];
    assert_eq!((all, adds), (wanted.into(), 4));
}
