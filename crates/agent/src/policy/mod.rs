//! Other protocols for the program's locks: what stands between a tap and the real function while nothing is recorded.
//!
//! Each lock is decided once, at its initialisation or first operation, by the [`tape::policy::Board`]: a rule of the
//! plan that names it, else the policy for its class. The decision is a mark in bytes of the lock that libc leaves alone
//! ([`mark`]), so no table is searched and none can be full.
//!
//! Gates stand in front of the real lock and are left **before** it is unlocked: the unlock of the real lock is the last
//! access, as for a program that destroys a lock when it has got it.
//!
//! Invariant: whatever happens here, the real lock is what excludes (under `pi` its own word); every result is what the
//! real function would give. Nothing here allocates or calls a function that takes a lock.

mod boost;
pub mod cond;
mod mark;
pub mod mutex;
mod place;
pub mod rwlock;
pub mod sched;

use crate::sys;
use crate::thread::{self, Thread};
use core::cell::UnsafeCell;
use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, Ordering};
use locks::layout::Layout;
use locks::room::RwLayout;
use locks::{Clock, Deadline, Tid};
use tape::policy::{Board, MAGIC, VERSION, class, protocol, why};

static BOARD: AtomicPtr<Board> = AtomicPtr::new(core::ptr::null_mut());
/// A page that fork wipes in the child; its first word is 1 while nothing has to be renewed. Null: no policies.
static LIVE: AtomicPtr<u32> = AtomicPtr::new(core::ptr::null_mut());

struct Proofs(UnsafeCell<(Option<Layout>, Option<RwLayout>)>);
// SAFETY: written once, before LIVE is set; read by who has seen LIVE.
unsafe impl Sync for Proofs {}
static PROOFS: Proofs = Proofs(UnsafeCell::new((None, None)));

const PAGE: usize = 4096;

/// The calling thread, under policies.
#[derive(Clone, Copy)]
pub struct Me {
    pub t: &'static Thread,
    pub tid: Tid,
}

/// The calling thread, if locks follow policies in this process.
#[inline(always)]
pub fn on() -> Option<Me> {
    let live = LIVE.load(Ordering::Acquire);
    if live.is_null() {
        return None;
    }
    let t = thread::here();
    // SAFETY: a page that is never unmapped.
    if unsafe { live.read_volatile() } != 1 {
        forked(t, live);
    }
    Some(Me { t, tid: Tid::from_raw(t.id() as u32) })
}

/// As [`on`], for who has another way to go where something has to be done first.
pub enum Now {
    Off,
    On(Me),
    /// [`on`] has something to do: a forked child, a thread that does not know its number.
    First,
}

#[inline(always)]
pub fn now() -> Now {
    let live = LIVE.load(Ordering::Acquire);
    if live.is_null() {
        return Now::Off;
    }
    let t = thread::here();
    let tid = t.tid.get();
    // SAFETY: a page that is never unmapped.
    if unsafe { live.read_volatile() } != 1 || tid == 0 {
        return Now::First;
    }
    Now::On(Me { t, tid: Tid::from_raw(tid as u32) })
}

/// In a forked child, in its one thread, before anything else here.
#[cold]
#[inline(never)]
fn forked(t: &Thread, live: *mut u32) {
    locks::fork::after_fork_in_child();
    let before = Tid::from_raw(t.id() as u32);
    t.tid.set(0);
    let my = Tid::from_raw(t.id() as u32);
    crate::calls::guard::after_fork_in_child(before, my);
    boost::after_fork_in_child(t, my);
    // SAFETY: as in `on`; there is one thread.
    unsafe { live.write_volatile(1) };
}

/// Whether the calling thread may be cancelled at any instruction. Such a thread does not wait at a gate: its place in the
/// queue lies on its stack. It goes round, to the real lock. (If it is cancelled in here it is unwound like in libc.)
#[cold]
fn ends_anywhere() -> bool {
    let cancelled = locks::cancel::defer();
    cancelled.put_back();
    cancelled.is_asynchronous()
}

pub fn board() -> Option<&'static Board> {
    let b = BOARD.load(Ordering::Relaxed);
    // SAFETY: null or the board, which is never unmapped.
    if b.is_null() { None } else { Some(unsafe { &*b }) }
}

#[inline(always)]
fn mutexes() -> Option<Layout> {
    // SAFETY: see Proofs.
    unsafe { (*PROOFS.0.get()).0 }
}

#[inline(always)]
fn rwlocks() -> Option<RwLayout> {
    // SAFETY: see Proofs.
    unsafe { (*PROOFS.0.get()).1 }
}

/// Begins, if the board can be mapped and the user has not switched policies off. From the constructor.
pub fn attach(path: *const c_char, off: bool) -> Option<()> {
    // SAFETY: a NUL-terminated path.
    let fd =
        unsafe { sys::syscall6(libc::SYS_open, path as usize, (libc::O_RDWR | libc::O_CLOEXEC) as usize, 0, 0, 0, 0) };
    if fd < 0 {
        return None;
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping of the board's file, and a page of our own.
    let (board, live) = unsafe {
        let board = sys::mmap(0, size_of::<Board>(), rw, libc::MAP_SHARED, fd as i32, 0);
        sys::syscall6(libc::SYS_close, fd as usize, 0, 0, 0, 0, 0);
        (board?, sys::mmap(0, PAGE, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)?)
    };
    // SAFETY: mapped just now, and as long as a Board: `run` made it so.
    let b = unsafe { &*(board as *const Board) };
    if b.magic != MAGIC || b.version != VERSION {
        return None;
    }
    if off {
        b.state.store(2, Ordering::Release);
        return None;
    }
    // SAFETY: the page just mapped.
    unsafe {
        if sys::syscall6(libc::SYS_madvise, live, PAGE, 18 /* MADV_WIPEONFORK */, 0, 0, 0) != 0 {
            return None;
        }
        (live as *mut u32).write_volatile(1);
    }
    crate::locks::real::look_up();
    place::look_up();
    let me = Tid::from_raw(sys::gettid() as u32);
    // SAFETY: the constructor: nobody reads them yet.
    unsafe { *PROOFS.0.get() = (mark::prove_mutexes(me), mark::prove_rwlocks(me)) };
    BOARD.store(board as *mut Board, Ordering::Release);
    b.state.store(1, Ordering::Release);
    if mutexes().is_none() && b.mutex != protocol::STOCK {
        refused(why::LAYOUT, b.mutex, class::MUTEX, me, 0, 0);
    }
    if rwlocks().is_none() && b.rwlock != protocol::STOCK {
        refused(why::LAYOUT, b.rwlock, class::RWLOCK, me, 0, 0);
    }
    if [b.mutex, b.rwlock].contains(&protocol::BOOST) || b.rules().iter().any(|r| r.policy == protocol::BOOST) {
        boost::begin();
    }
    // ORDERING: Release: all of the above before policies are seen to be on.
    LIVE.store(live as *mut u32, Ordering::Release);
    if b.guard != 0 {
        crate::calls::guard::begin();
    }
    Some(())
}

/// What the board wants for the lock at `addr`, met at `site`.
#[cold]
fn wanted(lock_class: u8, addr: usize, site: usize) -> u8 {
    let Some(b) = board() else { return protocol::STOCK };
    let fallback = if lock_class == class::MUTEX { b.mutex } else { b.rwlock };
    let rules = b.rules();
    if rules.is_empty() {
        return fallback;
    }
    // As `show --locks` names it: a lock that is part of a module by its own place, any other by that of the call.
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
fn refused(reason: u8, wanted: u8, lock_class: u8, me: Tid, addr: usize, site: usize) {
    let Some(b) = board() else { return };
    if let Some(count) = b.refused.get(usize::from(reason)) {
        count.fetch_add(1, Ordering::Relaxed);
    }
    let place = place::of(addr).or_else(|| place::of(site)).unwrap_or(([0; tape::policy::NAME], site as u64));
    b.tell(reason, wanted, lock_class, me.raw(), addr as u64, place);
}

fn given(what: u8) {
    if let Some(count) = board().and_then(|b| b.given.get(usize::from(what))) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// A mutex was unlocked by a thread that did not own it.
#[cold]
fn foreign(me: Me, wanted: u8, addr: usize, site: usize) {
    let Some(b) = board() else { return };
    // All are counted, the first ones told.
    if b.foreign.fetch_add(1, Ordering::Relaxed) < 64 {
        let place = place::of(addr).or_else(|| place::of(site)).unwrap_or(([0; tape::policy::NAME], site as u64));
        b.tell(why::FOREIGN_UNLOCK, wanted, class::MUTEX, me.tid.raw(), addr as u64, place);
    }
}

/// A deadline as the gates want it; `None` for a clock that they do not know, which is the real function's to refuse.
///
/// # Safety
/// `until` is a timespec.
#[inline(always)]
unsafe fn deadline(clock: libc::clockid_t, until: *const libc::timespec) -> Option<Deadline> {
    let clock = match clock {
        libc::CLOCK_REALTIME => Clock::Realtime,
        libc::CLOCK_MONOTONIC => Clock::Monotonic,
        _ => return None,
    };
    // SAFETY: the caller's.
    Some(Deadline::new(clock, unsafe { *until }))
}
