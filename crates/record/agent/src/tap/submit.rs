//! The hot zone: what happens at a doorbell.
//!
//! Between the program's store to the doorbell and the GPU, the tap
//!
//! - finds the channel and compares GP_PUT with the last value seen,
//! - forwards the new entries if the channel has a shadow,
//! - copies them and the words they point to into the thread's ring,
//! - makes the store.
//!
//! No allocation, no lock, no system call (except on a nearly full GPFIFO, and for a thread's first ring).
//!
//! Two threads may ring one channel at the same time (libcuda's do not: it holds the channel's lock). The first one owns
//! the channel's tap until no doorbell is left to make. The others leave their doorbells to it and continue. Each counts
//! as one, so none is lost or merged. No thread spins for a preempted one: a doorbell that was left to it is made when it
//! runs again.

use super::channel::{self, Channel, GP_PUT};
use super::stamps::Writes;
use super::{copies, graphs, page, ranges, shadow, stamps};
use crate::driver::channels;
use crate::process::{region, sys};
use crate::record;
use crate::trace::call;
use core::sync::atomic::Ordering;
use pushbuf::gpfifo::Raw;
use tape::event::{EntryBody, Head, NO_SLOT, RingBody, entry_flags, kind, lack, ring_flags, watch};
use tape::region::{Slot, on_full};
use tape::ring::{MAX_EVENT, Writer};

/// The doorbell in a usermode page (NV_USERMODE_NOTIFY_CHANNEL_PENDING, class 0xC361 +0x90).
pub const DOORBELL: u64 = 0x90;

/// Maximum number of an entry's words in one event.
const CHUNK: usize = (MAX_EVENT - 64) / 4;
/// Maximum number of words recorded of one entry: what fits into half a ring, unless the thread waits for room. More
/// would never fit.
fn longest() -> usize {
    match region::control() {
        Some(c) if c.on_full == on_full::GAP => c.ring_bytes as usize / 2 / 4,
        _ => usize::MAX,
    }
}

/// A store of `value` at `offset` of doorbell page `p`, before it reaches the GPU: records what it submits, then makes
/// the store. False, and nothing is done, if a stub made it and its token may be learned: that needs more than a stub
/// saves, so the store must trap.
#[inline]
pub fn store(p: usize, offset: u64, value: u32, trapped: bool) -> bool {
    store_for(p, offset, value, trapped, false)
}

/// Before a trapped store: a doorbell with an unknown token may be one of a channel that has none.
pub fn learn_token(p: usize, offset: u64, value: u32) {
    let device = page::device(p);
    if offset == DOORBELL && region::active() && channel::by_token(value, device).is_none() {
        channels::of_unknown_token(value, device);
    }
}

/// As [`store`]. `left_to_us`: another thread rang while a claim was held outside the tap.
#[inline]
fn store_for(p: usize, offset: u64, value: u32, trapped: bool, left_to_us: bool) -> bool {
    let Some(real) = page::real(p) else { return true };
    if offset != DOORBELL || !region::active() {
        ring_doorbell(real + offset, value);
        return true;
    }
    let Some(i) = channel::by_token(value, page::device(p)) else {
        if !trapped && !left_to_us && channels::may_look() {
            return false;
        }
        stranger(p, value, trapped);
        ring_doorbell(real + offset, value);
        return true;
    };
    let Some(slot) = region::slot(i) else { return true };
    // ORDERING: AcqRel: sees the writes of the last owner, and of the threads that left a doorbell to it.
    if slot.claim.compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_err() && channel::leave(i, slot) {
        return true;
    }
    let mut flags = if trapped { ring_flags::TRAPPED } else { 0 };
    let mut rang = None;
    if left_to_us {
        flags |= ring_flags::HANDED_OVER;
        rang = Some(channel::take_left(i));
    }
    loop {
        let bell = Bell { page: p, token: value, flags, rang };
        // SAFETY: this thread owns the claim of slot i.
        let submitted = unsafe { channel::get(i) }.map(|c| submit(c, slot, i, &bell));
        // Only recorded doorbells are counted: if the program is killed in between, entries that never rang would count
        // as lost.
        let account = || {
            if let Some(s) = &submitted {
                slot.put.store(s.put, Ordering::Relaxed);
                slot.entries_total.store(s.entries, Ordering::Relaxed);
            }
        };
        let ring = || {
            // SAFETY: inside the usermode page that the program mapped for this very store.
            unsafe { ((real + offset) as *mut u32).write_volatile(value) }
        };
        // ORDERING: events before the doorbell, so that the ring of a program that is killed now contains each doorbell
        // that was made. Both are plain stores, which x86 makes visible in order. A fence here would wait until the line
        // of the ring's head is back from the recorder's core.
        // (In a pause no event is recorded: then a thread that only rings doorbells takes no ring.)
        let is_recorded = submitted.as_ref().is_none_or(|s| s.tsc != 0);
        let published = is_recorded
            .then(|| {
                record::with(|w, _| {
                    let len = w.unpublished();
                    w.publish();
                    account();
                    ring();
                    w.warm(len + len / 4);
                })
            })
            .flatten();
        if published.is_none() {
            account();
            ring();
        }
        if let Some(s) = submitted {
            if let Some(l) = s.later {
                l.copy();
            }
            if stamps::area() != 0 && s.tsc != 0 {
                stamps::read_clocks(p, s.tsc);
            }
        }
        // ORDERING: AcqRel: passes this thread's changes to the next owner, and sees what the waiting thread wrote.
        if slot.claim.fetch_sub(1, Ordering::AcqRel) <= 1 {
            break;
        }
        flags |= ring_flags::HANDED_OVER;
        rang = Some(channel::take_left(i));
    }
    true
}

/// Gives back a claim that was taken outside the tap, and makes the doorbells that were handed over in the meantime.
pub fn settle(slot: usize) {
    let waiting = channel::unclaim(slot);
    if waiting == 0 {
        return;
    }
    let token = region::slot(slot).map_or(0, |s| s.token.load(Ordering::Relaxed));
    let device = channel::device(slot);
    // For a doorbell that was left to the claim, it is not stored how it arrived. If no site is rewritten, there is only
    // one possibility.
    let trapped = region::control().is_some_and(|c| c.tap == tape::region::tap::TRAP);
    if let Some(p) = page::of_device(device) {
        for _ in 0..waiting {
            store_for(p, DOORBELL, token, trapped, true);
        }
    }
}

/// Later doorbells will not be seen. So every channel that has a shadow gets its own ring back, with all entries that the
/// program has written so far. Otherwise the GPU would wait for entries forever.
#[cold]
pub fn give_rings_back() {
    for i in 0..tape::region::SLOTS {
        let Some(slot) = region::slot(i) else { break };
        if slot.state.load(Ordering::Relaxed) == 1 {
            give_ring_back(i, slot);
        }
    }
}

/// The same for one channel. Its doorbells are still seen without the shadow.
#[cold]
pub fn give_ring_back(i: usize, slot: &Slot) {
    if !channel::claim(i) {
        return;
    }
    // SAFETY: this thread holds the claim.
    if let Some(c) = unsafe { channel::get(i) }.filter(|c| c.watch == watch::SHADOW) {
        give_back(c, slot, i);
        unseen(c, slot);
    }
    settle(i);
}

/// Gives the channel its ring back, with all entries that the program has written so far. The caller holds the claim.
pub fn give_back(c: &mut Channel, slot: &Slot, i: usize) {
    if c.watch == watch::SHADOW {
        hand_on_written(c, slot);
        shadow::take_away(c, i, true);
        c.watch = watch::DIRECT;
    }
}

/// Forwards the entries that no doorbell has announced yet. They stay unseen. The caller holds the claim.
pub fn hand_on_written(c: &Channel, slot: &Slot) {
    let from = slot.put.load(Ordering::Relaxed);
    let (put, n) = c.written(from);
    if c.watch == watch::SHADOW && n != 0 {
        forward(c, from, put, n);
    }
}

/// Counts as lost the entries that were written and not recorded. Returns GP_PUT now, and their number. The caller holds
/// the claim.
pub fn unseen(c: &Channel, slot: &Slot) -> (u32, u32) {
    let (put, n) = c.written(slot.put.load(Ordering::Relaxed));
    slot.put.store(put, Ordering::Relaxed);
    slot.entries_total.fetch_add(u64::from(n), Ordering::Relaxed);
    slot.lost.fetch_add(u64::from(n), Ordering::Relaxed);
    (put, n)
}

/// Makes a store that is not tapped, after a fence.
#[inline]
fn ring_doorbell(at: u64, value: u32) {
    // ORDERING: the entries and GP_PUT before the doorbell. The doorbell is uncached, but the entries may be in
    // write-combined memory, which only a fence drains.
    // SAFETY: sfence needs nothing; `at` is in the usermode page that the program mapped for this very store.
    unsafe {
        core::arch::x86_64::_mm_sfence();
        (at as *mut u32).write_volatile(value);
    }
}

#[cold]
fn stranger(p: usize, value: u32, trapped: bool) {
    if page::device(p) == page::INHERITED {
        return;
    }
    region::count(|c| &c.strangers);
    let flags = if trapped { ring_flags::TRAPPED } else { 0 };
    let body =
        RingBody { token: value, slot: NO_SLOT, tid: record::tid() as u32, page: p as u32, ..RingBody::default() };
    record::event(kind::RING, flags, sys::tsc(), &body, &[], &[]);
}

/// Words of an entry that are copied after its doorbell: see [`Later::copy`].
struct Later {
    /// [`EntryBody::gp`] and `seq`. `place` is `slot`, with `index` above it, in one word. If two halves are stored
    /// separately, they can be loaded as one only after every store before them has left the core.
    gp: u64,
    seq: u64,
    place: u64,
    from: *const u8,
    words: usize,
    tsc: u64,
}

/// Segments of more words than this are copied after the doorbell: 32 cache lines from memory take longer than the
/// entries take to reach the GPU (seen on an H200: 0.5 us for the 4 KiB of an inline copy).
const LARGE: usize = 512;
/// Bytes of a usual submission in the thread's ring, with a margin.
const USUAL: usize = 8 << 10;
/// Ticks after the doorbell beyond which copied words are marked as late: about 20 us.
const LATE: u64 = 50_000;

impl Later {
    /// Copies the words after the doorbell has been rung. The driver holds its channel until the store returns, so no
    /// thread reuses the segment. If this thread was held up for long, the words are still marked.
    fn copy(self) {
        let Later { gp, seq, place, .. } = self;
        let mut body =
            EntryBody { gp, seq, slot: place as u32, index: (place >> 32) as u32, words: 0, lack: lack::NONE };
        record::with(|w, _| {
            let mut done = 0;
            while done < self.words {
                let n = (self.words - done).min(CHUNK);
                let more = if done + n < self.words { entry_flags::MORE } else { 0 };
                body.words = n as u32;
                // The words must be copied before it is known whether that was in time, so the flag is set afterwards.
                let Some(to) = record::entry(w, entry_flags::CONTINUED | more, self.tsc, body) else {
                    break;
                };
                // SAFETY: the segment is mapped and this long; `to` has room for n words.
                unsafe { core::ptr::copy_nonoverlapping(self.from.add(4 * done), to, n * 4) };
                if sys::tsc().wrapping_sub(self.tsc) > LATE {
                    // SAFETY: `to` follows the head and body of the event just reserved; flags are its second half-word.
                    unsafe {
                        let head = to.sub(size_of::<EntryBody>() + size_of::<Head>()).cast::<Head>();
                        let mut h = head.read_unaligned();
                        h.flags |= entry_flags::LATE;
                        head.write_unaligned(h);
                    }
                }
                done += n;
            }
            let len = w.unpublished();
            w.publish();
            w.warm(len + len / 4);
        });
    }
}

/// A doorbell's submission, written to the ring but not yet published.
struct Submitted {
    /// GP_PUT now.
    put: u32,
    /// Entries of the channel so far, including these.
    entries: u64,
    later: Option<Later>,
    /// Time of the submission; 0 in a pause.
    tsc: u64,
}

/// A doorbell as it arrived.
struct Bell {
    page: usize,
    token: u32,
    flags: u16,
    /// The thread that rang, if it is not this one; 0 if unknown.
    rang: Option<u32>,
}

fn submit(c: &mut Channel, slot: &Slot, i: usize, bell: &Bell) -> Submitted {
    let from = slot.put.load(Ordering::Relaxed);
    if region::paused() {
        return pass(c, slot, from);
    }
    let mut flags = bell.flags;
    if c.paused {
        c.paused = false;
        flags |= ring_flags::AFTER_PAUSE;
    }
    let is_stamped = stamps::is_for(i);
    if is_stamped {
        stamps::ask_for_number();
    }
    let tsc = if is_stamped { 0 } else { sys::tsc() };
    let seq = slot.rings_total.load(Ordering::Relaxed);
    slot.rings_total.store(seq + 1, Ordering::Relaxed);
    if flags & ring_flags::TRAPPED != 0 {
        slot.trapped_total.store(slot.trapped_total.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
    let (put, n) = c.written(from);
    let first = slot.entries_total.load(Ordering::Relaxed);
    ask_for_words(c, from, n);
    if c.watch == watch::SHADOW {
        hand_on(c, from, n);
    }
    // ORDERING: before GP_PUT. The GPU also reads new entries without their doorbell: when it looks at the channel for an
    // earlier one.
    if is_stamped {
        stamp(c, i, from, n, first);
    }
    if c.watch == watch::SHADOW {
        announce(c, put);
        drain();
    }
    // A kernel's start is computed from the doorbell's time, so it is read as close to the store as possible. Before
    // that, the ring's memory is made present if necessary: that takes 6 to 10 us, in each 17th of a thread's first
    // launches (seen on an H200).
    let tsc = if is_stamped {
        record::with(|w, _| w.fits(USUAL));
        sys::rdtsc()
    } else {
        tsc
    };
    let mut later = None;
    let recorded = if region::stopped() {
        None
    } else {
        record::with(|w, t| {
            let body = RingBody {
                token: bell.token,
                slot: i as u32,
                seq,
                put_from: from,
                put_to: put,
                tid: bell.rang.unwrap_or(t.tid.get() as u32),
                page: bell.page as u32,
                ..RingBody::default()
            };
            // The state of another thread's call is unknown here.
            let body = if bell.rang.is_none() { call::around(t, body) } else { body };
            record::ring(w, flags, tsc, body);
            let mut lost = 0;
            let mut at = from;
            // One large segment, and no other thread at this channel.
            if n == 1
                && flags & ring_flags::HANDED_OVER == 0
                && let Some(l) = large(c, w, i, from, first, tsc)
            {
                later = Some(l);
                return 0;
            }
            for k in 0..n {
                lost += !entry(c, w, i, at, first + k as u64, tsc) as u64;
                at = next(at, c.entries);
            }
            lost
        })
    };
    let lost = recorded.unwrap_or(n as u64);
    if lost != 0 {
        slot.lost.fetch_add(lost, Ordering::Relaxed);
    }
    if c.watch == watch::SHADOW {
        shadow::look_for_room(c, put);
    }
    Submitted { put, entries: first + n as u64, later, tsc }
}

/// A doorbell in a pause: it is not recorded, and its entries are not counted.
#[inline(never)]
fn pass(c: &mut Channel, slot: &Slot, from: u32) -> Submitted {
    let (put, n) = c.written(from);
    if c.watch == watch::SHADOW {
        forward(c, from, put, n);
    }
    let mut at = from;
    for _ in 0..n {
        let gp = c.entry(at);
        if gp.words() == 0 {
            c.base = gp.extended_base().unwrap_or(c.base);
        }
        at = next(at, c.entries);
    }
    if c.watch == watch::SHADOW {
        shadow::look_for_room(c, put);
    }
    c.paused = true;
    region::count(|c| &c.paused_rings);
    Submitted { put, entries: slot.entries_total.load(Ordering::Relaxed), later: None, tsc: 0 }
}

/// Makes the kernels of the new entries store their ends, and the copies their begins and ends. `first`: the number of
/// the first entry.
#[inline(never)]
fn stamp(c: &mut Channel, i: usize, from: u32, n: u32, first: u64) {
    let Some(control) = region::control() else { return };
    let mut at = from;
    for k in 0..n {
        let (index, gp) = (at, c.entry(at));
        at = next(at, c.entries);
        let words = gp.words();
        // (A new base applies from the next entry on, as in `entry`, which stores it.)
        let base = c.base;
        if words == 0 {
            continue;
        }
        let Some(segment) = locate(c, gp.address(base), words as u64 * 4).filter(|s| !s.video) else { continue };
        let has_shadow = c.watch == watch::SHADOW;
        // SAFETY: the whole segment is mapped; the program has written it and now rings, so it no longer writes it.
        let call = match unsafe { stamps::stamp(segment.at, words, has_shadow, control) } {
            Writes::Kernels => continue,
            Writes::Graph(call) => Some(call),
            Writes::Nothing => None,
        };
        let word = |i: usize| {
            // SAFETY: as above.
            unsafe { (segment.at as *const u32).add(i).read_volatile() }
        };
        let entry = (i as u32, first + u64::from(k));
        let can_copy = has_shadow && base == 0 && !stamps::steps_back();
        let copy = graphs::launch(words, word, gp, entry, control, can_copy, call);
        let timed = || (can_copy && call.is_none()).then(|| copies::timed(words, word, gp, entry, control)).flatten();
        if let Some(copy) = copy.or_else(timed) {
            hand_on_one(c, index, copy);
        }
    }
}

/// If this entry's segment is large: records the entry without its words and returns where they are.
#[inline]
fn large(c: &mut Channel, w: &mut Writer, i: usize, index: u32, seq: u64, tsc: u64) -> Option<Later> {
    let gp = c.entry(index);
    let words = gp.words();
    if words <= LARGE {
        return None;
    }
    let va = gp.address(c.base);
    let segment = locate(c, va, words as u64 * 4).filter(|s| !s.video && words <= longest())?;
    let pieces = words.div_ceil(CHUNK);
    if !w.fits(words * 4 + (pieces + 1) * 64) {
        return None;
    }
    let body = EntryBody { gp: gp.0, seq, slot: i as u32, index, words: 0, lack: lack::NONE };
    record::entry(w, entry_flags::MORE, tsc, body)?;
    let place = i as u64 | u64::from(index) << 32;
    Some(Later { gp: gp.0, seq, place, from: segment.at as *const u8, words, tsc })
}

#[inline]
fn next(at: u32, entries: u32) -> u32 {
    if at + 1 >= entries { 0 } else { at + 1 }
}

/// Maximum number of words prefetched before a submission's copy: as many as the line fill buffers take together.
const AHEAD: usize = 512;

/// Prefetches the words that the new entries point to. libcuda writes them past the cache (seen on driver 580: the first
/// read of 24 lines takes 735 cycles, the second 90), so they are loaded from memory while the entries are sent to the
/// GPU.
#[inline]
fn ask_for_words(c: &mut Channel, from: u32, n: u32) {
    if c.watch == watch::BLIND {
        return;
    }
    let mut at = from;
    let mut left = AHEAD;
    for _ in 0..n.min(4) {
        let gp = c.entry(at);
        at = next(at, c.entries);
        let words = gp.words();
        let va = gp.address(c.base);
        if words == 0 || words > left {
            continue;
        }
        let Some(segment) = locate(c, va, words as u64 * 4).filter(|s| !s.video) else { continue };
        left -= words;
        let start = segment.at;
        for line in (0..words as u64 * 4).step_by(64) {
            // SAFETY: a prefetch reads nothing that the program could notice.
            unsafe {
                core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>((start + line) as *const i8)
            };
        }
    }
}

/// Writes the new entries and GP_PUT to the real GPFIFO and USERD, with posted stores.
#[inline]
fn forward(c: &Channel, from: u32, put: u32, n: u32) {
    hand_on(c, from, n);
    announce(c, put);
    drain();
}

#[inline]
fn hand_on(c: &Channel, from: u32, n: u32) {
    let mut at = from;
    for _ in 0..n {
        hand_on_one(c, at, c.entry(at));
        at = next(at, c.entries);
    }
}

#[inline]
fn hand_on_one(c: &Channel, at: u32, entry: Raw) {
    // SAFETY: the real ring has as many entries and stays mapped while the channel has a shadow; at < entries.
    unsafe { ((c.real_ring + 8 * u64::from(at)) as *mut u64).write_volatile(entry.0) };
}

#[inline]
fn announce(c: &Channel, put: u32) {
    // ORDERING: entries before GP_PUT: the real ring is write-combined and drains in any order without a fence.
    // SAFETY: needs nothing.
    unsafe { core::arch::x86_64::_mm_sfence() };
    // SAFETY: as in `hand_on_one`.
    unsafe { ((c.real_userd + GP_PUT) as *mut u32).write_volatile(put) };
}

#[inline]
fn drain() {
    // ORDERING: GP_PUT, words and entries before the doorbell. Loads do not wait for this fence: the words are copied while it drains.
    // SAFETY: needs nothing.
    unsafe { core::arch::x86_64::_mm_sfence() };
}

/// Records one entry and its words. False if it was lost.
#[inline]
fn entry(c: &mut Channel, w: &mut Writer, i: usize, index: u32, seq: u64, tsc: u64) -> bool {
    let gp = c.entry(index);
    let mut body = EntryBody { gp: gp.0, seq, slot: i as u32, index, words: 0, lack: lack::NONE };
    let words = gp.words();
    if words == 0 {
        c.base = gp.extended_base().unwrap_or(c.base);
        return record::entry(w, 0, tsc, body).is_some();
    }
    let va = gp.address(c.base);
    let Some(segment) = locate(c, va, words as u64 * 4) else {
        body.lack = lack::UNMAPPED;
        return record::entry(w, 0, tsc, body).is_some();
    };
    let from = segment.at;
    let where_from = if segment.video { entry_flags::FROM_VIDEO } else { 0 };
    let kept = words.min(longest());
    if kept < words {
        body.lack = lack::TOO_LONG;
    }
    let words = kept;
    let mut done = 0;
    loop {
        let n = (words - done).min(CHUNK);
        let more = done + n < words;
        let flags =
            where_from | if more { entry_flags::MORE } else { 0 } | if done > 0 { entry_flags::CONTINUED } else { 0 };
        body.words = n as u32;
        let Some(to) = record::entry(w, flags, tsc, body) else {
            // The part of this entry that was written has no end: the reader sees that the event after MORE is missing.
            return false;
        };
        // SAFETY: the whole segment is mapped; `to` has room for n words.
        unsafe { core::ptr::copy_nonoverlapping((from + 4 * done as u64) as *const u8, to, n * 4) };
        done += n;
        if !more {
            return true;
        }
    }
}

/// A segment's address in this process.
struct Segment {
    at: u64,
    /// In GPU memory.
    video: bool,
}

/// Finds the `len` bytes at the GPU's address `va`. (Of the range, only the needed fields are loaded, in the pieces that
/// they were stored in.)
#[inline(always)]
fn locate(c: &mut Channel, va: u64, len: u64) -> Option<Segment> {
    let generation = ranges::generation();
    if c.last_generation != generation {
        c.last_generation = generation;
        c.last.iter_mut().for_each(|r| r.len = 0);
    }
    let holds = |r: &ranges::Range| va >= r.va && va + len <= r.va + r.len;
    let which = if holds(&c.last[0]) {
        0
    } else if holds(&c.last[1]) {
        1
    } else {
        c.later = !c.later;
        let which = usize::from(c.later);
        if !ranges::find_into(va, len, &mut c.last[which]) {
            return None;
        }
        which
    };
    let r = &c.last[which];
    Some(Segment { at: r.cpu + (va - r.va), video: r.video })
}
