//! A recording of any size, like a recorder's for a program with many launches: the cost of walks is measured on it.

use super::*;
use tape::call::{self, CallBody, CallsBody, NameBody};
use tape::stamp::{self, EndsBody};

/// Threads, each with a channel for kernels and one for copies.
const THREADS: i32 = 4;
/// Kernels by their handles.
const KERNELS: u64 = 16;
/// Size of the chunks of a thread's events in bytes.
const CHUNK: usize = 64 << 10;
/// Number of ends that the recorder takes together, and nanoseconds from a doorbell to the next.
const AT_ONCE: u64 = 512;
const EVERY: u64 = 2_000;

/// The stream of one submission, after two thirds of them.
pub const RARE: u64 = 0x99;

/// Writes a recording of so many submissions. Of eight, seven launch a kernel that stores its end, and one copies. Each
/// is in a CUDA call.
pub fn large(path: &Path, submissions: u64) {
    let mut t = Tape::with_times();
    t.context(100);
    for thread in 0..THREADS {
        let (tid, slot) = (100 + thread, 2 * thread as u32);
        t.event(tid, call::kind::CALLS, 0, &CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
        t.channel(100, slot, 0x5c00_1000 + slot, 1, 1024);
        t.channel(100, slot + 1, 0x5c00_1001 + slot, 11, 1024);
    }
    for kernel in 0..KERNELS {
        let name = format!("_Z{}kernel_{kernel:02}Pi", 9);
        let body = NameBody { handle: 0xf000 + kernel, name: name.len() as u32, pad: 0 };
        t.event(100, call::kind::NAME, 0, &body, name.as_bytes(), &[]);
    }
    let mut w = t.begin(path);
    let (begin, mut number, mut ended) = (1_000_000, 0, 0);
    let mut all = Vec::new();
    for i in 0..submissions {
        let tsc = begin + EVERY * i;
        let tid = 100 + (i % THREADS as u64) as i32;
        let slot = 2 * (i % THREADS as u64) as u32;
        let (call, stream) = ((i / THREADS as u64) as u32 + 1, 0x50 + i % THREADS as u64);
        let stream = if i == submissions / 3 * 2 { RARE } else { stream };
        if i % (200_000_000 / EVERY) == 0 {
            t.clocks(tsc, tsc);
        }
        let is_copy = i / THREADS as u64 % 8 == 7;
        let function = if is_copy { 13 } else { 1 };
        t.call = RingBody { function, call, stream, object: 0xf0, ..RingBody::default() };
        if is_copy {
            t.submit_at(tid, tsc, slot + 1, &[&copy(HOST_AT, DEVICE_AT, 4096 << (i % 5))], 0, 1 << 12);
        } else {
            t.call.kernel = 0xf000 + i / 64 % KERNELS;
            let at = QMD_AT + 0x400 * (number % 1024);
            let data = inline(at + 0x200, &[i as u8; 0x90]);
            let words = [&data[..], &stamped_in(at, number, number % stamp::SLOTS, &[])].concat();
            t.submit_at(tid, tsc, slot, &[&words], 0, 1 << 12);
            all.extend([number, GPU_ZERO + tsc + 6_000].map(u64::to_le_bytes).concat());
            number += 1;
        }
        t.call = RingBody::default();
        let size = if is_copy { 4096 << (i % 5) } else { 0 };
        let done = CallBody { began: tsc - 700, stream, size, seq: call, ..CallBody::default() };
        t.event_at(tid, tsc + 300, call::kind::CALL, function as u16, &done, &[], &[]);
        if number - ended == AT_ONCE || i + 1 == submissions {
            let body = EndsBody { count: (number - ended) as u32, pad: 0, settled: number };
            t.event_at(stamp::WRITER, tsc + 100_000, stamp::kind::ENDS, 0, &body, &all, &[]);
            all.clear();
            ended = number;
        }
        t.pour(&mut w, CHUNK);
    }
    t.tsc = begin + EVERY * submissions;
    t.clocks(t.tsc, t.tsc);
    t.pour(&mut w, 1);
    t.finish(w);
}
