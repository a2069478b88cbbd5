//! The kernels that copy, as Rust functions: they do the same as the PTX, thread by thread where that could be wrong.

use super::{ANSWER_DEAF, ANSWER_LIMIT, ANSWER_RUNS, ANSWER_TORN};
use std::ffi::{c_int, c_uint, c_void};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Instant;

pub const RESIDENT: u64 = 0x122;
pub const RESIDENT_CLUSTERS: u64 = 0x123;

/// Blocks of the largest cluster, and clusters that run at the same time, as CUDA's queries return them.
pub static LARGEST_CLUSTER: AtomicU64 = AtomicU64::new(16);
pub static CLUSTERS_AT_ONCE: AtomicU64 = AtomicU64::new(8);
/// Clusters of a launch that see commands; the others begin after those have ended.
pub static CLUSTERS_RUN: AtomicU64 = AtomicU64::new(16);
/// Not 0: all blocks are on one multiprocessor.
pub static CROWDED: AtomicU64 = AtomicU64::new(0);
/// Not 0: resident kernels answer but do not copy.
pub static IDLE: AtomicU64 = AtomicU64::new(0);
/// Launches of resident kernels, and running clusters.
pub static LAUNCHES: AtomicU64 = AtomicU64::new(0);
pub static RUNS: AtomicU64 = AtomicU64::new(0);

/// `CUlaunchConfig`.
#[repr(C)]
pub struct Config {
    pub grid: [c_uint; 3],
    pub block: [c_uint; 3],
    pub shared: c_uint,
    pub stream: *mut c_void,
    pub attributes: *const Attribute,
    pub count: c_uint,
}

/// `CUlaunchAttribute`.
#[repr(C)]
pub struct Attribute {
    pub number: c_int,
    pub padding: c_int,
    pub value: [c_uint; 16],
}

/// Blocks of a cluster, if that is the only attribute.
///
/// # Safety
/// `config` is a configuration with `count` attributes.
pub unsafe fn cluster(config: *const Config) -> Option<u32> {
    // SAFETY: the caller's promise.
    let attributes = unsafe { std::slice::from_raw_parts((*config).attributes, (*config).count as usize) };
    match attributes {
        [Attribute { number: 4, value, .. }] if value[1..3] == [1, 1] => Some(value[0]),
        _ => None,
    }
}

/// The arguments of a resident kernel.
///
/// # Safety
/// Pointers to the arguments.
pub unsafe fn given(arguments: *mut *mut c_void) -> [u64; 4] {
    // SAFETY: the caller's promise.
    unsafe {
        let wide = |n: usize| (*arguments.add(n)).cast::<u64>().read();
        [wide(0), wide(1), (*arguments.add(2)).cast::<u32>().read().into(), wide(3)]
    }
}

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
pub fn launched(by_elements: bool, threads: u32, [to, from, bytes]: [u64; 3]) {
    let threads = u64::from(threads);
    for thread in 0..threads {
        if !by_elements {
            copy_by(thread, threads, [to, from, bytes]);
            continue;
        }
        let words = if (to | from).is_multiple_of(4) { bytes / 4 } else { 0 };
        if thread < words {
            let value = word(from + 4 * thread).load(Ordering::Relaxed);
            word(to + 4 * thread).store(value, Ordering::Relaxed);
        } else if thread + 3 * words < bytes {
            byte(from + thread + 3 * words, to + thread + 3 * words);
        }
    }
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

/// Resident kernels: a thread for each cluster.
pub fn resident([clusters, size]: [u32; 2], [mailbox, host, limit]: [u64; 3], seen: u32) -> JoinHandle<()> {
    LAUNCHES.fetch_add(1, Ordering::SeqCst);
    RUNS.fetch_add(clusters.into(), Ordering::SeqCst);
    let limit = match ANSWER_LIMIT.load(Ordering::SeqCst) {
        0 => limit,
        sooner => sooner,
    };
    let at_once = CLUSTERS_RUN.load(Ordering::SeqCst) as u32;
    let cluster = move |cluster| {
        for block in cluster * size..(cluster + 1) * size {
            let place = if CROWDED.load(Ordering::SeqCst) == 0 { 2 * block + 1 } else { 1 };
            word(host + 128 + 4 * u64::from(block)).store(place, Ordering::Release);
        }
        one_cluster([cluster, clusters], [mailbox, host, limit], seen);
    };
    std::thread::spawn(move || {
        for wave in (0..clusters).step_by(at_once.max(1) as usize) {
            let wave: Vec<_> =
                (wave..clusters.min(wave + at_once)).map(|n| std::thread::spawn(move || cluster(n))).collect();
            wave.into_iter().for_each(|thread| drop(thread.join()));
        }
    })
}

fn one_cluster([cluster, clusters]: [u32; 2], [mailbox, host, limit]: [u64; 3], mut seen: u32) {
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
            // A warp's 32 threads at a time: the clusters get warps in turn.
            const WARPS: u64 = 16;
            let step = u64::from(clusters) * WARPS * 32;
            for warp in 0..WARPS {
                let first = (warp * u64::from(clusters) + u64::from(cluster)) * 32;
                (first..first + 32).for_each(|first| copy_by(first, step, [to, from, bytes]));
            }
        }
        word(host + 4 * u64::from(cluster)).store(number, Ordering::Release);
        (seen, since) = (number, Instant::now());
    }
    RUNS.fetch_sub(1, Ordering::SeqCst);
    word(host + 64 + 4 * u64::from(cluster)).store(why, Ordering::Release);
}

/// The kernel that answers, on a thread. `kind` is 0 for the number alone, 1 for the line, 2 for mail, 3 for a long message.
pub fn answer(kind: u64, [flag, to, ended, data]: [u64; 4], mut seen: u32, limit: u64) {
    // SAFETY: words of the caller's memory, which outlives the kernel.
    let word = |at: u64| unsafe { AtomicU32::from_ptr(at as *mut u32) };
    let (number, low, high) = match kind {
        0 => (flag, flag, flag),
        1 => (flag + 8, flag, flag + 4),
        3 => (flag + 56, flag, flag + 4),
        _ => (flag + 4, flag, flag + 8),
    };
    let (mut since, mut why) = (std::time::Instant::now(), 2);
    while (since.elapsed().as_nanos() as u64) < limit {
        let value = if ANSWER_DEAF.load(Ordering::SeqCst) == 0 { word(number).load(Ordering::Acquire) } else { seen };
        if value == u32::MAX {
            why = 1;
            break;
        }
        // Here a line is not stored in one piece: the second number shows that all of it has arrived.
        if value != seen && (kind != 2 || word(flag + 12).load(Ordering::Acquire) == value) {
            let bytes = [low, high].map(|at| word(at).load(Ordering::Acquire));
            let line: [u32; 16] = std::array::from_fn(|n| {
                word(if kind == 3 { flag + 4 * n as u64 } else { flag }).load(Ordering::Acquire)
            });
            let sum = (0..15).fold(0u32, |sum, n| {
                sum.wrapping_add(line[n].wrapping_mul(0x9e37_79b1u32.wrapping_mul(2 * n as u32 + 1)))
            });
            if kind == 3 && (sum != line[15] || line[14] != value) {
                ANSWER_TORN.fetch_add(1, Ordering::SeqCst);
                continue;
            }
            match kind {
                0 => word(to).store(value, Ordering::Release),
                1 => {
                    for (i, part) in [bytes[0], bytes[1], value, value].into_iter().enumerate() {
                        word(to + 4 * i as u64).store(part, Ordering::Release);
                    }
                }
                3 => line.into_iter().enumerate().for_each(|(n, part)| {
                    word(to + 4 * n as u64).store(part, Ordering::Release);
                }),
                _ => {
                    word(data).store(bytes[0], Ordering::Release);
                    word(data + 4).store(bytes[1], Ordering::Release);
                    word(to).store(value, Ordering::Release);
                }
            }
            (seen, since) = (value, std::time::Instant::now());
        }
        std::thread::yield_now();
    }
    ANSWER_RUNS.fetch_sub(1, Ordering::SeqCst);
    word(ended).store(why, Ordering::Release);
}
