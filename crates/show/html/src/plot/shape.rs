//! The samples of a cell, reduced to what can be drawn.

use experiment::Stage;
use run_folder::run::{CellOfRun, observed};
use run_folder::samples::reads_counters;
use run_folder::{Error, Folder, Run, Samples};

/// Bars of a histogram for each factor of ten.
const PER_DECADE: f64 = 20.0;
/// Points of a distribution, for each nine.
const PER_NINE: f64 = 60.0;

/// The observed samples of a cell, of all repeats together.
#[derive(Clone, Debug, Default)]
pub struct Shape {
    /// Nanoseconds, and the part of all samples that are less.
    pub distribution: Vec<(f64, f64)>,
    /// Lower bound, upper bound, and count, if it is not 0.
    pub buckets: Vec<(f64, f64, u64)>,
}

/// Those of cells of one stage, in this order; none without samples.
///
/// # Errors
/// Samples cannot be read.
pub fn shapes(folder: &Folder, run: &Run, cells: &[&CellOfRun]) -> Result<Vec<Shape>, Error> {
    let number = cells.first().map(|c| c.stage);
    let Some(stage) = number.and_then(|number| folder.stages().get(number as usize)) else { return Ok(Vec::new()) };
    let parts = run.parts.iter().filter(|p| Some(p.stage) == number);
    let repeats = parts.map(|p| folder.open_samples(p.stage, p.repeat)).collect::<Result<Vec<_>, _>>()?;
    let all = cells.iter().map(|c| Shape::of(stage, c.cell as usize, &repeats)).collect::<Result<Vec<_>, _>>()?;
    Ok(if all.iter().any(|s| !s.distribution.is_empty()) { all } else { Vec::new() })
}

impl Shape {
    /// From the files of its repeats.
    fn of(stage: &Stage, cell: usize, repeats: &[Samples]) -> Result<Shape, Error> {
        let observe = stage.cells[cell].subject.observe;
        let mut values = Vec::new();
        for samples in repeats {
            samples.each(cell, |some| {
                let timed = some.iter().filter(|s| !reads_counters(s.round, stage.run.counters_every));
                values.extend(timed.filter_map(|s| observed(s, observe)));
            })?;
        }
        values.sort_unstable();
        let mut shape = Shape::default();
        shape.distribute(&values);
        Ok(shape)
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
}
