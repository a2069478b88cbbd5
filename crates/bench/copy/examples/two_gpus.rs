//! doorbell's channels on two GPUs of one process, with CUDA on both: host to each GPU, and from one GPU to the other. Needs two
//! GPUs.

use cuda::{Context, Cuda, DeviceBuffer, PinnedBuffer};
use gpu::{AddressSpace, Channel, ChannelOptions, CopyMode, Engine, Entry, Libcuda, Prepared};
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

const BYTES: usize = 64 << 20;
const SMALL: usize = 4096;
/// Rounds in which both GPUs have a pending copy.
const ROUNDS: usize = 1000;
const PATIENCE: Duration = Duration::from_secs(5);
const GPUS: usize = 2;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// One GPU: CUDA's context, and doorbell's channel in CUDA's address space there.
struct Side<'c> {
    context: &'c Context,
    space: Arc<AddressSpace>,
    channel: Channel,
    device: DeviceBuffer<'c>,
}

/// Bytes that differ for each seed and place.
fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    (0..bytes).map(|_| step()).collect()
}

fn right(what: &str, sent: &[u8], found: &[u8]) -> Result<()> {
    match copy::Difference::between(sent, found, None) {
        None => {
            println!("{what}: right");
            Ok(())
        }
        Some(difference) => Err(format!("{what}: {difference}").into()),
    }
}

impl<'c> Side<'c> {
    fn open(libcuda: Libcuda, context: &'c Context) -> Result<Side<'c>> {
        context.make_current()?;
        let space = libcuda.address_space(context.device().uuid()?, Entry::OwnClient)?;
        let engine = space.device().engines()?.iter().find(|e| e.is_asynchronous()).map_or(0, |e| e.number);
        let channel = Channel::new(&space, Engine::Copy(engine), ChannelOptions::default())?;
        let device = DeviceBuffer::new(context, BYTES)?;
        let name = context.device().name()?;
        let pci = context.device().pci_address()?;
        println!("GPU {}: {name} at {pci}, ce{engine}, token {:#x}", context.device().ordinal(), channel.token());
        Ok(Side { context, space, channel, device })
    }

    /// One copy by this GPU's channel, with a wait; GB/s.
    fn copy(&mut self, to: u64, from: u64, bytes: usize) -> Result<f64> {
        let pins = [self.space.pin(to, bytes as u64)?, self.space.pin(from, bytes as u64)?];
        let [to, from] = [pins[0].region(), pins[1].region()];
        let mut prepared = Prepared::copy(&mut self.channel, to, from, bytes as u32, CopyMode::Plain)?;
        let begun = Instant::now();
        let ticket = prepared.submit(&mut self.channel)?;
        self.channel.wait(ticket, PATIENCE)?;
        Ok(bytes as f64 / begun.elapsed().as_secs_f64() / 1e9)
    }

    /// The bytes that CUDA reads from its memory.
    fn found(&self, bytes: usize) -> Result<Vec<u8>> {
        let mut found = vec![0; bytes];
        self.context.make_current()?;
        self.device.read(&mut found)?;
        self.context.synchronize()?;
        Ok(found)
    }
}

/// Small copies on both GPUs at the same time. Their doorbells must not be confused, even if the tokens are equal.
fn in_turns(sides: &mut [Side<'_>], host: &mut [PinnedBuffer<'_>]) -> Result<()> {
    for round in 0..ROUNDS {
        let mut under_way = Vec::new();
        for (n, (side, host)) in sides.iter_mut().zip(host.iter_mut()).enumerate() {
            let data = noise((round * GPUS + n) as u64, SMALL);
            host.bytes_mut()[..SMALL].copy_from_slice(&data);
            let (to, from) = (side.device.address(), host.device_address()?);
            let pins = [side.space.pin(to, SMALL as u64)?, side.space.pin(from, SMALL as u64)?];
            let mode = CopyMode::Plain;
            let [to, from] = [pins[0].region(), pins[1].region()];
            let mut prepared = Prepared::copy(&mut side.channel, to, from, SMALL as u32, mode)?;
            let ticket = prepared.submit(&mut side.channel)?;
            under_way.push((ticket, prepared, pins, data));
        }
        for ((ticket, ..), side) in under_way.iter().zip(sides.iter()) {
            side.channel.wait(*ticket, PATIENCE)?;
        }
        if round % 50 == 0 {
            for (n, ((.., data), side)) in under_way.iter().zip(sides.iter()).enumerate() {
                if side.found(SMALL)? != *data {
                    return Err(format!("round {round}: GPU {n} has other bytes").into());
                }
            }
        }
    }
    let tokens: Vec<u32> = sides.iter().map(|side| side.channel.token()).collect();
    let same = if tokens[0] == tokens[1] { "the same token on both" } else { "tokens that differ" };
    println!("{ROUNDS} rounds of a copy on each GPU at a time, {same}: right");
    Ok(())
}

fn main() -> Result<ExitCode> {
    let libcuda = Libcuda::open()?;
    let cuda = Cuda::load()?;
    let count = cuda.device_count()?;
    if count < GPUS {
        eprintln!("{count} GPU: two are needed");
        return Ok(ExitCode::from(77));
    }
    let contexts = [cuda.device(0)?.primary_context()?, cuda.device(1)?.primary_context()?];
    // Before anything is allocated: memory allocated later is mapped for both.
    let peers = contexts[0].enable_peer(&contexts[1])? && contexts[1].enable_peer(&contexts[0])?;
    let mut sides = vec![Side::open(libcuda, &contexts[0])?, Side::open(libcuda, &contexts[1])?];
    let mut host = Vec::new();
    for context in &contexts {
        context.make_current()?;
        host.push(PinnedBuffer::new(context, BYTES)?);
    }

    for n in 0..GPUS {
        let data = noise(7 + n as u64, BYTES);
        host[n].bytes_mut().copy_from_slice(&data);
        let (to, from) = (sides[n].device.address(), host[n].device_address()?);
        let rate = sides[n].copy(to, from, BYTES)?;
        right(&format!("host to GPU {n}, 64 MiB, {rate:.1} GB/s"), &data, &sides[n].found(BYTES)?)?;
        host[n].bytes_mut().fill(0);
        let rate = sides[n].copy(from, to, BYTES)?;
        right(&format!("GPU {n} to host, 64 MiB, {rate:.1} GB/s"), &data, host[n].bytes())?;
    }
    in_turns(&mut sides, &mut host)?;
    if !peers {
        println!("GPU 0 to GPU 1: unavailable, CUDA says that neither reaches the other's memory");
        return Ok(ExitCode::SUCCESS);
    }
    for (from, to) in [(0, 1), (1, 0)] {
        let sent = sides[from].found(BYTES)?;
        let (source, target) = (sides[from].device.address(), sides[to].device.address());
        // By the source GPU's channel, so that the link carries writes.
        let rate = sides[from].copy(target, source, BYTES)?;
        right(&format!("GPU {from} to GPU {to}, 64 MiB, {rate:.1} GB/s"), &sent, &sides[to].found(BYTES)?)?;
    }
    Ok(ExitCode::SUCCESS)
}
