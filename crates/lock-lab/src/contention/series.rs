//! What one kind of call took in one cell: how often which time, where the time went, and the slowest of them.
//!
//! Times are counted in buckets, so that what several processes counted can be put together: below 256 ns each bucket is
//! one nanosecond, above it is at most 1/128 of its value wide. The least and the largest are exact.

use lab::counters::Spent;
use lab::statistics::Percentile;
use serde::{Deserialize, Serialize};

/// Buckets of each power of two: 1 / 128 of the value is the most that a bucket is wide.
const STEPS: u32 = 7;
/// Up to here every nanosecond has its own.
const EXACT: u64 = 1 << (STEPS + 1);
const BUCKETS: usize = (EXACT as usize) + ((64 - STEPS as usize - 1) << STEPS);

/// Counted times, ns.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Times {
    /// Of each bucket that is not empty the largest time that falls into it, and how many did; in order.
    pub buckets: Vec<(u64, u64)>,
    pub count: u64,
    pub sum: u64,
    pub min: u64,
    pub max: u64,
}

/// Times while they are counted: memory that was touched before.
#[derive(Clone, Debug)]
pub(super) struct Counting {
    counts: Vec<u64>,
    times: Times,
}

#[inline]
fn bucket(ns: u64) -> usize {
    if ns < EXACT {
        return ns as usize;
    }
    let shift = 63 - ns.leading_zeros() - STEPS;
    // The leading one stands at STEPS after the shift: a row of 2^STEPS for each power of two.
    EXACT as usize + (((shift - 1) as usize) << STEPS) + ((ns >> shift) as usize & ((1 << STEPS) - 1))
}

/// The largest time that falls into a bucket.
fn top(bucket: usize) -> u64 {
    let Some(above) = (bucket as u64).checked_sub(EXACT) else { return bucket as u64 };
    let (row, step) = ((above >> STEPS) as u32 + 1, above & ((1 << STEPS) - 1));
    let low = (1 << STEPS) + step;
    (low << row) + ((1 << row) - 1)
}

impl Counting {
    pub fn new() -> Counting {
        // Written, not only reserved: no page fault falls into a sample.
        let mut counts = vec![1; BUCKETS];
        counts.fill(0);
        Counting { counts, times: Times { min: u64::MAX, ..Times::default() } }
    }

    #[inline]
    pub fn add(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        let t = &mut self.times;
        (t.count, t.sum) = (t.count + 1, t.sum.saturating_add(ns));
        (t.min, t.max) = (t.min.min(ns), t.max.max(ns));
    }

    pub fn done(self) -> Times {
        let mut times = self.times;
        times.buckets = self.counts.iter().enumerate().filter(|(_, n)| **n > 0).map(|(b, n)| (top(b), *n)).collect();
        if times.count == 0 {
            times.min = 0;
        }
        times
    }
}

impl Times {
    /// Puts what another process counted to these.
    pub fn merge(&mut self, other: &Times) {
        if other.count == 0 {
            return;
        }
        self.min = if self.count == 0 { other.min } else { self.min.min(other.min) };
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        let mut all: std::collections::BTreeMap<u64, u64> = self.buckets.iter().copied().collect();
        for (top, n) in &other.buckets {
            *all.entry(*top).or_default() += n;
        }
        self.buckets = all.into_iter().collect();
    }

    /// The nearest rank, at most 1/128 too large and never above the largest; `None` with fewer samples than it needs.
    pub fn percentile(&self, percentile: Percentile) -> Option<u64> {
        let rank = percentile.rank(self.count)?;
        let mut seen = 0;
        self.buckets
            .iter()
            .find(|(_, n)| {
                seen += n;
                seen >= rank
            })
            .map(|(top, _)| (*top).clamp(self.min, self.max))
    }

    pub fn mean(&self) -> Option<f64> {
        (self.count > 0).then(|| self.sum as f64 / self.count as f64)
    }

    /// How many took longer, to the width of a bucket.
    pub fn above(&self, ns: u64) -> u64 {
        self.buckets.iter().filter(|(top, _)| *top > ns).map(|(_, n)| n).sum()
    }
}

/// Where the time of all calls together went, ns: the kernel's counters of the calling thread, read before and after each
/// call. The readings themselves are outside of what is timed, and within what is on the CPU here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parts {
    pub calls: u64,
    pub wall_ns: u64,
    pub on_cpu_ns: u64,
    /// Ready, and without a CPU.
    pub run_queue_ns: u64,
    /// Neither: in a lock, or in the kernel.
    pub asleep_ns: u64,
    /// Calls in which the thread slept.
    pub slept: u64,
    /// Calls in which its CPU was taken away.
    pub preempted: u64,
    /// Calls of which the kernel does not say how long they waited for a CPU; they are in no other sum than `wall`, `on_cpu`.
    pub unknown: u64,
}

impl Parts {
    pub(super) fn add(&mut self, spent: &Spent) {
        self.calls += 1;
        self.wall_ns += spent.wall_ns;
        self.on_cpu_ns += spent.cpu_ns.min(spent.wall_ns);
        self.slept += u64::from(spent.voluntary > 0);
        self.preempted += u64::from(spent.involuntary > 0);
        match (spent.asleep_ns(), spent.run_queue_ns) {
            (Some(asleep), queue) => {
                self.asleep_ns += asleep;
                self.run_queue_ns += queue.unwrap_or(0);
            }
            (None, _) => self.unknown += 1,
        }
    }

    pub fn merge(&mut self, other: &Parts) {
        self.calls += other.calls;
        self.wall_ns += other.wall_ns;
        self.on_cpu_ns += other.on_cpu_ns;
        self.run_queue_ns += other.run_queue_ns;
        self.asleep_ns += other.asleep_ns;
        self.slept += other.slept;
        self.preempted += other.preempted;
        self.unknown += other.unknown;
    }
}

/// One of the slowest calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Slow {
    /// Since the cell began.
    pub at_ns: u64,
    pub call_ns: u64,
    /// Until the work was done. The parts are those of the call among the slowest calls, else those of all of it.
    pub done_ns: u64,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub asleep_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub run_queue_ns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub on_cpu_ns: Option<u64>,
    /// The longest time in which a thread that polls did not look: of our own copies, whose submission sleeps nowhere.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub longest_gap_ns: Option<u64>,
    /// It was over because its load was told to stop: nobody knows how long it would have taken.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub capped: bool,
}

/// Kept of the slowest calls.
pub const SLOWEST: usize = 20;

/// The slowest calls so far.
#[derive(Clone, Debug)]
pub(super) struct Slowest {
    kept: Vec<Slow>,
    least: u64,
    of: fn(&Slow) -> u64,
}

impl Slowest {
    /// By the time that `of` finds in a sample.
    pub fn by(of: fn(&Slow) -> u64) -> Slowest {
        Slowest { kept: Vec::with_capacity(SLOWEST), least: 0, of }
    }

    #[inline]
    pub fn offer(&mut self, slow: Slow) {
        let of = self.of;
        if self.kept.len() < SLOWEST {
            self.kept.push(slow);
        } else if of(&slow) > self.least {
            if let Some(least) = self.kept.iter_mut().min_by_key(|s| of(s)) {
                *least = slow;
            }
        } else {
            return;
        }
        self.least = self.kept.iter().map(of).min().unwrap_or(0);
    }

    pub fn done(mut self) -> Vec<Slow> {
        let of = self.of;
        self.kept.sort_by_key(|s| std::cmp::Reverse(of(s)));
        self.kept
    }
}

/// One kind of call, or one route, in one cell.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// `launch`, `graph`, or a route and its size.
    pub name: String,
    pub about: String,
    /// No code of libcuda's runs while it is timed.
    pub own: bool,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub unavailable: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub failed: Option<String>,
    /// The call alone: until it came back.
    pub call: Times,
    /// From before the call until its work was done and seen to be.
    pub done: Times,
    /// Of the calls alone; CUDA's only.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub parts: Option<Parts>,
    /// Of the calls and the waits for their work, in the other half of the samples.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub done_parts: Option<Parts>,
    /// The slowest calls.
    pub slowest: Vec<Slow>,
    /// Those whose work was done the latest.
    pub slowest_done: Vec<Slow>,
}

/// What of a call is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// Until it came back.
    Call,
    /// Until its work was done and seen to be.
    Done,
}

impl Series {
    pub fn times(&self, what: What) -> &Times {
        match what {
            What::Call => &self.call,
            What::Done => &self.done,
        }
    }

    pub fn parts_of(&self, what: What) -> Option<&Parts> {
        match what {
            What::Call => self.parts.as_ref(),
            What::Done => self.done_parts.as_ref(),
        }
    }

    /// True where the largest observed would have been larger, had its load not been told to stop.
    pub fn is_capped(&self, what: What) -> bool {
        let slowest = match what {
            What::Call => self.slowest.first(),
            What::Done => self.slowest_done.first(),
        };
        slowest.is_some_and(|s| s.capped)
    }

    /// What it is looked at for: of our own copies, whose call is a store, only the whole.
    pub fn looked_at(&self) -> &'static [What] {
        if self.own { &[What::Done] } else { &[What::Call, What::Done] }
    }

    /// Puts the same call's times from another process to these.
    pub fn merge(&mut self, other: &Series) {
        self.call.merge(&other.call);
        self.done.merge(&other.done);
        for (these, those) in [(&mut self.parts, &other.parts), (&mut self.done_parts, &other.done_parts)] {
            match (these, those) {
                (Some(these), Some(those)) => these.merge(those),
                (these @ None, those) => *these = *those,
                _ => {}
            }
        }
        self.failed = self.failed.take().or_else(|| other.failed.clone());
        if self.call.count == other.call.count {
            // Nothing had been counted here: what was missing is not.
            self.unavailable = other.unavailable.clone();
        }
        let together = |these: &mut Vec<Slow>, those: &[Slow], key: fn(&Slow) -> u64| {
            these.extend(those);
            these.sort_by_key(|s| std::cmp::Reverse(key(s)));
            these.truncate(SLOWEST);
        };
        together(&mut self.slowest, &other.slowest, |s| s.call_ns);
        together(&mut self.slowest_done, &other.slowest_done, |s| s.done_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counted(times: &[u64]) -> Times {
        let mut counting = Counting::new();
        times.iter().for_each(|t| counting.add(*t));
        counting.done()
    }

    #[test]
    fn a_bucket_is_at_most_an_hundred_and_twenty_eighth_wide() {
        let mut random = fastrand::Rng::with_seed(1);
        let edges = (0..64).flat_map(|p| [(1u64 << p) - 1, 1 << p, (1 << p) + 1]).chain([u64::MAX, 0]);
        let drawn: Vec<u64> = (0..20_000).map(|_| random.u64(..) >> random.u32(0..64)).collect();
        for ns in edges.chain(drawn) {
            let b = bucket(ns);
            assert!(b < BUCKETS, "{ns}");
            let top = top(b);
            assert!(top >= ns && top - ns <= ns / 128, "{ns} in a bucket up to {top}");
            assert_eq!(bucket(top), b, "{ns}");
            assert!(top == u64::MAX || bucket(top + 1) == b + 1, "{ns}: the next bucket begins behind {top}");
        }
    }

    #[test]
    fn percentiles_are_those_of_the_samples_and_of_what_is_put_together() {
        let mut random = fastrand::Rng::with_seed(2);
        let mut one = || {
            let bits = random.u32(8..30);
            random.u64(100..1 << bits)
        };
        let all: Vec<u64> = (0..5_000).map(|_| one()).collect();
        let (a, b) = all.split_at(1_234);
        let mut merged = counted(a);
        merged.merge(&counted(b));
        merged.merge(&Times::default());
        assert_eq!(merged, counted(&all));
        let mut empty = Times::default();
        empty.merge(&merged);
        assert_eq!(empty, merged);
        let mut sorted = all.clone();
        sorted.sort_unstable();
        assert_eq!((merged.min, merged.max, merged.count), (sorted[0], sorted[4_999], 5_000));
        assert_eq!(merged.mean(), Some(all.iter().sum::<u64>() as f64 / 5_000.0));
        for p in [Percentile::P50, Percentile::P90, Percentile::P99, Percentile::P999] {
            let (exact, found) = (p.of(&sorted).unwrap(), merged.percentile(p).unwrap());
            assert!(found >= exact && found - exact <= exact / 128, "{p:?}: {found} for {exact}");
        }
        assert_eq!(counted(&[5; 999]).percentile(Percentile::P999), None);
        assert_eq!(counted(&[5; 999]).percentile(Percentile::P50), Some(5));
        assert_eq!(counted(&[]).percentile(Percentile::P50), None);
        assert_eq!(counted(&[1, 10, 100]).above(10), 1);
    }

    #[test]
    fn the_slowest_are_kept() {
        let slow = |call_ns| Slow {
            at_ns: 0,
            call_ns,
            done_ns: 0,
            asleep_ns: None,
            run_queue_ns: None,
            on_cpu_ns: None,
            longest_gap_ns: None,
            capped: false,
        };
        let mut random = fastrand::Rng::with_seed(3);
        let mut all: Vec<u64> = (0..500).map(|_| random.u64(0..200)).collect();
        let mut slowest = Slowest::by(|s| s.call_ns);
        all.iter().for_each(|t| slowest.offer(slow(*t)));
        all.sort_unstable_by_key(|t| std::cmp::Reverse(*t));
        assert_eq!(slowest.done().iter().map(|s| s.call_ns).collect::<Vec<_>>(), all[..SLOWEST]);
    }

    #[test]
    fn parts_are_the_kernels_counters_added_up() {
        let spent = Spent { wall_ns: 900, cpu_ns: 200, voluntary: 1, involuntary: 0, run_queue_ns: Some(50) };
        let mut parts = Parts::default();
        parts.add(&spent);
        parts.add(&Spent { wall_ns: 100, cpu_ns: 120, voluntary: 0, involuntary: 1, run_queue_ns: Some(0) });
        parts.add(&Spent { run_queue_ns: None, ..spent });
        assert_eq!((parts.calls, parts.slept, parts.preempted, parts.unknown), (3, 2, 1, 1));
        assert_eq!((parts.wall_ns, parts.on_cpu_ns, parts.run_queue_ns, parts.asleep_ns), (1_900, 500, 50, 650));
    }
}
