//! The channels that the agent follows: a fixed table next to the slots in shared memory.
//!
//! Filled and emptied in the cold zone. The tap reads an entry only under the slot's claim. The cold zone also changes an
//! entry only under the claim, so a channel cannot vanish under a tap.

use super::ranges;
use crate::process::{region, sys, thread};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use pushbuf::gpfifo::Raw;
use tape::event::watch;
use tape::region::{SLOTS, Slot};

/// GP_PUT in USERD (class 0xC56F and later, Nvc56fControl +0x8C); GP_GET is four bytes before it.
pub const GP_PUT: u64 = 0x8c;
pub const GP_GET: u64 = 0x88;
/// Bytes of a channel's USERD.
pub const USERD: u64 = 512;

/// A channel's data for the tap. (No two share a cache line: a launch writes to its channel while other threads launch on
/// the next.)
#[derive(Clone, Copy)]
#[repr(align(64))]
pub struct Channel {
    /// Where the program writes its GPFIFO entries (a shadow, or the real ring); 0 when it is not mapped.
    pub ring: u64,
    /// Where it writes GP_PUT: its USERD.
    pub userd: u64,
    /// With a shadow: where the real ones are mapped.
    pub real_ring: u64,
    pub real_userd: u64,
    /// With a shadow: a second mapping of the shadow USERD that stays accessible while the program's is guarded.
    pub alias_userd: u64,
    pub entries: u32,
    /// One of `tape::event::watch`.
    pub watch: u32,
    /// Segment base set by GPFIFO opcode 4 (address bits 56:40).
    pub base: u64,
    /// The ranges that held the last segments, and the generation of the table that they are from. Two, because the
    /// entries of one submission often alternate between the program's words and the driver's own.
    pub last: [ranges::Range; 2],
    pub last_generation: u64,
    /// Which of the two was found later.
    pub later: bool,
    /// GPU virtual addresses, for resolving them later if they are not mapped yet.
    pub gpfifo_va: u64,
    pub userd_memory: u32,
    pub userd_offset: u64,
    pub client: u32,
    /// Region offset of the shadow's pages, and how many ring bytes and pages it has.
    pub shadow_at: usize,
    pub ring_bytes: usize,
    /// The program's USERD page is inaccessible: its accesses are answered by the fault handler.
    pub guarded: bool,
    /// The program reads GP_GET: its USERD page stays guarded for good.
    pub reads_get: bool,
    /// Submissions left until the first guard is lifted, if GP_GET was not read.
    pub learning: u32,
    /// Its latest doorbell was in a pause.
    pub paused: bool,
}

impl Channel {
    pub const NONE: Channel = Channel {
        ring: 0,
        userd: 0,
        real_ring: 0,
        real_userd: 0,
        alias_userd: 0,
        entries: 0,
        watch: 0,
        base: 0,
        last: [ranges::Range { va: 0, len: 0, cpu: 0, video: false }; 2],
        last_generation: 0,
        later: false,
        gpfifo_va: 0,
        userd_memory: 0,
        userd_offset: 0,
        client: 0,
        shadow_at: 0,
        ring_bytes: 0,
        guarded: false,
        reads_get: false,
        learning: 0,
        paused: false,
    };
}

impl Channel {
    /// The program's writes since GP_PUT was `from`: GP_PUT now, and the number of new entries. That number is 0 if the
    /// ring cannot be seen, or for a GP_PUT that the hardware would not take either.
    #[inline]
    pub fn written(&self, from: u32) -> (u32, u32) {
        let userd = match self.watch {
            watch::BLIND => return (from, 0),
            watch::SHADOW => self.alias_userd,
            _ => self.userd,
        };
        // SAFETY: USERD is mapped as long as the channel is followed.
        let put = unsafe { ((userd + GP_PUT) as *const u32).read_volatile() };
        if put >= self.entries {
            return (from, 0);
        }
        (put, if put >= from { put - from } else { put + self.entries - from })
    }

    /// The GPFIFO entry at `index`, which is below `entries`.
    #[inline]
    pub fn entry(&self, index: u32) -> Raw {
        // SAFETY: the ring has that many entries and is mapped as long as the channel is followed and not blind.
        Raw(unsafe { ((self.ring + 8 * u64::from(index)) as *const u64).read_volatile() })
    }
}

const _: () = assert!(align_of::<Channel>() == 64);

struct Table(UnsafeCell<[Channel; SLOTS]>);
// SAFETY: element i is accessed under slot i's claim only.
unsafe impl Sync for Table {}
static TABLE: Table = Table(UnsafeCell::new([Channel::NONE; SLOTS]));

/// The channel of slot `i`.
///
/// # Safety
/// The caller holds slot `i`'s claim, or the slot is not in use and the caller holds the cold zone's lock.
#[inline]
#[allow(clippy::mut_from_ref)]
pub unsafe fn get(i: usize) -> Option<&'static mut Channel> {
    if i >= SLOTS {
        return None;
    }
    // SAFETY: in bounds; exclusive by the caller's promise.
    Some(unsafe { &mut *(TABLE.0.get() as *mut Channel).add(i) })
}

/// Addresses of a channel's parts, as the program sees them.
pub struct Lies {
    pub watch: u32,
    pub ring: Span,
    pub userd: Span,
}

/// A range of the program's addresses: the first, and the first after it.
#[derive(Clone, Copy)]
pub struct Span(pub u64, pub u64);

impl Span {
    pub fn overlaps(self, other: Span) -> bool {
        self.0 < other.1 && self.1 > other.0
    }
}

/// The addresses of slot `i`'s channel. The caller holds the cold zone's lock; without it they change only when a shadow
/// is taken away. Does not wait for a tap at work.
pub fn lies(i: usize) -> Option<Lies> {
    if i >= SLOTS {
        return None;
    }
    // SAFETY: in bounds. Taps write only to other fields, and these reads take whole words.
    unsafe {
        let c = (TABLE.0.get() as *const Channel).add(i);
        let ring = (&raw const (*c).ring).read_volatile();
        let userd = (&raw const (*c).userd).read_volatile();
        let entries = (&raw const (*c).entries).read_volatile();
        let watch = (&raw const (*c).watch).read_volatile();
        Some(Lies { watch, ring: Span(ring, ring + u64::from(entries) * 8), userd: Span(userd, userd + USERD) })
    }
}

/// USERD pages that are shadows, for the fault handler: the program's page address by slot, 0 if there is none.
pub static USERDS: [AtomicU64; SLOTS] = [const { AtomicU64::new(0) }; SLOTS];
/// Number of such shadows, so that the handler can skip the search.
pub static SHADOWS: AtomicU32 = AtomicU32::new(0);

const HASH: usize = 2048;
/// Token to slot: open addressing, `token << 32 | slot + 1`; 0 is empty, [`DEAD`] was removed.
static TOKENS: [AtomicU64; HASH] = [const { AtomicU64::new(0) }; HASH];
const DEAD: u64 = u64::MAX;

fn hash(token: u32) -> usize {
    (token.wrapping_mul(0x9e37_79b1) >> 21) as usize % HASH
}

/// The slot of a token. Two GPUs may use the same token: then the one whose device is `device`, if known, otherwise the
/// first.
#[inline]
pub fn by_token(token: u32, device: u32) -> Option<usize> {
    let mut at = hash(token);
    let mut first = None;
    for _ in 0..HASH {
        let v = TOKENS[at].load(Ordering::Acquire);
        if v == 0 {
            break;
        }
        if v != DEAD && (v >> 32) as u32 == token {
            let slot = (v as u32).wrapping_sub(1) as usize;
            let theirs = self::device(slot);
            if device == 0 || theirs == 0 || theirs == device {
                return Some(slot);
            }
            first = first.or(Some(slot));
        }
        at = (at + 1) % HASH;
    }
    first
}

static DEVICES: [AtomicU32; SLOTS] = [const { AtomicU32::new(0) }; SLOTS];

/// The device of slot `i`'s channel; 0 if unknown.
pub fn device(i: usize) -> u32 {
    DEVICES.get(i).map_or(0, |d| d.load(Ordering::Relaxed))
}

/// Cold zone only.
pub fn set_device(i: usize, device: u32) {
    if let Some(d) = DEVICES.get(i) {
        d.store(device, Ordering::Relaxed);
    }
}

static HAS_TOKEN: [AtomicBool; SLOTS] = [const { AtomicBool::new(false) }; SLOTS];

/// Whether slot `i`'s channel is found by a token.
pub fn has_token(i: usize) -> bool {
    HAS_TOKEN.get(i).is_some_and(|h| h.load(Ordering::Relaxed))
}

/// Cold zone only.
pub fn set_token(slot: usize, token: u32, device: u32) -> bool {
    forget_token(slot);
    set_device(slot, device);
    let mut at = hash(token);
    for _ in 0..HASH {
        let v = TOKENS[at].load(Ordering::Relaxed);
        if v == 0 || v == DEAD {
            TOKENS[at].store((token as u64) << 32 | (slot as u64 + 1), Ordering::Release);
            if let Some(h) = HAS_TOKEN.get(slot) {
                h.store(true, Ordering::Relaxed);
            }
            if let Some(s) = region::slot(slot) {
                s.token.store(token, Ordering::Relaxed);
            }
            return true;
        }
        at = (at + 1) % HASH;
    }
    false
}

/// Cold zone only.
pub fn forget_token(slot: usize) {
    for t in &TOKENS {
        let v = t.load(Ordering::Relaxed);
        if v != 0 && v != DEAD && (v as u32) == slot as u32 + 1 {
            t.store(DEAD, Ordering::Release);
        }
    }
    if let Some(h) = HAS_TOKEN.get(slot) {
        h.store(false, Ordering::Relaxed);
    }
}

/// Takes a slot's claim from outside the tap, waiting for a tap at work. Returns false if it does not become free within
/// about a second (its owner died in the tap).
pub fn claim(slot: usize) -> bool {
    let Some(s) = region::slot(slot) else { return false };
    for _ in 0..20_000 {
        // ORDERING: Acquire pairs with the tap's Release when it gave the claim back.
        if s.claim.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return true;
        }
        sys::nap(50_000);
    }
    false
}

/// Threads that have left doorbells to the owner of a slot's claim, and how many each: `thread << 32 | rings`, 0 is free.
static LEFT: [[AtomicU64; LEAVING]; SLOTS] = [const { [const { AtomicU64::new(0) }; LEAVING] }; SLOTS];
/// Maximum number of such threads at a time. For further doorbells the thread that rang is unknown.
const LEAVING: usize = 8;

/// Leaves the calling thread's doorbell to the owner of slot `i`'s claim. False if the claim is free again: the caller is
/// the owner.
#[cold]
#[inline(never)]
pub fn leave(i: usize, slot: &Slot) -> bool {
    let me = u64::from(thread::here().id() as u32) << 32;
    let more = |v: u64| match v {
        0 => Some(me | 1),
        v if v & !0xffff_ffff == me => Some(v + 1),
        _ => None,
    };
    let rows = LEFT.get(i).map_or(&[][..], |r| r);
    // (Before it counts: the owner finds at least as many as it makes.)
    let noted = rows.iter().any(|row| row.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok());
    // ORDERING: AcqRel: the owner must see the GP_PUT that this thread wrote before it rang.
    if slot.claim.fetch_add(1, Ordering::AcqRel) != 0 {
        return true;
    }
    if noted {
        take_left(i);
    }
    false
}

/// The thread of a doorbell that was left to the owner of slot `i`'s claim; 0 if unknown.
pub fn take_left(i: usize) -> u32 {
    let fewer = |v: u64| match v & 0xffff_ffff {
        0 => None,
        1 => Some(0),
        _ => Some(v - 1),
    };
    let rows = LEFT.get(i).map_or(&[][..], |r| r);
    let taken = rows.iter().find_map(|row| row.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).ok());
    taken.map_or(0, |v| (v >> 32) as u32)
}

/// Gives back a claim taken by [`claim`]. Returns how many doorbells were handed over since: the caller makes them
/// (`submit::settle`).
pub fn unclaim(slot: usize) -> u32 {
    // ORDERING: AcqRel: this thread's changes before the next claim; the waiting threads' entries before this thread
    // makes their doorbells.
    region::slot(slot).map_or(0, |s| s.claim.swap(0, Ordering::AcqRel).saturating_sub(1))
}

/// One more than the highest slot used so far.
static USED: AtomicUsize = AtomicUsize::new(0);

/// Slots from this one on were never used.
pub fn used() -> usize {
    USED.load(Ordering::Relaxed)
}

/// Slot `i` is about to be used.
pub fn begins(i: usize) {
    USED.fetch_max(i + 1, Ordering::Relaxed);
}

/// In a forked child: the channels are the parent's. (Writing to a page gives the child a copy of it, so slots that were
/// never used are not touched.)
pub fn renew() {
    let used = USED.load(Ordering::Relaxed).min(SLOTS);
    if used == 0 {
        return;
    }
    for t in &TOKENS {
        t.store(0, Ordering::Relaxed);
    }
    for i in 0..used {
        // SAFETY: the process has one thread, and no slot is in use here.
        if let Some(c) = unsafe { get(i) } {
            *c = Channel::NONE;
        }
    }
    for h in HAS_TOKEN.iter().take(used) {
        h.store(false, Ordering::Relaxed);
    }
    for u in USERDS.iter().take(used) {
        u.store(0, Ordering::Relaxed);
    }
    SHADOWS.store(0, Ordering::Relaxed);
    for row in LEFT.iter().take(used).flatten() {
        row.store(0, Ordering::Relaxed);
    }
    USED.store(0, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn rings_that_are_left_to_another_keep_their_threads() {
        // SAFETY: atomics and numbers, all zero.
        let slot: Slot = unsafe { core::mem::zeroed() };
        let i = SLOTS - 1;
        assert!(!leave(i, &slot), "nobody has the claim: it is the caller's");
        assert_eq!(take_left(i), 0, "nothing was left");
        let mut left = BTreeMap::new();
        std::thread::scope(|s| {
            let slot = &slot;
            let all: Vec<_> = (1..=LEAVING as u32)
                .map(|n| {
                    s.spawn(move || {
                        assert!((0..100 * n).all(|_| leave(i, slot)));
                        (thread::here().id() as u32, 100 * n)
                    })
                })
                .collect();
            left.extend(all.into_iter().map(|t| t.join().unwrap()));
        });
        // There is no room for one more, so its thread is unknown.
        assert!(leave(i, &slot));
        let mut taken = BTreeMap::new();
        for _ in 1..slot.claim.load(Ordering::Relaxed) {
            *taken.entry(take_left(i)).or_insert(0) += 1;
        }
        assert_eq!(taken.remove(&0), Some(1));
        assert_eq!(taken, left);
    }
}
