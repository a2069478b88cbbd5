//! Ends of kernels (`record --gpu-times`): before a doorbell goes on, each kernel's QMD in its words is told to store when the kernel ended.
//!
//! The GPU writes into slots of the region, which CUDA has mapped for it ([`crate::hooks::cuda::stamps`]). The recorder takes ends from there, so a slot
//! is used again only when it has said so ([`Control::settled`]). A kernel that finds no free slot gets no stamp and is counted.
//!
//! Invariant: a word is changed only in a QMD of a version that is known, that the same segment hands to the scheduler, in a release that the program
//! has left disabled.

use super::channel;
use super::graphs;
use super::page;
use crate::process::sys;
use crate::record;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use pushbuf::qmd::end_time::{self, Found};
use tape::region::{Control, STAMPS_BYTES};
use tape::stamp::{ClockBody, LAYOUT, OWN_GPU, SLOTS, StampsBody, kind, payload, state};

/// The GPU's address of slot 0; 0 while nothing is stamped.
static AREA: AtomicU64 = AtomicU64::new(0);
/// The device whose channels are stamped; 0 until the thread that had the area mapped rings for the first time.
static DEVICE: AtomicU32 = AtomicU32::new(0);
static OWNER: AtomicU32 = AtomicU32::new(0);
/// Numbers that are kept free for threads that count at the same time.
pub const SPARE: u64 = 1024;

/// TIME_0 and TIME_1 of a usermode page (class 0xC361 and later).
const TIME_0: u64 = 0x80;
const TIME_1: u64 = 0x84;
/// Ticks of the time stamp counter between two readings of the GPU's clock: about a fifth of a second. The clocks drift by some 10 ppm, so what lies
/// between two readings is known within some nanoseconds.
const CLOCK_EVERY: u64 = 500_000_000;
static CLOCK_READ: AtomicU64 = AtomicU64::new(0);

/// Where the area lies for the CPU.
static CPU: AtomicU64 = AtomicU64::new(0);

/// From now on kernels are stamped: the area lies at these addresses of the GPU's and the CPU's. The calling thread launches on the device that has it.
pub fn begin(area: u64, cpu: u64) {
    graphs::begin();
    CPU.store(cpu, Ordering::Relaxed);
    DEVICE.store(0, Ordering::Relaxed);
    OWNER.store(record::tid() as u32, Ordering::Relaxed);
    // ORDERING: Release: the rest before the address that makes it count.
    AREA.store(area, Ordering::Release);
}

/// The area, if kernels are stamped now.
#[inline(always)]
pub fn area() -> u64 {
    AREA.load(Ordering::Relaxed)
}

/// The driver is about to unmap memory of the GPU's that begins at `base`: of the slots, no kernel may write there any more.
pub fn unmaps(base: u64) {
    let area = area();
    if area != 0 && base.wrapping_sub(area) < STAMPS_BYTES as u64 && AREA.swap(0, Ordering::AcqRel) != 0 {
        let body = StampsBody { layout: LAYOUT, state: state::CONTEXT_GONE, area, result: 0, pad: 0 };
        record::event(kind::STAMPS, 0, sys::tsc(), &body, &[], &[]);
    }
}

/// Where the GPU writes when kernel `number` ended.
pub fn slot(number: u64) -> u64 {
    area() + (number % SLOTS) * size_of::<tape::stamp::Slot>() as u64
}

/// Memory for segments of our own.
pub struct Segments {
    pub gpu: u64,
    pub cpu: u64,
}

/// Behind the slots.
pub fn segments() -> Option<Segments> {
    let at = |base: u64| base + STAMPS_BYTES as u64;
    (area() != 0).then(|| Segments { gpu: at(area()), cpu: at(CPU.load(Ordering::Relaxed)) })
}

/// Whether the channel of slot `i` is of the device that has the area.
#[inline]
pub fn is_for(i: usize) -> bool {
    if area() == 0 {
        return false;
    }
    let device = channel::device(i);
    match DEVICE.load(Ordering::Acquire) {
        0 if OWNER.load(Ordering::Relaxed) == record::tid() as u32 => {
            DEVICE.store(device, Ordering::Release);
            true
        }
        known => known == device && known != 0,
    }
}

/// Stamps the kernels of a segment. True if it writes QMDs.
///
/// # Safety
/// `words` words lie at `at`, in memory of the program's that nobody else writes before the doorbell.
pub unsafe fn stamp(at: u64, words: usize, c: &Control) -> bool {
    let at = at as *mut u32;
    // SAFETY: the caller's: `i` is below `words`.
    let word = |i: usize| unsafe { at.add(i).read_volatile() };
    let (mut of_graph, mut writes) = (false, false);
    end_time::find(words, word, |found| {
        writes = true;
        let qmd = match found {
            Found::Kernel(qmd) => qmd,
            Found::Order(_) => return,
            Found::OtherVersion(_) => {
                c.other_version.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        of_graph |= end_time::is_of_a_graph(qmd.at, word);
        let taken = c.stamped.load(Ordering::Relaxed);
        if taken.wrapping_sub(c.settled.load(Ordering::Acquire)) >= SLOTS - SPARE {
            c.slots_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let number = c.stamped.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's; the QMD lies within the segment, as `find` says.
        let set = |i: usize, value: u32| unsafe { at.add(i).write_volatile(value) };
        if !end_time::store_at(qmd.at, slot(number), payload(number), word, set) {
            c.words_in_use.fetch_add(1, Ordering::Relaxed);
        }
    });
    if of_graph {
        graphs::uploaded(words, word);
    }
    writes
}

/// Reads both clocks, if that was not done for a while.
#[inline]
pub fn read_clocks(p: usize) {
    let tsc = sys::rdtsc();
    let last = CLOCK_READ.load(Ordering::Relaxed);
    if tsc.wrapping_sub(last) > CLOCK_EVERY
        && CLOCK_READ.compare_exchange(last, tsc, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    {
        read_both(p);
    }
}

#[cold]
#[inline(never)]
fn read_both(p: usize) {
    let Some(real) = page::real(p) else { return };
    // SAFETY: our mapping of the usermode page; loads of the clock change nothing.
    let load = |offset: u64| u64::from(unsafe { ((real + offset) as *const u32).read_volatile() });
    // The tightest of a few: a load takes about 1 us, sometimes much longer.
    let mut best: Option<(u64, ClockBody)> = None;
    for _ in 0..READINGS {
        let before = sys::tsc();
        let (upper, lower, again) = (load(TIME_1), load(TIME_0), load(TIME_1));
        let after = sys::tsc();
        let body = ClockBody { after, gpu_ns: upper << 32 | lower, gpu: OWN_GPU, pad: 0 };
        if upper == again && best.is_none_or(|(b, best)| after - before < best.after - b) {
            best = Some((before, body));
        }
    }
    // CUDA's page of a real GPU reads zero; the recorder reads the clock then.
    if let Some((before, body)) = best.filter(|(_, body)| body.gpu_ns != 0) {
        record::with(|w, _| {
            record::push(w, kind::CLOCK, 0, before, &body, &[], &[]);
        });
    }
}

const READINGS: u32 = 4;

/// In a forked child: the area is the parent's, and so are its contexts.
pub fn renew() {
    AREA.store(0, Ordering::Relaxed);
}
