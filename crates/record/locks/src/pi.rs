//! Converts glibc mutexes to priority inheritance while the program runs, without the program's help.
//!
//! A mutex is decided once, at the first operation that passes here, before any of its lockers can be inside libc. A
//! free mutex of a plain kind gets the bit `PRIO_INHERIT` in its kind. From then on it is locked here, not in libc.
//! libc's own code meets it only inside waits for conditions, where it reads the kind and does the same. Static
//! initialisers need no special case: the decision is stored in bytes that are zero in every new mutex.
//!
//! Result codes are those of the original protocol, also where libc's PI mutexes differ: `trylock` of a mutex that the
//! caller owns returns EBUSY, and any thread may unlock a plain mutex. After such a foreign unlock the kernel's
//! protocol cannot continue (it lets only the owner unlock), so the mutex is returned to the original protocol. It
//! does so immediately if no thread sleeps in the kernel for it, else when those have come out, within a multiple of
//! [`SLICE`]. That is why no thread sleeps there for longer at a stretch.
//!
//! Invariants: only a word under the PI protocol is passed to the kernel (`Decision` `CONVERTED`, sleepers counted). The
//! kind loses its bit only while no sleeper is counted. Every caller passes here. A thread that bypasses this module
//! while a mutex is decided leaves a lock word that is no thread number; that is noticed, and the mutex is returned to
//! its original protocol.

use core::ffi::c_void;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::cancel;
use crate::deadline::{Clock, Deadline};
use crate::fork::{forks, process};
use crate::futex::{self, OWNER_DIED, PiError, TID_MASK, WAITERS};
use crate::layout::{
    ELISION, ERRORCHECK, KIND_MASK, Layout, Mutex, NO_ELISION, PRIO_INHERIT, PRIO_PROTECT, RECURSIVE, ROBUST, SHARED,
};
use crate::leaving;
use crate::tid::Tid;

/// The longest sleep in the kernel before a waiter checks whether the mutex went back to its original protocol. It is
/// one unit longer for each [`CROWD`] of sleepers: a thread that leaves and enters again passes all others in the
/// kernel's queue.
pub const SLICE: Duration = Duration::from_millis(100);
const CROWD: u32 = 32;

/// How often a locker reads the word before it sleeps in the kernel.
const LOOKS: u32 = 64;

/// Why a mutex keeps its protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Other processes lock it without this module.
    Shared,
    /// Its list is in use, and the end of its owner has a meaning.
    Robust,
    AlreadyInherits,
    /// A priority ceiling.
    Ceiling,
    /// Lock elision is on for it.
    Elided,
    /// A thread other than its owner unlocked it: now, or in the recording that the plan was made from.
    ForeignUnlock,
    /// It was locked when it was first seen: a thread may be about to enter libc with the old kind.
    Locked,
    /// A thread locked it without this module.
    Bypassed,
    /// Destroyed, or an unknown kind.
    UnknownKind,
    /// This process has number 1: its threads' numbers look like the plain protocol's lock values.
    Init,
    /// The plan excludes it.
    Planned,
}

const REFUSALS: [Refusal; 11] = [
    Refusal::Shared,
    Refusal::Robust,
    Refusal::AlreadyInherits,
    Refusal::Ceiling,
    Refusal::Elided,
    Refusal::ForeignUnlock,
    Refusal::Locked,
    Refusal::Bypassed,
    Refusal::UnknownKind,
    Refusal::Init,
    Refusal::Planned,
];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Decision {
    Converted,
    Refused(Refusal),
}

/// An operation's result. A `code` is the return value of the pthread function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Call {
    Done {
        code: i32,
        waited: bool,
    },
    /// The mutex is under its original protocol (still, or again): call libc.
    Original,
}

/// A plain mutex was unlocked by a thread that did not own it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// It is free, and under its original protocol.
    Released { owner: u32 },
    /// It will be free, when the threads that sleep for it in the kernel have come out.
    Deferred { owner: u32 },
    /// It was free. Only the count of users was changed, as libc does.
    WasFree,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub struct Unlocked {
    pub call: Call,
    /// To be reported.
    pub foreign: Option<Foreign>,
}

// The decision: state in bits 0..4, refusal in 4..8, forks in 8..12, sleepers in the kernel in 12..32.
const STATE: u32 = 0xf;
const UNDECIDED: u32 = 0;
const CONVERTED: u32 = 1;
/// Going back: no more threads enter the kernel for it.
const REVERTING: u32 = 2;
/// One thread is changing kind and word.
const SETTLING: u32 = 3;
const REFUSED: u32 = 4;
const REFUSAL_SHIFT: u32 = 4;
const FORKS: u32 = 0xf00;
const SLEEPER: u32 = 1 << 12;

/// No living owner: the word of a mutex whose owner ended.
const NOBODY: u32 = TID_MASK;
/// The plain protocol: locked, a thread may sleep.
const PLAIN_LOCKED: u32 = 2;

/// The number of forks of this process modulo 16, shifted into place: sleepers counted before a fork do not exist in the child.
fn forked() -> u32 {
    (forks() << 8) & FORKS
}

/// Threads inside waits for conditions, below the forks.
const CONDITIONS: u32 = (1 << 28) - 1;

fn forks_above() -> u32 {
    forked() << 20
}

fn refused(refusal: Refusal) -> u32 {
    let index = REFUSALS.iter().position(|&each| each == refusal).unwrap_or(REFUSALS.len() - 1);
    (index as u32) << REFUSAL_SHIFT
}

fn refusal(decision: u32) -> Refusal {
    REFUSALS.get((decision >> REFUSAL_SHIFT & 0xf) as usize).copied().unwrap_or(Refusal::Planned)
}

const DONE: Call = Call::Done { code: 0, waited: false };

fn failed(code: i32) -> Call {
    Call::Done { code, waited: false }
}

impl Mutex {
    /// Converts the mutex if that is possible and was not decided before. To be called before every operation.
    #[inline]
    pub fn decide(&self, layout: &Layout) -> Decision {
        let kind = self.kind.load(Ordering::Relaxed);
        if kind & (ROBUST | SHARED) == 0 {
            let decision = self.decision.load(Ordering::Acquire);
            match decision & STATE {
                CONVERTED | REVERTING | SETTLING => return Decision::Converted,
                REFUSED => return Decision::Refused(refusal(decision)),
                _ => {}
            }
        }
        self.decide_now(kind, *layout)
    }

    #[cold]
    fn decide_now(&self, kind: i32, _layout: Layout) -> Decision {
        let plain = KIND_MASK | NO_ELISION;
        let no = match kind {
            _ if kind < 0 => return Decision::Refused(Refusal::UnknownKind),
            // The bytes of the decision are in use, or visible to other processes.
            _ if kind & ROBUST != 0 => return Decision::Refused(Refusal::Robust),
            _ if kind & SHARED != 0 => return Decision::Refused(Refusal::Shared),
            _ if kind & PRIO_INHERIT != 0 => Some(Refusal::AlreadyInherits),
            _ if kind & PRIO_PROTECT != 0 => Some(Refusal::Ceiling),
            _ if kind & ELISION != 0 => Some(Refusal::Elided),
            _ if kind & !plain != 0 => Some(Refusal::UnknownKind),
            _ if self.lock.load(Ordering::Relaxed) != 0 => Some(Refusal::Locked),
            _ if process() == 1 => Some(Refusal::Init),
            _ => None,
        };
        let wanted = no.map_or(CONVERTED, |no| REFUSED | refused(no));
        // The first thread decides for all. A loser that read kind or word after the winner's change finds it decided.
        match self.decision.compare_exchange(UNDECIDED, wanted, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => match no {
                Some(no) => Decision::Refused(no),
                None => {
                    self.kind.fetch_or(PRIO_INHERIT, Ordering::Relaxed);
                    Decision::Converted
                }
            },
            Err(seen) if seen & STATE == REFUSED => Decision::Refused(refusal(seen)),
            Err(_) => Decision::Converted,
        }
    }

    /// Keeps an undecided mutex under its original protocol. Returns the decision.
    pub fn refuse(&self, why: Refusal, layout: &Layout) -> Decision {
        if self.kind.load(Ordering::Relaxed) & (ROBUST | SHARED) == 0 {
            let wanted = REFUSED | refused(why);
            let _ = self.decision.compare_exchange(UNDECIDED, wanted, Ordering::AcqRel, Ordering::Acquire);
        }
        self.decide(layout)
    }

    #[inline(always)]
    fn kind(&self) -> i32 {
        let kind = self.kind.load(Ordering::Relaxed);
        // The thread that decided may have been preempted before it set the bit, and a wait for a condition must see it.
        if kind & PRIO_INHERIT == 0 && self.state() == CONVERTED {
            self.set_bit();
        }
        kind & KIND_MASK
    }

    #[cold]
    fn set_bit(&self) {
        self.kind.fetch_or(PRIO_INHERIT, Ordering::Relaxed);
    }

    #[inline(always)]
    fn state(&self) -> u32 {
        self.decision.load(Ordering::Acquire) & STATE
    }

    #[inline]
    fn take(&self, me: Tid) -> bool {
        self.lock.compare_exchange(0, me.raw(), Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// The caller has just locked it: update libc's records.
    #[inline]
    fn own(&self, me: Tid, kind: i32) {
        self.owner.store(me.raw(), Ordering::Relaxed);
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if kind == RECURSIVE {
            self.count.store(1, Ordering::Relaxed);
        }
    }

    /// `pthread_mutex_lock`, for a mutex that [`Mutex::decide`] reported as converted.
    #[inline]
    pub fn lock(&self, me: Tid) -> Call {
        self.lock_within(me, None)
    }

    /// `pthread_mutex_timedlock` and `pthread_mutex_clocklock`.
    #[inline]
    pub fn lock_until(&self, me: Tid, deadline: &Deadline) -> Call {
        self.lock_within(me, Some(deadline))
    }

    /// Locks it if it is converted and free. False: it changed no state, call [`Mutex::lock`].
    #[inline(always)]
    pub fn lock_at_once(&self, me: Tid) -> bool {
        if self.state() != CONVERTED {
            return false;
        }
        let kind = self.kind();
        let taken = self.take(me);
        if taken {
            self.own(me, kind);
        }
        taken
    }

    /// Unlocks a mutex from [`Mutex::lock_at_once`] if no thread waits for it. False: still locked, call
    /// [`Mutex::unlock`].
    #[inline(always)]
    pub fn unlock_at_once(&self, me: Tid) -> bool {
        let plain = self.state() == CONVERTED && self.lock.load(Ordering::Relaxed) == me.raw();
        if !plain || self.kind() == RECURSIVE {
            return false;
        }
        self.disown();
        if self.lock.compare_exchange(me.raw(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // A thread began to wait; the caller still owns the mutex.
            self.owner.store(me.raw(), Ordering::Relaxed);
            self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
            return false;
        }
        true
    }

    #[inline]
    fn lock_within(&self, me: Tid, deadline: Option<&Deadline>) -> Call {
        if self.state() != CONVERTED {
            return self.lock_slowly(me, deadline);
        }
        let kind = self.kind();
        if self.take(me) {
            self.own(me, kind);
            return DONE;
        }
        self.lock_slowly(me, deadline)
    }

    /// `pthread_mutex_trylock`.
    #[inline]
    pub fn try_lock(&self, me: Tid) -> Call {
        let decision = self.decision.load(Ordering::Acquire);
        if decision & STATE != CONVERTED {
            self.try_settle(decision);
            if self.state() == REFUSED {
                return Call::Original;
            }
        }
        let kind = self.kind();
        if self.state() == CONVERTED && self.take(me) {
            self.own(me, kind);
            return DONE;
        }
        if kind == RECURSIVE && self.lock.load(Ordering::Relaxed) & TID_MASK == me.raw() {
            return self.lock_again();
        }
        failed(libc::EBUSY)
    }

    fn lock_again(&self) -> Call {
        match self.count.load(Ordering::Relaxed).checked_add(1) {
            Some(count) => {
                self.count.store(count, Ordering::Relaxed);
                DONE
            }
            None => failed(libc::EAGAIN),
        }
    }

    #[cold]
    fn lock_slowly(&self, me: Tid, deadline: Option<&Deadline>) -> Call {
        let mut looked = false;
        loop {
            let decision = self.decision.load(Ordering::Acquire);
            if decision & STATE == REFUSED {
                return Call::Original;
            }
            let kind = self.kind();
            let word = self.lock.load(Ordering::Relaxed);
            if word & TID_MASK == me.raw() {
                match kind {
                    RECURSIVE => return self.lock_again(),
                    ERRORCHECK => return failed(libc::EDEADLK),
                    // As in the original protocol: wait until another thread unlocks it.
                    _ => {}
                }
            }
            if decision & STATE == CONVERTED && word == 0 {
                if self.take(me) {
                    self.own(me, kind);
                    return Call::Done { code: 0, waited: true };
                }
                continue;
            }
            match deadline {
                Some(deadline) if !deadline.is_valid() => return failed(libc::EINVAL),
                Some(deadline) if deadline.is_past() => return Call::Done { code: libc::ETIMEDOUT, waited: true },
                _ => {}
            }
            if decision & STATE != CONVERTED {
                self.try_settle(decision);
                self.park(decision, deadline);
                continue;
            }
            if matches!(word, 1 | 2) && me.raw() > 2 {
                self.revert(Refusal::Bypassed, 0);
                continue;
            }
            if word & TID_MASK == me.raw() {
                self.park(decision, deadline);
                continue;
            }
            // A short section ends before the kernel has put a thread to sleep. Once a thread sleeps, every unlock
            // hands over to one that has to be woken first.
            if !looked && word & WAITERS == 0 {
                looked = true;
                self.look();
                continue;
            }
            // A counted thread must survive to count itself out.
            let cancelled = cancel::defer();
            let Some(sleepers) = self.count_in() else {
                cancelled.put_back();
                continue;
            };
            // (A thread that may be cancelled anywhere is cancelled between two slices.)
            let crowds = if cancelled.is_asynchronous() { 1 } else { 1 + sleepers / CROWD };
            let sleeper = Sleeper { mutex: self, me, cancelled };
            let result = leaving::run(&sleeper, sleeper_left, || sleep_for_lock(&self.lock, SLICE * crowds, deadline));
            let taken = result.is_ok();
            if taken && self.lock.load(Ordering::Relaxed) & OWNER_DIED != 0 {
                // The original protocol does not track ended owners: the mutex stays locked.
                self.lock.store(NOBODY, Ordering::Relaxed);
            }
            let owned = taken && self.lock.load(Ordering::Relaxed) & TID_MASK == me.raw();
            if owned {
                self.own(me, kind);
            }
            self.count_out();
            if owned && cancelled.is_asynchronous() {
                // A cancellation that arrived during the sleep ends the thread in `put_back`. It must not hold the
                // mutex then, as if it had ended while it waited.
                let _ = self.unlock(me);
                cancelled.put_back();
                continue;
            }
            cancelled.put_back();
            match result {
                _ if owned => return Call::Done { code: 0, waited: true },
                Err(PiError::TimedOut | PiError::Again | PiError::Interrupted) => {}
                // A cycle, an owner that ended, or a word that another thread broke. Wait, as the original protocol
                // does; it may change.
                _ => self.park(self.decision.load(Ordering::Acquire), deadline),
            }
        }
    }

    /// Spins until it is free or a thread sleeps for it: 1 to 3 us at most.
    fn look(&self) {
        for _ in 0..LOOKS {
            core::hint::spin_loop();
            let word = self.lock.load(Ordering::Relaxed);
            if word == 0 || word & WAITERS != 0 {
                return;
            }
        }
    }

    /// Sleeps until the decision changes, one slice, or the deadline.
    fn park(&self, decision: u32, deadline: Option<&Deadline>) {
        if decision & STATE != REFUSED {
            futex::wait(&self.decision, decision, Some(&slice(Clock::Monotonic, SLICE, deadline)));
        }
    }

    /// Counts the caller among the sleepers in the kernel, if the mutex is still converted. Returns how many slept before.
    fn count_in(&self) -> Option<u32> {
        let forked = forked();
        let count = |decision: u32| {
            (decision & STATE == CONVERTED).then(|| match decision & FORKS == forked {
                true => decision + SLEEPER,
                false => CONVERTED | forked | SLEEPER,
            })
        };
        let before = self.decision.fetch_update(Ordering::AcqRel, Ordering::Acquire, count).ok()?;
        Some(if before & FORKS == forked { before / SLEEPER } else { 0 })
    }

    fn count_out(&self) {
        let decision = self.decision.fetch_sub(SLEEPER, Ordering::AcqRel) - SLEEPER;
        self.try_settle(decision);
    }

    /// Whether a thread may be in the kernel for it.
    fn has_sleepers(&self, decision: u32) -> bool {
        let counted = decision & FORKS == forked() && decision >= SLEEPER;
        // A thread that returns from a wait for a condition sleeps there uncounted.
        let conditions = self.conditions.load(Ordering::Acquire);
        counted
            || conditions & !CONDITIONS == forks_above()
                && conditions & CONDITIONS != 0
                && self.lock.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Starts the way back to the original protocol. `released`: the owner whose hold ends by that, or 0.
    fn revert(&self, why: Refusal, released: u32) -> bool {
        let back = |decision: u32| {
            (decision & STATE == CONVERTED).then_some((decision & !(STATE | 0xf0)) | REVERTING | refused(why))
        };
        if self.state() != CONVERTED {
            return false;
        }
        self.released.store(released, Ordering::Relaxed);
        match self.decision.fetch_update(Ordering::AcqRel, Ordering::Acquire, back) {
            Ok(before) => self.try_settle((before & !(STATE | 0xf0)) | REVERTING | refused(why)),
            Err(_) => false,
        }
    }

    /// Finishes the way back if no thread is in the kernel any more. Returns whether this call did.
    fn try_settle(&self, decision: u32) -> bool {
        if decision & STATE != REVERTING || self.has_sleepers(decision) {
            return false;
        }
        let settling = SETTLING | decision & 0xf0;
        if self.decision.compare_exchange(decision, settling, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        // From here on only the owner changes word and records, except for one late fast lock.
        self.kind.fetch_and(!PRIO_INHERIT, Ordering::Relaxed);
        let released = self.released.load(Ordering::Relaxed);
        loop {
            let word = self.lock.load(Ordering::Relaxed);
            if matches!(word, 0..=PLAIN_LOCKED) {
                break;
            }
            // The original protocol reads any such word as locked. PLAIN_LOCKED makes the unlock look for sleepers.
            if self.lock.compare_exchange(word, PLAIN_LOCKED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
                continue;
            }
            if released != 0 && (word & TID_MASK == released || word & TID_MASK == NOBODY) {
                self.disown();
                self.lock.store(0, Ordering::Release);
                futex::wake(&self.lock, 1);
            }
            break;
        }
        // ORDERING: release publishes kind and word to the parked threads, which enter libc now.
        self.decision.store(REFUSED | decision & 0xf0, Ordering::Release);
        futex::wake(&self.decision, u32::MAX);
        true
    }

    #[inline]
    fn disown(&self) {
        self.owner.store(0, Ordering::Relaxed);
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_sub(1), Ordering::Relaxed);
    }

    /// `pthread_mutex_unlock`.
    #[inline]
    pub fn unlock(&self, me: Tid) -> Unlocked {
        if self.state() == REFUSED {
            return Unlocked { call: Call::Original, foreign: None };
        }
        let word = self.lock.load(Ordering::Relaxed);
        if word & TID_MASK != me.raw() {
            return self.unlock_foreign();
        }
        if self.kind() == RECURSIVE {
            let count = self.count.load(Ordering::Relaxed).wrapping_sub(1);
            self.count.store(count, Ordering::Relaxed);
            if count != 0 {
                return Unlocked { call: DONE, foreign: None };
            }
        }
        self.disown();
        if self.lock.compare_exchange(me.raw(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            return self.unlock_in_kernel(me);
        }
        Unlocked { call: DONE, foreign: None }
    }

    #[cold]
    fn unlock_in_kernel(&self, me: Tid) -> Unlocked {
        loop {
            match futex::unlock_pi(&self.lock) {
                Ok(()) => return Unlocked { call: DONE, foreign: None },
                Err(PiError::Again | PiError::Interrupted) => {}
                Err(_) => break,
            }
        }
        // The word is no longer the PI protocol's: the mutex went back. Undo the changes to the records; libc makes its own.
        self.owner.store(me.raw(), Ordering::Relaxed);
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if self.kind() == RECURSIVE {
            self.count.store(1, Ordering::Relaxed);
        }
        loop {
            let decision = self.decision.load(Ordering::Acquire);
            if decision & STATE == REFUSED {
                return Unlocked { call: Call::Original, foreign: None };
            }
            self.try_settle(decision);
            self.park(decision, None);
        }
    }

    #[cold]
    fn unlock_foreign(&self) -> Unlocked {
        if matches!(self.kind(), RECURSIVE | ERRORCHECK) {
            return Unlocked { call: failed(libc::EPERM), foreign: None };
        }
        let word = self.lock.load(Ordering::Relaxed);
        if word == 0 {
            self.disown();
            return Unlocked { call: DONE, foreign: Some(Foreign::WasFree) };
        }
        let owner = word & TID_MASK;
        // A lock of the plain protocol slipped in. The caller may be its owner or not; libc does not check.
        let released = if matches!(word, 1 | 2) { 0 } else { owner };
        let settled = self.revert(if released == 0 { Refusal::Bypassed } else { Refusal::ForeignUnlock }, released);
        if settled && released != 0 {
            return Unlocked { call: DONE, foreign: Some(Foreign::Released { owner }) };
        }
        if self.state() == REFUSED {
            return Unlocked { call: Call::Original, foreign: None };
        }
        Unlocked { call: DONE, foreign: Some(Foreign::Deferred { owner }) }
    }

    /// To be called before a wait for a condition with this mutex: libc unlocks and locks it in there, by its kind.
    /// If false, the mutex is under its original protocol from now on, because the caller does not hold it. Then
    /// libc unlocks it anyway, but it would refuse to unlock a mutex with priority inheritance.
    pub fn before_condition(&self, me: Tid) -> bool {
        let mine = self.lock.load(Ordering::Relaxed) & TID_MASK == me.raw();
        if !mine && !matches!(self.kind(), RECURSIVE | ERRORCHECK) {
            self.revert(Refusal::ForeignUnlock, 0);
            if self.state() == REFUSED {
                return false;
            }
        }
        let forked = forks_above();
        let more = |seen: u32| Some(if seen & !CONDITIONS == forked { seen + 1 } else { forked + 1 });
        let _ = self.conditions.fetch_update(Ordering::AcqRel, Ordering::Relaxed, more);
        true
    }

    /// To be called after the wait; the caller holds the mutex again.
    pub fn after_condition(&self) {
        let fewer = |seen: u32| (seen & !CONDITIONS == forks_above() && seen & CONDITIONS != 0).then(|| seen - 1);
        let _ = self.conditions.fetch_update(Ordering::AcqRel, Ordering::Relaxed, fewer);
        self.try_settle(self.decision.load(Ordering::Acquire));
    }

    /// The thread that owns it, while it is converted.
    pub fn holder(&self) -> Option<Tid> {
        match self.lock.load(Ordering::Relaxed) & TID_MASK {
            0 | NOBODY => None,
            raw => Some(Tid::from_raw(raw)),
        }
    }
}

/// A thread that is counted while it sleeps in the kernel.
struct Sleeper<'a> {
    mutex: &'a Mutex,
    me: Tid,
    cancelled: cancel::Kind,
}

/// The thread does not return from its sleep: count it out, and free the mutex if the kernel granted it at the last moment.
extern "C" fn sleeper_left(sleeper: *mut c_void) {
    // SAFETY: `leaving::run` was given a Sleeper, which lives as long as its frame.
    let sleeper = unsafe { &*sleeper.cast::<Sleeper>() };
    let mutex = sleeper.mutex;
    while mutex.lock.load(Ordering::Relaxed) & TID_MASK == sleeper.me.raw()
        && matches!(futex::unlock_pi(&mutex.lock), Err(PiError::Again | PiError::Interrupted))
    {}
    mutex.count_out();
    sleeper.cancelled.put_back();
}

/// `length` from now, or the time left until the deadline if that is less.
fn slice(clock: Clock, mut length: Duration, deadline: Option<&Deadline>) -> Deadline {
    if let Some(deadline) = deadline {
        let now = deadline.clock.now();
        let seconds = deadline.at.tv_sec.saturating_sub(now.tv_sec);
        if seconds <= length.as_secs() as i64 + 1 {
            let left = seconds * 1_000_000_000 + deadline.at.tv_nsec - now.tv_nsec;
            length = length.min(Duration::from_nanos(left.max(0) as u64));
        }
    }
    Deadline::after(clock, length)
}

fn sleep_for_lock(word: &AtomicU32, length: Duration, deadline: Option<&Deadline>) -> Result<(), PiError> {
    match futex::lock_pi2(word, Some(&slice(Clock::Monotonic, length, deadline))) {
        Err(PiError::NotSupported) => futex::lock_pi(word, Some(&slice(Clock::Realtime, length, deadline))),
        result => result,
    }
}
