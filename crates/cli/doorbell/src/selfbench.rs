//! `doorbell selfbench`: what doorbell itself costs, compared with the bare program in the same run.

mod calls;
mod launches;
mod locks;
mod ranges;
mod tap;

use crate::help::Page;
use crate::progress::Progress;
use crate::result;
use anyhow::Context;
use serde_json::Value;
use std::process::ExitCode;

/// Measure what doorbell itself costs
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell selfbench tap", "one doorbell bare, rewritten and trapped"),
        ("doorbell selfbench locks --at-most 30ns", "what recording and each policy add to a lock and its unlock"),
        ("doorbell selfbench calls --at-most 40ns", "what recording and the guard add to a CUDA call"),
        ("doorbell selfbench ranges", "what recording adds to a range of NVTX"),
        ("doorbell selfbench launches", "eight threads that launch: what is lost, and the agent's instructions"),
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
    Tap(tap::Args),
    Locks(locks::Args),
    Calls(calls::Args),
    Ranges(ranges::Args),
    Launches(launches::Args),
    /// (The loop that `launches` measures, as a program of its own.)
    #[command(hide = true)]
    LaunchLoop(LaunchLoop),
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

/// Threads that launch
#[derive(Debug, clap::Args)]
struct LaunchLoop {
    /// Threads, each on a channel
    #[arg(long, value_name = "N", default_value_t = 8)]
    threads: u32,
    /// Launches of each thread
    #[arg(long, value_name = "N", default_value_t = 10_000)]
    count: u32,
    /// Launch until killed, to be stepped through
    #[arg(long)]
    steps: bool,
}

// Arguments of every measurement. (As a doc comment it would become the text of the command it is part of.)
#[derive(Debug, clap::Args)]
struct Turns {
    /// How often the ways take turns
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Run the measured programs on this CPU only, for example 4
    #[arg(long, value_name = "N")]
    cpu: Option<usize>,
}

impl Turns {
    fn plan(&self, count: u32) -> anyhow::Result<selfbench::Plan> {
        let doorbell = std::env::current_exe().context("where doorbell itself lies")?;
        Ok(selfbench::Plan { doorbell, rounds: self.rounds, count, cpu: self.cpu })
    }
}

/// Measures with the progress on standard error, and writes the figures where the user wants them.
fn measured<F>(
    result: &result::Args,
    measure: impl FnOnce(&dyn Fn(&str)) -> anyhow::Result<F>,
    json: fn(&F) -> Value,
    table: fn(&F) -> String,
) -> anyhow::Result<F> {
    let out = result.open(1 << 14)?;
    let progress = Progress::new();
    let figures = measure(&|text| progress.show(text))?;
    drop(progress);
    out.write(|to| Ok(writeln!(to, "{}", json(&figures))?), |to| Ok(write!(to, "{}", table(&figures))?))?;
    Ok(figures)
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Tap(t) => return t.run(),
            What::Locks(l) => return l.run(),
            What::Calls(c) => return c.run(),
            What::Ranges(r) => return r.run(),
            What::Launches(l) => return l.run(),
            What::LaunchLoop(l) => selfbench::launch_loop::run(l.threads, l.count, l.steps)?,
            What::RangeLoop(l) => selfbench::ranges::run_loop(l.count, l.cpu)?,
            What::Pairs(l) => selfbench::pairs::run(l.count, l.cpu)?,
            What::CallLoop(l) => selfbench::calls::run_loop(l.count, l.cpu)?,
            What::Ring(l) => selfbench::ring_loop::run(l.count, l.cpu)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}
