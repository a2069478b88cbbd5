//! The sampling loop: one turn of one cell. Every transfer is a sample.
//!
//! The invariant: between a call and the end of its transfer the measuring thread reads only the clock and, for polling subjects, memory. The
//! kernel's counters are read in separate rounds, whose samples have no other use. Untimed work (new bytes, comparisons, rests) never makes
//! a paced arrival late, because the arrivals' clock stops during it. A cell with paced arrivals compares rarely, so that its clock stops for
//! little of the time.

use crate::clock::Clock;
use crate::counters::Counters;
use crate::moment::{Beside, Moment, Slowest};
use environment::placement::{rest_if_due, rest_is_due};
use experiment::{Arrival, Observe};
use run_folder::part::{CellTurn, EndedBy, Metered};
use run_folder::{Compared, Tally};
use statistics::WORST;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use workload::{Checks, Error, Subject, Waiting, Wrong};

/// A cell while it is measured.
pub(crate) struct Live<'r> {
    /// One for each simultaneous transfer.
    pub subjects: Vec<Box<dyn Subject + 'r>>,
    pub arrival: Arrival,
    /// The ranking of the slowest.
    pub observe: Observe,
    pub timeout: Duration,
    /// In addition to the first and the last of a turn, each n-th is compared (0: only the very last, when all loads have ended).
    pub check_every: u64,
    /// A sample that takes longer, in ticks, is the last one.
    pub bound: Option<u64>,
    /// Whether a turn begins with untimed transfers. With a load there are none, because they would hide its effect.
    pub warms_up: bool,
    pub rests: bool,
    /// Time of its turns so far, and the part of it for comparisons.
    pub spent: Duration,
    pub comparing: Duration,
    pub moments: Vec<Moment>,
    pub turns: Vec<CellTurn>,
    pub slowest: Slowest,
    /// The slowest in rounds with counters.
    pub slowest_counted: Slowest,
    pub tally: Tally,
    pub compared: Compared,
    /// Work that no sample times: comparisons, and freeing the result of the last call.
    pub between: Between,
    pub metered: Option<Metered>,
    pub ended: Option<Ended>,
}

/// How often untimed work waited until the loads rested, and the longest time, ticks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Between {
    pub stuck: u64,
    pub longest: u64,
}

/// Why a cell takes no more samples.
#[derive(Debug)]
pub(crate) enum Ended {
    Error(Error),
    /// A timed transfer left wrong bytes.
    Wrong(Wrong),
    /// No room for more samples.
    Full,
    /// The last sample is above the bound.
    Above,
}

impl From<Error> for Ended {
    fn from(error: Error) -> Ended {
        Ended::Error(error)
    }
}

/// One turn.
pub(crate) struct Turn<'t> {
    pub round: u32,
    /// Read the kernel's counters around each call.
    pub counted: bool,
    pub samples: u64,
    /// At least one sample is taken.
    pub time: Duration,
    pub watch: &'t Watch,
}

/// State of the measuring thread for a second one, which lets the loads rest if a call is stuck because of them.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// When the current call, or the work between two calls, began, in ticks (0: none is in progress).
    pub call: AtomicU64,
    /// The loads rest.
    pub resting: AtomicBool,
}

/// Untimed transfers at the beginning of a turn and after each comparison, because both change the contents of the caches.
const WARM_UP: u32 = 2;
/// Comparisons take at most one part in so many of a cell's time, unless each transfer must be compared: with a load, their CUDA calls may take
/// milliseconds.
const COMPARING: u32 = 4;
/// The same for paced arrivals, whose clock stops during a comparison: one each 50 us, with a comparison of 250 us for each sixteenth, reached only
/// 15,400 a second.
const COMPARING_PACED: u32 = 50;

/// Maximum number of transfers of a turn without samples.
const UNSAMPLED: usize = 1 << 20;

/// A transfer in progress.
#[derive(Clone, Copy, Default)]
struct UnderWay {
    subject: usize,
    moment: Moment,
    counters: Option<Counters>,
}

impl Live<'_> {
    /// Takes the samples of one turn; then releases the GPU.
    pub fn turn(&mut self, clock: &Clock, turn: &Turn<'_>) -> Result<(), Ended> {
        // Not counted in its share of time: a place is written whole.
        self.subjects.iter_mut().try_for_each(|subject| subject.place(turn.round))?;
        let (begun, before) = (Instant::now(), self.moments.len());
        let taken = self.samples_of(clock, turn);
        turn.watch.call.store(clock.now(), Ordering::Relaxed);
        let rested = if self.rests { self.rest() } else { Ok(()) };
        self.spent += begun.elapsed();
        turn.watch.call.store(0, Ordering::Relaxed);
        // Otherwise the next cell's turn would begin without the loads.
        wait_for_loads(turn);
        let all = (self.moments.len() - before) as u64 >= turn.samples;
        let was_cut = || self.moments[before..].last().is_some_and(|last| last.capped);
        let ended = match &taken {
            Ok(()) if all => EndedBy::Samples,
            Ok(()) if was_cut() => EndedBy::Capped,
            Ok(()) => EndedBy::Time,
            Err(Ended::Full) => EndedBy::Room,
            // Only a soak has a bound, and it reports that itself.
            Err(Ended::Error(_) | Ended::Wrong(_) | Ended::Above) => EndedBy::Failed,
        };
        let ns = begun.elapsed().as_nanos() as u64;
        self.turns.push(CellTurn { round: turn.round, ns, ended, rested_ns: 0 });
        taken.and(rested)
    }

    /// A turn whose transfers are no samples, and are not compared; returns their number.
    pub fn unsampled(&mut self, clock: &Clock, turn: &Turn<'_>) -> Result<u64, Ended> {
        let samples = std::mem::replace(&mut self.moments, Vec::with_capacity(UNSAMPLED));
        let slowest = std::mem::replace(&mut self.slowest, Slowest::new(WORST));
        let check_every = std::mem::take(&mut self.check_every);
        let turns = self.turns.len();
        let taken = self.turn(clock, turn);
        self.turns.truncate(turns);
        self.check_every = check_every;
        self.slowest = slowest;
        let transfers = std::mem::replace(&mut self.moments, samples).len() as u64;
        match taken {
            Ok(()) | Err(Ended::Full) => Ok(transfers),
            Err(ended) => Err(ended),
        }
    }

    /// Prepares another lap, after the samples of the last one were taken. A failed cell stays failed.
    pub fn again(&mut self) {
        (self.spent, self.comparing) = (Duration::ZERO, Duration::ZERO);
        if !matches!(self.ended, Some(Ended::Error(_))) {
            self.ended = None;
        }
    }

    /// Releases the work that is kept on the GPU: armed transfers and spinning kernels.
    pub fn rest(&mut self) -> Result<(), Ended> {
        self.subjects.iter_mut().try_for_each(|subject| subject.rest()).map_err(Ended::Error)
    }

    /// Untimed transfers, at most `most` of them, in at most about `time`.
    pub fn warm_up(&mut self, clock: &Clock, most: u32, time: Duration) -> Result<(), Ended> {
        let begun = clock.now();
        for _ in 0..most {
            for subject in &mut self.subjects {
                subject.renew()?;
                subject.fire()?;
                subject.wait(self.timeout)?;
            }
            if clock.ns(clock.now().saturating_sub(begun)) > time.as_nanos() as u64 {
                break;
            }
        }
        Ok(())
    }

    fn warm(&mut self, clock: &Clock, turn: &Turn<'_>) -> Result<(), Ended> {
        if !self.warms_up {
            return Ok(());
        }
        // Released work is started again by CUDA calls, which may be stuck because of the loads.
        let begun = clock.now();
        turn.watch.call.store(begun, Ordering::Relaxed);
        self.warm_up(clock, WARM_UP, turn.time / 8)?;
        self.after_untimed(clock, turn, begun);
        Ok(())
    }

    fn samples_of(&mut self, clock: &Clock, turn: &Turn<'_>) -> Result<(), Ended> {
        self.warm(clock, turn)?;
        let mut arrivals = Arrivals::new(self.arrival, clock);
        let (begun, whole) = (clock.now(), Instant::now());
        let mut rested = 0;
        let over = |rested: u64| clock.ns(clock.now().saturating_sub(begun + rested)) >= turn.time.as_nanos() as u64;
        let comparing = if arrivals.period.is_some() { COMPARING_PACED } else { COMPARING };
        let mut taken = 0;
        while taken < turn.samples && (taken == 0 || !over(rested)) {
            if self.moments.len() == self.moments.capacity() {
                return Err(Ended::Full);
            }
            // The first one is compared, then each n-th; the n-th ones are at different places in each round.
            let due = self.check_every == 1 || self.comparing * comparing <= self.spent + whole.elapsed();
            let until_check = match (taken, self.check_every) {
                (_, 0) => turn.samples,
                (0, _) => 1,
                (taken, every) => every - (taken + u64::from(turn.round)) % every,
            };
            let most = until_check.min(turn.samples - taken).min((self.moments.capacity() - self.moments.len()) as u64);
            taken += self.run(clock, turn, &mut arrivals, most, &mut rested, &over)?;
            let last = taken >= turn.samples || over(rested);
            let untimed = clock.now();
            wait_for_loads(turn);
            if self.check_every > 0 && due {
                // A comparison may be stuck because of the loads, like a call.
                let (begun, at) = (Instant::now(), clock.now());
                turn.watch.call.store(at, Ordering::Relaxed);
                self.check()?;
                self.comparing += begun.elapsed();
                self.after_untimed(clock, turn, at);
                if !last {
                    self.warm(clock, turn)?;
                }
            }
            arrivals.resume(clock, untimed);
        }
        Ok(())
    }

    /// Takes samples until there are `most` or the time is over; then none is in progress. Returns their number.
    fn run(
        &mut self,
        clock: &Clock,
        turn: &Turn<'_>,
        arrivals: &mut Arrivals,
        most: u64,
        rested: &mut u64,
        over: &dyn Fn(u64) -> bool,
    ) -> Result<u64, Ended> {
        let depth = self.subjects.len();
        let (mut fired, mut seen) = (0u64, 0u64);
        let mut under_way = [UnderWay::default(); MOST_DEPTH];
        // A rest would be part of the time of a transfer in progress.
        let must_drain = |under_way: u64| under_way > 0 && rest_is_due();
        loop {
            while fired < most
                && (fired - seen) < depth as u64
                && !must_drain(fired - seen)
                && (fired == 0 || !over(*rested))
            {
                let subject = (fired % depth as u64) as usize;
                let slot = &mut under_way[subject];
                let untimed = clock.now();
                if fired == seen {
                    wait_for_loads(turn);
                }
                // (It may become due right after `must_drain` was called.)
                if fired == seen && rest_if_due() {
                    *rested += clock.now().saturating_sub(untimed);
                }
                let at = clock.now();
                turn.watch.call.store(at, Ordering::Relaxed);
                self.subjects[subject].renew()?;
                self.after_untimed(clock, turn, at);
                arrivals.resume(clock, untimed);
                *slot = UnderWay { subject, moment: Moment { round: turn.round, ..Moment::default() }, counters: None };
                // ORDERING: drains the last sample's own stores, or the submission's fence would wait for them.
                std::sync::atomic::fence(Ordering::SeqCst);
                slot.moment.release = arrivals.next(clock);
                slot.counters = turn.counted.then(Counters::of_thread);
                slot.moment.call = clock.now();
                if slot.moment.release == 0 {
                    slot.moment.release = slot.moment.call;
                }
                turn.watch.call.store(slot.moment.call, Ordering::Relaxed);
                self.subjects[subject].fire()?;
                slot.moment.submitted = clock.now();
                fired += 1;
            }
            if seen == fired {
                return Ok(seen);
            }
            let oldest = (seen % depth as u64) as usize;
            seen += 1;
            self.end_of(clock, turn, &mut under_way[oldest])?;
        }
    }

    /// Untimed work has ended. If it waited until the loads rested, that is recorded. No sample begins before the loads run again, because it would
    /// be a sample without loads.
    fn after_untimed(&mut self, clock: &Clock, turn: &Turn<'_>, begun: u64) {
        let resting = turn.watch.resting.load(Ordering::Relaxed);
        turn.watch.call.store(0, Ordering::Relaxed);
        if !resting {
            return;
        }
        self.between.stuck += 1;
        self.between.longest = self.between.longest.max(clock.now().saturating_sub(begun));
        wait_for_loads(turn);
    }

    /// Waits for the end of one, and stores it.
    fn end_of(&mut self, clock: &Clock, turn: &Turn<'_>, one: &mut UnderWay) -> Result<(), Ended> {
        let subject = &mut self.subjects[one.subject];
        let mut beside = Beside::default();
        one.moment.done = match subject.waiting() {
            Waiting::Called => {
                subject.wait(self.timeout)?;
                clock.now()
            }
            Waiting::Polled => {
                let (done, gap) = poll(subject.as_mut(), clock, one.moment.submitted, self.timeout)?;
                beside.gap = Some(gap);
                done
            }
        };
        one.moment.engine(subject.engine());
        // It waited because of the loads until they rested.
        one.moment.capped = turn.watch.resting.load(Ordering::Relaxed);
        turn.watch.call.store(0, Ordering::Relaxed);
        let index = self.moments.len();
        if let Some(from) = &one.counters {
            let spent = Counters::of_thread().since(from);
            beside.spent = Some(spent);
            add(&mut self.tally, &spent);
            self.slowest_counted.offer(one.moment.observed(self.observe), || (index, beside));
        } else {
            self.slowest.offer(one.moment.observed(self.observe), || (index, beside));
        }
        self.moments.push(one.moment);
        if self.bound.is_some_and(|bound| one.moment.total() > bound) {
            return Err(Ended::Above);
        }
        Ok(())
    }

    /// Compares the bytes that the last transfer of each subject left.
    ///
    /// # Errors
    /// The wrong bytes, or an error of reading them.
    pub fn check(&mut self) -> Result<(), Ended> {
        for subject in &mut self.subjects {
            let checks = subject.checks();
            if checks == Checks::Nothing {
                continue;
            }
            if let Some(wrong) = subject.check()? {
                return Err(Ended::Wrong(wrong));
            }
            self.compared.whole += 1;
            self.compared.guards = checks == Checks::BytesAndGuards;
        }
        Ok(())
    }
}

/// Waits until the loads run that rested for a call which has ended: a transfer that begins before would run without them.
fn wait_for_loads(turn: &Turn<'_>) {
    while turn.watch.resting.load(Ordering::Relaxed) {
        std::thread::yield_now();
    }
}

/// Maximum number of simultaneous transfers.
pub const MOST_DEPTH: usize = 32;

/// Polls until it is done; returns when that was, and the longest time between two polls. A long time between two polls means that the thread could
/// not poll.
#[inline]
fn poll(subject: &mut dyn Subject, clock: &Clock, submitted: u64, timeout: Duration) -> Result<(u64, u64), Error> {
    let (mut last, mut gap) = (submitted, 0);
    loop {
        let there = subject.poll()?;
        let now = clock.now();
        gap = gap.max(now.saturating_sub(last));
        last = now;
        if there {
            return Ok((now, gap));
        }
        let passed = clock.ns(now.saturating_sub(submitted));
        if passed > timeout.as_nanos() as u64 {
            // The subject reports which transfer is late; the delay is known here.
            subject.wait(Duration::ZERO).map_err(|error| match error {
                Error::Late { bytes, .. } => Error::Late { bytes, after: Duration::from_nanos(passed) },
                other => other,
            })?;
            return Ok((clock.now(), gap));
        }
    }
}

fn add(tally: &mut Tally, spent: &Counters) {
    tally.calls += 1;
    tally.wall_ns += spent.wall_ns;
    tally.on_cpu_ns += spent.cpu_ns.min(spent.wall_ns);
    tally.slept += u64::from(spent.voluntary > 0);
    tally.preempted += u64::from(spent.involuntary > 0);
    match spent.asleep_ns() {
        Some(asleep) => {
            tally.asleep_ns += asleep;
            tally.run_queue_ns += spent.run_queue_ns.unwrap_or(0);
        }
        None => tally.unknown += 1,
    }
}

/// When the next one should start, ticks.
struct Arrivals {
    period: Option<u64>,
    next: u64,
}

impl Arrivals {
    fn new(arrival: Arrival, clock: &Clock) -> Arrivals {
        match arrival {
            Arrival::Closed { .. } => Arrivals { period: None, next: 0 },
            Arrival::Paced { period_ns } => {
                let period = clock.ticks(period_ns).max(1);
                Arrivals { period: Some(period), next: clock.now() + period }
            }
        }
    }

    /// Waits for the release of the next one, and returns its intended time; 0 if each is released by its call.
    fn next(&mut self, clock: &Clock) -> u64 {
        let Some(period) = self.period else { return 0 };
        let release = self.next;
        while clock.now() < release {
            std::hint::spin_loop();
        }
        self.next = release + period;
        release
    }

    /// Untimed work has ended: the arrivals' clock stopped for arrivals that were already waiting.
    fn resume(&mut self, clock: &Clock, paused: u64) {
        if self.period.is_some() {
            let (late_before, late_now) = (paused.saturating_sub(self.next), clock.now().saturating_sub(self.next));
            self.next += late_now - late_before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;
    use std::rc::Rc;
    use std::sync::Arc;

    /// A test subject: takes a fixed time; stalls once; fails at one transfer; waits until the loads rest.
    struct Fake {
        /// Work that is not timed.
        renews: Option<Box<dyn FnMut()>>,
        takes_ns: u64,
        stall_at: Option<(u64, u64)>,
        wrong_at: Option<u64>,
        compares_ns: u64,
        behind: Option<Arc<Watch>>,
        fired: Rc<Cell<u64>>,
        until: u64,
        clock: Clock,
        waiting: Waiting,
    }

    impl Subject for Fake {
        fn waiting(&self) -> Waiting {
            self.waiting
        }

        fn renew(&mut self) -> Result<(), Error> {
            self.renews.iter_mut().for_each(|renews| renews());
            Ok(())
        }

        fn fire(&mut self) -> Result<(), Error> {
            let n = self.fired.get();
            self.fired.set(n + 1);
            let takes = self.stall_at.filter(|(at, _)| *at == n).map_or(self.takes_ns, |(_, ns)| ns);
            self.until = self.clock.now() + self.clock.ticks(takes);
            Ok(())
        }

        fn poll(&mut self) -> Result<bool, Error> {
            let rests = |watch: &Arc<Watch>| watch.resting.load(Ordering::Relaxed);
            Ok(self.clock.now() >= self.until && self.behind.as_ref().is_none_or(rests))
        }

        fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
            let begun = self.clock.now();
            while !self.poll()? {
                if self.clock.ns(self.clock.now() - begun) > timeout.as_nanos() as u64 {
                    return Err(Error::Late { bytes: 8, after: timeout });
                }
            }
            Ok(())
        }

        fn checks(&self) -> Checks {
            Checks::BytesAndGuards
        }

        fn check(&mut self) -> Result<Option<Wrong>, Error> {
            let until = self.clock.now() + self.clock.ticks(self.compares_ns);
            while self.clock.now() < until {
                std::hint::spin_loop();
            }
            let wrong = self.wrong_at == Some(self.fired.get());
            Ok(wrong.then_some(Wrong::PastTheEnd { touched: 1, first: 0 }))
        }
    }

    fn fake(clock: &Clock) -> Fake {
        Fake {
            renews: None,
            takes_ns: 1_000,
            stall_at: None,
            wrong_at: None,
            compares_ns: 0,
            behind: None,
            fired: Rc::default(),
            until: 0,
            clock: clock.clone(),
            waiting: Waiting::Polled,
        }
    }

    fn live<'r>(fakes: Vec<Fake>, arrival: Arrival, check_every: u64) -> Live<'r> {
        Live {
            subjects: fakes.into_iter().map(|f| Box::new(f) as Box<dyn Subject>).collect(),
            arrival,
            observe: Observe::Done,
            timeout: Duration::from_secs(1),
            check_every,
            bound: None,
            warms_up: true,
            rests: true,
            spent: Duration::ZERO,
            comparing: Duration::ZERO,
            moments: Vec::with_capacity(100_000),
            turns: Vec::new(),
            slowest: Slowest::new(WORST),
            slowest_counted: Slowest::new(WORST),
            tally: Tally::default(),
            compared: Compared::default(),
            between: Between::default(),
            metered: None,
            ended: None,
        }
    }

    static WATCH: Watch = Watch { call: AtomicU64::new(0), resting: AtomicBool::new(false) };

    fn turn(samples: u64, counted: bool) -> Turn<'static> {
        Turn { round: 0, counted, samples, time: Duration::from_secs(20), watch: &WATCH }
    }

    #[test]
    fn every_transfer_is_a_sample_and_takes_what_it_takes() {
        let clock = Clock::new();
        for waiting in [Waiting::Polled, Waiting::Called] {
            let mut l = live(vec![Fake { waiting, ..fake(&clock) }], Arrival::Closed { depth: 1 }, 16);
            l.turn(&clock, &turn(500, false)).unwrap();
            assert_eq!(l.moments.len(), 500);
            assert!(l.moments.iter().all(|m| clock.ns(m.done - m.call) >= 999 && m.release == m.call));
            assert!(l.compared.whole >= 500 / 16 && l.compared.guards);
            assert_eq!(l.tally.calls, 0);
        }
    }

    #[test]
    fn counters_are_read_in_their_own_rounds() {
        let clock = Clock::new();
        let mut l = live(vec![fake(&clock)], Arrival::Closed { depth: 1 }, 0);
        l.turn(&clock, &turn(50, true)).unwrap();
        assert_eq!((l.tally.calls, l.moments.len()), (50, 50));
        assert!(l.tally.wall_ns >= 50 * 1_000 && l.slowest.into_sorted().is_empty());
    }

    #[test]
    fn a_stall_makes_paced_arrivals_wait_and_a_closed_loop_hides_it() {
        let clock = Clock::new();
        let stalled = || Fake { stall_at: Some((50, 2_000_000)), ..fake(&clock) };
        // One each 20 us: a stall of 2 ms is a hundred periods, and each later arrival waits for the earlier ones.
        let late = |l: &Live<'_>| {
            let late = |m: &&Moment| clock.ns(m.done - m.release) > 100_000;
            l.moments.iter().filter(late).count()
        };
        let mut paced = live(vec![stalled()], Arrival::Paced { period_ns: 20_000 }, 16);
        paced.turn(&clock, &turn(400, false)).unwrap();
        let mut closed = live(vec![stalled()], Arrival::Closed { depth: 1 }, 16);
        closed.turn(&clock, &turn(400, false)).unwrap();
        // The host may add stalls to both.
        assert!(late(&paced) >= 80, "{} of {}", late(&paced), paced.moments.len());
        assert!(late(&closed) >= 1 && late(&closed) < 40, "{}", late(&closed));
        let worst = paced.slowest.into_sorted();
        let worst = &paced.moments[worst[0].note.0];
        assert!(clock.ns(worst.done - worst.release) >= 2_000_000);
    }

    #[test]
    fn untimed_work_does_not_delay_arrivals() {
        let clock = Clock::new();
        let sleeps = || std::thread::sleep(Duration::from_micros(300));
        let slow = Fake { renews: Some(Box::new(sleeps)), ..fake(&clock) };
        let mut l = live(vec![slow], Arrival::Paced { period_ns: 20_000 }, 0);
        l.turn(&clock, &turn(100, false)).unwrap();
        let late = l.moments.iter().filter(|m| clock.ns(m.done - m.release) > 250_000).count();
        assert!(late < 50, "{late} of 100 waited for what is not timed");
    }

    #[test]
    fn comparisons_take_little_of_the_time_of_paced_arrivals() {
        let clock = Clock::new();
        // As long as a comparison through CUDA: five periods.
        let slow = Fake { compares_ns: 250_000, ..fake(&clock) };
        let mut l = live(vec![slow], Arrival::Paced { period_ns: 50_000 }, 16);
        l.turn(&clock, &Turn { time: Duration::from_millis(400), ..turn(u64::MAX, false) }).unwrap();
        let (first, last) = (l.moments[0].release, l.moments[l.moments.len() - 1].release);
        let rate = (l.moments.len() - 1) as f64 * 1e9 / clock.ns(last - first) as f64;
        // The machine may be busy with other work; a comparison for each sixteenth leaves 15,238.
        assert!(rate > 17_000.0 && rate < 20_001.0, "{rate} a second");
        assert!(l.compared.whole >= 2, "{}", l.compared.whole);
    }

    #[test]
    fn the_slowest_samples_are_those_of_the_observed_part() {
        let clock = Clock::new();
        // Every tenth call is slow, every other one takes long to end.
        struct Two(Fake);
        impl Subject for Two {
            fn waiting(&self) -> Waiting {
                self.0.waiting
            }
            fn fire(&mut self) -> Result<(), Error> {
                self.0.fire()?;
                let is_slow = self.0.fired.get().is_multiple_of(10);
                let until = self.0.clock.now() + self.0.clock.ticks(if is_slow { 50_000 } else { 0 });
                while self.0.clock.now() < until {
                    std::hint::spin_loop();
                }
                self.0.until = until + self.0.clock.ticks(if is_slow { 0 } else { 100_000 });
                Ok(())
            }
            fn poll(&mut self) -> Result<bool, Error> {
                self.0.poll()
            }
            fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
                self.0.wait(timeout)
            }
        }
        let mut l = live(Vec::new(), Arrival::Closed { depth: 1 }, 0);
        l.subjects.push(Box::new(Two(fake(&clock))));
        (l.observe, l.warms_up) = (Observe::Submit, false);
        l.turn(&clock, &turn(500, false)).unwrap();
        let slow = l.slowest.into_sorted().iter().filter(|slow| (slow.note.0 + 1).is_multiple_of(10)).count();
        assert_eq!(slow, 50, "all slow calls are among the hundred");
    }

    #[test]
    fn a_turn_keeps_what_ended_it() {
        let clock = Clock::new();
        let ended = |l: &Live<'_>| l.turns.iter().map(|t| (t.round, t.ended)).collect::<Vec<_>>();
        let mut l = live(vec![fake(&clock)], Arrival::Closed { depth: 1 }, 0);
        l.turn(&clock, &turn(20, false)).unwrap();
        let short = Turn { round: 1, time: Duration::from_millis(2), ..turn(u64::MAX, false) };
        l.turn(&clock, &short).unwrap();
        assert!(l.turns[1].ns >= 2_000_000 && l.turns[0].ns >= 20_000, "{:?}", l.turns);
        l.moments = Vec::with_capacity(5);
        assert!(matches!(l.turn(&clock, &Turn { round: 2, ..turn(20, false) }), Err(Ended::Full)));
        l.subjects = vec![Box::new(Fake { takes_ns: u64::MAX / 4, ..fake(&clock) })];
        (l.timeout, l.moments) = (Duration::from_millis(1), Vec::with_capacity(5));
        l.turn(&clock, &Turn { round: 3, ..turn(1, false) }).unwrap_err();
        let expected = [(0, EndedBy::Samples), (1, EndedBy::Time), (2, EndedBy::Room), (3, EndedBy::Failed)];
        assert_eq!(ended(&l), expected);
        // A metered turn has no samples.
        l.subjects = vec![Box::new(fake(&clock))];
        l.unsampled(&clock, &turn(20, false)).unwrap();
        assert_eq!(l.turns.len(), 4);
    }

    #[test]
    fn a_wrong_transfer_ends_the_cell_where_each_is_compared() {
        let clock = Clock::new();
        for at in [1, 67, 100] {
            // Two warm-ups come before each: the n-th timed transfer is the 3n-th of all.
            let wrong = Fake { wrong_at: Some(3 * at), ..fake(&clock) };
            let mut l = live(vec![wrong], Arrival::Closed { depth: 1 }, 1);
            assert!(matches!(l.turn(&clock, &turn(100, false)), Err(Ended::Wrong(_))), "{at}");
            assert_eq!(l.moments.len() as u64, at);
            let mut right = live(vec![fake(&clock)], Arrival::Closed { depth: 1 }, 1);
            assert!(right.turn(&clock, &turn(100, false)).is_ok() && right.compared.whole == 100);
        }
    }

    #[test]
    fn several_are_under_way_at_a_time() {
        let clock = Clock::new();
        let fakes = (0..4).map(|_| Fake { takes_ns: 50_000, ..fake(&clock) }).collect();
        let mut l = live(fakes, Arrival::Closed { depth: 4 }, 0);
        l.turn(&clock, &turn(64, false)).unwrap();
        let overlapping = l.moments.windows(2).filter(|pair| pair[1].call < pair[0].done).count();
        assert!(l.moments.len() == 64 && overlapping > 32, "{overlapping}");
        assert!(l.moments.iter().all(|m| clock.ns(m.done - m.call) >= 49_000));
    }

    #[test]
    fn a_lost_transfer_ends_the_cell_and_one_that_waited_for_a_load_is_capped() {
        let clock = Clock::new();
        let mut l = live(vec![Fake { takes_ns: u64::MAX / 4, ..fake(&clock) }], Arrival::Closed { depth: 1 }, 0);
        l.timeout = Duration::from_millis(5);
        let ended = l.turn(&clock, &turn(1, false));
        let Err(Ended::Error(Error::Late { after, .. })) = ended else { panic!("{ended:?}") };
        assert!(after >= l.timeout, "{after:?}");
        // The loads rest because this transfer waited for them: its time with loads is unknown.
        let watch = Arc::<Watch>::default();
        let waits = Fake { behind: Some(watch.clone()), ..fake(&clock) };
        let mut l = live(vec![waits], Arrival::Closed { depth: 1 }, 0);
        l.warms_up = false;
        l.timeout = Duration::from_secs(60);
        watched(&clock, &watch, |watch| {
            l.turn(&clock, &Turn { watch, time: Duration::from_millis(300), ..turn(2, false) }).unwrap();
        });
        assert!(!l.moments.is_empty() && l.moments.iter().all(|m| m.capped));
        // The next one waits until the loads run again, and was not stuck itself.
        assert_eq!(l.between, Between::default());
        assert!(matches!(l.turns[..], [CellTurn { ended: EndedBy::Capped | EndedBy::Samples, .. }]), "{:?}", l.turns);
    }

    #[test]
    fn untimed_work_that_waited_for_a_load_is_told_and_caps_no_sample() {
        let clock = Clock::new();
        let watch = Arc::<Watch>::default();
        let mut seen = Some(watch.clone());
        let sticks = move || {
            if let Some(watch) = seen.take() {
                while !watch.resting.load(Ordering::Relaxed) {
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        };
        let sticky = Fake { renews: Some(Box::new(sticks)), ..fake(&clock) };
        let mut l = live(vec![sticky], Arrival::Closed { depth: 1 }, 0);
        l.warms_up = false;
        watched(&clock, &watch, |watch| l.turn(&clock, &Turn { watch, ..turn(20, false) }).unwrap());
        assert_eq!((l.between.stuck, l.moments.len()), (1, 20));
        assert!(clock.ns(l.between.longest) >= STUCK_NS);
        assert!(l.moments.iter().all(|m| !m.capped));
    }

    const STUCK_NS: u64 = 250_000_000;

    /// Runs work with a second thread that lets loads rest when a step takes too long.
    fn watched(clock: &Clock, watch: &Watch, work: impl FnOnce(&Watch)) {
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let call = watch.call.load(Ordering::Relaxed);
                    let stuck = call != 0 && clock.ns(clock.now().saturating_sub(call)) > STUCK_NS;
                    watch.resting.store(stuck, Ordering::Relaxed);
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
            work(watch);
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(watch.call.load(Ordering::Relaxed), 0);
    }
}
