//! The mark of a lock's decision: bytes of glibc's locks that are zero in every new lock and that libc does not use.
//!
//! Mutex: the counter of lock elision (`__elision`, +22), used only if elision is on. One byte is the policy, one whether
//! the present hold came through the gate. Rwlock: `__pad3` and `__pad4` (+16, +20).
//!
//! Invariant: nothing is marked on a libc that [`prove_mutexes`] or [`prove_rwlocks`] found to be different.

use crate::process::real::{Mutex, Rwlock};
use crate::process::symbol;
use core::ffi::{CStr, c_int};
use core::mem::{MaybeUninit, transmute};
use core::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use locks::Tid;
use locks::layout::{ELISION, Layout, ROBUST, Real, SHARED};
use locks::room::{RealRwlock, RwLayout};

const MUTEX_POLICY: usize = 22;
const MUTEX_GATED: usize = 23;
const RWLOCK_POLICY: usize = 16;
const RWLOCK_SHARED: usize = 28;
const RWLOCK_WRITER: usize = 24;

/// The state of a mutex that an operation needs first.
#[derive(Clone, Copy)]
pub struct State {
    kind: i32,
    policy: u8,
}

impl State {
    /// `__kind`.
    #[inline(always)]
    pub fn kind(self) -> i32 {
        self.kind
    }

    /// One of [`tape::policy::protocol`], 0 if not decided.
    #[inline(always)]
    pub fn policy(self) -> u8 {
        self.policy
    }

    /// It may be marked: other processes do not see it, and it is not destroyed.
    #[inline(always)]
    pub fn is_ours(self) -> bool {
        self.kind() & (ROBUST | SHARED) == 0
    }
}

/// (Two loads, and a third for [`was_gated`]. One load over a byte that was just stored would wait until the store leaves
/// the core, some 4 ns.)
///
/// # Safety
/// `m` is a mutex.
#[inline(always)]
pub unsafe fn of_mutex(m: Mutex) -> State {
    // SAFETY: the caller's; `__kind` is at +16.
    unsafe {
        State { kind: m.cast::<i32>().add(4).read_volatile(), policy: m.cast::<u8>().add(MUTEX_POLICY).read_volatile() }
    }
}

/// Whether the present hold came through the gate, maybe before a fork.
///
/// # Safety
/// `m` is a mutex.
#[inline(always)]
pub unsafe fn was_gated(m: Mutex) -> bool {
    // SAFETY: the caller's.
    unsafe { m.cast::<u8>().add(MUTEX_GATED).read_volatile() != 0 }
}

/// Whether the present hold came through the gate and still has it: a fork frees gates.
///
/// # Safety
/// `m` is a mutex.
pub unsafe fn is_gated(m: Mutex) -> bool {
    // SAFETY: the caller's.
    unsafe { m.cast::<u8>().add(MUTEX_GATED).read_volatile() == gated() }
}

fn gated() -> u8 {
    (locks::fork::forks() % 255) as u8 + 1
}

/// # Safety
/// `l` is a lock that lives for `'a`, of a libc whose layout was proven.
#[inline(always)]
unsafe fn byte<'a, L>(l: *mut L, at: usize) -> &'a AtomicU8 {
    // SAFETY: the caller's; within the lock, and used only by the agent.
    unsafe { &*l.cast::<AtomicU8>().add(at) }
}

/// Decides for all threads. Returns whether this call decided.
///
/// # Safety
/// `m` is a mutex that only this process uses.
pub unsafe fn set_mutex(m: Mutex, policy: u8) -> bool {
    // SAFETY: the caller's.
    unsafe { byte(m, MUTEX_POLICY) }.compare_exchange(0, policy, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// # Safety
/// The calling thread holds the mutex `m`.
#[inline(always)]
pub unsafe fn set_gated(m: Mutex, is: bool) {
    let mark = if is { gated() } else { 0 };
    // SAFETY: the caller's.
    unsafe { byte(m, MUTEX_GATED) }.store(mark, Ordering::Relaxed);
}

/// `__owner` and `__count`.
///
/// # Safety
/// `m` is a mutex.
#[inline(always)]
pub unsafe fn owner(m: Mutex) -> u32 {
    // SAFETY: the caller's.
    unsafe { m.cast::<u32>().add(2).read_volatile() }
}

/// # Safety
/// `m` is a mutex.
#[inline(always)]
pub unsafe fn count(m: Mutex) -> u32 {
    // SAFETY: the caller's.
    unsafe { m.cast::<u32>().add(1).read_volatile() }
}

/// The policy of a rwlock, 0 if not decided; `None` if other processes share it.
///
/// # Safety
/// `l` is a rwlock.
#[inline(always)]
pub unsafe fn of_rwlock(l: Rwlock) -> Option<u8> {
    // SAFETY: the caller's.
    unsafe {
        (l.cast::<u8>().add(RWLOCK_SHARED).cast::<u32>().read_volatile() == 0)
            .then(|| byte(l, RWLOCK_POLICY).load(Ordering::Acquire))
    }
}

/// # Safety
/// `l` is a rwlock that only this process uses.
pub unsafe fn set_rwlock(l: Rwlock, policy: u8) -> bool {
    // SAFETY: the caller's.
    unsafe { byte(l, RWLOCK_POLICY) }.compare_exchange(0, policy, Ordering::AcqRel, Ordering::Relaxed).is_ok()
}

/// Number of waiting writers (low half), and their highest real-time priority since there was none (high half): `__pad4`.
///
/// # Safety
/// `l` is a rwlock that only this process uses and that lives for `'a`.
pub unsafe fn waiting_writers<'a>(l: Rwlock) -> &'a AtomicU32 {
    // SAFETY: the caller's.
    unsafe { &*l.cast::<u8>().add(20).cast::<AtomicU32>() }
}

/// The thread that holds it as its writer, 0 if there is none.
///
/// # Safety
/// `l` is a rwlock.
pub unsafe fn writer(l: Rwlock) -> u32 {
    // SAFETY: the caller's.
    unsafe { l.cast::<u8>().add(RWLOCK_WRITER).cast::<u32>().read_volatile() }
}

fn find(name: &CStr) -> Option<usize> {
    Some(symbol::next(name)).filter(|&at| at != 0)
}

macro_rules! found {
    ($name:literal) => {{
        let at = find($name)?;
        // SAFETY: the C function of that name has the type of the field that it becomes.
        unsafe { transmute::<usize, _>(at) }
    }};
}

#[allow(clippy::missing_transmute_annotations, reason = "the type is that of the field")]
/// Tests the agent's own mutexes; `None` if anything differs from what the protocols need.
pub fn prove_mutexes(me: Tid) -> Option<Layout> {
    let real = Real {
        init: found!(c"pthread_mutex_init"),
        lock: found!(c"pthread_mutex_lock"),
        trylock: found!(c"pthread_mutex_trylock"),
        unlock: found!(c"pthread_mutex_unlock"),
        destroy: found!(c"pthread_mutex_destroy"),
        attr_init: found!(c"pthread_mutexattr_init"),
        attr_settype: found!(c"pthread_mutexattr_settype"),
        attr_setprotocol: found!(c"pthread_mutexattr_setprotocol"),
        attr_setpshared: found!(c"pthread_mutexattr_setpshared"),
        attr_setrobust: found!(c"pthread_mutexattr_setrobust"),
    };
    let layout = Layout::probe(&real, me).ok()?;
    let mut m = MaybeUninit::<libc::pthread_mutex_t>::uninit();
    let p = m.as_mut_ptr();
    // SAFETY: a local mutex. The filling shows every field that init leaves out.
    let proven = unsafe {
        core::ptr::write_bytes(p, 0xa5, 1);
        let step = |r: c_int, marks: (u8, bool)| {
            r == 0 && (of_mutex(p).policy(), was_gated(p)) == marks && of_mutex(p).kind() & ELISION == 0
        };
        let (none, both) = ((0, false), (3, true));
        let mut good = step((real.init)(p, core::ptr::null()), none);
        good &= step((real.lock)(p), none) && step((real.unlock)(p), none);
        byte(p, MUTEX_POLICY).store(3, Ordering::Relaxed);
        byte(p, MUTEX_GATED).store(1, Ordering::Relaxed);
        good &= step((real.lock)(p), both) && step((real.unlock)(p), both) && step((real.trylock)(p), both);
        good &= step((real.unlock)(p), both);
        good && (real.destroy)(p) == 0
    };
    proven.then_some(layout)
}

#[allow(clippy::missing_transmute_annotations, reason = "the type is that of the field")]
/// As [`prove_mutexes`].
pub fn prove_rwlocks(me: Tid) -> Option<RwLayout> {
    let real = RealRwlock {
        init: found!(c"pthread_rwlock_init"),
        rdlock: found!(c"pthread_rwlock_rdlock"),
        wrlock: found!(c"pthread_rwlock_wrlock"),
        unlock: found!(c"pthread_rwlock_unlock"),
        destroy: found!(c"pthread_rwlock_destroy"),
        attr_init: found!(c"pthread_rwlockattr_init"),
        attr_setpshared: found!(c"pthread_rwlockattr_setpshared"),
    };
    let layout = RwLayout::probe(&real, me).ok()?;
    let mut l = MaybeUninit::<libc::pthread_rwlock_t>::uninit();
    let p = l.as_mut_ptr();
    // SAFETY: a local rwlock.
    let proven = unsafe {
        core::ptr::write_bytes(p, 0xa5, 1);
        let mut good = (real.init)(p, core::ptr::null()) == 0 && of_rwlock(p) == Some(0);
        good &= waiting_writers(p).swap(0x0007_0001, Ordering::Relaxed) == 0;
        byte(p, RWLOCK_POLICY).store(4, Ordering::Relaxed);
        for take in [real.rdlock, real.wrlock, real.rdlock] {
            good &= take(p) == 0 && of_rwlock(p) == Some(4) && (real.unlock)(p) == 0 && of_rwlock(p) == Some(4);
        }
        good && waiting_writers(p).load(Ordering::Relaxed) == 0x0007_0001 && (real.destroy)(p) == 0
    };
    proven.then_some(layout)
}
