//! Counts of sizes by power of two, and the most frequent values.
//!
//! Memory is bounded: a day's tape is counted in the same space as one of a second.

use schema::summary::Bucket;
use std::collections::HashMap;
use std::hash::Hash;

/// Maximum number of distinct values; further ones are counted together.
const DISTINCT: usize = 1 << 16;

/// Sizes of transfers.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    pub count: u64,
    pub bytes: u64,
    buckets: [(u64, u64); 65],
    exact: Commonest<u64>,
}

impl Default for Sizes {
    fn default() -> Sizes {
        Sizes { count: 0, bytes: 0, buckets: [(0, 0); 65], exact: Commonest::default() }
    }
}

impl Sizes {
    pub fn add(&mut self, bytes: u64) {
        self.count += 1;
        self.bytes = self.bytes.saturating_add(bytes);
        let b = &mut self.buckets[(u64::BITS - bytes.leading_zeros()) as usize];
        b.0 += 1;
        b.1 = b.1.saturating_add(bytes);
        self.exact.add(bytes);
    }

    /// Undoes one addition.
    pub fn remove(&mut self, bytes: u64) {
        self.count = self.count.saturating_sub(1);
        self.bytes = self.bytes.saturating_sub(bytes);
        let b = &mut self.buckets[(u64::BITS - bytes.leading_zeros()) as usize];
        (b.0, b.1) = (b.0.saturating_sub(1), b.1.saturating_sub(bytes));
        self.exact.remove(&bytes);
    }

    /// The buckets that are not empty, smallest first. The first is for size 0.
    pub fn buckets(&self) -> Vec<Bucket> {
        let range = |i: usize| match i {
            0 => (0, 0),
            64 => (1 << 63, u64::MAX),
            i => (1 << (i - 1), (1 << i) - 1),
        };
        (0..65)
            .filter(|&i| self.buckets[i].0 > 0)
            .map(|i| Bucket { from: range(i).0, to: range(i).1, count: self.buckets[i].0, bytes: self.buckets[i].1 })
            .collect()
    }

    /// Number of transfers beyond the limit of distinct sizes.
    pub fn not_told_apart(&self) -> u64 {
        self.exact.others
    }

    /// The most frequent exact sizes with their counts.
    pub fn commonest(&self, n: usize) -> Vec<(u64, u64)> {
        self.exact.top(n)
    }
}

/// How often each of many values occurred.
#[derive(Clone, Debug, PartialEq)]
pub struct Commonest<K: Eq + Hash> {
    counts: HashMap<K, u64>,
    /// Occurrences beyond the limit of distinct values.
    pub others: u64,
}

impl<K: Eq + Hash> Default for Commonest<K> {
    fn default() -> Self {
        Commonest { counts: HashMap::new(), others: 0 }
    }
}

impl<K: Eq + Hash + Ord + Clone> Commonest<K> {
    pub fn add(&mut self, k: K) {
        self.add_many(k, 1);
    }

    /// Adds `times` occurrences.
    pub fn add_many(&mut self, k: K, times: u64) {
        if let Some(n) = self.counts.get_mut(&k) {
            *n = n.saturating_add(times);
        } else if self.counts.len() < DISTINCT {
            self.counts.insert(k, times);
        } else {
            self.others = self.others.saturating_add(times);
        }
    }

    /// Undoes one addition. Values that were not counted separately are subtracted from their
    /// common count.
    pub fn remove(&mut self, k: &K) {
        match self.counts.get_mut(k) {
            Some(1) => {
                self.counts.remove(k);
            }
            Some(n) => *n -= 1,
            None => self.others = self.others.saturating_sub(1),
        }
    }

    pub fn distinct(&self) -> usize {
        self.counts.len()
    }

    /// The `n` most frequent values, the most frequent first; ties in their natural order.
    pub fn top(&self, n: usize) -> Vec<(K, u64)> {
        let mut all: Vec<(K, u64)> = self.counts.iter().map(|(k, n)| (k.clone(), *n)).collect();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        all.truncate(n);
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_falls_into_the_bucket_that_names_it() {
        let mut s = Sizes::default();
        let sizes = [0, 1, 2, 3, 4, 4095, 4096, 64 << 20, 1 << 63, u64::MAX];
        sizes.iter().for_each(|b| s.add(*b));
        let buckets = s.buckets();
        for b in sizes {
            assert_eq!(buckets.iter().filter(|k| k.from <= b && b <= k.to).count(), 1, "{b}");
        }
        assert_eq!(buckets.iter().map(|b| b.count).sum::<u64>(), sizes.len() as u64);
        assert_eq!(s.bytes, u64::MAX, "saturates");
    }

    #[test]
    fn the_commonest_come_first_and_the_rest_is_counted() {
        let mut c = Commonest::default();
        (0..DISTINCT as u64 + 10).for_each(|i| c.add(i));
        (0..5).for_each(|_| c.add(7));
        (0..5).for_each(|_| c.add(3));
        assert_eq!(c.top(3), [(3, 6), (7, 6), (0, 1)]);
        assert_eq!((c.distinct(), c.others), (DISTINCT, 10));
    }
}
