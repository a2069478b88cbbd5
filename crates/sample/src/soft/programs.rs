//! The programs on channels.

use super::{Channel, Machine, Memory, Work};
use crate::data::{Random, check};
use crate::report::Loop;
use crate::{Error, Options, Report, Result};
use std::sync::{Mutex, PoisonError};
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
/// Above this, data does not travel in the pushbuffer.
const INLINE_MAX: u32 = 4 << 10;

fn read(memory: &impl Memory, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    memory.read(0, &mut bytes)?;
    Ok(bytes)
}

/// Host to video, video to video, video to host; inline; fills.
pub(super) fn copies(machine: &impl Machine, sizes: &[u32], options: &Options, report: &mut Report) -> Result<()> {
    let largest = sizes.iter().max().map_or(4, |bytes| *bytes as usize);
    let (host, back) = (machine.host_memory(largest)?, machine.host_memory(largest)?);
    let (there, beside) = (machine.video_memory(largest)?, machine.video_memory(largest)?);
    let mut channel = machine.channel()?;
    let mut random = Random::new(options.seed);
    let mut copies = 0;
    for _ in 0..options.count_or(1) {
        for &bytes in sizes {
            let len = bytes as usize;
            let data = random.bytes(len);
            host.write(0, &data)?;
            back.write(0, &vec![0; len])?;
            channel.submit(&[Work::Copy { to: there.address(), from: host.address(), bytes }])?;
            channel.submit(&[Work::Copy { to: beside.address(), from: there.address(), bytes }])?;
            channel.submit(&[Work::Copy { to: back.address(), from: beside.address(), bytes }])?;
            channel.wait()?;
            copies += 3;
            let got = read(&back, len)?;
            check(|| format!("{bytes} B by the copy engine and back"), &data, &got)?;
            report.add(&got);

            if bytes <= INLINE_MAX {
                let data = random.bytes(len);
                channel.submit(&[Work::Inline { to: there.address(), bytes: &data }])?;
                channel.submit(&[Work::Copy { to: back.address(), from: there.address(), bytes }])?;
                channel.wait()?;
                copies += 2;
                let got = read(&back, len)?;
                check(|| format!("{bytes} B in the pushbuffer"), &data, &got)?;
                report.add(&got);
            }

            let (word, words) = (random.next32(), bytes / 4);
            channel.submit(&[
                Work::Fill { to: there.address(), word, words },
                Work::Copy { to: back.address(), from: there.address(), bytes: words * 4 },
            ])?;
            channel.wait()?;
            copies += 1;
            let got = read(&back, words as usize * 4)?;
            check(|| format!("{words} words filled"), &word.to_le_bytes().repeat(words as usize), &got)?;
            report.add(&got);
        }
    }
    report.fact("copies", copies);
    report.fact("fills", options.count_or(1) * sizes.len() as u64);
    Ok(())
}

const THREADS: usize = 8;
const SHARING: usize = 2;
const ROW: u32 = 4096;

/// Eight threads on eight channels, then two on one.
pub(super) fn threads<M: Machine>(machine: &M, options: &Options, report: &mut Report) -> Result<()> {
    let rounds = options.count_or(200);
    let channels = (0..THREADS).map(|_| machine.channel().map(Mutex::new)).collect::<Result<Vec<_>>>()?;
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
    let channel = || channel.lock().unwrap_or_else(PoisonError::into_inner);
    for round in 0..rounds {
        let data = random.bytes(ROW as usize);
        host.write(0, &data)?;
        channel().submit(&[Work::Copy { to: there.address(), from: host.address(), bytes: ROW }])?;
        channel().submit(&[Work::Copy { to: back.address(), from: there.address(), bytes: ROW }])?;
        channel().wait()?;
        check(|| format!("round {round} of a thread"), &data, &read(&back, ROW as usize)?)?;
    }
    read(&back, ROW as usize)
}

const DELAY: Duration = Duration::from_millis(300);

/// A channel that waits for a word of host memory, and more submissions behind it than its ring has entries. Each copies
/// its word to a place of its own.
pub(super) fn spin(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(5_000);
    let mut random = Random::new(options.seed);
    let expected = random.bytes(count as usize * 4);
    let flag = machine.host_memory(4096)?;
    let out = machine.host_memory(expected.len().max(4))?;
    out.write(0, &vec![0; out.len()])?;
    let go = random.next32() | 1;
    flag.set(0, 0)?;
    let mut channel = machine.channel()?;
    std::thread::scope(|scope| {
        let setter = scope.spawn(|| {
            std::thread::sleep(DELAY);
            // Set in any case, or nobody would ever come back.
            let early = read(&out, out.len());
            flag.set(0, go)?;
            early
        });
        let submitted = (|| {
            channel.submit(&[Work::Acquire { at: flag.address(), value: go }])?;
            for (n, word) in (0u64..).zip(expected.chunks_exact(4)) {
                channel.submit(&[Work::Inline { to: out.address() + n * 4, bytes: word }])?;
            }
            channel.wait()
        })();
        let early = setter.join().unwrap_or(Err(Error::Panicked))?;
        submitted?;
        check(|| "what ran before the flag was set".into(), &vec![0; early.len()], &early)
    })?;
    let got = read(&out, expected.len())?;
    check(|| format!("{count} submissions behind a waiting one"), &expected, &got)?;
    report.add(&got);
    report.fact("submissions behind the waiting one", count);
    Ok(())
}

/// Channels that come and go while another one works.
pub(super) fn channels(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(24);
    let mut random = Random::new(options.seed);
    let out = machine.host_memory(64)?;
    let mut steady = machine.channel()?;
    for n in 0..count {
        let mut passing = machine.channel()?;
        let (first, second) = (random.bytes(32), random.bytes(32));
        passing.submit(&[Work::Inline { to: out.address(), bytes: &first }])?;
        steady.submit(&[Work::Inline { to: out.address() + 32, bytes: &second }])?;
        passing.wait()?;
        drop(passing);
        steady.wait()?;
        let got = read(&out, 64)?;
        check(|| format!("channel {n}"), &[first, second].concat(), &got)?;
        report.add(&got);
    }
    report.fact("channels", count + 1);
    Ok(())
}

/// Submissions between two looks at the clock.
const STRIDE: u64 = 256;

/// Submissions without end, all alike.
pub(super) fn storm(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let data = Random::new(options.seed).bytes(64);
    let out = machine.host_memory(64)?;
    let mut channel = machine.channel()?;
    let work = [Work::Inline { to: out.address(), bytes: &data }];
    channel.submit(&work)?;
    channel.wait()?;
    (options.progress)("storm: submitting");
    let deadline = options.deadline(Instant::now())?;
    let mut submissions = 1;
    while options.count.is_none_or(|count| submissions < count) {
        if submissions % STRIDE == 0 && deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            break;
        }
        channel.submit(&work)?;
        submissions += 1;
    }
    channel.wait()?;
    let got = read(&out, 64)?;
    check(|| format!("{submissions} submissions"), &data, &got)?;
    report.add(&got);
    report.fact("submissions", submissions);
    Ok(())
}

const WARM_UP: u64 = 200;
/// Waits between submissions keep the ring short of full.
const SUBMISSIONS_A_WAIT: u64 = 256;

/// CPU time of an inline submission of 64 dwords, and of a 4 KiB copy with the wait for it.
pub(super) fn bench(machine: &impl Machine, options: &Options, report: &mut Report) -> Result<()> {
    let count = options.count_or(5_000).max(1);
    let mut random = Random::new(options.seed);
    let (host, there) = (machine.host_memory(ROW as usize)?, machine.video_memory(ROW as usize)?);
    let back = machine.host_memory(ROW as usize)?;
    let mut channel = machine.channel()?;
    let (row, copied) = (random.bytes(256), random.bytes(ROW as usize));

    let inline = [Work::Inline { to: back.address(), bytes: &row }];
    let mut times = Vec::new();
    for n in 0..count + WARM_UP {
        if n % SUBMISSIONS_A_WAIT == 0 {
            channel.wait()?;
        }
        let start = Instant::now();
        channel.submit(&inline)?;
        times.push(start.elapsed());
    }
    channel.wait()?;
    let got = read(&back, row.len())?;
    check(|| "the loop submit".into(), &row, &got)?;
    report.add(&got);
    report.loops.extend(kept(&times).map(|times| ("submit", times)));

    host.write(0, &copied)?;
    let copy = [Work::Copy { to: there.address(), from: host.address(), bytes: ROW }];
    times.clear();
    for _ in 0..count + WARM_UP {
        let start = Instant::now();
        channel.submit(&copy)?;
        channel.wait()?;
        times.push(start.elapsed());
    }
    channel.submit(&[Work::Copy { to: back.address(), from: there.address(), bytes: ROW }])?;
    channel.wait()?;
    let got = read(&back, copied.len())?;
    check(|| "the loop copy_sync".into(), &copied, &got)?;
    report.add(&got);
    report.loops.extend(kept(&times).map(|times| ("copy_sync", times)));
    Ok(())
}

/// The times behind the warm-up.
fn kept(times: &[Duration]) -> Option<Loop> {
    let kept = times.iter().skip(WARM_UP as usize);
    Loop::from_times(kept.map(|time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)).collect())
}
