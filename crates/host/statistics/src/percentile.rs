//! Percentiles by the nearest rank: always one of the samples, never a value between two of them.

use std::fmt;

/// Minimum number of samples beyond a percentile. With fewer it depends on a handful of the largest, and shows little more than the maximum does.
pub const BEYOND: u64 = 10;

/// A part of the samples, as a fraction, so that ranks are whole-number arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Percentile {
    of: u64,
    out_of: u64,
}

impl Percentile {
    pub const P50: Percentile = Percentile { of: 1, out_of: 2 };
    pub const P90: Percentile = Percentile { of: 9, out_of: 10 };
    pub const P99: Percentile = Percentile { of: 99, out_of: 100 };
    pub const P999: Percentile = Percentile { of: 999, out_of: 1000 };
    pub const P9999: Percentile = Percentile { of: 9999, out_of: 10_000 };

    /// Minimum number of samples: one for the median, which is printed with their number; for all others enough to have [`BEYOND`] beyond it.
    pub fn needs(self) -> u64 {
        if self == Percentile::P50 { 1 } else { BEYOND * self.out_of / (self.out_of - self.of) }
    }

    /// The nearest rank: the smallest sample that at least this part of all samples does not exceed. `None` with fewer samples than
    /// [`Percentile::needs`].
    pub fn of(self, sorted: &[u64]) -> Option<u64> {
        sorted.get(self.rank(sorted.len() as u64)? as usize - 1).copied()
    }

    /// Its rank among `count` samples in ascending order. `None` as [`Percentile::of`].
    pub fn rank(self, count: u64) -> Option<u64> {
        (count >= self.needs()).then(|| self.nearest(count))
    }

    /// The rank for any number of samples; 0 for none.
    pub fn nearest(self, count: u64) -> u64 {
        (u128::from(count) * u128::from(self.of)).div_ceil(u128::from(self.out_of)) as u64
    }

    pub fn fraction(self) -> f64 {
        self.of as f64 / self.out_of as f64
    }
}

/// `p99.9`
impl fmt::Display for Percentile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hundredths = self.of * 10_000 / self.out_of;
        let (whole, rest) = (hundredths / 100, hundredths % 100);
        match rest {
            0 => write!(f, "p{whole}"),
            _ if rest % 10 == 0 => write!(f, "p{whole}.{}", rest / 10),
            _ => write!(f, "p{whole}.{rest:02}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_has_ten_samples_beyond_it() {
        for p in [Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999] {
            assert_eq!(p.needs() - p.rank(p.needs()).unwrap(), BEYOND, "{p}");
            assert_eq!(p.rank(p.needs() - 1), None, "{p}");
        }
        assert_eq!([Percentile::P99.needs(), Percentile::P9999.needs()], [1_000, 100_000]);
    }

    #[test]
    fn ranks_do_not_overflow() {
        assert_eq!(Percentile::P9999.rank(u64::MAX), Some(18_444_899_399_302_180_660));
        assert_eq!(Percentile::P50.rank(0), None);
    }

    #[test]
    fn they_are_named_as_people_write_them() {
        let all = [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999, Percentile::P9999];
        assert_eq!(all.map(|p| p.to_string()), ["p50", "p90", "p99", "p99.9", "p99.99"]);
    }
}
