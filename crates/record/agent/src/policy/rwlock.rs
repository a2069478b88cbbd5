//! Readers-writer locks with a phase-fair gate before them.
//!
//! A thread that finds the gate open and the real lock free takes it without the gate, with no more locked instructions
//! than without the agent. Other threads wait in the gate. It is shut to readers as soon as a writer is in it, and to all
//! threads that would overtake. So a writer waits for the present holders, and for one read by each thread that had
//! checked the gate before the writer arrived.
//!
//! A thread that already holds the lock bypasses the gate ([`locks::held`]), whatever it requests: the real lock gives
//! the right answer. A `try` uses only the real lock and gets the stock answer.

use super::state::{self, Me, Now, deadline, ends_anywhere, given, now, on, refused, rwlocks, wanted};
use super::{boost, mark};
use crate::process::real::{self, Clock, Rwlock, Time};
use crate::process::thread::Thread;
use core::ffi::{c_int, c_void};
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use locks::held::{Entry, Exit, Mode};
use locks::phase_fair::PhaseFair;
use locks::{Deadline, Kind, Node, Outcome, Tid, leaving};
use tape::policy::{class, protocol, why};

#[inline(always)]
unsafe fn of(me: Me, l: Rwlock, site: usize) -> u8 {
    // SAFETY: the caller's: a rwlock.
    match unsafe { mark::of_rwlock(l) } {
        None => protocol::STOCK,
        // SAFETY: as above.
        Some(0) => unsafe { decide(me, l, site) },
        Some(policy) => policy,
    }
}

#[cold]
#[inline(never)]
unsafe fn decide(me: Me, l: Rwlock, site: usize) -> u8 {
    if rwlocks().is_none() {
        return protocol::STOCK;
    }
    let want = wanted(class::RWLOCK, l as usize, site);
    // SAFETY: the caller's, and used only by this process.
    unsafe {
        if !mark::set_rwlock(l, want) {
            return mark::of_rwlock(l).unwrap_or(protocol::STOCK);
        }
    }
    let _ = me;
    given(want);
    want
}

/// How long a reader waits at the gate before it uses the real lock: a thread that reads may be waiting for this reader,
/// which glibc's rwlock would have let in.
const PATIENCE: Duration = Duration::from_secs(1);

/// Parts of [`mark::waiting_writers`].
const WRITERS: u32 = 0xffff;
const RANK: u32 = 16;

unsafe fn gate<'a>(l: Rwlock) -> Option<&'a PhaseFair> {
    // SAFETY: the caller's: a rwlock.
    rwlocks().and_then(|layout| unsafe { layout.gate(l) })
}

/// Takes it with `f`, through the gate; `first` is the real try.
#[inline(always)]
unsafe fn take(
    l: Rwlock,
    mode: Mode,
    until: Option<Deadline>,
    site: usize,
    first: unsafe fn(Rwlock) -> c_int,
    f: impl FnOnce() -> c_int,
) -> c_int {
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's: a rwlock.
    unsafe {
        match of(me, l, site) {
            protocol::PHASE_FAIR => behind_gate(me, l, mode, until, || first(l), f),
            protocol::BOOST => boost::take(me, l as usize, || first(l), f),
            _ => f(),
        }
    }
}

#[inline(always)]
unsafe fn behind_gate(
    me: Me,
    l: Rwlock,
    mode: Mode,
    until: Option<Deadline>,
    first: impl FnOnce() -> c_int,
    f: impl FnOnce() -> c_int,
) -> c_int {
    // SAFETY: the caller's: a rwlock.
    let Some(gate) = (unsafe { gate(l) }) else { return f() };
    let held = &me.t.held;
    let round = held.enter(l as usize, Mode::Round) != Entry::First;
    let open = round
        || match mode {
            Mode::Write => gate.is_open_to_writers(),
            _ => gate.is_open_to_readers(),
        };
    if open && first() == 0 {
        return 0;
    }
    if round {
        return beside_gate(me, l, f);
    }
    // SAFETY: the caller's: a rwlock.
    unsafe { wait_at_gate(me, l, gate, mode, until, f) }
}

/// A thread that waits for a rwlock: at the gate, in it, or without it.
struct Waiter<'a> {
    me: Me,
    lock: Rwlock,
    gate: Option<(&'a PhaseFair, &'a Node)>,
    /// The count in which it is a waiting writer.
    counted: Option<&'a AtomicU32>,
}

extern "C" fn left(waiter: *mut c_void) {
    // SAFETY: `leaving::run` was given a Waiter, which lives as long as its frame.
    let waiter = unsafe { &*waiter.cast::<Waiter>() };
    if let Some((gate, node)) = waiter.gate {
        gate.abandon(waiter.me.tid, node);
    }
    if let Some(writers) = waiter.counted {
        one_writer_less(writers);
    }
    waiter.me.t.held.leave(waiter.lock as usize);
}

fn one_writer_less(writers: &AtomicU32) {
    let fewer = |w: u32| Some(if w & WRITERS <= 1 { 0 } else { w - 1 });
    let _ = writers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer);
}

/// Takes the lock with `f`, bypassing the gate, as it was entered in `held`.
#[cold]
fn beside_gate(me: Me, l: Rwlock, f: impl FnOnce() -> c_int) -> c_int {
    let waiter = Waiter { me, lock: l, gate: None, counted: None };
    let r = leaving::run(&waiter, left, f);
    if r != 0 {
        me.t.held.leave(l as usize);
    }
    r
}

#[cold]
#[inline(never)]
unsafe fn wait_at_gate(
    me: Me,
    l: Rwlock,
    gate: &PhaseFair,
    mode: Mode,
    until: Option<Deadline>,
    f: impl FnOnce() -> c_int,
) -> c_int {
    let held = &me.t.held;
    let rank = state::rank(me);
    // SAFETY: the caller's: a rwlock.
    let writers = unsafe { mark::waiting_writers(l) };
    let waiting = writers.load(Ordering::Relaxed);
    // POSIX, Thread Execution Scheduling: among real-time threads a reader waits only for writers of its own priority or a
    // higher one.
    let passes = mode == Mode::Read && waiting & WRITERS != 0 && waiting >> RANK != 0 && rank > waiting >> RANK;
    if passes || ends_anywhere() {
        return beside_gate(me, l, f);
    }
    let mut patient = false;
    if mode == Mode::Write {
        let more = |w: u32| Some((w & WRITERS).wrapping_add(1) & WRITERS | (w >> RANK).max(rank) << RANK);
        let _ = writers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
    let until = match mode {
        Mode::Write => until,
        _ => until.or_else(|| {
            patient = true;
            Some(Deadline::after(locks::Clock::Monotonic, PATIENCE))
        }),
    };
    let node = Node::new(if mode == Mode::Write { Kind::Writer } else { Kind::Reader }, rank);
    let counted = (mode == Mode::Write).then_some(writers);
    let waiter = Waiter { me, lock: l, gate: Some((gate, &node)), counted };
    let (in_gate, r) = leaving::run(&waiter, left, || {
        let in_gate = gate.wait(me.tid, &node, until.as_ref());
        let r = if in_gate.is_acquired() {
            held.set_mode(l as usize, mode);
            f()
        } else if patient && in_gate == Outcome::TimedOut {
            // Bypasses the gate, as it was entered in `held`.
            f()
        } else {
            in_gate.code()
        };
        (in_gate, r)
    });
    // A writer counts until it has the real lock: readers that bypassed the gate may hold that.
    counted.map(one_writer_less);
    if r != 0 {
        held.leave(l as usize);
        if in_gate.is_acquired() {
            leave(gate, me, mode);
        }
    }
    r
}

fn leave(gate: &PhaseFair, me: Me, mode: Mode) {
    let _ = match mode {
        Mode::Read => gate.leave_read(me.tid),
        Mode::Write => gate.leave_write(me.tid),
        Mode::Round => Ok(()),
    };
}

unsafe fn attempt(l: Rwlock, site: usize, f: impl Fn() -> c_int) -> c_int {
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's: a rwlock.
    let gated = match unsafe { of(me, l, site) } {
        protocol::PHASE_FAIR => true,
        protocol::BOOST => return boost::attempt(me, l as usize, f),
        _ => false,
    };
    let r = f();
    if r == 0 && gated {
        me.t.held.enter(l as usize, Mode::Round);
    }
    r
}

// The usual case ends in jumps, as for mutexes.
macro_rules! waits {
    ($($name:ident $gated:ident $boosted:ident $otherwise:ident: $mode:ident, $real:ident, $try:ident;)*) => {$(
        /// # Safety
        /// As the C function of that name.
        #[inline(always)]
        pub unsafe fn $name(l: Rwlock, site: usize) -> c_int {
            // SAFETY: the caller's.
            unsafe {
                match now() {
                    Now::Off => real::$real(l),
                    Now::First => $otherwise(l, site),
                    Now::On(me) => match mark::of_rwlock(l) {
                        None | Some(protocol::STOCK) => real::known::$real(l),
                        Some(protocol::PHASE_FAIR) => $gated(me.t, l, me.tid),
                        Some(protocol::BOOST) => $boosted(me.t, l, me.tid),
                        _ => $otherwise(l, site),
                    },
                }
            }
        }

        #[inline(never)]
        unsafe fn $gated(t: &'static Thread, l: Rwlock, tid: Tid) -> c_int {
            #[cold]
            #[inline(never)]
            unsafe fn otherwise(t: &'static Thread, l: Rwlock, tid: Tid) -> c_int {
                let me = Me { t, tid };
                // SAFETY: the caller's.
                unsafe { behind_gate(me, l, Mode::$mode, None, || real::known::$try(l), || real::known::$real(l)) }
            }
            // SAFETY: the caller's.
            unsafe {
                let idle = gate(l).is_some_and(PhaseFair::is_idle) && t.held.has_room_for(l as usize);
                if idle && real::known::$try(l) == 0 {
                    t.held.enter(l as usize, Mode::Round);
                    return 0;
                }
                otherwise(t, l, tid)
            }
        }

        #[inline(never)]
        unsafe fn $boosted(t: &'static Thread, l: Rwlock, tid: Tid) -> c_int {
            // SAFETY: the caller's.
            unsafe { boost::take(Me { t, tid }, l as usize, || real::known::$try(l), || real::$real(l)) }
        }

        #[inline(never)]
        unsafe extern "C" fn $otherwise(l: Rwlock, site: usize) -> c_int {
            // SAFETY: the caller's.
            unsafe { take(l, Mode::$mode, None, site, real::$try, || real::$real(l)) }
        }
    )*};
}

waits! {
    rdlock gated_rdlock boosted_rdlock rdlock_otherwise: Read, pthread_rwlock_rdlock, pthread_rwlock_tryrdlock;
    wrlock gated_wrlock boosted_wrlock wrlock_otherwise: Write, pthread_rwlock_wrlock, pthread_rwlock_trywrlock;
}

macro_rules! tries {
    ($($name:ident: $real:ident;)*) => {$(
        /// # Safety
        /// As the C function of that name.
        pub unsafe fn $name(l: Rwlock, site: usize) -> c_int {
            // SAFETY: the caller's.
            unsafe { attempt(l, site, || real::$real(l)) }
        }
    )*};
}

tries! {
    tryrdlock: pthread_rwlock_tryrdlock;
    trywrlock: pthread_rwlock_trywrlock;
}

macro_rules! timed {
    ($($name:ident($($clock:ident)?): $mode:ident, $real:ident, $try:ident;)*) => {$(
        /// # Safety
        /// As the C function of that name.
        pub unsafe fn $name(l: Rwlock, $($clock: Clock,)? until: Time, site: usize) -> c_int {
            // SAFETY: the caller's.
            let f = || unsafe { real::$real(l, $($clock,)? until) };
            let clock = libc::CLOCK_REALTIME;
            $( let clock = { let _ = clock; $clock }; )?
            // The real function first checks clock and time.
            // SAFETY: the caller's: a rwlock and a timespec.
            unsafe {
                match deadline(clock, until).filter(Deadline::is_valid) {
                    None => f(),
                    until => take(l, Mode::$mode, until, site, real::$try, f),
                }
            }
        }
    )*};
}

timed! {
    timedrdlock(): Read, pthread_rwlock_timedrdlock, pthread_rwlock_tryrdlock;
    clockrdlock(k): Read, pthread_rwlock_clockrdlock, pthread_rwlock_tryrdlock;
    timedwrlock(): Write, pthread_rwlock_timedwrlock, pthread_rwlock_trywrlock;
    clockwrlock(k): Write, pthread_rwlock_clockwrlock, pthread_rwlock_trywrlock;
}

/// # Safety
/// As pthread_rwlock_unlock.
#[inline(always)]
pub unsafe fn unlock(l: Rwlock, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        match now() {
            Now::Off => real::pthread_rwlock_unlock(l),
            Now::First => unlock_otherwise(l, site),
            Now::On(me) => match mark::of_rwlock(l) {
                None | Some(protocol::STOCK) => real::known::pthread_rwlock_unlock(l),
                Some(protocol::PHASE_FAIR) => gated_unlock(me.t, l, me.tid),
                Some(protocol::BOOST) => boosted_unlock(me.t, l, me.tid),
                _ => unlock_otherwise(l, site),
            },
        }
    }
}

#[inline(never)]
unsafe fn gated_unlock(t: &'static Thread, l: Rwlock, tid: Tid) -> c_int {
    // Before the real unlock: after it the lock may no longer exist.
    match t.held.leave(l as usize) {
        Exit::Last(Mode::Round) | Exit::Inner => {}
        // SAFETY: the caller's: a rwlock.
        exit => unsafe { leave_gate(Me { t, tid }, l, exit) },
    }
    // SAFETY: as above.
    unsafe { real::known::pthread_rwlock_unlock(l) }
}

#[cold]
#[inline(never)]
unsafe fn leave_gate(me: Me, l: Rwlock, exit: Exit) {
    // SAFETY: the caller's: a rwlock.
    unsafe {
        let Some(gate) = gate(l) else { return };
        match exit {
            Exit::Last(mode) => leave(gate, me, mode),
            Exit::Inner => {}
            // Taken by another thread, or while the table was full. Leaving too often costs fairness; never leaving would
            // shut the gate forever.
            Exit::Unknown if mark::writer(l) != 0 => leave(gate, me, Mode::Write),
            Exit::Unknown => leave(gate, me, Mode::Read),
        }
    }
}

#[inline(never)]
unsafe fn boosted_unlock(t: &'static Thread, l: Rwlock, tid: Tid) -> c_int {
    // SAFETY: the caller's.
    unsafe { boost::give(Me { t, tid }, l as usize, || real::known::pthread_rwlock_unlock(l)) }
}

#[inline(never)]
unsafe extern "C" fn unlock_otherwise(l: Rwlock, site: usize) -> c_int {
    let f = || {
        // SAFETY: the caller's.
        unsafe { real::pthread_rwlock_unlock(l) }
    };
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's: a rwlock.
    unsafe {
        match of(me, l, site) {
            protocol::PHASE_FAIR => gated_unlock(me.t, l, me.tid),
            protocol::BOOST => boost::give(me, l as usize, f),
            _ => f(),
        }
    }
}

/// # Safety
/// As pthread_rwlock_init.
pub unsafe fn init(l: Rwlock, with: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_rwlock_init(l, with) };
    if r == 0
        && let Some(me) = on()
    {
        // SAFETY: made just now.
        if unsafe { mark::of_rwlock(l) }.is_some() {
            // SAFETY: as above.
            unsafe { decide(me, l, site) };
        } else {
            let want = wanted(class::RWLOCK, l as usize, site);
            if want != protocol::STOCK {
                refused(why::SHARED, want, class::RWLOCK, me.tid, l as usize, site);
            }
        }
    }
    r
}
