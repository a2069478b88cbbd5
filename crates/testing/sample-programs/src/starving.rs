//! One thread that creates while many work: the common part of `starve` with and without a GPU.

use crate::{Error, Options, Report, Result};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Without `--duration`.
const USUAL: Duration = Duration::from_secs(5);

/// The time in which the threads work.
pub(crate) struct Turn<'a> {
    ready: &'a AtomicUsize,
    begun: &'a AtomicBool,
    over: &'a AtomicBool,
    /// Threads that have worked once.
    at_work: &'a AtomicUsize,
    /// How often this thread has asked.
    asked: Cell<u32>,
}

impl Turn<'_> {
    /// Waits until every thread is ready. Threads that work already would starve the creations of those that still prepare.
    pub(crate) fn ready(&self) {
        self.ready.fetch_add(1, Ordering::Release);
        while !self.begun.load(Ordering::Acquire) && !self.over.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// To be asked before each piece of work.
    pub(crate) fn goes_on(&self) -> bool {
        let asked = self.asked.get();
        if asked < 2 {
            self.asked.set(asked + 1);
            self.at_work.fetch_add(asked as usize, Ordering::Release);
        }
        !self.over.load(Ordering::Relaxed)
    }
}

/// Ends the turn in any case: otherwise the wait for the threads would never end.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `work` on `options.threads` threads (their results are added in their order) while the calling thread runs `create` repeatedly, until the
/// time is over. Creations that end later do not count.
pub(crate) fn starve(
    options: &Options,
    report: &mut Report,
    mut create: impl FnMut() -> Result<()>,
    work: impl Fn(u64, &Turn<'_>) -> Result<Vec<u8>> + Sync,
) -> Result<()> {
    let duration = options.seconds.map_or(USUAL, Duration::from_secs_f64);
    let (ready, begun, over) = (AtomicUsize::new(0), AtomicBool::new(false), AtomicBool::new(false));
    let at_work = AtomicUsize::new(0);
    let threads = options.threads as usize;
    let (results, created, longest) = std::thread::scope(|scope| {
        let _end = End(&over);
        let workers: Vec<std::thread::ScopedJoinHandle<'_, Result<Vec<u8>>>> = (0..threads as u64)
            .map(|n| {
                let asked = Cell::new(0);
                let turn = Turn { ready: &ready, begun: &begun, over: &over, at_work: &at_work, asked };
                let work = &work;
                // (A recording shows the name.)
                let named = std::thread::Builder::new().name(format!("launches {n}"));
                named.spawn_scoped(scope, move || work(n, &turn)).map_err(Error::Thread)
            })
            .collect::<Result<_>>()?;
        let wait_for_all = |count: &AtomicUsize| {
            while count.load(Ordering::Acquire) < threads && !workers.iter().any(|w| w.is_finished()) {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        wait_for_all(&ready);
        (options.progress)(&format!("starve: {threads} threads launch, one creates streams"));
        begun.store(true, Ordering::Release);
        // On a busy machine an earlier creation would not compete with anything.
        wait_for_all(&at_work);
        let deadline = Instant::now() + duration;
        // The workers end at the deadline, whether or not they are waited for.
        let over = &over;
        let clock = scope.spawn(move || {
            while Instant::now() < deadline && !over.load(Ordering::Relaxed) {
                std::thread::sleep(Duration::from_millis(1));
            }
            over.store(true, Ordering::Relaxed);
        });
        let (mut created, mut longest, mut failed) = (0u64, Duration::ZERO, None);
        while Instant::now() < deadline && failed.is_none() {
            let begun = Instant::now();
            failed = create().err();
            let ended = Instant::now();
            longest = longest.max(ended - begun);
            created += u64::from(ended < deadline && failed.is_none());
        }
        over.store(true, Ordering::Relaxed);
        let _ = clock.join();
        let results = workers.into_iter().map(|w| w.join().unwrap_or(Err(Error::Panicked)));
        let results = results.collect::<Result<Vec<Vec<u8>>>>()?;
        failed.map_or(Ok((results, created, longest)), Err)
    })?;
    results.iter().for_each(|result| report.add(result));
    report.fact("launching threads", threads as u64);
    report.fact("streams created", created);
    report.fact("longest creation, us", longest.as_micros() as u64);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Gpu;
    use std::sync::RwLock;

    fn options(threads: u32) -> Options {
        Options {
            gpu: Gpu::Soft,
            launcher: crate::Launcher::Cuda,
            seconds: Some(0.05),
            count: None,
            seed: 1,
            threads,
            only: Vec::new(),
            progress: |_| {},
        }
    }

    #[test]
    fn no_thread_works_while_another_prepares() {
        let (prepared, lock) = (AtomicUsize::new(0), RwLock::new(()));
        let work = |n: u64, turn: &Turn<'_>| {
            std::thread::sleep(Duration::from_millis(2 * n));
            prepared.fetch_add(1, Ordering::Relaxed);
            turn.ready();
            assert_eq!(prepared.load(Ordering::Relaxed), 8);
            while turn.goes_on() {
                let _held = lock.read();
            }
            Ok(vec![n as u8])
        };
        let mut report = Report::new("starve", String::new(), 1);
        starve(&options(8), &mut report, || Ok(()), work).unwrap();
    }

    #[test]
    fn creation_starts_after_each_thread_has_worked() {
        let worked = AtomicUsize::new(0);
        let work = |n: u64, turn: &Turn<'_>| {
            turn.ready();
            std::thread::sleep(Duration::from_millis(5 * n));
            for i in 0.. {
                if !turn.goes_on() {
                    break;
                }
                worked.fetch_add(usize::from(i == 0), Ordering::Relaxed);
                std::thread::yield_now();
            }
            Ok(Vec::new())
        };
        let create = || {
            assert_eq!(worked.load(Ordering::Relaxed), 8);
            Ok(())
        };
        starve(&options(8), &mut Report::new("starve", String::new(), 1), create, work).unwrap();
    }

    #[test]
    fn a_thread_that_fails_ends_the_others() {
        let work = |n: u64, turn: &Turn<'_>| {
            if n == 3 {
                return Err(Error::Panicked);
            }
            turn.ready();
            Ok(Vec::new())
        };
        let mut report = Report::new("starve", String::new(), 1);
        assert!(starve(&options(8), &mut report, || Ok(()), work).is_err());
    }
}
