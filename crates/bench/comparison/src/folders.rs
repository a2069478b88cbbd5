//! Runs as their folders have them: two of them cell by cell, or those of many machines.

use crate::between::Stored;
use crate::machines::{FEWEST_MACHINES, Machine, Machines, compare_machines};
use crate::runs::{Change, Comparison, Key, Limits, Request, compare};
use crate::{Error, Loaded, names};
use environment::{Environment, Value};
use run_folder::commands::{Differing, compared};
use statistics::{Figure, Rounds};
use std::collections::HashSet;
use std::path::PathBuf;

/// The part by which a figure may be slower, unless another is given.
pub const FAIL_ABOVE: f64 = 0.05;

/// The figures of a verdict, unless others are asked for.
pub const JUDGED: [Figure; 3] = [Figure::P50, Figure::Mean, Figure::P99];

/// What is compared.
#[derive(Clone, Debug, Default)]
pub struct Heading {
    pub a: String,
    pub b: String,
    /// The differences between the environments.
    pub changes: Vec<Change>,
    /// Why differences may not come from the change.
    pub warnings: Vec<String>,
    /// If both runs were recorded: the differences in the commands of one call of a cell.
    pub commands: Vec<(Key, Vec<Differing>)>,
}

/// Two runs, cell by cell.
///
/// # Errors
/// Samples cannot be read, or other figures than the median are asked for where there are none.
pub fn compare_runs(
    a: &mut Loaded,
    b: &mut Loaded,
    asked: &[Figure],
    limits: Limits,
) -> Result<(Heading, Comparison), Error> {
    let mut warnings = Vec::new();
    let figures = figures(asked, &mut [&mut *a, &mut *b], &mut warnings)?;
    let changes = changes(a, b);
    warnings.extend(not_comparable(&changes));
    let differs = a.experiment_differs(b).map(|what| format!("the experiments are not the same: {what}"));
    warnings.extend(differs);
    let functional = a.run.functional || b.run.functional;
    if functional {
        warnings.push("a run on the software GPU: its times say nothing, and none fails".into());
    }
    for loaded in [&*a, &*b].into_iter().filter(|l| !l.run.complete) {
        let parts = loaded.run.missing.len();
        warnings.push(format!("{}: {parts} part{} missing", loaded.name, if parts == 1 { "" } else { "s" }));
    }
    let keys = keys(&[a, b]);
    let request = Request { figures, limits };
    let between = Stored::of_machine(a, b);
    let mut rows = Vec::new();
    for key in &keys {
        rows.extend(compare(key, &a.cell(key)?, &b.cell(key)?, &request, |figure| between.of(key, figure)));
    }
    warnings.extend([&*a, &*b].into_iter().flat_map(Loaded::repeats_missing));
    let mut comparison = Comparison::of(rows, limits);
    if functional {
        comparison.forgive_times();
    }
    let commands = keys.iter().filter_map(|key| {
        let (a, b) = (a.commands(key)?, b.commands(key)?);
        Some((key.clone(), compared(a, b)))
    });
    let commands = commands.collect();
    let heading = Heading { a: a.name.clone(), b: b.name.clone(), changes, warnings, commands };
    Ok((heading, comparison))
}

/// Runs of one experiment on many machines, figure by figure, and warnings. An outlier differs by at least the part `least`.
///
/// # Errors
/// There are too few, or they cannot be read.
pub fn compare_nodes(paths: &[PathBuf], asked: &[Figure], least: f64) -> Result<(Vec<Machines>, Vec<String>), Error> {
    let fewest = FEWEST_MACHINES;
    if paths.len() < fewest {
        let count = if paths.len() == 1 { "1 machine".into() } else { format!("{} machines", paths.len()) };
        let hint = "of fewer nobody can say which is the odd one: `doorbell compare A B`";
        return Err(Error::refused(format!("{count}, and {fewest} are needed"), hint));
    }
    let mut runs = paths.iter().map(|p| Loaded::open(p)).collect::<Result<Vec<_>, _>>()?;
    let names = names(paths);
    let mut warnings = Vec::new();
    let figures = figures(asked, &mut runs.iter_mut().collect::<Vec<_>>(), &mut warnings)?;
    for (name, run) in names.iter().zip(&runs).skip(1) {
        let differs = runs[0].experiment_differs(run);
        warnings.extend(differs.map(|what| format!("{name}: its experiment is not that of {}: {what}", names[0])));
    }
    let mut found = Vec::new();
    for key in keys(&runs.iter().collect::<Vec<_>>()) {
        let samples = runs.iter_mut().map(|r| r.samples(&key)).collect::<Result<Vec<_>, _>>()?;
        let empty = Rounds::new::<Vec<u64>>(&[]);
        let with: Vec<Machine<'_>> = names
            .iter()
            .zip(&samples)
            .map(|(name, rounds)| Machine { name, rounds: rounds.as_ref().unwrap_or(&empty) })
            .collect();
        found.extend(figures.iter().filter_map(|figure| compare_machines(&key, &with, *figure, least)));
    }
    if found.is_empty() {
        let what = format!("no figure is known of {fewest} machines");
        return Err(Error::refused(what, "p99 needs 1,000 samples of a cell; --metric p50 needs one"));
    }
    Ok((found, warnings))
}

/// The requested figures. A `run.json` without its folder has only medians of rounds, and all runs are read in the same
/// way.
fn figures(asked: &[Figure], runs: &mut [&mut Loaded], warnings: &mut Vec<String>) -> Result<Vec<Figure>, Error> {
    let figures = if asked.is_empty() { JUDGED.to_vec() } else { asked.to_vec() };
    let Some(without) = runs.iter().find(|r| !r.has_samples()).map(|r| r.name.clone()) else { return Ok(figures) };
    if asked.iter().any(|f| *f != Figure::P50) {
        let what = format!("{without}: without its samples only p50 can be compared");
        return Err(Error::refused(what, "give the folders with parts/ and samples/, or --metric p50"));
    }
    warnings.push(format!("{without}: its samples are not there: medians of rounds are compared, and no tails"));
    runs.iter_mut().for_each(|r| r.forget_samples());
    Ok(vec![Figure::P50])
}

/// The keys of all runs, in order of first appearance.
fn keys(runs: &[&Loaded]) -> Vec<Key> {
    let mut seen = HashSet::new();
    runs.iter().flat_map(|r| r.keys()).filter(|key| seen.insert(key.clone())).collect()
}

fn changes(a: &Loaded, b: &Loaded) -> Vec<Change> {
    let known = |v: &Option<Value>| v.as_ref().map_or("unknown".into(), ToString::to_string);
    let differences = Environment::compare(&a.environment(), &b.environment());
    let mut changes: Vec<Change> =
        differences.iter().map(|d| Change { what: d.fact.clone(), a: known(&d.first), b: known(&d.second) }).collect();
    let mut also = |what: &str, a: String, b: String| {
        if a != b {
            changes.push(Change { what: what.into(), a, b });
        }
    };
    also("doorbell", a.run.doorbell.clone(), b.run.doorbell.clone());
    let commit = |l: &Loaded| l.run.commit.clone().unwrap_or_else(|| "unknown".into());
    also("commit", commit(a), commit(b));
    changes
}

/// Facts that differ only on another machine, or with another driver.
const OTHER_MACHINE: [&str; 4] = ["host.name", "cpu.model", "gpu.name", "gpu.driver"];

fn not_comparable(changes: &[Change]) -> Option<String> {
    let others: Vec<&str> = OTHER_MACHINE.into_iter().filter(|o| changes.iter().any(|c| c.what == *o)).collect();
    let is = if others.len() == 1 { "is another one" } else { "are others" };
    (!others.is_empty()).then(|| format!("{} {is}: differences may come from that", others.join(", ")))
}
