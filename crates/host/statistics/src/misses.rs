//! Deadlines that samples missed.

use serde::{Deserialize, Serialize};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Misses {
    pub deadline_ns: u64,
    pub missed: u64,
    /// Number of samples that were due.
    pub of: u64,
    /// The most misses in a row within one round.
    pub longest_run: u64,
    /// The index of the first miss among those due, from 0.
    pub first: Option<u64>,
    /// Samples among `missed` that were due but never made, because their round was over.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub unmade: u64,
}

fn is_zero(n: &u64) -> bool {
    *n == 0
}

/// The samples due in one round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Due<'s> {
    /// The durations of those that were made, in the order in which they were taken.
    pub made: &'s [u64],
    /// This many later ones were never made: they had missed the deadline when the round was over.
    pub unmade: u64,
}

impl Misses {
    /// A run of misses never spans two rounds, because there is time without samples between them. A sample that takes exactly the deadline has met
    /// it.
    pub fn of<'s>(rounds: impl IntoIterator<Item = Due<'s>>, deadline_ns: u64) -> Misses {
        let mut misses = Misses { deadline_ns, ..Misses::default() };
        for round in rounds {
            let mut run = 0;
            for value in round.made {
                if *value > deadline_ns {
                    run += 1;
                    misses.missed += 1;
                    misses.longest_run = misses.longest_run.max(run);
                    misses.first.get_or_insert(misses.of);
                } else {
                    run = 0;
                }
                misses.of += 1;
            }
            if round.unmade > 0 {
                misses.longest_run = misses.longest_run.max(run + round.unmade);
                misses.first.get_or_insert(misses.of);
            }
            misses.missed += round.unmade;
            misses.unmade += round.unmade;
            misses.of += round.unmade;
        }
        misses
    }

    /// Missed samples as a part of those due; 0 if none were due.
    pub fn part(&self) -> f64 {
        self.missed as f64 / self.of.max(1) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(made: &[u64]) -> Due<'_> {
        Due { made, unmade: 0 }
    }

    #[test]
    fn a_run_ends_with_a_sample_in_time() {
        let misses = Misses::of([made(&[5, 11, 10, 12, 13, 14, 1, 99, 99])], 10);
        let expected = Misses { deadline_ns: 10, missed: 6, of: 9, longest_run: 3, first: Some(1), unmade: 0 };
        assert_eq!(misses, expected);
        assert!((misses.part() - 6.0 / 9.0).abs() < 1e-12);
    }

    #[test]
    fn a_run_ends_with_its_round() {
        let misses = Misses::of([made(&[1, 20, 20]), made(&[20, 20, 20, 1]), made(&[]), made(&[20])], 10);
        assert_eq!((misses.missed, misses.of, misses.longest_run, misses.first), (6, 8, 3, Some(1)));
    }

    #[test]
    fn due_samples_that_were_never_made_are_missed() {
        let misses = Misses::of([Due { made: &[1, 50], unmade: 2 }, made(&[1])], 10);
        assert_eq!((misses.missed, misses.of, misses.longest_run, misses.unmade), (3, 5, 3, 2));
        let none_made_late = Misses::of([Due { made: &[1], unmade: 4 }], 10);
        assert_eq!((none_made_late.longest_run, none_made_late.first), (4, Some(1)));
    }

    #[test]
    fn samples_in_time_are_no_misses() {
        assert_eq!(Misses::of([made(&[10, 0])], 10), Misses { deadline_ns: 10, of: 2, ..Misses::default() });
        assert_eq!(Misses::of([made(&[])], 10).part(), 0.0);
    }
}
