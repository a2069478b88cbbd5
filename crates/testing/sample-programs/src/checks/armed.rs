//! Eight bytes that are read at the moment that the release is seen: every kind of release, and transfers that wait at a gate.

use super::Outcome;
use super::compare;
use super::ground::{Ground, Rig, Stop, ensure, fail_if_some};
use super::random_bytes;
use super::ring::another_space;
use fastrand::Rng;
use gpu::{
    Armed, Bar1Map, Channel, CopyMode, CopyRelease, Engine, Error, InlineMode, InlineRelease, Memory, Prepared, Ticket,
};
use std::time::Duration;

const BYTES: u32 = 8;
const ROOM: u64 = 0x1000;
const INLINE: [InlineRelease; 5] = [
    InlineRelease::Host,
    InlineRelease::Engine,
    InlineRelease::EngineWord,
    InlineRelease::Execute,
    InlineRelease::Flag,
];
const COPY: [(CopyMode, CopyRelease); 6] = [
    (CopyMode::Plain, CopyRelease::Timed),
    (CopyMode::Plain, CopyRelease::Word),
    (CopyMode::Plain, CopyRelease::LocalWord),
    (CopyMode::Folded, CopyRelease::Timed),
    (CopyMode::Folded, CopyRelease::Word),
    (CopyMode::Folded, CopyRelease::LocalWord),
];

fn rounds(rig: &Rig) -> u64 {
    if rig.is_soft() { 100 } else { 2_000 }
}

/// Runs `transfer` with new bytes each time, and loads the destination as soon as the transfer reports that they are there.
fn look(
    rig: &Rig,
    random: &mut Rng,
    seen: &Bar1Map,
    what: &str,
    mut transfer: impl FnMut(u64) -> Result<(), Stop>,
) -> Result<(), Stop> {
    for round in 1..=rounds(rig) {
        let sent = random.u64(..);
        transfer(sent)?;
        let found = seen.load64(0)?;
        ensure(found == sent, || format!("{what}, round {round}: {found:#018x} instead of {sent:#018x}"))?;
    }
    Ok(())
}

fn wait(rig: &Rig, channel: &Channel, ticket: Ticket) -> Result<(), Stop> {
    Ok(channel.wait(ticket, rig.ground.patience)?)
}

pub(super) fn releases(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let (src, dst) = (rig.memory(false, ROOM)?, rig.memory(true, ROOM)?);
    let seen = Bar1Map::of(&dst, 0, ROOM)?;
    let mut graphics = rig.channel(Engine::Graphics)?;
    for release in INLINE {
        let mut inline = Prepared::inline(&mut graphics, &dst.region(), BYTES, (InlineMode::Headers, release))?;
        look(&rig, &mut random, &seen, &format!("inline, {release:?}"), |sent| {
            let ticket = inline.submit_data(&mut graphics, &sent.to_le_bytes())?;
            wait(&rig, &graphics, ticket)
        })?;
    }
    let mut engine = rig.channel(rig.copy_engine()?)?;
    for (mode, release) in COPY {
        let mut copy = Prepared::copy(&mut engine, &dst.region(), &src.region(), BYTES, (mode, release))?;
        look(&rig, &mut random, &seen, &format!("{mode:?} copy, {release:?}"), |sent| {
            src.write(0, &sent.to_le_bytes());
            let ticket = copy.submit(&mut engine)?;
            wait(&rig, &engine, ticket)
        })?;
    }
    Ok(format!("{} kinds, {} transfers each", INLINE.len() + COPY.len(), rounds(&rig)))
}

/// A number that travels inline after the data must not be seen before them: by the CPU, through BAR1, or by a copy engine.
pub(super) fn flag_order(ground: &Ground) -> Outcome {
    const FIELD: u64 = 2 << 20;
    const SIZES: [u32; 7] = [4, 8, 12, 60, 256, 4096, 30_000];
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let rounds = if rig.is_soft() { 140 } else { 14_000 };
    let (dst, back) = (rig.memory(true, FIELD)?, rig.memory(false, FIELD)?);
    let seen = Bar1Map::of(&dst, 0, FIELD)?;
    let (mut graphics, mut engine) = (rig.channel(Engine::Graphics)?, rig.channel(rig.copy_engine()?)?);
    let release = InlineRelease::Flag;
    for bytes in SIZES {
        // One place after the other, so that every memory controller has its turn.
        let whole = dst.region();
        let to = |at: u64| whole.part(at, bytes.into());
        for round in 0..rounds / SIZES.len() as u64 {
            let at = random.u64(..(FIELD - 32_768) / 4) * 4;
            let mut inline = Prepared::inline(&mut graphics, &to(at)?, bytes, (InlineMode::Headers, release))?;
            let from = to(at)?;
            let mut copy = Prepared::copy(&mut engine, &back.region(), &from, bytes, CopyMode::Plain)?;
            let data = random_bytes(&mut random, bytes as usize);
            let ticket = inline.submit_data(&mut graphics, &data)?;
            wait(&rig, &graphics, ticket)?;
            let mut found = vec![0; data.len()];
            if round % 2 == 0 {
                // The last bytes first: they were written last.
                let last = found.len() - 4;
                seen.read(at + last as u64, &mut found[last..])?;
                seen.read(at, &mut found[..last])?;
            } else {
                let ticket = copy.submit(&mut engine)?;
                wait(&rig, &engine, ticket)?;
                back.read(0, &mut found);
            }
            fail_if_some(compare::difference(&data, &found), || format!("{bytes} bytes at {at:#x}, round {round}"))?;
        }
    }
    Ok(format!("{rounds} transfers of {} sizes, looked at through BAR1 and by a copy engine", SIZES.len()))
}

pub(super) fn armed(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let (src, dst) = (rig.memory(false, ROOM)?, rig.memory(true, ROOM)?);
    let seen = Bar1Map::of(&dst, 0, ROOM)?;
    let mut engine = rig.channel(rig.copy_engine()?)?;
    for (mode, release) in [(CopyMode::Plain, CopyRelease::Timed), (CopyMode::Folded, CopyRelease::Word)] {
        let mut copy = Armed::copy(&mut engine, &dst.region(), &src.region(), BYTES, mode, release)?;
        let mut rested = 0;
        look(&rig, &mut random, &seen, &format!("armed {mode:?} copy, {release:?}"), |sent| {
            src.write(0, &sent.to_le_bytes());
            let ticket = copy.submit()?;
            wait(&rig, copy.channel(), ticket)?;
            rested += 1;
            if rested % 64 == 0 {
                copy.rest()?;
            }
            Ok(())
        })?;
    }
    let mut graphics = rig.channel(Engine::Graphics)?;
    for release in [InlineRelease::Engine, InlineRelease::EngineWord] {
        let mut inline = Armed::inline(&mut graphics, &dst.region(), BYTES, InlineMode::Headers, release)?;
        look(&rig, &mut random, &seen, &format!("armed inline, {release:?}"), |sent| {
            let ticket = inline.submit_data(&sent.to_le_bytes())?;
            wait(&rig, inline.channel(), ticket)
        })?;
    }
    resting_transfers_move_nothing(&rig, &mut random, &mut graphics, &dst, &seen)?;
    after_it_the_channel_is_as_before(&rig, &mut random, &mut engine, &src, &dst, &seen)?;
    Ok(format!("4 kinds, {} transfers each", rounds(&rig)))
}

/// An armed transfer is released without being executed when the channel rests and when the transfer is dropped.
fn resting_transfers_move_nothing(
    rig: &Rig,
    random: &mut Rng,
    channel: &mut Channel,
    dst: &Memory,
    seen: &Bar1Map,
) -> Result<(), Stop> {
    let mut inline = Armed::inline(channel, &dst.region(), BYTES, InlineMode::Headers, InlineRelease::Engine)?;
    for dropped in [false, true] {
        let ticket = inline.submit_data(&random.u64(..).to_le_bytes())?;
        wait(rig, inline.channel(), ticket)?;
        let kept = random.u64(..);
        seen.store64(0, kept)?;
        if dropped {
            drop(inline);
            ensure(seen.load64(0)? == kept, || "a transfer that was dropped before its gate was carried out".into())?;
            break;
        }
        inline.rest()?;
        // Longer than a transfer takes.
        std::thread::sleep(Duration::from_millis(1));
        ensure(seen.load64(0)? == kept, || "a transfer at rest was carried out".into())?;
    }
    Ok(())
}

/// Ordinary submissions follow, and freed memory is refused before its gate opens.
fn after_it_the_channel_is_as_before(
    rig: &Rig,
    random: &mut Rng,
    channel: &mut Channel,
    src: &Memory,
    dst: &Memory,
    seen: &Bar1Map,
) -> Result<(), Stop> {
    let mut copy = Prepared::copy(channel, &dst.region(), &src.region(), BYTES, CopyMode::Plain)?;
    let sent = random.u64(..);
    src.write(0, &sent.to_le_bytes());
    let ticket = copy.submit(channel)?;
    wait(rig, channel, ticket)?;
    ensure(seen.load64(0)? == sent, || "a copy after armed ones moved other bytes".into())?;
    let gone = rig.memory(false, ROOM)?;
    let mut stale =
        Armed::copy(&mut *channel, &dst.region(), &gone.region(), BYTES, CopyMode::Plain, CopyRelease::Timed)?;
    let ticket = stale.submit()?;
    wait(rig, stale.channel(), ticket)?;
    drop(gone);
    let refused = stale.submit();
    ensure(matches!(refused, Err(Error::Stale)), || format!("a gate before freed memory: {refused:?}"))?;
    drop(stale);
    let ticket = copy.submit(channel)?;
    wait(rig, channel, ticket)?;
    // A channel of another address space cannot name this one's memory, armed or not.
    let other = another_space(&rig.ground)?;
    let mut theirs = Channel::new(&other, channel.engine(), gpu::ChannelOptions::default())?;
    let refused = Armed::copy(&mut theirs, &dst.region(), &src.region(), BYTES, CopyMode::Plain, CopyRelease::Timed);
    ensure(refused.is_err(), || "another address space's memory was armed".into())
}
