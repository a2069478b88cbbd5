//! Mutexes under priority inheritance return the results of their original protocol, and return to it when they must.
#![cfg(not(loom))]

mod hands;

use std::cell::UnsafeCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use hands::{Data, Dice, invalid, long_past, me, sleeps, until, within, within_real};
use locks::layout::{self, Layout, Mutex, Real};
use locks::pi::{Call, Decision, Foreign, Refusal};
use locks::{Deadline, Tid};

const REAL: Real = Real {
    init: libc::pthread_mutex_init,
    lock: libc::pthread_mutex_lock,
    trylock: libc::pthread_mutex_trylock,
    unlock: libc::pthread_mutex_unlock,
    destroy: libc::pthread_mutex_destroy,
    attr_init: libc::pthread_mutexattr_init,
    attr_settype: libc::pthread_mutexattr_settype,
    attr_setprotocol: libc::pthread_mutexattr_setprotocol,
    attr_setpshared: libc::pthread_mutexattr_setpshared,
    attr_setrobust: libc::pthread_mutexattr_setrobust,
};

/// A mutex as an interposer would treat it: decided, then locked here or in libc.
struct Shim {
    raw: Box<UnsafeCell<libc::pthread_mutex_t>>,
    layout: Layout,
    pi: bool,
}

// SAFETY: a mutex.
unsafe impl Sync for Shim {}
// SAFETY: it is in a box.
unsafe impl Send for Shim {}

const NORMAL: i32 = libc::PTHREAD_MUTEX_NORMAL;
const RECURSIVE: i32 = libc::PTHREAD_MUTEX_RECURSIVE;
const ERRORCHECK: i32 = libc::PTHREAD_MUTEX_ERRORCHECK;

fn attributes(change: impl FnOnce(*mut libc::pthread_mutexattr_t)) -> libc::pthread_mutex_t {
    // SAFETY: plain libc calls on local variables.
    unsafe {
        let mut attribute = std::mem::zeroed();
        libc::pthread_mutexattr_init(&mut attribute);
        change(&mut attribute);
        let mut mutex = std::mem::zeroed();
        assert_eq!(libc::pthread_mutex_init(&mut mutex, &attribute), 0);
        mutex
    }
}

impl Shim {
    fn with(mutex: libc::pthread_mutex_t, pi: bool) -> Shim {
        let layout = Layout::probe(&REAL, me()).unwrap();
        Shim { raw: Box::new(UnsafeCell::new(mutex)), layout, pi }
    }

    fn of_kind(kind: i32, pi: bool) -> Shim {
        // SAFETY: the attribute of `attributes`.
        let set = |attribute| assert_eq!(unsafe { libc::pthread_mutexattr_settype(attribute, kind) }, 0);
        Shim::with(attributes(set), pi)
    }

    fn view(&self) -> &Mutex {
        // SAFETY: alive, and the layout is proven.
        unsafe { Mutex::of(self.raw.get()) }
    }

    fn converted(&self) -> bool {
        self.pi && self.view().decide(&self.layout) == Decision::Converted
    }

    fn code(&self, call: Option<Call>, real: unsafe extern "C" fn(*mut libc::pthread_mutex_t) -> i32) -> i32 {
        match call {
            Some(Call::Done { code, .. }) => code,
            // SAFETY: an initialised mutex.
            _ => unsafe { real(self.raw.get()) },
        }
    }

    fn lock(&self) -> i32 {
        self.code(self.converted().then(|| self.view().lock(me())), libc::pthread_mutex_lock)
    }

    fn try_lock(&self) -> i32 {
        self.code(self.converted().then(|| self.view().try_lock(me())), libc::pthread_mutex_trylock)
    }

    fn unlock(&self) -> i32 {
        self.unlock_reported().0
    }

    fn unlock_reported(&self) -> (i32, Option<Foreign>) {
        let unlocked = self.converted().then(|| self.view().unlock(me()));
        let code = self.code(unlocked.map(|unlocked| unlocked.call), libc::pthread_mutex_unlock);
        (code, unlocked.and_then(|unlocked| unlocked.foreign))
    }

    fn lock_until(&self, deadline: &Deadline) -> i32 {
        if self.converted()
            && let Call::Done { code, .. } = self.view().lock_until(me(), deadline)
        {
            return code;
        }
        // SAFETY: an initialised mutex and a timespec.
        unsafe { pthread_mutex_clocklock(self.raw.get(), deadline.clock.id(), &deadline.at) }
    }

    fn kind(&self) -> i32 {
        // SAFETY: the kind is at byte 16, as the probe has shown.
        unsafe { *self.raw.get().cast::<i32>().add(4) }
    }

    fn holder(&self) -> u32 {
        self.view().holder().map_or(0, Tid::raw)
    }
}

unsafe extern "C" {
    fn pthread_mutex_clocklock(mutex: *mut libc::pthread_mutex_t, clock: i32, at: *const libc::timespec) -> i32;
}

fn elsewhere<T: Send>(body: impl FnOnce() -> T + Send) -> T {
    thread::scope(|scope| scope.spawn(body).join().unwrap())
}

#[test]
fn layout_is_as_written() {
    Layout::probe(&REAL, me()).unwrap();
}

/// A ticket fits into a mutex, in bytes that libc does not touch.
#[test]
fn a_mutex_has_room_for_its_ticket() {
    let mutex = Shim::with(libc::PTHREAD_MUTEX_INITIALIZER, false);
    // SAFETY: initialised and alive, here and below.
    let ticket = unsafe { mutex.layout.ticket(mutex.raw.get()) }.unwrap();
    for _ in 0..3 {
        assert!(ticket.lock(me()).is_acquired());
        assert_eq!((mutex.lock(), mutex.unlock()), (0, 0));
        assert!(ticket.is_locked());
        ticket.unlock(me()).unwrap();
    }
    // SAFETY: the attribute of `attributes`.
    let robust = attributes(|each| assert_eq!(unsafe { libc::pthread_mutexattr_setrobust(each, 1) }, 0));
    // SAFETY: initialised and alive.
    assert!(unsafe { mutex.layout.ticket(&robust) }.is_none());
}

/// A libc whose lock has no effect is refused with the value that was found.
#[test]
fn probe_refuses_a_libc_that_behaves_otherwise() {
    unsafe extern "C" fn idle(_: *mut libc::pthread_mutex_t) -> i32 {
        0
    }
    let mismatch = Layout::probe(&Real { lock: idle, ..REAL }, me()).unwrap_err();
    assert_eq!((mismatch.what, mismatch.expected, mismatch.found), ("a locked mutex", 1, 0));
}

/// Valgrind's tools identify a mutex by its address: a destroyed mutex was initialised there.
#[test]
fn probe_destroys_what_it_has_made_where_it_made_it() {
    static MADE: std::sync::Mutex<Vec<usize>> = std::sync::Mutex::new(Vec::new());
    unsafe extern "C" fn init(m: *mut libc::pthread_mutex_t, a: *const libc::pthread_mutexattr_t) -> i32 {
        assert!(MADE.lock().is_ok_and(|mut made| {
            made.push(m as usize);
            made.len() == 1
        }));
        // SAFETY: the caller's.
        unsafe { libc::pthread_mutex_init(m, a) }
    }
    unsafe extern "C" fn destroy(m: *mut libc::pthread_mutex_t) -> i32 {
        assert_eq!(MADE.lock().map(|mut made| made.pop()).ok().flatten(), Some(m as usize));
        // SAFETY: the caller's.
        unsafe { libc::pthread_mutex_destroy(m) }
    }
    Layout::probe(&Real { init, destroy, ..REAL }, me()).unwrap();
    assert!(MADE.lock().unwrap().is_empty());
}

/// One table of operations and codes for the original protocol and for PI.
#[test]
fn codes_are_those_of_the_original_protocol() {
    let table = |kind: i32, pi: bool| {
        let mutex = Shim::of_kind(kind, pi);
        let mut codes = vec![
            mutex.lock(),
            mutex.try_lock(),
            elsewhere(|| mutex.try_lock()),
            elsewhere(|| mutex.lock_until(&within(5))),
            elsewhere(|| mutex.lock_until(&within_real(5))),
            elsewhere(|| mutex.lock_until(&invalid())),
            elsewhere(|| mutex.lock_until(&long_past())),
            mutex.lock_until(&within(5)),
        ];
        if kind != NORMAL && kind != layout::ADAPTIVE {
            codes.push(mutex.lock());
            codes.push(elsewhere(|| mutex.unlock()));
        }
        for _ in 0..4 {
            codes.push(mutex.unlock());
            codes.push(elsewhere(|| mutex.try_lock()));
            if codes.last() == Some(&0) {
                break;
            }
        }
        // The owner ended without unlocking: it stays locked, and deadlines still pass.
        codes.push(mutex.try_lock());
        codes.push(mutex.lock_until(&within(5)));
        // SAFETY: an initialised mutex.
        codes.push(unsafe { libc::pthread_mutex_destroy(mutex.raw.get()) });
        (codes, mutex.converted())
    };
    for kind in [NORMAL, RECURSIVE, ERRORCHECK, layout::ADAPTIVE] {
        let (stock, _) = table(kind, false);
        let (pi, _) = table(kind, true);
        assert_eq!(stock, pi, "kind {kind}");
    }
}

#[test]
fn static_initialisers_are_converted() {
    let mutexes = [
        (libc::PTHREAD_MUTEX_INITIALIZER, 0),
        (libc::PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP, 1),
        (libc::PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP, 2),
        (libc::PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP, 3),
    ];
    for (mutex, kind) in mutexes {
        let mutex = Shim::with(mutex, true);
        assert_eq!(mutex.lock(), 0);
        assert_eq!(mutex.kind(), kind | layout::PRIO_INHERIT);
        assert_eq!(mutex.holder(), me().raw());
        assert_eq!(mutex.unlock(), 0);
        assert_eq!(mutex.holder(), 0);
    }
}

#[test]
fn what_cannot_be_converted_is_refused_with_the_reason() {
    type Set = unsafe extern "C" fn(*mut libc::pthread_mutexattr_t, i32) -> i32;
    // SAFETY: the attribute of `attributes`.
    let with = |set: Set, value| attributes(|each| assert_eq!(unsafe { set(each, value) }, 0));
    let shared = with(libc::pthread_mutexattr_setpshared, libc::PTHREAD_PROCESS_SHARED);
    let robust = with(libc::pthread_mutexattr_setrobust, libc::PTHREAD_MUTEX_ROBUST);
    let pi = with(libc::pthread_mutexattr_setprotocol, libc::PTHREAD_PRIO_INHERIT);
    let ceiling = with(libc::pthread_mutexattr_setprotocol, libc::PTHREAD_PRIO_PROTECT);
    for (mutex, why) in [
        (shared, Refusal::Shared),
        (robust, Refusal::Robust),
        (pi, Refusal::AlreadyInherits),
        (ceiling, Refusal::Ceiling),
    ] {
        let mutex = Shim::with(mutex, true);
        let before = mutex.kind();
        assert_eq!(mutex.view().decide(&mutex.layout), Decision::Refused(why));
        assert_eq!(mutex.view().decide(&mutex.layout), Decision::Refused(why));
        assert_eq!(mutex.kind(), before);
    }
    let locked = Shim::of_kind(NORMAL, true);
    // SAFETY: an initialised mutex; bypasses the shim.
    unsafe { libc::pthread_mutex_lock(locked.raw.get()) };
    assert_eq!(locked.view().decide(&locked.layout), Decision::Refused(Refusal::Locked));
    assert_eq!(locked.unlock(), 0);
    // Decided once: a locker may be about to enter libc with the old kind.
    assert_eq!(locked.view().decide(&locked.layout), Decision::Refused(Refusal::Locked));
    let planned = Shim::of_kind(NORMAL, true);
    let refused = Decision::Refused(Refusal::ForeignUnlock);
    assert_eq!(planned.view().refuse(Refusal::ForeignUnlock, &planned.layout), refused);
    assert_eq!((planned.lock(), planned.unlock(), planned.kind() & layout::PRIO_INHERIT), (0, 0, 0));
    let destroyed = Shim::of_kind(NORMAL, true);
    // SAFETY: an initialised mutex.
    unsafe { libc::pthread_mutex_destroy(destroyed.raw.get()) };
    assert_eq!(destroyed.view().decide(&destroyed.layout), Decision::Refused(Refusal::UnknownKind));
}

/// Many threads meet a static mutex at its first use, again and again: decided once, and exclusive from the start.
#[test]
fn conversion_against_concurrent_lockers() {
    for _ in 0..300 {
        let mutex = Shim::with(libc::PTHREAD_MUTEX_INITIALIZER, true);
        let (data, barrier) = (Data::default(), std::sync::Barrier::new(4));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    barrier.wait();
                    for _ in 0..20 {
                        assert_eq!(mutex.lock(), 0);
                        data.write();
                        assert_eq!(mutex.unlock(), 0);
                    }
                });
            }
        });
        assert!(mutex.converted() && !data.broken.load(Ordering::Relaxed));
        assert_eq!(data.writes(), 80);
    }
}

#[test]
fn many_threads() {
    const THREADS: u64 = 64;
    const OPERATIONS: u64 = 1_000_000;
    const SHARDS: usize = 8;
    let shards: [(Shim, Data); SHARDS] = std::array::from_fn(|_| (Shim::of_kind(NORMAL, true), Data::default()));
    let entered = AtomicU64::new(0);
    let start = std::time::Instant::now();
    thread::scope(|scope| {
        for number in 1..=THREADS {
            let (shards, entered) = (&shards, &entered);
            scope.spawn(move || {
                let mut dice = Dice::new(number);
                for _ in 0..OPERATIONS / THREADS {
                    let (mutex, data) = &shards[dice.roll(SHARDS as u64) as usize];
                    let code = match dice.roll(8) {
                        0 => mutex.try_lock(),
                        1 => mutex.lock_until(&Deadline::after(locks::Clock::Realtime, Duration::from_micros(20))),
                        _ => mutex.lock(),
                    };
                    if code == 0 {
                        data.write();
                        entered.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(mutex.unlock(), 0);
                    } else {
                        assert!(code == libc::EBUSY || code == libc::ETIMEDOUT, "{code}");
                    }
                }
            });
        }
    });
    println!("pi: {THREADS} threads, {OPERATIONS} operations in {:?}", start.elapsed());
    assert!(shards.iter().all(|(mutex, data)| mutex.converted() && !data.broken.load(Ordering::Relaxed)));
    assert_eq!(shards.iter().map(|(_, data)| data.writes()).sum::<u64>(), entered.load(Ordering::Relaxed));
}

/// A mutex used as a semaphore: with no waiter, with one, and with the owner itself as the waiter.
#[test]
fn foreign_unlock_of_an_uncontended_mutex() {
    let mutex = Shim::of_kind(NORMAL, true);
    assert_eq!(mutex.lock(), 0);
    let owner = me().raw();
    let (code, event) = elsewhere(|| mutex.unlock_reported());
    assert_eq!((code, event), (0, Some(Foreign::Released { owner })));
    assert_eq!(mutex.view().decide(&mutex.layout), Decision::Refused(Refusal::ForeignUnlock));
    assert_eq!(mutex.kind() & layout::PRIO_INHERIT, 0);
    for _ in 0..3 {
        assert_eq!((mutex.lock(), mutex.try_lock()), (0, libc::EBUSY));
        assert_eq!(elsewhere(|| mutex.unlock_reported()), (0, None));
    }
    // SAFETY: an initialised mutex.
    assert_eq!(unsafe { libc::pthread_mutex_destroy(mutex.raw.get()) }, 0);
}

#[test]
fn foreign_unlock_lets_those_in_who_sleep_in_the_kernel() {
    let mutex = Shim::of_kind(NORMAL, true);
    assert_eq!(mutex.lock(), 0);
    let data = Data::default();
    thread::scope(|scope| {
        for _ in 0..4 {
            let tid = Arc::new(AtomicU64::new(0));
            let known = tid.clone();
            let (mutex, data) = (&mutex, &data);
            scope.spawn(move || {
                known.store(me().raw().into(), Ordering::Relaxed);
                assert_eq!(mutex.lock(), 0);
                data.write();
                assert_eq!(mutex.unlock(), 0);
            });
            until("asleep", || tid.load(Ordering::Relaxed) != 0 && sleeps(tid.load(Ordering::Relaxed) as u32));
        }
        let owner = me().raw();
        let (code, event) = elsewhere(|| mutex.unlock_reported());
        assert_eq!(code, 0);
        // Between two slices a waiter is out of the kernel.
        assert!(
            matches!(event, Some(Foreign::Deferred { owner: seen } | Foreign::Released { owner: seen }) if seen == owner)
        );
    });
    assert_eq!((data.writes(), data.broken.load(Ordering::Relaxed)), (4, false));
    assert_eq!(mutex.view().decide(&mutex.layout), Decision::Refused(Refusal::ForeignUnlock));
    assert_eq!((mutex.lock(), mutex.unlock()), (0, 0));
}

#[test]
fn an_owner_that_locks_again_waits_for_the_foreign_unlock() {
    let mutex = Shim::of_kind(NORMAL, true);
    let done = AtomicBool::new(false);
    let tid = AtomicU64::new(0);
    thread::scope(|scope| {
        let (mutex, done, tid) = (&mutex, &done, &tid);
        let waiter = scope.spawn(|| {
            assert_eq!(mutex.lock(), 0);
            assert_eq!(mutex.lock_until(&within(20)), libc::ETIMEDOUT);
            tid.store(me().raw().into(), Ordering::Relaxed);
            assert_eq!(mutex.lock(), 0);
            done.store(true, Ordering::Relaxed);
        });
        until("asleep", || tid.load(Ordering::Relaxed) != 0 && sleeps(tid.load(Ordering::Relaxed) as u32));
        assert!(!done.load(Ordering::Relaxed));
        let (code, event) = mutex.unlock_reported();
        assert!(code == 0 && event.is_some());
        waiter.join().unwrap();
    });
    assert_eq!(mutex.unlock(), 0);
}

/// A lock that bypassed the shim is noticed, and the two protocols do not meet on one word.
#[test]
fn a_bypass_sends_the_mutex_back() {
    let mutex = Shim::of_kind(NORMAL, true);
    assert!(mutex.converted());
    // SAFETY: the word as a thread leaves it that read the kind before the conversion.
    unsafe { *mutex.raw.get().cast::<u32>() = 1 };
    assert_eq!(mutex.lock_until(&within(20)), libc::ETIMEDOUT);
    assert_eq!(mutex.view().decide(&mutex.layout), Decision::Refused(Refusal::Bypassed));
    // SAFETY: an initialised mutex, under its original protocol again.
    assert_eq!(unsafe { libc::pthread_mutex_unlock(mutex.raw.get()) }, 0);
    assert_eq!((mutex.lock(), mutex.unlock()), (0, 0));
}

#[test]
fn a_wait_with_a_mutex_that_nobody_holds_is_as_without_us() {
    let mutex = Shim::of_kind(libc::PTHREAD_MUTEX_NORMAL, true);
    assert!(matches!((mutex.lock(), mutex.unlock()), (0, 0)));
    assert!(!mutex.view().before_condition(me()), "it goes back to its own protocol");
    let mut condition: libc::pthread_cond_t = libc::PTHREAD_COND_INITIALIZER;
    let past = libc::timespec { tv_sec: 1, tv_nsec: 0 };
    // SAFETY: both initialised. libc unlocks the mutex although it is not held, and locks it again.
    let waited = unsafe { libc::pthread_cond_timedwait(&mut condition, mutex.raw.get(), &past) };
    assert_eq!(waited, libc::ETIMEDOUT);
    assert_eq!(mutex.unlock(), 0);
}

/// libc's wait for a condition unlocks and locks a converted mutex.
#[test]
fn conditions_work_with_converted_mutexes() {
    for kind in [NORMAL, RECURSIVE, ERRORCHECK, layout::ADAPTIVE] {
        struct Condition(UnsafeCell<libc::pthread_cond_t>);
        // SAFETY: a condition variable.
        unsafe impl Sync for Condition {}
        let mutex = Shim::of_kind(kind, true);
        let condition = &Condition(UnsafeCell::new(libc::PTHREAD_COND_INITIALIZER));
        let turn = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..4 {
                let (mutex, turn) = (&mutex, &turn);
                scope.spawn(move || {
                    for round in 0..500 {
                        assert_eq!(mutex.lock(), 0);
                        while turn.load(Ordering::Relaxed) != round * 4 + number {
                            assert!(mutex.view().before_condition(me()));
                            // SAFETY: both initialised, the mutex held.
                            assert_eq!(unsafe { libc::pthread_cond_wait(condition.0.get(), mutex.raw.get()) }, 0);
                            mutex.view().after_condition();
                            assert_eq!(mutex.holder(), me().raw());
                        }
                        turn.fetch_add(1, Ordering::Relaxed);
                        // SAFETY: initialised.
                        unsafe { libc::pthread_cond_broadcast(condition.0.get()) };
                        assert_eq!(mutex.unlock(), 0);
                    }
                });
            }
        });
        assert_eq!(turn.load(Ordering::Relaxed), 2_000);
        assert!(mutex.converted());
        // SAFETY: an initialised mutex.
        assert_eq!(unsafe { libc::pthread_mutex_destroy(mutex.raw.get()) }, 0);
    }
}

/// Locked before a fork, unlocked in the child, whose thread has another number.
#[test]
fn a_child_unlocks_what_its_parent_locked() {
    let mutex = Shim::of_kind(NORMAL, true);
    assert_eq!(mutex.lock(), 0);
    // SAFETY: the child makes system calls and touches its copy of the mutex only.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let now = Tid::current();
        locks::fork::after_fork_in_child(now);
        let unlocked = mutex.view().unlock(now);
        let freed = unlocked.call == Call::Done { code: 0, waited: false } && unlocked.foreign.is_some();
        // SAFETY: as above; initialised.
        let again = unsafe { libc::pthread_mutex_lock(mutex.raw.get()) };
        // SAFETY: no handlers, no buffers.
        unsafe { libc::_exit(if freed && again == 0 { 0 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: this test's child.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!(status, 0);
    assert_eq!(mutex.unlock(), 0);
    assert!(mutex.converted());
}

/// The holder of a converted mutex runs at the priority of its waiters, through a nested mutex too.
#[test]
fn the_holder_inherits() {
    let priority = |tid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(15).unwrap().parse::<i32>().unwrap()
    };
    let (outer, inner) = (&Shim::of_kind(NORMAL, true), &Shim::of_kind(RECURSIVE, true));
    assert_eq!(inner.lock(), 0);
    let before = priority(me().raw());
    thread::scope(|scope| {
        let between = Arc::new(AtomicU64::new(0));
        let known = between.clone();
        scope.spawn(move || {
            assert_eq!(outer.lock(), 0);
            known.store(me().raw().into(), Ordering::Relaxed);
            assert_eq!((inner.lock(), inner.unlock(), outer.unlock()), (0, 0, 0));
        });
        until("asleep", || {
            let tid = between.load(Ordering::Relaxed) as u32;
            tid != 0 && sleeps(tid)
        });
        let (allowed, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (yes, no) = (allowed.clone(), refused.clone());
        scope.spawn(move || {
            let parameter = libc::sched_param { sched_priority: 33 };
            // SAFETY: a live parameter; 0 is the calling thread.
            match unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } {
                0 => yes.store(true, Ordering::Relaxed),
                _ => return no.store(true, Ordering::Relaxed),
            }
            assert_eq!((outer.lock(), outer.unlock()), (0, 0));
        });
        until("set", || allowed.load(Ordering::Relaxed) || refused.load(Ordering::Relaxed));
        if allowed.load(Ordering::Relaxed) {
            until("raised to 33 through two mutexes", || priority(me().raw()) == -34);
        } else {
            test_support::skip_part!("SCHED_FIFO is not allowed here");
        }
        assert_eq!(inner.unlock(), 0);
        assert_eq!(priority(me().raw()), before);
    });
}

/// The kernel would hand an ended owner's lock to a sleeper; the original protocol leaves it locked.
#[test]
fn an_owner_that_ends_while_others_wait_leaves_it_locked() {
    let mutex = Shim::of_kind(NORMAL, true);
    let (waiter_tid, both) = (AtomicU64::new(0), std::sync::Barrier::new(2));
    thread::scope(|scope| {
        let (mutex, waiter_tid, both) = (&mutex, &waiter_tid, &both);
        scope.spawn(move || {
            assert_eq!(mutex.lock(), 0);
            both.wait();
            until("asleep", || {
                let tid = waiter_tid.load(Ordering::Relaxed) as u32;
                tid != 0 && sleeps(tid)
            });
        });
        both.wait();
        waiter_tid.store(me().raw().into(), Ordering::Relaxed);
        assert_eq!(mutex.lock_until(&within(1_000)), libc::ETIMEDOUT);
    });
    assert_eq!(mutex.try_lock(), libc::EBUSY);
    assert_eq!(mutex.unlock(), 0);
    assert_eq!((mutex.lock(), mutex.unlock()), (0, 0));
}

/// A foreign unlock at any moment while others come and go: every thread gets in, one at a time. Four rounds run in
/// parallel: most of a round is the time until a sleeper checks whether the mutex went back.
#[test]
fn foreign_unlocks_against_every_kind_of_locker() {
    thread::scope(|scope| {
        for first in 0..4 {
            scope.spawn(move || (first..40).step_by(4).for_each(foreign_unlock_against_lockers));
        }
    });
}

fn foreign_unlock_against_lockers(round: u64) {
    let mutex = Shim::of_kind(NORMAL, true);
    let (data, entered) = (Data::default(), AtomicU64::new(0));
    assert_eq!(mutex.lock(), 0);
    thread::scope(|scope| {
        for number in 0..4 {
            let (mutex, data, entered) = (&mutex, &data, &entered);
            scope.spawn(move || {
                let mut dice = Dice::new(round * 4 + number + 1);
                for _ in 0..100 {
                    let code = match dice.roll(3) {
                        0 => mutex.try_lock(),
                        1 => mutex.lock_until(&Deadline::after(locks::Clock::Monotonic, Duration::from_micros(200))),
                        _ => mutex.lock(),
                    };
                    if code == 0 {
                        data.write();
                        entered.fetch_add(1, Ordering::Relaxed);
                        assert_eq!(mutex.unlock_reported(), (0, None));
                    }
                }
            });
        }
        thread::sleep(Duration::from_micros(round * 40));
        let (code, event) = elsewhere(|| mutex.unlock_reported());
        assert!(code == 0 && event.is_some());
    });
    assert_eq!((data.writes(), data.broken.load(Ordering::Relaxed)), (entered.load(Ordering::Relaxed), false));
    assert_eq!(mutex.view().decide(&mutex.layout), Decision::Refused(Refusal::ForeignUnlock));
    assert_eq!((mutex.try_lock(), mutex.unlock()), (0, 0));
    // SAFETY: an initialised mutex.
    assert_eq!(unsafe { libc::pthread_mutex_destroy(mutex.raw.get()) }, 0);
}

/// A thread that leaves the kernel and enters again passes all others in its queue, so in a crowd threads leave less often.
#[test]
fn a_crowd_sleeps_longer_at_a_stretch() {
    const CROWD: u32 = 300;
    let shim = Shim::of_kind(NORMAL, true);
    let switches = || {
        // SAFETY: zeroed is a rusage to write to.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_SELF, &mut usage);
            usage.ru_nvcsw
        }
    };
    assert_eq!(shim.lock(), 0);
    let asleep = AtomicU64::new(0);
    let before = switches();
    thread::scope(|s| {
        for _ in 0..CROWD {
            s.spawn(|| {
                asleep.fetch_add(1, Ordering::Relaxed);
                assert_eq!(shim.lock(), 0);
                assert_eq!(shim.unlock(), 0);
            });
        }
        until("all wait", || asleep.load(Ordering::Relaxed) == u64::from(CROWD));
        thread::sleep(Duration::from_millis(800));
        let slept = switches() - before;
        assert_eq!(shim.unlock(), 0);
        // With slices of 100 ms each: 9 times, and once at the start.
        assert!(slept < i64::from(4 * CROWD), "{slept} sleeps of {CROWD} threads");
    });
}

unsafe extern "C" {
    fn pthread_cancel(thread: libc::pthread_t) -> i32;
    fn pthread_setcanceltype(kind: i32, old: *mut i32) -> i32;
}

/// A thread that may be cancelled at any instruction ends while it waits: afterwards the mutex has no owner, as in libc.
#[test]
fn a_waiter_that_is_cancelled_does_not_own_it() {
    extern "C-unwind" fn waits(shim: *mut libc::c_void) -> *mut libc::c_void {
        // SAFETY: the test's shim, and the test waits for this thread; the thread's own kind of cancellation
        // (PTHREAD_CANCEL_ASYNCHRONOUS).
        unsafe {
            pthread_setcanceltype(1, std::ptr::null_mut());
            let _ = (*shim.cast::<Shim>()).view().lock(me());
        }
        std::ptr::null_mut()
    }
    let mut shim = Shim::of_kind(NORMAL, true);
    for held_on in [false, true] {
        assert!(shim.converted());
        assert_eq!(shim.lock(), 0);
        // SAFETY: a C thread, whose frames need no destructors.
        let ended = unsafe {
            let mut thread = std::mem::zeroed();
            let start: extern "C" fn(*mut libc::c_void) -> *mut libc::c_void = std::mem::transmute(waits as *const ());
            assert_eq!(libc::pthread_create(&mut thread, std::ptr::null(), start, (&raw mut shim).cast()), 0);
            thread::sleep(Duration::from_millis(50));
            assert_eq!(pthread_cancel(thread), 0);
            if !held_on {
                thread::sleep(Duration::from_millis(20));
                assert_eq!(shim.unlock(), 0);
            }
            let mut ended = std::ptr::null_mut();
            libc::pthread_join(thread, &mut ended);
            ended
        };
        // PTHREAD_CANCELED.
        assert_eq!(ended as isize, -1);
        if held_on {
            assert_eq!(shim.unlock(), 0);
        }
        assert_eq!((shim.try_lock(), shim.unlock()), (0, 0));
    }
}
