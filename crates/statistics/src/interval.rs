//! Intervals, and the one of a median that order statistics give.

use crate::distribution::normal_quantile;
use serde::{Deserialize, Serialize};

/// Of every interval that is printed.
pub const CONFIDENCE: f64 = 0.95;

/// Two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval<T> {
    pub low: T,
    pub high: T,
}

impl<T: PartialOrd> Interval<T> {
    pub fn holds(&self, value: T) -> bool {
        self.low <= value && value <= self.high
    }

    /// Whether the two have no value in common.
    pub fn apart(&self, other: &Interval<T>) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// The middle one of `values`, or the mean of the two in the middle. Sorts them. `None` where there are none.
pub fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[n / 2]),
        n => Some((values[n / 2 - 1] + values[n / 2]) / 2.0),
    }
}

/// The two order statistics between which the median lies with at least this confidence, whatever the distribution, as long
/// as the values are independent. `None` with too few of them: for 95 % with fewer than six.
pub fn median_interval<T: Copy>(sorted: &[T], confidence: f64) -> Option<Interval<T>> {
    let k = median_rank(sorted.len(), confidence)?;
    Some(Interval { low: sorted[k - 1], high: sorted[sorted.len() - k] })
}

/// The largest k for which the k-th smallest and the k-th largest of `n` samples enclose the median.
///
/// How many samples lie below the median is binomial(n, 1/2); the interval misses it where fewer than k lie on one side.
fn median_rank(n: usize, confidence: f64) -> Option<usize> {
    let tail = (1.0 - confidence) / 2.0;
    if n > 1000 {
        // The normal approximation, without the correction for continuity: never narrower than the exact interval.
        let rank = (n as f64 + normal_quantile(tail) * (n as f64).sqrt()) / 2.0;
        return (rank >= 1.0).then_some(rank as usize);
    }
    let mut probability = 0.5f64.powi(n as i32);
    let (mut below, mut k) = (0.0, 0);
    loop {
        below += probability;
        if below > tail {
            return (k > 0).then_some(k);
        }
        probability *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interval_has_the_ranks_of_published_tables() {
        // Ranks of the 95 % sign-test interval of the median (Conover, Practical Nonparametric Statistics; also Hahn and
        // Meeker): n, k.
        let table =
            [(5, None), (6, Some(1)), (9, Some(2)), (10, Some(2)), (20, Some(6)), (25, Some(8)), (100, Some(40))];
        for (n, k) in table {
            assert_eq!(median_rank(n, 0.95), k, "{n}");
        }
    }

    #[test]
    fn the_approximation_is_no_narrower_than_the_exact_interval() {
        for n in [200, 500, 999, 1000] {
            let approximate = ((n as f64 - 1.96 * (n as f64).sqrt()) / 2.0).floor() as usize;
            let exact = median_rank(n, 0.95).unwrap();
            assert!(approximate <= exact && exact - approximate <= 1, "{n}: {approximate} {exact}");
        }
    }

    #[test]
    fn the_interval_holds_the_median_as_often_as_it_says() {
        let mut random = fastrand::Rng::with_seed(7);
        let (mut held, tries) = (0, 4000);
        for _ in 0..tries {
            let mut v: Vec<u64> = (0..51).map(|_| random.u64(0..1_000_000).pow(2)).collect();
            v.sort_unstable();
            held += u32::from(median_interval(&v, 0.95).unwrap().holds(500_000 * 500_000));
        }
        // 95 % at least; five standard deviations of the binomial below it.
        assert!(held >= 3800 - 69, "{held} of {tries}");
    }

    #[test]
    fn intervals_that_touch_are_not_apart() {
        let i = |low, high| Interval { low, high };
        assert!(i(1, 2).apart(&i(3, 4)) && i(3, 4).apart(&i(1, 2)));
        assert!(!i(1, 3).apart(&i(3, 4)) && !i(1, 9).apart(&i(3, 4)));
    }

    #[test]
    fn the_median_of_an_even_number_lies_between_two() {
        assert_eq!(median(&mut [4.0, 1.0, 3.0]), Some(3.0));
        assert_eq!(median(&mut [4.0, 1.0, 3.0, 2.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }
}
