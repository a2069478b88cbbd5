//! How far a figure can be off: the single model of all intervals and verdicts.
//!
//! A run has processes, a process has rounds, a round has samples. The process is the unit: its samples may depend on each other in any way. Each
//! process moves the figure by its *pull*, and the pulls are values for Student's t (Kalibera and Jones, Rigorous Benchmarking in Reasonable Time,
//! 2013). A few processes may be alike by chance, so the error is at least that of independent rounds.

use crate::Rounds;

/// With fewer processes it is unknown how far processes differ, so there is no interval.
pub const MIN_PROCESSES: usize = 3;

/// The standard deviation of a sum of pulls, one for each unit. The pulls add up to 0, up to rounding.
fn of_units(squares: f64, units: usize) -> f64 {
    let n = units as f64;
    if units > 1 { (n / (n - 1.0) * squares.max(0.0)).sqrt() } else { 0.0 }
}

/// How many there are of each with samples.
#[derive(Clone, Copy)]
pub(crate) struct Units {
    processes: usize,
    rounds: usize,
}

impl Units {
    /// The larger of the deviations that processes and rounds show, from the sums of their squared pulls.
    pub fn deviation(self, of_processes: f64, of_rounds: f64) -> f64 {
        of_units(of_processes, self.processes).max(of_units(of_rounds, self.rounds))
    }
}

impl Rounds {
    pub(crate) fn units(&self) -> Units {
        Units { processes: self.processes().len(), rounds: self.sampled().len() }
    }

    /// The standard deviation of a figure that each round moves so far.
    pub(crate) fn deviation_of(&self, pulls: &[f64]) -> f64 {
        let squares = |values: &[f64]| values.iter().map(|p| p * p).sum::<f64>();
        self.units().deviation(squares(&self.by_process(pulls)), squares(pulls))
    }

    /// The sum of a value of each round, for each process.
    pub(crate) fn by_process(&self, of_rounds: &[f64]) -> Vec<f64> {
        let mut sums = vec![0.0; self.processes().len()];
        for (value, process) in of_rounds.iter().zip(self.process_of_rounds()) {
            process.into_iter().for_each(|p| sums[p] += value);
        }
        sums
    }
}

/// The number of processes that `counts` would come from if each had the same count: 1 / Simpson's index, without its bias. Infinite if no process
/// has two.
pub(crate) fn places(counts: impl Iterator<Item = f64>) -> f64 {
    let (all, pairs) = counts.fold((0.0, 0.0), |(all, pairs), n| (all + n, pairs + n * (n - 1.0)));
    if pairs > 0.0 { all * (all - 1.0) / pairs } else { f64::INFINITY }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_the_values_and_rounds_a_lower_limit() {
        let rounds = Rounds::new(&[[1]; 6]).in_repeats_of(2);
        // Sums of -3, 1 and 2: their variance is 7, and that of a sum of three 21.
        let found = rounds.deviation_of(&[-1.5, -1.5, 0.5, 0.5, 1.0, 1.0]);
        assert!((found.powi(2) - 21.0).abs() < 1e-12, "{found}");
        // Processes that are alike by chance: six rounds of 1 have squares of 6, and 6 / 5 of it.
        let found = rounds.deviation_of(&[1.0, -1.0, 1.0, -1.0, 1.0, -1.0]);
        assert!((found.powi(2) - 7.2).abs() < 1e-12, "{found}");
        assert_eq!(rounds.deviation_of(&[0.0; 6]), 0.0);
    }

    #[test]
    fn places_are_counted_as_if_all_had_as_many() {
        assert!((places([5.0, 5.0, 5.0, 5.0].into_iter()) - 20.0 * 19.0 / 80.0).abs() < 1e-12);
        assert_eq!(places([9.0, 0.0, 0.0].into_iter()), 1.0);
        assert_eq!(places([1.0, 1.0, 0.0].into_iter()), f64::INFINITY);
    }
}
