//! Channels, their rings, and waits between them.

use super::Outcome;
use super::compare;
use super::ground::{Ground, Rig, Stop, ensure, fail_if_some};
use super::ledger::Balance;
use super::random_bytes;
use fastrand::Rng;
use gpu::{AddressSpace, Channel, CopyMode, Engine, Error, Memory, Prepared, Semaphore};
use std::sync::Arc;
use std::time::Duration;

const WORDS: usize = 64;
/// Longer than anything here needs, but short for a person.
const SHORT: Duration = Duration::from_millis(20);

pub(super) fn open(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let kind = if rig.is_soft() { "software GPU" } else { "GPU" };
    let text = format!("{kind}, driver {}", rig.device.driver_version());
    let ledger = rig.ledger.clone();
    drop(rig);
    let left = ledger.balance();
    ensure(left == Balance::default(), || format!("closing has left {left}"))?;
    // A second life of the same device's files.
    drop(ground.open()?);
    Ok(text)
}

/// A copy from host memory to GPU memory, with new data each time.
struct Lane {
    channel: Channel,
    src: Arc<Memory>,
    dst: Arc<Memory>,
    done: Semaphore,
    sent: u32,
    data: Vec<u8>,
}

impl Lane {
    fn new(rig: &Rig, channel: Channel) -> Result<Lane, Stop> {
        let (src, dst) = (rig.memory(false, 0x1000)?, rig.memory(true, 0x1000)?);
        Ok(Lane { channel, src, dst, done: rig.semaphore()?, sent: 0, data: Vec::new() })
    }

    fn send(&mut self, rig: &Rig, random: &mut Rng) -> Result<(), Stop> {
        let length = 1 + random.u64(..1000) as usize;
        self.data = random_bytes(random, length);
        self.sent += 1;
        let Lane { channel, src, dst, done, sent, data } = self;
        let inline = channel.engine() == Engine::Graphics;
        if !inline {
            src.write(0, data);
        }
        rig.submit(channel, WORDS + length.div_ceil(4), |pushbuffer| {
            if inline {
                pushbuffer.inline(dst.va(), data)?.host_release(done, *sent)?;
            } else {
                pushbuffer.copy(dst.va(), src.va(), length as u32)?.copy_release(done, *sent)?;
            }
            Ok(())
        })
    }

    fn check(&self, rig: &Rig) -> Result<(), Stop> {
        rig.wait(&self.channel, &self.done, self.sent)?;
        let after = rig.read(&self.dst, 0, self.data.len());
        fail_if_some(compare::difference(&self.data, &after), || {
            format!("submission {} on {:?}", self.sent, self.channel.engine())
        })
    }
}

pub(super) fn channels(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut lanes = Vec::new();
    // A graphics copy engine would share the graphics channel's runlist.
    let copies = rig.copy_engines.iter().filter(|engine| engine.is_asynchronous()).take(3);
    let mut engines: Vec<Engine> = copies.map(|engine| Engine::Copy(engine.number)).collect();
    engines.extend([Engine::Graphics, rig.copy_engine()?]);
    for engine in engines {
        lanes.push(Lane::new(&rig, rig.channel(engine)?)?);
    }
    ensure(lanes.len() > 1, || format!("{} channels could be made", lanes.len()))?;
    const ROUNDS: usize = 50;
    for _ in 0..ROUNDS {
        for lane in &mut lanes {
            lane.send(&rig, &mut random)?;
        }
        lanes.iter().try_for_each(|lane| lane.check(&rig))?;
    }
    Ok(format!("{} channels, {ROUNDS} rounds", lanes.len()))
}

pub(super) fn wrap(ground: &Ground) -> Outcome {
    const ENTRIES: u32 = 16;
    const COUNT: u32 = 500;
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut lane = Lane::new(&rig, rig.small_channel(rig.copy_engine()?, ENTRIES)?)?;
    for _ in 0..COUNT {
        lane.send(&rig, &mut random)?;
        lane.check(&rig)?;
    }
    let written = lane.channel.entries_written();
    ensure(written > u64::from(COUNT), || format!("only {written} entries were written"))?;
    Ok(format!("{COUNT} submissions through {ENTRIES} entries"))
}

pub(super) fn full(ground: &Ground) -> Outcome {
    const ENTRIES: u32 = 16;
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut lane = Lane::new(&rig, rig.small_channel(rig.copy_engine()?, ENTRIES)?)?;
    let (gate, last) = (rig.semaphore()?, rig.semaphore()?);
    rig.submit(&mut lane.channel, WORDS, |pushbuffer| pushbuffer.host_acquire(&gate, 1).map(drop))?;
    let mut pushbuffer = gpu::Pushbuffer::new(&rig.space, WORDS)?;
    pushbuffer.host_release(&last, 5)?;
    let pushbuffer = pushbuffer.validate(&lane.channel)?;
    let mut taken = 0;
    let error = loop {
        match lane.channel.submit(&pushbuffer) {
            Ok(_) if taken < ENTRIES => taken += 1,
            Ok(_) => return Err(Stop::Failed(format!("a blocked ring of {ENTRIES} entries took {}", taken + 1))),
            Err(error) => break error,
        }
    };
    let came = last.value();
    // Whatever is wrong, the channel is let go.
    gate.set(1);
    ensure(matches!(error, Error::RingFull(_)), || format!("instead of a full ring: {error}"))?;
    ensure(came == 0, || "the channel went on while its acquire did not hold".into())?;
    rig.wait(&lane.channel, &last, 5)?;
    rig.patiently(&mut lane.channel, |channel| channel.submit(&pushbuffer))?;
    lane.send(&rig, &mut random)?;
    lane.check(&rig)?;
    Ok(format!("{taken} taken, then: {error}"))
}

pub(super) fn payload_wrap(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let done = rig.semaphore()?;
    let mut payload = u32::MAX - 4;
    done.set(payload);
    for n in 0..10 {
        payload = payload.wrapping_add(1);
        rig.submit(&mut channel, WORDS, |pushbuffer| {
            if n % 2 == 0 {
                pushbuffer.copy_release(&done, payload)?;
            } else {
                pushbuffer.host_release(&done, payload)?;
            }
            Ok(())
        })?;
        rig.wait(&channel, &done, payload)?;
    }
    Ok(format!("from {:#x} to {payload:#x}", u32::MAX - 4))
}

pub(super) fn acquire(ground: &Ground) -> Outcome {
    const ROUNDS: u32 = 50;
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let (mut first, mut second) = (rig.channel(rig.copy_engine()?)?, rig.channel(rig.copy_engine()?)?);
    let (src, dst) = (rig.memory(false, 0x1000)?, rig.memory(false, 0x1000)?);
    let between = rig.memory(true, 0x1000)?;
    let (passed, done) = (rig.semaphore()?, rig.semaphore()?);
    for round in 1..=ROUNDS {
        let data = random_bytes(&mut random, 0x1000);
        src.write(0, &data);
        rig.submit(&mut second, WORDS, |pushbuffer| {
            pushbuffer.host_acquire(&passed, round)?.copy(dst.va(), between.va(), 0x1000)?;
            pushbuffer.copy_release(&done, round).map(drop)
        })?;
        if round == 1 {
            let early = done.wait(round, SHORT);
            ensure(early.is_err(), || "the second channel did not wait for the first".into())?;
        }
        rig.submit(&mut first, WORDS, |pushbuffer| {
            pushbuffer.copy(between.va(), src.va(), 0x1000)?.copy_release(&passed, round).map(drop)
        })?;
        rig.wait(&first, &passed, round)?;
        rig.wait(&second, &done, round)?;
        fail_if_some(compare::difference(&data, &rig.read(&dst, 0, 0x1000)), || format!("round {round}"))?;
    }
    Ok(format!("{ROUNDS} rounds"))
}

pub(super) fn bounded(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut lane = Lane::new(&rig, rig.channel(rig.copy_engine()?)?)?;
    let (gate, done) = (rig.semaphore()?, rig.semaphore()?);
    rig.submit(&mut lane.channel, WORDS, |pushbuffer| {
        pushbuffer.host_acquire(&gate, 1)?.host_release(&done, 1).map(drop)
    })?;
    let waited = done.wait(1, SHORT);
    gate.set(1);
    let text = match waited {
        Err(error @ Error::Timeout { wanted: 1, found: 0, .. }) => error.to_string(),
        Err(error) => return Err(Stop::Failed(format!("instead of a time-out: {error}"))),
        Ok(()) => return Err(Stop::Failed("a channel went on whose acquire did not hold".into())),
    };
    rig.wait(&lane.channel, &done, 1)?;
    lane.send(&rig, &mut random)?;
    lane.check(&rig)?;
    bounded_ticket(&rig, &mut lane)?;
    lane.send(&rig, &mut random)?;
    lane.check(&rig)?;
    Ok(text)
}

/// The same for a prepared transfer and its ticket.
fn bounded_ticket(rig: &Rig, lane: &mut Lane) -> Result<(), Stop> {
    let gate = rig.semaphore()?;
    rig.submit(&mut lane.channel, WORDS, |pushbuffer| pushbuffer.host_acquire(&gate, 1).map(drop))?;
    let prepared = Prepared::copy(&mut lane.channel, &lane.dst.region(), &lane.src.region(), 64, CopyMode::Plain);
    let waited = prepared.and_then(|mut prepared| {
        let ticket = prepared.submit(&mut lane.channel)?;
        Ok((ticket, lane.channel.wait(ticket, SHORT), prepared))
    });
    gate.set(1);
    let (ticket, waited, _prepared) = waited?;
    ensure(matches!(waited, Err(Error::Timeout { .. })), || {
        format!("a prepared transfer behind an acquire that does not hold: {waited:?}")
    })?;
    Ok(lane.channel.wait(ticket, rig.ground.patience)?)
}

/// A second address space, of a second opening of the device.
pub(super) fn another_space(ground: &Ground) -> Result<Arc<AddressSpace>, Stop> {
    Ok(AddressSpace::new(&ground.device_of(ground.driver.clone(), ground.index)?)?)
}
