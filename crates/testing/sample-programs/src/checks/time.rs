//! The GPU's clock.

use super::Outcome;
use super::ground::{Ground, Stop, ensure};
use std::time::{Duration, Instant};

pub(super) fn timestamps(ground: &Ground) -> Outcome {
    const EACH: usize = 16;
    const ROUNDS: u32 = 20;
    let rig = ground.open()?;
    let clock = rig.device.clock();
    let mut channel = rig.channel(rig.copy_engine()?)?;
    let semaphores = (0..EACH).map(|_| rig.semaphore()).collect::<Result<Vec<_>, Stop>>()?;
    let mut before = clock.now();
    let first = before;
    for round in 1..=ROUNDS {
        rig.submit(&mut channel, 32 * EACH, |pushbuffer| {
            for (n, semaphore) in semaphores.iter().enumerate() {
                if n % 2 == 0 {
                    pushbuffer.copy_release(semaphore, round)?;
                } else {
                    pushbuffer.host_release(semaphore, round)?;
                }
            }
            Ok(())
        })?;
        for (n, semaphore) in semaphores.iter().enumerate() {
            rig.wait(&channel, semaphore, round)?;
            let at = semaphore.timestamp();
            ensure(at >= before, || {
                format!(
                    "timestamp {n} of round {round} goes backwards: {at} ns after {before} ns, {} less",
                    before - at
                )
            })?;
            before = at;
        }
        let now = clock.now();
        ensure(now >= before, || format!("a timestamp of {before} ns was read at {now} ns"))?;
    }
    ensure(before > first, || format!("the clock does not advance from {first} ns"))?;
    Ok(format!("{} timestamps in {} us", ROUNDS as usize * EACH, (before - first) / 1000))
}

/// Parts in a million by which two crystals may differ, and the kernel's clock be corrected.
const PPM: u64 = 500;

pub(super) fn clock(ground: &Ground) -> Outcome {
    const SPAN: Duration = Duration::from_millis(100);
    /// The allowed error of a correlation on hardware; in software every load of the clock is a trap.
    const MOST: u64 = 1000;
    let rig = ground.open()?;
    let clock = rig.device.clock();
    let (first, started) = (clock.correlate(), Instant::now());
    std::thread::sleep(SPAN);
    let (second, took) = (clock.correlate(), started.elapsed().as_nanos() as u64);
    let error = first.error_ns.max(second.error_ns);
    ensure(rig.is_soft() || error <= MOST, || format!("a correlation with the tsc is good to {error} ns only"))?;
    ensure(second.gpu_ns > first.gpu_ns && second.tsc > first.tsc, || {
        format!("the clocks went from {first:?} to {second:?}")
    })?;
    let passed = second.gpu_ns - first.gpu_ns;
    let predicted = first.gpu_ns_at(second.tsc);
    let apart = predicted.abs_diff(second.gpu_ns);
    let allowed = passed * PPM / 1_000_000 + first.error_ns + second.error_ns;
    ensure(apart <= allowed, || {
        format!(
            "after {passed} ns the GPU's clock is {apart} ns away from the time computed from the tsc, more than {allowed}"
        )
    })?;
    // The correlations are within the time measured around them; the thread may have slept longer than it asked.
    ensure(passed >= SPAN.as_nanos() as u64 * 99 / 100, || {
        format!("{passed} ns of the GPU's clock passed in {took} ns or more of the kernel's")
    })?;
    Ok(format!("{apart} ns apart after {} ms, each read to {error} ns", passed / 1_000_000))
}
