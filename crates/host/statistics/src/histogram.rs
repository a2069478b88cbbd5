//! A histogram of fixed size for any number of samples.

use crate::{Percentile, Summary};
use hdrhistogram::Histogram as Hdr;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Samples in buckets that are at most a thousandth of their value wide. Count, mean, minimum and maximum are exact.
#[derive(Clone, Debug)]
pub struct Histogram {
    buckets: Hdr<u64>,
    exact: Exact,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Exact {
    count: u64,
    /// Number of samples above [`Histogram::LARGEST`]. They are in the last bucket.
    overflow: u64,
    sum: u128,
    min: u64,
    max: u64,
}

/// The stored form: a value of each bucket that holds samples, and how many.
#[derive(Serialize, Deserialize)]
struct Kept {
    overflow: u64,
    /// Limited to 2^64 ns; only the mean uses it.
    sum: u64,
    min: u64,
    max: u64,
    buckets: Vec<(u64, u64)>,
}

impl Serialize for Histogram {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let exact = &self.exact;
        let buckets = self.buckets.iter_recorded();
        let kept = Kept {
            overflow: exact.overflow,
            sum: u64::try_from(exact.sum).unwrap_or(u64::MAX),
            min: exact.min,
            max: exact.max,
            buckets: buckets.map(|b| (b.value_iterated_to(), b.count_since_last_iteration())).collect(),
        };
        kept.serialize(to)
    }
}

impl<'de> Deserialize<'de> for Histogram {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Histogram, D::Error> {
        let Kept { overflow, sum, min, max, buckets } = Kept::deserialize(from)?;
        let mut histogram = Histogram::new();
        let mut count = 0u64;
        for (value, samples) in buckets {
            let wrong = || D::Error::custom(format!("a histogram with {samples} samples at {value}"));
            count = count.checked_add(samples).ok_or_else(wrong)?;
            if value > histogram.buckets.highest_equivalent(Histogram::LARGEST) {
                return Err(wrong());
            }
            histogram.buckets.saturating_record_n(value, samples);
        }
        if overflow > count || (count > 0 && min > max) {
            return Err(D::Error::custom(
                "a histogram whose least sample is above its largest, or with more overflows than samples",
            ));
        }
        histogram.exact = Exact { count, overflow, sum: sum.into(), min, max };
        Ok(histogram)
    }
}

/// Two histograms are equal if they hold the same samples, at the resolution of the buckets.
impl PartialEq for Histogram {
    fn eq(&self, other: &Histogram) -> bool {
        self.exact == other.exact && self.buckets().eq(other.buckets())
    }
}

/// The samples from `low` to `high`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bucket {
    pub low: u64,
    pub high: u64,
    pub count: u64,
}

impl Histogram {
    /// A percentile is at most this part of its value above the exact one, and never below it.
    ///
    /// A bucket of an HDR histogram with three significant digits is 2^k wide, and begins at 1024 * 2^k or above it. The bucket's last value is
    /// reported: it is less than 2^k too much, of at least 1024 * 2^k.
    pub const ERROR: f64 = 1.0 / 1024.0;

    /// An hour in nanoseconds. Larger values are counted as overflow.
    pub const LARGEST: u64 = 3_600_000_000_000;

    const DIGITS: u8 = 3;

    pub fn new() -> Histogram {
        #[expect(clippy::expect_used, reason = "the bounds are constants, and a test makes one")]
        let buckets = Hdr::new_with_max(Histogram::LARGEST, Histogram::DIGITS).expect("constant bounds are valid");
        Histogram { buckets, exact: Exact { min: u64::MAX, ..Exact::default() } }
    }

    /// Allocates nothing.
    #[inline]
    pub fn record(&mut self, value: u64) {
        self.record_n(value, 1);
    }

    /// Adds so many samples of one value; zero samples have no effect. Allocates nothing.
    #[inline]
    pub fn record_n(&mut self, value: u64, samples: u64) {
        if samples == 0 {
            return;
        }
        self.buckets.saturating_record_n(value.min(Histogram::LARGEST), samples);
        let exact = &mut self.exact;
        exact.count += samples;
        exact.overflow += if value > Histogram::LARGEST { samples } else { 0 };
        exact.sum += u128::from(value) * u128::from(samples);
        exact.min = exact.min.min(value);
        exact.max = exact.max.max(value);
    }

    /// Adds the samples of another one.
    pub fn merge(&mut self, other: &Histogram) {
        for bucket in other.buckets.iter_recorded() {
            self.buckets.saturating_record_n(bucket.value_iterated_to(), bucket.count_since_last_iteration());
        }
        let (exact, others) = (&mut self.exact, &other.exact);
        exact.count += others.count;
        exact.overflow += others.overflow;
        exact.sum += others.sum;
        exact.min = exact.min.min(others.min);
        exact.max = exact.max.max(others.max);
    }

    pub fn count(&self) -> u64 {
        self.exact.count
    }

    /// How many samples were above [`Histogram::LARGEST`].
    pub fn overflow(&self) -> u64 {
        self.exact.overflow
    }

    /// `None` if fewer than ten samples are beyond it. If it is among the overflows, the maximum is returned.
    pub fn percentile(&self, percentile: Percentile) -> Option<u64> {
        let rank = percentile.rank(self.exact.count)?;
        if rank > self.exact.count - self.exact.overflow {
            return Some(self.exact.max);
        }
        let mut so_far = 0;
        let bucket = self.buckets.iter_recorded().find(|b| {
            so_far += b.count_since_last_iteration();
            so_far >= rank
        })?;
        Some(self.buckets.highest_equivalent(bucket.value_iterated_to()).clamp(self.exact.min, self.exact.max))
    }

    /// `None` without samples. Percentiles are accurate to [`Histogram::ERROR`].
    pub fn summary(&self) -> Option<Summary> {
        Some(Summary {
            count: self.exact.count,
            min: self.exact.min,
            mean: self.exact.sum as f64 / self.exact.count as f64,
            p50: self.percentile(Percentile::P50)?,
            p90: self.percentile(Percentile::P90),
            p99: self.percentile(Percentile::P99),
            p999: self.percentile(Percentile::P999),
            p9999: self.percentile(Percentile::P9999),
            max: self.exact.max,
        })
    }

    /// Buckets with samples, in ascending order.
    pub fn buckets(&self) -> impl Iterator<Item = Bucket> {
        self.buckets.iter_recorded().map(|b| Bucket {
            low: self.buckets.lowest_equivalent(b.value_iterated_to()),
            high: self.buckets.highest_equivalent(b.value_iterated_to()),
            count: b.count_since_last_iteration(),
        })
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

impl Extend<u64> for Histogram {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, values: I) {
        values.into_iter().for_each(|v| self.record(v));
    }
}

impl FromIterator<u64> for Histogram {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Histogram {
        let mut histogram = Histogram::new();
        histogram.extend(values);
        histogram
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: [Percentile; 5] =
        [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];

    #[test]
    fn several_samples_of_one_value_are_that_many_samples() {
        let (mut at_once, mut one_by_one) = (Histogram::new(), Histogram::new());
        for (value, samples) in [(700, 3), (12, 1), (5, 0), (u64::MAX, 2), (Histogram::LARGEST, 4)] {
            at_once.record_n(value, samples);
            (0..samples).for_each(|_| one_by_one.record(value));
        }
        assert_eq!(at_once, one_by_one);
        assert_eq!((at_once.count(), at_once.overflow()), (10, 2));
    }

    proptest! {
        #[test]
        fn percentiles_are_within_the_stated_error(
            values in prop::collection::vec((0u32..42, any::<u64>()).prop_map(|(bits, v)| v & ((1 << bits) - 1)), 1..3000),
            cut in any::<prop::sample::Index>(),
        ) {
            let whole: Histogram = values.iter().copied().collect();
            let (one, other) = values.split_at(cut.index(values.len()));
            let mut merged: Histogram = one.iter().copied().collect();
            merged.merge(&other.iter().copied().collect());
            let exact = Summary::of(&mut values.clone()).unwrap();
            prop_assert_eq!(whole.summary(), merged.summary());
            prop_assert!(whole.buckets().eq(merged.buckets()));
            let near = whole.summary().unwrap();
            prop_assert_eq!((near.count, near.min, near.max), (exact.count, exact.min, exact.max));
            let text = serde_json::to_string(&merged).unwrap();
            prop_assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap(), whole.clone());
            let mut sorted = values;
            sorted.sort_unstable();
            for p in ALL {
                match (p.of(&sorted), whole.percentile(p)) {
                    (None, None) => {}
                    (Some(exact), Some(near)) => {
                        prop_assert!(near >= exact && (near - exact) as f64 <= exact as f64 * Histogram::ERROR)
                    }
                    other => prop_assert!(false, "{:?}", other),
                }
            }
        }
    }

    #[test]
    fn too_large_samples_are_counted_and_the_maximum_stays_exact() {
        let mut histogram: Histogram = (0..990).collect();
        histogram.extend([u64::MAX; 10]);
        assert_eq!((histogram.overflow(), histogram.count()), (10, 1000));
        assert_eq!(histogram.percentile(Percentile::P99), Some(989));
        histogram.extend([u64::MAX; 10]);
        assert_eq!(histogram.percentile(Percentile::P99), Some(u64::MAX));
        let other = histogram.clone();
        histogram.merge(&other);
        assert_eq!((histogram.overflow(), histogram.summary().unwrap().max), (40, u64::MAX));
    }

    #[test]
    fn buckets_hold_all_samples() {
        let histogram: Histogram = (0..100_000).map(|v| v * 37).collect();
        assert_eq!(histogram.buckets().map(|b| b.count).sum::<u64>(), 100_000);
        assert!(histogram.buckets().all(|b| (b.high - b.low) as f64 <= b.low as f64 * Histogram::ERROR));
        assert_eq!(Histogram::new().summary(), None);
    }

    #[test]
    fn invalid_stored_histograms_are_refused() {
        let kept = |buckets: &str, overflow: u64| {
            let text = format!(r#"{{"overflow":{overflow},"sum":9,"min":4,"max":5,"buckets":{buckets}}}"#);
            serde_json::from_str::<Histogram>(&text).map(|histogram| histogram.count()).map_err(|e| e.to_string())
        };
        assert_eq!(kept("[[4,1],[5,2]]", 1), Ok(3));
        assert!(kept("[[4,1]]", 2).unwrap_err().contains("more overflows"));
        assert!(kept("[[18446744073709551615,1]]", 0).unwrap_err().contains("1 samples at"));
        assert!(kept("[[4,18446744073709551615],[5,1]]", 0).unwrap_err().contains("samples at 5"));
        let large: Histogram = [u64::MAX; 3].into_iter().collect();
        let text = serde_json::to_string(&large).unwrap();
        assert_eq!(serde_json::from_str::<Histogram>(&text).unwrap().summary().unwrap().max, u64::MAX);
    }
}
