//! GPU memory accessed by the CPU, compared with what the copy engine reads there.

use super::compare;
use super::ground::{Ground, Rig, Stop, ensure, fail_if_some};
use super::random_bytes;
use super::{Outcome, compare::guards};
use fastrand::Rng;
use gpu::{Bar1Map, Channel, Error, Memory};

const ROOM: u64 = 0x1_0000;
const GUARD: usize = 64;
/// Lengths around those of words, vectors and lines.
const LENGTHS: [usize; 20] = [1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 256, 1000, 4096, 20_001];

/// A copy of everything by the copy engine.
fn copy(rig: &Rig, channel: &mut Channel, to: &Memory, from: &Memory) -> Result<(), Stop> {
    let done = rig.semaphore()?;
    rig.submit(channel, 64, |p| p.copy(to.va(), from.va(), ROOM as u32)?.copy_release(&done, 1).map(drop))?;
    rig.wait(channel, &done, 1)
}

pub(super) fn views(ground: &Ground) -> Outcome {
    let rig = ground.open()?;
    let mut random = Rng::with_seed(ground.seed);
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let (video, host) = (rig.memory(true, ROOM)?, rig.memory(false, ROOM)?);
    let map = Bar1Map::of(&video, 0, ROOM)?;
    for length in LENGTHS {
        let offset = GUARD as u64 + random.u64(..64);
        let what = |way: &str| format!("{length} bytes at {offset:#x}, {way}");
        // Stores of the CPU, seen by the copy engine.
        let before = random_bytes(&mut random, ROOM as usize);
        host.write(0, &before);
        copy(&rig, &mut channel, &video, &host)?;
        let data = random_bytes(&mut random, length);
        map.write(offset, &data)?;
        copy(&rig, &mut channel, &host, &video)?;
        let (start, end) = (offset as usize, offset as usize + length);
        let after = rig.read(&host, 0, ROOM as usize);
        fail_if_some(compare::difference(&data, &after[start..end]), || what("stored"))?;
        let around = start - GUARD..end + GUARD;
        fail_if_some(guards(&before[around.clone()], &after[around], GUARD), || what("stored"))?;
        // What the copy engine wrote, loaded by the CPU.
        let fresh = random_bytes(&mut random, ROOM as usize);
        host.write(0, &fresh);
        copy(&rig, &mut channel, &video, &host)?;
        let mut seen = vec![0; length];
        map.read(offset, &mut seen)?;
        fail_if_some(compare::difference(&fresh[start..end], &seen), || what("loaded"))?;
    }
    let past = map.write(ROOM - 7, &[0; 8]);
    ensure(matches!(past, Err(Error::Outside { .. })), || format!("a store past the end of the map: {past:?}"))?;
    let outside = Bar1Map::of(&video, 1, ROOM);
    ensure(outside.is_err(), || "a map past the end of its memory was made".into())?;
    let hosts = Bar1Map::of(&host, 0, ROOM);
    ensure(matches!(hosts, Err(Error::NotVideo)), || format!("a map of host memory: {hosts:?}"))?;
    Ok(format!("{} lengths both ways, {:?}", LENGTHS.len(), map.level()))
}
