//! What comes and goes while others are in flight: channels, and memory of CUDA's that is pinned, unpinned and freed under
//! our transfers.

use super::own::{exchange, kinds};
use super::{Beat, Job, Plan, Trouble, outside_capture};
use copy::{Difference, Machine};
use cuda::DeviceBuffer;
use gpu::{Channel, ChannelOptions, CopyMode, Engine, Error, Prepared, Ticket};
use std::sync::Arc;

/// Buffers of routes that live for a moment.
const ROOM: u64 = 64 << 10;
/// The largest block that shares a mapping with others: CUDA frees it without a call of the driver.
const SMALL: usize = 64 << 10;
/// Allocations so large are the driver's, each by itself: smaller ones CUDA cuts out of what it keeps.
const LARGE: usize = 4 << 20;

pub(super) fn jobs(machine: &Arc<Machine>, plan: &Plan) -> Vec<Job> {
    let seed = plan.seed;
    let (opened, freed, small) = (machine.clone(), machine.clone(), machine.clone());
    let capacity = plan.capacity.min(ROOM);
    vec![
        Job::new("channels made and gone", move |beat: &Beat| channels(&opened, capacity, seed, beat)),
        Job::new("memory freed in flight", move |beat: &Beat| memory(&freed, seed, beat)),
        Job::new("small blocks freed", move |beat: &Beat| small_blocks(&small, seed, beat)),
    ]
}

/// Opens a route of any kind, uses it, and gives it back, with its channel and its buffers.
fn channels(machine: &Machine, capacity: u64, seed: u64, beat: &Beat) -> Result<(), Trouble> {
    machine.enter()?;
    let mut random = fastrand::Rng::with_seed(seed ^ 0xc0de);
    let all: Vec<String> = kinds(machine).into_iter().flat_map(|kind| kind.routes).collect();
    let (mut opened, mut missing) = (0u64, 0u64);
    while !beat.stopped() || opened == 0 {
        let name = &all[random.usize(0..all.len())];
        beat.step("opens a route, or drops one");
        match copy::open(machine, name, capacity) {
            Ok(mut route) => {
                opened += 1;
                for _ in 0..random.u32(1..=3) {
                    exchange(route.as_mut(), &mut random, beat)?;
                }
            }
            Err(copy::Error::Unavailable(u)) => {
                missing += 1;
                if missing > 1000 && opened == 0 {
                    return Err(u.into());
                }
            }
            Err(error) => return Err(Trouble::Error(format!("{name}: {error}"))),
        }
        beat.alive();
    }
    beat.note(format!("{opened} channels or mappings opened and dropped"));
    Ok(())
}

/// How memory goes away under a transfer.
#[derive(Clone, Copy, Debug)]
enum Going {
    /// It is unpinned while the transfer may be under way.
    Unpinned,
    /// CUDA frees it while the transfer may be under way, and it is unpinned afterwards.
    Freed,
    /// As it should be: waited for, unpinned, freed.
    InOrder,
}

/// From memory of CUDA's to the host: what is read too late does no harm.
fn memory(machine: &Machine, seed: u64, beat: &Beat) -> Result<(), Trouble> {
    machine.enter()?;
    let (context, space) = (machine.context()?, machine.space()?);
    let mut random = fastrand::Rng::with_seed(seed ^ 0xfee);
    let engine = space.device().engines().ok().and_then(|all| all.first().map(|e| e.number)).unwrap_or(0);
    let mut channel = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
    let host = space.alloc_host(LARGE as u64)?;
    let (mut data, mut found) = (vec![0; LARGE], vec![0; LARGE]);
    let (mut rounds, mut freed) = (0u64, 0u64);
    while !beat.stopped() {
        let going = [Going::Unpinned, Going::Freed, Going::InOrder][random.usize(0..3)];
        beat.step("cuMemAlloc");
        let buffer = DeviceBuffer::new(context, LARGE)?;
        random.fill(&mut data);
        beat.step("cuMemcpyHtoD");
        buffer.write(&data)?;
        beat.step("waits until no stream is in capture");
        let outside = outside_capture();
        beat.step("cuCtxSynchronize");
        context.synchronize()?;
        drop(outside);
        beat.alive();
        beat.step("pins, prepares and submits");
        let pinned = copy::pin(machine, buffer.address(), LARGE as u64)?;
        let mode = [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded][random.usize(0..3)];
        let mut prepared = Prepared::copy(&mut channel, &host.region(), pinned.region(), LARGE as u32, mode)?;
        let mut last: Option<Ticket> = None;
        for _ in 0..random.u32(1..=8) {
            last = Some(prepared.submit(&mut channel)?);
        }
        let Some(last) = last else { continue };
        let (mut buffer, mut pinned) = (Some(buffer), Some(pinned));
        match going {
            Going::Unpinned => pinned = None,
            Going::Freed => {
                beat.step("cuMemFree under our transfers");
                buffer = None;
                freed += 1;
            }
            Going::InOrder => {}
        }
        beat.step("waits for its transfers");
        if let Err(error) = channel.wait(last, beat.timeout) {
            return Err(Trouble::Error(format!("{error}; doorbell rung again {} times", channel.rung_again())));
        }
        host.read(0, &mut found);
        if let Some(d) = Difference::between(&data, &found, None) {
            return Err(Trouble::Data(format!("{going:?} under a {mode:?} copy: {d}")));
        }
        beat.alive();
        if matches!(going, Going::Freed) {
            still_refused(&mut prepared, &mut channel, "CUDA has freed", beat)?;
        }
        beat.step("unpins, cuMemFree");
        drop((pinned, buffer));
        still_refused(&mut prepared, &mut channel, "is no longer pinned", beat)?;
        if let Some(code) = channel.error() {
            return Err(Error::ChannelKilled(code).into());
        }
        rounds += 1;
        beat.round(LARGE as u64);
    }
    beat.note(format!("{rounds} allocations, {freed} freed in flight"));
    if channel.rung_again() > 0 {
        beat.note(format!("doorbell rung again {} times", channel.rung_again()));
    }
    Ok(())
}

/// Nothing may be submitted to memory that is gone.
fn still_refused(prepared: &mut Prepared, channel: &mut Channel, why: &str, beat: &Beat) -> Result<(), Trouble> {
    match prepared.submit(channel) {
        Err(Error::Stale | Error::Reused) => {
            beat.refused();
            Ok(())
        }
        Ok(_) => Err(Trouble::Data(format!("memory that {why} was submitted to"))),
        Err(error) => Err(error.into()),
    }
}

/// How many allocations are made to get a small block's address again.
const TRIES: usize = 64;

/// Small blocks share a mapping that CUDA keeps when it frees them, and are given out again: a transfer that was prepared for
/// the one before must not reach the next owner's.
fn small_blocks(machine: &Machine, seed: u64, beat: &Beat) -> Result<(), Trouble> {
    machine.enter()?;
    let (context, space) = (machine.context()?, machine.space()?);
    let mut random = fastrand::Rng::with_seed(seed ^ 0x5a11);
    let engine = space.device().engines().ok().and_then(|all| all.last().map(|e| e.number)).unwrap_or(0);
    let mut channel = Channel::new(space, Engine::Copy(engine), ChannelOptions::default())?;
    let host = space.alloc_host(SMALL as u64)?;
    let (mut again, mut rounds) = (0u64, 0u64);
    while !beat.stopped() {
        let bytes = random.usize(1..=SMALL);
        beat.step("cuMemAlloc of a small block");
        let block = DeviceBuffer::new(context, bytes)?;
        let address = block.address();
        let pinned = copy::pin(machine, address, bytes as u64)?;
        let mut prepared =
            Prepared::copy(&mut channel, pinned.region(), &host.region(), bytes as u32, CopyMode::Plain)?;
        for _ in 0..random.u32(1..=4) {
            prepared.submit(&mut channel)?;
        }
        beat.step("cuMemFree of a small block under our transfers");
        drop(block);
        let mut owners = Vec::new();
        while owners.len() < TRIES && owners.last().is_none_or(|b: &DeviceBuffer<'_>| b.address() != address) {
            owners.push(DeviceBuffer::new(context, bytes)?);
        }
        let theirs: Vec<u8> = (0..bytes).map(|_| random.u8(..)).collect();
        if let Some(owner) = owners.last().filter(|owner| owner.address() == address) {
            again += 1;
            owner.write(&theirs)?;
            let outside = outside_capture();
            context.synchronize()?;
            drop(outside);
        }
        still_refused(&mut prepared, &mut channel, "CUDA has freed", beat)?;
        if let Some(owner) = owners.last().filter(|owner| owner.address() == address) {
            let mut found = vec![0; bytes];
            owner.read(&mut found)?;
            if let Some(d) = Difference::between(&theirs, &found, None) {
                return Err(Trouble::Data(format!("the next owner's block was written to: {d}")));
            }
        }
        drop((owners, pinned));
        if let Some(code) = channel.error() {
            return Err(Error::ChannelKilled(code).into());
        }
        rounds += 1;
        beat.round(bytes as u64);
    }
    beat.note(format!("{rounds} small blocks, {again} given out again at the same address"));
    Ok(())
}
