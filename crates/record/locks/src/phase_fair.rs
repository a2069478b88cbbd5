//! A phase-fair reader-writer gate (Brandenburg and Anderson): reader and writer phases take turns while both wait. A
//! reader waits for at most one writer; a writer for the writers before it and one reader phase each.
//!
//! Writers are FIFO. When a writer leaves, all waiting readers enter together. When the last reader leaves, the oldest
//! writer enters. Readers that arrive while a writer waits must wait. The place in the queue is the ticket, so a waiter
//! that times out gives back exactly its own. 16 bytes, zero when free.
//!
//! A thread that already reads must not enter again (it would wait for a writer that waits for it): callers keep a
//! [`Held`](crate::held::Held) and skip the gate. Meant **in front of** a real rwlock: a thread that bypasses the gate
//! loses fairness, never exclusion.
//!
//! A fork frees the gate in the child: the thread inside may not exist there, on its way to the real lock.
//!
//! Invariants: `QUEUED` is set exactly while a thread waits, and the gate is then held; in a reader phase with `QUEUED`
//! the queue has a writer. The release is the last access to the gate: a thread that is let in may destroy it.

use crate::deadline::Deadline;
use crate::latch::Latch;
use crate::outcome::{NotHeld, Outcome};
use crate::queue::{Kind, Node, Queue, Taken};
use crate::sync::{AtomicU32, Ordering};
use crate::tid::Tid;

/// A writer is in.
const WRITER: u32 = 1 << 31;
/// A thread waits. Changed under the latch only.
const QUEUED: u32 = 1 << 30;
/// How many readers are in: the field holds more than Linux has threads in a process by default.
const READERS: u32 = (1 << 20) - 1;
/// The bits between: the number of forks, modulo 1,024, at the last entry.
const FORKS: u32 = QUEUED - 1 - READERS;

fn forks() -> u32 {
    (crate::fork::forks() << READERS.count_ones()) & FORKS
}

/// The part of a state that belongs to this process, not to one that it was forked from.
fn here(state: u32) -> u32 {
    let forks = forks();
    if state & FORKS == forks { state } else { forks }
}

#[repr(C)]
pub struct PhaseFair {
    state: AtomicU32,
    latch: Latch,
    queue: Queue,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<PhaseFair>() == 16);

// SAFETY: the queue's pointers are touched under the latch only, and the nodes that they name wait for as long.
unsafe impl Sync for PhaseFair {}
// SAFETY: a gate without waiters holds no pointers; a gate with waiters is borrowed, so it is not sent.
unsafe impl Send for PhaseFair {}

/// The state (as from [`here`]) after `kind` enters, or `None` if it has to wait.
fn entered(state: u32, kind: Kind) -> Option<u32> {
    match kind {
        Kind::Writer => (state & !FORKS == 0).then_some(state | WRITER),
        Kind::Reader => (state & (WRITER | QUEUED) == 0).then_some(state + 1),
    }
}

impl PhaseFair {
    #[cfg(not(loom))]
    pub const fn new() -> PhaseFair {
        PhaseFair { state: AtomicU32::new(0), latch: Latch::new(), queue: Queue::new() }
    }

    #[cfg(loom)]
    pub fn new() -> PhaseFair {
        PhaseFair { state: AtomicU32::new(0), latch: Latch::new(), queue: Queue::new() }
    }

    #[inline]
    pub fn read(&self, me: Tid) -> Outcome {
        if self.enter(Kind::Reader) {
            Outcome::Acquired { waited: false }
        } else {
            self.wait(me, &Node::new(Kind::Reader, 0), None)
        }
    }

    #[inline]
    pub fn write(&self, me: Tid) -> Outcome {
        if self.enter(Kind::Writer) {
            Outcome::Acquired { waited: false }
        } else {
            self.wait(me, &Node::new(Kind::Writer, 0), None)
        }
    }

    /// The deadline is read only if the caller would have to wait.
    #[inline]
    pub fn read_until(&self, me: Tid, deadline: &Deadline) -> Outcome {
        if self.enter(Kind::Reader) {
            Outcome::Acquired { waited: false }
        } else {
            self.wait(me, &Node::new(Kind::Reader, 0), Some(deadline))
        }
    }

    #[inline]
    pub fn write_until(&self, me: Tid, deadline: &Deadline) -> Outcome {
        if self.enter(Kind::Writer) {
            Outcome::Acquired { waited: false }
        } else {
            self.wait(me, &Node::new(Kind::Writer, 0), Some(deadline))
        }
    }

    /// Also `Busy` while readers are in and a writer waits, where a plain rwlock lets a `tryrdlock` in. A caller that
    /// needs the plain answer tries the real lock without the gate.
    #[inline]
    pub fn try_read(&self) -> Outcome {
        if self.enter(Kind::Reader) { Outcome::Acquired { waited: false } } else { Outcome::Busy }
    }

    #[inline]
    pub fn try_write(&self) -> Outcome {
        if self.enter(Kind::Writer) { Outcome::Acquired { waited: false } } else { Outcome::Busy }
    }

    #[inline]
    fn enter(&self, kind: Kind) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while let Some(next) = entered(here(state), kind) {
            match self.state.compare_exchange_weak(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(seen) => state = seen,
            }
        }
        false
    }

    /// No thread is in the gate or waits at it. A caller that finds it open may try for the real lock past the gate:
    /// all threads that wait arrived later, and find the gate or the lock taken.
    #[inline]
    pub fn is_open_to_writers(&self) -> bool {
        self.lets_in(Kind::Writer)
    }

    /// As [`PhaseFair::is_open_to_writers`], but other readers may be in it.
    #[inline]
    pub fn is_open_to_readers(&self) -> bool {
        self.lets_in(Kind::Reader)
    }

    /// Open to all; the cheapest check. False in a child whose parent was in it, until a thread of the child uses the gate.
    #[inline(always)]
    pub fn is_idle(&self) -> bool {
        self.state.load(Ordering::Relaxed) == 0
    }

    fn lets_in(&self, kind: Kind) -> bool {
        entered(here(self.state.load(Ordering::Relaxed)), kind).is_some()
    }

    /// For a thread that could not enter immediately. As [`Ticket::wait`](crate::ticket::Ticket::wait); ranks count
    /// among writers.
    #[cold]
    pub fn wait(&self, me: Tid, node: &Node, deadline: Option<&Deadline>) -> Outcome {
        if deadline.is_some_and(|deadline| !deadline.is_valid()) {
            return Outcome::InvalidDeadline;
        }
        if self.join(me, node) || node.wait(deadline) {
            return Outcome::Acquired { waited: true };
        }
        let admitted = {
            let _latched = self.latch.hold(me);
            // SAFETY: under the latch.
            unsafe { self.withdraw(node) }
        };
        match admitted {
            Some(readers) => {
                // SAFETY: the latch is released; taken just now.
                unsafe { readers.grant() };
                Outcome::TimedOut
            }
            None => {
                // Taken at the last moment: the grant is on its way.
                node.wait(None);
                Outcome::Acquired { waited: true }
            }
        }
    }

    /// Puts a node into the queue. True if its thread is let in instead. The first half of [`PhaseFair::wait`], for models.
    #[doc(hidden)]
    pub fn join(&self, me: Tid, node: &Node) -> bool {
        let _latched = self.latch.hold(me);
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let next = entered(here(state), node.kind());
            let enters = next.is_some();
            let next = next.unwrap_or(state | QUEUED);
            match self.state.compare_exchange(state, next, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) if enters => {
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

    /// Takes a node out of the queue, if it is there. Returns the waiters that this lets in.
    ///
    /// # Safety
    /// The caller holds the latch.
    unsafe fn withdraw(&self, node: &Node) -> Option<Taken> {
        // SAFETY: under the latch.
        unsafe {
            node.is_queued().then(|| {
                self.queue.remove(node);
                self.after_withdrawal()
            })
        }
    }

    /// As [`Ticket::abandon`](crate::ticket::Ticket::abandon).
    #[cold]
    pub fn abandon(&self, me: Tid, node: &Node) {
        let (admitted, inside) = {
            let Some(_latched) = self.latch.hold_anew(me) else { return };
            // SAFETY: under the latch.
            unsafe {
                let admitted = self.withdraw(node);
                let inside = admitted.is_none() && node.is_inside();
                (admitted, inside)
            }
        };
        if let Some(readers) = admitted {
            // SAFETY: the latch is released; taken just now.
            unsafe { readers.grant() };
        }
        if inside {
            node.wait(None);
            // SAFETY: granted.
            unsafe { node.leave() };
            let _ = match node.kind() {
                Kind::Reader => self.leave_read(me),
                Kind::Writer => self.leave_write(me),
            };
        }
    }

    /// Under the latch. If the last waiting writer has gone, the readers queued after it have no writer to wait for.
    fn after_withdrawal(&self) -> Taken {
        // SAFETY: under the latch. While `QUEUED` is set no thread enters, and readers that are not the last leave; all
        // other changes happen under the latch.
        unsafe {
            if self.queue.is_empty() {
                self.state.fetch_and(!QUEUED, Ordering::Relaxed);
            } else if self.state.load(Ordering::Relaxed) & WRITER == 0 && !self.queue.has(Kind::Writer) {
                let readers = self.queue.take_readers();
                // One step, or the gate could look free, or be left, in between. QUEUED is set, so this addition clears it.
                // ORDERING: acquire, for the readers that are let in here and join the current reader phase.
                self.state.fetch_add(readers.count.wrapping_sub(QUEUED), Ordering::Acquire);
                return readers;
            }
            Taken::NONE
        }
    }

    /// Any thread may call this, not only the one that entered.
    ///
    /// # Errors
    /// [`NotHeld`]: no reader was in; the call had no effect.
    #[inline]
    pub fn leave_read(&self, me: Tid) -> Result<(), NotHeld> {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            if here(state) != state {
                return self.left_behind(state, READERS);
            }
            if state & READERS == 0 {
                return Err(NotHeld);
            }
            if state & !FORKS == QUEUED | 1 {
                return self.last_reader(me);
            }
            match self.state.compare_exchange_weak(state, state - 1, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(seen) => state = seen,
            }
        }
    }

    #[cold]
    fn last_reader(&self, me: Tid) -> Result<(), NotHeld> {
        loop {
            let taken = {
                let _latched = self.latch.hold(me);
                let state = self.state.load(Ordering::Relaxed);
                if state & !FORKS == QUEUED | 1 {
                    // SAFETY: under the latch.
                    unsafe {
                        let writer = self.queue.take_writer();
                        let queued = if self.queue.is_empty() { 0 } else { QUEUED };
                        // ORDERING: acquires the data that earlier readers released; the grant passes it on.
                        let entered = if writer.count != 0 { WRITER } else { 1 };
                        self.state.swap(entered | queued | forks(), Ordering::AcqRel);
                        writer
                    }
                } else {
                    Taken::NONE
                }
            };
            if taken.count != 0 {
                // SAFETY: the latch is released; taken just now.
                unsafe { taken.grant() };
                return Ok(());
            }
            // The writers gave up. The latch must not be touched after the gate is free, so leaving is a second step.
            let mut state = self.state.load(Ordering::Relaxed);
            while state & !FORKS != QUEUED | 1 {
                if state & READERS == 0 {
                    return Err(NotHeld);
                }
                match self.state.compare_exchange_weak(state, state - 1, Ordering::Release, Ordering::Relaxed) {
                    Ok(_) => return Ok(()),
                    Err(seen) => state = seen,
                }
            }
        }
    }

    /// Any thread may call this, not only the one that entered.
    ///
    /// # Errors
    /// [`NotHeld`]: no writer was in; the call had no effect.
    #[inline]
    pub fn leave_write(&self, me: Tid) -> Result<(), NotHeld> {
        match self.state.compare_exchange(WRITER | forks(), 0, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Ok(()),
            Err(state) if here(state) != state => self.left_behind(state, WRITER),
            Err(state) if state & WRITER == 0 => Err(NotHeld),
            Err(_) => self.end_of_write(me),
        }
    }

    /// Gives up a hold that was taken before this process was forked, with all state that other threads left in the gate.
    #[cold]
    fn left_behind(&self, state: u32, whose: u32) -> Result<(), NotHeld> {
        let dropped = self.state.compare_exchange(state, 0, Ordering::Relaxed, Ordering::Relaxed);
        if state & whose != 0 && dropped.is_ok() { Ok(()) } else { Err(NotHeld) }
    }

    #[cold]
    fn end_of_write(&self, me: Tid) -> Result<(), NotHeld> {
        loop {
            let taken = {
                let _latched = self.latch.hold(me);
                if self.state.load(Ordering::Relaxed) & WRITER == 0 {
                    return Err(NotHeld);
                }
                // SAFETY: under the latch. With WRITER and QUEUED set only the holder of the latch changes the state.
                // With WRITER alone only the gate's writer does, which is the caller.
                unsafe {
                    let readers = self.queue.take_readers();
                    let (taken, entered) = match readers.count {
                        0 => (self.queue.take_writer(), WRITER),
                        count => (readers, count),
                    };
                    let queued = if self.queue.is_empty() { 0 } else { QUEUED };
                    self.state.store(entered | queued | forks(), Ordering::Release);
                    taken
                }
            };
            if taken.count != 0 {
                // SAFETY: the latch is released; taken just now.
                unsafe { taken.grant() };
                return Ok(());
            }
            match self.state.compare_exchange(WRITER | forks(), 0, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return Ok(()),
                Err(state) if state & WRITER == 0 => return Err(NotHeld),
                Err(_) => {}
            }
        }
    }

    /// Readers in the gate at this moment, and whether a writer is.
    pub fn occupants(&self) -> (u32, bool) {
        let state = here(self.state.load(Ordering::Relaxed));
        (state & READERS, state & WRITER != 0)
    }
}

impl Default for PhaseFair {
    fn default() -> Self {
        Self::new()
    }
}
