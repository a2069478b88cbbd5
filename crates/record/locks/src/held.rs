//! The locks that a thread took through this crate. Answers "does this thread hold it already?" before a gate is
//! entered, and shows other threads whom they wait for.
//!
//! Only its own thread writes it; all threads read it. A full table never blocks or forgets: holds that do not fit are
//! counted. While that count is not zero, the thread bypasses every gate that the table does not list, which costs only
//! fairness.

use core::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

pub const CAPACITY: usize = 32;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Through the gate, shared.
    Read,
    /// Through the gate, alone.
    Write,
    /// The real lock is held but not the gate: taken directly, by a `try`, or by the end of a wait for a condition.
    Round,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Not held so far; noted now. The caller enters the gate, then the real lock. If that fails, call [`Held::leave`].
    First,
    /// Held already: bypass the gate. Noted; if the real lock refuses, call [`Held::leave`].
    Again,
    /// No room to note it: bypass the gate. Counted; if the real lock refuses, call [`Held::leave`].
    Full,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Exit {
    /// The last hold of this lock, noted when it was taken in this mode: leave the gate too, unless `Round`.
    Last(Mode),
    /// Still held.
    Inner,
    /// Not noted: it did not fit, or another thread locked it.
    Unknown,
}

struct Slot {
    lock: AtomicUsize,
    /// The mode in the low two bits; above them, how many more times it is held after the first. The usual value is
    /// zero, and an empty slot always has zero: the next locked instruction then waits for fewer stores.
    hold: AtomicU32,
}

/// Zero when empty, without a destructor, suitable for a thread-local of the initial-exec model or a shared table.
pub struct Held {
    len: AtomicU32,
    uncounted: AtomicU32,
    slots: [Slot; CAPACITY],
}

const ONE: u32 = 4;

fn pack(mode: Mode) -> u32 {
    match mode {
        Mode::Round => 0,
        Mode::Read => 1,
        Mode::Write => 2,
    }
}

fn mode(hold: u32) -> Mode {
    match hold % ONE {
        0 => Mode::Round,
        1 => Mode::Read,
        _ => Mode::Write,
    }
}

impl Held {
    pub const fn new() -> Held {
        Held {
            len: AtomicU32::new(0),
            uncounted: AtomicU32::new(0),
            slots: [const { Slot { lock: AtomicUsize::new(0), hold: AtomicU32::new(0) } }; CAPACITY],
        }
    }

    /// Searches from the innermost: locks are mostly released in reverse order.
    #[inline]
    fn find(&self, lock: usize, len: usize) -> Option<usize> {
        let mut index = len.min(CAPACITY);
        while index != 0 {
            index -= 1;
            if self.slots[index].lock.load(Ordering::Relaxed) == lock {
                return Some(index);
            }
        }
        None
    }

    #[inline]
    fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    /// For the table's own thread: the lock is not in the table, and [`Held::enter`] would add it.
    #[inline(always)]
    pub fn has_room_for(&self, lock: usize) -> bool {
        let len = self.len();
        len < CAPACITY && self.uncounted.load(Ordering::Relaxed) == 0 && self.find(lock, len).is_none()
    }

    /// For the table's own thread, before it tries for the lock: waiters must see which thread is about to hold it.
    #[inline]
    pub fn enter(&self, lock: usize, as_mode: Mode) -> Entry {
        let len = self.len();
        if let Some(index) = self.find(lock, len) {
            let hold = &self.slots[index].hold;
            hold.store(hold.load(Ordering::Relaxed) + ONE, Ordering::Relaxed);
            return Entry::Again;
        }
        let uncounted = self.uncounted.load(Ordering::Relaxed);
        let Some(slot) = self.slots.get(len).filter(|_| uncounted == 0) else {
            self.uncounted.store(uncounted + 1, Ordering::Relaxed);
            return Entry::Full;
        };
        if as_mode != Mode::Round {
            slot.hold.store(pack(as_mode), Ordering::Relaxed);
        }
        slot.lock.store(lock, Ordering::Relaxed);
        self.len.store(len as u32 + 1, Ordering::Release);
        Entry::First
    }

    /// For the table's own thread: one hold less.
    #[inline]
    pub fn leave(&self, lock: usize) -> Exit {
        let len = self.len();
        let Some(index) = self.find(lock, len) else {
            let uncounted = self.uncounted.load(Ordering::Relaxed);
            self.uncounted.store(uncounted.saturating_sub(1), Ordering::Relaxed);
            return Exit::Unknown;
        };
        let slot = &self.slots[index];
        let hold = slot.hold.load(Ordering::Relaxed);
        if hold >= ONE {
            slot.hold.store(hold - ONE, Ordering::Relaxed);
            return Exit::Inner;
        }
        // (A lock left past the table's new end was held when the end was there.)
        let mut empty = slot;
        if index + 1 != len {
            empty = &self.slots[len - 1];
            slot.hold.store(empty.hold.load(Ordering::Relaxed), Ordering::Relaxed);
            slot.lock.store(empty.lock.load(Ordering::Relaxed), Ordering::Relaxed);
            // ORDERING: a thread that no longer finds it at the end finds the copy.
            empty.lock.store(0, Ordering::Release);
        }
        if empty.hold.load(Ordering::Relaxed) != 0 {
            empty.hold.store(0, Ordering::Relaxed);
        }
        self.len.store(len as u32 - 1, Ordering::Release);
        Exit::Last(mode(hold))
    }

    /// For the table's own thread: the hold gets another mode.
    pub fn set_mode(&self, lock: usize, mode: Mode) {
        if let Some(index) = self.find(lock, self.len()) {
            let hold = &self.slots[index].hold;
            hold.store((hold.load(Ordering::Relaxed) & !(ONE - 1)) | pack(mode), Ordering::Relaxed);
        }
    }

    /// For the table's own thread: how it holds this lock, and how many times.
    #[inline]
    pub fn holds(&self, lock: usize) -> Option<(Mode, u32)> {
        let index = self.find(lock, self.len())?;
        let hold = self.slots[index].hold.load(Ordering::Relaxed);
        Some((mode(hold), hold / ONE + 1))
    }

    /// To be called when its thread has ended.
    pub fn clear(&self) {
        self.len.store(0, Ordering::Release);
        self.uncounted.store(0, Ordering::Relaxed);
        for slot in &self.slots {
            slot.lock.store(0, Ordering::Relaxed);
            slot.hold.store(0, Ordering::Relaxed);
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len.load(Ordering::Relaxed) == 0 && self.uncounted.load(Ordering::Relaxed) == 0
    }

    /// For other threads: whether the lock was held or about to be held at some time during the call. An entry that
    /// moves within the table is still found: the search starts at the end, and entries move towards the beginning.
    pub fn shows(&self, lock: usize) -> bool {
        let len = self.len.load(Ordering::Acquire) as usize;
        self.slots.iter().take(len).rev().any(|slot| slot.lock.load(Ordering::Acquire) == lock)
    }
}

impl Default for Held {
    fn default() -> Self {
        Self::new()
    }
}
