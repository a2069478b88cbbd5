//! How many times one cell takes what another takes, from rounds in which both took their turn.

use crate::interval::{median, median_interval};
use crate::rounds::{Draws, RESAMPLES, Rounds};
use crate::{Figure, Interval};
use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Ratio {
    pub ratio: f64,
    /// `None` with fewer than six rounds, and of extremes.
    pub interval: Option<Interval<f64>>,
    /// In so many rounds both were measured.
    pub rounds: u64,
}

impl Ratio {
    /// `these` over `those`. Rounds of the same number are one pair.
    ///
    /// The median and the mean are those of each round, and the ratio is the median of the rounds' quotients: a host that is
    /// slow in a round is slow for both. A tail needs the samples of many rounds: its ratio is that of all samples of the
    /// rounds that both have, and its interval comes from draws of the same rounds for both.
    pub fn of(these: &Rounds, those: &Rounds, figure: Figure, seed: u64, confidence: f64) -> Option<Ratio> {
        if figure.is_tail() {
            return Ratio::pooled(these, those, figure, seed, confidence);
        }
        Ratio::paired(&these.each(figure), &those.each(figure), confidence)
            .or_else(|| Ratio::pooled(these, those, figure, seed, confidence))
    }

    /// The median of the quotients of each round's figures. `None` where no round has both.
    pub fn paired(these: &[Option<f64>], those: &[Option<f64>], confidence: f64) -> Option<Ratio> {
        let quotient = |(a, b): (&Option<f64>, &Option<f64>)| Some((*a)? / b.filter(|b| *b > 0.0)?);
        let mut all: Vec<f64> = these.iter().zip(those).filter_map(quotient).collect();
        let ratio = median(&mut all)?;
        Some(Ratio { ratio, interval: median_interval(&all, confidence), rounds: all.len() as u64 })
    }

    /// The quotient of the figures of all samples.
    fn pooled(these: &Rounds, those: &Rounds, figure: Figure, seed: u64, confidence: f64) -> Option<Ratio> {
        let numbers = these.len().min(those.len());
        let (all, others) = (these.sampled(), those.sampled());
        let both: Vec<usize> = all.iter().copied().filter(|r| others.binary_search(r).is_ok()).collect();
        let quotient = |times: &[u32]| {
            // Rounds without a partner are never drawn.
            let of = |rounds: &Rounds| {
                let mut padded = times.to_vec();
                padded.resize(rounds.len(), 0);
                rounds.drawn(figure, &padded)
            };
            Some(of(these)? / of(those).filter(|b| *b > 0.0)?)
        };
        let mut once = vec![0; numbers];
        both.iter().for_each(|r| once[*r] = 1);
        let enough = |rounds: &Rounds| match figure {
            Figure::Percentile(p) => both.iter().map(|r| rounds.samples(*r)).sum::<u64>() >= p.needs(),
            _ => true,
        };
        if !enough(these) || !enough(those) {
            return None;
        }
        let ratio = quotient(&once)?;
        let rounds = both.len() as u64;
        let draws = Draws::new(numbers, both, RESAMPLES, seed).filter(|_| figure.has_interval());
        Some(Ratio { ratio, interval: draws.and_then(|d| d.interval(confidence, quotient)), rounds })
    }

    /// Whether the two differ: 1 is not in the interval. `None` with too few rounds to say.
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|i| !i.holds(1.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_paired_by_round() {
        // The machine doubles its speed half way: the quotient of each round does not change.
        let a: Vec<_> = (0..10).map(|i| Some(if i < 5 { 100.0 } else { 50.0 })).collect();
        let mut b: Vec<_> = (0..10).map(|i| Some(if i < 5 { 200.0 } else { 100.0 })).collect();
        let r = Ratio::paired(&a, &b, 0.95).unwrap();
        assert_eq!((r.ratio, r.rounds, r.differs()), (0.5, 10, Some(true)));
        b[3] = None;
        b[4] = Some(0.0);
        assert_eq!(Ratio::paired(&a, &b, 0.95).unwrap().rounds, 8);
        assert_eq!(Ratio::paired(&a, &a, 0.95).unwrap().differs(), Some(false));
        assert_eq!(Ratio::paired(&a[..3], &a[..3], 0.95).unwrap().differs(), None);
        assert_eq!(Ratio::paired(&a, &[], 0.95), None);
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
            let held = (0..60u64).filter(|seed| {
                let (a, b) = (rounds(1.5, 2 * seed, &[0, 19]), rounds(1.0, 2 * seed + 1, &[1]));
                let r = Ratio::of(&a, &b, figure, *seed, 0.95).unwrap();
                let i = r.interval.unwrap();
                // Without pairing, whether a draw has many slow rounds spreads the quotient from a half to twice.
                assert!(r.rounds == 17 && i.high - i.low < 0.2, "{figure}: {r:?}");
                i.holds(1.5)
            });
            // 57 of 60 are expected; three standard deviations of the binomial below it.
            let held = held.count();
            assert!(held >= 52, "{figure}: {held} of 60");
        }
        let (a, b) = (rounds(1.5, 1, &[0, 19]), rounds(1.0, 2, &[1]));
        assert_eq!(Ratio::of(&a, &b, Figure::P9999, 1, 0.95), None);
        assert_eq!(Ratio::of(&a, &b, Figure::Max, 1, 0.95).unwrap().interval, None);
        let few = rounds(1.0, 1, &(5..20).collect::<Vec<_>>());
        let r = Ratio::of(&few, &b, Figure::P99, 1, 0.95).unwrap();
        assert_eq!((r.rounds, r.interval, r.differs()), (4, None, None));
    }

    #[test]
    fn rounds_that_one_has_more_of_are_left_out() {
        let (a, b) = (Rounds::new(&[[10], [20], [30]]), Rounds::new(&[[5], [10]]));
        let r = Ratio::of(&a, &b, Figure::Max, 1, 0.95).unwrap();
        assert_eq!((r.ratio, r.rounds), (2.0, 2));
        assert_eq!(Ratio::of(&b, &a, Figure::Max, 1, 0.95).unwrap().ratio, 0.5);
        // Nothing missed in those: there is no quotient.
        assert_eq!(Ratio::of(&a, &b, Figure::Misses(15), 1, 0.95), None);
        assert_eq!(Ratio::of(&b, &a, Figure::Misses(5), 1, 0.95).unwrap().ratio, 0.5);
    }
}
