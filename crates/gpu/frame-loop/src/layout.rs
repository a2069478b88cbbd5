//! The layout of a loop's memory, for C and numpy. All numbers are little-endian; all times are nanoseconds of CLOCK_MONOTONIC, and 0 means no time.
//!
//! ```text
//! 0x0000  Header: Shape, Source, Sink, Progress, Counters, two histograms
//! input_at + n * input_stride    slot n: InputHead (64 bytes), then `input_bytes`
//! result_at + n * result_stride  slot n: ResultHead (128 bytes), then `result_bytes`
//! ```
//!
//! A producer that writes here itself puts number `m`, counted from 0, into slot `m % slots`:
//! 1. The slot is free if `m - Progress::taken < slots` (in order), or `Progress::reading != m + 1 - slots` (newest); the first `slots` are free.
//! 2. It writes the head and the bytes, and then stores `m + 1` in `Source::committed`, sequentially consistent.
//! 3. If `Progress::sleeps` is not 0, it calls `Loop::wake`.
//!
//! A consumer that reads here itself reads number `p`, which is below `Progress::published`, from slot `p % results`. Before and after it reads,
//! `ResultHead::stamp` must be `2 * p + 2`; otherwise the slot has another result. With `Full::Stop` it stores in `Sink::read` how many it has read.

use crate::histogram::Buckets;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// `DBLOOP01`. 0 in a fork's child, where the memory is empty.
pub const MAGIC: u64 = u64::from_le_bytes(*b"DBLOOP01");
/// Version of this page.
pub const VERSION: u32 = 1;

/// The start of the memory.
#[repr(C, align(128))]
pub struct Header {
    pub shape: Shape,
    pub source: Source,
    pub sink: Sink,
    pub progress: Progress,
    pub counters: Counters,
    /// From the tick (or, as frames come, from the commit) until the result was seen.
    pub done: Buckets,
    /// How much later than requested the thread woke up: after its tick, or after the commit for which it slept.
    pub wake: Buckets,
}

/// Written once, before the loop starts.
#[repr(C, align(128))]
pub struct Shape {
    pub magic: AtomicU64,
    pub version: AtomicU32,
    pub header_bytes: AtomicU32,
    pub total_bytes: AtomicU64,
    pub slots: AtomicU32,
    pub results: AtomicU32,
    pub input_at: AtomicU64,
    pub input_stride: AtomicU64,
    pub input_bytes: AtomicU64,
    pub result_at: AtomicU64,
    pub result_stride: AtomicU64,
    pub result_bytes: AtomicU64,
}

/// Written by the producer, and by the thread that stops the loop.
#[repr(C, align(128))]
pub struct Source {
    /// How many slots were committed.
    pub committed: AtomicU64,
    /// A futex: a change wakes the loop.
    pub bell: AtomicU32,
    /// Not 0: the loop ends.
    pub stop: AtomicU32,
}

/// Written by the consumer.
#[repr(C, align(128))]
pub struct Sink {
    /// How many results were read.
    pub read: AtomicU64,
}

/// Written by the loop.
#[repr(C, align(128))]
pub struct Progress {
    /// Slots before this one are free again (in order).
    pub taken: AtomicU64,
    /// The number of the slot that is being read plus 1, or 0 (newest).
    pub reading: AtomicU64,
    /// How many results were published.
    pub published: AtomicU64,
    /// Not 0 while the thread sleeps until a slot is committed.
    pub sleeps: AtomicU32,
    /// See [`crate::State`].
    pub state: AtomicU32,
    /// See [`crate::Reason`].
    pub reason: AtomicU32,
    /// The channel's error (Xid) if it was killed.
    pub code: AtomicU32,
}

/// Written by the loop; each is right by itself, at any time.
#[repr(C, align(128))]
pub struct Counters {
    /// Frames that were launched and whose results were published.
    pub frames: AtomicU64,
    /// Ticks that passed without a launch.
    pub missed: AtomicU64,
    /// Results after their deadline.
    pub late: AtomicU64,
    /// Inputs that were not launched: overtaken by newer ones, or too late.
    pub skipped: AtomicU64,
    /// Ticks without an input.
    pub starved: AtomicU64,
    /// Results that overwrote an unread one.
    pub overruns: AtomicU64,
    /// Launches that found another thread launching, and were tried again.
    pub busy: AtomicU64,
    /// Launches whose result was not waited for, because the loop was stopped or its limit had passed.
    pub abandoned: AtomicU64,
}

/// Before each input.
#[repr(C, align(64))]
pub struct InputHead {
    /// The producer's number for it.
    pub sequence: AtomicU64,
    /// When the result is due (0: as in the loop's options).
    pub deadline: AtomicU64,
    /// When it was committed.
    pub time_in: AtomicU64,
    /// Copied to the result.
    pub tag: AtomicU64,
}

/// Before each result.
#[repr(C, align(128))]
pub struct ResultHead {
    /// `2 * p + 1` while the result of number `p` is written, `2 * p + 2` afterwards.
    pub stamp: AtomicU64,
    /// The tick, or the number of the input; both count from 0.
    pub frame: AtomicU64,
    /// From the producer.
    pub sequence: AtomicU64,
    pub tag: AtomicU64,
    /// Time of the tick; as frames come, time of the input's commit.
    pub due: AtomicU64,
    pub time_in: AtomicU64,
    pub launched: AtomicU64,
    pub done: AtomicU64,
    /// 0: no deadline.
    pub deadline: AtomicU64,
    /// Inputs that were skipped since the result before this.
    pub skipped: AtomicU64,
    /// 0: done. 1: not launched, its deadline had passed.
    pub status: AtomicU32,
    /// 1: done after its deadline.
    pub late: AtomicU32,
}

pub const INPUT_HEAD: usize = size_of::<InputHead>();
pub const RESULT_HEAD: usize = size_of::<ResultHead>();

const _: () = {
    assert!(INPUT_HEAD == 64 && RESULT_HEAD == 128);
    assert!(size_of::<Shape>() == 128 && size_of::<Source>() == 128 && size_of::<Sink>() == 128);
    assert!(size_of::<Progress>() == 128 && size_of::<Counters>() == 128 && size_of::<Buckets>() == 9344);
    assert!(size_of::<Header>() == 5 * 128 + 2 * 9344);
    assert!(std::mem::offset_of!(Header, source) == 128 && std::mem::offset_of!(Header, sink) == 256);
    assert!(std::mem::offset_of!(Header, progress) == 384 && std::mem::offset_of!(Header, counters) == 512);
    assert!(std::mem::offset_of!(Header, done) == 640 && std::mem::offset_of!(Header, wake) == 640 + 9344);
    assert!(std::mem::offset_of!(Shape, input_at) == 32 && std::mem::offset_of!(Shape, result_at) == 56);
    assert!(std::mem::offset_of!(Progress, sleeps) == 24 && std::mem::offset_of!(Progress, code) == 36);
    assert!(std::mem::offset_of!(ResultHead, status) == 80 && std::mem::offset_of!(ResultHead, late) == 84);
};
