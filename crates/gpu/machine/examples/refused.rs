//! Submissions that doorbell must refuse while CUDA runs. Each returns an error with advice, and CUDA works afterwards.
//! Needs a GPU.

use cuda::{DeviceBuffer, PinnedBuffer};
use gpu::{Channel, ChannelOptions, CopyMode, Engine, Prepared};
use machine::{Machine, Where, pin};
use std::error::Error;
use std::time::Duration;

const BYTES: usize = 4 << 20;

fn refused<T, E: Error>(what: &str, result: Result<T, E>) -> Result<(), Box<dyn Error>> {
    match result {
        Ok(_) => Err(format!("{what} was let through").into()),
        Err(error) => {
            println!("{what}: {error}");
            Ok(())
        }
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let machine = Machine::open(Where::Real)?;
    machine.enter()?;
    let (context, space) = (machine.context()?, machine.space()?);
    let engine = space.device().engines()?.iter().find(|e| e.is_asynchronous()).map_or(2, |e| e.number);
    let device = DeviceBuffer::new(context, BYTES)?;
    let mut host = PinnedBuffer::new(context, BYTES)?;
    let pageable = vec![0u8; BYTES];
    let (to, from) = (device.address(), host.as_ptr() as u64);

    refused("null", pin(&machine, 0, 8))?;
    refused("an address of nothing", pin(&machine, 0x1234_5000, 8))?;
    refused("pageable host memory", pin(&machine, pageable.as_ptr() as u64, 8))?;
    refused("one byte past the end", pin(&machine, to, BYTES as u64 + 1))?;
    refused("from the last byte on", pin(&machine, to + BYTES as u64 - 1, 2))?;
    refused("no bytes", pin(&machine, to, 0))?;
    let freed = DeviceBuffer::new(context, BYTES)?.address();
    refused("freed memory", pin(&machine, freed, 8))?;

    let pins = [pin(&machine, to, BYTES as u64)?, pin(&machine, from, BYTES as u64)?];
    let mut channel = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
    let [whole, source] = [pins[0].region().clone(), pins[1].region().clone()];
    let copy = |channel: &mut Channel, bytes| Prepared::copy(channel, &whole, &source, bytes, CopyMode::Plain);
    refused("a region longer than its memory", whole.part(0, 1 << 40))?;
    refused("a copy longer than its memory", copy(&mut channel, BYTES as u32 + 1))?;
    refused("an engine that is not there", Channel::new(space, Engine::Copy(9), ChannelOptions::default()))?;
    let mut prepared = copy(&mut channel, 4096)?;
    refused("an address outside", prepared.submit_at(&mut channel, to + BYTES as u64, from))?;
    let mut other = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
    refused("another channel", prepared.submit(&mut other))?;
    drop(pins);
    refused("memory that is not pinned any more", prepared.submit(&mut channel))?;

    // CUDA's work and doorbell's still work.
    let pins = [pin(&machine, to, BYTES as u64)?, pin(&machine, from, BYTES as u64)?];
    let sent: Vec<u8> = (0..BYTES).map(|i| ((i * 2_654_435_761) >> 13) as u8).collect();
    host.bytes_mut().copy_from_slice(&sent);
    let [whole, source] = [pins[0].region(), pins[1].region()];
    let mut prepared = Prepared::copy(&mut channel, whole, source, BYTES as u32, CopyMode::Plain)?;
    let ticket = prepared.submit(&mut channel)?;
    channel.wait(ticket, Duration::from_secs(2))?;
    let mut back = vec![0; BYTES];
    device.read(&mut back)?;
    context.synchronize()?;
    if back != sent {
        return Err("4 MiB by our channel and back by CUDA are not what was sent".into());
    }
    println!("4 MiB by our channel, read back by CUDA: right");
    Ok(())
}
