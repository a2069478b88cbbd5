//! What comes and goes while others are in flight: channels, and memory of CUDA's that is pinned, unpinned and freed under
//! transfers of ours.

use super::own::{exchange, kinds};
use super::{Beat, Job, Plan, Trouble, outside_capture};
use copy::{Difference, Machine};
use cuda::DeviceBuffer;
use gpu::{Channel, ChannelOptions, CopyMode, Engine, Error, Prepared, Ticket, Window};
use std::sync::Arc;

/// Buffers of routes that live for a moment.
const SMALL: u64 = 64 << 10;
/// Allocations so large are the driver's, each by itself: smaller ones CUDA cuts out of what it keeps.
const LARGE: usize = 4 << 20;

pub(super) fn jobs(machine: &Arc<Machine>, plan: &Plan) -> Vec<Job> {
    let seed = plan.seed;
    let (opened, freed) = (machine.clone(), machine.clone());
    let capacity = plan.capacity.min(SMALL);
    vec![
        Job::new("channels made and gone", move |beat: &Beat| channels(&opened, capacity, seed, beat)),
        Job::new("memory freed in flight", move |beat: &Beat| memory(&freed, seed, beat)),
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
    let (mut rounds, mut freed, mut mapped) = (0u64, 0u64, 0u64);
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
        let window = |base| Window { base, length: LARGE as u64 };
        let mode = [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded][random.usize(0..3)];
        let (to, from) = (window(host.va()), window(pinned.va()));
        let mut prepared = Prepared::copy(&mut channel, to, from, LARGE as u32, mode)?;
        let mut last: Option<Ticket> = None;
        for _ in 0..random.u32(1..=8) {
            last = Some(prepared.submit(&mut channel)?);
        }
        let Some(last) = last else { continue };
        let (mut buffer, mut pinned) = (Some(buffer), Some(pinned));
        match going {
            Going::Unpinned => pinned = None,
            Going::Freed => {
                beat.step("cuMemFree under transfers of ours");
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
            match prepared.submit(&mut channel) {
                Err(Error::Stale) => beat.refused(),
                // CUDA has kept it mapped: it can still be read, and nothing was written there.
                Ok(ticket) => {
                    mapped += 1;
                    channel.wait(ticket, beat.timeout)?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        beat.step("unpins, cuMemFree");
        drop((pinned, buffer));
        match prepared.submit(&mut channel) {
            Err(Error::Stale) => beat.refused(),
            Ok(_) => return Err(Trouble::Error(format!("{going:?}: memory that is no longer pinned was submitted"))),
            Err(error) => return Err(error.into()),
        }
        if let Some(code) = channel.error() {
            return Err(Error::ChannelKilled(code).into());
        }
        rounds += 1;
        beat.round(LARGE as u64);
    }
    beat.note(format!("{rounds} allocations, {freed} freed in flight, of which CUDA kept {mapped} mapped"));
    if channel.rung_again() > 0 {
        beat.note(format!("doorbell rung again {} times", channel.rung_again()));
    }
    Ok(())
}
