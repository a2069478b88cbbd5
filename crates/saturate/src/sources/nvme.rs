//! NVMe drives: an I/O is one read command, with a doorbell and a completion entry of its own. The data go to host memory or straight to a
//! GPU's; queues lie in host memory. Nothing is written to a drive.

use crate::Error;
use crate::link::{Access, Beside};
use crate::queue::{Done, Place, Queue};
use crate::source::{Flow, Opened, Shape, Source, Target, Traffic};
use crate::walk::IMAGES;
use nvme::{Controller, Depth, Io, Namespace, Outcome, Piece};
use pcie::{Memory, Peer};
use std::time::{Duration, Instant};

/// One drive, and which of its namespaces is read.
pub struct Drive {
    pub controller: Controller,
    pub namespace: Namespace,
}

/// A GPU's memory as drives reach it, and as it is looked at: through the GPU, for loads of the CPU are slow there.
pub struct Gpu<'g> {
    pub peer: Peer,
    pub memory: Box<dyn Behind + 'g>,
}

/// The memory behind a [`Peer`].
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

/// What a reader of reference bytes moves at a time.
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

    /// The drives write into the GPU's memory; what goes to the host does not cross the GPU's link. Queues lie in host memory.
    fn traffic(&self, Flow { target, .. }: Flow) -> Option<Traffic> {
        (target == Target::Gpu).then(|| Traffic { access: Access::Write, beside: Beside::default() })
    }

    fn is_functional(&self) -> bool {
        self.all.iter().any(|drive| drive.controller.is_functional())
    }

    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened + 's>, Error> {
        let Some(drives) = self.all.get(..shape.devices as usize) else {
            let what = format!("{} drives are asked for, and there are {}", shape.devices, self.all.len());
            return Err(Error::Unavailable(what));
        };
        let mut open = Open { queues: Vec::new(), lanes: Vec::new(), gpu: None };
        let (mut at, deadline) = (0, self.timeout);
        for drive in drives {
            let reach = match (shape.flow.target, &self.gpu) {
                (Target::Host, _) => None,
                (Target::Gpu, Some(gpu)) => Some(drive.controller.reach(&gpu.peer).map_err(failed)?),
                (Target::Gpu, None) => return Err(Error::Unavailable("no GPU's memory was given as a target".into())),
            };
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
                let depth = Depth { slots, most_bytes: shape.bytes, deadline };
                let taken = drive.controller.queue(&depth).map_err(failed)?;
                let from = queue * IMAGES * shape.part;
                open.queues.push(Box::new(Reads {
                    queue: taken,
                    namespace: drive.namespace.clone(),
                    target: memory.clone(),
                    base,
                    block: from / block,
                    bytes: shape.bytes,
                    gathered: Vec::with_capacity(shape.batch as usize),
                    batch: shape.batch.max(1) as usize,
                    done: [nvme::Done::NONE; LOOK],
                    idle: 0,
                }));
                let reader =
                    drive.controller.queue(&Depth { slots: ONE, most_bytes: STEP, deadline }).map_err(failed)?;
                let staging = drive.controller.allocate(STEP).map_err(failed)?;
                open.lanes.push(Lane { reader, staging, namespace: drive.namespace.clone(), from, memory, base });
                at += shape.part;
            }
        }
        if let (Target::Gpu, Some(gpu)) = (shape.flow.target, &mut self.gpu) {
            open.gpu = Some(&mut *gpu.memory);
        }
        Ok(Box::new(open))
    }
}

/// Of one queue: what reads the drive apart from it, and its part of the target.
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

impl Opened for Open<'_, '_> {
    fn queues(&mut self) -> Vec<Box<dyn Queue>> {
        std::mem::take(&mut self.queues)
    }

    /// By reads of a queue of its own, into memory of its own. Of a drive that holds the same bytes everywhere they say little.
    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let lane = &mut self.lanes[queue];
        let block = lane.namespace.block_bytes();
        for (n, part) in into.chunks_mut(STEP as usize).enumerate() {
            let (first, bytes) = (lane.from + at + n as u64 * STEP, part.len() as u64);
            lane.reader.prepare(0, &[Piece::new(&lane.staging, 0, bytes)]).map_err(failed)?;
            let io = lane.namespace.read(first / block, bytes / block).map_err(failed)?;
            lane.reader.complete(0, &io).map_err(failed)?;
            lane.staging.load(0, part).map_err(on_bus)?;
        }
        Ok(())
    }

    fn write_target(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        let lane = &self.lanes[queue];
        match &mut self.gpu {
            Some(gpu) => gpu.write(lane.base + at, bytes),
            None => lane.memory.store(lane.base + at, bytes).map_err(on_bus),
        }
    }

    fn read_target(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let lane = &self.lanes[queue];
        match &mut self.gpu {
            Some(gpu) => gpu.read(lane.base + at, into),
            None => lane.memory.load(lane.base + at, into).map_err(on_bus),
        }
    }
}

/// Completions that one look takes.
const LOOK: usize = 64;
/// Looks in vain until a drive that failed or is late is looked for.
const VAIN: u32 = 1 << 12;

struct Reads {
    queue: nvme::Queue,
    namespace: Namespace,
    target: Memory,
    base: u64,
    /// The first block of this queue's.
    block: u64,
    bytes: u64,
    gathered: Vec<(u16, Io)>,
    batch: usize,
    done: [nvme::Done; LOOK],
    idle: u32,
}

impl Queue for Reads {
    #[inline]
    fn submit(&mut self, slot: u32, place: Place) -> Result<(), Error> {
        let (slot, block) = (slot as u16, self.namespace.block_bytes());
        let piece = Piece::new(&self.target, self.base + place.target, self.bytes);
        self.queue.prepare(slot, &[piece]).map_err(failed)?;
        let io = self.namespace.read(self.block + place.device / block, self.bytes / block).map_err(failed)?;
        if self.batch == 1 {
            return self.queue.submit(slot, &io).map_err(failed);
        }
        self.gathered.push((slot, io));
        if self.gathered.len() < self.batch { Ok(()) } else { self.ring() }
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
        for (into, done) in into.iter_mut().zip(&self.done[..count]) {
            let status = match done.outcome {
                Outcome::Status(status) => status.bits().into(),
                Outcome::Lost(lost) => return Err(Error::Device(lost.to_string())),
            };
            *into = Done { slot: done.slot.into(), status };
        }
        self.idle = if count > 0 { 0 } else { self.idle + 1 };
        if self.idle == VAIN {
            self.idle = 0;
            self.queue.expire(Instant::now()).map_err(failed)?;
        }
        Ok(count)
    }
}
