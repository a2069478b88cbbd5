//! Figures that are known only from one side: a sample that was cut short took at least its time, and how much longer is unknown.

use super::CellOfRun;
use experiment::Metric;
use serde::{Deserialize, Serialize};
use statistics::Figure;

/// The side from which a ratio is known; unset if it is known from both.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bounded {
    AtLeast,
    AtMost,
    /// Both of its figures are lower bounds.
    NotKnown,
}

impl CellOfRun {
    /// Whether a figure of its times is a lower bound. Samples that were cut short are the slowest: they were stuck for as long as the stage should
    /// last.
    pub fn is_at_least(&self, figure: Figure) -> bool {
        match figure {
            Figure::Percentile(p) => p.nearest(self.samples) > self.samples - self.capped.min(self.samples),
            Figure::Mean | Figure::Max => self.capped > 0,
            Figure::Min => self.capped > 0 && self.capped == self.samples,
            // It was late for every deadline.
            Figure::Misses(_) => false,
        }
    }
}

/// For the ratio of a cell to its baseline.
pub(super) fn of_ratio(cell: &CellOfRun, baseline: &CellOfRun, metric: Metric) -> Option<Bounded> {
    let figure = match metric {
        // More time is a lower rate.
        Metric::Rate => Figure::Mean,
        metric => super::metric::figure(metric)?,
    };
    let (above, below) = (cell.is_at_least(figure), baseline.is_at_least(figure));
    match if metric == Metric::Rate { (below, above) } else { (above, below) } {
        (true, true) => Some(Bounded::NotKnown),
        (true, false) => Some(Bounded::AtLeast),
        (false, true) => Some(Bounded::AtMost),
        (false, false) => None,
    }
}
