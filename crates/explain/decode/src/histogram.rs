//! Counts of values by logarithm.

use schema::histogram::Step;
use std::collections::BTreeMap;

/// Counts by logarithm, 64 steps to the power of two: a value read from it is at most 1/64 too small. It grows with its
/// largest value, because there is one for each function; `statistics::Histogram` has a fixed size.
#[derive(Debug, Default)]
pub struct Histogram(Vec<u64>);

impl Histogram {
    fn slot(v: u64) -> usize {
        if v < 64 {
            return v as usize;
        }
        let power = 63 - v.leading_zeros() as usize;
        (power - 5) * 64 + ((v >> (power - 6)) & 63) as usize
    }

    fn value(slot: usize) -> u64 {
        if slot < 64 {
            return slot as u64;
        }
        let power = slot / 64 + 5;
        (64 + (slot % 64) as u64) << (power - 6)
    }

    pub fn add(&mut self, v: u64) {
        let slot = Histogram::slot(v);
        if self.0.len() <= slot {
            self.0.resize(slot + 1, 0);
        }
        self.0[slot] += 1;
    }

    /// The value that this percentage of values does not exceed.
    pub fn percentile(&self, percent: f64) -> u64 {
        percentile(self.0.iter().copied().enumerate(), percent)
    }

    /// Its counts in steps that are the same in every recording. `ns` turns a value into nanoseconds.
    pub fn steps(&self, ns: impl Fn(u64) -> u64) -> Vec<Step> {
        steps(self.0.iter().copied().enumerate(), ns)
    }
}

/// The same for many histograms with few values each.
#[derive(Clone, Debug, Default)]
pub struct Sparse(BTreeMap<usize, u64>);

impl Sparse {
    pub fn add(&mut self, v: u64) {
        *self.0.entry(Histogram::slot(v)).or_default() += 1;
    }

    /// Adds the counts of another one.
    pub fn add_all(&mut self, other: &Sparse) {
        for (slot, n) in &other.0 {
            *self.0.entry(*slot).or_default() += n;
        }
    }

    /// As [`Histogram::percentile`].
    pub fn percentile(&self, percent: f64) -> u64 {
        percentile(self.0.iter().map(|(slot, n)| (*slot, *n)), percent)
    }

    /// As [`Histogram::steps`].
    pub fn steps(&self, ns: impl Fn(u64) -> u64) -> Vec<Step> {
        steps(self.0.iter().map(|(slot, n)| (*slot, *n)), ns)
    }
}

/// Takes slots in order, each with its count.
fn percentile(slots: impl Iterator<Item = (usize, u64)> + Clone, percent: f64) -> u64 {
    let all: u64 = slots.clone().map(|(_, n)| n).sum();
    let wanted = ((all as f64 * percent / 100.0).ceil() as u64).clamp(1, all.max(1));
    let mut seen = 0;
    let mut slots = slots;
    let slot = slots.find(|(_, n)| {
        seen += n;
        seen >= wanted
    });
    slot.map_or(0, |(slot, _)| Histogram::value(slot))
}

/// Slots of nanoseconds, 16 to the power of two, which are the same for all ranks of a job.
fn steps(slots: impl Iterator<Item = (usize, u64)>, ns: impl Fn(u64) -> u64) -> Vec<Step> {
    let mut steps = BTreeMap::new();
    for (slot, count) in slots.filter(|(_, count)| *count > 0) {
        let exact = Histogram::slot(ns(Histogram::value(slot)));
        let wide = if exact < 64 { exact } else { exact & !3 };
        *steps.entry(Histogram::value(wide)).or_default() += count;
    }
    steps.into_iter().map(|(from_ns, count)| Step { from_ns, count }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_within_a_64th() {
        let (mut h, mut sparse) = (Histogram::default(), Sparse::default());
        (1..=100_000u64).for_each(|v| h.add(v));
        (1..=100_000u64).for_each(|v| sparse.add(v));
        for (percent, v) in [(50.0, 50_000.0), (99.0, 99_000.0), (100.0, 100_000.0)] {
            assert_eq!(h.percentile(percent), sparse.percentile(percent));
            let got = h.percentile(percent) as f64;
            assert!(got <= v && got >= v * 63.0 / 64.0, "{percent} {got}");
        }
        for v in [0, 1, 63, 64, 65, 1 << 40, u64::MAX] {
            let low = Histogram::value(Histogram::slot(v));
            assert!(low <= v && v - low <= v / 64, "{v} {low}");
        }
        assert_eq!(Histogram::default().percentile(50.0), 0);
    }

    #[test]
    fn steps_have_every_value_and_the_same_bounds_whatever_the_clock() {
        let (mut h, mut twice) = (Histogram::default(), Sparse::default());
        (1..=100_000u64).for_each(|v| h.add(v));
        (1..=100_000u64).for_each(|v| twice.add(2 * v));
        let (of_h, of_twice) = (h.steps(|v| v), twice.steps(|v| v / 2));
        assert_eq!(of_h.iter().map(|s| s.count).sum::<u64>(), 100_000);
        assert_eq!(of_twice.iter().map(|s| s.count).sum::<u64>(), 100_000);
        let bounds: Vec<u64> = of_h.iter().map(|s| s.from_ns).collect();
        assert!(of_twice.iter().all(|s| s.from_ns == 0 || bounds.contains(&s.from_ns)));
        assert!(
            of_h.windows(2)
                .all(|w| w[0].from_ns < w[1].from_ns && w[1].from_ns - w[0].from_ns <= 1 + w[0].from_ns / 16)
        );
    }
}
