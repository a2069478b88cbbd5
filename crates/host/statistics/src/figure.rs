//! One number that summarizes many samples.

use crate::Percentile;
use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Figure {
    Min,
    Mean,
    Percentile(Percentile),
    Max,
    /// The part of the samples that are above so many nanoseconds.
    Misses(u64),
}

impl Figure {
    pub const P50: Figure = Figure::Percentile(Percentile::P50);
    pub const P90: Figure = Figure::Percentile(Percentile::P90);
    pub const P99: Figure = Figure::Percentile(Percentile::P99);
    pub const P999: Figure = Figure::Percentile(Percentile::P999);
    pub const P9999: Figure = Figure::Percentile(Percentile::P9999);

    /// `None` without samples, or with too few for a percentile.
    pub fn of(self, sorted: &[u64]) -> Option<f64> {
        let n = sorted.len();
        match self {
            Figure::Min => sorted.first().map(|v| *v as f64),
            Figure::Max => sorted.last().map(|v| *v as f64),
            Figure::Percentile(p) => p.of(sorted).map(|v| v as f64),
            Figure::Mean => (n > 0).then(|| sorted.iter().map(|v| u128::from(*v)).sum::<u128>() as f64 / n as f64),
            Figure::Misses(above) => (n > 0).then(|| (n - sorted.partition_point(|v| *v <= above)) as f64 / n as f64),
        }
    }

    /// Whether rounds show how far it can be off. For extremes they do not: no round has a value beyond the observed ones, so the interval would
    /// end at the observed extreme.
    pub fn has_interval(self) -> bool {
        !matches!(self, Figure::Min | Figure::Max)
    }

    /// Whether few samples of a round decide it, so that the samples of many rounds must be combined.
    pub fn is_tail(self) -> bool {
        match self {
            Figure::Percentile(p) => p > Percentile::P90,
            Figure::Min | Figure::Max | Figure::Misses(_) => true,
            Figure::Mean => false,
        }
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Figure::Min => f.write_str("min"),
            Figure::Mean => f.write_str("mean"),
            Figure::Percentile(p) => p.fmt(f),
            Figure::Max => f.write_str("max"),
            Figure::Misses(_) => f.write_str("misses"),
        }
    }
}
