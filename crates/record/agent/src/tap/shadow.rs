//! Shadow rings: ordinary memory at the program's GPFIFO and USERD addresses.
//!
//! CUDA keeps both in GPU memory, where one CPU load costs a PCIe round trip (about 1 us). When a channel is allocated,
//! before anything can be in flight, the real pages are moved aside and pages of the shared region take their place. The
//! tap then reads entries and GP_PUT from memory and forwards them with posted stores.
//!
//! GP_GET in the shadow is only as fresh as the last load of the real one. CUDA 13 does not read it. To find out whether
//! a program does, the tap guards its USERD page, so that each access faults and is answered with the real GP_GET. It
//! does so during a channel's first submissions, and whenever the ring is nearly full (a stale GP_GET makes it look
//! fuller than it is). A program that has read GP_GET once keeps the guard forever: slower, but correct.

use super::channel::{Channel, GP_GET, GP_PUT, SHADOWS, USERDS};
use super::hole::{self, Hole};
use crate::fault;
use crate::process::{real, region, sys};
use core::sync::atomic::{AtomicU64, Ordering};
use tape::region::{PAGE, SHADOW_AT, SHADOW_BYTES};

/// Number of free entries below which GP_GET is loaded and the USERD page is guarded.
const NEARLY_FULL: u32 = 16;

/// Number of first submissions of a channel during which reads of GP_GET are detected.
const LEARNING: u32 = 16;

/// One bit a page of the shadow area.
const WORDS: usize = SHADOW_BYTES / PAGE / 64;
static USED: [AtomicU64; WORDS] = [const { AtomicU64::new(0) }; WORDS];

/// Allocates `n` pages in a row; returns their offset in the region. Cold zone only.
fn alloc(n: usize) -> Option<usize> {
    let used = |i: usize| USED[i / 64].load(Ordering::Relaxed) & (1 << (i % 64)) != 0;
    let total = WORDS * 64;
    let mut at = 0;
    while at + n <= total {
        match (0..n).rev().find(|k| used(at + k)) {
            Some(k) => at += k + 1,
            None => {
                for i in at..at + n {
                    USED[i / 64].fetch_or(1 << (i % 64), Ordering::Relaxed);
                }
                return Some(SHADOW_AT + at * PAGE);
            }
        }
    }
    None
}

fn release(at: usize, n: usize) {
    let first = (at - SHADOW_AT) / PAGE;
    for i in first..first + n {
        USED[i / 64].fetch_and(!(1 << (i % 64)), Ordering::Relaxed);
    }
}

/// Maps shadow pages for the agent: through them the tap reads what the program writes to its own view.
fn map(at: usize, pages: usize) -> Option<usize> {
    let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh address range, then replaced by pieces of the region.
    unsafe {
        let alias = sys::mmap(sys::AWAY, pages * PAGE, libc::PROT_NONE, none, -1, 0)?;
        if !region::map_piece(at, pages * PAGE, alias) {
            sys::munmap(alias, pages * PAGE);
            return None;
        }
        Some(alias)
    }
}

/// Frees shadow pages that the program does not see.
fn give_up(at: usize, alias: usize, pages: usize) {
    // SAFETY: the agent's own mapping. No thread reads through it any more, because the caller holds the channel's claim.
    unsafe { sys::munmap(alias, pages * PAGE) };
    release(at, pages);
}

/// Replaces the channel's ring and USERD, both mapped in whole pages at `c.ring` and `c.userd`, by a shadow. On failure
/// everything stays as it was, and the result is false. The caller holds the claim; the channel is not in use yet.
pub fn put_under(c: &mut Channel, slot: usize) -> bool {
    let bytes = c.entries as usize * 8;
    let page = PAGE as u64;
    if bytes == 0 || !bytes.is_multiple_of(PAGE) || !c.ring.is_multiple_of(page) || !c.userd.is_multiple_of(page) {
        return false;
    }
    if !hole::is_safe(c.ring, bytes as u64) || !hole::is_safe(c.userd, page) {
        return false;
    }
    let pages = bytes / PAGE + 1;
    let Some(at) = alloc(pages) else { return false };
    let Some(alias) = map(at, pages) else {
        release(at, pages);
        return false;
    };
    let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: the program's ring and USERD pages are its mapping of this channel's memory, and no thread uses them before
    // the channel is scheduled. Whole pages are moved to the agent's own address range. The shadow, with the same
    // contents in the region's shared memory, takes their place.
    unsafe {
        let Some(aside) = sys::mmap(0, pages * PAGE, libc::PROT_NONE, none, -1, 0) else {
            give_up(at, alias, pages);
            return false;
        };
        copy_words(c.ring, alias as u64, bytes);
        copy_words(c.userd, (alias + bytes) as u64, PAGE);
        // Between the move and the shadow the addresses are unmapped for some microseconds. (A second mapping would leave
        // no hole, but a second mapping of a BAR has no pages: the driver fills it in only at mmap. MREMAP_DONTUNMAP
        // cannot keep it either.)
        let Some(_hole) = Hole::open() else {
            sys::munmap(aside, pages * PAGE);
            give_up(at, alias, pages);
            return false;
        };
        if !move_pages(c.ring as usize, bytes, aside) {
            sys::munmap(aside, pages * PAGE);
            give_up(at, alias, pages);
            return false;
        }
        if !move_pages(c.userd as usize, PAGE, aside + bytes) {
            move_pages(aside, bytes, c.ring as usize);
            sys::munmap(aside + bytes, PAGE);
            give_up(at, alias, pages);
            return false;
        }
        let under =
            sys::map_again(alias, bytes, c.ring as usize) && sys::map_again(alias + bytes, PAGE, c.userd as usize);
        if !under {
            move_pages(aside, bytes, c.ring as usize);
            move_pages(aside + bytes, PAGE, c.userd as usize);
            give_up(at, alias, pages);
            return false;
        }
        c.real_ring = aside as u64;
        c.real_userd = (aside + bytes) as u64;
    }
    c.alias_userd = (alias + bytes) as u64;
    c.shadow_at = at;
    c.ring_bytes = bytes;
    if let Some(s) = region::slot(slot) {
        s.shadow_userd.store((at + bytes) as u64, Ordering::Relaxed);
        s.real_userd.store(c.real_userd, Ordering::Relaxed);
    }
    if let Some(u) = USERDS.get(slot) {
        u.store(c.userd, Ordering::Release);
        SHADOWS.fetch_add(1, Ordering::AcqRel);
    }
    c.learning = LEARNING;
    guard(c);
    true
}

fn guard(c: &mut Channel) {
    if !c.guarded {
        c.guarded = true;
        // SAFETY: the shadow USERD page; accesses to it are answered by the fault handler from now on.
        unsafe { sys::mprotect(c.userd as usize, PAGE, libc::PROT_NONE) };
    }
}

/// Gives a guarded page back to the program. The caller holds the claim.
pub fn unguard(c: &mut Channel) {
    if c.guarded {
        c.guarded = false;
        // SAFETY: the shadow USERD page.
        unsafe { sys::mprotect(c.userd as usize, PAGE, libc::PROT_READ | libc::PROT_WRITE) };
        fault::allowed();
    }
}

/// Lifts the guard if it is not needed: the ring has room, and the program was not seen to read GP_GET.
fn relax(c: &mut Channel) {
    if !c.reads_get && c.learning == 0 {
        unguard(c);
    }
}

/// Puts the real pages back, or forgets them if the program has unmapped that memory. The caller holds the claim.
pub fn take_away(c: &mut Channel, slot: usize, still_mapped: bool) {
    let (bytes, pages) = (c.ring_bytes, c.ring_bytes / PAGE + 1);
    unguard(c);
    if let Some(u) = USERDS.get(slot) {
        u.store(0, Ordering::Release);
        SHADOWS.fetch_sub(1, Ordering::AcqRel);
    }
    // SAFETY: the aside pages belong to the agent since `put_under`; the program's addresses hold the shadow unless it
    // unmapped them.
    unsafe {
        if still_mapped {
            move_pages(c.real_ring as usize, bytes, c.ring as usize);
            move_pages(c.real_userd as usize, PAGE, c.userd as usize);
        } else {
            sys::munmap(c.real_ring as usize, pages * PAGE);
        }
    }
    give_up(c.shadow_at, (c.alias_userd as usize).wrapping_sub(bytes), pages);
    if let Some(s) = region::slot(slot) {
        s.shadow_userd.store(0, Ordering::Relaxed);
        s.real_userd.store(0, Ordering::Relaxed);
    }
    c.shadow_at = 0;
}

/// Uses the next layer's mremap, which may track mappings (the software GPU does).
unsafe fn move_pages(from: usize, len: usize, to: usize) -> bool {
    let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    let _errno = sys::Errno::keep();
    // SAFETY: the caller's.
    unsafe { real::mremap(from as *mut _, len, len, how, to as *mut _) as usize == to }
}

/// Copies from GPU memory, eight bytes per load: once per channel, before it is used.
unsafe fn copy_words(from: u64, to: u64, len: usize) {
    for i in (0..len as u64).step_by(8) {
        // SAFETY: both mapped for `len` bytes, by the caller's promise.
        unsafe { ((to + i) as *mut u64).write_volatile(((from + i) as *const u64).read_volatile()) };
    }
}

fn free_entries(c: &Channel, put: u32, get: u32) -> u32 {
    let used = if put >= get { put - get } else { put + c.entries - get };
    c.entries.saturating_sub(1).saturating_sub(used)
}

/// Copies the real GP_GET into the shadow. One PCIe round trip.
fn refresh(c: &Channel) -> u32 {
    // SAFETY: both USERD pages are mapped while the channel has a shadow.
    unsafe {
        let get = ((c.real_userd + GP_GET) as *const u32).read_volatile();
        ((c.alias_userd + GP_GET) as *mut u32).write_volatile(get);
        get
    }
}

/// After a submission up to `put`: keeps GP_GET fresh enough, and guards USERD when the ring is nearly full.
#[inline]
pub fn look_for_room(c: &mut Channel, put: u32) {
    if c.learning > 0 {
        c.learning -= 1;
        relax(c);
    }
    // SAFETY: mapped while the channel has a shadow.
    let get = unsafe { ((c.alias_userd + GP_GET) as *const u32).read_volatile() };
    if free_entries(c, put, get) >= NEARLY_FULL {
        return;
    }
    nearly_full(c, put);
}

#[cold]
fn nearly_full(c: &mut Channel, put: u32) {
    let get = refresh(c);
    if free_entries(c, put, get) >= NEARLY_FULL {
        relax(c);
    } else {
        guard(c);
    }
}

/// For the fault handler: the slot whose shadow USERD page holds `addr`. Guarded or not: the guard that a thread ran into
/// may have been lifted since.
pub fn userd_of(addr: u64) -> Option<usize> {
    if SHADOWS.load(Ordering::Acquire) == 0 {
        return None;
    }
    USERDS.iter().position(|u| {
        let a = u.load(Ordering::Acquire);
        a != 0 && addr >= a && addr - a < PAGE as u64
    })
}

/// For the fault handler: answers an access to a guarded page. Updates GP_GET and returns the address where the access
/// can be made instead. Lifts the guard when there is room again. The caller holds the claim.
pub fn answer(c: &mut Channel, addr: u64, load: bool) -> u64 {
    c.reads_get |= load && addr - c.userd == GP_GET;
    let get = refresh(c);
    // SAFETY: mapped while the channel has a shadow.
    let put = unsafe { ((c.alias_userd + GP_PUT) as *const u32).read_volatile() };
    if free_entries(c, put, get) >= 4 * NEARLY_FULL {
        relax(c);
    }
    c.alias_userd + (addr - c.userd)
}

/// In a forked child: the shadow pages are the parent's.
pub fn renew() {
    for u in USED.iter().filter(|u| u.load(Ordering::Relaxed) != 0) {
        u.store(0, Ordering::Relaxed);
    }
    hole::renew();
}
