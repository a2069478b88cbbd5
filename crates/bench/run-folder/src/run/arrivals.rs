//! When paced samples were released: how many a second, and how long there was none.

use crate::part::Sample;
use serde::{Deserialize, Serialize};

/// For the rounds that count, all repeats together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Arrivals {
    pub wanted_per_second: f64,
    /// Over the time of each round from its first release to a period after its last.
    pub achieved_per_second: f64,
    /// How often the arrivals' clock stopped, because untimed work (a comparison, new bytes, a rest) was not finished when the next one was due.
    pub gaps: u64,
    /// How much later the releases were because of that.
    pub gap_seconds: f64,
    pub longest_gap_ns: u64,
    /// Due when the time of their round was over, and never made, because earlier ones took too long.
    pub unmade: u64,
}

/// Tolerance for the distance of two releases: clock ticks are no whole nanoseconds.
fn slack(period_ns: u64) -> u64 {
    (period_ns / 1000).max(10)
}

/// The releases of one cell, while its samples are read.
#[derive(Debug)]
pub(super) struct Releases {
    period_ns: u64,
    /// For each round: the first release, the last one, and the end of that sample.
    rounds: Vec<Option<(u64, u64, u64)>>,
    samples: u64,
    gaps: u64,
    gaps_ns: u64,
    longest_ns: u64,
}

impl Releases {
    pub fn new(period_ns: u64, rounds: usize) -> Releases {
        Releases { period_ns, rounds: vec![None; rounds], samples: 0, gaps: 0, gaps_ns: 0, longest_ns: 0 }
    }

    pub fn period_ns(&self) -> u64 {
        self.period_ns
    }

    /// The next sample of its round.
    pub fn add(&mut self, round: usize, s: &Sample) {
        self.samples += 1;
        let Some((_, last, done)) = &mut self.rounds[round] else {
            self.rounds[round] = Some((s.release_ns, s.release_ns, s.done_ns));
            return;
        };
        let late = s.release_ns.saturating_sub(*last + self.period_ns);
        if late > slack(self.period_ns) {
            self.gaps += 1;
            self.gaps_ns += late;
            self.longest_ns = self.longest_ns.max(late);
        }
        (*last, *done) = (s.release_ns, s.done_ns);
    }

    /// How long the samples of a round that were never made had been due when its last sample ended: the delay of the first of them, and their
    /// number, each due a period after the one before.
    pub fn unmade(&self, round: usize) -> Option<(u64, u64)> {
        let (_, last, done) = self.rounds.get(round).copied().flatten()?;
        let late = done.checked_sub(last + self.period_ns)?;
        Some((late, late / self.period_ns + 1))
    }

    /// How many of them had missed this deadline by then.
    pub fn unmade_and_missed(&self, round: usize, deadline_ns: u64) -> u64 {
        let Some((late, unmade)) = self.unmade(round).filter(|(late, _)| *late > deadline_ns) else { return 0 };
        unmade.min((late - deadline_ns).div_ceil(self.period_ns))
    }

    /// `ended_by_time` returns whether more samples of a round would have been made with more time.
    pub fn arrivals(&self, ended_by_time: impl Fn(usize) -> bool) -> Option<Arrivals> {
        let spans = self.rounds.iter().flatten().map(|(first, last, _)| last - first + self.period_ns);
        let ns: u64 = spans.sum();
        let unmade =
            (0..self.rounds.len()).filter(|round| ended_by_time(*round)).filter_map(|round| self.unmade(round));
        (ns > 0).then(|| Arrivals {
            wanted_per_second: 1e9 / self.period_ns as f64,
            achieved_per_second: self.samples as f64 * 1e9 / ns as f64,
            gaps: self.gaps,
            gap_seconds: self.gaps_ns as f64 / 1e9,
            longest_gap_ns: self.longest_ns,
            unmade: unmade.map(|(_, unmade)| unmade).sum(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(release_ns: u64, done_ns: u64) -> Sample {
        Sample { release_ns, call_ns: release_ns, submitted_ns: release_ns, done_ns, ..Sample::default() }
    }

    #[test]
    fn gaps_are_the_times_between_releases_beyond_the_period() {
        let mut releases = Releases::new(1_000, 2);
        // The clock stopped for 500 ns, and once for 3,000.
        [0, 1_000, 2_500, 3_500].iter().for_each(|at| releases.add(0, &sample(*at, at + 10)));
        [100_000, 104_000, 105_001].iter().for_each(|at| releases.add(1, &sample(*at, at + 10)));
        let arrivals = releases.arrivals(|_| true).unwrap();
        assert_eq!((arrivals.gaps, arrivals.longest_gap_ns, arrivals.unmade), (2, 3_000, 0));
        assert!((arrivals.gap_seconds - 3_500e-9).abs() < 1e-12);
        assert!((arrivals.achieved_per_second - 7.0 * 1e9 / (4_500.0 + 6_001.0)).abs() < 1e-3, "{arrivals:?}");
        assert!(Releases::new(1_000, 2).arrivals(|_| true).is_none());
    }

    #[test]
    fn releases_due_after_the_last_sample_count_as_unmade() {
        let mut releases = Releases::new(1_000, 3);
        releases.add(0, &sample(0, 5_200));
        releases.add(1, &sample(0, 999));
        releases.add(2, &sample(0, 1_000));
        // Due at 1, 2, 3, 4 and 5 us, that is for 4.2, 3.2, 2.2, 1.2 and 0.2 us.
        assert_eq!([0, 1, 2].map(|round| releases.unmade(round)), [Some((4_200, 5)), None, Some((0, 1))]);
        assert_eq!([2_200, 2_199, 4_200, 100].map(|ns| releases.unmade_and_missed(0, ns)), [2, 3, 0, 5]);
        assert_eq!(releases.arrivals(|round| round == 0).unwrap().unmade, 5);
    }
}
