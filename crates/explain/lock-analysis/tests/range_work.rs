//! The GPU's work in ranges of NVTX.

#[path = "../../decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use decode::kernels::kernels;
use decode::walk::{Filter, Pattern};
use proptest::prelude::*;
use schema::ranges::{EachRange, EachRow, RangeParts, RangeRow, RangeWork, Ranges};
use synthetic::{DEVICE_AT, GPU_ZERO, HOST_AT, Tape};
use tape::lock::{self, HoldBody, LocksBody, ended, op};
use tape::nvtx::{self, EndBody, NvtxBody, RangeBody, TextBody, names, state};
use tape::stamp::{self, EndsBody};

/// The thread of `step` submits nothing, as one that waits for autograd's. `request` is of the process.
#[test]
fn a_range_has_the_work_of_its_thread_and_that_of_all_threads() {
    const THREAD: i32 = 200;
    let mut t = synthetic::kernel_times();
    let body = NvtxBody { layout: nvtx::LAYOUT, state: state::CONNECTED };
    t.event_at(THREAD, 150_000, nvtx::kind::NVTX, 0, &body, &[], &[]);
    let mut text = |text: &str| {
        let id = nvtx::text(text.as_bytes());
        let body = TextBody { id, bytes: text.len() as u32, names: names::TEXT, ..TextBody::default() };
        t.event_at(THREAD, 150_000, nvtx::kind::TEXT, 0, &body, text.as_bytes(), &[]);
        id
    };
    let (step, request) = (text("step"), text("request"));
    t.event_at(THREAD, 201_500, nvtx::kind::PUSH, 0, &RangeBody { text: step, ..RangeBody::default() }, &[], &[]);
    t.event_at(
        THREAD,
        201_600,
        nvtx::kind::START,
        0,
        &RangeBody { text: request, id: 1, ..RangeBody::default() },
        &[],
        &[],
    );
    t.event_at(THREAD, 350_000, nvtx::kind::POP, 0, &EndBody::default(), &[], &[]);
    t.event_at(THREAD, 350_100, nvtx::kind::END, 0, &EndBody { id: 1, ..EndBody::default() }, &[], &[]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ranges.doorbell");
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let all = lock_analysis::ranges(&r, &Filter::default()).unwrap();
    let of = |text: &str| all.ranges.iter().find(|row| row.text == text).unwrap();
    // One kernel of stream 0x52, and three of a graph.
    let (own, both) = (of("step").work.unwrap(), of("step").all_threads.unwrap());
    assert_eq!((own, both.runs), (RangeWork { idle_ns: of("step").ns, ..RangeWork::default() }, 4), "{all:?}");
    assert!(both.busy_ns > 0 && both.busy_ns < both.ns && both.copies == 0, "{both:?}");
    assert_eq!(both.busy_ns + both.idle_ns, of("step").ns, "all of it ended before the range: {both:?}");
    assert_eq!((of("request").work, of("request").all_threads), (Some(both), Some(both)));
    // The kernels of all threads, and of the range's own.
    let pattern = Pattern::new("^step$").unwrap();
    let launches = |filter: Filter| kernels(&r, &filter).unwrap().kernels.iter().map(|k| k.launches).sum::<u64>();
    let during = Some(decode::during(&r, &pattern).unwrap());
    assert_eq!(launches(Filter { during, ..Filter::default() }), 4);
    assert_eq!(launches(Filter { range: Some(pattern), ..Filter::default() }), 0);
}

/// Of one thread, at a time in ticks, which are nanoseconds.
#[derive(Clone, Copy, Debug)]
enum Act {
    /// The text's number; a range of the process has an even one.
    Begin(u64),
    End(u64),
    /// A copy is submitted, which runs from and to these times; to 0: that is not recorded.
    Copy(u64, u64),
    /// It has a lock that it waited for since this time.
    Wait(u64),
}

const ZERO: u64 = 1_000_000;
const THREADS: [i32; 2] = [100, 200];

struct Found {
    ranges: Ranges,
    each: EachRange,
}

impl Found {
    fn row(&self, text: u64) -> &RangeRow {
        self.ranges.ranges.iter().find(|row| row.text == name(text)).unwrap()
    }

    fn one(&self, text: u64) -> &EachRow {
        self.each.ranges.iter().find(|row| row.range.text == name(text)).unwrap()
    }
}

fn name(text: u64) -> String {
    format!("range {text}")
}

/// What is found of acts: thread (0 or 1), time after [`ZERO`], and act.
fn found(acts: &[(usize, u64, Act)], change: impl FnOnce(&mut Tape)) -> Found {
    let mut t = Tape::with_times();
    t.context(100);
    t.channel(100, 1, 0x5c00_1001, 11, 1 << 12);
    for tsc in [100_000, 100_100_000] {
        t.clocks(tsc, tsc);
    }
    for tid in THREADS {
        let body = NvtxBody { layout: nvtx::LAYOUT, state: state::CONNECTED };
        t.event_at(tid, 150_000, nvtx::kind::NVTX, 0, &body, &[], &[]);
        let locks = LocksBody { layout: lock::LAYOUT, pid: 4242 };
        t.event_at(tid, 150_000, lock::kind::LOCKS, 0, &locks, &[], &[]);
    }
    let mut acts = acts.to_vec();
    acts.sort_by_key(|(_, tsc, _)| *tsc);
    let (mut depth, mut number, mut ends) = ([0u64; 2], 0u64, Vec::new());
    for (thread, after, act) in acts {
        let (tid, tsc) = (THREADS[thread], ZERO + after);
        match act {
            Act::Begin(text) => {
                let of_process = text % 2 == 0;
                let bytes = name(text);
                let id = nvtx::text(bytes.as_bytes());
                let body = TextBody { id, bytes: bytes.len() as u32, names: names::TEXT, ..TextBody::default() };
                t.event_at(tid, tsc, nvtx::kind::TEXT, 0, &body, bytes.as_bytes(), &[]);
                let (kind, number) =
                    if of_process { (nvtx::kind::START, text) } else { (nvtx::kind::PUSH, depth[thread]) };
                depth[thread] += u64::from(!of_process);
                let body = RangeBody { text: id, id: number, ..RangeBody::default() };
                t.event_at(tid, tsc, kind, 0, &body, &[], &[]);
            }
            Act::End(text) if text % 2 == 0 => {
                t.event_at(tid, tsc, nvtx::kind::END, 0, &EndBody { id: text, ..EndBody::default() }, &[], &[]);
            }
            Act::End(_) => {
                depth[thread] -= 1;
                let body = EndBody { id: depth[thread], ..EndBody::default() };
                t.event_at(tid, tsc, nvtx::kind::POP, 0, &body, &[], &[]);
            }
            Act::Copy(start, end) => {
                t.submit_timed(tid, tsc, 1, &synthetic::copy(HOST_AT, DEVICE_AT, 4096), number);
                if end > 0 {
                    ends.extend([number, GPU_ZERO + ZERO + start, number + 1, GPU_ZERO + ZERO + end]);
                }
                number += 2;
            }
            Act::Wait(since) => {
                let hold = HoldBody { addr: 0x5000, wait: after - since, ended: ended::UNLOCK, ..HoldBody::default() };
                t.event_at(tid, tsc, lock::kind::HOLD, u16::from(op::MUTEX_LOCK) << 8, &hold, &[], &[]);
            }
        }
    }
    let ends: Vec<u8> = ends.into_iter().flat_map(u64::to_le_bytes).collect();
    let body = EndsBody { count: (ends.len() / 16) as u32, pad: 0, settled: 0 };
    t.event_at(stamp::WRITER, 100_050_000, stamp::kind::ENDS, 0, &body, &ends, &[]);
    t.tsc = 101_000_000;
    change(&mut t);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ranges.doorbell");
    t.write(&path);
    let r = Recording::open(&path).unwrap();
    let filter = Filter::default();
    Found { ranges: lock_analysis::ranges(&r, &filter).unwrap(), each: lock_analysis::each_range(&r, &filter).unwrap() }
}

/// Range 1 of the first thread has a nested one, 3. The second thread submits for it, and is in range 2 of the process. Range 5 has no work.
const REQUEST: &[(usize, u64, Act)] = &[
    (0, 0, Act::Begin(1)),
    (1, 500, Act::Begin(2)),
    (0, 1_000, Act::Copy(3_000, 6_000)),
    (0, 2_000, Act::Begin(3)),
    (1, 2_500, Act::Copy(5_000, 9_000)),
    // Of this wait, 1,000 are after the copies.
    (0, 10_000, Act::Wait(8_000)),
    (0, 11_000, Act::End(3)),
    (0, 12_000, Act::Copy(14_000, 25_000)),
    (0, 20_000, Act::End(1)),
    (1, 30_000, Act::End(2)),
    (1, 40_000, Act::Begin(5)),
    (1, 40_500, Act::End(5)),
    (0, 50_000, Act::Begin(7)),
    (0, 50_100, Act::Copy(50_200, 50_300)),
];

#[test]
fn parts_of_a_range_do_not_overlap_and_work_may_end_after_it() {
    let all = found(REQUEST, |_| ());
    let request = all.one(1);
    let parts = RangeParts { gpu_ns: 12_000, lock_ns: 1_000, queued_ns: 4_000, other_ns: 3_000, after_ns: 5_000 };
    assert_eq!((request.range.ns, request.parts), (Some(20_000), Some(parts)));
    let own = RangeWork {
        runs: 2,
        ns: 14_000,
        busy_ns: 14_000,
        copies: 2,
        copies_ns: 14_000,
        queued_ns: 2_000 + 2_000,
        idle_ns: 25_000 - 14_000,
        without_time: 0,
    };
    let both = RangeWork {
        runs: 3,
        ns: 18_000,
        busy_ns: 17_000,
        copies: 3,
        copies_ns: 18_000,
        queued_ns: 4_000 + 2_000,
        idle_ns: 25_000 - 17_000,
        without_time: 0,
    };
    assert_eq!((request.work, request.range.all_threads), (Some(own), Some(both)));
    assert_eq!((request.counts.copies, request.counts.copy_bytes), (2, 8192));
    assert_eq!((request.counts.lock_waits, request.counts.lock_wait_ns), (Some(1), Some(2_000)));
    // The nested one: its thread submits nothing in it, and waits.
    let nested = all.one(3);
    let parts = RangeParts { gpu_ns: 4_000, lock_ns: 1_000, queued_ns: 2_500, other_ns: 1_500, after_ns: 0 };
    assert_eq!((nested.parts, nested.work.unwrap().runs), (Some(parts), 0));
    // Of the process: both threads, and all waits.
    let process = all.one(2);
    assert_eq!((process.work, process.range.all_threads), (Some(both.after(5_000)), Some(both.after(5_000))));
    assert_eq!((process.parts.unwrap().lock_ns, process.counts.copies), (1_000, 3));
}

#[test]
fn a_range_without_work_is_idle_and_one_without_end_has_no_time() {
    let all = found(REQUEST, |_| ());
    let idle = RangeWork { idle_ns: 500, ..RangeWork::default() };
    assert_eq!((all.one(5).work, all.one(5).range.all_threads), (Some(idle), Some(idle)));
    assert_eq!(all.one(5).parts, Some(RangeParts { other_ns: 500, ..RangeParts::default() }));
    let row = all.row(7);
    assert_eq!((row.unfinished, row.counts.copies, row.work), (1, 1, Some(RangeWork::default())));
    assert_eq!((all.each.unfinished, all.each.left_out, all.each.not_counted), (1, 0, 0));
    // The longest first.
    let order: Vec<&str> = all.each.ranges.iter().map(|row| row.range.text.as_str()).collect();
    assert_eq!(order, ["range 2", "range 1", "range 3", "range 5"]);
}

#[test]
fn what_has_no_time_is_counted_and_neither_busy_nor_queued() {
    let acts = [
        (0, 0, Act::Begin(1)),
        (0, 1_000, Act::Copy(2_000, 3_000)),
        (0, 4_000, Act::Copy(5_000, 0)),
        (0, 10_000, Act::End(1)),
    ];
    let work = found(&acts, |_| ()).one(1).work.unwrap();
    assert_eq!((work.runs, work.copies, work.without_time), (1, 1, 1));
    assert_eq!((work.busy_ns, work.queued_ns, work.idle_ns), (1_000, 1_000, 9_000));
}

#[test]
fn a_row_adds_up_its_ranges() {
    let twice: Vec<_> = [0, 100_000]
        .iter()
        .flat_map(|by| REQUEST[..12].iter().map(move |a| (a.0, a.1 + by, later(a.2, *by))))
        .collect();
    let (once, twice) = (found(&REQUEST[..12], |_| ()), found(&twice, |_| ()));
    for text in [1, 2, 3, 5] {
        let (one, two) = (once.row(text), twice.row(text));
        let mut sum = one.all_threads.unwrap();
        assert_eq!((one.work, one.all_threads), (once.one(text).work, once.one(text).range.all_threads));
        sum += sum;
        assert_eq!((two.count, two.all_threads, two.ns), (2, Some(sum), 2 * one.ns));
    }
}

fn later(act: Act, by: u64) -> Act {
    match act {
        Act::Copy(start, end) => Act::Copy(start + by, end + by),
        Act::Wait(since) => Act::Wait(since + by),
        act => act,
    }
}

#[test]
fn without_times_of_the_gpu_there_is_no_work() {
    let all = found(REQUEST, |t| t.header.gpu_times = false);
    assert!(all.ranges.ranges.iter().all(|row| row.work.is_none() && row.all_threads.is_none()));
    assert!(all.each.ranges.iter().all(|row| row.work.is_none() && row.parts.is_none()));
    assert_eq!((all.one(1).counts.copies, all.one(1).counts.lock_wait_ns), (2, Some(2_000)));
    assert!(!serde_json::to_string(&all.each).unwrap().contains("all_threads"));
}

trait After {
    /// Its range ended so much later.
    fn after(self, ns: u64) -> Self;
}

impl After for RangeWork {
    fn after(self, ns: u64) -> RangeWork {
        // (It began 500 later.)
        RangeWork { idle_ns: self.idle_ns + ns - 500, ..self }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Each moment is counted by itself, and the sums are the figures.
    #[test]
    fn parts_are_what_each_moment_is(
        span in (0u64..50, 50u64..300),
        of_process: bool,
        copies in proptest::collection::vec((0usize..2, 0u64..400, 0u64..100, 0u64..100), 0..8),
        waits in proptest::collection::vec((0usize..2, 0u64..400, 1u64..100), 0..4),
    ) {
        let (began, ended) = span;
        let text = if of_process { 2 } else { 1 };
        let mut acts = vec![(0, began, Act::Begin(text))];
        acts.extend(copies.iter().map(|&(thread, at, queued, ran)| (thread, at, Act::Copy(at + queued, at + queued + ran))));
        acts.extend(waits.iter().map(|&(thread, since, ticks)| (thread, since + ticks, Act::Wait(since))));
        acts.push((0, ended, Act::End(text)));
        let all = found(&acts, |_| ());
        let (row, ns) = (all.one(text), ended - began);
        let inside: Vec<_> = copies.iter().filter(|c| (began..=ended).contains(&c.1)).collect();
        let last = inside.iter().map(|c| c.1 + c.2 + c.3).max().unwrap_or(0).max(ended);
        let on_gpu = |tick| inside.iter().any(|c| (c.1 + c.2..c.1 + c.2 + c.3).contains(&tick));
        let queued = |tick| inside.iter().any(|c| (c.1..c.1 + c.2).contains(&tick));
        // (A wait counts where it ended.)
        let waited = |tick| {
            let mine = waits.iter().filter(|w| of_process || w.0 == 0).filter(|w| (began..=ended).contains(&(w.1 + w.2)));
            mine.into_iter().any(|w| (w.1..w.1 + w.2).contains(&tick))
        };
        let mut parts = RangeParts { after_ns: last - ended, ..RangeParts::default() };
        for tick in began..ended {
            *match tick {
                tick if on_gpu(tick) => &mut parts.gpu_ns,
                tick if waited(tick) => &mut parts.lock_ns,
                tick if queued(tick) => &mut parts.queued_ns,
                _ => &mut parts.other_ns,
            } += 1;
        }
        prop_assert_eq!(row.parts, Some(parts));
        prop_assert_eq!(parts.gpu_ns + parts.lock_ns + parts.queued_ns + parts.other_ns, ns);
        let work = row.range.all_threads.unwrap();
        let ticks = |is: &dyn Fn(u64) -> bool| (began..last).filter(|tick| is(*tick)).count() as u64;
        prop_assert_eq!((work.busy_ns, work.queued_ns), (ticks(&on_gpu), ticks(&queued)));
        prop_assert_eq!(work.busy_ns + work.idle_ns, last - began);
        let own = row.work.unwrap();
        prop_assert!(own.runs <= work.runs && own.busy_ns <= work.busy_ns && own.queued_ns <= work.queued_ns);
    }
}
