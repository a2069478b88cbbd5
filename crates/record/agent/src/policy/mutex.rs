//! Mutexes: each operation under the policy of its mutex.

use super::boost;
use super::mark::{self, State};
use super::state::{self, Me, Now, deadline, ends_anywhere, foreign, given, mutexes, now, on, refused, wanted};
use crate::process::real::{self, Clock, Mutex, Time};
use crate::process::thread::Thread;
use core::ffi::{c_int, c_void};
use locks::layout::{ELISION, ERRORCHECK, KIND_MASK, Mutex as Inside, PRIO_INHERIT, PRIO_PROTECT, RECURSIVE, SHARED};
use locks::pi::{Call, Decision, Foreign, Refusal};
use locks::ticket::Ticket;
use locks::{Deadline, Kind, Node, Outcome, Tid, leaving};
use tape::policy::{class, protocol, why};

/// How often the thread that the gate has let in tries the real lock, which is about to be unlocked, before it sleeps.
const LOOKS: u32 = 128;

/// The policy of a mutex; the first operation decides.
///
/// # Safety
/// `m` is a mutex.
#[inline(always)]
unsafe fn of(me: Me, m: Mutex, s: State, site: usize) -> u8 {
    if !s.is_ours() {
        return protocol::STOCK;
    }
    // SAFETY: the caller's.
    if s.policy() != 0 { s.policy() } else { unsafe { decide(me, m, s, site) } }
}

#[cold]
#[inline(never)]
unsafe fn decide(me: Me, m: Mutex, s: State, site: usize) -> u8 {
    let Some(layout) = mutexes() else { return protocol::STOCK };
    let want = wanted(class::MUTEX, m as usize, site);
    let no = match want {
        protocol::STOCK | protocol::PI => None,
        _ if s.kind() & PRIO_INHERIT != 0 => Some(why::ALREADY_INHERITS),
        _ if s.kind() & PRIO_PROTECT != 0 => Some(why::CEILING),
        _ if s.kind() & ELISION != 0 => Some(why::ELIDED),
        _ => None,
    };
    let becomes = if no.is_some() { protocol::STOCK } else { want };
    // SAFETY: the caller's, and used only by this process.
    if !unsafe { mark::set_mutex(m, becomes) } {
        // Another thread was faster.
        // SAFETY: the caller's.
        return unsafe { mark::of_mutex(m) }.policy();
    }
    if let Some(reason) = no {
        refused(reason, want, class::MUTEX, me.tid, m as usize, site);
    } else if want == protocol::PI
        // SAFETY: the caller's: a mutex, of a libc whose layout was proven.
        && let Decision::Refused(reason) = unsafe { Inside::of(m) }.decide(&layout)
    {
        refused(number(reason), want, class::MUTEX, me.tid, m as usize, site);
    } else {
        given(becomes);
    }
    becomes
}

fn number(r: Refusal) -> u8 {
    match r {
        Refusal::Shared => why::SHARED,
        Refusal::Robust => why::ROBUST,
        Refusal::AlreadyInherits => why::ALREADY_INHERITS,
        Refusal::Ceiling => why::CEILING,
        Refusal::Elided => why::ELIDED,
        Refusal::ForeignUnlock => why::FOREIGN_UNLOCK,
        Refusal::Locked => why::LOCKED,
        Refusal::Bypassed => why::BYPASSED,
        Refusal::UnknownKind => why::UNKNOWN_KIND,
        Refusal::Init => why::INIT,
        Refusal::Planned => why::PLANNED,
    }
}

/// Under `pi`: the mutex's internals, if it is converted.
///
/// # Safety
/// `m` is a mutex that was decided to be under `pi`.
#[inline(always)]
unsafe fn converted<'a>(m: Mutex) -> Option<&'a Inside> {
    let layout = mutexes()?;
    // SAFETY: the caller's.
    let inside = unsafe { Inside::of(m) };
    (inside.decide(&layout) == Decision::Converted).then_some(inside)
}

fn code(c: Call, original: impl FnOnce() -> c_int) -> c_int {
    match c {
        Call::Done { code, .. } => code,
        Call::Original => original(),
    }
}

/// Locks it: with `f`, which has the same deadline, if only the real function is needed.
///
/// # Safety
/// `m` is a mutex, `f` locks it.
#[inline(always)]
unsafe fn take(m: Mutex, until: Option<Deadline>, site: usize, f: impl FnOnce() -> c_int) -> c_int {
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's.
    unsafe {
        let s = mark::of_mutex(m);
        match of(me, m, s, site) {
            protocol::TICKET => behind_ticket(me, m, s, until, f),
            protocol::PI => match (converted(m), until) {
                (None, _) => f(),
                (Some(inside), None) => code(inside.lock(me.tid), f),
                (Some(inside), Some(until)) => code(inside.lock_until(me.tid, &until), f),
            },
            protocol::BOOST => boost::take(me, m as usize, || real::pthread_mutex_trylock(m), f),
            _ => f(),
        }
    }
}

#[inline(always)]
unsafe fn behind_ticket(me: Me, m: Mutex, s: State, until: Option<Deadline>, f: impl FnOnce() -> c_int) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        // The thread already owns it: the real function counts or refuses, and does not wait.
        if matches!(s.kind() & KIND_MASK, RECURSIVE | ERRORCHECK) && mark::owner(m) == me.tid.raw() {
            return f();
        }
        let Some(gate) = mutexes().and_then(|layout| layout.ticket(m)) else { return f() };
        if gate.try_lock().is_acquired() {
            let node = Node::inside(Kind::Writer);
            return in_gate(me, m, gate, &node, || Outcome::Acquired { waited: false }, f);
        }
        if ends_anywhere() {
            return f();
        }
        let rank = state::rank(me);
        if rank != 0 && !mark::is_gated(m) {
            // The holder bypassed the gate, so the thread in the gate waits for the real lock. There the kernel prefers
            // the thread with the higher real-time priority, as POSIX requires.
            return f();
        }
        let node = Node::new(Kind::Writer, rank);
        in_gate(me, m, gate, &node, || gate.wait(me.tid, &node, until.as_ref()), f)
    }
}

/// A thread at the gate of a mutex, or in it and about to lock the mutex.
struct AtGate<'a> {
    gate: &'a Ticket,
    node: &'a Node,
    me: Tid,
}

extern "C" fn left_gate(at: *mut c_void) {
    // SAFETY: `leaving::run` was given an AtGate, which lives as long as its frame.
    let at = unsafe { &*at.cast::<AtGate>() };
    at.gate.abandon(at.me, at.node);
}

/// Enters the gate with `enter`, then the mutex with `f`.
#[inline(always)]
unsafe fn in_gate(
    me: Me,
    m: Mutex,
    gate: &Ticket,
    node: &Node,
    enter: impl FnOnce() -> Outcome,
    f: impl FnOnce() -> c_int,
) -> c_int {
    leaving::run(&AtGate { gate, node, me: me.tid }, left_gate, || {
        // SAFETY: the caller's: a mutex.
        unsafe {
            let r = match enter() {
                Outcome::Acquired { waited: false } => f(),
                Outcome::Acquired { waited: true } => soon(m, f),
                other => return other.code(),
            };
            if r == 0 {
                mark::set_gated(m, true);
            } else {
                let _ = gate.unlock(me.tid);
            }
            r
        }
    })
}

/// The thread before this one in the gate has left it and is about to unlock.
#[cold]
unsafe fn soon(m: Mutex, f: impl FnOnce() -> c_int) -> c_int {
    for _ in 0..LOOKS {
        // SAFETY: the caller's.
        if unsafe { real::pthread_mutex_trylock(m) } == 0 {
            return 0;
        }
        core::hint::spin_loop();
    }
    f()
}

/// The policy of a mutex in the usual case, 0 otherwise.
#[inline(always)]
fn settled(s: State) -> u8 {
    if s.is_ours() { s.policy() } else { protocol::STOCK }
}

/// The usual case, a free mutex, takes paths that end in jumps, as in `hooks::locks::mutex`.
///
/// # Safety
/// As pthread_mutex_lock.
#[inline(always)]
pub unsafe fn lock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's. A mutex is marked with a policy only if its layout was proven.
    unsafe {
        match now() {
            Now::Off => real::pthread_mutex_lock(m),
            Now::First => lock_otherwise(m, site),
            Now::On(me) => {
                let s = mark::of_mutex(m);
                match settled(s) {
                    protocol::STOCK => real::known::pthread_mutex_lock(m),
                    protocol::PI if Inside::of(m).lock_at_once(me.tid) => 0,
                    protocol::TICKET if nobody_waits(m) => lock_beside_gate(m, site),
                    protocol::BOOST => lock_boosted(me.t, m, me.tid),
                    _ => lock_otherwise(m, site),
                }
            }
        }
    }
}

/// True if no thread is in the gate or waits at it. Then a thread may try the real lock without the gate: every thread
/// that waits arrived later, and finds the gate or the lock taken.
#[inline(always)]
unsafe fn nobody_waits(m: Mutex) -> bool {
    // SAFETY: the caller's: a mutex that is marked with a policy and used only by this process.
    mutexes().is_some_and(|layout| unsafe { !layout.ticket_of_ours(m).is_locked() })
}

#[inline(never)]
unsafe extern "C" fn lock_beside_gate(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { if real::known::pthread_mutex_trylock(m) == 0 { 0 } else { lock_otherwise(m, site) } }
}

#[inline(never)]
unsafe fn lock_boosted(t: &'static Thread, m: Mutex, tid: Tid) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let wait = || real::pthread_mutex_lock(m);
        boost::take(Me { t, tid }, m as usize, || real::known::pthread_mutex_trylock(m), wait)
    }
}

#[inline(never)]
unsafe fn unlock_boosted(t: &'static Thread, m: Mutex, tid: Tid) -> c_int {
    // SAFETY: the caller's.
    unsafe { boost::give(Me { t, tid }, m as usize, || real::known::pthread_mutex_unlock(m)) }
}

#[inline(never)]
unsafe extern "C" fn lock_otherwise(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe { take(m, None, site, || real::pthread_mutex_lock(m)) }
}

/// # Safety
/// As pthread_mutex_timedlock.
pub unsafe fn timedlock(m: Mutex, until: Time, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let f = || real::pthread_mutex_timedlock(m, until);
        take(m, deadline(libc::CLOCK_REALTIME, until), site, f)
    }
}

/// # Safety
/// As pthread_mutex_clocklock.
pub unsafe fn clocklock(m: Mutex, clock: Clock, until: Time, site: usize) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let f = || real::pthread_mutex_clocklock(m, clock, until);
        match deadline(clock, until) {
            None => f(),
            until => take(m, until, site, f),
        }
    }
}

/// # Safety
/// As pthread_mutex_trylock.
pub unsafe fn trylock(m: Mutex, site: usize) -> c_int {
    let f = || {
        // SAFETY: the caller's.
        unsafe { real::pthread_mutex_trylock(m) }
    };
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's.
    unsafe {
        let s = mark::of_mutex(m);
        match of(me, m, s, site) {
            // Bypasses the gate: a free lock can be taken, even if threads wait at the gate.
            protocol::PI => converted(m).map_or_else(f, |inside| code(inside.try_lock(me.tid), f)),
            protocol::BOOST => boost::attempt(me, m as usize, f),
            _ => f(),
        }
    }
}

/// As [`lock`]: in the usual case no thread waited, and none waits.
///
/// # Safety
/// As pthread_mutex_unlock.
#[inline(always)]
pub unsafe fn unlock(m: Mutex, site: usize) -> c_int {
    // SAFETY: the caller's. A mutex is marked with a policy only if its layout was proven.
    unsafe {
        match now() {
            Now::Off => real::pthread_mutex_unlock(m),
            Now::First => unlock_otherwise(m, site),
            Now::On(me) => {
                let s = mark::of_mutex(m);
                match settled(s) {
                    protocol::STOCK => real::known::pthread_mutex_unlock(m),
                    protocol::PI if Inside::of(m).unlock_at_once(me.tid) => 0,
                    protocol::TICKET if !mark::was_gated(m) && mark::owner(m) == me.tid.raw() => {
                        real::known::pthread_mutex_unlock(m)
                    }
                    protocol::BOOST => unlock_boosted(me.t, m, me.tid),
                    _ => unlock_otherwise(m, site),
                }
            }
        }
    }
}

#[inline(never)]
unsafe extern "C" fn unlock_otherwise(m: Mutex, site: usize) -> c_int {
    let f = || {
        // SAFETY: the caller's.
        unsafe { real::pthread_mutex_unlock(m) }
    };
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's.
    unsafe {
        let s = mark::of_mutex(m);
        match of(me, m, s, site) {
            protocol::TICKET => {
                if gives_up(me, m, s, site) {
                    leave_gate(me, m);
                }
                f()
            }
            protocol::PI => converted(m).map_or_else(f, |inside| {
                let done = inside.unlock(me.tid);
                if let Some(what) = done.foreign {
                    went_back(me, m, what, site);
                }
                code(done.call, f)
            }),
            protocol::BOOST => boost::give(me, m as usize, f),
            _ => f(),
        }
    }
}

/// Whether an unlock also releases the gate: it is the last unlock of the hold, and the hold came through the gate.
#[inline(always)]
unsafe fn gives_up(me: Me, m: Mutex, s: State, site: usize) -> bool {
    // SAFETY: the caller's.
    unsafe {
        let mine = mark::owner(m) == me.tid.raw();
        match s.kind() & KIND_MASK {
            RECURSIVE if mark::count(m) > 1 => return false,
            RECURSIVE | ERRORCHECK if !mine => return false,
            _ if !mine => foreign(me, protocol::TICKET, m as usize, site),
            _ => {}
        }
    }
    // SAFETY: the caller's.
    unsafe { mark::was_gated(m) }
}

/// Before the real unlock: after it the mutex may no longer exist. The thread that is let in briefly waits for the real
/// lock.
unsafe fn leave_gate(me: Me, m: Mutex) {
    // SAFETY: the caller's: a mutex that the calling thread holds.
    unsafe {
        let has_gate = mark::is_gated(m);
        mark::set_gated(m, false);
        if let Some(gate) = mutexes().and_then(|layout| layout.ticket(m)).filter(|_| has_gate) {
            let _ = gate.unlock(me.tid);
        }
    }
}

#[cold]
fn went_back(me: Me, m: Mutex, what: Foreign, site: usize) {
    foreign(me, protocol::PI, m as usize, site);
    if what != Foreign::WasFree
        && let Some(b) = state::board()
    {
        b.refused[usize::from(why::FOREIGN_UNLOCK)].fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

/// # Safety
/// As pthread_mutex_init.
pub unsafe fn init(m: Mutex, with: *const c_void, site: usize) -> c_int {
    // SAFETY: the caller's.
    let r = unsafe { real::pthread_mutex_init(m, with) };
    if r == 0 {
        // SAFETY: made just now.
        unsafe { was_made(m, site) };
    }
    r
}

/// A mutex was initialised: decides its policy.
///
/// # Safety
/// `m` is a mutex that no thread has used.
pub unsafe fn was_made(m: Mutex, site: usize) {
    if let Some(me) = on() {
        // SAFETY: made just now.
        let s = unsafe { mark::of_mutex(m) };
        if s.is_ours() {
            // SAFETY: as above.
            unsafe { decide(me, m, s, site) };
        } else {
            let want = wanted(class::MUTEX, m as usize, site);
            if want != protocol::STOCK {
                let reason = if s.kind() & SHARED != 0 && s.kind() & locks::layout::ROBUST == 0 {
                    why::SHARED
                } else {
                    why::ROBUST
                };
                refused(reason, want, class::MUTEX, me.tid, m as usize, site);
            }
        }
    }
}

/// What was done before a wait for a condition, to be undone when the thread has the mutex again.
pub enum Waits {
    Plain,
    Converted,
    Boosted,
}

/// Before the mutex is released in a wait for a condition.
///
/// # Safety
/// As pthread_cond_wait.
pub unsafe fn before_wait(me: Me, m: Mutex, site: usize) -> Waits {
    // SAFETY: the caller's.
    unsafe {
        let s = mark::of_mutex(m);
        match of(me, m, s, site) {
            protocol::TICKET => {
                // It will be taken again without the gate.
                if mark::was_gated(m) && mark::owner(m) == me.tid.raw() {
                    leave_gate(me, m);
                }
                Waits::Plain
            }
            protocol::PI => converted(m).map_or(Waits::Plain, |inside| {
                if inside.before_condition(me.tid) {
                    return Waits::Converted;
                }
                went_back(me, m, Foreign::Released { owner: 0 }, site);
                Waits::Plain
            }),
            protocol::BOOST => {
                boost::lets_go(me, m as usize);
                Waits::Boosted
            }
            _ => Waits::Plain,
        }
    }
}

/// # Safety
/// `m` is a mutex for which [`before_wait`] returned `Converted`.
pub unsafe fn after_converted_wait(m: Mutex) {
    // SAFETY: the caller's.
    unsafe { Inside::of(m) }.after_condition();
}
