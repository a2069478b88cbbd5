//! The largest value of an axis up to which a bound holds.

use super::{CellOfRun, Coordinate, Measured, Verdict};
use experiment::{Assert, Experiment, Largest};
use serde::{Deserialize, Serialize};

/// One question of the experiment, at one place of all other axes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LargestOfRun {
    /// Index of the experiment's question, from 0.
    pub largest: u32,
    /// The other axes.
    pub point: Vec<Coordinate>,
    /// Bytes of the cell; 0 for calls, and if sizes are the axis.
    pub bytes: u64,
    /// The last value up to which the bound holds at every value; none if it does not hold at the first.
    pub holds: Option<AtValue>,
    /// The first value at which it does not hold, or is not known to.
    pub beyond: Option<AtValue>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AtValue {
    pub stage: u32,
    /// As the file writes it.
    pub value: String,
    /// The metric, in its unit.
    pub metric: Option<f64>,
    /// Why it is unknown.
    pub why: Option<String>,
}

/// The value of the axis for a cell, and the rest of the cell's place.
fn place(asked: &Largest, cell: &CellOfRun) -> Option<(String, Vec<Coordinate>, u64)> {
    let rest = || cell.point.iter().filter(|c| c.name != asked.axis).cloned().collect();
    match cell.point.iter().find(|c| c.name == asked.axis) {
        Some(axis) if asked.axis == "bytes" => Some((axis.value.clone(), rest(), 0)),
        Some(axis) => Some((axis.value.clone(), rest(), cell.bytes)),
        None if asked.axis == "bytes" => Some((settings::sizes::text(cell.bytes), rest(), 0)),
        // A stage without that load.
        None => None,
    }
}

impl Measured<'_> {
    pub(super) fn largests(&self, experiment: &Experiment) -> Vec<LargestOfRun> {
        let mut all: Vec<LargestOfRun> = Vec::new();
        if self.functional {
            return all;
        }
        for (number, asked) in (0u32..).zip(&experiment.largests) {
            let begin = all.len();
            let assert = Assert { subject: asked.subject.clone(), metric: asked.metric, bound: asked.bound.clone() };
            // Stages and cells are in the order of the axis's values.
            for cell in self.cells.iter().filter(|c| c.subject == asked.subject) {
                let Some((value, point, bytes)) = place(asked, cell) else { continue };
                let found = all[begin..].iter().position(|l| (&l.point, l.bytes) == (&point, bytes));
                let at = found.map_or(all.len(), |n| begin + n);
                if found.is_none() {
                    all.push(LargestOfRun { largest: number, point, bytes, holds: None, beyond: None });
                }
                let of = &mut all[at];
                if of.beyond.is_some() {
                    continue;
                }
                let judged = self.judged(&assert, cell);
                let at = AtValue { stage: cell.stage, value, metric: judged.value, why: judged.why };
                match judged.verdict {
                    Verdict::Held => of.holds = Some(at),
                    Verdict::Broken | Verdict::NotJudged => of.beyond = Some(at),
                }
            }
        }
        all
    }
}
