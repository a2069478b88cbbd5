//! `doorbell selfbench launches`.

use super::measured;
use crate::help::Page;
use crate::{preload, result};
use anyhow::Context;
use selfbench::launches::{Figures, Options, measure};
use std::process::ExitCode;

/// Measure many launches a second: what is lost, and what each costs
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[("doorbell selfbench launches --most-instructions 3000", "fails if the agent adds more instructions to a launch")])
    .text("Threads launch on the software GPU as fast as they can, bare and recorded. `instructions` are what the agent adds to a \
           launch, by single steps: the same on every machine. `recorder` is the CPU time of its threads for each launch. \
           The rates are of this machine, of which the software GPU takes a part.")
)]
pub struct Args {
    #[command(flatten)]
    result: result::Args,
    /// How often the ways take turns
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Threads that launch, each on a channel
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Launches of each thread
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    count: u32,
    /// Exit with 1 if the agent adds more instructions to a launch, for example 3000
    #[arg(long, value_name = "N")]
    most_instructions: Option<u64>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let options = Options {
            doorbell: std::env::current_exe().context("where doorbell itself lies")?,
            softgpu: preload::SOFTGPU,
            rounds: self.rounds,
            threads: self.threads,
            count: self.count,
        };
        let figures = measured(&self.result, |tell| measure(&options, tell), Figures::json, Figures::table)?;
        let Some(most) = self.most_instructions else { return Ok(ExitCode::SUCCESS) };
        let added = figures.instructions().context("--most-instructions: the instructions were not counted")?;
        if added > most {
            say!("the agent adds {added} instructions to a launch, more than {most}");
        }
        Ok(ExitCode::from(u8::from(added > most)))
    }
}
