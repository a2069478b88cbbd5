//! One writer, one reader, no lock: a ring of events.
//!
//! The data area is mapped twice in a row, so an event that wraps is still contiguous in memory for both sides.
//! Events are written behind `head` and become visible together by [`Writer::publish`]; a thread that dies, or is killed,
//! in the middle leaves a ring that ends with its last published event.

use crate::event::{GapBody, Head, Plain, bytes_of, kind};
use crate::region::RingHead;
use core::sync::atomic::Ordering;

/// The longest event, bytes. Longer payloads are split by whoever writes them.
pub const MAX_EVENT: usize = 64 << 10;

/// [`Writer::warm`] asks for this many bytes at most: more than the line fill buffers take would hold the thread up.
const MAX_WARM: usize = 6 << 10;

/// How far ahead [`Writer::push_words`] asks for lines: what comes in the time that one takes to arrive.
const AHEAD: usize = 512;

/// Says how large an event with this body and payload becomes.
pub const fn event_len(body: usize, payload: usize) -> usize {
    (size_of::<Head>() + body + payload).next_multiple_of(8)
}

/// Asks for the line at an address, to write it; elsewhere than on x86-64, where agents write, it does nothing.
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
    /// Where the next event goes; runs ahead of the published head.
    at: u64,
    /// Up to here events fit, as far as is known: the reader's tail as last read, and what is prepared.
    end: u64,
    /// Up to here the memory is there without page faults; all of it if at the end of all numbers.
    prepared: u64,
    prepare: Option<Prepare>,
    /// Of the last event that did not fit, if that is not yet in the ring: its time.
    gap: Option<u64>,
    /// Half of the ring is all that this writer fills: it is to move to a larger one.
    growable: bool,
}

/// Bytes of a GAP event.
const GAP: usize = event_len(size_of::<GapBody>(), 0);

/// Makes memory of the ring's data area resident: address and length.
pub type Prepare = fn(*mut u8, usize);

/// Bytes that are prepared at a time, on the first way round a ring: a few microseconds where the recorder was here before, and
/// no more than tens where it was not.
pub const PIECE: usize = 32 << 10;

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
        // ORDERING: Relaxed: numbers of one writer; the owner before has left the ring, or the recorder has freed it.
        for (before, now) in h.gap_before.iter().zip(totals(h)) {
            before.store(now, Ordering::Relaxed);
        }
        h.gap_noted.store(h.gap_events.load(Ordering::Relaxed), Ordering::Relaxed);
        Writer { head, data, bytes, at, end: at, prepared: u64::MAX, prepare: None, gap: None, growable: false }
    }

    /// Has the memory made resident piece by piece on the way round it for the first time, instead of all at once before.
    /// To be called before anything is pushed.
    pub fn prepare_with(&mut self, f: Prepare) {
        // What was written before is there.
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

    /// True if `len` more bytes fit, looking at the reader's progress only when they did not before.
    #[inline(always)]
    pub fn fits(&mut self, len: usize) -> bool {
        self.end - self.at >= len as u64 || self.look(len)
    }

    #[cold]
    #[inline(never)]
    fn look(&mut self, len: usize) -> bool {
        // ORDERING: Acquire pairs with the reader's Release: it has finished reading what it gave back.
        let tail = self.shared().tail.load(Ordering::Acquire);
        // A tail that cannot be (a program that wrote over it) is no room, until the reader puts it right.
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

    /// Writes what did not fit, where it and `len` more bytes fit now: in front of this thread's next event.
    fn note_gap(&mut self, len: usize) {
        let Some(tsc) = self.gap.filter(|_| self.end - self.at >= (GAP + len) as u64) else { return };
        let head = Head { kind: kind::GAP, flags: 0, len: GAP as u32, tsc };
        let body = gap_body(self.shared());
        let p = self.reserve(GAP);
        // SAFETY: `reserve` gave that many bytes, which nobody reads before they are published.
        unsafe {
            p.cast::<Head>().write_unaligned(head);
            p.add(size_of::<Head>()).cast::<GapBody>().write_unaligned(body);
        }
        let h = self.shared();
        h.gap_noted.store(h.gap_events.load(Ordering::Relaxed), Ordering::Relaxed);
        self.gap = None;
    }

    /// To be called as the thread leaves its ring. False if what it has lost is not in there: the ring is the recorder's to
    /// free, which says it on the tape then ([`gap_left`]).
    pub fn settle_gap(&mut self) -> bool {
        self.gap.is_none() || (self.look(0) && self.gap.is_none())
    }

    /// Both are powers of two, so pieces make up the ring.
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
            // An event that wraps goes on in the second mapping, at most so far.
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

    /// Appends an event with a body and up to two payloads (the second starts on a multiple of 8). False if it does not
    /// fit; nothing is written then. Not visible before [`Writer::publish`].
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

    /// Appends an event whose body is `N` words and whose payload the caller writes itself: returns where the payload of
    /// `payload` bytes begins. `None` if it does not fit.
    ///
    /// The words go from registers into the ring. A body that is built in memory is loaded from there in pieces that are wider
    /// than those it was stored in; such a load waits until every store before it has left the core. In the tap of a doorbell
    /// those are the posted stores to the GPU.
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
        // SAFETY: `reserve` gave len bytes that nobody reads before they are published.
        unsafe {
            p.write_unaligned(head.to_le());
            p.add(1).write_unaligned(tsc);
            p.add(2).cast::<[u64; N]>().write_unaligned(body);
            Some(p.cast::<u8>().add(first))
        }
    }

    /// Appends an event whose body is `N` words, for those that come every few nanoseconds: [`Writer::push`] without its
    /// lengths and with as few stores as there are words, and the line that an event behind this one will need is asked
    /// for. A locked instruction waits for all stores before it, and the reader's core has had the ring's lines last.
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
        // ORDERING: Release: the events' bytes before the head that covers them.
        self.shared().head.store(self.at, Ordering::Release);
    }

    /// Asks for the ring's next lines, so that writing them does not have to wait: the reader's core has had them last, and
    /// a fence behind the next event would wait for every one to come back.
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

    /// Bytes ever written, up to the next event: what [`crate::event::ThreadBody::from_head`] is to be once they are published.
    pub fn head(&self) -> u64 {
        self.at
    }

    /// Counts what did not fit: events, entries, bytes, of which the last at `tsc`. The thread's next event that fits has a GAP
    /// event in front of it.
    #[inline]
    pub fn count_gap(&mut self, events: u64, entries: u64, bytes: u64, tsc: u64) {
        let h = self.shared();
        // ORDERING: Relaxed: counters with one writer, read for a report.
        for (to, more) in [(&h.gap_events, events), (&h.gap_entries, entries), (&h.gap_bytes, bytes)] {
            to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
        }
        self.gap = Some(tsc);
        // Whatever comes next looks for room anew.
        self.end = self.at;
    }
}

/// A ring's gaps so far: events, entries, bytes.
fn totals(h: &RingHead) -> [u64; 3] {
    // ORDERING: Relaxed: counters; the owner is the only writer.
    [&h.gap_events, &h.gap_entries, &h.gap_bytes].map(|g| g.load(Ordering::Relaxed))
}

/// What the ring's owner has lost so far. (Its counters go on over its owners.)
fn gap_body(h: &RingHead) -> GapBody {
    let (now, before) = (totals(h), h.gap_before.each_ref().map(|b| b.load(Ordering::Relaxed)));
    let [events, entries, bytes] = core::array::from_fn(|i| now[i].wrapping_sub(before[i]));
    GapBody { events, entries, bytes }
}

/// What the ring's owner has lost and did not say itself, for the recorder once that thread has ended.
pub fn gap_left(h: &RingHead) -> Option<GapBody> {
    (h.gap_noted.load(Ordering::Relaxed) != h.gap_events.load(Ordering::Relaxed)).then(|| gap_body(h))
}

/// The reading side: the recorder's. It keeps its own place: what the program does to the shared tail does not move it.
pub struct Reader {
    head: *const RingHead,
    data: *const u8,
    bytes: u64,
    /// Bytes ever taken.
    tail: core::cell::Cell<u64>,
}

impl Reader {
    /// # Safety
    /// As for [`Writer::new`]; nobody else reads this ring.
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

    /// What is published and not yet taken. Nothing where the head is one that cannot be ([`Reader::is_damaged`]).
    pub fn available(&self) -> &[u8] {
        if self.shared().tail.load(Ordering::Relaxed) != self.tail.get() {
            // Somebody wrote over it: without this the writer would wait for room for ever.
            self.give_back();
        }
        let n = match self.published() {
            n if n <= self.bytes => n as usize,
            _ => 0,
        };
        // SAFETY: tail % bytes + n <= 2 * bytes, mapped; the writer does not touch it before `take`.
        unsafe { core::slice::from_raw_parts(self.data.add((self.tail.get() & (self.bytes - 1)) as usize), n) }
    }

    /// The head lies behind what was taken, or ahead of it by more than the ring holds: the program wrote over it. It
    /// comes right by itself when the writer publishes again.
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
        // ORDERING: Release: our reads of these bytes before the writer overwrites them.
        self.shared().tail.store(self.tail.get(), Ordering::Release);
    }

    /// Goes on at the head, whatever it is: for a ring that nobody writes to any more.
    pub fn skip_to_head(&self) {
        self.tail.set(self.shared().head.load(Ordering::Acquire));
        self.give_back();
    }
}

/// Length of the longest run of whole events at the start of `b` that is not longer than `limit`. Judged by their lengths
/// alone: a length that no event has ends it.
pub fn whole_events(b: &[u8], limit: usize) -> usize {
    walk(b, limit, |_| false)
}

/// As [`whole_events`], but ends before a THREAD event that is not the first: what is another thread's.
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
