//! The reader-writer lock of glibc 2.4 to 2.24 (default kind, "prefer readers"), by its unlock rule: Alg. 3 of
//! "Autonomy Today" (ECRTS 2024). An unlock that leaves the lock free wakes one waiting writer if there is one, else
//! all readers.
//!
//! For experiments only. It starves both sides: sleeping readers are never woken while writers keep arriving, and new
//! readers enter past waiting writers while other readers hold the lock.

use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicU32, Ordering};

use crate::deadline::Deadline;
use crate::futex;
use crate::latch::Latch;
use crate::outcome::{NotHeld, Outcome};
use crate::tid::Tid;

#[derive(Clone, Copy)]
struct State {
    readers: u32,
    writer: bool,
    waiting_readers: u32,
    waiting_writers: u32,
}

pub struct OldRwLock {
    latch: Latch,
    /// Under the latch.
    state: UnsafeCell<State>,
    /// The words that readers and writers sleep on; incremented at each wake-up.
    reader_wakes: AtomicU32,
    writer_wakes: AtomicU32,
}

// SAFETY: `state` is touched under the latch only.
unsafe impl Sync for OldRwLock {}

impl OldRwLock {
    pub const fn new() -> OldRwLock {
        let state = State { readers: 0, writer: false, waiting_readers: 0, waiting_writers: 0 };
        OldRwLock {
            latch: Latch::new(),
            state: UnsafeCell::new(state),
            reader_wakes: AtomicU32::new(0),
            writer_wakes: AtomicU32::new(0),
        }
    }

    fn with<T>(&self, me: Tid, body: impl FnOnce(&mut State) -> T) -> T {
        let _latched = self.latch.hold(me);
        // SAFETY: under the latch; `body` does not call this function again.
        body(unsafe { &mut *self.state.get() })
    }

    pub fn read(&self, me: Tid) -> Outcome {
        self.acquire(me, None, false)
    }

    pub fn write(&self, me: Tid) -> Outcome {
        self.acquire(me, None, true)
    }

    pub fn read_until(&self, me: Tid, deadline: &Deadline) -> Outcome {
        self.acquire(me, Some(deadline), false)
    }

    pub fn write_until(&self, me: Tid, deadline: &Deadline) -> Outcome {
        self.acquire(me, Some(deadline), true)
    }

    fn acquire(&self, me: Tid, deadline: Option<&Deadline>, write: bool) -> Outcome {
        let word = if write { &self.writer_wakes } else { &self.reader_wakes };
        let mut waited = false;
        let mut result = futex::Wait::Woken;
        loop {
            let ended = self.with(me, |state| {
                if waited {
                    *state.waiting(write) -= 1;
                }
                match result {
                    futex::Wait::TimedOut => return Ok(Outcome::TimedOut),
                    futex::Wait::InvalidDeadline => return Ok(Outcome::InvalidDeadline),
                    _ => {}
                }
                if !state.writer && (!write || state.readers == 0) {
                    if write {
                        state.writer = true;
                    } else {
                        state.readers += 1;
                    }
                    return Ok(Outcome::Acquired { waited });
                }
                *state.waiting(write) += 1;
                Err(word.load(Ordering::Relaxed))
            });
            match ended {
                Ok(outcome) => return outcome,
                Err(seen) => result = futex::wait(word, seen, deadline),
            }
            waited = true;
        }
    }

    /// # Errors
    /// [`NotHeld`]: it was free; the call had no effect.
    pub fn unlock(&self, me: Tid) -> Result<(), NotHeld> {
        let (word, count) = self.with(me, |state| {
            if state.writer {
                state.writer = false;
            } else {
                state.readers = state.readers.checked_sub(1).ok_or(NotHeld)?;
            }
            let (word, count) = match (state.readers, state.waiting_writers, state.waiting_readers) {
                (0, 1.., _) => (&self.writer_wakes, 1),
                (0, 0, 1..) => (&self.reader_wakes, u32::MAX),
                _ => return Ok((&self.reader_wakes, 0)),
            };
            word.fetch_add(1, Ordering::Relaxed);
            Ok((word, count))
        })?;
        if count != 0 {
            futex::wake(word, count);
        }
        Ok(())
    }
}

impl State {
    fn waiting(&mut self, write: bool) -> &mut u32 {
        if write { &mut self.waiting_writers } else { &mut self.waiting_readers }
    }
}

impl Default for OldRwLock {
    fn default() -> Self {
        Self::new()
    }
}
