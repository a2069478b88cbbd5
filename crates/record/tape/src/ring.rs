//! One writer, one reader, no lock: a ring of events.
//!
//! The data area is mapped twice in a row, so an event that wraps is still contiguous in memory for both sides. Events are
//! written after `head` and become visible together by [`Writer::publish`]. A thread that dies or is killed between the two
//! leaves a ring that ends with its last published event.

use crate::event::{GapBody, Head, Plain, bytes_of, kind};
use crate::region::RingHead;
use core::sync::atomic::Ordering;

/// The longest event, bytes. The writer splits longer payloads.
pub const MAX_EVENT: usize = 64 << 10;

/// [`Writer::warm`] requests this many bytes at most: more than the line fill buffers can hold would stall the thread.
const MAX_WARM: usize = 6 << 10;

/// How far ahead [`Writer::push_words`] requests lines, bytes: as many as are written while one line arrives.
const AHEAD: usize = 512;

/// Bytes of an event with this body and payload.
pub const fn event_len(body: usize, payload: usize) -> usize {
    (size_of::<Head>() + body + payload).next_multiple_of(8)
}

/// Requests the line at an address, to write it. Only on x86-64, where agents write.
#[inline(always)]
fn ask_for(_at: *const u8) {
    // SAFETY: a prefetch touches no memory as far as the program is concerned.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("prefetchw [{}]", in(reg) _at, options(nostack, preserves_flags))
    };
}

/// The writing side: one thread's.
pub struct Writer {
    head: *const RingHead,
    data: *mut u8,
    /// Ring size, a power of two.
    bytes: u64,
    /// Where the next event is written: at the published head, or ahead of it.
    at: u64,
    /// Up to here events are known to fit, from the reader's tail as last read and from what is prepared.
    end: u64,
    /// Up to here the memory is resident (`u64::MAX`: all of it).
    prepared: u64,
    prepare: Option<Prepare>,
    /// Time of the last event that did not fit, if no GAP event was written for it yet.
    gap: Option<u64>,
    /// This writer fills only half of the ring, because it is to move to a larger one.
    growable: bool,
}

/// Bytes of a GAP event.
const GAP: usize = event_len(size_of::<GapBody>(), 0);

/// Makes memory of the ring's data area resident: address and length.
pub type Prepare = fn(*mut u8, usize);

/// Bytes that are prepared at a time, during the first pass over a ring. A piece takes a few microseconds if the recorder has
/// touched it before, else some tens at most.
pub const PIECE: usize = 32 << 10;

impl Writer {
    /// A writer over a ring that this thread has claimed.
    ///
    /// # Safety
    /// `head` points to a mapped [`RingHead`], `data` to `2 * bytes` of mapped memory whose halves are the same memory,
    /// `bytes` is a power of two of at least `2 * MAX_EVENT`; both stay mapped as long as the writer lives, and no other
    /// thread writes to this ring.
    pub unsafe fn new(head: *const RingHead, data: *mut u8, bytes: u64) -> Writer {
        // SAFETY: mapped, by the caller's promise.
        let h = unsafe { &*head };
        let at = h.head.load(Ordering::Relaxed);
        // ORDERING: Relaxed: one thread writes these numbers; the owner before has left the ring, or the recorder has freed
        // it.
        for (before, now) in h.gap_before.iter().zip(totals(h)) {
            before.store(now, Ordering::Relaxed);
        }
        h.gap_noted.store(h.gap_events.load(Ordering::Relaxed), Ordering::Relaxed);
        Writer { head, data, bytes, at, end: at, prepared: u64::MAX, prepare: None, gap: None, growable: false }
    }

    /// Counts a call that is too short to be written.
    pub fn count_short_call(&mut self) {
        // SAFETY: mapped, as `new` was promised.
        let n = unsafe { &(*self.head).short_calls };
        // (One thread writes it.)
        n.store(n.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// Makes the memory resident piece by piece during the first pass over the ring, instead of all of it in advance. Call it
    /// before the first push.
    pub fn prepare_with(&mut self, f: Prepare) {
        // Memory that was written before is resident.
        if self.at < self.bytes {
            self.prepared = self.at.next_multiple_of(self.piece());
            self.prepare = Some(f);
        }
    }

    /// Whether the ring counts as full when it is half full, so that its thread can move to a larger one in time.
    pub fn set_growable(&mut self, growable: bool) {
        self.growable = growable;
        self.end = self.at;
    }

    pub fn is_growable(&self) -> bool {
        self.growable
    }

    fn shared(&self) -> &RingHead {
        // SAFETY: `new` was promised that it stays mapped.
        unsafe { &*self.head }
    }

    /// True if `len` more bytes fit. It reads the reader's tail only if they do not fit by the last known one.
    #[inline(always)]
    pub fn fits(&mut self, len: usize) -> bool {
        self.end - self.at >= len as u64 || self.look(len)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, len: usize) -> bool {
        // ORDERING: Acquire pairs with the reader's Release: the reader has finished with the bytes that it gave back.
        let tail = self.shared().tail.load(Ordering::Acquire);
        // An impossible tail (the program wrote over it) counts as no room, until the reader restores it.
        let usable = if self.growable { self.bytes / 2 } else { self.bytes };
        let room = usable.saturating_sub(self.at.wrapping_sub(tail));
        let wanted = if self.gap.is_some() { GAP + len } else { len };
        while self.prepared < self.at + room.min(wanted as u64) {
            self.prepare_piece();
        }
        self.end = (self.at + room).min(self.prepared);
        if self.gap.is_some() {
            self.note_gap(len);
        }
        self.end - self.at >= len as u64
    }

    /// Writes a GAP event before this thread's next event, if it and `len` more bytes fit now.
    fn note_gap(&mut self, len: usize) {
        let Some(tsc) = self.gap.filter(|_| self.end - self.at >= (GAP + len) as u64) else { return };
        let head = Head { kind: kind::GAP, flags: 0, len: GAP as u32, tsc };
        let body = gap_body(self.shared());
        let p = self.reserve(GAP);
        // SAFETY: `reserve` returned that many bytes, which are not read before they are published.
        unsafe {
            p.cast::<Head>().write_unaligned(head);
            p.add(size_of::<Head>()).cast::<GapBody>().write_unaligned(body);
        }
        let h = self.shared();
        h.gap_noted.store(h.gap_events.load(Ordering::Relaxed), Ordering::Relaxed);
        self.gap = None;
    }

    /// Call it as the thread leaves its ring. False if its last gap is not in the ring. Then the recorder must free the ring,
    /// and writes the gap to the tape ([`gap_left`]).
    pub fn settle_gap(&mut self) -> bool {
        self.gap.is_none() || (self.look(0) && self.gap.is_none())
    }

    /// Both are powers of two, so the ring is a whole number of pieces.
    fn piece(&self) -> u64 {
        self.bytes.min(PIECE as u64)
    }

    fn prepare_piece(&mut self) {
        let Some(f) = self.prepare else {
            self.prepared = u64::MAX;
            return;
        };
        let piece = self.piece();
        if self.prepared < self.bytes {
            f(self.data.wrapping_add(self.prepared as usize), piece as usize);
        }
        self.prepared += piece;
        if self.prepared >= self.bytes {
            // An event that wraps continues in the second mapping, by at most this much.
            f(self.data.wrapping_add(self.bytes as usize), MAX_EVENT);
            self.prepared = u64::MAX;
        }
    }

    /// Reserves `len` bytes (a multiple of 8) and returns where to write them. Call only after [`Writer::fits`].
    #[inline]
    fn reserve(&mut self, len: usize) -> *mut u8 {
        // SAFETY: at % bytes + len <= 2 * bytes because len <= MAX_EVENT <= bytes.
        let p = unsafe { self.data.add((self.at & (self.bytes - 1)) as usize) };
        self.at += len as u64;
        p
    }

    /// Bytes of an event with a body of `body` bytes and up to two payloads.
    #[inline(always)]
    pub const fn len_of(body: usize, a: usize, b: usize) -> usize {
        (size_of::<Head>() + body + a.next_multiple_of(8) + b).next_multiple_of(8)
    }

    /// Appends an event with a body and up to two payloads (the second starts on a multiple of 8). If it does not fit, it
    /// returns false and writes no byte. The event is not visible before [`Writer::publish`].
    #[inline(always)]
    pub fn push<B: Plain>(&mut self, kind: u16, flags: u16, tsc: u64, body: &B, a: &[u8], b: &[u8]) -> bool {
        let first = size_of::<Head>() + size_of::<B>();
        let second = first + a.len().next_multiple_of(8);
        let len = Writer::len_of(size_of::<B>(), a.len(), b.len());
        if len > MAX_EVENT || !self.fits(len) {
            return false;
        }
        let p = self.reserve(len);
        let head = Head { kind, flags, len: len as u32, tsc };
        // SAFETY: `reserve` returned len bytes, which are not read before they are published; the pieces are inside them.
        unsafe {
            p.cast::<Head>().write_unaligned(head);
            let bb = bytes_of(body);
            core::ptr::copy_nonoverlapping(bb.as_ptr(), p.add(size_of::<Head>()), bb.len());
            core::ptr::copy_nonoverlapping(a.as_ptr(), p.add(first), a.len());
            core::ptr::copy_nonoverlapping(b.as_ptr(), p.add(second), b.len());
        }
        true
    }

    /// Appends an event whose body is `N` words and whose payload the caller writes itself: returns where the payload of
    /// `payload` bytes begins. `None` if it does not fit.
    ///
    /// The words are stored from registers into the ring. A body that is built in memory is loaded again in wider pieces than
    /// it was stored in. Such a load waits until every earlier store has left the core. In a doorbell's tap these are the
    /// posted stores to the GPU.
    #[inline(always)]
    pub fn push_words_with<const N: usize>(
        &mut self,
        kind: u16,
        flags: u16,
        tsc: u64,
        body: [u64; N],
        payload: usize,
    ) -> Option<*mut u8> {
        let first = size_of::<Head>() + size_of::<[u64; N]>();
        let len = (first + payload).next_multiple_of(8);
        if len > MAX_EVENT || !self.fits(len) {
            return None;
        }
        let p = self.reserve(len).cast::<u64>();
        let head = u64::from(kind) | u64::from(flags) << 16 | (len as u64) << 32;
        // SAFETY: `reserve` returned len bytes, which are not read before they are published.
        unsafe {
            p.write_unaligned(head.to_le());
            p.add(1).write_unaligned(tsc);
            p.add(2).cast::<[u64; N]>().write_unaligned(body);
            Some(p.cast::<u8>().add(first))
        }
    }

    /// Appends an event whose body is `N` words, for events every few nanoseconds. Unlike [`Writer::push`] it handles no
    /// lengths, makes one store a word, and requests the line of a later event: a locked instruction waits for all earlier
    /// stores, and the reader's core had the ring's lines last.
    #[inline(always)]
    pub fn push_words<const N: usize>(&mut self, kind: u16, flags: u16, tsc: u64, body: [u64; N]) -> bool {
        let Some(p) = self.push_words_with(kind, flags, tsc, body, 0) else { return false };
        let from = size_of::<Head>() + size_of::<[u64; N]>();
        let ahead = p.wrapping_byte_sub(from).wrapping_byte_add(AHEAD);
        ask_for(ahead);
        true
    }

    /// Makes everything pushed visible to the reader.
    #[inline]
    pub fn publish(&mut self) {
        // ORDERING: Release: the events' bytes are stored before the head that covers them.
        self.shared().head.store(self.at, Ordering::Release);
    }

    /// Requests the ring's next lines, so that stores to them do not wait. The reader's core had them last, and a fence after
    /// the next event would wait for each of them to return.
    #[inline]
    pub fn warm(&self, len: usize) {
        let from = self.data.wrapping_add((self.at & (self.bytes - 1)) as usize);
        for line in (0..len.min(MAX_WARM)).step_by(64) {
            ask_for(from.wrapping_add(line));
        }
    }

    /// Bytes pushed since the head was last published.
    #[inline]
    pub fn unpublished(&self) -> usize {
        (self.at - self.shared().head.load(Ordering::Relaxed)) as usize
    }

    /// Bytes ever written, up to the next event. Once they are published, this is the value for
    /// [`crate::event::ThreadBody::from_head`].
    pub fn head(&self) -> u64 {
        self.at
    }

    /// Counts events, entries and bytes that did not fit; the last event was at `tsc`. A GAP event is written before the
    /// thread's next event that fits.
    #[inline]
    pub fn count_gap(&mut self, events: u64, entries: u64, bytes: u64, tsc: u64) {
        let h = self.shared();
        // ORDERING: Relaxed: counters with one writer, read for a report.
        for (to, more) in [(&h.gap_events, events), (&h.gap_entries, entries), (&h.gap_bytes, bytes)] {
            to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
        self.gap = Some(tsc);
        // The next event must look for room again.
        self.end = self.at;
    }
}

/// A ring's gaps so far: events, entries, bytes.
fn totals(h: &RingHead) -> [u64; 3] {
    // ORDERING: Relaxed: counters; the owner is the only writer.
    [&h.gap_events, &h.gap_entries, &h.gap_bytes].map(|g| g.load(Ordering::Relaxed))
}

/// The losses of the ring's owner so far. (The ring's counters continue from owner to owner.)
fn gap_body(h: &RingHead) -> GapBody {
    let (now, before) = (totals(h), h.gap_before.each_ref().map(|b| b.load(Ordering::Relaxed)));
    let [events, entries, bytes] = core::array::from_fn(|i| now[i].wrapping_sub(before[i]));
    GapBody { events, entries, bytes }
}

/// The losses for which the ring's owner wrote no GAP event. For the recorder, after that thread has ended.
pub fn gap_left(h: &RingHead) -> Option<GapBody> {
    (h.gap_noted.load(Ordering::Relaxed) != h.gap_events.load(Ordering::Relaxed)).then(|| gap_body(h))
}

/// The reading side: the recorder's. It keeps its own tail, so a program that overwrites the shared one does not move it.
pub struct Reader {
    head: *const RingHead,
    data: *const u8,
    bytes: u64,
    /// Bytes ever taken.
    tail: core::cell::Cell<u64>,
}

impl Reader {
    /// # Safety
    /// As for [`Writer::new`]; there is no other reader of this ring.
    pub unsafe fn new(head: *const RingHead, data: *const u8, bytes: u64) -> Reader {
        // SAFETY: mapped, by the caller's promise.
        let tail = unsafe { &*head }.tail.load(Ordering::Relaxed);
        Reader { head, data, bytes, tail: tail.into() }
    }

    pub fn shared(&self) -> &RingHead {
        // SAFETY: `new` was promised that it stays mapped.
        unsafe { &*self.head }
    }

    fn published(&self) -> u64 {
        // ORDERING: Acquire pairs with the writer's Release in `publish`.
        self.shared().head.load(Ordering::Acquire).wrapping_sub(self.tail.get())
    }

    /// Bytes that are published and not yet taken. Empty if the head is impossible ([`Reader::is_damaged`]).
    pub fn available(&self) -> &[u8] {
        if self.shared().tail.load(Ordering::Relaxed) != self.tail.get() {
            // The program wrote over it. Without this the writer would wait for room forever.
            self.give_back();
        }
        let n = match self.published() {
            n if n <= self.bytes => n as usize,
            _ => 0,
        };
        // SAFETY: tail % bytes + n <= 2 * bytes, mapped; the writer does not touch it before `take`.
        unsafe { core::slice::from_raw_parts(self.data.add((self.tail.get() & (self.bytes - 1)) as usize), n) }
    }

    /// The head is before the tail, or ahead of it by more than the ring holds: the program wrote over it. The writer's next
    /// publish corrects it.
    pub fn is_damaged(&self) -> bool {
        self.published() > self.bytes
    }

    /// Bytes ever taken.
    pub fn taken(&self) -> u64 {
        self.tail.get()
    }

    /// Gives `n` bytes back to the writer.
    pub fn take(&self, n: usize) {
        self.tail.set(self.tail.get().wrapping_add(n as u64));
        self.give_back();
    }

    fn give_back(&self) {
        // ORDERING: Release: these bytes are read before the writer overwrites them.
        self.shared().tail.store(self.tail.get(), Ordering::Release);
    }

    /// Moves the tail to the head, whatever it is: for a ring that has no writer any more.
    pub fn skip_to_head(&self) {
        self.tail.set(self.shared().head.load(Ordering::Acquire));
        self.give_back();
    }
}

/// Length of the longest run of whole events at the start of `b` that is not longer than `limit`. Only lengths are checked:
/// one that no event can have ends the run.
pub fn whole_events(b: &[u8], limit: usize) -> usize {
    walk(b, limit, |_| false)
}

/// As [`whole_events`], but ends before a THREAD event that is not the first: from there on, events are another thread's.
pub fn events_of_one_thread(b: &[u8], limit: usize) -> usize {
    walk(b, limit, |kind| kind == crate::event::kind::THREAD)
}

fn walk(b: &[u8], limit: usize, ends: impl Fn(u16) -> bool) -> usize {
    let mut at = 0;
    while let Some(&[a, k, _, _, l0, l1, l2, l3]) = b.get(at..at + 8) {
        let len = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
        if !(16..=MAX_EVENT).contains(&len) || !len.is_multiple_of(8) || len > b.len() - at || len > limit - at {
            break;
        }
        if at > 0 && ends(u16::from_ne_bytes([a, k])) {
            break;
        }
        at += len;
    }
    at
}
