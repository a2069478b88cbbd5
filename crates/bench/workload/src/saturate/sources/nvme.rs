//! NVMe drives. An I/O is one read command, with its own doorbell and completion entry. An I/O that is longer than the drive's largest command
//! consists of several, and completes when all have. The data goes directly from the drive to host memory or GPU memory; the queues are in host
//! memory.

use crate::saturate::queue::{Done, Place, Queue};
use crate::saturate::source::{Opened, Shape, Source, Target};
use crate::saturate::walk::IMAGES;
use crate::{Buffer, Error, Unavailable};
use drivers::nvme::{self, Controller, Depth, Io, Namespace, Outcome, Piece};
use pcie::{Memory, Peer};
use std::time::{Duration, Instant};

/// One drive, and the namespace that is read.
pub struct Drive {
    pub controller: Controller,
    pub namespace: Namespace,
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

impl Behind for Buffer<'_> {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        Buffer::write(self, at as i64, bytes)
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        Buffer::read(self, at as i64, into)
    }
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

impl<'g> Source for Drives<'g> {
    fn about(&self) -> String {
        let one = |drive: &Drive| format!("{} {}", drive.controller.page().model, drive.controller.identity().address);
        let all: Vec<String> = self.all.iter().map(one).collect();
        format!("NVMe: {}", all.join(", "))
    }

    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened<'s> + 's>, Error> {
        let Some(drives) = self.all.get(..shape.devices as usize) else {
            let what = format!("{} drives are requested, and there are {}", shape.devices, self.all.len());
            return Err(Unavailable::new(what).into());
        };
        if shape.armed {
            return Err(Unavailable::new("only copy engines have gates").into());
        }
        let mut open = Open { queues: Vec::new(), lanes: Vec::new(), gpu: None };
        let (mut at, deadline) = (0, self.timeout);
        for drive in drives {
            let reach = match (shape.target, &self.gpu) {
                (Target::Host, _) => None,
                (Target::Gpu, Some(gpu)) => Some(drive.controller.reach(&gpu.peer).map_err(Error::card)?),
                (Target::Gpu, None) => {
                    return Err(Unavailable::new("no GPU was given whose memory can be a target").into());
                }
            };
            let block = drive.namespace.block_bytes();
            let needs = shape.part * IMAGES * u64::from(shape.queues);
            if !shape.bytes.is_multiple_of(block) || needs > drive.namespace.bytes() {
                let what = format!(
                    "{needs} bytes in I/Os of {} on a namespace of {} in blocks of {block}",
                    shape.bytes,
                    drive.namespace.bytes()
                );
                return Err(Unavailable::new(what).into());
            }
            for queue in 0..u64::from(shape.queues) {
                let memory = match &reach {
                    Some(memory) => memory.clone(),
                    None => drive.controller.allocate(shape.part).map_err(Error::card)?,
                };
                let base = if reach.is_some() { at } else { 0 };
                memory.holds(base, shape.part)?;
                let slots =
                    u16::try_from(shape.depth).map_err(|_| Unavailable::new("a queue has 65,535 slots at most"))?;
                let (parts, most) = parts(shape.bytes, drive.controller.largest_transfer(), block)?;
                let needed = u32::from(slots) * u32::from(parts);
                let room = drive.controller.largest_depth();
                let slots = u16::try_from(needed).ok().filter(|slots| *slots <= room).ok_or_else(|| {
                    let what = format!(
                        "{needed} commands of {most} bytes for {} I/Os of {}: a queue of this drive has {room}",
                        shape.depth, shape.bytes
                    );
                    Unavailable::new(what)
                })?;
                let depth = Depth { slots, most_bytes: most, deadline };
                let taken = drive.controller.queue(&depth).map_err(Error::card)?;
                let from = queue * IMAGES * shape.part;
                open.queues.push(Box::new(Commands {
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
                    drive.controller.queue(&Depth { slots: ONE, most_bytes: STEP, deadline }).map_err(Error::card)?;
                let staging = drive.controller.allocate(STEP).map_err(Error::card)?;
                open.lanes.push(Lane { reader, staging, namespace: drive.namespace.clone(), from, memory, base });
                at += shape.part;
            }
        }
        if let (Target::Gpu, Some(gpu)) = (shape.target, &mut self.gpu) {
            open.gpu = Some(&mut *gpu.memory);
        }
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
        _ => Err(Unavailable::new(format!("I/Os of {bytes} bytes, and the drive moves {largest} by a command")).into()),
    }
}

/// For one queue: a separate reader of the drive, and the queue's part of the target.
struct Lane {
    reader: nvme::Queue,
    staging: Memory,
    namespace: Namespace,
    /// Where its bytes begin on the drive.
    from: u64,
    memory: Memory,
    base: u64,
}

struct Open<'s, 'g> {
    queues: Vec<Box<dyn Queue>>,
    lanes: Vec<Lane>,
    gpu: Option<&'s mut (dyn Behind + 'g)>,
}

impl Open<'_, '_> {
    fn store(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let lane = &self.lanes[queue];
        match &mut self.gpu {
            Some(gpu) => gpu.write(lane.base + at, bytes),
            None => Ok(lane.memory.store(lane.base + at, bytes)?),
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
            self.reader.prepare(0, &[Piece::new(&self.staging, 0, bytes)]).map_err(Error::card)?;
            let io = self.namespace.read(first / block, bytes / block).map_err(Error::card)?;
            self.reader.complete(0, &io).map_err(Error::card)?;
            self.staging.load(0, part)?;
        }
        Ok(())
    }
}

impl<'s> Opened<'s> for Open<'s, '_> {
    fn queues(&mut self) -> Vec<Box<dyn Queue + 's>> {
        std::mem::take(&mut self.queues)
    }

    /// If a drive holds the same bytes everywhere, a comparison finds little.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.lanes[queue].read(at, into)
    }

    fn write_target(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.store(queue, at, bytes)
    }

    fn read_target(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let lane = &self.lanes[queue];
        match &mut self.gpu {
            Some(gpu) => gpu.read(lane.base + at, into),
            None => Ok(lane.memory.load(lane.base + at, into)?),
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
        self.queue.prepare(slot, &[piece]).map_err(Error::card)?;
        let (first, blocks) = (self.block + (place.device + at) / block, bytes / block);
        let io = self.namespace.read(first, blocks).map_err(Error::card)?;
        if self.batch == 1 {
            return self.queue.submit(slot, &io).map_err(Error::card);
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
            self.queue.submit_batch(&self.gathered).map_err(Error::card)?;
            self.gathered.clear();
        }
        Ok(())
    }

    #[inline]
    fn reap(&mut self, into: &mut [Done]) -> Result<usize, Error> {
        let room = into.len().min(LOOK);
        let count = self.queue.reap(&mut self.done[..room]).map_err(Error::card)?;
        let mut ended = 0;
        for n in 0..count {
            let status = match self.done[n].outcome {
                Outcome::Status(status) => status.bits().into(),
                Outcome::Lost(lost) => return Err(Error::Told(lost.to_string())),
            };
            if let Some(done) = self.ended(self.done[n].slot, status) {
                into[ended] = done;
                ended += 1;
            }
        }
        self.idle = if count > 0 { 0 } else { self.idle + 1 };
        if self.idle == VAIN {
            self.idle = 0;
            self.queue.expire(Instant::now()).map_err(Error::card)?;
        }
        Ok(ended)
    }
}
