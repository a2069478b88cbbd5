//! Copy engines as devices: an I/O is one copy of a separate channel, with its own doorbell and, after it, its own semaphore release. Or many I/Os
//! share both.
//!
//! The engine's memory is on the other side of the link: host memory for I/Os whose target is the GPU, GPU memory for those whose target is the
//! host. So each byte of payload crosses the link once.

mod gathered;
mod mover;
mod spaced;
mod submitter;

use crate::saturate::queue::Queue;
use crate::saturate::source::{Opened, Shape, Source, Target, filled};
use crate::saturate::walk::IMAGES;
use crate::{Error, Unavailable};
use gathered::{Counted, Gathered};
use gpu::{AddressSpace, Channel, ChannelOptions, CopyFlush, CopyRelease, Engine, Memory};
use mover::Mover;
use rm::abi::control::ce_caps;
use spaced::{Completions, Spaced};
use std::sync::Arc;
use std::time::Duration;
use submitter::{AtGates, Each};

/// Time limit of the first copy of a channel, which is small.
const FIRST: Duration = Duration::from_secs(5);

/// The copy engines of one GPU.
pub struct Engines {
    space: Arc<AddressSpace>,
    /// Engines for I/Os whose target is the GPU, and engines for those whose target is the host; the best first.
    numbers: [Vec<u32>; 2],
}

impl Engines {
    /// Copy engines of the GPU of this address space. `named` are the numbers of the engines, that of the first device first. Empty: all that run
    /// concurrently with kernels, first those that the driver calls suited to the direction.
    ///
    /// # Errors
    /// The driver does not list its engines, or there is none of that number.
    pub fn new(space: &Arc<AddressSpace>, named: &[u32]) -> Result<Engines, Error> {
        let all = space.device().engines().map_err(gpu::Error::from)?;
        if let Some(missing) = named.iter().find(|n| !all.iter().any(|engine| engine.number == **n)) {
            let there: Vec<String> = all.iter().map(|engine| engine.number.to_string()).collect();
            return Err(Unavailable::new(format!(
                "this GPU has no copy engine {missing}; it has {}",
                there.join(", ")
            ))
            .into());
        }
        let numbers = [ce_caps::SYSMEM_READ, ce_caps::SYSMEM_WRITE].map(|made_for| match named {
            [] => {
                let mut engines = gpu::asynchronous(&all);
                engines.sort_by_key(|engine| !engine.caps.has(made_for));
                engines.iter().map(|engine| engine.number).collect()
            }
            named => named.to_vec(),
        });
        if numbers[0].is_empty() {
            return Err(Unavailable::new("no copy engine of this GPU runs concurrently with kernels").into());
        }
        Ok(Engines { space: space.clone(), numbers })
    }

    fn numbers(&self, target: Target) -> &[u32] {
        &self.numbers[usize::from(target == Target::Host)]
    }
}

impl Source for Engines {
    fn about(&self) -> String {
        let name = |n: &u32| format!("ce{n}");
        let all = |target| self.numbers(target).iter().map(name).collect::<Vec<_>>().join(", ");
        format!("copy engines {} to the GPU, {} to the host", all(Target::Gpu), all(Target::Host))
    }

    fn open<'s>(&'s mut self, shape: &Shape) -> Result<Box<dyn Opened<'s> + 's>, Error> {
        let numbers = self.numbers(shape.target);
        let Some(numbers) = numbers.get(..shape.devices as usize) else {
            let what = format!("{} copy engines are asked for, and {} take I/Os here", shape.devices, numbers.len());
            return Err(Unavailable::new(what).into());
        };
        let mut open = Engaged {
            queues: Vec::new(),
            memories: Vec::new(),
            mover: Mover::new(&self.space, numbers[0])?,
            seed: shape.seed,
        };
        for number in numbers.iter().flat_map(|number| std::iter::repeat_n(*number, shape.queues as usize)) {
            open.add(&self.space, number, shape)?;
        }
        Ok(Box::new(open))
    }
}

/// One queue's.
struct Memories {
    _device: Arc<Memory>,
    target: Arc<Memory>,
}

struct Engaged {
    // Before the memory that they may name.
    queues: Vec<Box<dyn Queue>>,
    mover: Mover,
    memories: Vec<Memories>,
    seed: u64,
}

impl Engaged {
    fn add(&mut self, space: &Arc<AddressSpace>, number: u32, shape: &Shape) -> Result<(), Error> {
        let images = shape.part * IMAGES;
        let (device, target) = match shape.target {
            Target::Gpu => (space.alloc_host(images)?, space.alloc_video(shape.part)?),
            Target::Host => (space.alloc_video(images)?, space.alloc_host(shape.part)?),
        };
        let (queue, seed) = (self.memories.len(), self.seed);
        self.mover.fill(&device, images, |at, into| filled(seed, queue, at, into))?;
        let way = shape.way;
        let options = ChannelOptions {
            gpfifo: way.commands,
            pushbuffer: way.commands,
            tracker: way.completions,
            ..ChannelOptions::default()
        };
        let mut channel = Channel::new(space, Engine::Copy(number), options)?;
        let bytes = u32::try_from(shape.bytes).map_err(|_| gpu::Error::Length(shape.bytes))?;
        let ends = submitter::Ends { target: target.region(), device: device.region(), bytes };
        submitter::first(&mut channel, &ends, FIRST)?;
        // GPU memory is read through the GPU only by copy engines.
        let release = CopyRelease::Word;
        let (mode, words) = (way.mode, way.completions);
        self.queues.push(match (shape.armed, shape.batch) {
            (true, _) => Box::new(AtGates::new(channel, &ends, shape.depth, (mode, release))?),
            (false, 0 | 1) => match (way.completions_every, way.flush) {
                (None | Some(0 | 1), CopyFlush::All) => {
                    Box::new(Each::new(channel, &ends, shape.depth, (mode, release))?)
                }
                (Some(every), CopyFlush::All) => {
                    Box::new(Spaced::new(channel, &ends, shape.depth, mode, Completions::Every(every))?)
                }
                (_, flush) => {
                    let words = Completions::Words(words, flush);
                    Box::new(Spaced::new(channel, &ends, shape.depth, mode, words)?)
                }
            },
            (false, batch) => match way.completions_every {
                Some(1) => Box::new(Counted::new(channel, ends, shape.depth, batch, words)?),
                _ => Box::new(Gathered::new(channel, &ends, shape.depth, batch, (mode, release))?),
            },
        });
        self.memories.push(Memories { _device: device, target });
        Ok(())
    }
}

impl<'s> Opened<'s> for Engaged {
    fn queues(&mut self) -> Vec<Box<dyn Queue + 's>> {
        std::mem::take(&mut self.queues)
    }

    fn device_bytes(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        filled(self.seed, queue, at, into);
        Ok(())
    }

    fn write_target(&mut self, queue: usize, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.mover.write(&self.memories[queue].target, at, bytes)
    }

    fn read_target(&mut self, queue: usize, at: u64, into: &mut [u8]) -> Result<(), Error> {
        self.mover.read(&self.memories[queue].target, at, into)
    }
}
