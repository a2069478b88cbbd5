//! Transfers that are validated once and submitted often.

use super::Outcome;
use super::compare;
use super::ground::{Ground, Rig, Stop, ensure, fail_if_some};
use super::random_bytes;
use super::ring::another_space;
use fastrand::Rng;
use gpu::{Channel, CopyMode, Engine, Error, InlineMode, InlineRelease, Prepared, Ticket};

const BYTES: u32 = 1000;
const ROOM: u64 = 0x4000;

/// Waits; a time-out or a dead channel becomes the check's error.
fn wait(rig: &Rig, channel: &Channel, ticket: Ticket) -> Result<(), Stop> {
    Ok(channel.wait(ticket, rig.ground.patience)?)
}

pub(super) fn copies(ground: &Ground) -> Outcome {
    const COUNT: u64 = 10_000;
    /// How often data is compared and renewed.
    const LOOK: u64 = 50;
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let (src, dst) = (rig.memory(false, ROOM)?, rig.memory(true, ROOM)?);
    let modes = [CopyMode::Plain, CopyMode::Pipelined, CopyMode::Folded];
    let mut prepared = Vec::new();
    for mode in modes {
        prepared.push(Prepared::copy(&mut channel, &dst.region(), &src.region(), BYTES, mode)?);
    }
    let places = ROOM - u64::from(BYTES);
    for n in 0..COUNT {
        let which = (n % 3) as usize;
        let (from, to) = (random.u64(..places), random.u64(..places));
        let data = n.is_multiple_of(LOOK).then(|| random_bytes(&mut random, BYTES as usize));
        if let Some(data) = &data {
            // A transfer in flight may still write there.
            let last = rig.patiently(&mut channel, |channel| prepared[which].submit(channel))?;
            wait(&rig, &channel, last)?;
            src.write(from, data);
        }
        let submit = |channel: &mut Channel| prepared[which].submit_at(channel, dst.va() + to, src.va() + from);
        let ticket = rig.patiently(&mut channel, submit)?;
        if let Some(data) = &data {
            wait(&rig, &channel, ticket)?;
            ensure(channel.done(ticket), || "a ticket was waited for and is not done".into())?;
            fail_if_some(compare::difference(data, &rig.read(&dst, to, data.len())), || {
                format!("submission {} ({:?})", n + 1, modes[which])
            })?;
        }
    }
    Ok(format!("{COUNT} submissions, {} of them looked at", COUNT / LOOK))
}

pub(super) fn inline(ground: &Ground) -> Outcome {
    const COUNT: u64 = 1000;
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut channel = rig.channel(Engine::Graphics)?;
    let dst = rig.memory(true, ROOM)?;
    let releases = [InlineRelease::Host, InlineRelease::Engine];
    let mut prepared = Vec::new();
    for release in releases {
        prepared.push(Prepared::inline(&mut channel, &dst.region(), 101, (InlineMode::Headers, release))?);
    }
    for n in 0..COUNT {
        let which = (n % 2) as usize;
        let data = random_bytes(&mut random, 101);
        let ticket = rig.patiently(&mut channel, |channel| prepared[which].submit_data(channel, &data))?;
        wait(&rig, &channel, ticket)?;
        fail_if_some(compare::difference(&data, &rig.read(&dst, 0, 101)), || {
            format!("submission {} ({:?} reports it as complete)", n + 1, releases[which])
        })?;
    }
    again(&rig, &mut channel, &mut random)?;
    Ok(format!("{COUNT} submissions, each with its own data; without data, the newest again"))
}

/// A submission without data sends the newest that was given, whichever slot has it.
fn again(rig: &Rig, channel: &mut Channel, random: &mut Rng) -> Result<(), Stop> {
    let dst = rig.memory(true, ROOM)?;
    for bytes in [8, 5001] {
        let mut prepared = Prepared::inline(channel, &dst.region(), bytes, InlineMode::Headers)?;
        let mut data = Vec::new();
        for n in 0..3 * prepared.slots() {
            let ticket = if n % 3 == 0 {
                data = random_bytes(random, bytes as usize);
                prepared.submit_data(channel, &data)?
            } else {
                prepared.submit(channel)?
            };
            wait(rig, channel, ticket)?;
            let found = rig.read(&dst, 0, data.len());
            fail_if_some(compare::difference(&data, &found), || {
                format!("submission {} of {bytes} bytes, data again", n + 1)
            })?;
            dst.write(0, &vec![!found[0]; data.len()]);
        }
    }
    Ok(())
}

/// More inline data than fits under one header.
pub(super) fn long_inline(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let dst = rig.memory(true, 0x2_0000)?;
    for mode in [InlineMode::Launches, InlineMode::Headers] {
        // A separate channel: if the engine refuses one way, the other has already been tried.
        let mut channel = rig.channel(Engine::Graphics)?;
        for bytes in [32_764, 32_765, 65_536, 100_001] {
            let mut prepared = Prepared::inline(&mut channel, &dst.region(), bytes, mode)?;
            let data = random_bytes(&mut random, bytes as usize);
            let what = || format!("{bytes} bytes, {mode:?}");
            let ticket = prepared.submit_data(&mut channel, &data)?;
            wait(&rig, &channel, ticket).map_err(|stop| match stop {
                Stop::Failed(why) => Stop::Failed(format!("{}: {why}", what())),
                skipped => skipped,
            })?;
            fail_if_some(compare::difference(&data, &rig.read(&dst, 0, data.len())), what)?;
        }
    }
    Ok("up to 100,001 bytes, by several launches and by several headers after one".into())
}

/// What a prepared transfer refuses.
pub(super) fn refusals(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let (mut channel, mut other) = (rig.channel(rig.copy_engine()?)?, rig.channel(rig.copy_engine()?)?);
    let (src, dst) = (rig.memory(false, ROOM)?, rig.memory(true, ROOM)?);
    let mut prepared = Prepared::copy(&mut channel, &dst.region(), &src.region(), BYTES, CopyMode::Plain)?;
    let end = dst.va() + ROOM - u64::from(BYTES);
    for (to, from) in [(end + 1, src.va()), (dst.va() - 1, src.va()), (end, src.va() - 1), (u64::MAX, 0)] {
        let error = prepared.submit_at(&mut channel, to, from);
        ensure(matches!(error, Err(Error::OutsideRegion { .. })), || format!("outside of its region: {error:?}"))?;
    }
    let error = prepared.submit(&mut other);
    ensure(matches!(error, Err(Error::OtherChannel)), || format!("on another channel: {error:?}"))?;
    let whole = dst.region();
    let parts = [(0, 1 << 40), (8, ROOM), (ROOM, 1), (u64::MAX - 3, 8), (1, u64::MAX)];
    for (offset, length) in parts {
        let part = whole.part(offset, length);
        ensure(matches!(part, Err(Error::Outside { .. })), || format!("{length:#x} bytes at {offset:#x}: {part:?}"))?;
    }
    ensure(matches!(whole.part(8, 0), Err(Error::Length(0))), || "a region of no bytes was made".into())?;
    let theirs = another_space(ground)?.alloc_video(ROOM)?.region();
    let error = Prepared::copy(&mut channel, &theirs, &src.region(), BYTES, CopyMode::Plain);
    ensure(matches!(error, Err(Error::OtherSpace { .. })), || format!("memory of another address space: {error:?}"))?;
    // Within the memory, but not within the region.
    let first = whole.part(0, u64::from(BYTES))?;
    let error = Prepared::copy(&mut channel, &first, &src.region(), BYTES + 1, CopyMode::Plain);
    let text = match error {
        Err(error) => error.to_string(),
        Ok(_) => return Err(Stop::Failed("a copy past the end of its region was prepared".into())),
    };
    let ticket = prepared.submit_at(&mut channel, end, src.va())?;
    wait(&rig, &channel, ticket)?;
    drop(dst);
    let error = prepared.submit(&mut channel);
    ensure(matches!(error, Err(Error::Stale)), || format!("after its memory was freed: {error:?}"))?;
    // Other memory at the same address is not the intended memory.
    let _other = rig.memory(true, ROOM)?;
    let error = prepared.submit(&mut channel);
    ensure(matches!(error, Err(Error::Stale)), || format!("after other memory came to its address: {error:?}"))?;
    let error = Prepared::copy(&mut channel, &whole, &src.region(), BYTES, CopyMode::Plain);
    ensure(matches!(error, Err(Error::Stale)), || format!("a region of freed memory: {error:?}"))?;
    ensure(channel.error().is_none(), || "a refused submission killed the channel".into())?;
    Ok(text)
}
