//! How long cells and stages were measured, why they ended, and in how many of their rounds the loads rested.

use super::{Context, Missing};
use crate::part::{CellTurn, EndedBy, Part, PartCell, Status};
use experiment::Stage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All turns of a cell, in all repeats together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lasted {
    /// `samples`: every requested sample was taken. `time`: at least one turn ended before, with its time. For several repeats, the worst.
    pub ended: EndedBy,
    /// Wall time, including untimed work.
    pub seconds: f64,
    pub turns: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rested: Option<Rested>,
}

/// Rounds in which the loads rested for some time, because work was stuck because of them: for that time the cell ran without loads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rested {
    pub rounds: u32,
    /// Number of rounds with a measurement.
    pub of: u32,
    pub seconds: f64,
}

/// All cells of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageLasted {
    /// Wall time of all turns, in all repeats together.
    pub seconds: f64,
    /// How many cells ended for each reason.
    pub ended: BTreeMap<EndedBy, u32>,
    /// Rounds in which they rested during the turn of some cell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rested: Option<Rested>,
}

/// Turns of one cell or of several: the repeat, and the turn.
type Turns<'p> = Vec<(u32, &'p CellTurn)>;

fn turns<'p>(cells: impl Iterator<Item = (u32, &'p PartCell)>) -> Turns<'p> {
    cells.flat_map(|(repeat, cell)| cell.turns.iter().map(move |turn| (repeat, turn))).collect()
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

fn rested(turns: &Turns<'_>) -> Option<Rested> {
    let rounds = |turns: &mut dyn Iterator<Item = &(u32, &CellTurn)>| {
        turns.map(|(repeat, turn)| (*repeat, turn.round)).collect::<BTreeSet<_>>().len() as u32
    };
    let resting = || turns.iter().filter(|(_, turn)| turn.rested_ns > 0);
    let ns = resting().map(|(_, turn)| turn.rested_ns).sum();
    let of = rounds(&mut turns.iter());
    (ns > 0).then(|| Rested { rounds: rounds(&mut resting()), of, seconds: seconds(ns) })
}

/// Why a stage has fewer parts than repeats; `None` if all exist, or if the reason is unknown.
pub(super) fn cut_short(stage: u32, missing: &[Missing], context: &Context) -> Option<EndedBy> {
    let of_stage = missing.iter().filter(|m| m.stage == stage);
    let why = |m: &Missing| match context.failed.contains_key(&(m.stage, m.repeat)) {
        true => Some(EndedBy::Failed),
        false => context.interrupted.as_ref().map(|_| EndedBy::Interrupted),
    };
    of_stage.filter_map(why).max()
}

/// A cell's ending in one part: that of its last turn, but `samples` only if each of all `rounds` ended so.
fn ended_in(cell: &PartCell, rounds: u32) -> Option<EndedBy> {
    if matches!(cell.status, Status::Failed(_)) {
        return Some(EndedBy::Failed);
    }
    let last = cell.turns.last()?.ended;
    let all = cell.turns.len() == rounds as usize && cell.turns.iter().all(|turn| turn.ended == EndedBy::Samples);
    Some(if all { last } else { last.max(EndedBy::Time) })
}

impl Lasted {
    /// From a cell's parts, each with its repeat. `None` if nothing was measured and there is no reason for an ending (it is unavailable), and for
    /// parts that an older doorbell wrote.
    pub(super) fn of<'p>(
        stage: &Stage,
        cells: impl Iterator<Item = (u32, &'p PartCell)> + Clone,
        cut_short: Option<EndedBy>,
    ) -> Option<Lasted> {
        let each = cells.clone().filter_map(|(_, cell)| ended_in(cell, stage.run.rounds));
        let ended = each.chain(cut_short).max()?;
        let turns = turns(cells);
        let ns = turns.iter().map(|(_, turn)| turn.ns).sum();
        Some(Lasted { ended, seconds: seconds(ns), turns: turns.len() as u32, rested: rested(&turns) })
    }
}

/// How long the loads rested in each round of a cell, by repeat and round, if they did.
pub(super) fn rested_by_round<'p>(cells: impl Iterator<Item = (u32, &'p PartCell)>) -> BTreeMap<(u32, u32), u64> {
    let resting = turns(cells).into_iter().filter(|(_, turn)| turn.rested_ns > 0);
    resting.map(|(repeat, turn)| ((repeat, turn.round), turn.rested_ns)).collect()
}

/// `None` for parts that an older doorbell wrote.
pub(super) fn of_stage(stage: &Stage, parts: &[Part], cut_short: Option<EndedBy>) -> Option<StageLasted> {
    let parts = || parts.iter().filter(|part| part.stage == stage.number);
    let mut ended = BTreeMap::new();
    for number in 0..stage.cells.len() {
        let cells = parts().map(|part| (part.repeat, &part.cells[number]));
        if let Some(lasted) = Lasted::of(stage, cells, cut_short) {
            *ended.entry(lasted.ended).or_default() += 1;
        }
    }
    let turns = turns(parts().flat_map(|part| part.cells.iter().map(|cell| (part.repeat, cell))));
    let ns = turns.iter().map(|(_, turn)| turn.ns).sum();
    (!ended.is_empty()).then(|| StageLasted { seconds: seconds(ns), ended, rested: rested(&turns) })
}
