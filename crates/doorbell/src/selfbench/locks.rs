//! `doorbell selfbench locks`.

use crate::bench::result_file;
use selfbench::locks::{Limits, measure};
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
All ways take turns, round by round, each in a process of its own: the program itself, under `record --locks`, and under
`run --lock-policy` with each policy. `stock` has the agent in the program and every lock its own protocol.
`two clock readings` is what the CPU's clock costs alone, `pair, clock read twice` a pair with these inside: what a
recording that knows how long a lock was held cannot go below.")]
pub struct Args {
    /// Numbers to this file, whole or not at all (`-`, or nothing: standard output, and no table)
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    json: Option<PathBuf>,
    /// How often the ways take turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Pairs of each run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(4000..=100_000_000))]
    count: u32,
    /// Run the measured loops on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Exit with 1 if tracing adds more to a mutex's pair, ns
    #[arg(long, value_name = "NS")]
    at_most: Option<f64>,
    /// Exit with 1 if a policy adds more to a pair, ns (pi: twice as much)
    #[arg(long, value_name = "NS")]
    policies_at_most: Option<f64>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let out = self.json.as_deref().map(|p| result_file::open(p, 1 << 14)).transpose()?;
        let figures = measure(&super::plan(self.rounds, self.count, self.cpu)?, &|_| {})?;
        if out.as_ref().is_none_or(|o| !o.is_stdout()) {
            print!("{}", figures.table());
        }
        if let Some(out) = out {
            out.write(|to| Ok(writeln!(to, "{}", figures.json())?))?;
        }
        let missed = figures.misses(Limits { recording: self.at_most, policies: self.policies_at_most });
        for line in &missed {
            eprintln!("{line}");
        }
        Ok(ExitCode::from(u8::from(!missed.is_empty())))
    }
}
