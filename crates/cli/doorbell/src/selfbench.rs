//! `doorbell selfbench`: what doorbell itself costs, compared with the bare program in the same run.

use crate::help::Page;
use crate::progress::Progress;
use crate::{preload, result, units};
use anyhow::Context;
use output::WholeFile;
use selfbench::subjects::{CALLS, Figures, LOCKS, Limits, RANGES, Subject};
use selfbench::{Plan, tap};
use serde_json::Value;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use terminal::table::to_stdout;

/// Measure what doorbell itself costs
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell selfbench tap", "one doorbell bare, rewritten and trapped"),
        ("doorbell selfbench locks --at-most 30ns", "what recording and each policy add to a lock and its unlock"),
        ("doorbell selfbench calls --at-most 40ns", "what recording and the guard add to a CUDA call"),
        ("doorbell selfbench ranges", "what recording adds to a range of NVTX"),
    ])
    .text("Bare and doorbell's runs take turns, round by round, so that a machine that changes its speed changes it for all.")
    .statuses(&[(0, "done"), (1, "more than --at-most"), (2, "an error")])
)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure the doorbell tap: one new entry of 64 words
    #[command(after_help = Page::examples(&[
        ("doorbell selfbench tap --json --rounds 20", ""),
        ("doorbell selfbench tap -o tap.json --at-most 500ns", ""),
        (r#"doorbell selfbench tap python3 train.py"#, r#"any program that prints {"loops":{"step":{"p50_ns":N}}}"#),
    ]))]
    Tap(Tap),
    /// Measure locks: what recording, and each policy, adds to an uncontended lock and its unlock
    #[command(
        after_help = Page::examples(&[
            ("doorbell selfbench locks", "about a minute"),
            ("doorbell selfbench locks --at-most 30ns --policies-at-most 15ns -o locks.json", ""),
        ])
        .text("All ways take turns, each in a process of its own: the program itself, under `record --locks` (`traced`), under `record --locks=waits` (`waits`), and under `run \
               --lock-policy` with each policy. `stock` has the agent in the program and every lock its own protocol.")
        .text("`two clock readings` is what the CPU's clock costs alone. `pair, clock read twice` is a pair with these inside: a \
               recording that knows how long a lock was held cannot cost less. `first way round the ring` is what a thread's first 200,000 \
               pairs cost, while the recorder allocates the memory that they are written to; the figures above are of later ones.")
    )]
    Locks(Locks),
    /// Measure CUDA calls: what recording and the guard add to a call that does nothing
    #[command(
        after_help = Page::examples(&[("doorbell selfbench calls --at-most 40ns", "")])
        .text("`two clock readings` is what the CPU's clock costs alone. `clock read twice` is a bare call with these around it: \
               a recording that knows how long a call took cannot cost less. `over the clock` is what is left of a recorded \
               call without them.")
    )]
    Calls(Turns),
    /// Measure ranges of NVTX: what recording adds to a push and its pop
    #[command(
        after_help = Page::examples(&[("doorbell selfbench ranges --at-most 200ns", "")])
        .text("`bare` is what NVTX costs in a program where nobody records: two pointers that are null.")
    )]
    Ranges(Turns),
    /// (The loop that `calls` measures, as a program of its own.)
    #[command(hide = true)]
    CallLoop(Loop),
    /// (The loop that `ranges` measures, as a program of its own.)
    #[command(hide = true)]
    RangeLoop(Loop),
    /// (The loops that `locks` measures, as a program of their own.)
    #[command(hide = true)]
    Pairs(Loop),
    /// (The loop that `tap` measures, as a program of its own.)
    #[command(hide = true)]
    Ring(Loop),
}

/// A measured loop
#[derive(Debug, clap::Args)]
struct Loop {
    /// Iterations
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    count: u32,
    /// Run on this CPU only, for example 4
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

// Arguments of every measurement. (As a doc comment it would become the text of the command it is part of.)
#[derive(Debug, clap::Args)]
struct Turns {
    /// Print the result as JSON, without a table
    #[arg(long)]
    json: bool,
    /// Write the result as JSON to this file, whole or not at all; the name takes %h, %p, %n, %q{VAR} (for example result-%n.json)
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file of --out if it exists
    #[arg(long, requires = "out")]
    force: bool,
    /// How often the ways take turns
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Run the measured programs on this CPU only, for example 4
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
    /// Iterations of each loop in a run [default: 10000 doorbells, 100000 ranges, 200000 calls or pairs]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(100..=100_000_000))]
    count: Option<u32>,
    /// Exit with 1 if recording adds more (of `tap`: if the rewritten tap's median doorbell takes longer), for example 40ns
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    at_most: Option<Duration>,
}

#[derive(Debug, clap::Args)]
struct Tap {
    #[command(flatten)]
    turns: Turns,
    /// Leave the trapped runs out
    #[arg(long)]
    no_trap: bool,
    /// Measure this program instead, for example python3 train.py
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
struct Locks {
    #[command(flatten)]
    turns: Turns,
    /// Exit with 1 if a policy adds more to a pair, for example 15ns (pi: twice as much)
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    policies_at_most: Option<Duration>,
}

impl Turns {
    fn plan(&self, count: u32) -> anyhow::Result<Plan> {
        let doorbell = std::env::current_exe().context("where doorbell itself lies")?;
        Ok(Plan { doorbell, rounds: self.rounds, count: self.count.unwrap_or(count), cpu: self.cpu })
    }

    /// Measures with the progress on standard error, and writes the figures where the user wants them.
    fn measured<F>(
        &self,
        measure: impl FnOnce(&dyn Fn(&str)) -> anyhow::Result<F>,
        json: fn(&F) -> Value,
        table: fn(&F) -> String,
    ) -> anyhow::Result<F> {
        // Before the measurement.
        let open = |path: &PathBuf| {
            result::is_file("--out", path, "--json prints the result to standard output")?;
            Ok::<_, anyhow::Error>(WholeFile::open(path, 1 << 14, self.force)?)
        };
        let file = self.out.as_ref().map(open).transpose()?;
        let progress = Progress::new();
        let figures = measure(&|text| progress.show(text))?;
        drop(progress);
        let json = format!("{}\n", json(&figures));
        if let Some(mut file) = file {
            let written = file.write(|to| to.write_all(json.as_bytes()));
            written.with_context(|| format!("{} was not written", file.path().display()))?;
        }
        let text = if self.json { json } else { table(&figures) };
        to_stdout(|to| to.write_all(text.as_bytes()))?;
        Ok(figures)
    }

    /// Exit status 1 if a figure is over its limit.
    fn run(&self, subject: &'static Subject, count: u32, policies: Option<Duration>) -> anyhow::Result<ExitCode> {
        let plan = self.plan(count)?;
        let measure = |tell: &dyn Fn(&str)| subject.measure(&plan, &preload::SOFTGPU, tell);
        let figures = self.measured(measure, Figures::json, Figures::table)?;
        let ns = |most: Option<Duration>| most.map(units::nanoseconds);
        let missed = figures.misses(Limits { recording: ns(self.at_most), policies: ns(policies) });
        missed.iter().for_each(|line| say!("{line}"));
        Ok(ExitCode::from(u8::from(!missed.is_empty())))
    }
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Tap(t) => return t.run(),
            What::Locks(l) => return l.turns.run(&LOCKS, 200_000, l.policies_at_most),
            What::Calls(t) => return t.run(&CALLS, 200_000, None),
            What::Ranges(t) => return t.run(&RANGES, 100_000, None),
            What::RangeLoop(l) => selfbench::ranges::run(l.count, l.cpu)?,
            What::Pairs(l) => selfbench::pairs::run(l.count, l.cpu)?,
            What::CallLoop(l) => selfbench::calls::run(l.count, l.cpu)?,
            What::Ring(l) => selfbench::ring_loop::run(l.count, l.cpu)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Tap {
    fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.turns.plan(10_000)?;
        let measure = |tell: &dyn Fn(&str)| tap::measure(&plan, &preload::SOFTGPU, !self.no_trap, self.command, tell);
        let figures = self.turns.measured(measure, tap::Figures::json, tap::Figures::table)?;
        let most = self.turns.at_most.map(|most| most.as_nanos() as u64);
        let missed = most.zip(figures.doorbell_ns("patch")).filter(|(most, p)| p > most);
        if let Some((most, p)) = missed {
            say!("the rewritten tap's median doorbell takes {p} ns, more than {most} ns");
        }
        Ok(ExitCode::from(u8::from(missed.is_some())))
    }
}
