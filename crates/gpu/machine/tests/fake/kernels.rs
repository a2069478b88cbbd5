//! The kernels that copy, as Rust functions: they do the same as the PTX, thread by thread where that could be wrong.

use super::{ANSWER_DEAF, ANSWER_LAUNCHES, ANSWER_LIMIT, ANSWER_RUNS, ANSWER_TORN};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

pub const RESIDENT: u64 = 0x122;
pub const LONG: u64 = 0x123;
pub const SHORT: u64 = 0x125;

/// Not 0: resident kernels answer but do not copy.
pub static IDLE: AtomicU64 = AtomicU64::new(0);
/// Launches of resident kernels, and those that run.
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);
pub static RUNS: AtomicU64 = AtomicU64::new(0);

fn word<'a>(at: u64) -> &'a AtomicU32 {
    // SAFETY: words of the caller's memory, which outlives the kernel.
    unsafe { AtomicU32::from_ptr(at as *mut u32) }
}

/// One byte.
fn byte(from: u64, to: u64) {
    // SAFETY: memory of the kernel's transfer.
    unsafe { (to as *mut u8).write((from as *const u8).read()) };
}

/// The copy by one of `step` threads: head and tail byte by byte. Between them it stores 16 aligned bytes, from two aligned
/// pieces of the source if the source is not aligned the same.
fn copy_by(first: u64, step: u64, [to, from, bytes]: [u64; 3]) {
    let head = (to.wrapping_neg() & 15).min(bytes);
    if first < head {
        byte(from + first, to + first);
    }
    let (s, d, rest) = (from + head, to + head, bytes - head);
    let tail = rest & 15;
    if (16..16 + tail).contains(&first) {
        let at = (rest & !15) + first - 16;
        byte(s + at, d + at);
    }
    let skew = s & 15;
    let mut i = first;
    while i < rest >> 4 {
        let at = s - skew + 16 * i;
        // SAFETY: as above; where the source is not aligned, the second 16 bytes contain part of the range too.
        let value = unsafe {
            let low = (at as *const u128).read();
            let high = if skew == 0 { 0 } else { ((at + 16) as *const u128).read() };
            if skew == 0 { low } else { low >> (8 * skew) | high << (128 - 8 * skew) }
        };
        // SAFETY: as above.
        unsafe { ((d + 16 * i) as *mut u128).write(value) };
        i += step;
    }
}

/// A launched kernel with this many threads.
pub fn launched(threads: u32, range: [u64; 3]) {
    (0..threads.into()).for_each(|thread| copy_by(thread, threads.into(), range));
}

/// Consumes a device's frame, with one thread after another, and then waits until the time is over.
pub fn consumed([frame, pages, expected]: [u64; 3], time: std::time::Duration, [told, wrong]: [u64; 2], number: u32) {
    let begun = Instant::now();
    assert_eq!(word(wrong).load(Ordering::Acquire), 0, "the counter of pages is 0 between launches");
    // SAFETY: the frame's pages, which are within the buffer.
    let found = |page: u64| unsafe { ((frame + 4096 * page) as *const u64).read_volatile() };
    let count = (0..pages).filter(|page| found(*page) != expected.wrapping_add(*page)).count();
    std::thread::sleep(time.saturating_sub(begun.elapsed()));
    word(told + 4).store(count as u32, Ordering::Relaxed);
    word(told).store(number, Ordering::Release);
}

/// Reports that the kernel is done.
pub fn end([told, count]: [u64; 2], number: u32) {
    if told != 0 {
        assert_eq!(word(count).load(Ordering::Acquire), 0, "the counter of blocks is 0 between launches");
        word(told).store(number, Ordering::Release);
    }
}

/// The limit of a kernel that waits.
fn limit(given: u64) -> u64 {
    match ANSWER_LIMIT.load(Ordering::SeqCst) {
        0 => given,
        sooner => sooner,
    }
}

/// The resident kernel of this many blocks, on one thread.
pub fn resident(blocks: u32, [mailbox, host, given]: [u64; 3], seen: u32) -> JoinHandle<()> {
    LAUNCHES.fetch_add(1, Ordering::SeqCst);
    RUNS.fetch_add(1, Ordering::SeqCst);
    let limit = limit(given);
    std::thread::spawn(move || copies(512 * u64::from(blocks), [mailbox, host, limit], seen))
}

fn copies(threads: u64, [mailbox, host, limit]: [u64; 3], mut seen: u32) {
    let load = |n: u64| word(mailbox + 4 * n).load(Ordering::Acquire);
    let (mut since, mut why) = (Instant::now(), 2);
    while (since.elapsed().as_nanos() as u64) < limit {
        let number = if ANSWER_DEAF.load(Ordering::SeqCst) == 0 { load(3) } else { seen };
        if number == seen || load(7) != number {
            std::thread::yield_now();
            continue;
        }
        if number == u32::MAX {
            why = 1;
            break;
        }
        let wide = |low: u64, high: u64| u64::from(load(low)) | u64::from(load(high)) << 32;
        let [from, to, bytes] = [wide(0, 1), wide(2, 4), wide(5, 6)];
        if IDLE.load(Ordering::SeqCst) == 0 {
            (0..threads).for_each(|first| copy_by(first, threads, [to, from, bytes]));
        }
        word(host + 56).store(number, Ordering::Release);
        (seen, since) = (number, Instant::now());
    }
    RUNS.fetch_sub(1, Ordering::SeqCst);
    word(host + 64).store(why, Ordering::Release);
}

/// The kernel that answers messages, on a thread.
pub fn answer(is_long: bool, [mailbox, host, given]: [u64; 3], seen: u32) -> JoinHandle<()> {
    ANSWER_LAUNCHES.fetch_add(1, Ordering::SeqCst);
    ANSWER_RUNS.fetch_add(1, Ordering::SeqCst);
    let limit = limit(given);
    std::thread::spawn(move || answers(is_long, [mailbox, host, limit], seen))
}

fn answers(is_long: bool, [mailbox, host, limit]: [u64; 3], mut seen: u32) {
    let number = if is_long { 14 } else { 2 };
    let (mut since, mut why) = (Instant::now(), 2);
    while (since.elapsed().as_nanos() as u64) < limit {
        let load = |n: u64| word(mailbox + 4 * n).load(Ordering::Acquire);
        let value = if ANSWER_DEAF.load(Ordering::SeqCst) == 0 { load(number) } else { seen };
        if value == u32::MAX {
            why = 1;
            break;
        }
        if value != seen {
            let line: [u32; 16] = std::array::from_fn(|n| load(n as u64));
            let sum = (0..15).fold(0u32, |sum, n| {
                sum.wrapping_add(line[n].wrapping_mul(0x9e37_79b1u32.wrapping_mul(2 * n as u32 + 1)))
            });
            // Here a line is not stored in one piece: the second number shows that all of a short one has arrived.
            let is_whole = if is_long { sum == line[15] && line[14] == value } else { line[3] == value };
            if !is_whole {
                ANSWER_TORN.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            for (n, part) in line.into_iter().enumerate().take(number as usize + 2) {
                word(host + 4 * n as u64).store(part, Ordering::Release);
            }
            (seen, since) = (value, Instant::now());
        }
        std::thread::yield_now();
    }
    ANSWER_RUNS.fetch_sub(1, Ordering::SeqCst);
    word(host + 64).store(why, Ordering::Release);
}
