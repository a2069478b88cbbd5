//! The programs on channels.

use super::{Machine, Ring, Shape};
use crate::data::{bytes, to_bytes, words};
use crate::programs::{side_by_side, without_end};
use crate::{Error, Options, Report, Result};
use fastrand::Rng;
use gpu::Memory;
use std::sync::Mutex;
use std::time::Duration;

const SIZES: [u32; 14] = [
    4,
    8,
    13,
    64,
    256,
    1 << 10,
    4 << 10,
    (4 << 10) + 1,
    32 << 10,
    (64 << 10) + 7,
    1 << 20,
    (4 << 20) - 3,
    16 << 20,
    64 << 20,
];
const LARGEST: usize = 64 << 20;
/// Entries of a ring that shares its page with others, of one that fills a page, and of one as long as CUDA's.
const SHORT_RING: u32 = 64;
const PAGE_RING: u32 = 512;
const RING: u32 = 1024;
/// Above this, data does not travel in the pushbuffer.
const INLINE_MAX: u32 = 4 << 10;

fn read(memory: &Memory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(0, &mut bytes);
    bytes
}

/// Host to video, video to video, video to host; inline; fills.
pub(crate) fn copies(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let (host, back) = (machine.host_memory(LARGEST)?, machine.host_memory(LARGEST)?);
    let (there, beside) = (machine.video_memory(LARGEST)?, machine.video_memory(LARGEST)?);
    let mut channel = machine.copies(PAGE_RING)?;
    let mut inline = machine.graphics(PAGE_RING)?;
    let mut random = Rng::with_seed(options.seed);
    let mut copies = 0;
    for _ in 0..options.count_or(1) {
        for size in SIZES {
            let len = size as usize;
            let data = bytes(&mut random, len);
            host.write(0, &data);
            back.write(0, &vec![0; len]);
            for (to, from) in [(&there, &host), (&beside, &there), (&back, &beside)] {
                channel.run(|work| work.copy(to.va(), from.va(), size))?;
            }
            channel.wait()?;
            copies += 3;
            report.check(|| format!("{size} B by the copy engine and back"), &data, &read(&back, len))?;

            if size <= INLINE_MAX {
                let data = bytes(&mut random, len);
                inline.run(|work| work.inline(there.va(), &data))?;
                inline.wait()?;
                channel.run(|work| work.copy(back.va(), there.va(), size))?;
                channel.wait()?;
                copies += 2;
                report.check(|| format!("{size} B in the pushbuffer"), &data, &read(&back, len))?;
            }

            let (word, words) = (random.u32(..), size / 4);
            channel.run(|work| work.fill(there.va(), word, words)?.copy(back.va(), there.va(), words * 4))?;
            channel.wait()?;
            copies += 1;
            let expected = word.to_le_bytes().repeat(words as usize);
            report.check(|| format!("{words} words filled"), &expected, &read(&back, expected.len()))?;
        }
    }
    report.fact("copies", copies);
    report.fact("fills", options.count_or(1) * SIZES.len() as u64);
    Ok(())
}

const SHAPES: [Shape; 5] = [
    ([1, 1, 1], [32, 1, 1], 0),
    ([64, 1, 1], [256, 1, 1], 1024),
    ([5, 3, 2], [8, 4, 2], 256),
    ([132, 1, 1], [1024, 1, 1], 4096),
    ([3, 2, 1], [16, 16, 1], 48 << 10),
];

/// QMDs of several shapes, each of which releases its own word.
pub(crate) fn launches(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let mut channel = machine.graphics(PAGE_RING)?;
    let out = machine.host_memory(4 * SHAPES.len())?;
    let mut random = Rng::with_seed(options.seed);
    let each = options.count_or(10);
    for round in 0..each {
        let payloads = words(&mut random, SHAPES.len());
        for (n, (shape, payload)) in (0u64..).zip(SHAPES.into_iter().zip(&payloads)) {
            channel.launch(shape, out.va() + 4 * n, *payload)?;
        }
        channel.wait()?;
        let what = || format!("the releases of the launches of round {round}");
        report.check(what, &to_bytes(&payloads), &read(&out, 4 * SHAPES.len()))?;
    }
    report.fact("launches", each * SHAPES.len() as u64);
    Ok(())
}

const THREADS: usize = 8;
const SHARING: usize = 2;
const ROW: usize = 4096;

/// Eight threads on eight channels, then two on one.
pub(crate) fn threads(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let rounds = options.count_or(200);
    let channels = (0..THREADS).map(|_| machine.copies(PAGE_RING).map(Mutex::new)).collect::<Result<Vec<_>>>()?;
    let work = |channel: &&Mutex<Ring>, seed| worker(machine, channel, seed, rounds);
    side_by_side("channels of their own", &channels.iter().collect::<Vec<_>>(), options, report, work)?;
    side_by_side("one channel", &[&channels[0]; SHARING], options, report, work)?;
    report.fact("submissions", rounds * (THREADS + SHARING) as u64 * 2);
    Ok(())
}

fn worker(machine: &Machine, channel: &Mutex<Ring>, seed: u64, rounds: u64) -> Result<Vec<u8>> {
    let (host, back) = (machine.host_memory(ROW)?, machine.host_memory(ROW)?);
    let there = machine.video_memory(ROW)?;
    let mut random = Rng::with_seed(seed);
    // Locked for one submission at a time, so that those of two threads mix in one ring.
    let channel = || poison::ignore(channel.lock());
    let up = channel().prepare(|work| work.copy(there.va(), host.va(), ROW as u32))?;
    let down = channel().prepare(|work| work.copy(back.va(), there.va(), ROW as u32))?;
    for round in 0..rounds {
        let data = bytes(&mut random, ROW);
        host.write(0, &data);
        channel().submit(&up)?;
        channel().submit(&down)?;
        channel().wait()?;
        crate::data::check(|| format!("round {round} of a thread"), &data, &read(&back, ROW))?;
    }
    Ok(read(&back, ROW))
}

const DELAY: Duration = Duration::from_millis(300);

/// Words beyond those that the last submission moves out of sight.
const SPARE: usize = 64;

/// A channel that waits for a flag, and then more submissions than its ring has entries. Each moves all words by one place from one row to the
/// other, so the result shows how many there were.
pub(crate) fn spin(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(5_000);
    let words = usize::try_from(count).ok().and_then(|count| count.checked_add(SPARE));
    let Some(len) = words.and_then(|words| u32::try_from(words * 4).ok()) else {
        return Err(Error::Option { what: "count", value: count.to_string() });
    };
    let whole = len as usize + 4;
    let mut random = Rng::with_seed(options.seed);
    let rows = [machine.host_memory(whole)?, machine.host_memory(whole)?];
    let mut expected = [bytes(&mut random, whole), bytes(&mut random, whole)];
    rows.iter().zip(&expected).for_each(|(row, bytes)| row.write(0, bytes));
    let before = expected.clone();
    for n in 0..count as usize {
        let [from, to] = if n % 2 == 0 { [0, 1] } else { [1, 0] };
        let moved = expected[from][..len as usize].to_vec();
        expected[to][4..].copy_from_slice(&moved);
    }

    let flag = machine.flag()?;
    let go = random.u32(..) | 1;
    let mut channel = machine.copies(RING)?;
    let acquire = channel.prepare(|work| work.host_acquire(&flag, go))?;
    let moving = |from: usize| channel.prepare(|work| work.copy(rows[1 - from].va() + 4, rows[from].va(), len));
    let moves = [moving(0)?, moving(1)?];
    let full = || rows.each_ref().map(|row| read(row, whole));
    std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(DELAY);
            let early = full();
            // Always set, because otherwise the channel would never continue.
            flag.set(go);
            early
        });
        let submitted = (|| {
            channel.submit(&acquire)?;
            (0..count).try_for_each(|n| channel.submit(&moves[(n % 2) as usize]))?;
            channel.wait()
        })();
        let early = setter.join().map_err(|_| Error::Panicked)?;
        submitted?;
        crate::data::check(|| "what ran before the flag was set".into(), &before.concat(), &early.concat())
    })?;
    report.check(|| format!("{count} submissions after a waiting one"), &expected.concat(), &full().concat())?;
    report.fact("submissions after the waiting one", count);
    Ok(())
}

/// Channels are created and destroyed while another one works.
pub(crate) fn channels(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(24);
    let mut random = Rng::with_seed(options.seed);
    let out = machine.host_memory(64)?;
    let mut steady = machine.graphics(SHORT_RING)?;
    for n in 0..count {
        let mut passing = machine.graphics(SHORT_RING)?;
        let data = bytes(&mut random, 64);
        passing.run(|work| work.inline(out.va(), &data[..32]))?;
        steady.run(|work| work.inline(out.va() + 32, &data[32..]))?;
        passing.wait()?;
        drop(passing);
        steady.wait()?;
        report.check(|| format!("channel {n}"), &data, &read(&out, 64))?;
    }
    report.fact("channels", count + 1);
    Ok(())
}

/// Submissions without end, all alike.
pub(crate) fn storm(machine: &Machine, options: &Options, report: &mut Report) -> Result<()> {
    let data = bytes(&mut Rng::with_seed(options.seed), 64);
    let out = machine.host_memory(64)?;
    let mut channel = machine.graphics(RING)?;
    let work = channel.prepare(|work| work.inline(out.va(), &data))?;
    channel.submit(&work)?;
    channel.wait()?;
    (options.progress)("storm: submitting");
    let submissions = without_end(options, || channel.submit(&work))?;
    channel.wait()?;
    report.check(|| format!("{submissions} submissions"), &data, &read(&out, 64))?;
    report.fact("submissions", submissions);
    Ok(())
}
