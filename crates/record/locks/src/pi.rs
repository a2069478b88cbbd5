//! glibc mutexes turned to priority inheritance, under the feet of a program that did not ask for it.
//!
//! A mutex is decided once, at the first operation that passes us, before any of its lockers can be inside libc: one that is
//! free and of a plain kind gets the bit `PRIO_INHERIT` in its kind and is from then on locked here, not in libc. libc's own
//! code meets it only inside waits for conditions, where it reads the kind and does the same. Static initialisers need
//! nothing special: the decision lies in bytes that are zero in every new mutex.
//!
//! Result codes are those of the original protocol, also where libc's PI mutexes differ: `trylock` of one's own mutex says
//! EBUSY, and a plain mutex may be unlocked by another thread. Then the kernel's protocol cannot go on (it lets the owner
//! alone unlock), so the mutex goes back to the original one: at once if nobody sleeps in the kernel for it, else when those
//! have come out, within a multiple of [`SLICE`]. That is why nobody sleeps there for longer at a stretch.
//!
//! Invariants: only a word under the PI protocol is given to the kernel (`Decision` `CONVERTED`, sleepers counted); the kind
//! loses its bit only while nobody is counted; every caller passes here (who goes round us while a mutex is decided is
//! noticed by a lock word that is no thread, and the mutex goes back).

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

/// The longest sleep in the kernel before a waiter looks whether the mutex went back to its original protocol, for each
/// [`CROWD`] of those who sleep there: each that comes out and goes in again passes all others in the kernel's queue.
pub const SLICE: Duration = Duration::from_millis(100);
const CROWD: u32 = 32;

/// How often a locker looks at the word before it sleeps in the kernel.
const LOOKS: u32 = 64;

/// Why a mutex keeps its protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Other processes lock it without us.
    Shared,
    /// Its list is in use, and its owner's end has a meaning.
    Robust,
    AlreadyInherits,
    /// A priority ceiling.
    Ceiling,
    /// Lock elision is on for it.
    Elided,
    /// A thread other than its owner unlocked it: now, or on the tape that the plan came from.
    ForeignUnlock,
    /// It was locked when it was first seen: somebody may be on the way into libc with the old kind.
    Locked,
    /// Somebody locked it without passing us.
    Bypassed,
    /// Destroyed, or a kind that is not known.
    UnknownKind,
    /// This process has number 1: its threads' numbers cannot be told from the plain protocol's lock values.
    Init,
    /// The plan says so.
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

/// How an operation went. A `code` is what the pthread function returns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Call {
    Done {
        code: i32,
        waited: bool,
    },
    /// The mutex is under its original protocol (again): call libc.
    Original,
}

/// A plain mutex was unlocked by a thread that did not own it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Foreign {
    /// It is free, and under its original protocol.
    Released { owner: u32 },
    /// It will be, when those who sleep for it in the kernel have come out.
    Deferred { owner: u32 },
    /// It was free; nothing was changed but the count of users, as libc does.
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
/// On its way back: nobody goes to the kernel any more.
const REVERTING: u32 = 2;
/// One thread changes kind and word.
const SETTLING: u32 = 3;
const REFUSED: u32 = 4;
const REFUSAL_SHIFT: u32 = 4;
const FORKS: u32 = 0xf00;
const SLEEPER: u32 = 1 << 12;

/// No thread has it: the word of a mutex whose owner ended.
const NOBODY: u32 = TID_MASK;
/// The plain protocol: locked, somebody may sleep.
const PLAIN_LOCKED: u32 = 2;

/// Forks of this process modulo 16, in place: sleepers counted before a fork do not exist in the child.
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
            // The bytes of the decision are in use, or seen by others.
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
        // Whoever is first decides for all. A loser that read kind or word after the winner's change finds it decided.
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

    /// Keeps an undecided mutex under its original protocol. Returns what is decided.
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

    /// The caller has just locked it: libc's records.
    #[inline]
    fn own(&self, me: Tid, kind: i32) {
        self.owner.store(me.raw(), Ordering::Relaxed);
        self.users.store(self.users.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if kind == RECURSIVE {
            self.count.store(1, Ordering::Relaxed);
        }
    }

    /// `pthread_mutex_lock`, of a mutex that [`Mutex::decide`] calls converted.
    #[inline]
    pub fn lock(&self, me: Tid) -> Call {
        self.lock_within(me, None)
    }

    /// `pthread_mutex_timedlock` and `pthread_mutex_clocklock`.
    #[inline]
    pub fn lock_until(&self, me: Tid, deadline: &Deadline) -> Call {
        self.lock_within(me, Some(deadline))
    }

    /// Locks it if it is converted and free. False: nothing was done, ask [`Mutex::lock`].
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

    /// Unlocks what [`Mutex::lock_at_once`] locked if nobody waits for it. False: nothing was done, ask [`Mutex::unlock`].
    #[inline(always)]
    pub fn unlock_at_once(&self, me: Tid) -> bool {
        let plain = self.state() == CONVERTED && self.lock.load(Ordering::Relaxed) == me.raw();
        if !plain || self.kind() == RECURSIVE {
            return false;
        }
        self.disown();
        if self.lock.compare_exchange(me.raw(), 0, Ordering::Release, Ordering::Relaxed).is_err() {
            // Somebody began to wait; it is still ours.
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
                    // As the original protocol: until somebody else unlocks it.
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
            // A short section is over before the kernel has put anybody to sleep, and once somebody sleeps every unlock hands
            // over to who has to be woken first.
            if !looked && word & WAITERS == 0 {
                looked = true;
                self.look();
                continue;
            }
            // Whoever is counted has to be there to count itself out.
            let cancelled = cancel::defer();
            let Some(sleepers) = self.count_in() else {
                cancelled.put_back();
                continue;
            };
            // (Who may be cancelled anywhere is cancelled between two slices.)
            let crowds = if cancelled.is_asynchronous() { 1 } else { 1 + sleepers / CROWD };
            let sleeper = Sleeper { mutex: self, me, cancelled };
            let result = leaving::run(&sleeper, sleeper_left, || sleep_for_lock(&self.lock, SLICE * crowds, deadline));
            let taken = result.is_ok();
            if taken && self.lock.load(Ordering::Relaxed) & OWNER_DIED != 0 {
                // The original protocol knows nothing of ended owners: it stays locked.
                self.lock.store(NOBODY, Ordering::Relaxed);
            }
            let owned = taken && self.lock.load(Ordering::Relaxed) & TID_MASK == me.raw();
            if owned {
                self.own(me, kind);
            }
            self.count_out();
            if owned && cancelled.is_asynchronous() {
                // A cancellation that came meanwhile ends the thread in `put_back`: without the mutex, as it would have ended while
                // it waited.
                let _ = self.unlock(me);
                cancelled.put_back();
                continue;
            }
            cancelled.put_back();
            match result {
                _ if owned => return Call::Done { code: 0, waited: true },
                Err(PiError::TimedOut | PiError::Again | PiError::Interrupted) => {}
                // A cycle, an owner that ended, or another's broken word: as the original protocol, wait; it may change.
                _ => self.park(self.decision.load(Ordering::Acquire), deadline),
            }
        }
    }

    /// Spins until it is free or somebody sleeps for it: 1 to 3 us at most.
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

    /// Counts the caller among those who sleep in the kernel, if the mutex is still converted: how many did before.
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

    /// Whether anybody may be in the kernel for it.
    fn has_sleepers(&self, decision: u32) -> bool {
        let counted = decision & FORKS == forked() && decision >= SLEEPER;
        // Who comes back from waiting for a condition sleeps there uncounted.
        let conditions = self.conditions.load(Ordering::Acquire);
        counted
            || conditions & !CONDITIONS == forks_above()
                && conditions & CONDITIONS != 0
                && self.lock.load(Ordering::Relaxed) & WAITERS != 0
    }

    /// Back to the original protocol. `released`: the owner whose hold is ended by that, or 0.
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

    /// Finishes the way back if nobody is in the kernel any more. Returns whether this call did.
    fn try_settle(&self, decision: u32) -> bool {
        if decision & STATE != REVERTING || self.has_sleepers(decision) {
            return false;
        }
        let settling = SETTLING | decision & 0xf0;
        if self.decision.compare_exchange(decision, settling, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        // From here on nobody but the owner changes word and records, and a late fast lock.
        self.kind.fetch_and(!PRIO_INHERIT, Ordering::Relaxed);
        let released = self.released.load(Ordering::Relaxed);
        loop {
            let word = self.lock.load(Ordering::Relaxed);
            if matches!(word, 0..=PLAIN_LOCKED) {
                break;
            }
            // The original protocol reads any such word as locked; this one makes the unlock look for sleepers.
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
        // ORDERING: release publishes kind and word to those who are parked and go to libc now.
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
        // The word is no longer the PI protocol's: the mutex went back meanwhile. Undo our records, libc makes them.
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
        // A lock of the plain protocol slipped in: then it is its owner who unlocks, or not; libc does not ask.
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

    /// Round a wait for a condition with this mutex: libc unlocks and locks it in there, by its kind.
    /// False: the mutex is under its original protocol from now on, because the caller does not hold it. libc then unlocks it all
    /// the same, where it would refuse a mutex with priority inheritance.
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

    /// After it; the caller holds the mutex again.
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

/// It does not come back from there: it is counted no longer, and what the kernel gave it at the last moment is free.
extern "C" fn sleeper_left(sleeper: *mut c_void) {
    // SAFETY: `leaving::run` was given a Sleeper, which is there as long as its frame is.
    let sleeper = unsafe { &*sleeper.cast::<Sleeper>() };
    let mutex = sleeper.mutex;
    while mutex.lock.load(Ordering::Relaxed) & TID_MASK == sleeper.me.raw()
        && matches!(futex::unlock_pi(&mutex.lock), Err(PiError::Again | PiError::Interrupted))
    {}
    mutex.count_out();
    sleeper.cancelled.put_back();
}

/// So long from now, or what is left until the deadline if that is less.
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
