//! `doorbell selfbench calls`.

use super::{Turns, measured};
use crate::help::Page;
use crate::{result, units};
use selfbench::calls::{Figures, measure};
use std::process::ExitCode;
use std::time::Duration;

/// Measure CUDA calls: what recording and the guard add to a call that does nothing
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[("doorbell selfbench calls --at-most 40ns", "")])
    .text("`two clock readings` is what the CPU's clock costs alone. `clock read twice` is a bare call with these around it: \
           a recording that knows how long a call took cannot cost less. `over the clock` is what is left of a recorded \
           call without them.")
)]
pub struct Args {
    #[command(flatten)]
    result: result::Args,
    #[command(flatten)]
    turns: Turns,
    /// Calls of each run
    #[arg(long, value_name = "N", default_value_t = 200_000,
        value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    count: u32,
    /// Exit with 1 if recording adds more to a call, for example 40ns
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    at_most: Option<Duration>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plan = self.turns.plan(self.count)?;
        let figures = measured(&self.result, |tell| measure(&plan, tell), Figures::json, Figures::table)?;
        let missed = self.at_most.map(units::nanoseconds).filter(|most| figures.added > *most);
        if let Some(most) = missed {
            say!("recording adds {:.1} ns to a call, more than {most} ns", figures.added);
        }
        Ok(ExitCode::from(u8::from(missed.is_some())))
    }
}
