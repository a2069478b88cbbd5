//! Memory does not grow with the number of channels that were freed.

mod synthetic;

use decode::Recording;
use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};
use synthetic::*;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: passes all calls to the system's allocator and only counts.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Ordering::Relaxed) + layout.size();
        PEAK.fetch_max(now, Ordering::Relaxed);
        // SAFETY: the caller guarantees it.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller guarantees it.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// A context, `n` channels one after the other in a slot, each with a copy and inline writes; some are never freed.
fn peak(n: u32) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut t = Tape::new();
    t.context(1);
    for i in 0..n {
        t.channel(1, 0, 0x6000_0000 + i, 1, 64);
        t.submit(1, 0, &[&copy_64_mib(), &inline(DEVICE_AT, &[1; 64]), &launch(QMD_AT, [1, 1, 1])]);
        // Each channel's submission is decoded with the classes bound to that channel.
        t.submit(1, 0, &[&copy(HOST_AT, DEVICE_AT, 4096)]);
        if i % 4 > 0 {
            t.end_channel(1, 0);
        }
        t.cut(1);
    }
    t.write(&path);
    drop(t);
    let r = Recording::open(&path).unwrap();
    let before = NOW.load(Ordering::Relaxed);
    PEAK.store(before, Ordering::Relaxed);
    let s = decode::summary(&r).unwrap();
    let peak = PEAK.load(Ordering::Relaxed) - before;
    let n = u64::from(n);
    assert_eq!((s.channels, s.copies.copy_engine, s.copies.inline, s.launches), (n, 2 * n, n, n));
    assert_eq!(s.lost, 0);
    peak
}

#[test]
fn a_channel_that_went_leaves_a_line_and_no_decoder() {
    let (few, many) = (peak(100), peak(2100));
    let each = many.saturating_sub(few) / 2000;
    // A decoder is nearly 100 KiB.
    assert!(each < 8 << 10, "{each} bytes a channel");
}
