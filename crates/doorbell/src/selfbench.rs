//! `doorbell selfbench`: what doorbell itself costs, against the bare thing in the same run.

mod calls;
mod locks;
mod tap;

use anyhow::Context;
use std::process::ExitCode;

/// Measure what doorbell itself costs
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell selfbench tap                         one doorbell bare, rewritten and trapped; on a GPU CUDA's loops too
  doorbell selfbench tap --json --rounds 20
  doorbell selfbench locks --at-most 30          what `record --locks`, and each policy, adds to a lock and its unlock
  doorbell selfbench calls --at-most 40          what `record --calls` and the guard add to a call of CUDA
  doorbell selfbench tap -- python3 train.py     any program that prints {\"loops\":{\"step\":{\"p50_ns\":N,...}}}

Bare, rewritten and trapped runs take turns, round by round, so that a machine that changes its speed changes it for all.
Exit status 1 if --at-most was given and the rewritten tap costs more.")]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// The doorbell tap: one new entry of 64 dwords
    Tap(tap::Args),
    /// Locks: what recording, and each policy, adds to an uncontended lock and its unlock
    Locks(locks::Args),
    /// Recording of CUDA's calls, and the guard: a call that does nothing
    Calls(calls::Args),
    /// (The loop that `calls` measures, as a program of its own.)
    #[command(hide = true)]
    CallLoop(Loop),
    /// (The loops that `locks` measures, as a program of their own.)
    #[command(hide = true)]
    Pairs(Loop),
    /// (The loop that `tap` measures, as a program of its own.)
    #[command(hide = true)]
    Ring(Loop),
}

/// A measured loop.
#[derive(Debug, clap::Args)]
struct Loop {
    #[arg(long, default_value_t = 10_000)]
    count: u32,
    #[arg(long)]
    cpu: Option<usize>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        match self.what {
            What::Tap(t) => return t.run(),
            What::Locks(l) => return l.run(),
            What::Calls(c) => return c.run(),
            What::Pairs(l) => selfbench::pairs::run(l.count, l.cpu)?,
            What::CallLoop(l) => selfbench::calls::run_loop(l.count, l.cpu)?,
            What::Ring(l) => selfbench::ring_loop::run(l.count, l.cpu)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn plan(rounds: u32, count: u32, cpu: Option<usize>) -> anyhow::Result<selfbench::Plan> {
    let doorbell = std::env::current_exe().context("where doorbell itself lies")?;
    Ok(selfbench::Plan { doorbell, rounds, count, cpu })
}
