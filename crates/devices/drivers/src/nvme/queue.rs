//! An I/O queue pair with one submitter.
//!
//! `submit` and `reap` take no lock, allocate no memory and make no system call (except to access an emulated device's registers). A slot has one
//! command in flight. It keeps the memories of its data until the command has completed, or the controller was stopped.

use crate::nvme::admin::contiguous;
use crate::nvme::command::{Entry, Pointer};
use crate::nvme::completion::{Completion, Lie};
use crate::nvme::data::{self, ListPage, Lists, Piece};
use crate::nvme::error::{Error, SlotError};
use crate::nvme::namespace::Io;
use crate::nvme::registers::{Capabilities, PAGE};
use crate::nvme::ring::{COMPLETION, Ring, SUBMISSION};
use crate::nvme::shared::{Health, Shared};
use crate::nvme::status::Status;
use crate::nvme::wait;
use pcie::Memory;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The size of a queue.
#[derive(Clone, Debug)]
pub struct Depth {
    /// Slots: maximum number of commands in flight, 1 to 4095.
    pub slots: u16,
    /// Maximum data of one command. The controller's own limit also applies.
    pub most_bytes: u64,
    /// Linux's default timeout. After it [`Queue::expire`] aborts a command, and after the same time again it stops the controller.
    pub deadline: Duration,
}

impl Default for Depth {
    fn default() -> Depth {
        Depth { slots: 32, most_bytes: 1 << 20, deadline: Duration::from_secs(30) }
    }
}

/// Maximum number of slots of a queue: a command's number is its slot and 4 bits that count how often it was used.
pub(crate) const MOST_SLOTS: u16 = (1 << SLOT_BITS) - 1;
const SLOT_BITS: u32 = 12;

/// Maximum number of slots of a queue of such a controller: a ring has one entry more.
pub(crate) fn most_slots(cap: Capabilities) -> u16 {
    MOST_SLOTS.min((cap.queue_entries() - 1).min(u32::from(u16::MAX)) as u16).max(1)
}

/// Maximum data of one command for any controller: with 128 MiB a slot's lists stay small.
const MOST_BYTES: u64 = 128 << 20;

/// How often [`Queue::wait`] looks for a device that failed.
const LOOK: Duration = Duration::from_millis(10);

/// Memories that a slot keeps without allocating.
const KEPT: usize = 8;

/// A command that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub slot: u16,
    pub outcome: Outcome,
}

impl Done {
    /// For arrays that [`Queue::reap`] fills.
    pub const NONE: Done = Done { slot: u16::MAX, outcome: Outcome::Lost(Lost::Stopped) };

    pub fn is_success(&self) -> bool {
        matches!(self.outcome, Outcome::Status(status) if status.is_success())
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The status from the controller.
    Status(Status),
    /// It is unknown how much of it was done.
    Lost(Lost),
}

/// Why a command got no completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Lost {
    #[error("the controller was stopped while the command was in flight")]
    Stopped,
    #[error("the device is gone")]
    Gone,
}

/// What [`Queue::expire`] did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Expiry {
    /// Commands that the controller was asked to abort.
    pub aborted: u32,
    /// The controller was stopped: all its queues are closed, and commands in flight are lost.
    pub stopped: bool,
}

struct Slot {
    pointer: Pointer,
    /// Bytes that the slot is prepared for.
    bytes: u64,
    kept: Vec<Memory>,
    lists: Box<[ListPage]>,
    in_flight: bool,
    /// Counts commands; 4 bits of it are in the command's number.
    turn: u16,
    position: u64,
    /// When `expire` first saw the command, and whether it was aborted.
    seen: Option<Instant>,
    aborted: bool,
}

/// An I/O queue pair.
pub struct Queue {
    shared: Arc<Shared>,
    epoch: u64,
    number: u16,
    ring: Ring,
    slots: Box<[Slot]>,
    in_flight: u32,
    most_bytes: u64,
    deadline: Duration,
    /// An impossible completion entry: the queue takes no more commands.
    lie: Option<(u32, Lie, Completion)>,
    /// Queues and lists.
    memory: Memory,
}

// SAFETY: the list pages point into `memory`, which the queue keeps; only one owner at a time uses them.
unsafe impl Send for Queue {}

impl fmt::Debug for Queue {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "queue {}, {} commands in flight, {:?}", self.number, self.in_flight, self.ring)
    }
}

impl Queue {
    /// `largest`: the controller's limit for a command.
    pub(crate) fn new(shared: &Arc<Shared>, depth: &Depth, largest: u64) -> Result<Queue, Error> {
        let most_slots = most_slots(shared.cap);
        if depth.slots == 0 || depth.slots > most_slots {
            let why = format!("{} slots", depth.slots);
            return Err(Error::refused("an I/O queue", why, format!("ask for 1 to {most_slots}")));
        }
        let entries = u32::from(depth.slots) + 1;
        let most_bytes = depth.most_bytes.min(largest).min(MOST_BYTES);
        let per_slot = data::list_pages(most_bytes);
        let submissions = (u64::from(entries) * SUBMISSION).next_multiple_of(PAGE);
        let completions = (u64::from(entries) * COMPLETION).next_multiple_of(PAGE);
        let lists = u64::from(depth.slots) * per_slot * PAGE;
        let memory = shared.function().allocate(submissions + completions + lists)?;
        let base = memory.as_ptr().ok_or_else(|| {
            Error::refused("an I/O queue", "the CPU does not reach the memory that the bus gave", "report it")
        })?;
        let page = |index: u64| {
            let offset = submissions + completions + index * PAGE;
            let bus = contiguous(&memory, offset, PAGE)?;
            // SAFETY: within the memory, as `contiguous` has checked.
            Ok(ListPage { cpu: unsafe { base.add(offset as usize) }.cast(), bus })
        };
        let slot = |index: u16| {
            let pages = (0..per_slot).map(|i| page(u64::from(index) * per_slot + i));
            let lists = pages.collect::<Result<Box<[_]>, Error>>()?;
            let kept = Vec::with_capacity(KEPT);
            let (pointer, bytes, position) = (Pointer::NONE, 0, 0);
            Ok(Slot { pointer, bytes, kept, lists, in_flight: false, turn: 0, position, seen: None, aborted: false })
        };
        let slots = (0..depth.slots).map(slot).collect::<Result<Box<[_]>, Error>>()?;
        let at = contiguous(&memory, 0, u64::from(entries) * SUBMISSION)?;
        let completions_at = contiguous(&memory, submissions, u64::from(entries) * COMPLETION)?;

        let mut running = shared.running();
        let (epoch, granted) = (running.epoch, running.granted);
        let number = running.take_number().ok_or_else(|| {
            let why = format!("all {granted} that the controller grants are in use");
            Error::refused("an I/O queue", why, "use fewer threads: --threads")
        })?;
        drop(running);
        let doorbells = (|| {
            let tail = shared.doorbell(shared.cap.tail_doorbell(number))?;
            Ok((tail, shared.doorbell(shared.cap.head_doorbell(number))?))
        })();
        let ring = doorbells
            .and_then(|bells| Ok(Ring::new(number, entries, &memory, (0, submissions), bells)?))
            .inspect_err(|_: &Error| shared.running().give_number(number))?;
        let (shared, deadline) = (shared.clone(), depth.deadline);
        // From here on `drop` deletes the queues that the controller has made.
        let queue = Queue { shared, epoch, number, ring, slots, in_flight: 0, most_bytes, deadline, lie: None, memory };
        queue.shared.run(Entry::create_completion_queue(number, entries, completions_at))?;
        queue.shared.run(Entry::create_submission_queue(number, entries, at))?;
        Ok(queue)
    }

    pub fn number(&self) -> u16 {
        self.number
    }

    pub fn slots(&self) -> u16 {
        self.slots.len() as u16
    }

    /// The error of a device that is gone.
    pub(crate) fn gone(&self) -> Error {
        self.shared.gone()
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Maximum data of one command.
    pub fn most_bytes(&self) -> u64 {
        self.most_bytes
    }

    fn slot(&mut self, slot: u16) -> Result<&mut Slot, Error> {
        let count = self.slots.len() as u16;
        self.slots.get_mut(usize::from(slot)).ok_or(Error::Slot { slot, why: SlotError::None(count) })
    }

    /// Sets the place of the data of the slot's next commands. It stays the same until the slot is prepared again. The slot keeps the memories. Up
    /// to 8 pieces need no allocation.
    ///
    /// # Errors
    /// [`Error::Slot`] while its command is in flight; [`Error::Data`]; [`pcie::Error::OutOfBounds`].
    pub fn prepare(&mut self, slot: u16, pieces: &[Piece<'_>]) -> Result<(), Error> {
        let most = self.most_bytes;
        let of = self.slot(slot)?;
        if of.in_flight {
            return Err(Error::Slot { slot, why: SlotError::InFlight });
        }
        // The slot counts as unprepared until everything is described.
        of.bytes = 0;
        of.pointer = data::describe(pieces, most, &Lists(&of.lists))?;
        of.kept.clear();
        of.kept.extend(pieces.iter().map(|piece| piece.memory.clone()));
        of.bytes = data::total(pieces);
        Ok(())
    }

    #[inline]
    fn stage(&mut self, slot: u16, io: &Io) -> Result<(), Error> {
        let number = self.shared.number;
        let count = self.slots.len() as u16;
        let of = self.slots.get_mut(usize::from(slot)).ok_or(Error::Slot { slot, why: SlotError::None(count) })?;
        let refused = |why| Err(Error::Slot { slot, why });
        if of.in_flight {
            return refused(SlotError::InFlight);
        }
        if io.controller != number {
            return refused(SlotError::OtherController);
        }
        if io.bytes() != of.bytes && io.bytes() > 0 {
            return refused(SlotError::OtherSize { prepared: of.bytes, moved: io.bytes() });
        }
        of.turn = of.turn.wrapping_add(1);
        let id = slot | of.turn << SLOT_BITS;
        let pointer = if io.bytes() > 0 { of.pointer } else { Pointer::NONE };
        of.position = self.ring.write(&io.entry(id, pointer));
        (of.in_flight, of.seen, of.aborted) = (true, None, false);
        self.in_flight += 1;
        Ok(())
    }

    #[inline]
    fn open(&self) -> Result<(), Error> {
        if let Some((index, lie, entry)) = self.lie {
            return Err(Error::Lied { queue: self.number, index, lie, entry });
        }
        if self.shared.takes_commands(self.epoch) {
            return Ok(());
        }
        Err(if self.shared.is_gone() { self.shared.gone() } else { Error::Stopped { queue: self.number } })
    }

    /// Starts a command on a slot.
    ///
    /// # Errors
    /// [`Error::Slot`], [`Error::Lied`], [`Error::Stopped`], [`pcie::Error::Gone`]. No command was started then.
    #[inline]
    pub fn submit(&mut self, slot: u16, io: &Io) -> Result<(), Error> {
        self.open()?;
        self.stage(slot, io)?;
        self.ring.ring();
        Ok(())
    }

    /// Starts several commands with one doorbell: all of them, or none.
    ///
    /// # Errors
    /// As [`Queue::submit`].
    pub fn submit_batch(&mut self, commands: &[(u16, Io)]) -> Result<(), Error> {
        self.open()?;
        for (at, (slot, io)) in commands.iter().enumerate() {
            if let Err(error) = self.stage(*slot, io) {
                for (slot, _) in &commands[..at] {
                    self.slots[usize::from(*slot)].in_flight = false;
                }
                self.in_flight -= at as u32;
                self.ring.take_back();
                return Err(error);
            }
        }
        self.ring.ring();
        Ok(())
    }

    /// Takes commands that have ended, without waiting, and returns their number. Their slots are free again.
    ///
    /// # Errors
    /// [`Error::Lied`] if the controller wrote an impossible entry. The queue is closed then, and commands in flight are returned as lost once the
    /// controller was stopped (`Controller::reset`).
    #[inline]
    pub fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        if self.shared.is_over(self.epoch) {
            return Ok(self.reap_lost(into));
        }
        if let Some((index, lie, entry)) = self.lie {
            return Err(Error::Lied { queue: self.number, index, lie, entry });
        }
        let mut count = 0;
        while count < into.len() && self.in_flight > 0 {
            let index = self.ring.next_index();
            let taken = match self.ring.next() {
                Ok(None) => break,
                Ok(Some(entry)) => self.take(entry).map_err(|lie| (lie, entry)),
                Err(lie) => Err(lie),
            };
            match taken {
                Ok(done) => into[count] = done,
                Err((lie, entry)) => {
                    self.lie = Some((index, lie, entry));
                    break;
                }
            }
            count += 1;
        }
        match self.lie {
            // Valid entries are returned first, the error with the next call.
            Some((index, lie, entry)) if count == 0 => Err(Error::Lied { queue: self.number, index, lie, entry }),
            Some(_) => Ok(count),
            None => {
                self.ring.acknowledge();
                Ok(count)
            }
        }
    }

    /// Finds the command of an entry.
    #[inline]
    fn take(&mut self, entry: Completion) -> Result<Done, Lie> {
        let id = entry.id();
        let slot = id & MOST_SLOTS;
        let of = self.slots.get_mut(usize::from(slot)).ok_or(Lie::UnknownCommand(id))?;
        if !of.in_flight || id != slot | of.turn << SLOT_BITS {
            return Err(Lie::NotInFlight(id));
        }
        if !self.ring.was_fetched(of.position) {
            return Err(Lie::NotFetched(id));
        }
        of.in_flight = false;
        self.in_flight -= 1;
        Ok(Done { slot, outcome: Outcome::Status(entry.status()) })
    }

    #[cold]
    fn reap_lost(&mut self, into: &mut [Done]) -> usize {
        let lost = if self.shared.is_gone() { Lost::Gone } else { Lost::Stopped };
        let waiting = self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.in_flight);
        let mut count = 0;
        for (place, (slot, of)) in into.iter_mut().zip(waiting) {
            of.in_flight = false;
            *place = Done { slot: slot as u16, outcome: Outcome::Lost(lost) };
            count += 1;
        }
        self.in_flight -= count as u32;
        count
    }

    /// Checks for a device that failed or is gone, and for late commands: call it from time to time while commands are in flight. A command's time
    /// begins when this first sees it. A late command is aborted; if it is late again, the controller is stopped.
    ///
    /// # Errors
    /// [`pcie::Error::Gone`], [`Error::Fatal`], [`Error::Lied`], [`Error::Wedged`].
    pub fn expire(&mut self, now: Instant) -> Result<Expiry, Error> {
        let mut expiry = Expiry::default();
        if self.shared.is_over(self.epoch) {
            return Ok(expiry);
        }
        if let Some((index, lie, entry)) = self.lie {
            return Err(Error::Lied { queue: self.number, index, lie, entry });
        }
        match self.shared.health() {
            Health::Well => {}
            Health::Gone => return Err(self.shared.gone()),
            Health::Fatal(csts) => return Err(Error::Fatal { csts }),
        }
        let deadline = self.deadline;
        for slot in 0..self.slots.len() {
            let of = &mut self.slots[slot];
            if !of.in_flight || now.saturating_duration_since(*of.seen.get_or_insert(now)) < deadline {
                continue;
            }
            if !of.aborted {
                (of.aborted, of.seen) = (true, Some(now));
                let id = slot as u16 | of.turn << SLOT_BITS;
                expiry.aborted += 1;
                // If an abort fails, the command stays late, and the next call stops the controller.
                match self.shared.run(Entry::abort(self.number, id)) {
                    Ok(_) | Err(Error::Failed { .. }) => continue,
                    Err(error) if error.is_gone() => return Err(error),
                    Err(_) => {}
                }
            }
            self.shared.stop()?;
            expiry.stopped = true;
            break;
        }
        Ok(expiry)
    }

    /// As [`Queue::reap`], but waits until a command has ended, where one is in flight. Late commands are aborted during the wait.
    ///
    /// # Errors
    /// As [`Queue::reap`] and [`Queue::expire`].
    pub fn wait(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        loop {
            let some = |queue: &mut Queue| match queue.reap(into) {
                Ok(0) if queue.in_flight > 0 => None,
                other => Some(other),
            };
            let came = wait::until(LOOK, {
                let queue = &mut *self;
                let mut some = some;
                move || some(queue)
            });
            match came {
                Some(other) => return other,
                None => drop(self.expire(Instant::now())?),
            }
        }
    }

    /// Starts a command, and waits until it has ended: for commands that run once. No other command may be in flight. Late commands are aborted.
    ///
    /// # Errors
    /// [`Error::Failed`] with the command's status; [`Error::Stopped`] if it was lost; as [`Queue::submit`] and [`Queue::expire`].
    pub fn complete(&mut self, slot: u16, io: &Io) -> Result<(), Error> {
        if let Some(busy) = self.slots.iter().position(|slot| slot.in_flight) {
            return Err(Error::Slot { slot: busy as u16, why: SlotError::InFlight });
        }
        self.submit(slot, io)?;
        let mut done = [Done::NONE];
        self.wait(&mut done)?;
        match done[0].outcome {
            Outcome::Status(status) if status.is_success() => Ok(()),
            Outcome::Status(status) => Err(Error::Failed { command: io.name(), status }),
            Outcome::Lost(Lost::Gone) => Err(self.shared.gone()),
            Outcome::Lost(Lost::Stopped) => Err(Error::Stopped { queue: self.number }),
        }
    }

    /// Deletes both queues (sections 5.5 and 5.6): afterwards all their commands have ended.
    fn delete(&self) -> Result<(), Error> {
        for entry in [Entry::delete_submission_queue(self.number), Entry::delete_completion_queue(self.number)] {
            match self.shared.run(entry) {
                // The controller has no such queue: it was not made.
                Err(Error::Failed { status, .. }) if status.bits() & 0x7ff == 0x101 => {}
                other => drop(other?),
            }
        }
        Ok(())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        let over = |queue: &Queue| queue.shared.is_over(queue.epoch);
        if !over(self) && self.delete().is_err() && !over(self) {
            // The controller still uses the queue: it must be stopped, or the memory must stay.
            if !self.shared.is_wedged() {
                let _ = self.shared.stop();
            }
            if !over(self) {
                std::mem::forget(self.memory.clone());
                for slot in &self.slots {
                    slot.kept.iter().for_each(|memory| std::mem::forget(memory.clone()));
                }
                return;
            }
        }
        self.shared.running().give_number(self.number);
    }
}
