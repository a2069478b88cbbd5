//! How many launches `--no-data` cleans in a second: `cargo bench -p redact`.
//!
//! A launch is what CUDA 13 sends for an empty kernel on an H200 (387 words: constants, a QMD that orders, the kernel's
//! QMD), with its RING, ENTRY and CALL events. Each of eight threads launches on its own channel. Their events arrive
//! in chunks of what a ring holds after a millisecond. The time is the thread's CPU time, so that other programs on the
//! machine do not count.

use pushbuf::encode::{Words, inline_dma};
use pushbuf::qmd::{Layout, PcasAction, Qmd};
use redact::Scrubber;
use std::hint::black_box;
use tape::call::{self, CallBody};
use tape::event::{ChannelBody, EntryBody, Plain, RingBody, bytes_of, kind};

const COMPUTE: u8 = 1;
const THREADS: u32 = 8;
/// Launches in one chunk, and chunks of each thread.
const CHUNK: u64 = 64;
const CHUNKS: u64 = 16;
const TURNS: u32 = 40;

fn event<B: Plain>(to: &mut Vec<u8>, kind: u16, flags: u16, body: &B, payload: &[u32]) {
    let len = (16 + size_of::<B>() + 4 * payload.len()).next_multiple_of(8);
    let end = to.len() + len;
    to.extend(u64::to_ne_bytes(u64::from(kind) | u64::from(flags) << 16 | (len as u64) << 32));
    to.extend(u64::to_ne_bytes(1));
    to.extend_from_slice(bytes_of(body));
    to.extend(payload.iter().flat_map(|w| w.to_le_bytes()));
    to.resize(end, 0);
}

fn launch(thread: u64, n: u64) -> Vec<u32> {
    let mut buffer = [0; 512];
    let mut w = Words::new(&mut buffer);
    let place = |base: u64, step: u64| base + (thread << 24) + step * (n % 1000);
    let (order, kernel, constants) =
        (place(0x2_0100_0000, 0x800), place(0x2_0080_0000, 0x800), place(0x7f00_0000_0000, 0x1_0000));
    let mut write = |at: u64, bytes: &[u8]| {
        w.inline(COMPUTE, at, bytes, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).expect("there is room")
    };
    let bytes_of = |kind: u64| {
        let mut qmd = Qmd::new(Layout::of(4, 0).expect("a table"));
        for (name, value) in [("QMD_TYPE", kind), ("GRID_WIDTH", kind), ("GRID_HEIGHT", 1), ("GRID_DEPTH", 1)] {
            qmd.set(name, value).expect("it fits");
        }
        qmd.words().iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>()
    };
    write(constants, &[7; 528]);
    write(constants + 528, &[8; 16]);
    write(order, &bytes_of(1));
    w.pcas(COMPUTE, order, PcasAction::InvalidatePrefetchCopySchedule).expect("there is room");
    let mut write = |at: u64, bytes: &[u8]| {
        w.inline(COMPUTE, at, bytes, inline_dma::PITCH | inline_dma::NO_SYSMEMBAR).expect("there is room")
    };
    write(kernel, &bytes_of(2));
    write(0x2_0460_0000 + 8 * n % 4096, &[9; 4]);
    w.pcas(COMPUTE, kernel, PcasAction::InvalidatePrefetchCopySchedule).expect("there is room");
    w.report_release(COMPUTE, 0x2_0460_ffe0, n as u32).expect("there is room");
    w.as_slice().to_vec()
}

/// The chunk number `i` of a thread.
fn chunk(thread: u32, i: u64) -> Vec<u8> {
    let mut out = Vec::new();
    for seq in i * CHUNK + 1..=(i + 1) * CHUNK {
        let words = launch(thread.into(), seq);
        let n = words.len() as u32;
        event(
            &mut out,
            kind::RING,
            0,
            &RingBody { token: thread, slot: thread, seq, tid: 100 + thread, ..RingBody::default() },
            &[],
        );
        let gp = u64::from(n) << 42 | 0x1000;
        event(&mut out, kind::ENTRY, 0, &EntryBody { gp, seq, slot: thread, words: n, ..EntryBody::default() }, &words);
        event(
            &mut out,
            call::kind::CALL,
            call::FUNCTIONS[0].number,
            &CallBody { began: 1, seq: seq as u32, ..CallBody::default() },
            &[],
        );
    }
    out
}

fn of_this_thread() -> f64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes only the struct that it is given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut now) };
    now.tv_sec as f64 + now.tv_nsec as f64 / 1e9
}

fn main() {
    let mut channels = Vec::new();
    (0..THREADS).for_each(|slot| {
        event(
            &mut channels,
            kind::CHANNEL,
            0,
            &ChannelBody { slot, class: 0xc86f, entries: 1024, ..ChannelBody::default() },
            &[],
        );
        let mut first = [0; 4];
        let mut w = Words::new(&mut first);
        w.set_object(COMPUTE, 0xcbc0).expect("there is room");
        let n = w.as_slice().len() as u64;
        event(
            &mut channels,
            kind::ENTRY,
            0,
            &EntryBody { gp: n << 42, slot, words: n as u32, ..EntryBody::default() },
            w.as_slice(),
        );
    });
    let chunks: Vec<_> = (0..CHUNKS).flat_map(|i| (0..THREADS).map(move |t| chunk(t, i))).collect();
    let (launches, bytes) = (CHUNKS * CHUNK * u64::from(THREADS), chunks.iter().map(Vec::len).sum::<usize>());
    let mut best = f64::MAX;
    for _ in 0..TURNS {
        let mut scrubber = Scrubber::default();
        scrubber.clean(&mut channels.clone());
        let mut chunks = chunks.clone();
        let begun = of_this_thread();
        for chunk in &mut chunks {
            scrubber.clean(black_box(chunk));
        }
        best = best.min(of_this_thread() - begun);
    }
    let each = best / launches as f64;
    println!(
        "{:.0} launches/s, {:.0} ns and {} bytes a launch, {:.0} MB/s",
        1.0 / each,
        each * 1e9,
        bytes as u64 / launches,
        bytes as f64 / best / 1e6
    );
}
