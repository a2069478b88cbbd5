//! A stream that waits for a submission costs CUDA's call and a submission: no allocation, and no wake of a thread for each wait. Alone in its process,
//! which has one such thread.

mod rig;

use cuda::DeviceBuffer;
use rig::{BYTES, LIMIT, QUEUED, one_lane, rig};
use std::ffi::c_void;
use submit::{InOrder, Piece, Stream};
use test_support::counting::{Counting, cost};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// How often the thread that looks after promised words went to sleep; `None` before it has its name.
fn sleeps() -> Option<u64> {
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path();
        if std::fs::read_to_string(path.join("comm")).is_ok_and(|name| name.trim() == "doorbell-words") {
            let status = std::fs::read_to_string(path.join("status")).unwrap();
            let line = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
            return line.unwrap().trim().parse().ok();
        }
    }
    None
}

#[test]
fn a_stream_that_waits_allocates_nothing_and_wakes_no_thread_each_time() {
    let rig = rig(true, &one_lane());
    let s = &rig.session;
    let device = DeviceBuffer::new(&rig.context, BYTES).unwrap();
    let to = s.pin(device.address(), BYTES as u64).unwrap();
    let from = s.allocate(BYTES as u64, false).unwrap();
    let piece = Piece { to, to_at: 0, from, from_at: 0, bytes: 256 };
    // SAFETY: the stand-in does not use streams.
    let stream = || unsafe { Stream::from_raw(0x77 as *mut c_void) };
    QUEUED.lock().unwrap().reserve(10_000);
    let wait = || {
        let copy = s.copy_in(&[piece], &InOrder::default()).unwrap();
        s.wait(copy, LIMIT).unwrap();
        let mut ended = None;
        let (allocations, _) = cost(false, || ended = Some(s.stream_wait(stream(), copy)));
        ended.unwrap().unwrap();
        allocations
    };
    // The first starts the thread.
    wait();
    let start = std::time::Instant::now();
    let before = std::iter::repeat_with(sleeps).take_while(|_| start.elapsed() < LIMIT).flatten().next().unwrap();
    // More than the thread remembers between two looks.
    let allocations: u64 = (0..5000).map(|_| wait()).sum();
    assert_eq!(allocations, 0);
    // It looks ten times a second. A look may find that all promises are kept, and then the next promise wakes it; and it may wait for the list.
    let (slept, looks) = (sleeps().unwrap() - before, start.elapsed().as_millis() as u64 / 100 + 1);
    assert!(slept < 100 + 10 * looks, "{slept} sleeps in {looks} looks and 5,000 waits");
    s.close().unwrap();
}
