//! How many times as long one cell takes as another, in rounds in which both took their turn.

use crate::estimate::{deviation_of_mean, reach};
use crate::processes::MIN_PROCESSES;
use crate::{Figure, Interval, Percentile, Rounds};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    /// The quotient of the two figures.
    pub ratio: f64,
    /// `None` with too few processes, and of extremes.
    pub interval: Option<Interval<f64>>,
    /// Number of rounds in which both were measured.
    pub rounds: u64,
}

impl Ratio {
    /// `these` over `those`: the quotient of the figures of all samples in rounds that both have. Rounds of the same number are one pair: what slows
    /// both down in one round, or in one process, cancels.
    pub fn of(these: &Rounds, those: &Rounds, figure: Figure, confidence: f64) -> Option<Ratio> {
        let others = those.sampled();
        let both: Vec<usize> = these.sampled().into_iter().filter(|r| others.binary_search(r).is_ok()).collect();
        let (these, those) = (these.only(&both), those.only(&both));
        let ratio = these.figure(figure)? / those.figure(figure).filter(|b| *b > 0.0)?;
        let interval = error(&these, &those, figure).filter(|_| ratio > 0.0).map(|(deviation, freedom)| {
            // Half a step of the clock, of each.
            let clock = (these.resolution().powi(2) + those.resolution().powi(2)) / 12.0;
            let off = reach(confidence, freedom) * (deviation.powi(2) + clock).sqrt();
            Interval { low: ratio * (-off).exp(), high: ratio * off.exp() }
        });
        Some(Ratio { ratio, interval, rounds: both.len() as u64 })
    }

    /// Whether the two differ: 1 is not in the interval. `None` if there is none.
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|i| !i.holds(1.0))
    }

    /// The interval, if 1 is not in it.
    pub fn certain(&self) -> Option<Interval<f64>> {
        self.interval.filter(|i| !i.holds(1.0))
    }
}

/// The standard deviation of the logarithm of the quotient, and its degrees of freedom.
fn error(these: &Rounds, those: &Rounds, figure: Figure) -> Option<(f64, u32)> {
    let processes = these.processes().len();
    if processes < MIN_PROCESSES || !figure.has_interval() {
        return None;
    }
    if !figure.is_tail() {
        // The quotients of processes; those of rounds show what few processes may hide.
        let quotients = |a: Vec<Option<f64>>, b: Vec<Option<f64>>| {
            let quotient =
                |(a, b): (&Option<f64>, &Option<f64>)| Some((a.filter(|a| *a > 0.0)? / b.filter(|b| *b > 0.0)?).ln());
            deviation_of_mean(&a.iter().zip(&b).filter_map(quotient).collect::<Vec<_>>())
        };
        let of_processes = quotients(these.each_process(figure), those.each_process(figure))?;
        let of_rounds = quotients(these.each(figure), those.each(figure)).unwrap_or(0.0);
        return Some((of_processes.max(of_rounds), processes as u32 - 1));
    }
    let (a, b) = (these.estimate(figure).ok()?, those.estimate(figure).ok()?);
    // The part of the samples that a tail is about, and how much each round moves it.
    let moved = |rounds: &Rounds, value| match figure {
        Figure::Misses(above) => rounds.pulls(&rounds.above(above as f64)),
        _ => rounds.pulls(&rounds.up_to(value)),
    };
    let ((part_a, moves_a), (part_b, moves_b)) = (moved(these, a.value), moved(those, b.value));
    let (of_a, of_b) = match figure {
        // A larger part at or below a value means a smaller percentile. The same steepness for both, so that a common slowdown cancels.
        Figure::Percentile(p) => {
            let both = (steepness(these, p, &moves_a) + steepness(those, p, &moves_b)) / 2.0;
            (-both, -both)
        }
        _ => (1.0 / part_a, 1.0 / part_b),
    };
    let pulls: Vec<f64> = moves_a.iter().zip(&moves_b).map(|(a, b)| of_a * a - of_b * b).collect();
    Some((these.deviation_of(&pulls), a.freedom.min(b.freedom)))
}

/// How much a percentile's logarithm grows with the part of the samples, around it.
fn steepness(rounds: &Rounds, percentile: Percentile, moves: &[f64]) -> f64 {
    let part = percentile.fraction();
    // Not beyond the last sample, as far upwards as downwards.
    let to = rounds.deviation_of(moves).min((1.0 - part) / 2.0);
    let at = |part: f64| {
        let n = rounds.sorted().len();
        let rank = (part * n as f64).ceil().clamp(1.0, n.max(1) as f64) as usize;
        rounds.sorted().get(rank - 1).map_or(0.0, |v| *v as f64)
    };
    let (low, high) = (at(part - to), at(part + to));
    if to > 0.0 && low > 0.0 { (high / low).ln() / (2.0 * to) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_paired_by_round() {
        // The machine doubles its speed half way: the quotient of each process does not change.
        let level = |r: usize, times: u64| times * if r < 5 { 2000 } else { 1000 };
        let round = |r, times| [0, 1, 2].map(|n| level(r, times) + n);
        let of = |times| Rounds::new(&(0..10).map(|r| round(r, times)).collect::<Vec<_>>()).in_repeats_of(2);
        let r = Ratio::of(&of(1), &of(2), Figure::P50, 0.95).unwrap();
        assert!((r.ratio - 0.5).abs() < 1e-3 && r.rounds == 10 && r.differs() == Some(true), "{r:?}");
        assert_eq!(Ratio::of(&of(1), &of(1), Figure::Mean, 0.95).unwrap().differs(), Some(false));
        assert_eq!(
            Ratio::of(&of(1).in_repeats_of(5), &of(2), Figure::P50, 0.95).unwrap().differs(),
            None,
            "two processes"
        );
        assert_eq!(Ratio::of(&of(1), &Rounds::new(&[[0]]), Figure::P50, 0.95), None);
    }

    #[test]
    fn a_ratio_of_means_is_the_quotient_of_the_means() {
        // One round in ten takes ten times as long: no middle of quotients shows that.
        let rounds =
            |slow: u64| Rounds::new(&(0..60).map(|r| [if r % 10 == 3 { slow } else { 1000 }; 5]).collect::<Vec<_>>());
        let r =
            Ratio::of(&rounds(10_000).in_repeats_of(10), &rounds(1000).in_repeats_of(10), Figure::Mean, 0.95).unwrap();
        assert!((r.ratio - 1.9).abs() < 1e-12 && r.interval.unwrap().holds(1.9), "{r:?}");
    }

    /// Rounds of 500 samples whose speed flips, and `times` as slow; those in `missing` are empty.
    fn rounds(times: f64, seed: u64, missing: &[usize]) -> Rounds {
        let (mut flips, mut noise) = (fastrand::Rng::with_seed(3), fastrand::Rng::with_seed(seed));
        let all: Vec<Vec<u64>> = (0..20)
            .map(|r| {
                let speed = if flips.bool() { 2.0 } else { 1.0 };
                let one = |_| (1e5 * times * speed / (1.01 - noise.f64()).powf(0.2)) as u64;
                if missing.contains(&r) { Vec::new() } else { (0..500).map(one).collect() }
            })
            .collect();
        Rounds::new(&all).in_repeats_of(4)
    }

    #[test]
    fn a_tail_is_that_of_the_same_rounds_of_both() {
        for figure in [Figure::P99, Figure::P50, Figure::Mean] {
            let mut widths = 0.0;
            let (mut held, mut known) = (0, 0);
            for seed in 0..60 {
                let (a, b) = (rounds(1.5, 2 * seed, &[0, 19]), rounds(1.0, 2 * seed + 1, &[1]));
                let r = Ratio::of(&a, &b, figure, 0.95).unwrap();
                assert_eq!(r.rounds, 17, "{figure}: {r:?}");
                // The slowest samples may come from too few processes.
                let Some(i) = r.interval else { continue };
                widths += i.high - i.low;
                (known, held) = (known + 1, held + usize::from(i.holds(1.5)));
            }
            // 95 % are expected; three standard deviations of the binomial below it.
            assert!(known >= 50 && held * 100 >= known * 86, "{figure}: {held} of {known}");
            widths /= known as f64;
            // Without pairing, the number of slow rounds of each spreads the quotient from a half to twice.
            assert!(widths < 0.25, "{figure}: intervals are {widths} wide");
        }
        let (a, b) = (rounds(1.5, 1, &[0, 19]), rounds(1.0, 2, &[1]));
        assert_eq!(Ratio::of(&a, &b, Figure::P9999, 0.95), None);
        assert_eq!(Ratio::of(&a, &b, Figure::Max, 0.95).unwrap().interval, None);
        let few = rounds(1.0, 1, &(5..20).collect::<Vec<_>>());
        let r = Ratio::of(&few, &b, Figure::P99, 0.95).unwrap();
        assert_eq!((r.rounds, r.interval, r.differs()), (4, None, None));
    }

    #[test]
    fn rounds_that_one_has_more_of_are_left_out() {
        let (a, b) = (Rounds::new(&[[10], [20], [30]]), Rounds::new(&[[5], [10]]));
        let r = Ratio::of(&a, &b, Figure::Max, 0.95).unwrap();
        assert_eq!((r.ratio, r.rounds), (2.0, 2));
        assert_eq!(Ratio::of(&b, &a, Figure::Max, 0.95).unwrap().ratio, 0.5);
        // No sample of the second missed: there is no quotient.
        assert_eq!(Ratio::of(&a, &b, Figure::Misses(15), 0.95), None);
        assert_eq!(Ratio::of(&b, &a, Figure::Misses(5), 0.95).unwrap().ratio, 0.5);
    }
}
