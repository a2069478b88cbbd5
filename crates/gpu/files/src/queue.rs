//! The engine of one thread: blocks of a file, each in a slot of pinned memory, are moved to the GPU or from it.
//!
//! A block to the GPU is read into its slot and copied by the channel; it is done when the copy's ticket is. A block from the GPU
//! is copied into its slot, and written to the file when the copy's ticket is done. The kernel and the copy engine use the same
//! memory.

use crate::error::{Errno, Error};
use crate::extents::Extents;
use crate::io::{Backend, Ended, Io, Memory, Operation, Request};
use crate::memory::{Slots, Target};
use crate::options::Options;
use crate::source::Source;
use gpu::{Channel, ChannelOptions, Copies, Engine, Region, Ticket};
use machine::Machine;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From the file to memory.
    Read,
    /// From memory to the file.
    Write,
}

/// A block that is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Done {
    pub slot: usize,
    /// Offset in the file.
    pub offset: u64,
    /// Bytes that have arrived: fewer than requested where the file ends. Or the file's error. Then no byte of the block has
    /// arrived.
    pub result: Result<usize, Errno>,
}

impl Done {
    /// A placeholder to be overwritten.
    pub const NONE: Done = Done { slot: 0, offset: 0, result: Ok(0) };
}

/// Counts of a queue's events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads and writes that the kernel ended with EINTR or EAGAIN, and that were repeated.
    pub again: u64,
    /// Reads and writes that were short before the end of the file, and were continued.
    pub short: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Counts) {
        self.again += other.again;
        self.short += other.short;
    }
}

/// How often one read or write is repeated at most.
const AGAIN: u32 = 10_000;
/// A copy that takes longer is assumed never to end.
const LATE: Duration = Duration::from_secs(10);
/// Polls between two checks of clock and channel.
const LOOK: u32 = 256;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Free,
    /// A request is pending in the kernel.
    File,
    /// It waits for room on the channel.
    Landed,
    Copying(Ticket),
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    stage: Stage,
    offset: u64,
    /// Requested bytes.
    bytes: usize,
    /// The same, rounded up to whole blocks of the drive.
    whole: usize,
    /// Bytes moved between file and slot so far.
    got: usize,
    again: u32,
}

/// The GPU side.
struct Gpu {
    // Before its channel.
    copies: Copies,
    channel: Channel,
    slots: Region,
    memory: Region,
    places: Places,
}

/// The places of blocks in memory.
#[derive(Clone, Debug)]
enum Places {
    File(Arc<Extents>),
    /// Slot n's block is at n times the bytes of a slot.
    Slots(usize),
}

/// Pending blocks between one file and memory. One thread uses it.
pub struct Queue<'m> {
    // The kernel's and the channel's work ends before the slots are dropped.
    io: Io,
    gpu: Option<Gpu>,
    memory: Slots<'m>,
    backend: Backend,
    direction: Direction,
    alignment: usize,
    slots: Box<[Slot]>,
    landed: VecDeque<usize>,
    copying: VecDeque<usize>,
    done: VecDeque<Done>,
    /// Requests that ended in one turn.
    ended: Vec<Ended>,
    /// Requests that are pending in the kernel.
    in_kernel: usize,
    counts: Counts,
}

impl<'m> Queue<'m> {
    /// Between the file and the GPU memory: `places` has the place in `memory` for bytes of the file.
    ///
    /// # Errors
    /// If there is no channel, no memory, or (`Way::Uring`) no io_uring; [`Error::Argument`] for places outside of the memory.
    pub fn new(
        machine: &'m Machine,
        source: &Source,
        direction: Direction,
        (memory, places): (&Target<'_>, &Arc<Extents>),
        options: &Options,
    ) -> Result<Queue<'m>, Error> {
        options.check()?;
        places.fit(slot_bytes(source, options) as u64)?;
        if places.memory() > memory.bytes() {
            let (needed, has) = (places.memory(), memory.bytes());
            return Err(Error::Argument(format!("the bytes need {needed} bytes of memory, which has {has}")));
        }
        Queue::with(machine, source, direction, memory, Places::File(places.clone()), options)
    }

    /// As [`Queue::new`], but slot n's blocks are at `n * slot_bytes()` in the memory, independent of their offset in the file.
    ///
    /// # Errors
    /// As [`Queue::new`].
    pub fn by_slot(
        machine: &'m Machine,
        source: &Source,
        direction: Direction,
        memory: &Target<'_>,
        options: &Options,
    ) -> Result<Queue<'m>, Error> {
        options.check()?;
        let each = slot_bytes(source, options);
        if (each * options.depth) as u64 > memory.bytes() {
            return Err(Error::Argument(format!(
                "{} slots of {each} bytes are more than the memory has",
                options.depth
            )));
        }
        Queue::with(machine, source, direction, memory, Places::Slots(each), options)
    }

    fn with(
        machine: &'m Machine,
        source: &Source,
        direction: Direction,
        memory: &Target<'_>,
        places: Places,
        options: &Options,
    ) -> Result<Queue<'m>, Error> {
        let space = machine.space()?;
        let slots = Slots::pinned(machine, slot_bytes(source, options), options.depth)?;
        let mut channel = Channel::new(space, Engine::Copy(machine.copy_engine()), ChannelOptions::default())?;
        let copies = Copies::new(&mut channel)?;
        let gpu = Gpu { copies, channel, slots: slots.region()?, memory: memory.region()?, places };
        Queue::over(source, direction, slots, Some(gpu), options)
    }

    /// Between the file and its slots only, without a GPU: measures the drive and the kernel.
    ///
    /// # Errors
    /// If there is no memory, or (`Way::Uring`) no io_uring.
    pub fn bare(source: &Source, direction: Direction, options: &Options) -> Result<Queue<'static>, Error> {
        options.check()?;
        let slots = Slots::plain(slot_bytes(source, options), options.depth)?;
        Queue::over(source, direction, slots, None, options)
    }

    fn over<'s>(
        source: &Source,
        direction: Direction,
        memory: Slots<'s>,
        gpu: Option<Gpu>,
        options: &Options,
    ) -> Result<Queue<'s>, Error> {
        let place = Memory { base: memory.base(), slot: memory.bytes, slots: memory.count };
        // SAFETY: the slots are dropped after it. The ring has its own reference to the registered file, and threads get no
        // request after the last reap; the owner of the queue keeps the source open.
        let (io, backend) = unsafe { Io::new(source.fd(), place, options.way) }?;
        let free = Slot { stage: Stage::Free, offset: 0, bytes: 0, whole: 0, got: 0, again: 0 };
        let room = || VecDeque::with_capacity(options.depth);
        Ok(Queue {
            io,
            gpu,
            memory,
            backend,
            direction,
            alignment: source.alignment(),
            slots: vec![free; options.depth].into(),
            landed: room(),
            copying: room(),
            done: VecDeque::with_capacity(options.depth),
            ended: Vec::with_capacity(options.depth),
            in_kernel: 0,
            counts: Counts::default(),
        })
    }

    /// Slots: the number of blocks that may be pending.
    pub fn depth(&self) -> usize {
        self.slots.len()
    }

    /// Bytes of a slot: the block, in whole blocks of the drive.
    pub fn slot_bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Offsets must be multiples of this.
    pub fn alignment(&self) -> usize {
        self.alignment
    }

    pub fn backend(&self) -> &Backend {
        &self.backend
    }

    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Blocks that were submitted but not reaped.
    pub fn in_flight(&self) -> usize {
        self.in_kernel + self.landed.len() + self.copying.len() + self.done.len()
    }

    /// Submits a block in a free slot. It starts with the next [`Queue::reap`] or [`Queue::wait`].
    ///
    /// # Errors
    /// [`Error::Argument`] for a slot that is in use, an offset that is not aligned, or more bytes than a slot has.
    #[inline]
    pub fn submit(&mut self, slot: usize, offset: u64, bytes: usize) -> Result<(), Error> {
        let state = self.slots.get(slot).filter(|state| state.stage == Stage::Free);
        if state.is_none() || !offset.is_multiple_of(self.alignment as u64) || bytes == 0 || bytes > self.memory.bytes {
            return Err(self.wrong(slot, offset, bytes));
        }
        let whole = bytes.next_multiple_of(self.alignment);
        self.slots[slot] = Slot { stage: Stage::File, offset, bytes, whole, got: 0, again: 0 };
        if self.direction == Direction::Write && self.gpu.is_some() {
            self.land(slot);
        } else {
            self.ask(slot);
        }
        Ok(())
    }

    #[cold]
    fn wrong(&self, slot: usize, offset: u64, bytes: usize) -> Error {
        let (slots, most, alignment) = (self.slots.len(), self.memory.bytes, self.alignment);
        Error::Argument(match self.slots.get(slot) {
            None => format!("there is no slot {slot}: there are {slots}, from 0"),
            Some(state) if state.stage != Stage::Free => format!("slot {slot} is in use: reap it first"),
            _ if bytes == 0 || bytes > most => format!("a block of {bytes} bytes: 1 to {most} are possible"),
            _ => format!("offset {offset}: direct I/O on this file needs multiples of {alignment}"),
        })
    }

    /// Continues all work that can continue without waiting, and returns the blocks that are done. Their slots are free then.
    ///
    /// # Errors
    /// [`Error::Gpu`] where the channel died, [`Error::Ring`]. Pending blocks are lost then.
    pub fn reap(&mut self, done: &mut [Done]) -> Result<usize, Error> {
        self.turn(false)?;
        Ok(self.hand_out(done))
    }

    /// As [`Queue::reap`], but waits for at least one block, if any is pending.
    ///
    /// # Errors
    /// As [`Queue::reap`]; a copy that never ends is an error after ten seconds.
    pub fn wait(&mut self, done: &mut [Done]) -> Result<usize, Error> {
        let (mut vain, mut since) = (0u32, None);
        loop {
            // Only the kernel can wake this thread, so it sleeps only when no copy is pending.
            self.turn(self.done.is_empty() && self.copying.is_empty() && self.landed.is_empty())?;
            let count = self.hand_out(done);
            if count > 0 || self.in_flight() == 0 || done.is_empty() {
                return Ok(count);
            }
            vain += 1;
            if vain.is_multiple_of(LOOK) {
                self.look(*since.get_or_insert_with(Instant::now))?;
                std::thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Checks that the channel is alive and makes progress.
    #[cold]
    fn look(&self, since: Instant) -> Result<(), Error> {
        let Some(Gpu { channel, .. }) = &self.gpu else { return Ok(()) };
        if let Some(code) = channel.error() {
            return Err(gpu::Error::ChannelKilled(code).into());
        }
        let late = since.elapsed() > LATE && self.in_kernel == 0;
        if late { Err(Error::Late { bytes: self.memory.bytes as u64, after: LATE }) } else { Ok(()) }
    }

    fn hand_out(&mut self, done: &mut [Done]) -> usize {
        let count = done.len().min(self.done.len());
        for place in &mut done[..count] {
            // There are as many as were counted.
            let Some(next) = self.done.pop_front() else { break };
            self.slots[next.slot].stage = Stage::Free;
            *place = next;
        }
        count
    }

    fn turn(&mut self, wait: bool) -> Result<(), Error> {
        self.copy_landed()?;
        if self.in_kernel > 0 {
            let mut ended = std::mem::take(&mut self.ended);
            let turned = self.io.turn(wait, |end| ended.push(end));
            self.in_kernel -= ended.len();
            for end in ended.drain(..) {
                self.ended_in_kernel(end);
            }
            self.ended = ended;
            turned?;
            self.copy_landed()?;
        }
        self.copied();
        Ok(())
    }

    /// Submits a slot's read or write, or the rest of it, to the kernel.
    fn ask(&mut self, slot: usize) {
        let state = &mut self.slots[slot];
        state.stage = Stage::File;
        let operation = match self.direction {
            Direction::Read => Operation::Read,
            Direction::Write => Operation::Write,
        };
        let (offset, within, bytes) = (state.offset + state.got as u64, state.got, state.whole - state.got);
        self.io.push(Request { slot, operation, offset, within, bytes });
        self.in_kernel += 1;
    }

    fn ended_in_kernel(&mut self, end: Ended) {
        let state = &mut self.slots[end.slot];
        let moved = match end.result {
            Ok(moved) => moved,
            Err(Errno(libc::EINTR | libc::EAGAIN)) if state.again < AGAIN => {
                state.again += 1;
                self.counts.again += 1;
                return self.ask(end.slot);
            }
            Err(errno) => return self.finish(end.slot, Err(errno)),
        };
        let had = state.got;
        let got = had + moved;
        if got >= state.bytes {
            state.got = state.bytes;
            return self.transferred(end.slot);
        }
        // The rest begins on a block of the drive. The end of a file is found when no more bytes arrive.
        state.got = got - got % self.alignment;
        if state.got > had {
            self.counts.short += 1;
            return self.ask(end.slot);
        }
        match self.direction {
            Direction::Read => {
                state.got = got;
                self.transferred(end.slot);
            }
            // The file system wrote no bytes and returned no error.
            Direction::Write => self.finish(end.slot, Err(Errno(libc::EIO))),
        }
    }

    /// All of the block has moved between file and slot.
    fn transferred(&mut self, slot: usize) {
        let got = self.slots[slot].got;
        if self.direction == Direction::Read && self.gpu.is_some() && got > 0 {
            self.land(slot);
        } else {
            self.finish(slot, Ok(got));
        }
    }

    fn land(&mut self, slot: usize) {
        self.slots[slot].stage = Stage::Landed;
        self.landed.push_back(slot);
    }

    fn finish(&mut self, slot: usize, result: Result<usize, Errno>) {
        self.done.push_back(Done { slot, offset: self.slots[slot].offset, result });
    }

    /// Submits waiting blocks to the channel, as long as it has room.
    fn copy_landed(&mut self) -> Result<(), Error> {
        let Some(gpu) = &mut self.gpu else { return Ok(()) };
        while let Some(&slot) = self.landed.front() {
            let state = &mut self.slots[slot];
            let bytes = if self.direction == Direction::Read { state.got } else { state.bytes };
            match gpu.copy(self.direction, slot, self.memory.bytes, state.offset, bytes) {
                Ok(Some(ticket)) => {
                    state.stage = Stage::Copying(ticket);
                    self.copying.push_back(slot);
                }
                // No byte of the block has a place: padding between tensors.
                Ok(None) => self.done.push_back(Done { slot, offset: state.offset, result: Ok(bytes) }),
                Err(gpu::Error::RingFull(_)) => return Ok(()),
                Err(error) => return Err(error.into()),
            }
            self.landed.pop_front();
        }
        Ok(())
    }

    /// Copies end in the order in which they were submitted.
    fn copied(&mut self) {
        while let (Some(&slot), Some(gpu)) = (self.copying.front(), &self.gpu) {
            let Stage::Copying(ticket) = self.slots[slot].stage else { return };
            if !gpu.channel.done(ticket) {
                return;
            }
            self.copying.pop_front();
            match self.direction {
                Direction::Read => self.finish(slot, Ok(self.slots[slot].got)),
                Direction::Write => self.ask(slot),
            }
        }
    }

    /// The bytes of a reaped block, until the queue is used again.
    pub fn slot(&self, slot: usize, bytes: usize) -> &[u8] {
        assert_eq!(self.slots[slot].stage, Stage::Free, "slot {slot} is in use");
        // SAFETY: no request is pending in a free slot, and none can be submitted as long as the slice is in use.
        unsafe { self.memory.slice(slot, bytes) }
    }
}

impl Gpu {
    /// Submits the copies of one block; none where no byte of the block has a place.
    #[inline]
    fn copy(
        &mut self,
        direction: Direction,
        slot: usize,
        each: usize,
        offset: u64,
        bytes: usize,
    ) -> Result<Option<Ticket>, gpu::Error> {
        self.memory.ask_where_wanted()?;
        let mut written = self.copies.begin(&mut self.channel)?;
        let (slots, memory, start) = (&self.slots, &self.memory, (slot * each) as u64);
        let mut copy = |within: u64, at: u64, bytes: u64| match direction {
            Direction::Read => written.copy((memory, at), (slots, start + within), bytes),
            Direction::Write => written.copy((slots, start + within), (memory, at), bytes),
        };
        match &self.places {
            Places::Slots(each) => copy(0, (slot * each) as u64, bytes as u64)?,
            Places::File(extents) => {
                let mut any = false;
                for part in extents.of_block(offset, bytes as u64) {
                    copy(part.within, part.at, part.bytes)?;
                    any = true;
                }
                if !any {
                    return Ok(None);
                }
            }
        }
        written.submit().map(Some)
    }
}

impl Drop for Queue<'_> {
    /// No request may write to the slots once they are dropped.
    fn drop(&mut self) {
        while self.in_kernel > 0 {
            let mut left = 0;
            let turned = self.io.turn(true, |_| left += 1);
            self.in_kernel -= left;
            if turned.is_err() {
                // The kernel may still write to the slots.
                self.memory.keep_for_ever();
                break;
            }
        }
        if let Some(gpu) = &self.gpu {
            // A channel that does not end is stopped when its memory is dropped.
            let _ = gpu.channel.idle(LATE);
        }
    }
}

impl std::fmt::Debug for Queue<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("depth", &self.depth())
            .field("slot_bytes", &self.slot_bytes())
            .field("backend", &self.backend)
            .field("in_flight", &self.in_flight())
            .finish_non_exhaustive()
    }
}

fn slot_bytes(source: &Source, options: &Options) -> usize {
    options.block.next_multiple_of(source.alignment().max(4096))
}
