//! The samples of one cell, reduced to what can be drawn.

use experiment::Stage;
use run_folder::run::observed;
use run_folder::samples::reads_counters;
use run_folder::{Error, Samples};

/// Columns of a time line.
pub const COLUMNS: usize = 680;
/// Bars of a histogram for each factor of ten.
pub const PER_DECADE: f64 = 20.0;
/// Points of a distribution, for each nine.
const PER_NINE: f64 = 60.0;

/// The observed samples of a cell, of all repeats together.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    pub samples: u64,
    /// Nanoseconds, and the part of all samples that are less.
    pub distribution: Vec<(f64, f64)>,
    /// Lower bound, upper bound, and count, if it is not 0.
    pub buckets: Vec<(f64, f64, u64)>,
    /// The start of each repeat after the first, on the time line.
    pub repeats: Vec<f64>,
    /// Seconds in all.
    pub seconds: f64,
    /// Seconds, the minimum and the maximum.
    pub columns: Vec<(f64, f64, f64)>,
    /// Seconds and nanoseconds of the slowest.
    pub worst: Option<(f64, f64)>,
}

impl Shape {
    /// From the files of its repeats.
    pub fn of(stage: &Stage, cell: usize, repeats: &[Samples]) -> Result<Shape, Error> {
        let observe = stage.cells[cell].subject.observe;
        let mut values = Vec::new();
        let mut starts = Vec::new();
        let mut offset = 0;
        let mut shape = Shape::default();
        for samples in repeats {
            samples.each(cell, |some| {
                for s in some.iter().filter(|s| !reads_counters(s.round, stage.run.counters_every)) {
                    if let Some(ns) = observed(s, observe) {
                        values.push(ns);
                        starts.push(offset + s.release_ns);
                    }
                }
            })?;
            // The same of all cells: a part ends with the last of any.
            offset += samples.last_release_ns();
            shape.repeats.push(offset as f64 / 1e9);
        }
        shape.repeats.pop();
        shape.samples = values.len() as u64;
        shape.seconds = offset as f64 / 1e9;
        shape.time_line(&values, &starts, offset);
        values.sort_unstable();
        shape.distribute(&values);
        Ok(shape)
    }

    fn time_line(&mut self, values: &[u64], starts: &[u64], end: u64) {
        let mut columns: Vec<Option<(u64, u64)>> = vec![None; COLUMNS];
        for (ns, at) in values.iter().zip(starts) {
            let i = (u128::from(*at) * COLUMNS as u128 / (u128::from(end) + 1)) as usize;
            let (low, high) = columns[i].unwrap_or((*ns, *ns));
            columns[i] = Some((low.min(*ns), high.max(*ns)));
        }
        let seconds = |i: usize| (i as f64 + 0.5) / COLUMNS as f64 * self.seconds;
        let there = columns.iter().enumerate().filter_map(|(i, c)| Some((i, (*c)?)));
        self.columns = there.map(|(i, (low, high))| (seconds(i), low.max(1) as f64, high.max(1) as f64)).collect();
        let worst = values.iter().zip(starts).max_by_key(|(ns, at)| (**ns, std::cmp::Reverse(**at)));
        self.worst = worst.map(|(ns, at)| (*at as f64 / 1e9, *ns as f64));
    }

    fn distribute(&mut self, sorted: &[u64]) {
        let n = sorted.len();
        let mut before = usize::MAX;
        for k in 0.. {
            // The fraction above falls by the same factor from one to the next.
            let above = n as f64 / 10f64.powf(f64::from(k) / PER_NINE);
            let i = n - (above.round() as usize).clamp(1, n.max(1)).min(n);
            if i != before && i < n {
                self.distribution.push((sorted[i].max(1) as f64, i as f64 / n as f64));
                before = i;
            }
            if above <= 1.0 || n == 0 {
                break;
            }
        }
        let bucket = |ns: u64| ((ns.max(1) as f64).log10() * PER_DECADE).floor() as i32;
        for same in sorted.chunk_by(|a, b| bucket(*a) == bucket(*b)) {
            let low = f64::from(bucket(same[0]));
            let at = |b: f64| 10f64.powf(b / PER_DECADE);
            self.buckets.push((at(low), at(low + 1.0), same.len() as u64));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_distribution_keeps_its_ends_and_its_percentiles() {
        let sorted: Vec<u64> = (1..=100_000).collect();
        let mut shape = Shape::default();
        shape.distribute(&sorted);
        assert_eq!(shape.distribution[0], (1.0, 0.0));
        assert_eq!(*shape.distribution.last().unwrap(), (100_000.0, 0.99999));
        assert!(shape.distribution.len() < 400);
        for (ns, part) in &shape.distribution {
            assert!((ns - 1.0 - part * 100_000.0).abs() < 1e-6);
        }
        assert_eq!(shape.buckets.iter().map(|b| b.2).sum::<u64>(), 100_000);
        for n in [0, 1, 2, 11] {
            let mut few = Shape::default();
            few.distribute(&sorted[..n]);
            assert_eq!(few.distribution.last().map(|d| d.0), sorted[..n].last().map(|v| *v as f64));
        }
    }

    #[test]
    fn a_time_line_keeps_the_largest_of_each_column() {
        let values: Vec<u64> = (0..10_000).map(|i| if i == 4_321 { 9_999 } else { 100 + i % 7 }).collect();
        let starts: Vec<u64> = (0..10_000).map(|i| i * 1_000).collect();
        let mut shape = Shape { seconds: 0.01, ..Shape::default() };
        shape.time_line(&values, &starts, 9_999_000);
        assert_eq!(shape.columns.len(), COLUMNS);
        assert_eq!(shape.columns.iter().filter(|c| c.2 == 9_999.0).count(), 1);
        assert!(shape.columns.iter().all(|c| c.1 == 100.0));
        let (at, ns) = shape.worst.unwrap();
        assert!(ns == 9_999.0 && (at - 0.004321).abs() < 1e-9);
    }
}
