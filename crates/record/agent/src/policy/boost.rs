//! Lock holders that are raised to the priority of the threads that wait for them, and restored ([`locks::boost`]).

use super::state::{self, Me, board};
use crate::process::restrictions::{may, need};
use crate::process::thread::Thread;
use crate::process::{key, locked};
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use locks::Tid;
use locks::boost::{Seat, Seats};
use locks::held::Mode;
use locks::{cancel, leaving};

/// Maximum number of raised threads at a time.
const SEATS: usize = 1024;
pub static ALL: Seats<SEATS> = Seats::not_given_yet();

/// The key whose destructor reports that a thread ends, plus 1.
static KEY: AtomicU32 = AtomicU32::new(0);
const NO_SEAT: usize = 1;

/// Called by the constructor, if a lock may be boosted. Without memory for the seats, 592 KiB, none is.
pub fn begin() {
    let Some(at) = locked::zeroed(size_of::<[Seat; SEATS]>()) else { return };
    // SAFETY: a mapping of this length that is never unmapped. All zero is a free seat.
    ALL.give(unsafe { &*(at as *const [Seat; SEATS]) });
    if let Some(key) = key::create(ends) {
        KEY.store(key + 1, Ordering::Relaxed);
    }
}

/// Gives the agent's key back, for a program that needs all keys. True if there was one.
pub fn give_key_back() -> bool {
    let ours = KEY.swap(0, Ordering::Relaxed);
    if ours != 0 {
        // SAFETY: the agent's key.
        unsafe { libc::pthread_key_delete(ours - 1) };
    }
    ours != 0
}

unsafe extern "C" fn ends(_: *mut c_void) {
    if let Some(me) = state::on()
        && let Some(seat) = taken(me.t)
    {
        ALL.leave(seat, me.tid);
        // Destructors that run after this one may lock again.
        me.t.seat.set(0);
    }
}

pub fn taken(t: &Thread) -> Option<&'static Seat> {
    let seat = t.seat.get() as *const Seat;
    // SAFETY: none, or a seat of ALL.
    if t.seat.get() <= NO_SEAT { None } else { Some(unsafe { &*seat }) }
}

#[inline(always)]
fn seat(me: Me) -> Option<&'static Seat> {
    match me.t.seat.get() {
        0 => register(me),
        _ => taken(me.t),
    }
}

#[cold]
#[inline(never)]
fn register(me: Me) -> Option<&'static Seat> {
    // Until the seat is set, a lock in a function called from here is not boosted.
    me.t.seat.set(NO_SEAT);
    let seat = ALL.register(me.tid)?;
    let key = KEY.load(Ordering::Relaxed);
    // (Without the key the end of the thread is not reported, and its seat is taken back when one is needed.)
    if key != 0 {
        // SAFETY: the agent's key, whose value is stored in the thread itself.
        unsafe { libc::pthread_setspecific(key - 1, core::ptr::from_ref(seat).cast()) };
    }
    me.t.seat.set(core::ptr::from_ref(seat) as usize);
    Some(seat)
}

pub fn seat_of(tid: Tid) -> Option<&'static Seat> {
    ALL.seat_of(tid)
}

/// Copies the counts of the seats to the board, where `run` reads them.
#[cold]
fn publish() {
    let Some(b) = board() else { return };
    let c = &ALL.counts;
    for (to, from) in [(&b.raised, &c.raised), (&b.restored, &c.restored), (&b.raise_refused, &c.refused)] {
        to.store(u64::from(from.load(Ordering::Relaxed)), Ordering::Relaxed);
    }
}

/// Takes a lock that `first` tries and `f` waits for.
#[inline(always)]
pub fn take(me: Me, lock: usize, first: impl FnOnce() -> c_int, f: impl FnOnce() -> c_int) -> c_int {
    let Some(seat) = seat(me) else { return f() };
    // Before the attempt: a waiting thread must find the one that is about to hold.
    seat.held.enter(lock, Mode::Round);
    match first() {
        libc::EBUSY => {
            let r = wait(seat, me.tid, lock, f);
            if r != 0 {
                seat.held.leave(lock);
            }
            r
        }
        r => took(seat, me.tid, lock, r),
    }
}

/// After an attempt without a wait, with its result.
#[inline(always)]
fn took(seat: &'static Seat, my: Tid, lock: usize, r: c_int) -> c_int {
    if r == 0 {
        ALL.after_lock(seat, my);
    } else {
        seat.held.leave(lock);
    }
    r
}

#[inline(never)]
fn wait(seat: &'static Seat, my: Tid, lock: usize, f: impl FnOnce() -> c_int) -> c_int {
    if !may(need::SCHEDULING) {
        ALL.counts.forbidden.store(1, Ordering::Relaxed);
    }
    // (A latch whose holder is cancelled is held forever.)
    let cancelled = cancel::defer();
    ALL.begin_wait(seat, my, lock);
    cancelled.put_back();
    let r = leaving::run(&Waiter { seat, my, lock }, left, f);
    let cancelled = cancel::defer();
    ALL.end_wait(seat, my);
    publish();
    cancelled.put_back();
    r
}

struct Waiter {
    seat: &'static Seat,
    my: Tid,
    lock: usize,
}

extern "C" fn left(waiter: *mut c_void) {
    // SAFETY: `leaving::run` was given a Waiter, which lives as long as its frame.
    let waiter = unsafe { &*waiter.cast::<Waiter>() };
    waiter.seat.held.leave(waiter.lock);
    ALL.end_wait(waiter.seat, waiter.my);
}

pub fn attempt(me: Me, lock: usize, f: impl FnOnce() -> c_int) -> c_int {
    let Some(seat) = seat(me) else { return f() };
    seat.held.enter(lock, Mode::Round);
    took(seat, me.tid, lock, f())
}

/// Unlocks with `f`.
#[inline(always)]
pub fn give(me: Me, lock: usize, f: impl FnOnce() -> c_int) -> c_int {
    let r = f();
    if r == 0
        && let Some(seat) = seat(me)
    {
        seat.held.leave(lock);
        ALL.after_unlock(seat, me.tid);
    }
    r
}

/// A wait for a condition is about to release a mutex.
pub fn lets_go(me: Me, lock: usize) {
    if let Some(seat) = seat(me) {
        seat.held.leave(lock);
        ALL.after_unlock(seat, me.tid);
    }
}

/// The wait is over.
pub fn has_again(me: Me, lock: usize) {
    if let Some(seat) = seat(me) {
        seat.held.enter(lock, Mode::Round);
        ALL.after_lock(seat, me.tid);
    }
}

pub fn after_fork_in_child(t: &Thread, my: Tid) {
    // SAFETY: the process has one thread, just forked, whose seat this is.
    unsafe { ALL.after_fork_in_child(taken(t), my) };
}
