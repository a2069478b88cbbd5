//! `doorbell selfbench locks`.

use super::{Turns, measured};
use crate::help::Page;
use crate::{result, units};
use selfbench::locks::{Figures, Limits, measure};
use std::process::ExitCode;
use std::time::Duration;

/// Measure locks: what recording, and each policy, adds to an uncontended lock and its unlock
#[derive(Debug, clap::Args)]
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
pub struct Args {
    #[command(flatten)]
    result: result::Args,
    #[command(flatten)]
    turns: Turns,
    /// Pairs of each run
    #[arg(long, value_name = "N", default_value_t = 200_000,
        value_parser = clap::value_parser!(u32).range(4000..=100_000_000))]
    count: u32,
    /// Exit with 1 if recording adds more to a mutex's pair, for example 30ns
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    at_most: Option<Duration>,
    /// Exit with 1 if a policy adds more to a pair, for example 15ns (pi: twice as much)
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    policies_at_most: Option<Duration>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.turns.plan(self.count)?;
        let figures = measured(&self.result, |tell| measure(&plan, tell), Figures::json, Figures::table)?;
        let ns = |most: Option<Duration>| most.map(units::nanoseconds);
        let missed = figures.misses(Limits { recording: ns(self.at_most), policies: ns(self.policies_at_most) });
        for line in &missed {
            say!("{line}");
        }
        Ok(ExitCode::from(u8::from(!missed.is_empty())))
    }
}
