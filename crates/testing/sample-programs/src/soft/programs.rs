//! The programs on channels.

use super::{Channel, Engine, Flag, Machine, Memory, Work};
use crate::data::{Random, check, to_bytes};
use crate::report::Loop;
use crate::{Error, Options, Report, Result};
use std::sync::Mutex;
use std::time::{Duration, Instant};

pub(super) const SIZES: [u32; 14] = [
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
/// Entries of a ring that shares its page with others, of one that fills a page, and of one as long as CUDA's.
const SHORT_RING: u32 = 64;
const PAGE_RING: u32 = 512;
const RING: u32 = 1024;
/// Above this, data does not travel in the pushbuffer.
const INLINE_MAX: u32 = 4 << 10;

fn read(memory: &impl Memory, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    memory.read(&mut bytes);
    bytes
}

/// Host to video, video to video, video to host; inline; fills.
pub(super) fn copies(machine: &impl Machine, sizes: &[u32], options: &Options, report: &mut Report) -> Result<()> {
    let largest = sizes.iter().max().map_or(4, |bytes| *bytes as usize);
    let (host, back) = (machine.host_memory(largest)?, machine.host_memory(largest)?);
    let (there, beside) = (machine.video_memory(largest)?, machine.video_memory(largest)?);
    let mut channel = machine.channel(Engine::Copy, PAGE_RING)?;
    let mut inline = machine.channel(Engine::Graphics, PAGE_RING)?;
    let mut random = Random::new(options.seed);
    let mut copies = 0;
    for _ in 0..options.count_or(1) {
        for &bytes in sizes {
            let len = bytes as usize;
            let data = random.bytes(len);
            host.write(&data);
            back.write(&vec![0; len]);
            channel.run(&[Work::Copy { to: there.address(), from: host.address(), bytes }])?;
            channel.run(&[Work::Copy { to: beside.address(), from: there.address(), bytes }])?;
            channel.run(&[Work::Copy { to: back.address(), from: beside.address(), bytes }])?;
            channel.wait()?;
            copies += 3;
            let got = read(&back, len);
            check(|| format!("{bytes} B by the copy engine and back"), &data, &got)?;
            report.add(&got);

            if bytes <= INLINE_MAX {
                let data = random.bytes(len);
                inline.run(&[Work::Inline { to: there.address(), bytes: &data }])?;
                inline.wait()?;
                channel.run(&[Work::Copy { to: back.address(), from: there.address(), bytes }])?;
                channel.wait()?;
                copies += 2;
                let got = read(&back, len);
                check(|| format!("{bytes} B in the pushbuffer"), &data, &got)?;
                report.add(&got);
            }

            let (word, words) = (random.next32(), bytes / 4);
            channel.run(&[
                Work::Fill { to: there.address(), word, words },
                Work::Copy { to: back.address(), from: there.address(), bytes: words * 4 },
            ])?;
            channel.wait()?;
            copies += 1;
            let got = read(&back, words as usize * 4);
            check(|| format!("{words} words filled"), &word.to_le_bytes().repeat(words as usize), &got)?;
            report.add(&got);
        }
    }
    report.fact("copies", copies);
    report.fact("fills", options.count_or(1) * sizes.len() as u64);
    Ok(())
}

/// Grid, block and shared memory of the launches.
const SHAPES: [([u32; 3], [u32; 3], u32); 5] = [
    ([1, 1, 1], [32, 1, 1], 0),
    ([64, 1, 1], [256, 1, 1], 1024),
    ([5, 3, 2], [8, 4, 2], 256),
    ([132, 1, 1], [1024, 1, 1], 4096),
    ([3, 2, 1], [16, 16, 1], 48 << 10),
];

/// QMDs of several shapes, each of which releases its own word.
pub(super) fn launches(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let mut channel = machine.channel(Engine::Graphics, PAGE_RING)?;
    let out = machine.host_memory(4 * SHAPES.len())?;
    let mut random = Random::new(options.seed);
    let each = options.count_or(10);
    for round in 0..each {
        let payloads = random.words(SHAPES.len());
        for (n, ((grid, block, shared), payload)) in (0u64..).zip(SHAPES.into_iter().zip(&payloads)) {
            let release = out.address() + 4 * n;
            channel.run(&[Work::Launch { grid, block, shared, release, payload: *payload }])?;
        }
        channel.wait()?;
        let got = read(&out, 4 * SHAPES.len());
        check(|| format!("the releases of the launches of round {round}"), &to_bytes(&payloads), &got)?;
        report.add(&got);
    }
    report.fact("launches", each * SHAPES.len() as u64);
    Ok(())
}

const THREADS: usize = 8;
const SHARING: usize = 2;
const ROW: u32 = 4096;

/// Eight threads on eight channels, then two on one.
pub(super) fn threads<M: Machine>(machine: &M, options: &Options, report: &mut Report) -> Result<()> {
    let rounds = options.count_or(200);
    let channels =
        (0..THREADS).map(|_| machine.channel(Engine::Copy, PAGE_RING).map(Mutex::new)).collect::<Result<Vec<_>>>()?;
    for (what, count, used) in [("channels of their own", THREADS, THREADS), ("one channel", SHARING, 1)] {
        let results = std::thread::scope(|scope| {
            let threads: Vec<_> = channels
                .iter()
                .take(used)
                .cycle()
                .take(count)
                .zip(0u64..)
                .map(|(channel, n)| scope.spawn(move || worker(machine, channel, options.seed ^ (n + 1) << 32, rounds)))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or(Err(Error::Panicked)))
                .collect::<Result<Vec<Vec<u8>>>>()
        })?;
        results.iter().for_each(|result| report.add(result));
        (options.progress)(&format!("{count} threads on {what}: {rounds} rounds each"));
    }
    report.fact("submissions", rounds * (THREADS + SHARING) as u64 * 2);
    Ok(())
}

fn worker<M: Machine>(machine: &M, channel: &Mutex<M::Channel>, seed: u64, rounds: u64) -> Result<Vec<u8>> {
    let host = machine.host_memory(ROW as usize)?;
    let there = machine.video_memory(ROW as usize)?;
    let back = machine.host_memory(ROW as usize)?;
    let mut random = Random::new(seed);
    // Locked for one submission at a time, so that those of two threads mix in one ring.
    let channel = || poison::ignore(channel.lock());
    let mut up = channel().prepare(&[Work::Copy { to: there.address(), from: host.address(), bytes: ROW }])?;
    let mut down = channel().prepare(&[Work::Copy { to: back.address(), from: there.address(), bytes: ROW }])?;
    for round in 0..rounds {
        let data = random.bytes(ROW as usize);
        host.write(&data);
        channel().submit(&mut up)?;
        channel().submit(&mut down)?;
        channel().wait()?;
        check(|| format!("round {round} of a thread"), &data, &read(&back, ROW as usize))?;
    }
    Ok(read(&back, ROW as usize))
}

const DELAY: Duration = Duration::from_millis(300);

/// Words beyond those that the last submission moves out of sight.
const SPARE: usize = 64;

/// A channel that waits for a flag, and then more submissions than its ring has entries. Each moves all words by one place from one row to the
/// other, so the result shows how many there were.
pub(super) fn spin(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(5_000);
    let words = usize::try_from(count).ok().and_then(|count| count.checked_add(SPARE));
    let Some(len) = words.and_then(|words| u32::try_from(words * 4).ok()) else {
        return Err(Error::Option { what: "count", value: count.to_string() });
    };
    let mut random = Random::new(options.seed);
    let rows = [machine.host_memory(len as usize + 4)?, machine.host_memory(len as usize + 4)?];
    let mut expected = [random.bytes(len as usize + 4), random.bytes(len as usize + 4)];
    rows.iter().zip(&expected).for_each(|(row, bytes)| row.write(bytes));
    let before = expected.clone();
    for n in 0..count as usize {
        let [from, to] = if n % 2 == 0 { [0, 1] } else { [1, 0] };
        let moved = expected[from][..len as usize].to_vec();
        expected[to][4..].copy_from_slice(&moved);
    }

    let flag = machine.flag()?;
    let go = random.next32() | 1;
    let mut channel = machine.channel(Engine::Copy, RING)?;
    let mut acquire = channel.prepare_acquire(&flag, go)?;
    let [even, odd] = [0, 1].map(|from: usize| {
        let (from, to) = (rows[from].address(), rows[1 - from].address() + 4);
        channel.prepare(&[Work::Copy { to, from, bytes: len }])
    });
    let mut moves = [even?, odd?];
    let full = || rows.each_ref().map(|row| read(row, len as usize + 4));
    std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(DELAY);
            let early = full();
            // Always set, because otherwise the channel would never continue.
            flag.set(go);
            early
        });
        let submitted = (|| {
            channel.submit(&mut acquire)?;
            (0..count).try_for_each(|n| channel.submit(&mut moves[(n % 2) as usize]))?;
            channel.wait()
        })();
        let early = setter.join().map_err(|_| Error::Panicked)?;
        submitted?;
        check(|| "what ran before the flag was set".into(), &before.concat(), &early.concat())
    })?;
    let got = full().concat();
    check(|| format!("{count} submissions after a waiting one"), &expected.concat(), &got)?;
    report.add(&got);
    report.fact("submissions after the waiting one", count);
    Ok(())
}

/// Channels are created and destroyed while another one works.
pub(super) fn channels(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(24);
    let mut random = Random::new(options.seed);
    let out = machine.host_memory(64)?;
    let mut steady = machine.channel(Engine::Graphics, SHORT_RING)?;
    for n in 0..count {
        let mut passing = machine.channel(Engine::Graphics, SHORT_RING)?;
        let (first, second) = (random.bytes(32), random.bytes(32));
        passing.run(&[Work::Inline { to: out.address(), bytes: &first }])?;
        steady.run(&[Work::Inline { to: out.address() + 32, bytes: &second }])?;
        passing.wait()?;
        drop(passing);
        steady.wait()?;
        let got = read(&out, 64);
        check(|| format!("channel {n}"), &[first, second].concat(), &got)?;
        report.add(&got);
    }
    report.fact("channels", count + 1);
    Ok(())
}

/// Submissions between two readings of the clock.
const STRIDE: u64 = 256;

/// Submissions without end, all alike.
pub(super) fn storm(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let data = Random::new(options.seed).bytes(64);
    let out = machine.host_memory(64)?;
    let mut channel = machine.channel(Engine::Graphics, RING)?;
    let mut work = channel.prepare(&[Work::Inline { to: out.address(), bytes: &data }])?;
    channel.submit(&mut work)?;
    channel.wait()?;
    (options.progress)("storm: submitting");
    let deadline = options.deadline(Instant::now())?;
    let mut submissions = 1;
    while options.count.is_none_or(|count| submissions < count) {
        if submissions % STRIDE == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        channel.submit(&mut work)?;
        submissions += 1;
    }
    channel.wait()?;
    let got = read(&out, 64);
    check(|| format!("{submissions} submissions"), &data, &got)?;
    report.add(&got);
    report.fact("submissions", submissions);
    Ok(())
}

const WARM_UP: u64 = 200;
/// Waits between submissions keep the ring short of full.
const SUBMISSIONS_A_WAIT: u64 = 256;

/// CPU time of an inline submission of 64 dwords, and of a 4 KiB copy including the wait for it.
pub(super) fn bench(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(5_000).max(1);
    let mut random = Random::new(options.seed);
    let (host, there) = (machine.host_memory(ROW as usize)?, machine.video_memory(ROW as usize)?);
    let back = machine.host_memory(ROW as usize)?;
    let mut graphics = machine.channel(Engine::Graphics, RING)?;
    let mut channel = machine.channel(Engine::Copy, RING)?;
    let (row, copied) = (random.bytes(256), random.bytes(ROW as usize));

    let mut inline = graphics.prepare(&[Work::Inline { to: back.address(), bytes: &row }])?;
    let mut times = Vec::new();
    for n in 0..count + WARM_UP {
        if n % SUBMISSIONS_A_WAIT == 0 {
            graphics.wait()?;
        }
        let start = Instant::now();
        graphics.submit(&mut inline)?;
        times.push(start.elapsed());
    }
    graphics.wait()?;
    let got = read(&back, row.len());
    check(|| "the loop submit".into(), &row, &got)?;
    report.add(&got);
    report.loops.extend(kept(&times).map(|times| ("submit", times)));

    host.write(&copied);
    let mut copy = channel.prepare(&[Work::Copy { to: there.address(), from: host.address(), bytes: ROW }])?;
    times.clear();
    for _ in 0..count + WARM_UP {
        let start = Instant::now();
        channel.submit(&mut copy)?;
        channel.wait()?;
        times.push(start.elapsed());
    }
    channel.run(&[Work::Copy { to: back.address(), from: there.address(), bytes: ROW }])?;
    channel.wait()?;
    let got = read(&back, copied.len());
    check(|| "the loop copy_sync".into(), &copied, &got)?;
    report.add(&got);
    report.loops.extend(kept(&times).map(|times| ("copy_sync", times)));
    Ok(())
}

/// The times after the warm-up.
fn kept(times: &[Duration]) -> Option<Loop> {
    let kept = times.iter().skip(WARM_UP as usize);
    Loop::from_times(kept.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).collect())
}
