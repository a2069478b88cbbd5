//! The data that policies use: the board, the calling thread, and the proven layout of this libc.

use super::place;
use crate::process::renewal::renew_after_fork;
use crate::process::restrictions::{may, need};
use crate::process::thread::{self, Thread};
use crate::process::wiped::{goes_on, live, was_begun};
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicPtr, Ordering};
use locks::boost::Policy;
use locks::layout::Layout;
use locks::room::RwLayout;
use locks::{Clock, Deadline, Tid};
use tape::policy::{Board, class, protocol, why};

static BOARD: AtomicPtr<Board> = AtomicPtr::new(core::ptr::null_mut());

struct Proofs(UnsafeCell<(Option<Layout>, Option<RwLayout>)>);
// SAFETY: written once, before policies begin; read only by threads that have seen that they have.
unsafe impl Sync for Proofs {}
static PROOFS: Proofs = Proofs(UnsafeCell::new((None, None)));

/// The calling thread, under policies.
#[derive(Clone, Copy)]
pub struct Me {
    pub t: &'static Thread,
    pub tid: Tid,
}

/// The calling thread, if locks follow policies in this process.
#[inline(always)]
pub fn on() -> Option<Me> {
    if !was_begun(live::POLICIES) {
        return None;
    }
    let t = thread::here();
    if !goes_on(live::POLICIES) {
        renew_after_fork();
    }
    Some(Me { t, tid: Tid::from_raw(t.id() as u32) })
}

/// As [`on`], for callers that take another path if something must be done first.
pub enum Now {
    Off,
    On(Me),
    /// [`on`] has work to do: in a forked child, or for a thread that has not stored its number.
    First,
}

#[inline(always)]
pub fn now() -> Now {
    if !was_begun(live::POLICIES) {
        return Now::Off;
    }
    let t = thread::here();
    let tid = t.tid.get();
    if !goes_on(live::POLICIES) || tid == 0 {
        return Now::First;
    }
    Now::On(Me { t, tid: Tid::from_raw(tid as u32) })
}

/// Whether the calling thread may be cancelled at any instruction. Such a thread does not wait at a gate, because its
/// place in the queue is on its stack. It uses the real lock directly. (If it is cancelled in here, it is unwound as in
/// libc.)
#[cold]
pub fn ends_anywhere() -> bool {
    let cancelled = locks::cancel::defer();
    cancelled.put_back();
    cancelled.is_asynchronous()
}

/// The calling thread's rank among waiting threads: 0 without a real-time priority, or if the call is forbidden.
#[cold]
pub fn rank(me: Me) -> u32 {
    if !may(need::SCHEDULING) {
        return 0;
    }
    Policy::of(me.tid).map_or(0, |p| p.rank())
}

pub fn board() -> Option<&'static Board> {
    let b = BOARD.load(Ordering::Relaxed);
    // SAFETY: null or the board, which is never unmapped.
    if b.is_null() { None } else { Some(unsafe { &*b }) }
}

#[inline(always)]
pub fn mutexes() -> Option<Layout> {
    // SAFETY: see Proofs.
    unsafe { (*PROOFS.0.get()).0 }
}

#[inline(always)]
pub fn rwlocks() -> Option<RwLayout> {
    // SAFETY: see Proofs.
    unsafe { (*PROOFS.0.get()).1 }
}

/// Stores the results of [`super::attach`].
///
/// # Safety
/// Called by the constructor: no thread reads them yet.
pub unsafe fn set_proofs(mutexes: Option<Layout>, rwlocks: Option<RwLayout>) {
    // SAFETY: the caller's.
    unsafe { *PROOFS.0.get() = (mutexes, rwlocks) };
}

pub fn set_board(board: *mut Board) {
    BOARD.store(board, Ordering::Release);
}

/// The board's protocol for the lock at `addr`, used at `site`.
#[cold]
pub fn wanted(lock_class: u8, addr: usize, site: usize) -> u8 {
    let Some(b) = board() else { return protocol::STOCK };
    let fallback = if lock_class == class::MUTEX { b.mutex } else { b.rwlock };
    let rules = b.rules();
    if rules.is_empty() {
        return fallback;
    }
    // As `show --locks` names it: a lock inside a module by its own address, any other by the address of the call.
    let place = place::of(addr).or_else(|| place::of(site));
    let from = place::of(site);
    let names = |rule: &tape::policy::Rule, at: &Option<([u8; tape::policy::NAME], u64)>, whole: bool| {
        let is = |(module, offset): &_| {
            rule.module == *module
                && if whole { rule.offset == tape::policy::Rule::WHOLE } else { rule.offset == *offset }
        };
        (rule.class == 0 || rule.class == lock_class) && at.as_ref().is_some_and(is)
    };
    let one = rules.iter().find(|rule| names(rule, &place, false));
    let rule = one.or_else(|| rules.iter().find(|rule| names(rule, &place, true) || names(rule, &from, true)));
    rule.map_or(fallback, |rule| rule.policy)
}

/// A lock keeps its own protocol.
#[cold]
pub fn refused(reason: u8, wanted: u8, lock_class: u8, me: Tid, addr: usize, site: usize) {
    let Some(b) = board() else { return };
    if let Some(count) = b.refused.get(usize::from(reason)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    let place = place::of(addr).or_else(|| place::of(site)).unwrap_or(([0; tape::policy::NAME], site as u64));
    b.record_event(reason, wanted, lock_class, me.raw(), addr as u64, place);
}

pub fn given(what: u8) {
    if let Some(count) = board().and_then(|b| b.given.get(usize::from(what))) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A mutex was unlocked by a thread that did not own it.
#[cold]
pub fn foreign(me: Me, wanted: u8, addr: usize, site: usize) {
    let Some(b) = board() else { return };
    // All are counted, the first ones are recorded.
    if b.foreign.fetch_add(1, Ordering::Relaxed) < 64 {
        let place = place::of(addr).or_else(|| place::of(site)).unwrap_or(([0; tape::policy::NAME], site as u64));
        b.record_event(why::FOREIGN_UNLOCK, wanted, class::MUTEX, me.tid.raw(), addr as u64, place);
    }
}

/// A deadline for the gates; `None` for a clock that they do not support, which the real function must refuse.
///
/// # Safety
/// `until` is a timespec.
#[inline(always)]
pub unsafe fn deadline(clock: libc::clockid_t, until: *const libc::timespec) -> Option<Deadline> {
    let clock = match clock {
        libc::CLOCK_REALTIME => Clock::Realtime,
        libc::CLOCK_MONOTONIC => Clock::Monotonic,
        _ => return None,
    };
    // SAFETY: the caller's.
    Some(Deadline::new(clock, unsafe { *until }))
}
