//! Kernels without a time, each for a known reason, because the tapes are written here.

mod synthetic;

use decode::Recording;
use decode::kernel_times::kernel_times;
use schema::kernel_times::{KernelTimes, Reason, State};
use synthetic::{SLOTS_AT, Tape};
use tape::event::RingBody;
use tape::file::{KernelEnds, ProcessEnd};
use tape::stamp::{self, StampsBody, state};

fn read(mut t: Tape) -> Option<Vec<KernelTimes>> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let times = kernel_times(&r).unwrap();
    assert_eq!(decode::summary(&r).unwrap().kernel_times, times);
    assert_eq!(decode::kernels::kernels(&r, &Default::default()).unwrap().kernel_times, times);
    times
}

fn one(t: Tape) -> KernelTimes {
    let mut all = read(t).unwrap();
    assert_eq!(all.len(), 1, "{all:?}");
    let k = all.remove(0);
    let lacking: u64 = k.lacking.iter().map(|row| row.kernels).sum();
    assert_eq!(lacking, k.kernels - k.timed, "the reasons add up: {k:?}");
    k
}

fn reasons(k: &KernelTimes) -> Vec<(Reason, u64)> {
    k.lacking.iter().map(|row| (row.reason, row.kernels)).collect()
}

/// Adds the recorder's counts to the tape.
fn ended(mut t: Tape, ends: KernelEnds) -> Tape {
    t.process_ends = vec![ProcessEnd { kernel_ends: Some(ends), ..ProcessEnd::default() }];
    t
}

fn stamps(t: &mut Tape, state: u32, result: u32) {
    let body = StampsBody { layout: stamp::LAYOUT, state, area: SLOTS_AT, result, pad: 0 };
    t.event(100, stamp::kind::STAMPS, 0, &body, &[], &[]);
}

/// Nine launches of single kernels. The first ones end at the given times.
fn launches(begin: impl FnOnce(&mut Tape), ends: &[u64]) -> Tape {
    let mut t = synthetic::kernel_launches(9, begin);
    t.ends(ends);
    t
}

const ALL: [u64; 9] = [1, 2, 3, 4, 5, 6, 7, 8, 9];

#[test]
fn what_was_not_asked_for_lacks_nothing() {
    assert_eq!(read(synthetic::one_of_everything()), None);
    let mut t = Tape::new();
    t.header.gpu_times = true;
    t.context(100);
    assert_eq!(read(t), Some(Vec::new()));
}

#[test]
fn all_have_times() {
    let t = launches(|t| stamps(t, state::ON, 0), &ALL);
    let k = one(ended(t, KernelEnds { stamped: 9, ends: 9, ..KernelEnds::default() }));
    assert_eq!((k.kernels, k.timed, k.stamped, k.ends, k.state), (9, 9, Some(9), 9, State::On));
    assert_eq!(reasons(&k), []);
}

#[test]
fn each_count_of_the_agent_and_the_recorder_is_a_reason() {
    let some = KernelEnds { stamped: 7, ends: 3, ..KernelEnds::default() };
    let of = |ends: KernelEnds| reasons(&one(ended(launches(|t| stamps(t, state::ON, 0), &ALL[..3]), ends)));
    assert_eq!(of(some), [(Reason::NotEnded, 4), (Reason::NotKnown, 2)]);
    assert_eq!(of(KernelEnds { slots_full: 2, ..some }), [(Reason::SlotsFull, 2), (Reason::NotEnded, 4)]);
    assert_eq!(of(KernelEnds { other_version: 2, ..some }), [(Reason::OtherVersion, 2), (Reason::NotEnded, 4)]);
    let taken = KernelEnds { words_in_use: 2, ..some };
    assert_eq!(of(taken), [(Reason::WordsInUse, 2), (Reason::NotEnded, 4)]);
    let given_up = KernelEnds { given_up: 3, ..taken };
    assert_eq!(of(given_up), [(Reason::WordsInUse, 2), (Reason::GivenUp, 3), (Reason::NotEnded, 1)]);
    assert_eq!(of(KernelEnds { by_cupti: 2, ..some }), [(Reason::Cupti, 2), (Reason::NotEnded, 4)]);
}

/// The program still runs: the first kernel of a stream that has not ended is the one that keeps the others waiting.
#[test]
fn kernels_that_have_not_ended_are_found_by_stream() {
    let awaited = |mut t: Tape| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.doorbell");
        t.write(&path);
        decode::awaited(&Recording::open(&path).unwrap()).unwrap()
    };
    let of = |ends: &[u64]| awaited(launches(|t| stamps(t, state::ON, 0), ends)).unwrap();
    assert_eq!(of(&ALL), []);
    let (all, four) = (of(&[]), of(&ALL[..4]));
    assert_eq!((all.len(), all[0].count, four.len(), four[0].count), (1, 9, 1, 5));
    assert_eq!((all[0].stream, all[0].code, all[0].tid), (four[0].stream, four[0].code, four[0].tid));
    assert!(all[0].tsc < four[0].tsc, "the fifth launch");
    // Nothing stores its end.
    assert_eq!(awaited(launches(|_| (), &[])), Some(Vec::new()));
    assert_eq!(awaited(synthetic::one_of_everything()), None);
}

#[test]
fn each_state_of_the_agent_is_a_reason() {
    let none = KernelEnds::default();
    let k = one(ended(launches(|t| stamps(t, state::REFUSED, 2), &[]), none));
    assert_eq!((k.state, k.cuda_result, k.timed), (State::Refused, Some(2), 0));
    assert_eq!(reasons(&k), [(Reason::Refused, 9)]);
    let k = one(ended(launches(|t| stamps(t, state::NO_FUNCTION, 0), &[]), none));
    assert_eq!((k.state, k.cuda_result, reasons(&k)), (State::NoFunction, None, vec![(Reason::NoFunction, 9)]));
    let k = one(ended(launches(|_| (), &[]), none));
    assert_eq!((k.state, reasons(&k)), (State::NotBegun, vec![(Reason::NotBegun, 9)]));
    let others = [
        (state::CUPTI, State::Cupti, Reason::Cupti),
        (state::DIVIDED, State::Divided, Reason::Divided),
        (state::CONFIDENTIAL, State::Confidential, Reason::Confidential),
    ];
    for (of, state, reason) in others {
        let k = one(ended(launches(|t| stamps(t, of, 0), &[]), none));
        assert_eq!((k.state, reasons(&k)), (state, vec![(reason, 9)]));
    }
    let mut t = launches(|t| stamps(t, state::ON, 0), &ALL[..4]);
    stamps(&mut t, state::CONTEXT_GONE, 0);
    let k = one(ended(t, KernelEnds { stamped: 5, ends: 4, ..none }));
    assert_eq!(k.state, State::ContextGone);
    assert_eq!(reasons(&k), [(Reason::NotEnded, 1), (Reason::ContextGone, 4)]);
}

#[test]
fn ends_without_the_gpus_clock_make_no_time() {
    let mut t = synthetic::kernel_launches(9, |t| stamps(t, state::ON, 0));
    t.ends_without_clock(&ALL);
    let k = one(ended(t, KernelEnds { stamped: 9, ends: 9, ..KernelEnds::default() }));
    assert_eq!((k.timed, k.ends, reasons(&k)), (0, 9, vec![(Reason::NoClock, 9)]));
}

/// The recorder was killed, or is an older one: its counts are not on the tape.
#[test]
fn without_the_counts_what_lacks_a_time_is_not_known() {
    let k = one(launches(|t| stamps(t, state::ON, 0), &ALL[..3]));
    assert_eq!((k.stamped, k.timed, reasons(&k)), (None, 3, vec![(Reason::NotKnown, 6)]));
}

/// Another thread had the memory mapped meanwhile.
#[test]
fn the_first_kernels_may_be_launched_before_the_memory_is_mapped() {
    let mut t = Tape::new();
    t.header.gpu_times = true;
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.call = RingBody { function: 1, call: 1, stream: 0x51, kernel: 0xf1, ..RingBody::default() };
    (0..2).for_each(|n| t.submit(100, 0, &[&synthetic::launch(synthetic::QMD_AT + 0x200 * n, [1, 1, 1])]));
    stamps(&mut t, state::ON, 0);
    t.submit(100, 0, &[&synthetic::stamped(synthetic::QMD_AT, 0, &[])]);
    t.submit(100, 0, &[&synthetic::launch(synthetic::QMD_AT, [1, 1, 1])]);
    t.ends(&[5]);
    let k = one(ended(t, KernelEnds { stamped: 1, ends: 1, ..KernelEnds::default() }));
    assert_eq!((k.kernels, k.timed, reasons(&k)), (4, 1, vec![(Reason::NotMapped, 2), (Reason::NotKnown, 1)]));
}

#[test]
fn kernels_of_a_second_gpu_have_none() {
    let mut t = Tape::new();
    t.header.gpu_times = true;
    stamps(&mut t, state::ON, 0);
    let mut t = synthetic::two_gpus_of(t);
    t.channel_on(100, synthetic::DEVICE, 0, 2, 0x5c00_1003, 1, 32);
    t.channel_on(100, synthetic::SECOND, synthetic::SECOND_SPACE, 3, 0x5c00_1004, 1, 32);
    t.call = RingBody { function: 1, call: 1, stream: 0x51, kernel: 0xf1, ..RingBody::default() };
    let at = synthetic::QMD_AT;
    t.submit(100, 2, &[&synthetic::stamped(at, 0, &[])]);
    (1..4).for_each(|n| t.submit(100, 3, &[&synthetic::launch(at + 0x200 * n, [1, 1, 1])]));
    t.ends(&[5]);
    let k = one(ended(t, KernelEnds { stamped: 1, ends: 1, ..KernelEnds::default() }));
    assert_eq!((k.kernels, k.timed, reasons(&k)), (4, 1, vec![(Reason::OtherGpu, 3)]));
}
