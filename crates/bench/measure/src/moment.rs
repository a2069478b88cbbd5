//! One sample in ticks, and the slowest samples with details of their time.

use crate::clock::Clock;
use crate::counters::Counters;
use experiment::Observe;
use gpu::Correlation;
use run_folder::{Explained, Sample};
use statistics::Worst;
use workload::Engine;

/// A sample in ticks of the lab's clock; the GPU's times are in nanoseconds of the GPU's clock.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Moment {
    pub round: u32,
    pub release: u64,
    pub call: u64,
    pub submitted: u64,
    pub done: u64,
    pub started_gpu_ns: u64,
    pub ended_gpu_ns: u64,
    pub capped: bool,
}

impl Moment {
    pub fn engine(&mut self, engine: Option<Engine>) {
        if let Some(engine) = engine {
            (self.started_gpu_ns, self.ended_gpu_ns) = (engine.started.unwrap_or(0), engine.ended);
        }
    }

    /// From the intended release until the CPU saw the end.
    pub fn total(&self) -> u64 {
        self.done.saturating_sub(self.release)
    }

    /// The observed part of the sample: ticks, for the engine nanoseconds; 0 if unknown.
    #[inline]
    pub fn observed(&self, observe: Observe) -> u64 {
        match observe {
            Observe::Done => self.total(),
            Observe::Submit => self.submitted.saturating_sub(self.call),
            Observe::Engine if self.started_gpu_ns > 0 => self.ended_gpu_ns.saturating_sub(self.started_gpu_ns),
            Observe::Engine => 0,
        }
    }
}

/// Observations of a sample other than its times.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Beside {
    /// The longest time between two polls for the end, ticks.
    pub gap: Option<u64>,
    pub spent: Option<Counters>,
}

/// The slowest so far by the observed part of their cell: index of the moment, and its other observations.
pub(crate) type Slowest = Worst<(usize, Beside)>;

/// Turns ticks into nanoseconds since the part began.
pub(crate) struct Scale<'c> {
    pub clock: &'c Clock,
    pub began: u64,
    pub correlations: &'c [Correlation],
}

impl Scale<'_> {
    pub fn sample(&self, m: &Moment) -> Sample {
        let ns = |ticks: u64| self.clock.ns(ticks.saturating_sub(self.began));
        Sample {
            round: m.round,
            release_ns: ns(m.release),
            call_ns: ns(m.call),
            submitted_ns: ns(m.submitted),
            started_ns: self.tick_of(m.started_gpu_ns).map_or(0, ns),
            ended_ns: self.tick_of(m.ended_gpu_ns).map_or(0, ns),
            done_ns: ns(m.done),
            capped: m.capped,
        }
    }

    pub fn explained(&self, index: usize, m: &Moment, beside: &Beside) -> Explained {
        let signed = |from: u64, to: u64| match to >= from {
            true => self.clock.ns(to - from) as i64,
            false => -(self.clock.ns(from - to) as i64),
        };
        let ended = self.tick_of(m.ended_gpu_ns);
        Explained {
            index: index as u64,
            round: m.round,
            at_ns: self.clock.ns(m.call.saturating_sub(self.began)),
            total_ns: self.clock.ns(m.total()),
            submit_ns: self.clock.ns(m.submitted.saturating_sub(m.call)),
            engine_ns: ended.map(|tick| signed(m.submitted, tick)),
            seen_ns: ended.map(|tick| signed(tick, m.done)),
            longest_gap_ns: beside.gap.map(|gap| self.clock.ns(gap)),
            asleep_ns: beside.spent.as_ref().and_then(Counters::asleep_ns),
            run_queue_ns: beside.spent.as_ref().and_then(|s| s.run_queue_ns),
            on_cpu_ns: beside.spent.as_ref().map(|s| s.cpu_ns.min(s.wall_ns)),
            capped: m.capped,
        }
    }

    /// The tick at a time of the GPU's clock, from the two correlations around it.
    fn tick_of(&self, gpu_ns: u64) -> Option<u64> {
        if gpu_ns == 0 {
            return None;
        }
        let all = self.correlations;
        let later = all.partition_point(|c| c.gpu_ns < gpu_ns);
        match all {
            [] => None,
            [one] => Some(one.tsc_at(gpu_ns)),
            all => {
                let pair = later.clamp(1, all.len() - 1);
                let (from, to) = (&all[pair - 1], &all[pair]);
                Some(from.drift(to).map_or(from.tsc_at(gpu_ns), |drift| drift.tsc_at(gpu_ns)))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::WORST;

    #[test]
    fn the_slowest_hundred_are_kept() {
        let mut random = fastrand::Rng::with_seed(3);
        let all: Vec<u64> = (0..5000).map(|_| random.u64(0..2000)).collect();
        let mut slowest = Slowest::new(WORST);
        all.iter().enumerate().for_each(|(i, total)| slowest.offer(*total, || (i, Beside::default())));
        let found: Vec<u64> = slowest.into_sorted().iter().map(|slow| all[slow.note.0]).collect();
        let mut sorted = all.clone();
        sorted.sort_unstable_by_key(|total| std::cmp::Reverse(*total));
        assert_eq!(found, sorted[..WORST]);
    }

    #[test]
    fn of_equal_ones_the_earlier_are_kept() {
        let mut slowest = Slowest::new(WORST);
        let values = std::iter::repeat_n(1, WORST).chain(std::iter::repeat_n(2, 10));
        values.enumerate().for_each(|(i, value)| slowest.offer(value, || (i, Beside::default())));
        let found: Vec<usize> = slowest.into_sorted().iter().map(|slow| slow.note.0).collect();
        assert_eq!(found, (WORST..WORST + 10).chain(0..WORST - 10).collect::<Vec<_>>());
    }

    #[test]
    fn times_of_the_gpu_are_found_between_the_correlations_round_them() {
        // The GPU's clock runs twice as fast in the second interval.
        let correlation = |tsc, gpu_ns, error_ns| Correlation { tsc, gpu_ns, error_ns, tsc_hz: 1_000_000_000 };
        let all = [correlation(0, 1_000, 10), correlation(1_000, 2_000, 30), correlation(2_000, 4_000, 20)];
        let clock = Clock::monotonic_raw();
        let scale = Scale { clock: &clock, began: 0, correlations: &all };
        assert_eq!(scale.tick_of(1_500), Some(500));
        assert_eq!(scale.tick_of(3_000), Some(1_500));
        assert!(scale.tick_of(500).is_some(), "before the first one it goes on as after it");
        assert_eq!(scale.tick_of(0), None, "0 is no time");
        let none = Scale { clock: &clock, began: 0, correlations: &[] };
        assert_eq!(none.tick_of(1_500), None);
        let sample = scale.sample(&Moment { ended_gpu_ns: 3_000, submitted: 1_400, done: 1_600, ..Moment::default() });
        assert_eq!((sample.started_ns, sample.ended_ns, sample.done_ns), (0, 1_500, 1_600));
        let late = Moment { ended_gpu_ns: 3_000, submitted: 1_600, done: 1_700, ..Moment::default() };
        let explained = scale.explained(3, &late, &Beside::default());
        assert_eq!((explained.engine_ns, explained.seen_ns), (Some(-100), Some(200)), "done before the call came back");
    }
}
