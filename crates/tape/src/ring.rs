//! One writer, one reader, no lock: a ring of events.
//!
//! The data area is mapped twice in a row, so an event that wraps is still contiguous in memory for both sides.
//! Events are written behind `head` and become visible together by [`Writer::publish`]; a thread that dies, or is killed,
//! in the middle leaves a ring that ends with its last published event.

use crate::event::{Head, Plain, bytes_of};
use crate::region::RingHead;
use core::sync::atomic::Ordering;

/// The longest event, bytes. Longer payloads are split by whoever writes them.
pub const MAX_EVENT: usize = 64 << 10;

/// [`Writer::warm`] asks for this many bytes at most: more than the line fill buffers take would hold the thread up.
const MAX_WARM: usize = 6 << 10;

/// Says how large an event with this body and payload becomes.
pub const fn event_len(body: usize, payload: usize) -> usize {
    (size_of::<Head>() + body + payload).next_multiple_of(8)
}

/// The writing side: one thread's.
pub struct Writer {
    head: *const RingHead,
    data: *mut u8,
    /// Ring size, a power of two.
    bytes: u64,
    /// Where the next event goes; runs ahead of the published head.
    at: u64,
    /// The reader's tail as last read.
    tail: u64,
}

impl Writer {
    /// A writer over a ring that this thread has claimed.
    ///
    /// # Safety
    /// `head` points to a mapped [`RingHead`], `data` to `2 * bytes` of mapped memory whose halves are the same memory,
    /// `bytes` is a power of two of at least `2 * MAX_EVENT`; both stay mapped as long as the writer lives, and nobody
    /// else writes to this ring.
    pub unsafe fn new(head: *const RingHead, data: *mut u8, bytes: u64) -> Writer {
        // SAFETY: mapped, by the caller's promise.
        let h = unsafe { &*head };
        let at = h.head.load(Ordering::Relaxed);
        let tail = h.tail.load(Ordering::Acquire);
        Writer { head, data, bytes, at, tail }
    }

    fn shared(&self) -> &RingHead {
        // SAFETY: `new` was promised that it stays mapped.
        unsafe { &*self.head }
    }

    /// True if `len` more bytes fit, looking at the reader's progress only when they did not before.
    #[inline]
    pub fn fits(&mut self, len: usize) -> bool {
        if self.bytes - (self.at - self.tail) >= len as u64 {
            return true;
        }
        // ORDERING: Acquire pairs with the reader's Release: it has finished reading what it gave back.
        self.tail = self.shared().tail.load(Ordering::Acquire);
        self.bytes - (self.at - self.tail) >= len as u64
    }

    /// Reserves `len` bytes (a multiple of 8) and returns where to write them. Call only after [`Writer::fits`].
    #[inline]
    fn reserve(&mut self, len: usize) -> *mut u8 {
        // SAFETY: at % bytes + len <= 2 * bytes because len <= MAX_EVENT <= bytes.
        let p = unsafe { self.data.add((self.at & (self.bytes - 1)) as usize) };
        self.at += len as u64;
        p
    }

    /// Appends an event with a body and up to two payloads (the second starts on a multiple of 8). False if it does not
    /// fit; nothing is written then. Not visible before [`Writer::publish`].
    #[inline]
    pub fn push<B: Plain>(&mut self, kind: u16, flags: u16, tsc: u64, body: &B, a: &[u8], b: &[u8]) -> bool {
        let first = size_of::<Head>() + size_of::<B>();
        let second = first + a.len().next_multiple_of(8);
        let len = (second + b.len()).next_multiple_of(8);
        if len > MAX_EVENT || !self.fits(len) {
            return false;
        }
        let p = self.reserve(len);
        let head = Head { kind, flags, len: len as u32, tsc };
        // SAFETY: `reserve` gave len bytes that nobody reads before they are published; the pieces lie inside them.
        unsafe {
            p.cast::<Head>().write_unaligned(head);
            let bb = bytes_of(body);
            core::ptr::copy_nonoverlapping(bb.as_ptr(), p.add(size_of::<Head>()), bb.len());
            core::ptr::copy_nonoverlapping(a.as_ptr(), p.add(first), a.len());
            core::ptr::copy_nonoverlapping(b.as_ptr(), p.add(second), b.len());
        }
        true
    }

    /// Appends an event whose payload the caller writes itself: returns where the payload of `payload` bytes begins.
    /// `None` if it does not fit.
    #[inline]
    pub fn push_with<B: Plain>(
        &mut self,
        kind: u16,
        flags: u16,
        tsc: u64,
        body: &B,
        payload: usize,
    ) -> Option<*mut u8> {
        let first = size_of::<Head>() + size_of::<B>();
        let len = (first + payload).next_multiple_of(8);
        if len > MAX_EVENT || !self.fits(len) {
            return None;
        }
        let p = self.reserve(len);
        let head = Head { kind, flags, len: len as u32, tsc };
        // SAFETY: as in `push`.
        unsafe {
            p.cast::<Head>().write_unaligned(head);
            let bb = bytes_of(body);
            core::ptr::copy_nonoverlapping(bb.as_ptr(), p.add(size_of::<Head>()), bb.len());
            Some(p.add(first))
        }
    }

    /// Makes everything pushed visible to the reader.
    #[inline]
    pub fn publish(&mut self) {
        // ORDERING: Release: the events' bytes before the head that covers them.
        self.shared().head.store(self.at, Ordering::Release);
    }

    /// Asks for the ring's next lines, so that writing them does not have to wait: the reader's core has had them last, and
    /// a fence behind the next event would wait for every one to come back.
    #[inline]
    pub fn warm(&self, len: usize) {
        let from = self.data.wrapping_add((self.at & (self.bytes - 1)) as usize);
        for line in (0..len.min(MAX_WARM)).step_by(64) {
            // SAFETY: a prefetch touches no memory as far as the program is concerned; the address lies in the ring.
            unsafe {
                core::arch::asm!("prefetchw [{}]", in(reg) from.wrapping_add(line), options(nostack, preserves_flags))
            };
        }
    }

    /// Bytes pushed since the head was last published.
    #[inline]
    pub fn unpublished(&self) -> usize {
        (self.at - self.shared().head.load(Ordering::Relaxed)) as usize
    }

    /// Events, entries and bytes counted as gaps so far.
    pub fn gaps(&self) -> (u64, u64, u64) {
        let h = self.shared();
        // ORDERING: Relaxed: this side is the only writer.
        let [a, b, c] = [&h.gap_events, &h.gap_entries, &h.gap_bytes].map(|g| g.load(Ordering::Relaxed));
        (a, b, c)
    }

    /// Counts what did not fit.
    #[inline]
    pub fn count_gap(&mut self, events: u64, entries: u64, bytes: u64) {
        let h = self.shared();
        // ORDERING: Relaxed: counters with one writer, read for a report.
        h.gap_events.store(h.gap_events.load(Ordering::Relaxed) + events, Ordering::Relaxed);
        h.gap_entries.store(h.gap_entries.load(Ordering::Relaxed) + entries, Ordering::Relaxed);
        h.gap_bytes.store(h.gap_bytes.load(Ordering::Relaxed) + bytes, Ordering::Relaxed);
    }
}

/// The reading side: the recorder's.
pub struct Reader {
    head: *const RingHead,
    data: *const u8,
    bytes: u64,
}

impl Reader {
    /// # Safety
    /// As for [`Writer::new`]; nobody else reads this ring.
    pub unsafe fn new(head: *const RingHead, data: *const u8, bytes: u64) -> Reader {
        Reader { head, data, bytes }
    }

    pub fn shared(&self) -> &RingHead {
        // SAFETY: `new` was promised that it stays mapped.
        unsafe { &*self.head }
    }

    /// What is published and not yet taken, at most `limit` bytes. Cuts in the middle of an event are the caller's to
    /// avoid: pass a limit only with [`whole_events`]. An impossible head (more than the ring holds: a program that wrote
    /// over it) gives the ring's size at most.
    pub fn available(&self) -> &[u8] {
        let h = self.shared();
        // ORDERING: Acquire pairs with the writer's Release in `publish`.
        let head = h.head.load(Ordering::Acquire);
        let tail = h.tail.load(Ordering::Relaxed);
        let n = head.wrapping_sub(tail).min(self.bytes) as usize;
        // SAFETY: tail % bytes + n <= 2 * bytes, mapped; the writer does not touch it before `take`.
        unsafe { core::slice::from_raw_parts(self.data.add((tail & (self.bytes - 1)) as usize), n) }
    }

    /// Gives `n` bytes back to the writer.
    pub fn take(&self, n: usize) {
        let h = self.shared();
        let tail = h.tail.load(Ordering::Relaxed);
        // ORDERING: Release: our reads of these bytes before the writer overwrites them.
        h.tail.store(tail + n as u64, Ordering::Release);
    }
}

/// Length of the longest run of whole events at the start of `b` that is not longer than `limit`.
pub fn whole_events(b: &[u8], limit: usize) -> usize {
    let mut at = 0;
    while let Some(len) = b.get(at + 4..at + 8) {
        let len = u32::from_ne_bytes([len[0], len[1], len[2], len[3]]) as usize;
        if len < 16 || !len.is_multiple_of(8) || at + len > b.len() || at + len > limit {
            break;
        }
        at += len;
    }
    at
}
