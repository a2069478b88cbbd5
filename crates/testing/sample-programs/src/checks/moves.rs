//! Everything that is moved arrives completely at its destination, and other memory does not change.

use super::compare;
use super::ground::{Ground, Rig, Stop, fail_if_some};
use super::random_bytes;
use super::{Outcome, ground};
use fastrand::Rng;
use gpu::{Channel, Engine, Memory};

/// Bytes on each side of a destination that must stay.
const GUARD: usize = 64;
/// A release with a timestamp and a copy need fewer words.
const WORDS: usize = 64;

/// The source and the destination of one transfer.
struct Move<'a> {
    src: &'a Memory,
    src_offset: u64,
    dst: &'a Memory,
    dst_offset: u64,
    length: usize,
}

/// How a transfer is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    Plain,
    Pipelined,
    Inline,
}

/// Makes one transfer of random data and compares every byte of it and the guards around it.
fn transfer(rig: &Rig, channel: &mut Channel, random: &mut Rng, how: How, this: &Move<'_>) -> Result<(), Stop> {
    let Move { src, src_offset, dst, dst_offset, length } = *this;
    let what = || format!("{how:?} copy of {length} bytes, offsets {src_offset} and {dst_offset}");
    let data = random_bytes(random, length);
    let around = random_bytes(random, length + 2 * GUARD);
    let around_at = dst_offset - GUARD as u64;
    dst.write(around_at, &around);
    src.write(src_offset, &data);
    let done = rig.semaphore()?;
    let (from, to) = (src.va() + src_offset, dst.va() + dst_offset);
    rig.submit(channel, WORDS + length.div_ceil(4), |pushbuffer| {
        match how {
            How::Plain => pushbuffer.copy(to, from, length as u32)?.copy_release(&done, 1)?,
            How::Pipelined => pushbuffer.copy_pipelined(to, from, length as u32)?.copy_release(&done, 1)?,
            How::Inline => pushbuffer.inline(to, &data)?.host_release(&done, 1)?,
        };
        Ok(())
    })?;
    rig.wait(channel, &done, 1)?;
    let after = rig.read(dst, around_at, around.len());
    fail_if_some(compare::difference(&data, &after[GUARD..GUARD + length]), what)?;
    fail_if_some(compare::guards(&around, &after, GUARD), what)
}

pub(super) fn tiny(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let (src, dst) = (rig.memory(false, 0x1000)?, rig.memory(true, 0x1000)?);
    let mut random = Rng::with_seed(ground.seed);
    let this = Move { src: &src, src_offset: 0, dst: &dst, dst_offset: GUARD as u64, length: 8 };
    let mut engines = Vec::new();
    // The first engine has made its copy before a second one is used.
    for engine in &rig.copy_engines {
        let what = format!("copy engine {}", engine.number);
        rig.channel(Engine::Copy(engine.number))
            .and_then(|mut channel| transfer(&rig, &mut channel, &mut random, How::Plain, &this))
            .map_err(|stop| named(&what, stop))?;
        let kind = if engine.is_graphics() { " (graphics)" } else { "" };
        engines.push(format!("{}{kind}", engine.number));
    }
    ground::ensure(!engines.is_empty(), || "the driver names no copy engine".into())?;
    Ok(format!("copy engines {}", engines.join(", ")))
}

fn named(what: &str, stop: Stop) -> Stop {
    match stop {
        Stop::Failed(why) => Stop::Failed(format!("{what}: {why}")),
        skipped => skipped,
    }
}

pub(super) fn inline(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut channel = rig.channel(Engine::Graphics)?;
    let (src, dst) = (rig.memory(false, 0x1000)?, rig.memory(true, 0x1000)?);
    let mut random = Rng::with_seed(ground.seed);
    let this = Move { src: &src, src_offset: 0, dst: &dst, dst_offset: 256, length: 8 };
    transfer(&rig, &mut channel, &mut random, How::Inline, &this)?;
    Ok("8 bytes".into())
}

pub(super) fn guards(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut copy = rig.channel(rig.copy_engine()?)?;
    let mut graphics = rig.channel(Engine::Graphics)?;
    let (src, dst) = (rig.memory(false, 0x4000)?, rig.memory(true, 0x4000)?);
    let mut random = Rng::with_seed(ground.seed);
    let mut count = 0;
    for length in [1, 2, 3, 4, 5, 7, 8, 31, 32, 33, 64, 100, 255, 256, 1000, 4096] {
        for dst_offset in [64, 65, 67, 80, 127] {
            let this = Move { src: &src, src_offset: random.u64(..16), dst: &dst, dst_offset, length };
            transfer(&rig, &mut copy, &mut random, How::Plain, &this)?;
            transfer(&rig, &mut graphics, &mut random, How::Inline, &this)?;
            count += 2;
        }
    }
    Ok(format!("{count} transfers"))
}

pub(super) fn sizes(ground: &Ground) -> Outcome {
    const ROOM: u64 = 2 << 20;
    let rig = ground.open()?;
    let mut copy = rig.channel(rig.copy_engine()?)?;
    let host = [rig.memory(false, ROOM)?, rig.memory(false, ROOM)?];
    let video = [rig.memory(true, ROOM)?, rig.memory(true, ROOM)?];
    let ways = [
        ("host to GPU", &host[0], &video[0]),
        ("GPU to host", &video[0], &host[0]),
        ("GPU to GPU", &video[0], &video[1]),
        ("host to host", &host[0], &host[1]),
    ];
    let powers = (0..=16).map(|n| 1usize << n).flat_map(|n| [n.saturating_sub(1).max(1), n, n + 1]);
    let mut sizes: Vec<usize> = powers.chain([200_001, (1 << 20) + 3]).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut random = Rng::with_seed(ground.seed);
    for &length in &sizes {
        for (way, src, dst) in ways {
            let dst_offset = GUARD as u64 + random.u64(..64);
            let this = Move { src, src_offset: random.u64(..64), dst, dst_offset, length };
            let how = if random.bool() { How::Plain } else { How::Pipelined };
            transfer(&rig, &mut copy, &mut random, how, &this).map_err(|stop| named(way, stop))?;
        }
    }
    Ok(format!("{} sizes from 1 byte to 1 MiB, 4 directions", sizes.len()))
}

pub(super) fn pipelined(ground: &Ground) -> Outcome {
    const PIECE: usize = 1021;
    const PIECES: usize = 200;
    let rig = ground.open()?;
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let room = (PIECE * PIECES) as u64;
    let (src, dst) = (rig.memory(false, room)?, rig.memory(true, room)?);
    let mut random = Rng::with_seed(ground.seed);
    let done = rig.semaphore()?;
    for round in 1..=10 {
        let data = random_bytes(&mut random, PIECE * PIECES);
        src.write(0, &data);
        rig.submit(&mut channel, WORDS + 16 * PIECES, |pushbuffer| {
            // The last pieces first: only the release is in order.
            for piece in (0..PIECES).rev() {
                let at = (piece * PIECE) as u64;
                pushbuffer.copy_pipelined(dst.va() + at, src.va() + at, PIECE as u32)?;
            }
            pushbuffer.copy_release(&done, round)?;
            Ok(())
        })?;
        rig.wait(&channel, &done, round)?;
        let after = rig.read(&dst, 0, data.len());
        fail_if_some(compare::difference(&data, &after), || format!("round {round} of {PIECES} pipelined copies"))?;
    }
    Ok(format!("10 rounds of {PIECES} copies of {PIECE} bytes"))
}
