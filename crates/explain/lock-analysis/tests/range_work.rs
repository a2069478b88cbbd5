//! The GPU's work in ranges of NVTX.

#[path = "../../decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use decode::kernels::kernels;
use decode::walk::{Filter, Pattern};
use schema::ranges::RangeWork;
use tape::nvtx::{self, EndBody, NvtxBody, RangeBody, TextBody, names, state};

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
    assert_eq!((own, both.runs), (RangeWork::default(), 4), "{all:?}");
    assert!(both.busy_ns > 0 && both.busy_ns < both.ns, "{both:?}");
    assert_eq!((of("request").work, of("request").all_threads), (Some(both), Some(both)));
    // The kernels of all threads, and of the range's own.
    let pattern = Pattern::new("^step$").unwrap();
    let launches = |filter: Filter| kernels(&r, &filter).unwrap().kernels.iter().map(|k| k.launches).sum::<u64>();
    let during = Some(decode::during(&r, &pattern).unwrap());
    assert_eq!(launches(Filter { during, ..Filter::default() }), 4);
    assert_eq!(launches(Filter { range: Some(pattern), ..Filter::default() }), 0);
}
