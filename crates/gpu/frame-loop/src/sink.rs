//! Results: the loop's side, and the consumer's.

use crate::error::Error;
use crate::memory::Memory;
use crate::options::Full;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

/// The data of a frame. All times are nanoseconds of CLOCK_MONOTONIC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The tick, or the number of the input; both count from 0.
    pub frame: u64,
    /// From the producer.
    pub sequence: u64,
    pub tag: u64,
    /// Time of the tick; as frames come, time of the input's commit.
    pub due: u64,
    pub time_in: u64,
    pub launched: u64,
    pub done: u64,
    /// 0: no deadline.
    pub deadline: u64,
    /// Inputs that were skipped since the result before this.
    pub skipped: u64,
    /// Not launched: its deadline had passed.
    pub refused: bool,
    /// Done after its deadline.
    pub late: bool,
}

/// The reader of results. There is one at a time; any thread may use it.
pub struct Results {
    memory: Arc<Memory>,
    next: u64,
    lost: u64,
}

impl Results {
    pub(crate) fn new(memory: &Arc<Memory>) -> Option<Results> {
        let next = memory.header().sink.read.load(Ordering::Relaxed);
        (!memory.consumed.swap(true, Ordering::AcqRel)).then(|| Results { memory: memory.clone(), next, lost: 0 })
    }

    /// The next result, if there is one. Copies as many of its bytes as fit to `into`.
    ///
    /// # Errors
    /// [`Error::Forked`].
    pub fn next(&mut self, into: &mut [u8]) -> Result<Option<Outcome>, Error> {
        if self.memory.forked() {
            return Err(Error::Forked);
        }
        let header = self.memory.header();
        loop {
            let published = header.progress.published.load(Ordering::Acquire);
            // (It is only lower if a program wrote a wrong `read`.)
            if published <= self.next {
                return Ok(None);
            }
            let oldest = published.saturating_sub(self.memory.results);
            if self.next < oldest {
                self.lost += oldest - self.next;
                self.next = oldest;
            }
            let found = read(&self.memory, self.next, into);
            self.next += 1;
            // ORDERING: all reads of the slot are before this store.
            header.sink.read.store(self.next, Ordering::Release);
            match found {
                Some(outcome) => return Ok(Some(outcome)),
                None => self.lost += 1,
            }
        }
    }

    /// Whether results were signalled within that time, or the loop has ended. Then read all of them.
    pub fn wait(&self, limit: Duration) -> bool {
        let signalled = self.memory.event.wait(limit);
        if signalled {
            self.memory.event.drain();
        }
        signalled
    }

    /// Results that were overwritten before they were read.
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Drop for Results {
    fn drop(&mut self) {
        self.memory.consumed.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Results {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Results").field("next", &self.next).field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// None if it was overwritten during the read.
fn read(memory: &Memory, number: u64, into: &mut [u8]) -> Option<Outcome> {
    let (head, bytes) = memory.result(number);
    let whole = 2 * number + 2;
    if head.stamp.load(Ordering::Acquire) != whole {
        return None;
    }
    let of = |word| crate::source::read(word);
    let outcome = Outcome {
        frame: of(&head.frame),
        sequence: of(&head.sequence),
        tag: of(&head.tag),
        due: of(&head.due),
        time_in: of(&head.time_in),
        launched: of(&head.launched),
        done: of(&head.done),
        deadline: of(&head.deadline),
        skipped: of(&head.skipped),
        refused: head.status.load(Ordering::Relaxed) != 0,
        late: head.late.load(Ordering::Relaxed) != 0,
    };
    let length = into.len().min(memory.result_bytes);
    // SAFETY: within the slot. The loop may write it at the same time; the stamp is then different afterwards, and the copied bytes are not
    // used.
    unsafe { into.as_mut_ptr().copy_from_nonoverlapping(bytes.as_ptr(), length) };
    // ORDERING: the stamp is read again after the bytes.
    fence(Ordering::Acquire);
    (head.stamp.load(Ordering::Relaxed) == whole).then_some(outcome)
}

/// The loop's side.
pub(crate) struct Outlet {
    full: Full,
    signal_each: u64,
    published: u64,
}

impl Outlet {
    pub fn new(full: Full, signal_each: u32) -> Outlet {
        Outlet { full, signal_each: signal_each.into(), published: 0 }
    }

    /// Whether the loop must stop because it would overwrite a result.
    #[inline]
    pub fn is_full(&self, memory: &Memory) -> bool {
        self.full == Full::Stop && self.unread(memory) >= memory.results
    }

    fn unread(&self, memory: &Memory) -> u64 {
        self.published.saturating_sub(memory.header().sink.read.load(Ordering::Acquire))
    }

    /// Publishes a result. Returns whether it overwrote an unread one.
    pub fn publish(&mut self, memory: &Memory, outcome: &Outcome, from: Option<NonNull<u8>>) -> bool {
        let overrun = self.unread(memory) >= memory.results;
        let number = self.published;
        let (head, bytes) = memory.result(number);
        head.stamp.store(2 * number + 1, Ordering::Relaxed);
        // ORDERING: the odd stamp before the new values.
        fence(Ordering::Release);
        for (to, value) in [
            (&head.frame, outcome.frame),
            (&head.sequence, outcome.sequence),
            (&head.tag, outcome.tag),
            (&head.due, outcome.due),
            (&head.time_in, outcome.time_in),
            (&head.launched, outcome.launched),
            (&head.done, outcome.done),
            (&head.deadline, outcome.deadline),
            (&head.skipped, outcome.skipped),
        ] {
            to.store(value, Ordering::Relaxed);
        }
        head.status.store(outcome.refused.into(), Ordering::Relaxed);
        head.late.store(outcome.late.into(), Ordering::Relaxed);
        if let Some(from) = from {
            // SAFETY: the chain's output has as many bytes as a result, and the GPU is done with it.
            unsafe { bytes.as_ptr().copy_from_nonoverlapping(from.as_ptr(), memory.result_bytes) };
        }
        // ORDERING: the values before the stamp, and the stamp before the number.
        head.stamp.store(2 * number + 2, Ordering::Release);
        self.published += 1;
        memory.header().progress.published.store(self.published, Ordering::Release);
        if self.signal_each > 0 && self.published.is_multiple_of(self.signal_each) {
            memory.event.signal();
        }
        overrun
    }
}
