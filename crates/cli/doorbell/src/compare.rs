//! `doorbell compare`: whether one run is slower than another, and which of many machines is an outlier.

pub mod between;
pub mod load;

use crate::failure::Failure;
use crate::help::Page;
use crate::units;
use comparison::{Change, Comparison, Key, Limits, Machine, Overall, Request, compare_machines};
use load::Loaded;
use statistics::Figure;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::comparison::Heading;
use terminal::foreign::Plain;
use terminal::table::{Style, to_stdout};

/// Compare two runs of `bench`, or many machines: what is slower, how far, and how sure that is
#[derive(Debug, clap::Args)]
#[command(after_help = Page::examples(&[
    ("doorbell compare baseline run", "two folders that `doorbell bench -o` wrote"),
    ("doorbell compare baseline run --fail-above 3% --junit gate.xml", "a gate in CI"),
    ("doorbell compare baseline run --fail-undecided", "and that fails too if a figure is unclear"),
    ("doorbell compare baseline run --metric p50,p99.9 --markdown gate.md", ""),
    ("doorbell compare old/run.json new/run.json --json | jq '.rows[] | select(.fails)'", ""),
    ("doorbell compare --nodes nodes/*", "the same experiment on many machines: which one is odd"),
])
.text("Processes are the unit: a run has five or more unless it says otherwise. A figure is equal if its interval lies within the limit, a \
       regression if it is slower for certain and not within it, and unclear otherwise. The last line is equal only if every figure is.")
.statuses(&[
    (0, "no regression, no lost cell; no machine is an outlier"),
    (1, "a regression, a cell that failed in the second run, or an outlier; with --fail-undecided also a figure that is not decided"),
    (2, "an error, or nothing that can be compared"),
]))]
pub struct Args {
    /// The run that is the reference: a folder or a run.json, for example baseline
    #[arg(value_name = "A", required_unless_present = "nodes")]
    a: Option<PathBuf>,
    /// The run that may be slower, for example run
    #[arg(value_name = "B", required_unless_present = "nodes")]
    b: Option<PathBuf>,
    /// Compare these runs of one experiment on many machines instead, for example nodes/*
    #[arg(long, value_name = "RUN", num_args = 1.., conflicts_with_all = ["a", "b", "junit", "markdown"])]
    nodes: Vec<PathBuf>,
    /// A difference within this is none, and a machine nearer to the others no outlier
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    fail_above: f64,
    /// The same for percentiles above p90 [default: five times --fail-above]
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    fail_above_tail: Option<f64>,
    /// Fail too if a figure is not decided
    #[arg(long, conflicts_with = "nodes")]
    fail_undecided: bool,
    /// Figures to compare: mean, p50, p90, p99, p99.9, p99.99 [default: p50,mean,p99]
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = figure)]
    metric: Vec<Figure>,
    /// Print the result as JSON, without a table
    #[arg(long)]
    json: bool,
    /// Write it as JUnit XML too, replacing an older file, for example gate.xml
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
    /// Write it as a Markdown table too, replacing an older file, for example gate.md
    #[arg(long, value_name = "FILE")]
    markdown: Option<PathBuf>,
}

/// A percentage as a fraction of one.
fn percent(text: &str) -> Result<f64, String> {
    units::percent(text).map(|p| p / 100.0)
}

fn figure(text: &str) -> Result<Figure, String> {
    let all = [Figure::Mean, Figure::P50, Figure::P90, Figure::P99, Figure::P999, Figure::P9999];
    let found = all.into_iter().find(|f| f.to_string() == text);
    found.ok_or_else(|| match text {
        "min" | "max" => "extremes have no interval: p99.99 is the last figure that has one".into(),
        _ => format!("one of {}", all.map(|f| f.to_string()).join(", ")),
    })
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match (&self.a, &self.b) {
            (Some(a), Some(b)) => self.two(a, b),
            _ => machines(&self.nodes, &self.metric, self.fail_above, self.json),
        }
    }

    fn two(&self, a: &Path, b: &Path) -> anyhow::Result<ExitCode> {
        let limits = Limits::new(self.fail_above, self.fail_above_tail);
        let (heading, comparison) = Args::pair(&mut Loaded::open(a)?, &mut Loaded::open(b)?, &self.metric, limits)?;
        self.write(&heading, &comparison)?;
        if comparison.overall() == Overall::Nothing && heading.commands.is_empty() {
            let hint = "no cell has samples in both: are these runs of the same experiment?";
            return Err(Failure::new("nothing in the two runs can be compared", hint).into());
        }
        let (decided, due) = comparison.decided();
        let undecided = self.fail_undecided && decided < due;
        Ok(ExitCode::from(u8::from(comparison.fails() || undecided)))
    }

    /// Two runs, cell by cell: for `compare`, and for a page of both.
    pub fn pair(
        a: &mut Loaded,
        b: &mut Loaded,
        asked: &[Figure],
        limits: Limits,
    ) -> anyhow::Result<(Heading, Comparison)> {
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
            let parts = loaded.run.missing.len() as u64;
            warnings.push(format!("{}: {} missing", loaded.name, terminal::number::of(parts, "part")));
        }
        let keys = keys(&[a, b]);
        let request = Request { figures, limits };
        let between = between::Stored::of_machine(a, b);
        let mut rows = Vec::new();
        for key in &keys {
            rows.extend(comparison::compare(key, &a.cell(key)?, &b.cell(key)?, &request, |figure| {
                between.of(key, figure)
            }));
        }
        warnings.extend([&*a, &*b].into_iter().flat_map(Loaded::repeats_missing));
        let mut comparison = Comparison::of(rows, limits);
        if functional {
            comparison.forgive_times();
        }
        let commands = keys.iter().filter_map(|key| {
            let (a, b) = (a.commands(key)?, b.commands(key)?);
            Some((key.clone(), run_folder::commands::compared(a, b)))
        });
        let commands = commands.collect();
        let heading = Heading { a: a.name.clone(), b: b.name.clone(), changes, warnings, commands };
        Ok((heading, comparison))
    }

    fn write(&self, heading: &Heading, comparison: &Comparison) -> anyhow::Result<()> {
        if let Some(path) = &self.junit {
            let xml = terminal::comparison::junit(heading, comparison)?;
            written("--junit", path, |out| Ok(out.write_all(xml.as_bytes())?))?;
        }
        if let Some(path) = &self.markdown {
            written("--markdown", path, |out| terminal::comparison::write_markdown(out, heading, comparison))?;
        }
        if self.json {
            return json(&terminal::comparison::json(heading, comparison));
        }
        Ok(to_stdout(|out| terminal::comparison::write(out, &Style::of_stdout(), heading, comparison))?)
    }
}

fn written(
    option: &str,
    path: &Path,
    f: impl FnOnce(&mut dyn Write) -> Result<(), terminal::ReportError>,
) -> anyhow::Result<()> {
    crate::result::is_file(option, path, "it is written beside what goes to standard output")?;
    let done = output::replace(path, |file| f(file));
    done.map_err(|e| anyhow::Error::new(e).context(format!("{} was not written", path.display())))
}

fn json(value: &serde_json::Value) -> anyhow::Result<()> {
    Ok(to_stdout(|out| {
        serde_json::to_writer_pretty(Plain::json(&mut *out), value).map_err(std::io::Error::from)?;
        Ok(writeln!(out)?)
    })?)
}

/// The requested figures. A `run.json` without its folder has only medians of rounds, and all runs are read in the same
/// way.
fn figures(asked: &[Figure], runs: &mut [&mut Loaded], warnings: &mut Vec<String>) -> anyhow::Result<Vec<Figure>> {
    let figures = if asked.is_empty() { JUDGED.to_vec() } else { asked.to_vec() };
    let Some(without) = runs.iter().find(|r| !r.has_samples()).map(|r| r.name.clone()) else { return Ok(figures) };
    if asked.iter().any(|f| *f != Figure::P50) {
        let what = format!("{without}: without its samples only p50 can be compared");
        return Err(Failure::new(what, "give the folders with parts/ and samples/, or --metric p50").into());
    }
    warnings.push(format!("{without}: its samples are not there: medians of rounds are compared, and no tails"));
    runs.iter_mut().for_each(|r| r.forget_samples());
    Ok(vec![Figure::P50])
}

/// The keys of all runs, in order of first appearance.
fn keys(runs: &[&Loaded]) -> Vec<Key> {
    let mut keys: Vec<Key> = Vec::new();
    let mut seen = std::collections::HashSet::new();
    keys.extend(runs.iter().flat_map(|r| r.keys()).filter(|key| seen.insert(key.clone())));
    keys
}

fn changes(a: &Loaded, b: &Loaded) -> Vec<Change> {
    let known = |v: &Option<environment::Value>| v.as_ref().map_or("unknown".into(), ToString::to_string);
    let differences = environment::Environment::compare(&a.environment(), &b.environment());
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

/// The default of --fail-above.
pub const FAIL_ABOVE: f64 = 0.05;

/// The figures of a verdict, unless others are asked for.
pub const JUDGED: [Figure; 3] = [Figure::P50, Figure::Mean, Figure::P99];

/// Compares runs of one experiment on many machines. Exit status 1 if one is an outlier.
pub fn machines(paths: &[PathBuf], asked: &[Figure], least: f64, as_json: bool) -> anyhow::Result<ExitCode> {
    let fewest = comparison::FEWEST_MACHINES;
    if paths.len() < fewest {
        let what = format!("{}, and {fewest} are needed", terminal::number::of(paths.len() as u64, "machine"));
        return Err(Failure::new(what, "of fewer nobody can say which is the odd one: `doorbell compare A B`").into());
    }
    let mut runs = paths.iter().map(|p| Loaded::open(p)).collect::<anyhow::Result<Vec<_>>>()?;
    let names = load::names(paths);
    let mut warnings = Vec::new();
    let figures = figures(asked, &mut runs.iter_mut().collect::<Vec<_>>(), &mut warnings)?;
    for (name, run) in names.iter().zip(&runs).skip(1) {
        let differs = runs[0].experiment_differs(run);
        warnings.extend(differs.map(|what| format!("{name}: its experiment is not that of {}: {what}", names[0])));
    }
    let mut found = Vec::new();
    for key in keys(&runs.iter().collect::<Vec<_>>()) {
        let samples = runs.iter_mut().map(|r| r.samples(&key)).collect::<anyhow::Result<Vec<_>>>()?;
        let empty = statistics::Rounds::new::<Vec<u64>>(&[]);
        let with: Vec<Machine<'_>> = names
            .iter()
            .zip(&samples)
            .map(|(name, rounds)| Machine { name, rounds: rounds.as_ref().unwrap_or(&empty) })
            .collect();
        found.extend(figures.iter().filter_map(|figure| compare_machines(&key, &with, *figure, least)));
    }
    if found.is_empty() {
        let what = format!("no figure is known of {fewest} machines");
        return Err(Failure::new(what, "p99 needs 1,000 samples of a cell; --metric p50 needs one").into());
    }
    if as_json {
        json(&terminal::comparison::machines_json(&found, &warnings))?;
    } else {
        to_stdout(|out| terminal::comparison::write_machines(out, &Style::of_stdout(), &found, &warnings))?;
    }
    let odd = found.iter().flat_map(|m| &m.standings).any(|s| s.outlier);
    Ok(ExitCode::from(u8::from(odd)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentage_has_its_sign() {
        assert_eq!(percent("0.5 %"), Ok(0.005));
        assert_eq!(percent("5%"), Ok(FAIL_ABOVE), "the default of --fail-above");
        for wrong in ["5", "", "%", "-1%", "nan%", "x%"] {
            assert!(percent(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn extremes_are_refused_with_a_reason() {
        assert_eq!(figure("p99.9"), Ok(Figure::P999));
        assert!(figure("max").is_err_and(|e| e.contains("interval")));
        assert!(figure("p98").is_err_and(|e| e.contains("p99.99")));
    }
}
