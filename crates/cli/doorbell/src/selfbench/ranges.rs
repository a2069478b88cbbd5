//! `doorbell selfbench ranges`.

use super::{Turns, measured};
use crate::help::Page;
use crate::{result, units};
use selfbench::ranges::{Figures, measure};
use std::process::ExitCode;
use std::time::Duration;

/// Measure ranges of NVTX: what recording adds to a push and its pop
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[("doorbell selfbench ranges --at-most 200ns", "")])
    .text("`bare` is what NVTX costs in a program where nobody records: two pointers that are null.")
)]
pub struct Args {
    #[command(flatten)]
    result: result::Args,
    #[command(flatten)]
    turns: Turns,
    /// Ranges of each kind in each run
    #[arg(long, value_name = "N", default_value_t = 100_000,
        value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    count: u32,
    /// Exit with 1 if recording adds more to a range, for example 200ns
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    at_most: Option<Duration>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.turns.plan(self.count)?;
        let figures = measured(&self.result, |tell| measure(&plan, tell), Figures::json, Figures::table)?;
        let missed = self.at_most.map(units::nanoseconds).filter(|most| figures.added() > *most);
        if let Some(most) = missed {
            say!("recording adds {:.1} ns to a range, more than {most} ns", figures.added());
        }
        Ok(ExitCode::from(u8::from(missed.is_some())))
    }
}
