//! `doorbell selfbench tap`.

use crate::preload;
use anyhow::Context;
use selfbench::Mode;
use selfbench::tap::{Options, measure};
use std::ffi::OsString;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
pub struct Args {
    /// Numbers instead of a table
    #[arg(long)]
    json: bool,
    /// Write the numbers to this file as well
    #[arg(long, value_name = "FILE")]
    json_file: Option<std::path::PathBuf>,
    /// How often bare, rewritten and trapped take turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Doorbells (and CUDA calls) of each run
    #[arg(long, default_value_t = 10_000, value_parser = clap::value_parser!(u32).range(100..=10_000_000))]
    count: u32,
    /// Run the measured programs on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Leave the trapped runs out
    #[arg(long)]
    no_trap: bool,
    /// Exit with 1 if the rewritten tap's median doorbell takes longer, ns
    #[arg(long, value_name = "NS")]
    at_most: Option<u64>,
    /// Measure this program instead
    #[arg(last = true, value_name = "PROGRAM")]
    command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let figures = measure(
            &Options {
                plan: super::plan(self.rounds, self.count, self.cpu)?,
                softgpu: preload::SOFTGPU,
                with_trap: !self.no_trap,
                command: self.command,
            },
            &|_| {},
        )?;
        if let Some(f) = &self.json_file {
            std::fs::write(f, format!("{:#}\n", figures.json())).with_context(|| f.display().to_string())?;
        }
        if self.json {
            println!("{}", figures.json());
        } else {
            print!("{}", figures.table());
        }
        let missed = self.at_most.zip(figures.doorbell_ns(Mode::Patch)).is_some_and(|(most, p)| p > most);
        if let Some(most) = self.at_most.filter(|_| missed) {
            eprintln!("the rewritten tap's median doorbell takes more than {most} ns");
        }
        Ok(ExitCode::from(u8::from(missed)))
    }
}
