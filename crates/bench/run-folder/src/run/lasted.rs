//! How long cells and stages were measured, what ended them, and in how many of their rounds the loads rested.

use super::{Context, Missing};
use crate::part::{CellTurn, EndedBy, Part, PartCell, Status};
use experiment::Stage;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// All turns of a cell, in all repeats together.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lasted {
    /// `samples`: every sample that was asked for. `time`: at least one turn ended before, with its time. Of several repeats
    /// the worst.
    pub ended: EndedBy,
    /// Wall time, with what is not timed.
    pub seconds: f64,
    pub turns: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rested: Option<Rested>,
}

/// Rounds in which the loads rested for some time, for something was stuck behind them: for that time nothing was beside them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rested {
    pub rounds: u32,
    /// Of so many in which anything was measured.
    pub of: u32,
    pub seconds: f64,
}

/// All cells of a stage.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageLasted {
    /// Wall time of all turns, in all repeats together.
    pub seconds: f64,
    /// How many cells ended by what.
    pub ended: BTreeMap<EndedBy, u32>,
    /// Rounds in which they rested in the turn of some cell.
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

/// Why a stage has fewer parts than repeats; `None` where all are there, or nobody knows why one is missing.
pub(super) fn cut_short(stage: u32, missing: &[Missing], context: &Context) -> Option<EndedBy> {
    let of_stage = missing.iter().filter(|m| m.stage == stage);
    let why = |m: &Missing| match context.failed.contains_key(&(m.stage, m.repeat)) {
        true => Some(EndedBy::Failed),
        false => context.interrupted.as_ref().map(|_| EndedBy::Interrupted),
    };
    of_stage.filter_map(why).max()
}

/// What one part says of a cell: its last turn, but `samples` only where each of all `rounds` ended so.
fn ended_in(cell: &PartCell, rounds: u32) -> Option<EndedBy> {
    if matches!(cell.status, Status::Failed(_)) {
        return Some(EndedBy::Failed);
    }
    let last = cell.turns.last()?.ended;
    let all = cell.turns.len() == rounds as usize && cell.turns.iter().all(|turn| turn.ended == EndedBy::Samples);
    Some(if all { last } else { last.max(EndedBy::Time) })
}

impl Lasted {
    /// Of a cell's parts, each with its repeat. `None` where nothing was measured and nothing ended it (it is not available), and
    /// of parts that an older doorbell wrote.
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

/// For how long the loads rested in each round of a cell, by repeat and round, where they did.
pub(super) fn rested_by_round<'p>(cells: impl Iterator<Item = (u32, &'p PartCell)>) -> BTreeMap<(u32, u32), u64> {
    let resting = turns(cells).into_iter().filter(|(_, turn)| turn.rested_ns > 0);
    resting.map(|(repeat, turn)| ((repeat, turn.round), turn.rested_ns)).collect()
}

/// `None` of parts that an older doorbell wrote.
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
