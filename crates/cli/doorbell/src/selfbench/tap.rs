//! `doorbell selfbench tap`.

use super::{Turns, measured};
use crate::help::Page;
use crate::{preload, result, units};
use selfbench::Mode;
use selfbench::tap::{Figures, Options, measure};
use std::ffi::OsString;
use std::process::ExitCode;
use std::time::Duration;

/// Measure the doorbell tap: one new entry of 64 words
#[derive(Debug, clap::Args)]
#[command(after_help = Page::examples(&[
    ("doorbell selfbench tap --json --rounds 20", ""),
    ("doorbell selfbench tap -o tap.json --at-most 500ns", ""),
    (r#"doorbell selfbench tap python3 train.py"#, r#"any program that prints {"loops":{"step":{"p50_ns":N}}}"#),
]))]
pub struct Args {
    #[command(flatten)]
    result: result::Args,
    #[command(flatten)]
    turns: Turns,
    /// Doorbells (and CUDA calls) of each run
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    count: u32,
    /// Leave the trapped runs out
    #[arg(long)]
    no_trap: bool,
    /// Exit with 1 if the rewritten tap's median doorbell takes longer, for example 500ns
    #[arg(long, value_name = units::TIME, value_parser = units::time)]
    at_most: Option<Duration>,
    /// Measure this program instead, for example python3 train.py
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let options = Options {
            plan: self.turns.plan(self.count)?,
            softgpu: preload::SOFTGPU,
            with_trap: !self.no_trap,
            command: self.command,
        };
        let figures = measured(&self.result, |tell| measure(&options, tell), Figures::json, Figures::table)?;
        let most = self.at_most.map(|most| most.as_nanos() as u64);
        let missed = most.zip(figures.doorbell_ns(Mode::Patch)).filter(|(most, p)| p > most);
        if let Some((most, p)) = missed {
            say!("the rewritten tap's median doorbell takes {p} ns, more than {most} ns");
        }
        Ok(ExitCode::from(u8::from(missed.is_some())))
    }
}
