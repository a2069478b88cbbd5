//! How many times as long one cell takes as another, from rounds in which both took their turn.

use crate::dependence::{Deviation, Pull, deviation};
use crate::distribution::student_quantile;
use crate::location::location;
use crate::rounds::Rounds;
use crate::{Figure, Interval, Percentile};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub ratio: f64,
    /// `None` with fewer than six rounds, and of extremes.
    pub interval: Option<Interval<f64>>,
    /// Number of rounds in which both were measured.
    pub rounds: u64,
}

impl Ratio {
    /// `these` over `those`. Rounds of the same number are one pair.
    ///
    /// The median, p90 and the mean are computed for each round, and the ratio is the middle of the rounds' quotients: a host that is slow in a
    /// round is slow for both. A tail needs the samples of many rounds. Its ratio uses all samples of the rounds that both have, and an effect on
    /// both in one round cancels.
    pub fn of(these: &Rounds, those: &Rounds, figure: Figure, confidence: f64) -> Option<Ratio> {
        let clock = (these.resolution().powi(2) + those.resolution().powi(2)) / 12.0;
        let paired = || {
            let values = quotients(&these.each(figure), &those.each(figure), |r| these.repeat(r));
            Ratio::middle(&values, confidence, clock)
        };
        if figure.is_tail() { None } else { paired() }
            .or_else(|| Ratio::pooled(these, those, figure, confidence, clock))
    }

    /// The middle of the quotients of each round's figures; `repeat` returns the repeat of a round. `None` if no round has both.
    pub fn paired(
        these: &[Option<f64>],
        those: &[Option<f64>],
        repeat: impl Fn(usize) -> u32,
        confidence: f64,
    ) -> Option<Ratio> {
        Ratio::middle(&quotients(these, those, repeat), confidence, 0.0)
    }

    /// From the logarithms of quotients. `clock` is the variance that the steps of the clock add.
    fn middle(values: &[Pull], confidence: f64, clock: f64) -> Option<Ratio> {
        let (middle, deviation) = location(values)?;
        let interval = deviation.map(|d| around(middle, d, clock, confidence));
        Some(Ratio { ratio: middle.exp(), interval, rounds: values.len() as u64 })
    }

    /// The quotient of the figures of all samples.
    fn pooled(these: &Rounds, those: &Rounds, figure: Figure, confidence: f64, clock: f64) -> Option<Ratio> {
        let others = those.sampled();
        let both: Vec<usize> = these.sampled().into_iter().filter(|r| others.binary_search(r).is_ok()).collect();
        let (these, those) = (these.only(&both), those.only(&both));
        let ratio = these.figure(figure)? / those.figure(figure).filter(|b| *b > 0.0)?;
        let interval = moved(&these, &those, figure).filter(|_| ratio > 0.0).and_then(|pulls| deviation(&pulls));
        let interval = interval.map(|d| around(ratio.ln(), d, clock, confidence));
        Some(Ratio { ratio, interval, rounds: both.len() as u64 })
    }

    /// Whether the two differ: 1 is not in the interval. `None` if there are too few rounds.
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|i| !i.holds(1.0))
    }
}

/// The logarithms, each with the repeat of its round.
fn quotients(these: &[Option<f64>], those: &[Option<f64>], repeat: impl Fn(usize) -> u32) -> Vec<Pull> {
    let quotient = |(r, (a, b)): (usize, (&Option<f64>, &Option<f64>))| {
        let quotient = a.filter(|a| *a > 0.0)? / b.filter(|b| *b > 0.0)?;
        Some((repeat(r), quotient.ln()))
    };
    these.iter().zip(those).enumerate().filter_map(quotient).collect()
}

fn around(log: f64, of: Deviation, clock: f64, confidence: f64) -> Interval<f64> {
    let reach = student_quantile((1.0 + confidence) / 2.0, of.freedom) * (of.deviation.powi(2) + clock).sqrt();
    Interval { low: (log - reach).exp(), high: (log + reach).exp() }
}

/// By how much each round moves the logarithm of the quotient of a figure.
fn moved(these: &Rounds, those: &Rounds, figure: Figure) -> Option<Vec<Pull>> {
    let (a, b) = (these.estimate(figure).ok()?, those.estimate(figure).ok()?);
    let ((part_a, a), (part_b, b)) = (these.pulls(figure, a.value), those.pulls(figure, b.value));
    let (of_a, of_b) = match figure {
        // A larger part at or below a value means a smaller percentile. The same steepness for both, so that a round that is slow for both cancels.
        Figure::Percentile(p) => {
            let both = (steepness(these, p, &a) + steepness(those, p, &b)) / 2.0;
            (-both, -both)
        }
        _ => (1.0 / part_a, 1.0 / part_b),
    };
    Some(a.iter().zip(&b).map(|((r, a), (_, b))| (*r, of_a * a - of_b * b)).collect())
}

/// How much a percentile's logarithm grows with the part of the samples, around it.
fn steepness(rounds: &Rounds, percentile: Percentile, pulls: &[Pull]) -> f64 {
    let Some(d) = deviation(pulls).map(|d| d.deviation).filter(|d| *d > 0.0) else { return 0.0 };
    let part = percentile.fraction();
    // Not beyond the last sample, as far upwards as downwards.
    let to = d.min((1.0 - part) / 2.0);
    let (low, high) = (rounds.at_part(part - to), rounds.at_part(part + to));
    if low > 0.0 { (high / low).ln() / (2.0 * to) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_paired_by_round() {
        // The machine doubles its speed half way: the quotient of each round does not change.
        let a: Vec<_> = (0..10).map(|i| Some(if i < 5 { 100.0 } else { 50.0 })).collect();
        let mut b: Vec<_> = (0..10).map(|i| Some(if i < 5 { 200.0 } else { 100.0 })).collect();
        let r = Ratio::paired(&a, &b, |_| 0, 0.95).unwrap();
        assert_eq!((r.ratio, r.rounds, r.differs()), (0.5, 10, Some(true)));
        b[3] = None;
        b[4] = Some(0.0);
        assert_eq!(Ratio::paired(&a, &b, |_| 0, 0.95).unwrap().rounds, 8);
        assert_eq!(Ratio::paired(&a, &a, |_| 0, 0.95).unwrap().differs(), Some(false));
        assert_eq!(Ratio::paired(&a[..3], &a[..3], |_| 0, 0.95).unwrap().differs(), None);
        assert_eq!(Ratio::paired(&a, &[], |_| 0, 0.95), None);
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
        Rounds::new(&all)
    }

    #[test]
    fn a_tail_is_that_of_the_same_rounds_of_both() {
        for figure in [Figure::P99, Figure::P50, Figure::Mean] {
            let mut widths = 0.0;
            let held = (0..60u64).filter(|seed| {
                let (a, b) = (rounds(1.5, 2 * seed, &[0, 19]), rounds(1.0, 2 * seed + 1, &[1]));
                let r = Ratio::of(&a, &b, figure, 0.95).unwrap();
                let i = r.interval.unwrap();
                assert_eq!(r.rounds, 17, "{figure}: {r:?}");
                widths += (i.high - i.low) / 60.0;
                i.holds(1.5)
            });
            // 57 of 60 are expected; three standard deviations of the binomial below it.
            let held = held.count();
            assert!(held >= 52, "{figure}: {held} of 60");
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
