//! Rounds with very different numbers of samples.
//!
//! A figure of a cell is one of all its samples, so a round counts by its samples. A round in which a call was stuck has few samples, or one, and
//! hardly counts, though it may be the important round. A round that has many more samples than the others decides alone.

use super::CellOfRun;
use crate::part::Status;
use crate::samples::reads_counters;
use experiment::{Experiment, Gpu, Stage};

/// Rounds whose numbers of samples are within this factor count as similar.
const MOST: u64 = 4;
/// Maximum number of cells that a warning names.
const NAMED: usize = 3;

/// One warning for all cells whose rounds differ much, and one for all that have no samples in some rounds.
pub(super) fn warnings(experiment: &Experiment, stages: &[Stage], cells: &[CellOfRun]) -> Vec<String> {
    if experiment.run.gpu == Gpu::Soft {
        return Vec::new();
    }
    let place = |c: &CellOfRun| match c.bytes {
        0 => format!("{} in stage {}", c.subject, c.stage),
        bytes => format!("{} at {bytes} bytes in stage {}", c.subject, c.stage),
    };
    let differ: Vec<String> =
        cells.iter().filter_map(|c| spread(c).map(|(low, high)| format!("{}, {low} to {high}", place(c)))).collect();
    let lack = |c: &CellOfRun| {
        let run = &stages.get(c.stage as usize)?.run;
        let each = (0..run.rounds).filter(|round| !reads_counters(*round, run.counters_every)).count() as u64;
        let all = each * u64::from(run.repeats);
        let lacks = c.status == Status::Measured && c.rounds < all;
        lacks.then(|| format!("{}, {} of {all} rounds", place(c), c.rounds))
    };
    let lacking: Vec<String> = cells.iter().filter_map(lack).collect();
    let differ = (!differ.is_empty()).then(|| {
        format!(
            "samples a round differ by more than {MOST} times, and figures are of all samples, so that rounds with few hardly count \
             (per_round has each): {}",
            named(differ)
        )
    });
    let lacking = (!lacking.is_empty()).then(|| {
        format!(
            "cells with samples in a part of their rounds only, for their time was used up or a repeat is missing: {}",
            named(lacking)
        )
    });
    differ.into_iter().chain(lacking).collect()
}

/// The minimum and maximum number of samples of its rounds, if they differ much.
fn spread(c: &CellOfRun) -> Option<(u64, u64)> {
    let samples = || c.per_round.samples.iter().copied();
    let (low, high) = samples().min().zip(samples().max())?;
    (high > MOST * low).then_some((low, high))
}

fn named(mut of: Vec<String>) -> String {
    let more = of.len().saturating_sub(NAMED);
    of.truncate(NAMED);
    if more > 0 {
        of.push(format!("{more} more"));
    }
    of.join("; ")
}
