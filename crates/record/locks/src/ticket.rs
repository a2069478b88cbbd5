//! A fair mutex: first come, first served among equals, handed over directly (the queue lock of the FMLP).
//!
//! The ticket is the place in the queue, not a number: a numbered ticket could not be given back when its holder's time is
//! up, a place can. 16 bytes, zero when free.
//!
//! A fork frees it in the child: who holds it may be a thread that is not there, on its way to the lock behind this one.
//!
//! Invariant: while `QUEUED` is set the lock is never free, so nobody overtakes. The release of the lock is the last access
//! to it: whoever is let in may destroy it.

use crate::deadline::Deadline;
use crate::fork::forks;
use crate::latch::Latch;
use crate::outcome::{NotHeld, Outcome};
use crate::queue::{Kind, Node, Queue};
use crate::sync::{AtomicU32, Ordering};
use crate::tid::Tid;

const HELD: u32 = 1;
/// Somebody waits. Changed under the latch only.
const QUEUED: u32 = 2;
/// Above both: the forks when it was taken.
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

// SAFETY: the queue's pointers are touched under the latch only, and what they name waits for as long.
unsafe impl Sync for Ticket {}
// SAFETY: a ticket that nobody waits at holds no pointers; one that somebody waits at is borrowed, hence not sent.
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

    /// The deadline is looked at only if the lock is taken.
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

    /// [`Ticket::lock`] for who was not let in at once: among those who wait, a thread with a real-time priority comes before
    /// those with lower ones or none, as POSIX has it for a mutex. `node`: a writer's, new; who may leave the wait by a jump
    /// calls [`Ticket::abandon`] with it.
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

    /// Puts a node into the queue; true if the lock is free and taken instead. The first half of [`Ticket::wait`], for models.
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
        // SAFETY: under the latch; the node stays until it was removed or granted: by `wait`, or by `abandon`.
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

    /// The calling thread leaves its wait with this node, or what it got there, for good: it is in the queue no longer, and
    /// has the lock no longer. (A thread that leaves in the middle of a change of the queue keeps the latch, and all wait.)
    #[cold]
    pub fn abandon(&self, me: Tid, node: &Node) {
        let inside = {
            let Some(_latched) = self.latch.hold_anew(me) else { return };
            // SAFETY: under the latch.
            unsafe { !self.withdraw(node) && node.is_inside() }
        };
        if inside {
            // Taken from the queue, it may not be granted yet.
            node.wait(None);
            // SAFETY: granted.
            unsafe { node.leave() };
            let _ = self.unlock(me);
        }
    }

    /// Not bound to the thread that locked.
    ///
    /// # Errors
    /// [`NotHeld`]: it was free; nothing was changed.
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
            // All of them gave up. The latch must not be touched after the lock is free, so it is freed in a second step.
            match self.state.compare_exchange(held(), 0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(0) => return Err(NotHeld),
                Err(_) => {}
            }
        }
    }

    /// Also of what a fork left behind, as long as nobody came to take it.
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
