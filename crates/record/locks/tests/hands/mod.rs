//! Threads with a number and a purpose, and the data that they guard.
#![allow(dead_code)]

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use locks::{Clock, Deadline, Tid};

thread_local! {
    static ME: Tid = Tid::current();
}

pub fn me() -> Tid {
    ME.with(|me| *me)
}

pub fn within(milliseconds: u64) -> Deadline {
    Deadline::after(Clock::Monotonic, Duration::from_millis(milliseconds))
}

pub fn within_real(milliseconds: u64) -> Deadline {
    Deadline::after(Clock::Realtime, Duration::from_millis(milliseconds))
}

pub fn invalid() -> Deadline {
    Deadline::new(Clock::Realtime, libc::timespec { tv_sec: 0, tv_nsec: 1_000_000_000 })
}

pub fn long_past() -> Deadline {
    Deadline::new(Clock::Realtime, libc::timespec { tv_sec: -5, tv_nsec: 0 })
}

/// Waits until `done` returns true; panics rather than hang forever.
pub fn until(what: &str, done: impl Fn() -> bool) {
    for _ in 0..20_000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    panic!("20 s, and still not: {what}");
}

/// Whether a thread of this process sleeps in the kernel.
pub fn sleeps(tid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap_or_default();
    stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with('S'))
}

/// Data that shows when its lock let two threads in: words that are equal only outside a write, and counts of threads inside.
#[derive(Default)]
pub struct Data {
    words: [AtomicU64; 4],
    writers: AtomicUsize,
    readers: AtomicUsize,
    pub broken: AtomicBool,
}

impl Data {
    /// Not atomic on purpose: a failed exclusion loses an increment.
    pub fn write(&self) {
        let alone = self.writers.fetch_add(1, Ordering::Relaxed) == 0 && self.readers.load(Ordering::Relaxed) == 0;
        let first = self.words[0].load(Ordering::Relaxed);
        let mut same = true;
        for word in &self.words {
            same &= word.load(Ordering::Relaxed) == first;
            word.store(first + 1, Ordering::Relaxed);
        }
        if !(alone && same) {
            self.broken.store(true, Ordering::Relaxed);
        }
        self.writers.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn read(&self) {
        self.readers.fetch_add(1, Ordering::Relaxed);
        let first = self.words[0].load(Ordering::Relaxed);
        let same = self.words.iter().all(|word| word.load(Ordering::Relaxed) == first);
        if !same || self.writers.load(Ordering::Relaxed) != 0 {
            self.broken.store(true, Ordering::Relaxed);
        }
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    pub fn writes(&self) -> u64 {
        self.words[0].load(Ordering::Relaxed)
    }
}

/// xorshift: selects the next operation.
pub struct Dice(u64);

impl Dice {
    pub fn new(seed: u64) -> Dice {
        Dice(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % sides
    }
}
