//! Deadlines that samples missed.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    pub deadline_ns: u64,
    pub missed: u64,
    /// Of so many samples.
    pub of: u64,
    /// The most misses one behind the other.
    pub longest_run: u64,
    /// Which sample missed it first, from 0.
    pub first: Option<u64>,
}

impl Misses {
    /// `samples` in the order in which they were taken. One that takes the deadline exactly has met it.
    pub fn of(samples: impl IntoIterator<Item = u64>, deadline_ns: u64) -> Misses {
        let mut misses = Misses { deadline_ns, ..Misses::default() };
        let mut run = 0;
        for value in samples {
            if value > deadline_ns {
                run += 1;
                misses.missed += 1;
                misses.longest_run = misses.longest_run.max(run);
                misses.first.get_or_insert(misses.of);
            } else {
                run = 0;
            }
            misses.of += 1;
        }
        misses
    }

    /// The part of the samples that missed it; 0 of none.
    pub fn part(&self) -> f64 {
        self.missed as f64 / self.of.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_ends_with_a_sample_in_time() {
        let misses = Misses::of([5, 11, 10, 12, 13, 14, 1, 99, 99], 10);
        let expected = Misses { deadline_ns: 10, missed: 6, of: 9, longest_run: 3, first: Some(1) };
        assert_eq!(misses, expected);
        assert!((misses.part() - 6.0 / 9.0).abs() < 1e-12);
    }

    #[test]
    fn what_is_in_time_is_no_miss() {
        assert_eq!(Misses::of([10, 0], 10), Misses { deadline_ns: 10, of: 2, ..Misses::default() });
        assert_eq!(Misses::of([], 10).part(), 0.0);
    }
}
