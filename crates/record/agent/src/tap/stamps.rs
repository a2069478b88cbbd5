//! Ends of kernels (`record --gpu-times`): before a doorbell is made, each kernel's QMD gets a release that stores the kernel's end.
//!
//! The GPU writes into slots of the region, which CUDA has mapped ([`crate::hooks::cuda::stamps`]). The recorder reads the ends there and counts the slots that
//! are free again ([`Control::settled`]). If no slot is free, a kernel gets no stamp and is counted.
//!
//! Invariants: only words of a disabled release are changed, in a QMD of a known version that the same segment passes to
//! the scheduler. They are changed only before the GPU sees the segment. Without a shadow of the ring the program has
//! already written GP_PUT, so nothing is stamped.

use super::{channel, graphs, page, segments};
use crate::process::restrictions::{may, need};
use crate::process::thread::{self, Thread};
use crate::process::wiped::{goes_on, live};
use crate::process::{region, sys};
use crate::record;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use pushbuf::qmd::end_time::{self, Found};
use rm::abi::usermode::{TIME_0, TIME_1};
use tape::call::{Class, of_ring};
use tape::region::{CallRow, Control, STAMPS_BYTES};
use tape::stamp::{ClockBody, LAYOUT, OWN_GPU, SLOTS, StampsBody, kind, payload, state};

/// The GPU's address of slot 0; 0 while nothing is stamped.
static AREA: AtomicU64 = AtomicU64::new(0);
/// The devices whose channels are stamped: CUDA has mapped the area for their GPUs, at one address. 0: a free place.
static DEVICES: [AtomicU32; 16] = [const { AtomicU32::new(0) }; 16];
/// What a launch asks CUDA before: [`ask`].
static ASKS: AtomicU32 = AtomicU32::new(ask::AREA);
/// How often it may still ask because of another device.
static LEFT: AtomicU32 = AtomicU32::new(1 << 12);

pub mod ask {
    /// To map the area.
    pub const AREA: u32 = 0;
    pub const NOTHING: u32 = 1;
    /// Whether the area is mapped for its GPU: a device that is not known has rung.
    pub const DEVICE: u32 = 2;
    /// Another thread is asking to map the area.
    pub const BUSY: u32 = 3;
}

/// How long a launch waits for the thread that is asking. (CUDA's own lock delays it about as long: a kernel that is launched meanwhile would have no time.)
const WAIT_MS: u32 = 50;

#[inline(always)]
pub fn asks() -> u32 {
    ASKS.load(Ordering::Relaxed)
}

/// Later launches ask `to`, if they asked `from`.
pub fn asks_after(from: u32, to: u32) -> bool {
    ASKS.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// The thread that asked has its answer.
pub fn is_answered() {
    if asks_after(ask::BUSY, ask::NOTHING) && may(need::FUTEX) {
        sys::futex_wake(&ASKS);
    }
}

/// Waits for that, but not for long: the thread may have ended, or be stopped.
pub fn wait_for_answer() {
    if may(need::FUTEX) {
        sys::futex_wait(&ASKS, ask::BUSY, WAIT_MS);
    }
    is_answered();
}
/// Slots kept free, because several threads may take one at the same time.
pub const SPARE: u64 = 1024;

/// Ticks of the time stamp counter between two readings of the GPU's clock: about a fifth of a second. The clocks drift by 10 ppm, steadily, so times
/// between two readings are interpolated.
const CLOCK_EVERY: u64 = 500_000_000;
static CLOCK_READ: AtomicU64 = AtomicU64::new(0);
/// Value of [`CLOCK_READ`] if the page has no clock.
const NO_CLOCK: u64 = u64::MAX;

/// The CPU's address of slot 0.
static CPU: AtomicU64 = AtomicU64::new(0);

/// CUPTI is active.
static STEPS_BACK: AtomicBool = AtomicBool::new(false);
/// The program has a part of a GPU (MIG).
static DIVIDED: AtomicBool = AtomicBool::new(false);

/// CUPTI takes times from now on (`back`), or no longer: see [`crate::hooks::cuda`]. Until it stops, kernels are counted,
/// but get no stamp.
#[cold]
pub fn step_back(back: bool) {
    STEPS_BACK.store(back, Ordering::Relaxed);
    if goes_on(live::GPU_TIMES) {
        stepped(back);
    }
}

/// The recorder requests this process's times from now on.
pub fn asked_for() {
    if steps_back() {
        stepped(true);
    }
}

fn stepped(back: bool) {
    graphs::begin();
    let area = area();
    let state = match back {
        true => state::CUPTI,
        false if area != 0 => state::ON,
        // The next launch requests the area.
        false => return,
    };
    let body = StampsBody { layout: LAYOUT, state, area, result: 0, pad: 0 };
    record::event(kind::STAMPS, 0, sys::tsc(), &body, &[], &[]);
}

#[inline(always)]
pub fn steps_back() -> bool {
    STEPS_BACK.load(Ordering::Relaxed) && goes_on(live::GPU_TIMES)
}

/// The program has got a part of a GPU (MIG). No stamp was ever seen from kernels there.
#[cold]
pub fn divided() {
    DIVIDED.store(true, Ordering::Relaxed);
}

pub fn is_divided() -> bool {
    DIVIDED.load(Ordering::Relaxed)
}

/// Starts to stamp. `area` and `cpu`: the addresses of slot 0 for the GPU and the CPU. The calling thread is about to launch on that GPU.
pub fn begin(area: u64, cpu: u64) {
    graphs::begin();
    segments::begin();
    CPU.store(cpu, Ordering::Relaxed);
    DEVICES.iter().for_each(|device| device.store(0, Ordering::Relaxed));
    is_mapped();
    // ORDERING: Release: the other fields before the address that makes them valid.
    AREA.store(area, Ordering::Release);
}

/// The calling thread is about to launch on a GPU for which the area is mapped: the next device that it rings for, and that is not known, is that GPU's.
pub fn is_mapped() {
    thread::here().on_mapped.set(true);
}

/// The thread's latest call.
fn row(t: &Thread) -> Option<&CallRow> {
    // SAFETY: null or a row in a page that is never unmapped.
    unsafe { t.call.get().as_ref() }
}

fn number_of(row: &CallRow) -> u32 {
    row.seq.load(Ordering::Relaxed)
}

/// The CPU's address of slot 0.
pub fn cpu() -> u64 {
    CPU.load(Ordering::Relaxed)
}

/// The area, if kernels are stamped now.
#[inline(always)]
pub fn area() -> u64 {
    AREA.load(Ordering::Relaxed)
}

/// The driver is about to unmap GPU memory from `base` on. If the slots are in it, no further kernel is stamped.
pub fn unmaps(base: u64) {
    let area = area();
    if area != 0 && base.wrapping_sub(area) < STAMPS_BYTES as u64 && AREA.swap(0, Ordering::AcqRel) != 0 {
        let body = StampsBody { layout: LAYOUT, state: state::CONTEXT_GONE, area, result: 0, pad: 0 };
        record::event(kind::STAMPS, 0, sys::tsc(), &body, &[], &[]);
    }
}

/// Address where the GPU stores the end of kernel `number`.
pub fn slot(number: u64) -> u64 {
    area() + (number % SLOTS) * size_of::<tape::stamp::Slot>() as u64
}

/// Memory for copies of segments, by its addresses for the GPU and the CPU.
pub struct Segments {
    pub gpu: u64,
    pub cpu: u64,
}

/// It is directly after the slots.
pub fn segments() -> Option<Segments> {
    let at = |base: u64| base + STAMPS_BYTES as u64;
    (area() != 0).then(|| Segments { gpu: at(area()), cpu: at(CPU.load(Ordering::Relaxed)) })
}

/// Whether the channel of slot `i` belongs to a device whose GPU has the area.
#[inline]
pub fn is_for(i: usize) -> bool {
    if area() == 0 || steps_back() {
        return steps_back();
    }
    let device = channel::device(i);
    if has(device) {
        thread::here().on_mapped.set(false);
        return true;
    }
    is_new(device)
}

#[inline(always)]
fn has(device: u32) -> bool {
    let mut known = DEVICES.iter().map(|at| at.load(Ordering::Acquire)).take_while(|known| *known != 0);
    device != 0 && known.any(|known| known == device)
}

/// Whether it is the device of a launch that has asked. Otherwise a later launch asks.
#[cold]
fn is_new(device: u32) -> bool {
    if device != 0 && thread::here().on_mapped.replace(false) {
        let take = |at: &AtomicU32| at.compare_exchange(0, device, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        return DEVICES.iter().any(take);
    }
    if asks() == ask::NOTHING
        && LEFT.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    {
        let _ = ASKS.compare_exchange(ask::NOTHING, ask::DEVICE, Ordering::Relaxed, Ordering::Relaxed);
    }
    false
}

/// True for the address of a slot.
pub fn is_slot(address: u64) -> bool {
    let area = area();
    area != 0 && address.wrapping_sub(area) < STAMPS_BYTES as u64
}

/// Each launch writes `stamped`. The recorder writes `settled`, which all launches read together with `pauses`. They are
/// on separate lines.
const _: () = {
    const LINE: usize = 64;
    let (stamped, settled) = (core::mem::offset_of!(Control, stamped), core::mem::offset_of!(Control, settled));
    assert!(stamped / LINE != settled / LINE && stamped / LINE != core::mem::offset_of!(Control, pauses) / LINE);
};

/// Prefetches, for writing, the cache line of the count of stamped kernels: another thread's core has it. It arrives
/// before [`stamp`] takes a number.
#[inline(always)]
pub fn ask_for_number() {
    if let Some(c) = region::control() {
        let at = &raw const c.stamped;
        // SAFETY: a prefetch touches no memory as far as the program is concerned.
        unsafe { core::arch::asm!("prefetchw [{}]", in(reg) at, options(nostack, preserves_flags)) };
    }
}

/// Takes the stamps out of a copy of a segment's words. libdoorbell looks this name up: it learns graphs from what CUDA wrote.
///
/// # Safety
/// `words` are `length` words of the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn doorbell_agent_take_stamps(words: *mut u32, length: usize) {
    if words.is_null() || area() == 0 {
        return;
    }
    // SAFETY: the caller's promise, and `find` and `take` stay below `length`.
    let word = |i: usize| unsafe { words.add(i).read() };
    // SAFETY: as above.
    let set = |i: usize, value: u32| unsafe { words.add(i).write(value) };
    end_time::find(length, word, |found| {
        if let Found::Kernel(qmd) = found {
            end_time::take(qmd.at, is_slot, word, set);
        }
    });
}

fn launches_a_graph() -> bool {
    let function = row(thread::here()).and_then(|row| of_ring(row.function.load(Ordering::Relaxed)));
    function.is_some_and(|f| f.class == Class::GraphLaunch)
}

/// The QMDs that a segment writes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Writes {
    Nothing,
    Kernels,
    /// Those of a graph, in this call ([`graphs::launch`]).
    Graph(u64),
}

/// Stamps the kernels of a segment, or only counts them if it is not `hidden` from the GPU.
///
/// # Safety
/// `at` has `words` words of the program, which no other thread writes before the doorbell.
pub unsafe fn stamp(at: u64, words: usize, hidden: bool, c: &Control) -> Writes {
    let at = at as *mut u32;
    // SAFETY: the caller's promise, and `find` reads below `words`.
    let word = |i: usize| unsafe { at.add(i).read_volatile() };
    let (mut of_graph, mut writes) = (false, false);
    end_time::find(words, word, |found| {
        writes = true;
        let qmd = match found {
            Found::Kernel(qmd) => qmd,
            // (A kernel of a graph that the program has disabled, among others.)
            Found::Order(_) => {
                of_graph |= hidden && launches_a_graph();
                return;
            }
            Found::OtherVersion(_) => {
                c.other_version.fetch_add(1, Ordering::Relaxed);
                return;
            }
        };
        if !hidden {
            c.no_shadow.fetch_add(1, Ordering::Relaxed);
            return;
        }
        of_graph |= end_time::is_of_a_graph(qmd.at, word);
        if steps_back() {
            c.by_cupti.fetch_add(1, Ordering::Relaxed);
            return;
        }
        // (Before the number is taken: the recorder would wait for a number whose end never arrives.)
        if !end_time::has_room(qmd.at, word) {
            c.words_in_use.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let taken = c.stamped.load(Ordering::Relaxed);
        if taken.wrapping_sub(c.settled.load(Ordering::Acquire)) >= SLOTS - SPARE {
            c.slots_full.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let number = c.stamped.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise; `find` reports QMDs that are whole within the segment.
        let set = |i: usize, value: u32| unsafe { at.add(i).write_volatile(value) };
        end_time::store_at(qmd.at, slot(number), payload(number), word, set);
    });
    if of_graph {
        let t = thread::here();
        let call = row(t).map_or(0, |row| (t.id() as u64) << 32 | u64::from(number_of(row)));
        graphs::uploaded(words, call, word);
        // (What is only uploaded does not run.)
        return if launches_a_graph() { Writes::Graph(call) } else { Writes::Kernels };
    }
    if writes { Writes::Kernels } else { Writes::Nothing }
}

/// Reads both clocks, if the last reading was [`CLOCK_EVERY`] before `tsc`.
#[inline]
pub fn read_clocks(p: usize, tsc: u64) {
    let last = CLOCK_READ.load(Ordering::Relaxed);
    // (The page of another GPU has another clock.)
    if last == NO_CLOCK || page::device(p) != DEVICES[0].load(Ordering::Relaxed) {
        return;
    }
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
    // SAFETY: the agent's mapping of the usermode page. A load of the clock has no effect.
    let load = |offset: u64| u64::from(unsafe { ((real + offset) as *const u32).read_volatile() });
    // The fastest of a few: a load takes about 1 us, sometimes much longer.
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
    let Some((before, body)) = best else { return };
    if body.gpu_ns == 0 {
        // CUDA's page of a real GPU has no clock. Then the recorder reads the clock.
        CLOCK_READ.store(NO_CLOCK, Ordering::Relaxed);
    } else {
        record::with(|w, _| {
            record::push(w, kind::CLOCK, 0, before, &body, &[], &[]);
        });
    }
}

const READINGS: u32 = 4;

/// In a forked child: the area is the parent's, and so are its contexts.
pub fn renew() {
    AREA.store(0, Ordering::Relaxed);
    ASKS.store(ask::AREA, Ordering::Relaxed);
}
