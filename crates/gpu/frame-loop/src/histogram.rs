//! Counts by logarithm in shared memory: one thread adds, any thread reads at any time.
//!
//! A bucket is at most 1/32 of its values wide, and a percentile is the largest value of its bucket: at most 1/32 too large, never too small. (The
//! histograms of `statistics` and `decode` are for one thread.)

use crate::source::{add, read};
use std::sync::atomic::{AtomicU64, Ordering};

/// Steps for each power of two, and their logarithm.
const STEPS: usize = 32;
const LOG: u32 = 5;
/// Larger values are counted in the last bucket, and only the maximum shows them. (This is 18 minutes in nanoseconds.)
const LARGEST: u64 = (1 << 40) - 1;
pub const BUCKETS: usize = (40 - LOG as usize) * STEPS + STEPS;

/// Its layout in the memory.
#[repr(C, align(128))]
pub struct Buckets {
    pub count: AtomicU64,
    pub sum: AtomicU64,
    pub min: AtomicU64,
    pub max: AtomicU64,
    /// Below 32: one for each value. From there on 32 for each power of two.
    pub buckets: [AtomicU64; BUCKETS],
}

/// The contents of a histogram at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Distribution {
    pub count: u64,
    pub sum: u64,
    pub min: u64,
    pub max: u64,
    pub buckets: Vec<u64>,
}

fn bucket(value: u64) -> usize {
    let value = value.min(LARGEST);
    match value.checked_ilog2() {
        Some(power) if power >= LOG => (power - LOG + 1) as usize * STEPS + (value >> (power - LOG)) as usize % STEPS,
        _ => value as usize,
    }
}

/// The largest value of a bucket.
fn largest(bucket: usize) -> u64 {
    match (bucket / STEPS, bucket % STEPS) {
        (0, value) => value as u64,
        (power, step) => (((STEPS + step + 1) as u64) << (power - 1)) - 1,
    }
}

impl Buckets {
    /// Called only by the one thread that adds: plain loads and stores.
    pub(crate) fn add(&self, value: u64) {
        let first = self.count.load(Ordering::Relaxed) == 0;
        if first || value < self.min.load(Ordering::Relaxed) {
            self.min.store(value, Ordering::Relaxed);
        }
        if value > self.max.load(Ordering::Relaxed) {
            self.max.store(value, Ordering::Relaxed);
        }
        add(&self.sum, value);
        add(&self.buckets[bucket(value)], 1);
        add(&self.count, 1);
    }

    pub(crate) fn read(&self) -> Distribution {
        Distribution {
            count: read(&self.count),
            sum: read(&self.sum),
            min: read(&self.min),
            max: read(&self.max),
            buckets: self.buckets.iter().map(read).collect(),
        }
    }
}

impl Distribution {
    /// The value that this percentage of the values do not exceed; 0 if there are no values.
    pub fn percentile(&self, percent: f64) -> u64 {
        let all: u64 = self.buckets.iter().sum();
        let wanted = ((all as f64 * percent / 100.0).ceil() as u64).clamp(1, all.max(1));
        let mut seen = 0;
        let at = self.buckets.iter().position(|count| {
            seen += count;
            seen >= wanted
        });
        at.map_or(0, |at| largest(at).min(self.max))
    }

    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.count).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_at_most_a_32nd_too_large_and_never_too_small() {
        for value in
            (0..4096).chain((6..40).flat_map(|power| (0..64).map(move |n| (1 << power) + n * (1 << power) / 64)))
        {
            let top = largest(bucket(value));
            assert!(top >= value && top - value <= value / 32, "{value}: {top}");
            assert_eq!(bucket(top), bucket(value), "{value}");
        }
        assert_eq!((bucket(LARGEST), bucket(u64::MAX)), (BUCKETS - 1, BUCKETS - 1));
    }

    #[test]
    fn percentiles_are_those_of_the_values() {
        // SAFETY: zeros are valid.
        let buckets: Box<Buckets> = Box::new(unsafe { std::mem::zeroed() });
        assert_eq!(buckets.read().percentile(50.0), 0);
        (1..=1000).for_each(|value| buckets.add(value * 1000));
        let read = buckets.read();
        assert_eq!((read.count, read.min, read.max, read.mean()), (1000, 1000, 1_000_000, 500_500));
        for (percent, exact) in [(50.0, 500_000), (99.0, 990_000), (99.9, 999_000), (100.0, 1_000_000)] {
            let found = read.percentile(percent);
            assert!(found >= exact && found <= exact + exact / 32, "{percent}: {found}");
        }
    }
}
