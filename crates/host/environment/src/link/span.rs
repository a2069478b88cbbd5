//! The bytes of a link from one moment to another, and how they were counted.
//!
//! A thread reads the counters in the meantime if the caller allows it: without it, a 32-bit counter wraps unseen. The thread sleeps between its
//! readings, runs on CPUs that the caller names, and has ended when the bytes are returned.

use super::{Both, LinkCounters, Look, OFTEN};
use crate::counters::Used;
use crate::value::Known;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Rates over less time are too inaccurate, and the counters' update intervals are unknown.
const LEAST: Duration = Duration::from_millis(100);

/// How the bytes were counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// NVML's accumulating fields.
    Counters,
    /// GPM's rates times the time, which lag: for 59.3 GB/s over 400 ms they gave 37.3, on an H200.
    Rates,
}

/// All bytes that crossed the link, from any sender.
#[derive(Clone, Debug, PartialEq)]
pub struct Passed {
    pub bytes: Known<Both<f64>>,
    /// `None` if they were not counted.
    pub by: Option<By>,
    /// Number of readings, the first and the last included. A reading itself also sends bytes over the link.
    pub looks: u32,
    /// Why the accumulating counters did not count.
    pub why: Option<String>,
    /// Whether GPM's rates are available, though the time may be too short for them.
    pub(crate) has_rates: bool,
}

impl Passed {
    pub(crate) fn nothing(why: String, looks: u32) -> Passed {
        Passed { bytes: Err(why.clone()), by: None, looks, why: Some(why), has_rates: false }
    }
}

/// The counters to read.
trait Counters: Send + 'static {
    fn look(&mut self, sample: bool) -> Look;
    fn is_wide(&self) -> bool;
    fn has_rates(&self) -> bool;
}

impl Counters for LinkCounters {
    fn look(&mut self, sample: bool) -> Look {
        LinkCounters::look(self, sample)
    }

    fn is_wide(&self) -> bool {
        LinkCounters::is_wide(self)
    }

    fn has_rates(&self) -> bool {
        LinkCounters::has_rates(self)
    }
}

/// A count since a moment.
pub struct Span {
    began: Instant,
    looking: Looking,
}

enum Looking {
    /// At the beginning and at the end, and the reason for no readings in between.
    Twice(Box<dyn Counters>, Option<String>),
    /// Continuously.
    Followed(Follower),
}

impl Span {
    /// From now on. `follow`: the CPUs for a thread that reads in the meantime; without it no code runs until the end.
    pub fn begin(counters: LinkCounters, follow: Option<&[usize]>) -> Span {
        Span::of(Box::new(counters), follow)
    }

    fn of(mut counters: Box<dyn Counters>, follow: Option<&[usize]>) -> Span {
        let began = Instant::now();
        let first = counters.look(true);
        // Readings in between are useless if the counter is refused, or if two readings are enough.
        let looking = match follow {
            Some(cpus) if first.counted.is_ok() && !counters.is_wide() => Follower::start(counters, cpus),
            _ => Looking::Twice(counters, None),
        };
        Span { began, looking }
    }

    /// Ends the count. Also returns the use that the kernel charged the reading thread.
    pub(crate) fn end(self) -> (Passed, Option<Used>) {
        let (mut counters, between, used, why_not) = match self.looking {
            Looking::Twice(counters, why) => (counters, 0, None, why),
            Looking::Followed(follower) => match follower.end() {
                Ok(Followed { counters, looks, used, misplaced }) => (counters, looks, used.ok(), misplaced),
                Err(why) => return (Passed::nothing(why, 1), None),
            },
        };
        let last = counters.look(true);
        let told = told(last, self.began.elapsed(), between + 2, why_not);
        (Passed { has_rates: counters.has_rates(), ..told }, used)
    }
}

fn told(last: Look, time: Duration, looks: u32, why_not: Option<String>) -> Passed {
    if time < LEAST {
        return Passed::nothing(format!("{} ms are too short for the bytes of the link", time.as_millis()), looks);
    }
    let why = match last.counted {
        Ok(Both { to_gpu, from_gpu }) => {
            let bytes = Both { to_gpu: to_gpu as f64, from_gpu: from_gpu as f64 };
            return Passed { bytes: Ok(bytes), by: Some(By::Counters), looks, why: None, has_rates: true };
        }
        Err(why) => why_not.map_or_else(|| why.clone(), |not| format!("{why} ({not})")),
    };
    match last.rate.unwrap_or_else(|| Err("no sample was taken".into())) {
        Ok(Both { to_gpu, from_gpu }) => {
            let seconds = time.as_secs_f64();
            let bytes = Both { to_gpu: to_gpu * seconds, from_gpu: from_gpu * seconds };
            Passed { bytes: Ok(bytes), by: Some(By::Rates), looks, why: Some(why), has_rates: true }
        }
        Err(no_rates) => Passed::nothing(format!("{why}; GPM: {no_rates}"), looks),
    }
}

/// The thread that reads.
struct Follower {
    thread: JoinHandle<Known<Followed>>,
    /// The thread ends when this is dropped.
    goes_on: Sender<()>,
}

struct Followed {
    counters: Box<dyn Counters>,
    looks: u32,
    /// The thread's own use, from its first sleep on.
    used: Known<Used>,
    /// Why it is not on the requested CPUs.
    misplaced: Option<String>,
}

impl Follower {
    /// Returns when the thread runs.
    fn start(counters: Box<dyn Counters>, cpus: &[usize]) -> Looking {
        let (goes_on, over) = channel();
        let (give, given) = channel();
        let (ready, is_ready) = channel();
        let cpus = cpus.to_vec();
        let follow = move || follow(&given, &ready, &over, &cpus);
        match std::thread::Builder::new().name("link".into()).spawn(follow) {
            Ok(thread) => {
                // Both fail only if the thread has ended; `end` reports that.
                let _ = give.send(counters);
                let _ = is_ready.recv();
                Looking::Followed(Follower { thread, goes_on })
            }
            Err(e) => {
                Looking::Twice(counters, Some(format!("no thread could be started to read in the meantime: {e}")))
            }
        }
    }

    fn end(self) -> Known<Followed> {
        drop(self.goes_on);
        let panicked = |_| Err("the thread that looked at the counters of the link panicked".into());
        self.thread.join().unwrap_or_else(panicked)
    }
}

fn follow(
    given: &Receiver<Box<dyn Counters>>,
    ready: &Sender<()>,
    over: &Receiver<()>,
    cpus: &[usize],
) -> Known<Followed> {
    let mut counters = given.recv().map_err(|_| "the counters of the link were not handed over".to_string())?;
    let misplaced = crate::placement::cpus::confine(0, cpus).err();
    let misplaced = misplaced.map(|e| format!("the thread that looked may not run on CPUs {cpus:?}: {e}"));
    let before = Used::of_this_thread();
    let _ = ready.send(());
    let mut looks = 0;
    while over.recv_timeout(OFTEN) == Err(RecvTimeoutError::Timeout) {
        looks += 1;
        if counters.look(false).counted.is_err() || counters.is_wide() {
            break;
        }
    }
    let used = Used::of_this_thread().and_then(|after| Ok(after.less(&before?)));
    Ok(Followed { counters, looks, used, misplaced })
}

#[cfg(test)]
mod tests {
    use super::super::counting::{Counting, Value};
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    const RATE: Both<f64> = Both { to_gpu: 1e9, from_gpu: 5e7 };

    /// Prepared values for the n-th reading, in both directions.
    struct Planted {
        value: fn(u32) -> Known<Value>,
        rate: Known<Both<f64>>,
        counting: Counting,
        looks: Arc<AtomicU32>,
        /// CPUs of the thread that read last.
        on: Arc<std::sync::Mutex<Vec<usize>>>,
    }

    fn planted(value: fn(u32) -> Known<Value>) -> Planted {
        Planted { value, rate: Ok(RATE), counting: Counting::default(), looks: Arc::default(), on: Arc::default() }
    }

    impl Counters for Planted {
        fn look(&mut self, sample: bool) -> Look {
            // ORDERING: the reading thread is joined before the number is read.
            let look = self.looks.fetch_add(1, Ordering::Relaxed);
            *self.on.lock().unwrap() = crate::placement::affinity().unwrap();
            let now = Instant::now();
            let counted = (self.value)(look).and_then(|value| self.counting.add(now, now, value));
            Look {
                counted: counted.map(|n| Both { to_gpu: n, from_gpu: n / 20 }),
                rate: sample.then(|| self.rate.clone()),
            }
        }

        fn is_wide(&self) -> bool {
            self.counting.is_wide()
        }

        fn has_rates(&self) -> bool {
            self.rate.is_ok()
        }
    }

    fn narrow(bytes: u64) -> Known<Value> {
        Ok(Value { bytes: bytes & u64::from(u32::MAX), has_32_bits: false })
    }

    fn all() -> Vec<usize> {
        crate::placement::affinity().unwrap()
    }

    fn passed(counters: Planted, follow: Option<&[usize]>) -> Passed {
        let span = Span::of(Box::new(counters), follow);
        std::thread::sleep(Duration::from_millis(150));
        span.end().0
    }

    /// On a busy machine readings may be too far apart for a 32-bit counter to be certain; then the reason mentions it.
    fn was_late(passed: &Passed) -> bool {
        passed.why.as_ref().is_some_and(|why| why.contains("two readings were"))
    }

    #[test]
    fn a_counter_that_wraps_is_followed_to_the_byte() {
        // Each reading finds it 100 MB farther. It wraps before the second reading, and a busy machine only delays readings.
        let counters = planted(|look| narrow((1 << 32) - 50_000_000 + u64::from(look) * 100_000_000));
        let looks = Arc::clone(&counters.looks);
        let passed = passed(counters, Some(&all()));
        assert_eq!(passed.looks, looks.load(Ordering::Relaxed));
        if was_late(&passed) {
            return;
        }
        assert!(passed.looks >= 4, "{passed:?}");
        assert_eq!((passed.by, &passed.why), (Some(By::Counters), &None));
        assert_eq!(passed.bytes.unwrap().to_gpu, f64::from(passed.looks - 1) * 1e8);
    }

    #[test]
    fn without_a_thread_a_counter_of_32_bits_is_not_believed() {
        let passed = passed(planted(|look| narrow(u64::from(look) * 5)), None);
        let Passed { bytes, by, looks, why, .. } = passed;
        assert_eq!((by, looks), (Some(By::Rates), 2));
        let seconds = bytes.as_ref().unwrap().to_gpu / RATE.to_gpu;
        assert!((0.15..60.0).contains(&seconds) && bytes.unwrap().from_gpu == RATE.from_gpu * seconds);
        assert!(why.unwrap().contains("may have 32 bits"));
    }

    #[test]
    fn a_wide_counter_needs_two_looks() {
        let far = |look: u32| Ok(Value { bytes: (1 << 40) + u64::from(look) * 7, has_32_bits: false });
        for follow in [None, Some(all())] {
            let passed = passed(planted(far), follow.as_deref());
            assert_eq!(passed.bytes, Ok(Both { to_gpu: 7.0, from_gpu: 0.0 }));
            assert_eq!((passed.by, passed.looks, passed.why), (Some(By::Counters), 2, None));
        }
    }

    #[test]
    fn a_refused_counter_is_not_read_again_and_has_a_reason() {
        let passed = passed(planted(|_| Err("NVML: field 198: not supported".into())), Some(&all()));
        assert_eq!((passed.by, passed.looks), (Some(By::Rates), 2));
        assert_eq!(passed.why.unwrap(), "NVML: field 198: not supported");
    }

    #[test]
    fn a_counter_that_fails_later_is_given_up_with_a_reason() {
        let fails = |look: u32| if look < 2 { narrow(look.into()) } else { Err("NVML: the GPU is lost".into()) };
        let passed = passed(planted(fails), Some(&all()));
        assert!(was_late(&passed) || passed.why.as_ref().unwrap().contains("the GPU is lost"), "{passed:?}");
        // The two readings around the wrap, and the last.
        assert!(passed.looks <= 4 && passed.by == Some(By::Rates), "{passed:?}");
    }

    #[test]
    fn without_both_the_reasons_are_told() {
        let refused = |_| Err("NVML: field 198: not supported".into());
        let counters = Planted { rate: Err("this GPU has no GPM".into()), ..planted(refused) };
        let passed = passed(counters, Some(&all()));
        assert_eq!((passed.by, passed.bytes.is_err()), (None, true));
        assert_eq!(passed.why.unwrap(), "NVML: field 198: not supported; GPM: this GPU has no GPM");
        let short = Span::of(Box::new(planted(|_| narrow(0))), None).end().0;
        assert!(short.why.is_none_or(|why| why.contains("too short") || why.contains("32 bits")));
    }

    #[test]
    fn the_thread_keeps_to_its_cpus_sleeps_and_is_over_at_the_end() {
        let cpus = all();
        let one = &cpus[cpus.len() - 1..];
        let counters = planted(|look| narrow(u64::from(look)));
        let (looks, on) = (Arc::clone(&counters.looks), Arc::clone(&counters.on));
        let span = Span::of(Box::new(counters), Some(one));
        std::thread::sleep(Duration::from_millis(150));
        assert_eq!(*on.lock().unwrap(), one);
        let (passed, used) = span.end();
        assert_eq!(all(), cpus, "the caller is where it was");
        assert_eq!((passed.looks, Arc::strong_count(&looks)), (looks.load(Ordering::Relaxed), 1));
        // At most one look each 20 ms, and the first and the last.
        assert!((4..=3 + 150 / 20).contains(&passed.looks) || was_late(&passed), "{passed:?}");
        let mut counted = crate::Counted::default();
        used.unwrap().put(&mut counted);
        assert!(counted.get("switches_voluntary").unwrap() >= 2.0, "it slept: {counted:?}");
        let busy = counted.get("cpu_user_ms").unwrap() + counted.get("cpu_system_ms").unwrap();
        assert!(busy < 20.0, "{counted:?}");
    }
}
