//! `doorbell compare`: whether one run is slower than another, and which of many machines is an outlier.

use crate::failure::Failure;
use crate::help::Page;
use crate::units;
use comparison::ranks::Jobs;
use comparison::{Comparison, Heading, Limits, Loaded, Overall, compare_nodes, compare_runs};
use statistics::Figure;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
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
    /// Judge the ranks of a job by their totals: JSON from standard input, for doorbell.fleet
    #[arg(long, hide = true, exclusive = true)]
    ranks: bool,
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
            _ if self.ranks => {
                let jobs: Jobs = serde_json::from_str(&std::io::read_to_string(std::io::stdin())?)?;
                terminal::json::print(&jobs.judged())?;
                Ok(ExitCode::SUCCESS)
            }
            _ => self.many(),
        }
    }

    fn two(&self, a: &Path, b: &Path) -> anyhow::Result<ExitCode> {
        let limits = Limits::new(self.fail_above, self.fail_above_tail);
        let (heading, comparison) = compare_runs(&mut Loaded::open(a)?, &mut Loaded::open(b)?, &self.metric, limits)?;
        self.write(&heading, &comparison)?;
        if comparison.overall() == Overall::Nothing && heading.commands.is_empty() {
            let hint = "no cell has samples in both: are these runs of the same experiment?";
            return Err(Failure::new("nothing in the two runs can be compared", hint).into());
        }
        let (decided, due) = comparison.decided();
        let undecided = self.fail_undecided && decided < due;
        Ok(ExitCode::from(u8::from(comparison.fails() || undecided)))
    }

    /// Exit status 1 if a machine is an outlier.
    fn many(&self) -> anyhow::Result<ExitCode> {
        let (found, warnings) = compare_nodes(&self.nodes, &self.metric, self.fail_above)?;
        if self.json {
            terminal::json::print(&terminal::comparison::machines_json(&found, &warnings))?;
        } else {
            to_stdout(|out| terminal::comparison::write_machines(out, &Style::of_stdout(), &found, &warnings))?;
        }
        let odd = found.iter().flat_map(|m| &m.standings).any(|s| s.outlier);
        Ok(ExitCode::from(u8::from(odd)))
    }

    fn write(&self, heading: &Heading, comparison: &Comparison) -> anyhow::Result<()> {
        if let Some(path) = &self.junit {
            let xml = terminal::comparison::junit(heading, comparison)?;
            written("--junit", path, |out| out.write_all(xml.as_bytes()))?;
        }
        if let Some(path) = &self.markdown {
            written("--markdown", path, |out| terminal::comparison::write_markdown(out, heading, comparison))?;
        }
        if self.json {
            return Ok(terminal::json::print(&terminal::comparison::json(heading, comparison))?);
        }
        Ok(to_stdout(|out| terminal::comparison::write(out, &Style::of_stdout(), heading, comparison))?)
    }
}

fn written(option: &str, path: &Path, f: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> anyhow::Result<()> {
    crate::result::is_file(option, path, "it is written beside what goes to standard output")?;
    let done = output::replace(path, |file| f(file));
    done.map_err(|e| anyhow::Error::new(e).context(format!("{} was not written", path.display())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use comparison::FAIL_ABOVE;

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
