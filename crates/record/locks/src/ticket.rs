//! A fair mutex: first come, first served among equals, handed over directly (the queue lock of the FMLP).
//!
//! The ticket is the place in the queue, not a number: a waiter that times out can give back a place, but not a number.
//! 16 bytes, zero when free.
//!
//! A fork frees the ticket in the child: the thread that holds it may not exist there, on its way to the real lock.
//!
//! Invariant: while `QUEUED` is set the lock is never free, so no thread overtakes. The release of the lock is the last
//! access to it: a thread that is let in may destroy it.

use crate::deadline::Deadline;
use crate::fork::forks;
use crate::latch::Latch;
use crate::outcome::{NotHeld, Outcome};
use crate::queue::{Kind, Node, Queue};
use crate::sync::{AtomicU32, Ordering};
use crate::tid::Tid;

const HELD: u32 = 1;
/// A thread waits. Changed under the latch only.
const QUEUED: u32 = 2;
/// Above both: the number of forks when it was taken.
const FORKS: u32 = 2;

#[inline]
fn held() -> u32 {
    forks() << FORKS | HELD
}

#[inline]
fn is_free(state: u32) -> bool {
    state == 0 || (state ^ held()) >> FORKS != 0
}

#[repr(C)]
pub struct Ticket {
    state: AtomicU32,
    latch: Latch,
    queue: Queue,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Ticket>() == 16);

// SAFETY: the queue's pointers are touched under the latch only, and the nodes that they name wait for as long.
unsafe impl Sync for Ticket {}
// SAFETY: a ticket without waiters holds no pointers; a ticket with waiters is borrowed, so it is not sent.
unsafe impl Send for Ticket {}

impl Ticket {
    #[cfg(not(loom))]
    pub const fn new() -> Ticket {
        Ticket { state: AtomicU32::new(0), latch: Latch::new(), queue: Queue::new() }
    }

    #[cfg(loom)]
    pub fn new() -> Ticket {
        Ticket { state: AtomicU32::new(0), latch: Latch::new(), queue: Queue::new() }
    }

    #[inline]
    pub fn lock(&self, me: Tid) -> Outcome {
        if self.enter() {
            Outcome::Acquired { waited: false }
        } else {
            self.wait(me, &Node::new(Kind::Writer, 0), None)
        }
    }

    /// The deadline is read only if the lock is taken.
    #[inline]
    pub fn lock_until(&self, me: Tid, deadline: &Deadline) -> Outcome {
        if self.enter() {
            Outcome::Acquired { waited: false }
        } else {
            self.wait(me, &Node::new(Kind::Writer, 0), Some(deadline))
        }
    }

    #[inline]
    pub fn try_lock(&self) -> Outcome {
        if self.enter() { Outcome::Acquired { waited: false } } else { Outcome::Busy }
    }

    #[inline]
    fn enter(&self) -> bool {
        let enter = |from| self.state.compare_exchange(from, held(), Ordering::Acquire, Ordering::Relaxed);
        enter(0).or_else(|state| if is_free(state) { enter(state) } else { Err(state) }).is_ok()
    }

    /// [`Ticket::lock`] for a thread that was not let in immediately. Among the waiters, a thread with a real-time
    /// priority precedes those with lower ones or none, as POSIX requires for a mutex. `node` is new and a writer's. A
    /// thread that may leave the wait by a jump must call [`Ticket::abandon`] with it.
    #[cold]
    pub fn wait(&self, me: Tid, node: &Node, deadline: Option<&Deadline>) -> Outcome {
        if deadline.is_some_and(|deadline| !deadline.is_valid()) {
            return Outcome::InvalidDeadline;
        }
        if self.join(me, node) || node.wait(deadline) {
            return Outcome::Acquired { waited: true };
        }
        {
            let _latched = self.latch.hold(me);
            // SAFETY: under the latch.
            if unsafe { self.withdraw(node) } {
                return Outcome::TimedOut;
            }
        }
        // Taken at the last moment: the grant is on its way.
        node.wait(None);
        Outcome::Acquired { waited: true }
    }

    /// Puts a node into the queue. True if the lock was free and is taken instead. The first half of [`Ticket::wait`],
    /// for models.
    #[doc(hidden)]
    pub fn join(&self, me: Tid, node: &Node) -> bool {
        let _latched = self.latch.hold(me);
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = is_free(state);
            let next = if free { held() } else { state | QUEUED };
            match self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if free => {
                    // SAFETY: it is in no queue.
                    unsafe { node.enter() };
                    return true;
                }
                Ok(_) => break,
                Err(seen) => state = seen,
            }
        }
        // SAFETY: under the latch; the node stays until it is removed or granted: by `wait`, or by `abandon`.
        unsafe { self.queue.push(node) };
        false
    }

    /// Takes a node out of the queue, if it is there.
    ///
    /// # Safety
    /// The caller holds the latch.
    unsafe fn withdraw(&self, node: &Node) -> bool {
        // SAFETY: under the latch.
        unsafe {
            let queued = node.is_queued();
            if queued {
                self.queue.remove(node);
                if self.queue.is_empty() {
                    self.state.fetch_and(!QUEUED, Ordering::Relaxed);
                }
            }
            queued
        }
    }

    /// The calling thread leaves its wait with this node, or the lock that it got there, for good: it is no longer in
    /// the queue and no longer has the lock. (A thread that leaves in the middle of a queue change keeps the latch, and
    /// all others wait.)
    #[cold]
    pub fn abandon(&self, me: Tid, node: &Node) {
        let inside = {
            let Some(_latched) = self.latch.hold_anew(me) else { return };
            // SAFETY: under the latch.
            unsafe { !self.withdraw(node) && node.is_inside() }
        };
        if inside {
            // If it was taken from the queue, it may not be granted yet.
            node.wait(None);
            // SAFETY: granted.
            unsafe { node.leave() };
            let _ = self.unlock(me);
        }
    }

    /// Any thread may call this, not only the one that locked.
    ///
    /// # Errors
    /// [`NotHeld`]: it was free; the call had no effect.
    #[inline]
    pub fn unlock(&self, me: Tid) -> Result<(), NotHeld> {
        match self.state.compare_exchange(held(), 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(0) => Err(NotHeld),
            Err(state) if is_free(state) => {
                let dropped = self.state.compare_exchange(state, 0, Ordering::Relaxed, Ordering::Relaxed);
                dropped.map(drop).map_err(|_| NotHeld)
            }
            Err(_) => self.hand_over(me),
        }
    }

    #[cold]
    fn hand_over(&self, me: Tid) -> Result<(), NotHeld> {
        loop {
            let taken = {
                let _latched = self.latch.hold(me);
                // SAFETY: under the latch.
                unsafe {
                    let taken = self.queue.take_writer();
                    if self.queue.is_empty() {
                        self.state.fetch_and(!QUEUED, Ordering::Relaxed);
                    }
                    taken
                }
            };
            if taken.count != 0 {
                // SAFETY: the latch is released; taken just now.
                unsafe { taken.grant() };
                return Ok(());
            }
            // All waiters gave up. The latch must not be touched after the lock is free, so it is freed in a second step.
            match self.state.compare_exchange(held(), 0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(0) => return Err(NotHeld),
                Err(_) => {}
            }
        }
    }

    /// Also true for a lock left from before a fork, until a thread takes it.
    #[inline(always)]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != 0
    }
}

impl Default for Ticket {
    fn default() -> Self {
        Self::new()
    }
}
