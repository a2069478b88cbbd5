//! NVMe drives. An I/O is one read or write command, with its own doorbell and completion entry. An I/O that is longer than the drive's largest
//! command consists of several, and completes when all have. The data goes directly between the drive and host memory or GPU memory; the queues are
//! in host memory. A drive is written only with permission ([`nvme::Overwrite`]).

use crate::Error;
use crate::link::{Access, Beside};
use crate::queue::{Done, Place, Queue};
use crate::source::{Flow, Opened, Operation, Placed, Shape, Source, Submission, Target, Traffic, filled};
use crate::walk::IMAGES;
use drivers::nvme::{self, Controller, Depth, Io, Namespace, Outcome, Overwrite, Piece, Word};
use pcie::{Memory, Peer};
use std::time::{Duration, Instant};

/// One drive, and the namespace that is read.
pub struct Drive {
    pub controller: Controller,
    pub namespace: Namespace,
    /// To be written to.
    pub leave: Option<Overwrite>,
}

impl Drive {
    /// The same check as in `doorbell nvme write`: the permission names this drive, and the drive holds no data that somebody may miss. It is made
    /// before any I/O of the run, so what the run itself writes is no reason to refuse.
    ///
    /// # Errors
    /// [`nvme::Error::Refused`] with the reason; read errors.
    pub fn ask(&mut self, word: &Word) -> Result<(), nvme::Error> {
        let mut queue = self.controller.queue(&Depth { slots: ONE, ..Depth::default() })?;
        self.leave = Some(Overwrite::ask(&self.controller, &mut queue, &self.namespace, word)?);
        Ok(())
    }
}

/// A GPU's memory as drives access it, and as this program reads it: through the GPU, because loads of the CPU are slow there.
pub struct Gpu<'g> {
    pub peer: Peer,
    pub memory: Box<dyn Behind + 'g>,
}

/// The memory of a [`Peer`].
pub trait Behind {
    /// # Errors
    /// It cannot be written.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error>;

    /// # Errors
    /// It cannot be read.
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Error>;
}

/// Drives, and where they may read to.
pub struct Drives<'g> {
    all: Vec<Drive>,
    gpu: Option<Gpu<'g>>,
    timeout: Duration,
}

/// Bytes that the reader of reference data moves at a time.
const STEP: u64 = 128 << 10;
/// Slots of that reader.
const ONE: u16 = 1;

impl<'g> Drives<'g> {
    /// Commands that take longer than `timeout` are aborted.
    pub fn new(all: Vec<Drive>, gpu: Option<Gpu<'g>>, timeout: Duration) -> Drives<'g> {
        Drives { all, gpu, timeout }
    }
}

fn failed(error: nvme::Error) -> Error {
    Error::Device(error.to_string())
}

fn on_bus(error: pcie::Error) -> Error {
    Error::Device(error.to_string())
}

impl<'g> Source for Drives<'g> {
    fn about(&self) -> String {
        let one = |drive: &Drive| format!("{} {}", drive.controller.page().model, drive.controller.identity().address);
        let all: Vec<String> = self.all.iter().map(one).collect();
        format!("NVMe: {}", all.join(", "))
    }

    fn devices(&self) -> u32 {
        self.all.len() as u32
    }

    /// The drives write the GPU's memory, or read it; I/Os to the host do not cross the GPU's link. The queues are in host memory.
    fn traffic(&self, Flow { target, operation, .. }: Flow) -> Option<Traffic> {
        let access = match operation {
            Operation::Read => Access::Write,
            Operation::Write => Access::Read,
        };
        (target == Target::Gpu).then(|| Traffic { access, beside: Beside::default() })
    }

    fn is_functional(&self) -> bool {
        self.all.iter().any(|drive| drive.controller.is_functional())
    }

    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened<'s> + 's>, Error> {
        let Some(drives) = self.all.get(..shape.devices as usize) else {
            let what = format!("{} drives are requested, and there are {}", shape.devices, self.all.len());
            return Err(Error::Unavailable(what));
        };
        if shape.flow.submission != Submission::Doorbell {
            return Err(Error::Unavailable("only copy engines have gates".into()));
        }
        let is_write = shape.flow.operation == Operation::Write;
        let written = is_write.then_some(Written { seed: shape.seed, part: shape.part });
        let mut open = Open { queues: Vec::new(), lanes: Vec::new(), gpu: None, written };
        let (mut at, deadline) = (0, self.timeout);
        for drive in drives {
            let reach = match (shape.flow.target, &self.gpu) {
                (Target::Host, _) => None,
                (Target::Gpu, Some(gpu)) => Some(drive.controller.reach(&gpu.peer).map_err(failed)?),
                (Target::Gpu, None) => {
                    return Err(Error::Unavailable("no GPU was given whose memory can be a target".into()));
                }
            };
            let leave = drive.leave.as_ref().filter(|_| is_write);
            if is_write && leave.is_none() {
                let address = drive.controller.identity().address;
                return Err(Error::Unavailable(format!("no option allows the loss of the data on {address}")));
            }
            let block = drive.namespace.block_bytes();
            let needs = shape.part * IMAGES * u64::from(shape.queues);
            if !shape.bytes.is_multiple_of(block) || needs > drive.namespace.bytes() {
                let what = format!(
                    "{needs} bytes in I/Os of {} on a namespace of {} in blocks of {block}",
                    shape.bytes,
                    drive.namespace.bytes()
                );
                return Err(Error::Unavailable(what));
            }
            for queue in 0..u64::from(shape.queues) {
                let memory = match &reach {
                    Some(memory) => memory.clone(),
                    None => drive.controller.allocate(shape.part).map_err(failed)?,
                };
                let base = if reach.is_some() { at } else { 0 };
                memory.holds(base, shape.part).map_err(on_bus)?;
                let slots = u16::try_from(shape.depth)
                    .map_err(|_| Error::Unavailable("a queue has 65,535 slots at most".into()))?;
                let (parts, most) = parts(shape.bytes, drive.controller.largest_transfer(), block)?;
                let needed = u32::from(slots) * u32::from(parts);
                let room = drive.controller.largest_depth();
                let slots = u16::try_from(needed).ok().filter(|slots| *slots <= room).ok_or_else(|| {
                    let what = format!(
                        "{needed} commands of {most} bytes for {} I/Os of {}: a queue of this drive has {room}",
                        shape.depth, shape.bytes
                    );
                    Error::Unavailable(what)
                })?;
                let depth = Depth { slots, most_bytes: most, deadline };
                let taken = drive.controller.queue(&depth).map_err(failed)?;
                let from = queue * IMAGES * shape.part;
                open.queues.push(Box::new(Commands {
                    leave: leave.cloned(),
                    queue: taken,
                    namespace: drive.namespace.clone(),
                    target: memory.clone(),
                    base,
                    block: from / block,
                    bytes: shape.bytes,
                    parts,
                    most,
                    under_way: vec![UnderWay::default(); if parts > 1 { shape.depth as usize } else { 0 }],
                    gathered: Vec::with_capacity(shape.batch as usize * usize::from(parts)),
                    batch: shape.batch.max(1) as usize * usize::from(parts),
                    done: [nvme::Done::NONE; LOOK],
                    idle: 0,
                }));
                let reader =
                    drive.controller.queue(&Depth { slots: ONE, most_bytes: STEP, deadline }).map_err(failed)?;
                let staging = drive.controller.allocate(STEP).map_err(failed)?;
                open.lanes.push(Lane {
                    reader,
                    staging,
                    namespace: drive.namespace.clone(),
                    leave: leave.cloned(),
                    from,
                    memory,
                    base,
                });
                at += shape.part;
            }
        }
        if let (Target::Gpu, Some(gpu)) = (shape.flow.target, &mut self.gpu) {
            open.gpu = Some(&mut *gpu.memory);
        }
        open.fill()?;
        Ok(Box::new(open))
    }
}

/// The number of commands of an I/O of this size, and the maximum bytes of each: whole pages and whole blocks.
fn parts(bytes: u64, largest: u64, block: u64) -> Result<(u16, u64), Error> {
    // A command counts blocks with 16 bits.
    let largest = largest.min(block << 16);
    if bytes <= largest {
        return Ok((1, bytes));
    }
    let unit = block.max(4096);
    let most = largest / unit * unit;
    let parts = if most == 0 { 0 } else { bytes.div_ceil(most) };
    match u16::try_from(parts) {
        Ok(parts) if parts > 0 => Ok((parts, most)),
        _ => Err(Error::Unavailable(format!("I/Os of {bytes} bytes, and the drive moves {largest} by a command"))),
    }
}

/// For one queue: a separate reader of the drive, and the queue's part of the target.
struct Lane {
    reader: nvme::Queue,
    staging: Memory,
    namespace: Namespace,
    leave: Option<Overwrite>,
    /// Where its bytes begin on the drive.
    from: u64,
    memory: Memory,
    base: u64,
}

/// What writes take to the drives: the bytes of the targets, which do not change.
#[derive(Clone, Copy)]
struct Written {
    seed: u64,
    part: u64,
}

struct Open<'s, 'g> {
    queues: Vec<Box<dyn Queue>>,
    lanes: Vec<Lane>,
    gpu: Option<&'s mut (dyn Behind + 'g)>,
    written: Option<Written>,
}

/// Bytes of a target that are filled in one step.
const FILL: u64 = 4 << 20;

impl Open<'_, '_> {
    /// The targets of writes.
    fn fill(&mut self) -> Result<(), Error> {
        let Some(Written { seed, part }) = self.written else { return Ok(()) };
        let mut bytes = Vec::new();
        for queue in 0..self.lanes.len() {
            let mut at = 0;
            while at < part {
                bytes.resize((part - at).min(FILL) as usize, 0);
                filled(seed, queue, at, &mut bytes);
                self.store(queue, at, &bytes)?;
                at += bytes.len() as u64;
            }
        }
        Ok(())
    }

    fn store(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let lane = &self.lanes[queue];
        match &mut self.gpu {
            Some(gpu) => gpu.write(lane.base + at, bytes),
            None => lane.memory.store(lane.base + at, bytes).map_err(on_bus),
        }
    }
}

impl Lane {
    /// Bytes that one command of the reader moves: less than `STEP` on a drive whose commands are short.
    fn step(&self, block: u64) -> u64 {
        (self.reader.most_bytes().min(STEP) / block * block).max(block)
    }

    /// Reads the drive's bytes with a separate queue into separate memory.
    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let block = self.namespace.block_bytes();
        let step = self.step(block);
        for (n, part) in into.chunks_mut(step as usize).enumerate() {
            let (first, bytes) = (self.from + at + n as u64 * step, part.len() as u64);
            self.reader.prepare(0, &[Piece::new(&self.staging, 0, bytes)]).map_err(failed)?;
            let io = self.namespace.read(first / block, bytes / block).map_err(failed)?;
            self.reader.complete(0, &io).map_err(failed)?;
            self.staging.load(0, part).map_err(on_bus)?;
        }
        Ok(())
    }

    /// The opposite direction, only with permission.
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let Some(leave) = &self.leave else {
            return Err(Error::Unavailable("without leave nothing is written".into()));
        };
        let block = self.namespace.block_bytes();
        let step = self.step(block);
        for (n, part) in bytes.chunks(step as usize).enumerate() {
            let (first, bytes) = (self.from + at + n as u64 * step, part.len() as u64);
            self.staging.store(0, part).map_err(on_bus)?;
            self.reader.prepare(0, &[Piece::new(&self.staging, 0, bytes)]).map_err(failed)?;
            let io = leave.write(first / block, bytes / block).map_err(failed)?;
            self.reader.complete(0, &io).map_err(failed)?;
        }
        Ok(())
    }
}

impl<'s> Opened<'s> for Open<'s, '_> {
    fn queues(&mut self) -> Vec<Box<dyn Queue + 's>> {
        std::mem::take(&mut self.queues)
    }

    /// Writes end at the device's place of each.
    fn placed(&self) -> Placed {
        if self.written.is_some() { Placed::Apart } else { Placed::Over }
    }

    /// If a drive holds the same bytes everywhere, a comparison finds little.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let Some(Written { seed, part }) = self.written else { return self.lanes[queue].read(at, into) };
        // One image follows the other, and a range may have parts of both.
        let first = ((part - at % part) as usize).min(into.len());
        let (into, rest) = into.split_at_mut(first);
        filled(seed, queue, at % part, into);
        if rest.is_empty() { Ok(()) } else { self.device_bytes(queue, at + first as u64, rest) }
    }

    fn write_target(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        match self.written {
            Some(_) => self.lanes[queue].write(at, bytes),
            None => self.store(queue, at, bytes),
        }
    }

    fn read_target(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        if self.written.is_some() {
            return self.lanes[queue].read(at, into);
        }
        let lane = &self.lanes[queue];
        match &mut self.gpu {
            Some(gpu) => gpu.read(lane.base + at, into),
            None => lane.memory.load(lane.base + at, into).map_err(on_bus),
        }
    }
}

/// Completions that one look takes.
const LOOK: usize = 64;
/// Empty polls before this queue checks for a drive that failed or a late command.
const VAIN: u32 = 1 << 12;

/// An I/O of several commands.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    /// Commands that have not ended.
    left: u16,
    /// The first status that is no success.
    status: u32,
}

struct Commands {
    /// For writes.
    leave: Option<Overwrite>,
    queue: nvme::Queue,
    namespace: Namespace,
    target: Memory,
    base: u64,
    /// The first block of this queue's.
    block: u64,
    bytes: u64,
    /// Commands of one I/O, and the maximum bytes of each.
    parts: u16,
    most: u64,
    /// The state of each I/O that consists of several commands.
    under_way: Vec<UnderWay>,
    gathered: Vec<(u16, Io)>,
    batch: usize,
    done: [nvme::Done; LOOK],
    idle: u32,
}

impl Commands {
    /// Submits one command: `bytes` from `at` on within an I/O.
    #[inline]
    fn command(&mut self, slot: u16, place: Place, at: u64, bytes: u64) -> Result<(), Error> {
        let block = self.namespace.block_bytes();
        let piece = Piece::new(&self.target, self.base + place.target + at, bytes);
        self.queue.prepare(slot, &[piece]).map_err(failed)?;
        let (first, blocks) = (self.block + (place.device + at) / block, bytes / block);
        let io = match &self.leave {
            Some(leave) => leave.write(first, blocks),
            None => self.namespace.read(first, blocks),
        };
        let io = io.map_err(failed)?;
        if self.batch == 1 {
            return self.queue.submit(slot, &io).map_err(failed);
        }
        self.gathered.push((slot, io));
        if self.gathered.len() < self.batch { Ok(()) } else { self.ring() }
    }

    /// A command of an I/O has ended: returns the I/O's status if it was the last one.
    fn ended(&mut self, slot: u16, status: u32) -> Option<Done> {
        if self.parts == 1 {
            return Some(Done { slot: slot.into(), status });
        }
        let io = slot / self.parts;
        let of = &mut self.under_way[usize::from(io)];
        of.left -= 1;
        if of.status == 0 {
            of.status = status;
        }
        (of.left == 0).then_some(Done { slot: io.into(), status: of.status })
    }
}

impl Queue for Commands {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        if self.parts == 1 {
            return self.command(slot as u16, place, 0, self.bytes);
        }
        self.under_way[slot as usize] = UnderWay { left: self.parts, status: 0 };
        for part in 0..self.parts {
            let at = u64::from(part) * self.most;
            let bytes = self.most.min(self.bytes - at);
            self.command(slot as u16 * self.parts + part, place, at, bytes)?;
        }
        Ok(())
    }

    fn ring(&mut self) -> Result<(), Error> {
        if !self.gathered.is_empty() {
            self.queue.submit_batch(&self.gathered).map_err(failed)?;
            self.gathered.clear();
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        let room = into.len().min(LOOK);
        let count = self.queue.reap(&mut self.done[..room]).map_err(failed)?;
        let mut ended = 0;
        for n in 0..count {
            let status = match self.done[n].outcome {
                Outcome::Status(status) => status.bits().into(),
                Outcome::Lost(lost) => return Err(Error::Device(lost.to_string())),
            };
            if let Some(done) = self.ended(self.done[n].slot, status) {
                into[ended] = done;
                ended += 1;
            }
        }
        self.idle = if count > 0 { 0 } else { self.idle + 1 };
        if self.idle == VAIN {
            self.idle = 0;
            self.queue.expire(Instant::now()).map_err(failed)?;
        }
        Ok(ended)
    }
}
