//! Time that the measuring thread lost its CPU, and how much of a difference between two runs that may explain.

use crate::Side;
use serde::{Deserialize, Serialize};
use statistics::{Estimate, Figure};

/// The CPU of the measuring thread, in one run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Conditions {
    /// The part of the time in which the thread had no CPU: the larger of steal and the loss in the noise measurement.
    pub away: f64,
    /// The longest single loss.
    pub gap_ns: f64,
    /// The part of the time in which some thread of the machine was runnable without a CPU.
    pub pressure: f64,
}

/// A time slice of Linux's scheduler that another thread may get.
const TURN_NS: f64 = 3e6;

/// Limit for the lost part of the time.
const MOST_AWAY: f64 = 0.95;

impl Conditions {
    /// The part of samples of this length that may contain a loss.
    fn hit(&self, sample_ns: f64) -> f64 {
        let away = self.away.clamp(0.0, MOST_AWAY);
        let gap = if self.gap_ns > 0.0 { self.gap_ns } else { TURN_NS };
        (away / (1.0 - away) * sample_ns / gap + self.pressure * sample_ns / TURN_NS).min(1.0)
    }

    /// How far a difference between the conditions of two runs may move the logarithm of the quotient of a figure.
    ///
    /// If the part of affected samples is larger by `h` in one run, a percentile may be the one that is `h` higher or lower without them; and a
    /// mean may be longer by the lost part of the time.
    pub(crate) fn apart(a: (&Side<'_>, &Estimate), b: (&Side<'_>, &Estimate), figure: Figure) -> f64 {
        let (of_a, of_b) = (a.0.conditions, b.0.conditions);
        // For samples of the same length in both: equal conditions affect equally many.
        let hit = (of_a.hit(a.0.sample_ns) - of_b.hit(a.0.sample_ns)).abs();
        let Figure::Percentile(p) = figure else {
            return (of_a.away.min(MOST_AWAY) - of_b.away.min(MOST_AWAY)).abs();
        };
        let part = p.fraction();
        let moved = |(side, e): (&Side<'_>, &Estimate)| {
            let at = |part: f64| side.rounds.at_part(part.clamp(0.0, 1.0)).max(1.0);
            (at(part + hit) / e.value).ln().max((e.value / at(part - hit)).ln()).max(0.0)
        };
        if hit > 0.0 { moved(a).max(moved(b)) } else { 0.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use statistics::Rounds;

    #[test]
    fn a_tail_is_moved_by_what_may_have_hit_it_and_a_median_hardly() {
        let rounds: Vec<Vec<u64>> = (0..10)
            .map(|_| (1..=1000i32).map(|n| 5_000 + (5e4 * (f64::from(n) / 1e3).powi(40)) as u64).collect())
            .collect();
        let rounds = Rounds::new(&rounds);
        let apart = |of_a, of_b, figure| {
            let e = rounds.estimate(figure).unwrap();
            let side = |conditions| Side { rounds: &rounds, resolution: 0.0, sample_ns: 5_000.0, conditions };
            Conditions::apart((&side(of_a), &e), (&side(of_b), &e), figure)
        };
        let quiet = Conditions::default();
        // A third of the time, a millisecond at a time: 0.25 % of the samples.
        let busy = Conditions { away: 0.33, gap_ns: 1e6, pressure: 0.0 };
        assert_eq!(apart(quiet, quiet, Figure::P99), 0.0);
        assert_eq!(apart(busy, busy, Figure::P99), 0.0);
        let moved = apart(quiet, busy, Figure::P99);
        assert!((0.05..0.2).contains(&moved), "{moved}");
        assert!(apart(busy, quiet, Figure::P50) < 0.003);
        assert!((apart(quiet, busy, Figure::Mean) - 0.33).abs() < 1e-12);
        let short = Conditions { gap_ns: 10_000.0, ..busy };
        assert!((short.hit(5_000.0) - 0.246).abs() < 0.001 && busy.hit(5_000.0) < 0.003);
    }
}
