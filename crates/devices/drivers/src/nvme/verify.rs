//! A random mix of reads and writes, each compared with a reference.
//!
//! The reference is what the blocks held at the beginning, read once into host memory; each write changes it as well. Every slot has its own
//! blocks, so it reads its own last writes. Without permission to write the mix has only reads.

use crate::nvme::controller::Controller;
use crate::nvme::data::Piece;
use crate::nvme::error::Error;
use crate::nvme::namespace::Namespace;
use crate::nvme::overwrite::Overwrite;
use crate::nvme::queue::{Depth, Done, Lost, Outcome, Queue};
use crate::nvme::transfer::{self, Stretch};
use fastrand::Rng;
use pcie::Memory;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory that commands move data to and from, and a way for this process to see it.
pub trait Target: Sync {
    fn memory(&self) -> &Memory;

    /// # Errors
    /// An error if the bytes do not exist or are not visible.
    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Error>;

    /// # Errors
    /// As [`Target::load`].
    fn store(&self, offset: u64, from: &[u8]) -> Result<(), Error>;
}

impl Target for Memory {
    fn memory(&self) -> &Memory {
        self
    }

    fn load(&self, offset: u64, into: &mut [u8]) -> Result<(), Error> {
        Ok(Memory::load(self, offset, into)?)
    }

    fn store(&self, offset: u64, from: &[u8]) -> Result<(), Error> {
        Ok(Memory::store(self, offset, from)?)
    }
}

/// The parameters of a mix.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Queues, each with a thread.
    pub queues: u16,
    /// Commands in flight in each.
    pub slots: u16,
    /// The longest command, in bytes: a multiple of the block, and of 4096.
    pub largest: u64,
    /// The mix uses this many bytes from the first block on.
    pub span: u64,
    /// Total bytes to move.
    pub bytes: u64,
    pub seed: u64,
}

/// The result of a mix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verified {
    pub reads: u64,
    pub writes: u64,
    pub bytes_read: u64,
    pub bytes_written: u64,
    /// Reads that returned wrong bytes, and the first wrong byte of the device.
    pub wrong: u64,
    pub first_wrong: Option<u64>,
    /// It was stopped before all bytes were moved; the final read of all blocks was skipped.
    pub stopped: bool,
}

impl Verified {
    fn add(self, other: Verified) -> Verified {
        Verified {
            reads: self.reads + other.reads,
            writes: self.writes + other.writes,
            bytes_read: self.bytes_read + other.bytes_read,
            bytes_written: self.bytes_written + other.bytes_written,
            wrong: self.wrong + other.wrong,
            first_wrong: [self.first_wrong, other.first_wrong].into_iter().flatten().min(),
            stopped: self.stopped || other.stopped,
        }
    }
}

impl Mix {
    fn slots_in_all(&self) -> u64 {
        u64::from(self.queues) * u64::from(self.slots)
    }

    /// Bytes that a target needs.
    pub fn target_bytes(&self) -> u64 {
        self.slots_in_all() * self.largest
    }

    /// Bytes of one slot's part of the device: whole longest commands.
    fn part(&self) -> u64 {
        self.span / self.slots_in_all() / self.largest * self.largest
    }

    fn check(&self, namespace: &Namespace, target: &dyn Target) -> Result<(), Error> {
        let refused = |why: String, hint: &str| Err(Error::refused("the mix", why, hint));
        let block = namespace.block_bytes();
        if self.slots_in_all() == 0 || self.largest == 0 || !self.largest.is_multiple_of(block.max(4096)) {
            return refused(format!("commands of {} B in no slot", self.largest), "take multiples of 4096 B");
        }
        if self.span > namespace.bytes() || self.part() == 0 {
            let (span, slots) = (self.span, self.slots_in_all());
            let why = format!("{span} B of {} for {slots} slots of {} B", namespace.bytes(), self.largest);
            return refused(why, "fewer --threads, a smaller --depth or --largest, or a larger --span");
        }
        Ok(target.memory().holds(0, self.target_bytes())?)
    }
}

/// A mix that ended with an error, and its results up to then.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct Broken {
    pub error: Error,
    pub before: Verified,
}

impl From<Error> for Box<Broken> {
    fn from(error: Error) -> Box<Broken> {
        Box::new(Broken { error, before: Verified::default() })
    }
}

/// Runs the mix on new queues. Once `stop` returns true, or a command of any queue has failed, no other command begins, and those in flight are
/// waited for.
///
/// # Errors
/// The error of the first command that failed, with its blocks, and errors of allocation and of queues. Wrong bytes are no error: they are counted.
pub fn verify(
    controller: &Controller,
    namespace: &Namespace,
    leave: Option<&Overwrite>,
    target: &dyn Target,
    mix: &Mix,
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Verified, Box<Broken>> {
    mix.check(namespace, target)?;
    let depth = Depth { slots: mix.slots, most_bytes: mix.largest, ..Depth::default() };
    let queues = (0..mix.queues).map(|_| controller.queue(&depth)).collect::<Result<Vec<_>, _>>()?;
    let failed = AtomicBool::new(false);
    let stop = || failed.load(Ordering::Relaxed) || stop();
    let ended: Vec<(Verified, Result<(), Error>)> = std::thread::scope(|scope| {
        let start = |(queue, index): (Queue, u64)| {
            let (sum, failed) = (Verified::default(), &failed);
            let mut thread = Thread { controller, namespace, leave, target, mix, stop: &stop, index, sum };
            scope.spawn(move || {
                let ended = thread.run(queue).inspect_err(|_| failed.store(true, Ordering::Relaxed));
                (thread.sum, ended)
            })
        };
        let threads: Vec<_> = queues.into_iter().zip(0..).map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect()
    });
    let before = ended.iter().fold(Verified::default(), |sum, (one, _)| sum.add(*one));
    match ended.into_iter().find_map(|(_, ended)| ended.err()) {
        Some(error) => Err(Box::new(Broken { error, before })),
        None => Ok(before),
    }
}

/// What one queue's thread does.
struct Thread<'a> {
    controller: &'a Controller,
    namespace: &'a Namespace,
    leave: Option<&'a Overwrite>,
    target: &'a dyn Target,
    mix: &'a Mix,
    stop: &'a (dyn Fn() -> bool + Sync),
    index: u64,
    sum: Verified,
}

/// A command in flight.
#[derive(Clone, Copy, Default)]
struct Running {
    /// Offset in the thread's reference.
    from: u64,
    bytes: u64,
    is_write: bool,
}

impl Thread<'_> {
    fn run(&mut self, mut queue: Queue) -> Result<(), Error> {
        let slots = u64::from(self.mix.slots);
        let base = self.index * slots * self.mix.part();
        let Some(mut reference) = self.read_all(&mut queue, base, slots * self.mix.part())? else {
            return Ok(());
        };
        let share = self.mix.bytes / u64::from(self.mix.queues);
        let mut random = Rng::with_seed(self.mix.seed ^ (self.index + 1) << 48);
        let mut running = vec![Running::default(); slots as usize];
        let mut scratch = vec![0; self.mix.largest as usize];
        for slot in 0..self.mix.slots {
            if self.is_stopped() {
                break;
            }
            running[usize::from(slot)] =
                self.start(&mut queue, slot, base, &mut reference, &mut random, &mut scratch)?;
        }
        let mut done = [Done::NONE; 32];
        let mut failed = None;
        while queue.in_flight() > 0 {
            let count = queue.wait(&mut done)?;
            for one in &done[..count] {
                let ran = running[usize::from(one.slot)];
                match one.outcome {
                    Outcome::Status(status) if status.is_success() => {}
                    Outcome::Status(status) => {
                        let block = self.namespace.block_bytes();
                        let (first, command) = ((base + ran.from) / block, if ran.is_write { "Write" } else { "Read" });
                        let last = first + ran.bytes / block - 1;
                        failed.get_or_insert(Error::FailedAt { command, first, last, status });
                        continue;
                    }
                    Outcome::Lost(Lost::Gone) => return Err(queue.gone()),
                    Outcome::Lost(Lost::Stopped) => return Err(Error::Stopped { queue: queue.number() }),
                }
                self.ended(one.slot, ran, base, &reference, &mut scratch)?;
                let is_over = self.sum.bytes_read + self.sum.bytes_written >= share || failed.is_some();
                if !is_over && !self.is_stopped() {
                    let next = self.start(&mut queue, one.slot, base, &mut reference, &mut random, &mut scratch)?;
                    running[usize::from(one.slot)] = next;
                }
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if self.leave.is_some() {
            queue.complete(0, &self.namespace.flush())?;
            if let Some(now) = self.read_all(&mut queue, base, slots * self.mix.part())? {
                self.compare(base, &now, &reference);
            }
        }
        Ok(())
    }

    fn is_stopped(&mut self) -> bool {
        self.sum.stopped = self.sum.stopped || (self.stop)();
        self.sum.stopped
    }

    /// None if it was stopped.
    fn read_all(&mut self, queue: &mut Queue, from: u64, bytes: u64) -> Result<Option<Vec<u8>>, Error> {
        let step = bytes.min(8 << 20) / self.mix.largest * self.mix.largest;
        let memory = self.controller.allocate(step)?;
        let mut all = vec![0; bytes as usize];
        let mut at = 0;
        while at < bytes {
            if self.is_stopped() {
                return Ok(None);
            }
            let part = step.min(bytes - at);
            let block = (from + at) / self.namespace.block_bytes();
            transfer::read(queue, self.namespace, &Stretch { block, bytes: part, memory: &memory, offset: 0 })?;
            memory.load(0, &mut all[at as usize..(at + part) as usize])?;
            at += part;
        }
        Ok(Some(all))
    }

    /// The offset of the slot's data in the target.
    fn place(&self, slot: u16) -> u64 {
        (self.index * u64::from(self.mix.slots) + u64::from(slot)) * self.mix.largest
    }

    fn start(
        &mut self,
        queue: &mut Queue,
        slot: u16,
        base: u64,
        reference: &mut [u8],
        random: &mut Rng,
        scratch: &mut [u8],
    ) -> Result<Running, Error> {
        let (part, block) = (self.mix.part(), self.namespace.block_bytes());
        let bytes = (random.u64(..self.mix.largest / block) + 1) * block;
        let from = u64::from(slot) * part + random.u64(..=(part - bytes) / block) * block;
        let within = from as usize..(from + bytes) as usize;
        queue.prepare(slot, &[Piece::new(self.target.memory(), self.place(slot), bytes)])?;
        let leave = self.leave.filter(|_| random.bool());
        let (at, blocks) = ((base + from) / block, bytes / block);
        let scratch = &mut scratch[..bytes as usize];
        let io = match leave {
            Some(leave) => {
                random.fill(scratch);
                self.target.store(self.place(slot), scratch)?;
                reference[within].copy_from_slice(scratch);
                leave.write(at, blocks)?
            }
            None => {
                // Bytes that the read does not write must be wrong.
                reference[within].iter().zip(&mut *scratch).for_each(|(right, wrong)| *wrong = !right);
                self.target.store(self.place(slot), scratch)?;
                self.namespace.read(at, blocks)?
            }
        };
        queue.submit(slot, &io)?;
        Ok(Running { from, bytes, is_write: leave.is_some() })
    }

    fn ended(
        &mut self,
        slot: u16,
        running: Running,
        base: u64,
        reference: &[u8],
        scratch: &mut [u8],
    ) -> Result<(), Error> {
        let Running { from, bytes, is_write } = running;
        if is_write {
            self.sum.writes += 1;
            self.sum.bytes_written += bytes;
            return Ok(());
        }
        self.sum.reads += 1;
        self.sum.bytes_read += bytes;
        let found = &mut scratch[..bytes as usize];
        self.target.load(self.place(slot), found)?;
        self.compare(base + from, found, &reference[from as usize..(from + bytes) as usize]);
        Ok(())
    }

    fn compare(&mut self, from: u64, found: &[u8], expected: &[u8]) {
        if found != expected {
            let at = found.iter().zip(expected).position(|(found, expected)| found != expected).unwrap_or(0);
            self.sum.wrong += 1;
            let at = from + at as u64;
            self.sum.first_wrong = Some(self.sum.first_wrong.map_or(at, |first| first.min(at)));
        }
    }
}
