//! A submission queue and its completion queue, as memory and two doorbells (Base 1.4, sections 4.1 and 4.6.1).

use crate::nvme::command::Entry;
use crate::nvme::completion::{Completion, Lie};
use pcie::{Bar, Memory};
use std::fmt;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering, fence};

/// Bytes of a submission and of a completion entry.
pub(crate) const SUBMISSION: u64 = 64;
pub(crate) const COMPLETION: u64 = 16;

/// The doorbell of one end of a queue.
pub(crate) struct Doorbell {
    pub(crate) registers: Bar,
    pub(crate) offset: u64,
}

impl Doorbell {
    #[inline]
    fn ring(&self, new: u32) {
        // ORDERING: entries are in memory before the doorbell is rung. On x86-64 stores become visible in their order, so this keeps the
        // compiler from moving them.
        fence(Ordering::Release);
        self.registers.store32(self.offset, new);
    }
}

/// One queue pair. All positions count up from zero; a position modulo the number of entries is an index.
///
/// The caller must keep at most one entry less in flight than the queue has.
pub(crate) struct Ring {
    id: u16,
    entries: u32,
    submissions: NonNull<u32>,
    completions: NonNull<u32>,
    /// Entries written.
    tail: u64,
    /// How many of these the doorbell has announced.
    rung: u64,
    /// How many entries the controller reports as fetched.
    fetched: u64,
    /// Completions taken.
    head: u64,
    /// How many of these were acknowledged by the doorbell.
    acknowledged: u64,
    tail_doorbell: Doorbell,
    head_doorbell: Doorbell,
    _memory: Memory,
}

// SAFETY: the pointers are to memory that `_memory` keeps; there is one owner, whose methods take `&mut self`.
unsafe impl Send for Ring {}

impl fmt::Debug for Ring {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Ring { entries, tail, rung, fetched, head, acknowledged, .. } = self;
        write!(
            out,
            "of {entries} entries: written to {tail}, rung to {rung}, fetched to {fetched}, completed to {head}, \
             acknowledged to {acknowledged}"
        )
    }
}

impl Ring {
    /// Submission entries at `at`, completion entries at `completions_at`; both zeroed and within the memory.
    pub(crate) fn new(
        id: u16,
        entries: u32,
        memory: &Memory,
        (at, completions_at): (u64, u64),
        (tail_doorbell, head_doorbell): (Doorbell, Doorbell),
    ) -> Result<Ring, pcie::Error> {
        memory.holds(at, u64::from(entries) * SUBMISSION)?;
        memory.holds(completions_at, u64::from(entries) * COMPLETION)?;
        let base = memory.as_ptr().ok_or_else(|| pcie::Error::Refused {
            address: pcie::Address { domain: 0, bus: 0, device: 0, function: 0 },
            why: "its queues are in memory that the CPU cannot access".into(),
            hint: "give queues host memory".into(),
        })?;
        let place = |offset: u64| {
            // SAFETY: within the memory, as was just checked.
            unsafe { base.add(offset as usize) }.cast::<u32>()
        };
        Ok(Ring {
            id,
            entries,
            submissions: place(at),
            completions: place(completions_at),
            tail: 0,
            rung: 0,
            fetched: 0,
            head: 0,
            acknowledged: 0,
            tail_doorbell,
            head_doorbell,
            _memory: memory.clone(),
        })
    }

    fn index(&self, position: u64) -> u32 {
        (position % u64::from(self.entries)) as u32
    }

    /// Writes an entry without announcing it to the controller. Returns its position.
    #[inline]
    pub(crate) fn write(&mut self, entry: &Entry) -> u64 {
        let at = self.index(self.tail) as usize * 16;
        for (word, value) in entry.0.iter().enumerate() {
            // SAFETY: `index` is below `entries`, and the 16 words of each entry are in the memory (checked by `new`).
            unsafe { self.submissions.as_ptr().add(at + word).write_volatile(value.to_le()) };
        }
        self.tail += 1;
        self.tail - 1
    }

    /// Removes entries that were not announced to the controller.
    pub(crate) fn take_back(&mut self) {
        self.tail = self.rung;
    }

    /// Announces all entries to the controller.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if self.tail != self.rung {
            self.tail_doorbell.ring(self.index(self.tail));
            self.rung = self.tail;
        }
    }

    /// Whether the controller reports the entry at this position as fetched.
    #[inline]
    pub(crate) fn was_fetched(&self, position: u64) -> bool {
        position < self.fetched
    }

    /// Index of the next completion entry.
    pub(crate) fn next_index(&self) -> u32 {
        self.index(self.head)
    }

    /// The next completion, if there is one. Its fields about the queue are checked here, its fields about a command are not.
    ///
    /// # Errors
    /// [`Lie`], with the entry, which stays the next one.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<Completion>, (Lie, Completion)> {
        let at = self.index(self.head) as usize * 4;
        let word = |word: usize| {
            // SAFETY: as in `write`, with 4 words an entry.
            u32::from_le(unsafe { self.completions.as_ptr().add(at + word).read_volatile() })
        };
        // The controller inverts the phase bit with each lap; the memory began as zeroes (section 4.6, figure 125).
        let expected = (self.head / u64::from(self.entries)).is_multiple_of(2);
        let last = word(3);
        if (last >> 16 & 1 != 0) != expected {
            return Ok(None);
        }
        // ORDERING: the entry's other words, and the data, are read after the phase bit.
        fence(Ordering::Acquire);
        let entry = Completion([word(0), word(1), word(2), last]);
        if word(3) != last {
            return Err((Lie::Changed, entry));
        }
        if entry.submission_queue() != self.id {
            return Err((Lie::Queue(entry.submission_queue()), entry));
        }
        let (reported, from) = (u32::from(entry.submission_head()), self.index(self.fetched));
        let step = u64::from((reported + self.entries - from) % self.entries);
        if reported >= self.entries || self.fetched + step > self.rung {
            return Err((Lie::Head(entry.submission_head()), entry));
        }
        self.fetched += step;
        self.head += 1;
        Ok(Some(entry))
    }

    /// Gives the controller back the entries of completions that were taken.
    #[inline]
    pub(crate) fn acknowledge(&mut self) {
        if self.head != self.acknowledged {
            self.head_doorbell.ring(self.index(self.head));
            self.acknowledged = self.head;
        }
    }
}
