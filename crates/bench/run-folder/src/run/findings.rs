//! What a run found: the certain effects of loads, the certain differences from a baseline, the slowest sample, and what asserts did not hold.
//! Tables and pages write it in words.

use super::{Beside, Cause, CellOfRun, Judged, JudgedCell, RatioOfRun, Run, Times, Verdict, Victim, WorstOfRun};
use crate::part::Status;
use statistics::Interval;
use std::collections::BTreeMap;

/// The largest and the smallest of the differences that are certain.
#[derive(Clone, Debug)]
pub struct Extremes<T> {
    /// None without a certain one.
    pub largest: Option<T>,
    /// None with fewer than two.
    pub smallest: Option<T>,
    pub certain: usize,
    /// How many were looked at.
    pub all: usize,
}

impl<T> Extremes<T> {
    /// `all`: how many times as long each is, if that is certain. Of equal ones the first is the largest, the last the smallest.
    fn of(all: Vec<Option<(f64, T)>>) -> Extremes<T> {
        let looked_at = all.len();
        let mut certain: Vec<(f64, T)> = all.into_iter().flatten().collect();
        certain.sort_by(|a, b| b.0.total_cmp(&a.0));
        let count = certain.len();
        let mut values = certain.into_iter().map(|(_, value)| value);
        let largest = values.next();
        Extremes { largest, smallest: values.last(), certain: count, all: looked_at }
    }
}

/// A load that certainly delays a subject.
#[derive(Clone, Debug)]
pub struct Delay {
    /// Where in the matrix: [`Beside::point`].
    pub point: Vec<super::Coordinate>,
    pub load: String,
    pub victim: Victim,
    pub times: Times,
    pub bounds: Interval<f64>,
}

impl Run {
    /// How loads delay subjects.
    pub fn delays(&self) -> Extremes<Delay> {
        let mut all = Vec::new();
        for Beside { point, aggressors, victims } in self.beside() {
            for victim in victims {
                let of_loads = aggressors.iter().zip(&victim.beside);
                all.extend(of_loads.filter_map(|(load, times)| Some((load, (*times)?))).map(|(load, times)| {
                    let bounds = times.delayed()?;
                    let (point, load, victim) = (point.clone(), load.clone(), victim.clone());
                    Some((times.p50, Delay { point, load, victim, times, bounds }))
                }));
            }
        }
        Extremes::of(all)
    }

    /// Cells whose ratio to their baseline is certainly not 1, and the ratio.
    pub fn differences(&self) -> Extremes<(&CellOfRun, &RatioOfRun)> {
        let compared = self.measured_cells().filter_map(|cell| Some((cell, cell.ratio.as_ref()?)));
        Extremes::of(compared.map(|(c, of)| of.ratio.certain().map(|_| (of.ratio.ratio, (c, of)))).collect())
    }

    /// The cells whose figures count.
    pub fn measured_cells(&self) -> impl Iterator<Item = &CellOfRun> {
        self.cells.iter().filter(|cell| cell.status == Status::Measured)
    }

    /// Asserts that were broken, then those that could not be judged.
    pub fn not_held(&self) -> Vec<&Judged> {
        let mut all: Vec<&Judged> = self.asserts.iter().filter(|j| j.verdict != Verdict::Held).collect();
        all.sort_by_key(|judged| std::cmp::Reverse(judged.verdict));
        all
    }
}

impl Judged {
    /// The cells that did not hold it: those that broke it first.
    pub fn not_held(&self) -> Vec<&JudgedCell> {
        let mut all: Vec<&JudgedCell> = self.cells.iter().filter(|cell| cell.verdict != Verdict::Held).collect();
        all.sort_by_key(|cell| std::cmp::Reverse(cell.verdict));
        all
    }
}

/// The baselines of cells, each once, in the order of the cells.
pub fn baselines<'c>(cells: impl Iterator<Item = &'c CellOfRun>) -> Vec<&'c str> {
    let mut all: Vec<&str> = Vec::new();
    for ratio in cells.filter_map(|c| c.ratio.as_ref()) {
        if !all.contains(&ratio.baseline.as_str()) {
            all.push(&ratio.baseline);
        }
    }
    all
}

/// The slowest sample of some cells: a fact to know, and no finding.
pub fn slowest<'c>(cells: impl IntoIterator<Item = &'c CellOfRun>) -> Option<(&'c CellOfRun, &'c WorstOfRun)> {
    let all = cells.into_iter().flat_map(|cell| cell.worst.iter().map(move |worst| (cell, worst)));
    all.reduce(|a, b| if b.1.value_ns > a.1.value_ns { b } else { a })
}

/// Where most of the time of slow samples went, the commonest first; what is not known is last.
pub fn causes<'w>(all: impl Iterator<Item = &'w WorstOfRun>) -> Vec<(Cause, u64)> {
    let mut causes: BTreeMap<Cause, u64> = BTreeMap::new();
    all.for_each(|worst| *causes.entry(worst.mostly).or_default() += 1);
    let mut causes: Vec<(Cause, u64)> = causes.into_iter().collect();
    causes.sort_by_key(|(cause, n)| (*cause == Cause::Unknown, std::cmp::Reverse(*n)));
    causes
}
