//! The first program to run on a new machine. Enters CUDA's address space, makes every kind of channel, copies eight
//! bytes and then more on each, checks all of them, and times submissions and round trips.
//!
//! `beside [samples]`. Needs a GPU and libcuda. Stops at the first error.

use cuda::{Cuda, DeviceBuffer, PinnedBuffer};
use gpu::{
    AddressSpace, Channel, ChannelOptions, CopyMode, Engine, Entry, Error, Group, InlineMode, InlineRelease, Libcuda,
    Prepared,
};
use std::error::Error as StdError;
use std::sync::Arc;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(2);
const SIZE: usize = 4 << 20;

fn noise(state: &mut u64, into: &mut [u8]) {
    for byte in into {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *byte = (*state >> 32) as u8;
    }
}

fn percentiles(mut ns: Vec<u64>) -> String {
    ns.sort_unstable();
    let at = |p: f64| ns[((ns.len() as f64 * p) as usize).min(ns.len() - 1)];
    format!("p50 {} p99 {} max {} ns", at(0.5), at(0.99), at(1.0))
}

struct Rig<'c> {
    device: DeviceBuffer<'c>,
    host: PinnedBuffer<'c>,
    state: u64,
    samples: usize,
}

impl Rig<'_> {
    fn try_channel(
        &mut self,
        space: &Arc<AddressSpace>,
        engine: Engine,
        group: Group,
    ) -> Result<(), Box<dyn StdError>> {
        let options = ChannelOptions { group, ..Default::default() };
        let mut channel = match Channel::new(space, engine, options) {
            Ok(channel) => channel,
            Err(error @ (Error::Driver(_) | Error::Group(_))) => {
                println!("  {engine:?} {group:?}: not made: {error}");
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let pins = [space.pin(self.device.address(), SIZE as u64)?, space.pin(self.host.as_ptr() as u64, SIZE as u64)?];
        let [to, from] = [pins[0].region(), pins[1].region()];
        let sizes: &[u32] = match engine {
            Engine::Copy(_) => &[8, 4096, 65536, SIZE as u32],
            Engine::Graphics => &[8, 4096, 16384, 32764, 65536],
        };
        for (&bytes, other) in sizes.iter().flat_map(|bytes| [(bytes, false), (bytes, true)]) {
            let (fold, release) = match other {
                false => (CopyMode::Plain, InlineRelease::Host),
                true => (CopyMode::Folded, InlineRelease::Engine),
            };
            let mut transfer = match engine {
                Engine::Copy(_) => Prepared::copy(&mut channel, to, from, bytes, fold)?,
                Engine::Graphics => Prepared::inline_with(&mut channel, to, bytes, InlineMode::Headers, release)?,
            };
            let mut data = vec![0; bytes as usize];
            let samples = if bytes > 65536 { self.samples / 50 } else { self.samples };
            let (mut submits, mut totals) = (Vec::with_capacity(samples), Vec::with_capacity(samples));
            for n in 0..=samples {
                if n == 0 {
                    noise(&mut self.state, &mut data);
                    self.host.bytes_mut()[..data.len()].copy_from_slice(&data);
                }
                let start = Instant::now();
                let ticket = match engine {
                    Engine::Copy(_) => transfer.submit(&mut channel)?,
                    Engine::Graphics => transfer.submit_data(&mut channel, &data)?,
                };
                let submitted = start.elapsed();
                channel.wait(ticket, TIMEOUT)?;
                let total = start.elapsed();
                if n == 0 {
                    let mut back = vec![0; bytes as usize];
                    self.device.read(&mut back)?;
                    if back != data {
                        return Err(format!("{engine:?}: {bytes} bytes are not what was sent").into());
                    }
                } else {
                    submits.push(submitted.as_nanos() as u64);
                    totals.push(total.as_nanos() as u64);
                }
            }
            println!(
                "  {engine:?} {group:?} token {:#x} {bytes} B {}: submit {}; total {}",
                channel.token(),
                if other { "released by the copy" } else { "released after" },
                percentiles(submits),
                percentiles(totals)
            );
        }
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn StdError>> {
    let samples = std::env::args().nth(1).map_or(Ok(1000), |a| a.parse())?;
    let libcuda = Libcuda::open()?;
    let cuda = Cuda::load()?;
    let context = cuda.device(0)?.primary_context()?;
    let mut rig = Rig {
        device: DeviceBuffer::new(&context, SIZE)?,
        host: PinnedBuffer::new(&context, SIZE)?,
        state: 0x1234_5678_9abc_def1,
        samples,
    };
    let uuid = *libcuda.watched().gpus().first().ok_or("no GPU registered")?;
    println!("cudaMalloc {:#x}, cudaHostAlloc {:p}", rig.device.address(), rig.host.as_ptr());
    for entry in [Entry::OwnClient, Entry::CudasClient] {
        println!("{entry:?}");
        let space = libcuda.address_space(uuid, entry)?;
        let _pins = [space.pin(rig.device.address(), SIZE as u64)?, space.pin(rig.host.as_ptr() as u64, SIZE as u64)?];
        for engine in (0..10).map(Engine::Copy) {
            rig.try_channel(&space, engine, Group::Own)?;
        }
        rig.try_channel(&space, Engine::Graphics, Group::Own)?;
        rig.try_channel(&space, Engine::Graphics, Group::Cudas)?;
    }
    context.synchronize()?;
    println!("CUDA goes on; done");
    Ok(())
}
