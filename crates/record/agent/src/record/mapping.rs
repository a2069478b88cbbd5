//! The rings that are mapped in this process.

use crate::process::region::{control, map_piece, rings};
use crate::process::renewal::Child;
use crate::process::restrictions::{may, need};
use crate::process::thread::Thread;
use crate::process::{locked, sys};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::region::{self, PAGE, RingHead};
use tape::ring::Writer;
use tape::rings::{RINGS, Rings};

/// Address of ring i's head page in this process, followed by its data, mapped twice; 0 until first claimed.
static MAPPED: [AtomicUsize; RINGS] = [const { AtomicUsize::new(0) }; RINGS];

/// A writer to a ring that this thread has claimed, and the address of its first page.
pub fn open(rings: &Rings, i: usize, t: &Thread) -> Option<(Writer, usize)> {
    let bytes = rings.geometry.bytes(i);
    let mapped = MAPPED.get(i)?;
    let at = match mapped.load(Ordering::Relaxed) {
        0 => {
            let at = map_ring(rings.geometry.at(i), bytes)?;
            mapped.store(at, Ordering::Relaxed);
            at
        }
        at => at,
    };
    // SAFETY: the ring's first page; its last owner may have left entries in the tables.
    let (head, locks, call) = unsafe {
        let locks = &*((at + region::LOCKS_AT) as *const region::LockTable);
        (&*(at as *const RingHead), locks, &*((at + region::CALL_AT) as *const region::CallRow))
    };
    head.tid.store(t.id(), Ordering::Relaxed);
    head.pid.store(control().map_or(0, |c| c.pid.load(Ordering::Relaxed)), Ordering::Relaxed);
    head.ordinal.store(t.ordinal.get(), Ordering::Relaxed);
    head.generation.fetch_add(1, Ordering::Relaxed);
    locks.n.store(0, Ordering::Relaxed);
    locks.waits.store(0, Ordering::Relaxed);
    call.function.store(0, Ordering::Relaxed);
    call.python.store(0, Ordering::Relaxed);
    // SAFETY: this thread has claimed the ring, and it is never unmapped while the process records.
    let mut w = unsafe { Writer::new(head, (at + PAGE) as *mut u8, bytes as u64) };
    w.prepare_with(make_present);
    Some((w, at))
}

/// Maps a ring's first page, and its events twice in a row. `offset`: the ring's offset in the region.
fn map_ring(offset: usize, bytes: usize) -> Option<usize> {
    let none = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a fresh range of addresses, then replaced piece by piece by pieces of the region.
    unsafe {
        let at = sys::mmap(sys::AWAY, PAGE + 2 * bytes, libc::PROT_NONE, none, -1, 0)?;
        let ok = map_piece(offset, PAGE + bytes, at) && sys::map_again(at + PAGE, bytes, at + PAGE + bytes);
        if !ok {
            sys::munmap(at, PAGE + 2 * bytes);
            return None;
        }
        locked::mapped(at, PAGE + 2 * bytes);
        Some(at)
    }
}

/// Fills this process's page table for pages of a ring: one system call for a few pages. If the recorder was in time, it
/// has already allocated and cleared them (see its `Ring::make_ready`). Then this takes a tenth of the time of the page
/// faults that it saves.
fn make_present(at: *mut u8, len: usize) {
    if !may(need::MEMORY) {
        return;
    }
    // Populating for reads is enough: the pages of a shared mapping are then also writable, without another fault.
    // SAFETY: a range of the agent's own mapping; an older kernel refuses, and the faults happen later.
    unsafe { sys::syscall6(libc::SYS_madvise, at as usize, len, libc::MADV_POPULATE_READ as usize, 0, 0, 0) };
}

/// In a forked child: the rings are the parent's.
pub fn renew(child: &Child) {
    locked::renew();
    let geometry = rings().map(|r| r.geometry);
    for (i, mapped) in MAPPED.iter().enumerate() {
        // (Loaded first: a child gets a copy of each page that it writes to.)
        let at = mapped.load(Ordering::Relaxed);
        if at == 0 {
            continue;
        }
        mapped.store(0, Ordering::Relaxed);
        if let Some(g) = geometry {
            // SAFETY: this process's mapping of the parent's ring, which only this thread could write to.
            unsafe { sys::munmap(at, PAGE + 2 * g.bytes(i)) };
        }
    }
    let t = child.thread;
    t.writer.set(core::ptr::null_mut());
    t.locks.set(core::ptr::null());
    t.call.set(core::ptr::null());
    t.rings.iter().for_each(|r| r.set(0));
    t.ordinal.set(0);
    t.busy.set(false);
    t.patience.set(0);
}
