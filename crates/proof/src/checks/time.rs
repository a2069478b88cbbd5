//! The GPU's clock.

use crate::Outcome;
use crate::ground::{Ground, Stop, ensure};
use gpu::{Clock, Engine};
use std::time::{Duration, Instant};

pub(super) fn timestamps(ground: &Ground) -> Outcome {
    const EACH: usize = 16;
    const ROUNDS: u32 = 20;
    let rig = ground.open()?;
    let clock = rig.device.clock();
    let mut channel = rig.channel(Engine::Copy(0))?;
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
    ensure(before > first, || format!("the clock stands still at {first} ns"))?;
    Ok(format!("{} timestamps in {} us", ROUNDS as usize * EACH, (before - first) / 1000))
}

/// One reading between two of the CPU's clock, the closest pair of several.
fn pair(clock: &Clock, origin: Instant) -> (u64, u64, u64) {
    let reading = |_| {
        let before = origin.elapsed().as_nanos() as u64;
        let gpu = clock.now();
        let after = origin.elapsed().as_nanos() as u64;
        (gpu, before + (after - before) / 2, after - before)
    };
    (0..64).map(reading).min_by_key(|reading| reading.2).unwrap_or_default()
}

pub(super) fn clock(ground: &Ground) -> Outcome {
    const SPAN: Duration = Duration::from_millis(100);
    /// Crystals differ by less than 200 ppm each.
    const PPM: u64 = 500;
    let rig = ground.open()?;
    let clock = rig.device.clock();
    let origin = Instant::now();
    let (gpu, cpu, width) = pair(&clock, origin);
    std::thread::sleep(SPAN);
    let (gpu_later, cpu_later, width_later) = pair(&clock, origin);
    ensure(gpu_later > gpu, || format!("the GPU's clock went from {gpu} ns to {gpu_later} ns"))?;
    let (passed, cpu_passed) = (gpu_later - gpu, cpu_later - cpu);
    let apart = passed.abs_diff(cpu_passed);
    let allowed = cpu_passed * PPM / 1_000_000 + width + width_later + 64;
    ensure(apart <= allowed, || {
        format!("{passed} ns of the GPU's clock in {cpu_passed} ns of the CPU's: more than {allowed} ns apart")
    })?;
    Ok(format!("{apart} ns apart after {} ms, read to {width} and {width_later} ns", cpu_passed / 1_000_000))
}
