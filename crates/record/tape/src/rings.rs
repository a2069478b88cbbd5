//! The rings of a region: two sizes, their owners, and how a thread gets one.
//!
//! A thread takes a small ring at its first event. When that is half full, or has been filled once, the thread moves to a large
//! one, if there is one and memory for it. A thread that ends gives its ring back. The next owner continues in the same ring
//! after its events, and does not wait for the recorder to empty the ring. The ring itself names the owner: a
//! [`crate::event::ThreadBody`] precedes a thread's first event, and the recorder assigns the events after it to that thread.
//!
//! The steps, with the writer of each:
//!
//! 1. **Claim** (agent, at a thread's first event or when it grows): [`Rings::claim`] makes the thread the owner. Before the
//!    first event, map the ring if this process has not mapped it yet (page of [`crate::region::RingHead`], data twice in a
//!    row). Clear the [`crate::region::LockTable`] and the [`crate::region::CallRow`] in its first page. Store `tid`, `pid` and
//!    `ordinal` in the head and raise `generation`. Make a [`crate::ring::Writer`]. Push the THREAD event. If that does not fit,
//!    give the ring back and take another. The THREAD event is published with the first event or before it.
//! 2. **Grow** (agent, the owner). Publish. Claim a large ring as above, with `from_ring` and `from_head` in the THREAD event.
//!    Copy held locks and the call's row into the new first page. Write there from now on, and [`Rings::give_back`] the old one.
//!    The recorder writes the old ring's events up to `from_head` before those after that THREAD event.
//! 3. **Give back** (agent, as the thread ends). Publish. If the lock table still has rows, push a [`crate::lock::HeldBody`] for
//!    each, and clear the table. Call [`Rings::give_back`]. The thread writes no more to this ring. If it records another event
//!    it claims a ring again, with the next ordinal and with the ring that it had in `from_ring` and `from_head`.
//! 4. **Free** (recorder): the ring of a thread that has ended without giving it back. The recorder confirms that no thread has
//!    this number, empties the ring, then calls [`Rings::free`], which fails if the owner has changed since.
//!
//! Memory: a ring takes [`crate::session::Session::take_memory`] once, when it is owned for the first time, and keeps it until the
//! region is freed. The recorder makes a few small rings resident ahead of use.
//!
//! Invariant: one thread at a time owns a ring, and only the owner writes after its head.

use crate::region::{Control, PAGE, RINGS_AT, TABLE_AT};
pub use crate::region::{LARGE, RINGS, RingEntry, SMALL};
use crate::session::Session;
use core::sync::atomic::{AtomicU32, Ordering};

/// Bytes of a small ring, if the large ones are not smaller.
pub const SMALL_BYTES: usize = 256 << 10;

/// Size of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    Small,
    Large,
}

/// Where the rings of a region are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    pub small: usize,
    pub large: usize,
}

impl Geometry {
    /// From the control page; `None` if its sizes are impossible.
    pub fn of(c: &Control) -> Option<Geometry> {
        Geometry::of_sizes(c.small_bytes, c.ring_bytes)
    }

    /// From two sizes; `None` if they are impossible.
    pub fn of_sizes(small: u32, large: u32) -> Option<Geometry> {
        let (small, large) = (small as usize, large as usize);
        let good = |n: usize| n.is_power_of_two() && (2 * crate::ring::MAX_EVENT..=1 << 30).contains(&n);
        (good(small) && good(large)).then_some(Geometry { small, large })
    }

    /// Bytes of the events of ring `i`.
    pub const fn bytes(&self, i: usize) -> usize {
        if i < SMALL { self.small } else { self.large }
    }

    /// Offset in the region of ring `i`'s first page; its events follow.
    pub const fn at(&self, i: usize) -> usize {
        if i < SMALL {
            RINGS_AT + i * (PAGE + self.small)
        } else {
            RINGS_AT + SMALL * (PAGE + self.small) + (i - SMALL) * (PAGE + self.large)
        }
    }

    /// Bytes of the whole region. Sparse: only used pages take memory.
    pub const fn region_bytes(&self) -> usize {
        self.at(RINGS)
    }

    /// Bytes of memory that ring `i` takes.
    pub const fn memory(&self, i: usize) -> u64 {
        (PAGE + self.bytes(i)) as u64
    }
}

/// Why there is no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRing {
    /// All of that size are owned.
    Taken,
    /// The session's memory for rings is used up, or the file system's.
    Memory,
}

/// The table of rings, as both sides see it.
pub struct Rings<'a> {
    pub entries: &'a [RingEntry],
    pub control: &'a Control,
    pub geometry: Geometry,
}

const fn tid_of(owner: u64) -> i32 {
    owner as u32 as i32
}

impl<'a> Rings<'a> {
    /// `fixed`: where the first [`crate::region::FIXED_BYTES`] of a region are mapped.
    ///
    /// # Safety
    /// They stay mapped as long as `'a`.
    pub unsafe fn new(fixed: *const u8) -> Option<Rings<'a>> {
        // SAFETY: mapped, by the caller's promise; atomics and numbers.
        unsafe {
            let control = &*fixed.cast::<Control>();
            let entries = core::slice::from_raw_parts(fixed.add(TABLE_AT).cast(), RINGS);
            Some(Rings { entries, control, geometry: Geometry::of(control)? })
        }
    }

    /// Highest number of a ring of that size that was ever owned, plus 1.
    fn high(&self, size: Size) -> &AtomicU32 {
        match size {
            Size::Small => &self.control.rings,
            Size::Large => &self.control.large_rings,
        }
    }

    /// Numbers of the rings that were ever owned.
    pub fn used(&self) -> impl Iterator<Item = usize> + use<> {
        // ORDERING: Acquire pairs with the Release in `claim`.
        let small = (self.control.rings.load(Ordering::Acquire) as usize).min(SMALL);
        let large = (self.control.large_rings.load(Ordering::Acquire) as usize).min(LARGE);
        (0..small).chain(SMALL..SMALL + large)
    }

    /// Makes thread `tid` the owner of a ring (agent). A few hundred nanoseconds, and no system call but that of `reserve`.
    /// `reserve`: as for [`Rings::back`].
    pub fn claim(
        &self,
        session: &Session,
        tid: i32,
        size: Size,
        reserve: impl Fn(usize) -> bool,
    ) -> Result<usize, NoRing> {
        let (first, n) = match size {
            Size::Small => (0, SMALL),
            Size::Large => (SMALL, LARGE),
        };
        for k in 0..n {
            let i = first + k;
            let Some(e) = self.entries.get(i) else { break };
            let owner = e.owner.load(Ordering::Relaxed);
            if tid_of(owner) != 0 {
                continue;
            }
            let next = ((owner >> 32).wrapping_add(1) << 32) | u64::from(tid as u32);
            // ORDERING: Acquire pairs with the Release of `give_back` or `free`: the last owner's writes precede this owner's.
            if e.owner.compare_exchange(owner, next, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            if !self.back(session, i, &reserve) {
                self.give_back(i);
                return Err(NoRing::Memory);
            }
            // ORDERING: Release: the owner is stored before the number covers it.
            self.high(size).fetch_max(k as u32 + 1, Ordering::AcqRel);
            return Ok(i);
        }
        Err(NoRing::Taken)
    }

    /// Takes memory for ring `i` from the session's, once. False: none is left, or `reserve` found none in the file system. Two
    /// sides may reserve the same ring at a time.
    pub fn back(&self, session: &Session, i: usize, reserve: impl Fn(usize) -> bool) -> bool {
        let Some(e) = self.entries.get(i) else { return false };
        // ORDERING: Acquire and Release: a ring that is marked is reserved.
        if e.backed.load(Ordering::Acquire) == 1 {
            return true;
        }
        let bytes = self.geometry.memory(i);
        if !session.take_memory(bytes) {
            return false;
        }
        if session.reserve != 0 && !reserve(i) {
            session.give_memory(bytes);
            return false;
        }
        if e.backed.swap(1, Ordering::AcqRel) == 1 {
            session.give_memory(bytes);
        }
        true
    }

    /// Gives ring `i` back: its owner writes no more to it (agent).
    pub fn give_back(&self, i: usize) {
        if let Some(e) = self.entries.get(i) {
            let owner = e.owner.load(Ordering::Relaxed);
            // ORDERING: Release: all that the owner wrote precedes the next owner's claim.
            e.owner.store(owner & !0xffff_ffff, Ordering::Release);
        }
    }

    /// The owner of ring `i`, for [`Rings::free`]. `None` if it is free.
    pub fn owner(&self, i: usize) -> Option<Owner> {
        let owner = self.entries.get(i)?.owner.load(Ordering::Acquire);
        (tid_of(owner) != 0).then_some(Owner(owner))
    }

    /// Frees ring `i` of a dead owner (recorder). False: it has another owner by now, or none.
    pub fn free(&self, i: usize, dead: Owner) -> bool {
        let free = dead.0 & !0xffff_ffff;
        // ORDERING: Release pairs with `claim`.
        let Some(e) = self.entries.get(i) else { return false };
        e.owner.compare_exchange(dead.0, free, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Bytes of memory that the rings have taken from the session's, to be given back with the region (recorder).
    pub fn memory(&self) -> u64 {
        let backed = |i: &usize| self.entries.get(*i).is_some_and(|e| e.backed.load(Ordering::Relaxed) == 1);
        (0..RINGS).filter(backed).map(|i| self.geometry.memory(i)).sum()
    }
}

/// An owner of a ring at one time: the thread, and which of the ring's owners it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    pub fn tid(self) -> i32 {
        tid_of(self.0)
    }
}
