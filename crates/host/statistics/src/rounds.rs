//! Samples by rounds, and rounds by repeats.

use crate::{Figure, Summary};

/// The samples of one cell, sorted, each with its round.
#[derive(Clone, Debug)]
pub struct Rounds {
    values: Vec<u64>,
    round_of: Vec<u32>,
    /// Of each round.
    counts: Vec<u64>,
    sums: Vec<f64>,
    /// The repeat, a separate process, that each round belongs to.
    repeats: Vec<u32>,
}

impl Rounds {
    /// One slice a round, in any order within; a round without samples keeps its number. All are of one repeat.
    pub fn new<R: AsRef<[u64]>>(rounds: &[R]) -> Rounds {
        let mut all: Vec<(u64, u32)> =
            rounds.iter().zip(0..).flat_map(|(samples, r)| samples.as_ref().iter().map(move |v| (*v, r))).collect();
        all.sort_unstable();
        let counts = rounds.iter().map(|r| r.as_ref().len() as u64).collect();
        let sums = rounds.iter().map(|r| r.as_ref().iter().map(|v| *v as f64).sum()).collect();
        let (values, round_of) = all.into_iter().unzip();
        Rounds { values, round_of, counts, sums, repeats: vec![0; rounds.len()] }
    }

    /// The same rounds, `each` of them a repeat.
    pub fn in_repeats_of(self, each: usize) -> Rounds {
        self.in_repeats(|r| (r / each.max(1)) as u32)
    }

    /// The same rounds, each of the repeat that is given.
    pub fn in_repeats(self, of: impl Fn(usize) -> u32) -> Rounds {
        let repeats = (0..self.len()).map(of).collect();
        Rounds { repeats, ..self }
    }

    /// How many there are, with those without samples.
    pub fn len(&self) -> usize {
        self.counts.len()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// The numbers of those that have samples.
    pub fn sampled(&self) -> Vec<usize> {
        (0..self.len()).filter(|r| self.counts[*r] > 0).collect()
    }

    /// The repeat of a round.
    pub fn repeat(&self, round: usize) -> u32 {
        self.repeats.get(round).copied().unwrap_or(0)
    }

    /// The processes that have samples, in order of first appearance.
    pub fn processes(&self) -> Vec<u32> {
        let mut known = Vec::new();
        for process in self.sampled().into_iter().map(|r| self.repeats[r]) {
            if known.last() != Some(&process) && !known.contains(&process) {
                known.push(process);
            }
        }
        known
    }

    /// The place of each round's process among [`Rounds::processes`]; `None` for a process without samples.
    pub(crate) fn process_of_rounds(&self) -> Vec<Option<usize>> {
        let known = self.processes();
        self.repeats.iter().map(|process| known.iter().position(|k| k == process)).collect()
    }

    /// Each round counts as a process: for what one process measures and decides for itself.
    pub fn rounds_are_processes(self) -> Rounds {
        self.in_repeats(|r| r as u32)
    }

    /// Sums of the samples of each round.
    pub(crate) fn sums(&self) -> &[f64] {
        &self.sums
    }

    /// The round of each of the sorted samples.
    pub(crate) fn round_of(&self) -> &[u32] {
        &self.round_of
    }

    /// Of one round.
    pub fn samples(&self, round: usize) -> u64 {
        self.counts.get(round).copied().unwrap_or(0)
    }

    /// All samples, sorted.
    pub fn sorted(&self) -> &[u64] {
        &self.values
    }

    /// The summary of all samples together.
    pub fn summary(&self) -> Option<Summary> {
        Summary::of_sorted(&self.values)
    }

    /// The figure of all samples together.
    pub fn figure(&self, figure: Figure) -> Option<f64> {
        figure.of(&self.values)
    }

    /// The figure of each round separately; none if the round has too few samples for it.
    pub fn each(&self, figure: Figure) -> Vec<Option<f64>> {
        let mut rounds: Vec<Vec<u64>> = self.counts.iter().map(|n| Vec::with_capacity(*n as usize)).collect();
        for (value, round) in self.values.iter().zip(&self.round_of) {
            rounds[*round as usize].push(*value);
        }
        rounds.iter().map(|sorted| figure.of(sorted)).collect()
    }

    /// The figure of each process separately, in the order of [`Rounds::processes`].
    pub fn each_process(&self, figure: Figure) -> Vec<Option<f64>> {
        self.by_process_sorted().iter().map(|sorted| figure.of(sorted)).collect()
    }

    /// The samples of each process, sorted.
    pub(crate) fn by_process_sorted(&self) -> Vec<Vec<u64>> {
        let place = self.process_of_rounds();
        let mut processes = vec![Vec::new(); self.processes().len()];
        for (value, round) in self.values.iter().zip(&self.round_of) {
            place[*round as usize].into_iter().for_each(|p| processes[p].push(*value));
        }
        processes
    }

    /// Only the rounds whose numbers are given; the others keep their numbers, and are empty.
    pub fn only(&self, of: &[usize]) -> Rounds {
        let mut rounds = vec![Vec::new(); self.len()];
        for (value, round) in self.values.iter().zip(&self.round_of) {
            if of.binary_search(&(*round as usize)).is_ok() {
                rounds[*round as usize].push(*value);
            }
        }
        Rounds { repeats: self.repeats.clone(), ..Rounds::new(&rounds) }
    }

    /// The smallest difference of two samples: a step of the clock. 0 if all samples are equal.
    pub(crate) fn step(&self) -> u64 {
        self.values.windows(2).map(|w| w[1] - w[0]).filter(|step| *step > 0).min().unwrap_or(0)
    }

    /// A step of the clock, relative to the median.
    pub fn resolution(&self) -> f64 {
        let median = self.figure(Figure::P50).filter(|m| *m > 0.0);
        median.map_or(0.0, |median| self.step() as f64 / median)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_processes_have_no_interval_and_neither_have_extremes() {
        let rounds: Vec<Vec<u64>> = (0..6).map(|r| (0..20).map(|v| v + r).collect()).collect();
        let interval = |rounds: &[Vec<u64>], figure| Rounds::new(rounds).in_repeats_of(2).interval(figure, 0.95);
        assert!(interval(&rounds, Figure::P50).is_some());
        assert_eq!(interval(&rounds[..4], Figure::P50), None, "two processes");
        assert_eq!(interval(&rounds, Figure::Max), None);
        assert_eq!(interval(&rounds, Figure::P99), None, "120 samples");
        let mut empty = rounds.clone();
        (empty[2], empty[3]) = (vec![], vec![]);
        assert_eq!(interval(&empty, Figure::P50), None, "two processes have samples");
        empty[3].push(10);
        assert!(interval(&empty, Figure::P50).is_some());
        assert!(Rounds::new(&rounds).rounds_are_processes().interval(Figure::P50, 0.95).is_some());
    }

    #[test]
    fn rounds_keep_their_repeats() {
        let rounds = Rounds::new(&[vec![10, 20], vec![], vec![7], vec![8]]).in_repeats_of(2);
        assert_eq!((rounds.repeat(1), rounds.repeat(2)), (0, 1));
        assert_eq!(rounds.only(&[2, 3]).repeat(2), 1);
        assert_eq!(rounds.each_process(Figure::Max), [Some(20.0), Some(8.0)]);
        assert_eq!(rounds.only(&[0, 3]).sorted(), [8, 10, 20]);
    }

    #[test]
    fn the_step_of_the_clock_is_the_least_difference() {
        assert_eq!(Rounds::new(&[[40, 48], [40, 44]]).resolution(), 0.1);
        assert_eq!(Rounds::new(&[[40, 40]]).resolution(), 0.0);
    }
}
