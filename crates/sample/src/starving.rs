//! One thread that creates beside many that work: what `starve` has in common with and without a GPU.

use crate::{Error, Options, Report, Result};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Without `--duration`.
const USUAL: Duration = Duration::from_secs(5);

/// The time in which the threads work.
pub(crate) struct Turn<'a> {
    ready: &'a AtomicUsize,
    over: &'a AtomicBool,
}

impl Turn<'_> {
    /// This thread works from now on.
    pub(crate) fn ready(&self) {
        self.ready.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn goes_on(&self) -> bool {
        !self.over.load(Ordering::Relaxed)
    }
}

/// Ends the turn, whatever happens: threads that work for ever would be waited for for ever.
struct End<'a>(&'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Has `options.threads` threads `work` (their results are added in their order) and the calling thread `create` again and
/// again beside them, until the time is over. Creations that end later do not count.
pub(crate) fn starve(
    options: &Options,
    report: &mut Report,
    mut create: impl FnMut() -> Result<()>,
    work: impl Fn(u64, &Turn<'_>) -> Result<Vec<u8>> + Sync,
) -> Result<()> {
    let duration = options.seconds.map_or(USUAL, Duration::from_secs_f64);
    let (ready, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let threads = options.threads as usize;
    let (results, created, longest) = std::thread::scope(|scope| {
        let _end = End(&over);
        let workers: Vec<std::thread::ScopedJoinHandle<'_, Result<Vec<u8>>>> = (0..threads as u64)
            .map(|n| {
                let (work, turn) = (&work, Turn { ready: &ready, over: &over });
                // (A recording shows the name.)
                let named = std::thread::Builder::new().name(format!("launches {n}"));
                named.spawn_scoped(scope, move || work(n, &turn)).map_err(Error::Thread)
            })
            .collect::<Result<_>>()?;
        while ready.load(Ordering::Acquire) < threads && !workers.iter().any(|w| w.is_finished()) {
            std::thread::sleep(Duration::from_millis(1));
        }
        (options.progress)(&format!("starve: {threads} threads launch, one creates streams"));
        let deadline = Instant::now() + duration;
        // The workers end at the deadline, whoever waits for them.
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
