//! What samples say: exact order statistics, no model of how they are distributed.

use crate::samples::Sample;

/// A part of the samples, as a fraction, so that ranks are whole-number arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Percentile {
    of: u64,
    out_of: u64,
}

impl Percentile {
    pub const P50: Percentile = Percentile { of: 1, out_of: 2 };
    pub const P90: Percentile = Percentile { of: 9, out_of: 10 };
    pub const P99: Percentile = Percentile { of: 99, out_of: 100 };
    pub const P999: Percentile = Percentile { of: 999, out_of: 1000 };

    /// So many samples that one can be expected above it; with fewer the percentile would only be another name for the
    /// largest.
    pub fn needs(self) -> u64 {
        if self == Percentile::P50 { 1 } else { self.out_of / (self.out_of - self.of) }
    }

    /// The nearest rank: the least sample that at least this part of all samples does not exceed. `None` with fewer
    /// samples than [`Percentile::needs`].
    pub fn of(self, sorted: &[u64]) -> Option<u64> {
        sorted.get(self.rank(sorted.len() as u64)? as usize - 1).copied()
    }

    /// Which of `count` samples, the least of them the first, it is. `None` as [`Percentile::of`].
    pub fn rank(self, count: u64) -> Option<u64> {
        (count >= self.needs())
            .then(|| (u128::from(count) * u128::from(self.of)).div_ceil(u128::from(self.out_of)) as u64)
    }
}

/// Two bounds, both included.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Interval<T> {
    pub low: T,
    pub high: T,
}

impl<T: PartialOrd> Interval<T> {
    /// Whether the two have no value in common: then the medians differ, at 95 % for each.
    pub fn apart(&self, other: &Interval<T>) -> bool {
        self.high < other.low || other.high < self.low
    }
}

/// Of one quantity of one cell, in its own unit.
#[derive(Clone, Debug, PartialEq)]
pub struct Summary {
    pub count: u64,
    pub min: u64,
    pub p50: u64,
    pub p90: Option<u64>,
    pub p99: Option<u64>,
    pub p999: Option<u64>,
    pub max: u64,
    pub mean: f64,
    /// Holds the median with at least 95 % confidence, whatever the distribution, as far as samples do not depend on
    /// another. `None` with fewer than six samples.
    pub median: Option<Interval<u64>>,
}

impl Summary {
    /// Sorts `values`. `None` where there are none.
    pub fn of(values: &mut [u64]) -> Option<Summary> {
        values.sort_unstable();
        let sorted = &*values;
        let sum: u128 = sorted.iter().map(|v| u128::from(*v)).sum();
        Some(Summary {
            count: sorted.len() as u64,
            min: *sorted.first()?,
            p50: Percentile::P50.of(sorted)?,
            p90: Percentile::P90.of(sorted),
            p99: Percentile::P99.of(sorted),
            p999: Percentile::P999.of(sorted),
            max: *sorted.last()?,
            mean: sum as f64 / sorted.len() as f64,
            median: median_interval(sorted),
        })
    }
}

/// The two order statistics between which the median lies with at least 95 % confidence.
pub fn median_interval<T: Copy>(sorted: &[T]) -> Option<Interval<T>> {
    let k = median_rank(sorted.len())?;
    Some(Interval { low: sorted[k - 1], high: sorted[sorted.len() - k] })
}

/// The largest k for which the k-th smallest and the k-th largest of `n` samples enclose the median with 95 %.
///
/// How many samples lie below the median is binomial(n, 1/2); the interval misses it where fewer than k lie on one side.
fn median_rank(n: usize) -> Option<usize> {
    if n > 1000 {
        // The normal approximation, without the correction for continuity: never narrower than the exact interval.
        return Some(((n as f64 - 1.96 * (n as f64).sqrt()) / 2.0).floor() as usize);
    }
    let mut probability = 0.5f64.powi(n as i32);
    let (mut below, mut k) = (0.0, 0);
    loop {
        below += probability;
        if below > 0.025 {
            return (k > 0).then_some(k);
        }
        probability *= (n - k) as f64 / (k + 1) as f64;
        k += 1;
    }
}

/// How many times one cell takes what another takes, from rounds in which both took their turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The median over the rounds of the quotient of the two medians of that round.
    pub median: f64,
    /// With at least 95 % confidence, over the rounds; `None` with fewer than six rounds.
    pub interval: Option<Interval<f64>>,
    pub rounds: u64,
}

impl Ratio {
    /// `these` over `those`, paired by round. `None` where no round has both.
    pub fn of(these: &[Option<u64>], those: &[Option<u64>]) -> Option<Ratio> {
        let quotient = |(a, b): (&Option<u64>, &Option<u64>)| Some((*a)? as f64 / b.filter(|b| *b > 0)? as f64);
        let mut all: Vec<f64> = these.iter().zip(those).filter_map(quotient).collect();
        all.sort_unstable_by(f64::total_cmp);
        let n = all.len();
        let median = match n {
            0 => return None,
            n if n % 2 == 1 => all[n / 2],
            n => (all[n / 2 - 1] + all[n / 2]) / 2.0,
        };
        Some(Ratio { median, interval: median_interval(&all), rounds: n as u64 })
    }

    /// Whether the two differ for certain enough: one is not in the interval. `None` with too few rounds to say.
    pub fn differs(&self) -> Option<bool> {
        self.interval.map(|i| i.low > 1.0 || i.high < 1.0)
    }
}

/// The median of each round's totals; `None` for a round without samples.
pub fn medians_of_rounds<'a>(rounds: impl Iterator<Item = &'a [Sample]>) -> Vec<Option<u64>> {
    rounds
        .map(|r| {
            let mut totals: Vec<u64> = r.iter().map(|s| s.total_ns).collect();
            totals.sort_unstable();
            Percentile::P50.of(&totals)
        })
        .collect()
}

/// How many of the slowest samples are kept with their time.
pub const WORST: usize = 100;

/// The slowest samples, slowest first; of equal ones the earlier first.
pub fn worst(samples: &[Sample]) -> Vec<Sample> {
    let mut all = samples.to_vec();
    let slowest = |s: &Sample| (std::cmp::Reverse(s.total_ns), s.at_ns);
    if all.len() > WORST {
        all.select_nth_unstable_by_key(WORST, slowest);
        all.truncate(WORST);
    }
    all.sort_unstable_by_key(slowest);
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// By counting instead of sorting: the least value that at least `of / out_of` of all values do not exceed.
    fn naive(values: &[u64], of: u64, out_of: u64) -> u64 {
        let enough = |v: &u64| values.iter().filter(|o| *o <= v).count() as u64 * out_of >= of * values.len() as u64;
        *values.iter().filter(|v| enough(v)).min().unwrap()
    }

    fn values() -> impl Strategy<Value = Vec<u64>> {
        // Few distinct values make ties; the large ones would overflow a careless sum.
        prop_oneof![
            prop::collection::vec(0u64..5, 1..300),
            prop::collection::vec(any::<u64>(), 1..300),
            prop::collection::vec(50u64..100_000, 990..1100),
        ]
    }

    proptest! {
        #[test]
        fn every_figure_is_that_of_a_naive_count(values in values()) {
            let s = Summary::of(&mut values.clone()).unwrap();
            let n = values.len() as u64;
            prop_assert_eq!(s.count, n);
            prop_assert_eq!(s.min, *values.iter().min().unwrap());
            prop_assert_eq!(s.max, *values.iter().max().unwrap());
            prop_assert_eq!(s.p50, naive(&values, 1, 2));
            prop_assert_eq!(s.p90, (n >= 10).then(|| naive(&values, 9, 10)));
            prop_assert_eq!(s.p99, (n >= 100).then(|| naive(&values, 99, 100)));
            prop_assert_eq!(s.p999, (n >= 1000).then(|| naive(&values, 999, 1000)));
            let mean = values.iter().map(|v| *v as f64).sum::<f64>() / n as f64;
            prop_assert!((s.mean - mean).abs() <= mean * 1e-9);
            prop_assert_eq!(s.median.is_some(), n >= 6);
            if let Some(i) = s.median {
                prop_assert!(i.low <= s.p50 && s.p50 <= i.high);
            }
        }

        #[test]
        fn the_worst_are_those_that_a_whole_sort_finds(totals in prop::collection::vec(0u64..50, 0..400)) {
            let samples: Vec<Sample> = totals
                .iter()
                .enumerate()
                .map(|(i, t)| Sample { at_ns: i as u64, submit_ns: 0, total_ns: *t })
                .collect();
            let mut all = samples.clone();
            all.sort_by_key(|s| std::cmp::Reverse(s.total_ns));
            all.truncate(WORST);
            prop_assert_eq!(worst(&samples), all);
        }
    }

    #[test]
    fn the_interval_has_the_ranks_of_published_tables() {
        // Ranks of the 95 % sign-test interval of the median (Conover, Practical Nonparametric Statistics; also Hahn and
        // Meeker): n, k.
        let table =
            [(5, None), (6, Some(1)), (9, Some(2)), (10, Some(2)), (20, Some(6)), (25, Some(8)), (100, Some(40))];
        for (n, k) in table {
            assert_eq!(median_rank(n), k, "{n}");
        }
    }

    #[test]
    fn the_approximation_is_no_narrower_than_the_exact_interval() {
        for n in [200, 500, 999, 1000] {
            let approximate = ((n as f64 - 1.96 * (n as f64).sqrt()) / 2.0).floor() as usize;
            let exact = median_rank(n).unwrap();
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
            let i = median_interval(&v).unwrap();
            held += u32::from(i.low <= 500_000 * 500_000 && 500_000 * 500_000 <= i.high);
        }
        // 95 % at least; five standard deviations of the binomial below it.
        assert!(held >= 3800 - 69, "{held} of {tries}");
    }

    #[test]
    fn a_ratio_is_paired_by_round() {
        // The machine doubles its speed half way: the quotient of each round does not change.
        let a: Vec<_> = (0..10).map(|i| Some(if i < 5 { 100 } else { 50 })).collect();
        let mut b: Vec<_> = (0..10).map(|i| Some(if i < 5 { 200 } else { 100 })).collect();
        let r = Ratio::of(&a, &b).unwrap();
        assert_eq!((r.median, r.rounds, r.differs()), (0.5, 10, Some(true)));
        b[3] = None;
        b[4] = Some(0);
        assert_eq!(Ratio::of(&a, &b).unwrap().rounds, 8);
        assert_eq!(Ratio::of(&a, &a).unwrap().differs(), Some(false));
        assert_eq!(Ratio::of(&a[..3], &a[..3]).unwrap().differs(), None);
        assert_eq!(Ratio::of(&a, &[]), None);
    }

    #[test]
    fn intervals_that_touch_are_not_apart() {
        let i = |low, high| Interval { low, high };
        assert!(i(1, 2).apart(&i(3, 4)) && i(3, 4).apart(&i(1, 2)));
        assert!(!i(1, 3).apart(&i(3, 4)) && !i(1, 9).apart(&i(3, 4)));
    }
}
