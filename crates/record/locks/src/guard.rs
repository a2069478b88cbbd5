//! One real-time mutex around a class of calls. It inherits priority: the thread inside runs at its waiters' priority.
//!
//! The holder's nested calls pass (they are counted in the guard). A holder that ended inside does not keep it forever.

use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;

use crate::deadline::{Clock, Deadline};
use crate::futex::{self, OWNER_DIED, PiError, TID_MASK};
use crate::outcome::NotHeld;
use crate::tid::Tid;

/// Zero when free.
pub struct Guard {
    word: AtomicU32,
    /// Entries of the holder beyond the first; written by the holder only.
    nested: AtomicU32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Entered {
    AtOnce,
    AfterWait,
    /// The caller is inside already.
    Nested,
    /// Its last holder ended inside. The guarded work may be half done.
    Recovered,
    /// Not in time: the caller continues without the guard and does not leave it.
    TimedOut,
    /// The kernel refused. As for `TimedOut`, the caller continues without the guard.
    Refused(PiError),
}

impl Guard {
    pub const fn new() -> Guard {
        Guard { word: AtomicU32::new(0), nested: AtomicU32::new(0) }
    }

    #[inline]
    pub fn enter(&self, me: Tid) -> Entered {
        if self.word.compare_exchange(0, me.raw(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Entered::AtOnce;
        }
        self.enter_held(me, None)
    }

    /// As [`Guard::enter`], but waits for `patience` at most.
    #[inline]
    pub fn enter_within(&self, me: Tid, patience: Duration) -> Entered {
        if self.word.compare_exchange(0, me.raw(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
            return Entered::AtOnce;
        }
        self.enter_held(me, Some(patience))
    }

    /// Enters if that needs no wait.
    #[inline]
    pub fn try_enter(&self, me: Tid) -> Option<Entered> {
        match self.word.compare_exchange(0, me.raw(), Ordering::Acquire, Ordering::Relaxed) {
            Ok(_) => Some(Entered::AtOnce),
            Err(word) => self.nest(word, me),
        }
    }

    fn nest(&self, word: u32, me: Tid) -> Option<Entered> {
        (word & TID_MASK == me.raw()).then(|| {
            self.nested.store(self.nested.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            Entered::Nested
        })
    }

    /// Waits until the deadline, on whichever clock the kernel supports for it.
    fn wait(&self, monotonic: &mut Option<Deadline>, realtime: &mut Option<Deadline>) -> Result<(), PiError> {
        if let Some(deadline) = monotonic {
            match futex::lock_pi2(&self.word, Some(deadline)) {
                Err(PiError::NotSupported) => *monotonic = None,
                done => return done,
            }
        }
        futex::lock_pi(&self.word, realtime.as_ref())
    }

    #[cold]
    fn enter_held(&self, me: Tid, patience: Option<Duration>) -> Entered {
        let mut monotonic = patience.map(|p| Deadline::after(Clock::Monotonic, p));
        let mut realtime = patience.map(|p| Deadline::after(Clock::Realtime, p));
        loop {
            let word = self.word.load(Ordering::Relaxed);
            if let Some(nested) = self.nest(word, me) {
                return nested;
            }
            match self.wait(&mut monotonic, &mut realtime) {
                Ok(()) => {
                    if self.word.load(Ordering::Relaxed) & OWNER_DIED == 0 {
                        return Entered::AfterWait;
                    }
                    self.word.fetch_and(!OWNER_DIED, Ordering::Relaxed);
                    self.nested.store(0, Ordering::Relaxed);
                    return Entered::Recovered;
                }
                Err(PiError::Again | PiError::Interrupted) => {}
                Err(PiError::TimedOut) => return Entered::TimedOut,
                // The holder ended before any thread waited, so the kernel kept no record. Take the guard, unless
                // another thread did.
                Err(PiError::NoOwner) => {
                    if self.word.compare_exchange(word, me.raw(), Ordering::Acquire, Ordering::Relaxed).is_ok() {
                        self.nested.store(0, Ordering::Relaxed);
                        return Entered::Recovered;
                    }
                }
                Err(error) => return Entered::Refused(error),
            }
        }
    }

    /// # Errors
    /// [`NotHeld`]: the caller is not inside; the call had no effect.
    #[inline]
    pub fn leave(&self, me: Tid) -> Result<(), NotHeld> {
        if self.word.load(Ordering::Relaxed) & TID_MASK != me.raw() {
            return Err(NotHeld);
        }
        let nested = self.nested.load(Ordering::Relaxed);
        if nested != 0 {
            self.nested.store(nested - 1, Ordering::Relaxed);
            return Ok(());
        }
        if self.word.compare_exchange(me.raw(), 0, Ordering::Release, Ordering::Relaxed).is_ok() {
            return Ok(());
        }
        loop {
            match futex::unlock_pi(&self.word) {
                Ok(()) => return Ok(()),
                Err(PiError::Again | PiError::Interrupted) => {}
                Err(_) => return Err(NotHeld),
            }
        }
    }

    pub fn holder(&self) -> Option<Tid> {
        match self.word.load(Ordering::Relaxed) & TID_MASK {
            0 => None,
            raw => Some(Tid::from_raw(raw)),
        }
    }

    /// In a forked child, whose only thread has a new number. Holds of other threads are freed.
    ///
    /// # Safety
    /// The process has one thread, just forked, and its number was `before` in the parent.
    pub unsafe fn after_fork_in_child(&self, before: Tid, me: Tid) {
        let mine = self.word.load(Ordering::Relaxed) & TID_MASK == before.raw();
        self.word.store(if mine { me.raw() } else { 0 }, Ordering::Relaxed);
        if !mine {
            self.nested.store(0, Ordering::Relaxed);
        }
    }
}

impl Default for Guard {
    fn default() -> Self {
        Self::new()
    }
}
