//! Each thing that is not understood is refused by name.

mod graphs;

use cuda_graph::words::{DECREMENT, Graph, Kernel, SCHEDULE, Step as Do, words};
use cuda_graph::{Channel, Refused, Segment, learn};
use graphs::{USER, bank_at, channel, learn_graph, learn_words, qmd_at};
use pushbuf::encode::Words;
use pushbuf::qmd::{Layout, PcasAction, Qmd};
use pushbuf::semaphore::Execute;

const COMPUTE: u8 = 1;

/// Why a chain of two is refused with something more in each launch.
fn with(write: impl FnOnce(&mut Words<'_>)) -> Refused {
    let mut graph = Graph::chain(2);
    graph.launch.push(Do::Raw(words(write)));
    learn_graph(&graph).unwrap_err()
}

/// Why a graph of one kernel is refused with a field of its QMD set.
fn with_field(name: &'static str, value: u64) -> Refused {
    let mut graph = Graph::chain(1);
    graph.kernels[0].fields.push((name, value));
    learn_graph(&graph).unwrap_err()
}

/// A chain of two, with one word changed in the QMD at `i` in its upload.
fn with_word(i: usize, word: usize, value: u32) -> Refused {
    let graph = Graph::chain(2);
    let (mut upload, qmd) = (graph.upload(), graph.qmd(i));
    let at = upload.windows(96).position(|w| w == qmd.words()).unwrap();
    upload[at + word] = value;
    learn_words(&upload, &[&graph.again(1)]).unwrap_err()
}

#[test]
fn unknown_methods() {
    let refused = with(|w| w.inc(COMPUTE, 0x790, &[7]).unwrap());
    let name = "SET_SHADER_LOCAL_MEMORY_A".to_owned();
    assert_eq!(refused, Refused::Method { class: 0xcbc0, address: 0x790, name, value: 7 });
    let refused = with(|w| w.inc(COMPUTE, 0x2d4, &[7]).unwrap());
    assert!(matches!(refused, Refused::Method { .. }), "{refused:?}");
    // WAIT_FOR_IDLE would wait for all kernels of the channel group.
    assert!(matches!(with(|w| w.inc(COMPUTE, 0x110, &[0]).unwrap()), Refused::Method { .. }));
    assert!(matches!(with(|w| w.set_object(COMPUTE, 0xcbc0).unwrap()), Refused::Method { .. }));
    // A subchannel with no engine.
    assert!(matches!(with(|w| w.inc(6, 0x300, &[7]).unwrap()), Refused::Method { class: 0, .. }));
}

#[test]
fn macros_with_their_arguments() {
    let refused = with(|w| w.one_inc(COMPUTE, 0x3800, &[0x7f00, 0x2000_0000, 0, 64]).unwrap());
    assert_eq!(refused, Refused::MmeMacro { index: 0, arguments: vec![0x7f00, 0x2000_0000, 0, 64] });
    let refused = with(|w| w.inc(COMPUTE, 0x3818, &[1]).unwrap());
    assert_eq!(refused, Refused::MmeMacro { index: 3, arguments: vec![1] });
}

#[test]
fn words_that_are_no_stream() {
    assert_eq!(with(|w| w.raw(&[0xc000_0000]).unwrap()), Refused::Header { word: 0xc000_0000 });
    let graph = Graph::chain(1);
    let again = graph.again(1);
    let cut = learn_words(&graph.upload(), &[&again[..again.len() - 1]]).unwrap_err();
    assert_eq!(cut, Refused::Cut);
    // A PCAS without its first half, and an inline write to where the launch before pointed.
    let refused = with(|w| w.imm(COMPUTE, pushbuf::encode::offset::SEND_SIGNALING_PCAS2_B, 7).unwrap());
    assert_eq!(refused, Refused::Unset { step: "a PCAS" });
    let headless = words(|w| {
        w.inc(COMPUTE, 0x1b0, &[0x41]).unwrap();
        w.non_inc(COMPUTE, 0x1b4, &[7]).unwrap();
    });
    assert!(learn_words(&graph.upload(), &[&headless]).is_err());
}

#[test]
fn other_versions_of_qmds() {
    assert_eq!(with_word(2, 18, 0x50), Refused::QmdVersion { qmd: qmd_at(2), major: 5, minor: 0 });
    assert_eq!(with_word(2, 18, 0x31), Refused::QmdVersion { qmd: qmd_at(2), major: 3, minor: 1 });
    // Version 3 has a table, and other places for the order of QMDs.
    let mut three = Graph::chain(1).qmd(0).words().to_vec();
    three[18] = Qmd::new(Layout::of(3, 0).unwrap()).words()[18];
    assert_eq!(with_word(2, 18, three[18]), Refused::QmdVersion { qmd: qmd_at(2), major: 3, minor: 0 });
}

#[test]
fn qmds_that_a_recording_left_out() {
    let graph = Graph::chain(2);
    let (mut upload, qmd) = (graph.upload(), graph.qmd(2));
    let at = upload.windows(96).position(|w| w == qmd.words()).unwrap();
    upload[at..at + 96].fill(0);
    let refused = learn_words(&upload, &[&graph.again(1)]).unwrap_err();
    assert_eq!(refused, Refused::QmdLeftOut { qmd: qmd_at(2) });
}

#[test]
fn fields_and_bits_of_qmds() {
    for (field, value) in [
        ("ARRIVE_AT_LATCH_VALID", 1),
        ("WAIT_ON_LATCH_ID", 3),
        ("CWD_REFERENCE_COUNT_INCR_ENABLE", 1),
        ("GRID_WIDTH_RESUME", 1),
        ("HW_ONLY_DEPENDENCE_COUNTER", 1),
        ("CTA_LAUNCH_QUEUE", 1),
        ("SEQUENTIALLY_RUN_CTAS", 1),
        ("QMD_TYPE", 5),
    ] {
        assert_eq!(with_field(field, value), Refused::QmdField { qmd: qmd_at(0), field, value });
    }
    // Word 17 of version 4.0 ends with bits that no field has.
    assert!(matches!(with_word(2, 65, 0x8000_0000), Refused::QmdBits { word: 65, bits: 0x8000_0000, .. }));
}

#[test]
fn cooperative_launches() {
    assert_eq!(with_field("QMD_TYPE", 4), Refused::Cooperative { qmd: qmd_at(0) });
}

/// Why a graph is refused whose first kernel has parameters as the driver's own has them (0, a number, a table, ..), and whose upload writes that
/// table. `more`: additional steps in each launch.
fn with_table(at: u64, more: &[Do]) -> Refused {
    let mut graph = Graph::chain(1);
    graph.kernels[0].parameters = [8 << 32, USER, USER + 0x240, USER + 0x2000].map(u64::to_le_bytes).concat();
    graph.launch.extend_from_slice(more);
    // (Eight entries after a header, as for a fan-out to eight.)
    let mut upload = words(|w| w.inline(COMPUTE, at, &[7; 608], 0x41).unwrap());
    upload.extend(graph.upload());
    learn_words(&upload, &[&graph.again(1), &graph.again(2)]).unwrap_err()
}

#[test]
fn kernels_of_the_drivers_with_tables() {
    let by_driver = |what| Refused::ByDriver { what, qmd: qmd_at(0), table: USER, bytes: 608 };
    assert_eq!(with_table(USER, &[]), by_driver("a fan-out or fan-in of many kernels"));
    let value = Do::Raw(words(|w| w.inline(COMPUTE, USER + 608, &[1, 0, 0, 0], 0x41).unwrap()));
    assert_eq!(with_table(USER, &[value]), by_driver("a conditional node"));
    // A write that no kernel's parameters name has no owner.
    let (address, bytes) = (USER + 0x10_0000, 608);
    assert_eq!(with_table(address, &[]), Refused::UnknownWrite { address, bytes });
}

#[test]
fn launches_by_the_device() {
    for (field, value) in [("QMD_TYPE", 0), ("CIRCULAR_QUEUE_SIZE", 4)] {
        assert_eq!(with_field(field, value), Refused::DeviceLaunch { qmd: qmd_at(0), field, value });
    }
    let mut graph = Graph::chain(2);
    graph.kernels[1].then = vec![(2, 0)];
    let refused = learn_graph(&graph).unwrap_err();
    assert!(matches!(refused, Refused::DeviceLaunch { field: "DEPENDENT_QMD_ACTION", .. }), "{refused:?}");
    let refused = with(|w| w.pcas(COMPUTE, qmd_at(1), PcasAction::IncrementPut).unwrap());
    assert_eq!(refused, Refused::Pcas { qmd: qmd_at(1), action: PcasAction::IncrementPut });
}

#[test]
fn conditional_nodes() {
    // SET_RENDER_ENABLE_C, which makes commands depend on memory.
    let refused = with(|w| w.inc(COMPUTE, 0x1558, &[2]).unwrap());
    let name = "SET_RENDER_ENABLE_C".to_owned();
    assert_eq!(refused, Refused::Conditional { class: 0xcbc0, method: name });
}

#[test]
fn host_nodes() {
    let refused = with(|w| w.host_release(0, USER, 1, false).unwrap());
    assert_eq!(refused, Refused::HostNode { why: "the host releases a semaphore" });
    let refused = with(|w| w.inc(0, 0x20, &[0]).unwrap());
    assert_eq!(refused, Refused::HostNode { why: "an interrupt of the host" });
    let awaken = [(USER >> 32) as u32, USER as u32, 1, 0x1010_0004];
    let refused = with(|w| w.inc(COMPUTE, pushbuf::encode::offset::REPORT_SEMAPHORE_A, &awaken).unwrap());
    assert_eq!(refused, Refused::HostNode { why: "a release wakes the host (AWAKEN_ENABLE)" });
    // CUDA's signal to the host for the kernel ahead of a host node: NO_OPERATION, then TRAP.
    let trap = [(USER >> 32) as u32, USER as u32, 1, 3];
    let refused = with(|w| w.inc(COMPUTE, pushbuf::encode::offset::REPORT_SEMAPHORE_A, &trap).unwrap());
    assert_eq!(refused, Refused::HostNode { why: "a report that interrupts the host (TRAP)" });
    let refused = with(|w| w.inc(COMPUTE, 0x100, &[0]).unwrap());
    assert_eq!(refused, Refused::HostNode { why: "an interrupt of the host" });
    // The launch never releases the semaphore that the host node's function releases.
    let execute = Execute { operation: pushbuf::semaphore::Operation::AcquireStrictGeq, ..Execute::RELEASE };
    let refused = with(|w| w.host_semaphore(0, USER, 1, execute).unwrap());
    assert_eq!(refused, Refused::ForeignAcquire { address: USER });
}

#[test]
fn channels_of_other_groups() {
    let graph = Graph::chain(2);
    let (upload, again) = (graph.upload(), graph.again(1));
    let copy = words(|w| w.copy(4, USER, USER + 64, 64, 0x182).unwrap());
    let other = Channel { group: Some(0x5c00_0099), ..channel() };
    let both = [Segment { channel: 0, words: &again }, Segment { channel: 1, words: &copy }];
    let upload = [Segment { channel: 0, words: &upload }];
    let refused = learn(&[channel(), other], &upload, &[&both]).unwrap_err();
    assert_eq!(refused, Refused::ChannelGroups { first: 0x5c00_0010, second: 0x5c00_0099 });
    let refused = learn(&[channel()], &upload, &[&both]).unwrap_err();
    assert_eq!(refused, Refused::NoChannel(1));
}

#[test]
fn orders_that_cannot_be() {
    let mut graph = Graph::chain(2);
    graph.kernels[1].waits_for = 3;
    assert_eq!(learn_graph(&graph).unwrap_err(), Refused::Dependence { qmd: qmd_at(1), counter: 3, given: 2 });
    let mut graph = Graph::chain(3);
    graph.kernels[3].then = vec![(2, SCHEDULE)];
    assert_eq!(learn_graph(&graph).unwrap_err(), Refused::Circle { qmd: qmd_at(2) });
    let mut graph = Graph::chain(2);
    graph.kernels[2].then = vec![(9, DECREMENT)];
    assert_eq!(learn_graph(&graph).unwrap_err(), Refused::QmdNotWritten { qmd: qmd_at(9) });
    let mut graph = Graph::chain(2);
    graph.kernels.push(Kernel::default());
    assert_eq!(learn_graph(&graph).unwrap_err(), Refused::QmdNotStarted { qmd: qmd_at(3) });
    assert_eq!(learn_graph(&Graph::default()).unwrap_err(), Refused::NoKernel);
}

#[test]
fn launches_that_are_not_the_same() {
    let (one, ten) = (Graph::chain(2), Graph::chain(10));
    assert_eq!(learn_words(&one.upload(), &[]).unwrap_err(), Refused::NoRelaunch);
    let refused = learn_words(&one.upload(), &[&one.again(1), &Graph::chain(1).again(2)]).unwrap_err();
    assert_eq!(refused, Refused::LengthsDiffer { first: 5, second: 4 });
    let mut other = one.clone();
    other.launch[1] = Do::Start(2, PcasAction::InvalidatePrefetchCopySchedule);
    let refused = learn_words(&one.upload(), &[&one.again(1), &other.again(2)]).unwrap_err();
    assert_eq!(refused, Refused::LaunchesDiffer { step: 1, first: "a PCAS", second: "a PCAS" });
    // The parameters of a node were set between the launches.
    let mut updated = ten.clone();
    let at = bank_at(1) + 0x210;
    updated.launch.insert(0, Do::Raw(words(|w| w.inline(COMPUTE, at, &[1; 16], 0x41).unwrap())));
    let refused = learn_words(&ten.upload(), &[&updated.again(1)]).unwrap_err();
    assert_eq!(refused, Refused::Updated { address: at });
}

#[test]
fn writes_to_unknown_memory_are_refused() {
    let graph = Graph::chain(1);
    let plus = |more: Vec<u32>| {
        let upload = [more, graph.upload()].concat();
        learn_words(&upload, &[&graph.again(1)]).unwrap_err()
    };
    let write = |at: u64, data: &[u8]| words(|w| w.inline(COMPUTE, at, data, 0x41).unwrap());
    assert_eq!(plus(write(USER, &[1; 8])), Refused::UnknownWrite { address: USER, bytes: 8 });
    let refused = plus(write(bank_at(0), &[1; 8]));
    assert_eq!(refused, Refused::Bank { bank: bank_at(0), from: bank_at(0), bytes: 8, header: 0x210 });
    // A bank that exists only in CUDA's memory.
    let bare = words(|w| {
        let bytes: Vec<u8> = graph.qmd(0).words().iter().flat_map(|w| w.to_le_bytes()).collect();
        w.inline(COMPUTE, qmd_at(0), &bytes, 0x41).unwrap();
    });
    let refused = learn_words(&bare, &[&graph.again(1)]).unwrap_err();
    assert_eq!(refused, Refused::BankNotWritten { qmd: qmd_at(0), bank: bank_at(0) });
}
