//! Inputs: the producer's side, and the loop's.
//!
//! In order, a slot belongs to the producer from `taken` on until it is committed, and then to the loop until `taken` has passed it. For the newest, the
//! loop first stores which slot it reads and then checks again which slots are committed. The producer commits and then checks which slot is read. So one
//! of the two sees the other.

use crate::error::{Error, Reason, State};
use crate::layout::InputHead;
use crate::memory::Memory;
use crate::options::Take;
use crate::sys;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The writer of slots. There is one at a time; any thread may use it.
pub struct Producer {
    memory: Arc<Memory>,
    take: Take,
    /// The slot that it has. (For the newest, the loop may look at it for a moment although it cannot take it.)
    given: Option<u64>,
}

/// The data of a commit.
#[derive(Clone, Copy, Debug, Default)]
pub struct Stamp {
    /// The producer's number for it; copied to the result.
    pub sequence: u64,
    /// When the result is due, in nanoseconds of CLOCK_MONOTONIC ([`crate::now`]). 0: as in the loop's options.
    pub deadline: u64,
    /// Copied to the result.
    pub tag: u64,
}

impl Producer {
    pub(crate) fn new(memory: &Arc<Memory>, take: Take) -> Option<Producer> {
        (!memory.produced.swap(true, Ordering::AcqRel)).then(|| Producer { memory: memory.clone(), take, given: None })
    }

    /// The bytes of the next slot, to be filled. A second call before [`Producer::commit`] returns the same bytes.
    ///
    /// # Errors
    /// [`Error::Full`] if the loop has not taken the slot, or is reading it; [`Error::Ended`], [`Error::Forked`].
    #[inline]
    pub fn slot(&mut self) -> Result<&mut [u8], Error> {
        let next = self.next()?;
        let (_, bytes) = self.memory.input(next);
        // SAFETY: free, so the loop does not read it until it is committed, and there is one producer.
        Ok(unsafe { std::slice::from_raw_parts_mut(bytes.as_ptr(), self.memory.input_bytes) })
    }

    /// The number of the next slot, which is free.
    fn next(&mut self) -> Result<u64, Error> {
        if self.memory.forked() {
            return Err(Error::Forked);
        }
        let header = self.memory.header();
        if header.progress.state.load(Ordering::Relaxed) == State::Ended as u32 {
            return Err(Error::Ended(Reason::of(header.progress.reason.load(Ordering::Relaxed))));
        }
        let next = header.source.committed.load(Ordering::Relaxed);
        if self.given == Some(next) {
            return Ok(next);
        }
        let slots = self.memory.slots;
        let free = match self.take {
            Take::InOrder => next.wrapping_sub(header.progress.taken.load(Ordering::Acquire)) < slots,
            // ORDERING: loaded after `committed` was stored, see the head of the file.
            Take::Newest => header.progress.reading.load(Ordering::SeqCst) != (next + 1).wrapping_sub(slots),
        };
        if !free && next >= slots {
            return Err(Error::Full);
        }
        self.given = Some(next);
        Ok(next)
    }

    /// Gives the slot to the loop. Returns its number, counted from 0.
    ///
    /// # Errors
    /// As [`Producer::slot`].
    #[inline]
    pub fn commit(&mut self, stamp: Stamp) -> Result<u64, Error> {
        let next = self.next()?;
        let header = self.memory.header();
        let (head, _) = self.memory.input(next);
        for (to, value) in [
            (&head.sequence, stamp.sequence),
            (&head.deadline, stamp.deadline),
            (&head.tag, stamp.tag),
            (&head.time_in, sys::now()),
        ] {
            to.store(value, Ordering::Relaxed);
        }
        // ORDERING: the slot's contents before its number, and the number before the check whether the loop sleeps.
        header.source.committed.store(next + 1, Ordering::SeqCst);
        wake_if_it_sleeps(&self.memory);
        Ok(next)
    }

    /// Fills the next slot and commits it.
    ///
    /// # Errors
    /// As [`Producer::slot`]; [`Error::Argument`] for more bytes than a slot has.
    #[inline]
    pub fn put(&mut self, bytes: &[u8], stamp: Stamp) -> Result<u64, Error> {
        let slot = self.slot()?;
        let to = slot.get_mut(..bytes.len()).ok_or(Error::Argument("more bytes than a slot of the loop has"))?;
        to.copy_from_slice(bytes);
        self.commit(stamp)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        self.memory.produced.store(false, Ordering::Release);
    }
}

impl std::fmt::Debug for Producer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Producer").field("take", &self.take).finish_non_exhaustive()
    }
}

/// Call it after a commit.
#[inline]
pub(crate) fn wake_if_it_sleeps(memory: &Memory) {
    let header = memory.header();
    if header.progress.sleeps.load(Ordering::SeqCst) != 0 {
        header.source.bell.fetch_add(1, Ordering::SeqCst);
        sys::wake(&header.source.bell);
    }
}

/// The loop's side.
pub(crate) struct Inputs {
    take: Take,
    /// The number of the next input.
    next: u64,
    /// Skipped since the last result.
    pub skipped: u64,
}

/// An input that the loop has.
pub(crate) struct Input<'m> {
    pub number: u64,
    pub head: &'m InputHead,
    pub bytes: NonNull<u8>,
}

impl Inputs {
    pub fn new(take: Take) -> Inputs {
        Inputs { take, next: 0, skipped: 0 }
    }

    /// Number of committed inputs.
    #[inline]
    pub fn waiting(&self, memory: &Memory) -> u64 {
        // ORDERING: the contents of the counted slots are visible. (A number below the taken ones is a wrong number that a program wrote.)
        memory.header().source.committed.load(Ordering::SeqCst).saturating_sub(self.next)
    }

    /// Skips this many inputs.
    pub fn skip(&mut self, memory: &Memory, count: u64) {
        self.next += count;
        self.skipped += count;
        add(&memory.header().counters.skipped, count);
        memory.header().progress.taken.store(self.next, Ordering::Release);
    }

    /// In order: the head of the next input, if there is one.
    pub fn next_head<'m>(&self, memory: &'m Memory) -> Option<&'m InputHead> {
        (self.take == Take::InOrder && self.waiting(memory) > 0).then(|| memory.input(self.next).0)
    }

    /// Takes the next input, if there is one; the newest with [`Take::Newest`] or `newest`.
    pub fn take<'m>(&mut self, memory: &'m Memory, newest: bool) -> Option<Input<'m>> {
        let progress = &memory.header().progress;
        let waiting = self.waiting(memory);
        if waiting == 0 {
            return None;
        }
        if self.take == Take::InOrder {
            // More inputs than slots: a wrong number that a program wrote.
            if newest || waiting > memory.slots {
                self.skip(memory, waiting - 1);
            }
        } else {
            let mut number = self.next + waiting - 1;
            #[cfg(test)]
            tests::between();
            loop {
                // ORDERING: stored before the second load of `committed`, see the head of the file.
                progress.reading.store(number + 1, Ordering::SeqCst);
                let last = memory.header().source.committed.load(Ordering::SeqCst);
                // (It is only lower if a program wrote a wrong number.)
                if last <= number || last - number < memory.slots {
                    break;
                }
                number = last - 1;
            }
            self.skip(memory, number - self.next);
        }
        let (head, bytes) = memory.input(self.next);
        Some(Input { number: self.next, head, bytes })
    }

    /// Gives back the input that the loop took.
    pub fn give_back(&mut self, memory: &Memory) {
        let progress = &memory.header().progress;
        self.next += 1;
        // ORDERING: all reads of the slot are before these stores.
        progress.reading.store(0, Ordering::Release);
        progress.taken.store(self.next, Ordering::Release);
    }
}

/// A plain number of a head.
#[inline]
pub(crate) fn read(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

/// Called only by the one thread that counts.
#[inline]
pub(crate) fn add(to: &AtomicU64, more: u64) {
    if more > 0 {
        to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;

    const BYTES: usize = 2048;

    struct OnDrop<'a>(&'a AtomicBool);

    impl Drop for OnDrop<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    /// Takes an input, if there is one, and checks that all of it belongs to one input.
    fn taken(inputs: &mut Inputs, memory: &Memory, newest: bool, last: &mut Option<u64>) {
        let Some(Input { number, head, bytes }) = inputs.take(memory, newest) else { return };
        let mut copy = [0u8; BYTES];
        // SAFETY: the slot is this thread's until it is given back.
        unsafe { copy.as_mut_ptr().copy_from_nonoverlapping(bytes.as_ptr(), BYTES) };
        let sequence = read(&head.sequence);
        inputs.give_back(memory);
        assert!(copy.iter().all(|byte| *byte == number as u8) && sequence == number, "{number}: {sequence}, {copy:?}");
        assert!(*last < Some(number));
        *last = Some(number);
    }

    thread_local!(static BETWEEN: std::cell::Cell<Option<Box<dyn FnOnce()>>> = const { std::cell::Cell::new(None) });

    /// Called after the search for the newest, and before the loop stores which one it reads.
    pub fn between() {
        if let Some(work) = BETWEEN.take() {
            work();
        }
    }

    #[test]
    fn a_slot_that_is_filled_again_before_the_loop_has_it_is_not_taken() {
        for more in [1, 2, 3, 4, 5] {
            let memory = Arc::new(Memory::new((3, 8), (2, 0)).unwrap());
            let mut producer = Producer::new(&memory, Take::Newest).unwrap();
            let mut inputs = Inputs::new(Take::Newest);
            producer.put(&0u64.to_le_bytes(), Stamp::default()).unwrap();
            // The last of them is filled but not committed: the loop does not have its slot.
            BETWEEN.set(Some(Box::new(move || {
                for number in 1..more {
                    producer.put(&u64::to_le_bytes(number), Stamp::default()).unwrap();
                }
                producer.slot().unwrap().fill(0xee);
            })));
            let taken = inputs.take(&memory, false).unwrap();
            // SAFETY: eight bytes, as the slot has.
            let bytes = unsafe { taken.bytes.cast::<[u8; 8]>().read() };
            assert_eq!(u64::from_le_bytes(bytes), taken.number, "{more}");
        }
    }

    #[test]
    fn what_is_taken_is_whole_however_quick_the_producer_is() {
        for (take, slots, newest) in [(Take::Newest, 2, false), (Take::Newest, 3, false), (Take::InOrder, 2, true)] {
            let memory = Arc::new(Memory::new((slots, BYTES as u64), (2, 0)).unwrap());
            let mut producer = Producer::new(&memory, take).unwrap();
            let over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut number = 0;
                    while !over.load(Ordering::Relaxed) {
                        let stamp = Stamp { sequence: number, ..Stamp::default() };
                        number += u64::from(producer.put(&[number as u8; BYTES], stamp).is_ok());
                    }
                });
                let _over = OnDrop(&over);
                let (mut inputs, mut last, mut rounds) = (Inputs::new(take), None, 0u64);
                while last < Some(5_000) || rounds < 5_000 {
                    taken(&mut inputs, &memory, newest, &mut last);
                    rounds += 1;
                }
            });
        }
    }
}
