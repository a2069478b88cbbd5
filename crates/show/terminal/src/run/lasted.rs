//! How long the cells of a table were measured, what ended them, and deviations from the experiment: rounds in which the loads rested, and paced
//! arrivals that were less frequent.

use crate::number::{count, nanoseconds, of, seconds};
use run_folder::Run;
use run_folder::part::EndedBy;
use run_folder::run::{CellOfRun, StageOfRun};
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Arrivals that are less frequent by more than this are reported.
const LITTLE: f64 = 0.01;

/// What ended a cell.
pub fn ended(by: EndedBy) -> &'static str {
    match by {
        EndedBy::Samples => "samples",
        EndedBy::Time => "time",
        EndedBy::Capped => "a call that was cut short",
        EndedBy::Room => "room for samples",
        EndedBy::Interrupted => "the end of the run",
        EndedBy::Failed => "a failure",
    }
}

/// Nothing for stages that an older doorbell measured.
pub(super) fn write(out: &mut dyn Write, run: &Run, stages: &[&StageOfRun], cells: &[&CellOfRun]) -> io::Result<()> {
    time(out, run, stages)?;
    rested(out, cells)?;
    arrivals(out, cells)
}

fn time(out: &mut dyn Write, run: &Run, stages: &[&StageOfRun]) -> io::Result<()> {
    let all: Vec<_> = stages.iter().filter_map(|stage| stage.lasted.as_ref()).collect();
    if all.is_empty() {
        return Ok(());
    }
    let mut by: BTreeMap<EndedBy, u32> = BTreeMap::new();
    for (what, cells) in all.iter().flat_map(|lasted| &lasted.ended) {
        *by.entry(*what).or_default() += cells;
    }
    let by: Vec<String> = by.into_iter().map(|(what, cells)| format!("{} {cells}", ended(what))).collect();
    let bound = run.experiment.run.duration_ns.map_or(String::new(), |ns| {
        let most = ns as f64 / 1e9 * f64::from(run.experiment.run.repeats) * stages.len() as f64;
        format!(" of the duration of {}", seconds(most))
    });
    let took = seconds(all.iter().map(|lasted| lasted.seconds).sum());
    writeln!(out, "measured for {took}{bound}; cells by what ended them: {}", by.join(", "))
}

/// Cells whose rounds had times without a load.
fn rested(out: &mut dyn Write, cells: &[&CellOfRun]) -> io::Result<()> {
    let rested = cells.iter().filter_map(|c| Some((c, c.lasted.as_ref()?.rested?)));
    let rested: Vec<String> = rested
        .map(|(c, r)| {
            format!("{} in {} of {}, {}", super::title(c), r.rounds, of(r.of.into(), "round"), seconds(r.seconds))
        })
        .collect();
    if rested.is_empty() {
        return Ok(());
    }
    writeln!(out, "the loads rested, because a call was stuck: {}", rested.join("; "))
}

fn arrivals(out: &mut dyn Write, cells: &[&CellOfRun]) -> io::Result<()> {
    for (cell, a) in cells.iter().filter_map(|c| Some((c, c.arrivals.as_ref()?))) {
        let mut said = Vec::new();
        if a.achieved_per_second < a.wanted_per_second * (1.0 - LITTLE) {
            let rate = |v: f64| count(v.round() as u64);
            said.push(format!(
                "{} arrivals a second of {}: their clock was stopped {}, for at most {}, for untimed work",
                rate(a.achieved_per_second),
                rate(a.wanted_per_second),
                of(a.gaps, "time"),
                nanoseconds(a.longest_gap_ns)
            ));
        }
        if a.unmade > 0 {
            said.push(format!("{} due and never made, for the time of their round was over", of(a.unmade, "arrival")));
        }
        if !said.is_empty() {
            writeln!(out, "{}: {}", super::title(cell), said.join("; "))?;
        }
    }
    Ok(())
}
