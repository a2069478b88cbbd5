//! `doorbell selfbench calls`.

use selfbench::calls::measure;
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
`two clock readings` is what the CPU's clock costs alone, `clock read twice` a bare call with these around it: what a recording
that knows how long a call took cannot go below. `over the clock` is what is left of a recorded call without them.")]
pub struct Args {
    /// Numbers instead of a table
    #[arg(long)]
    json: bool,
    /// How often bare, recorded and guarded calls take turns
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Calls of each run
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    count: u32,
    /// Run the measured loop on this CPU
    #[arg(long)]
    cpu: Option<usize>,
    /// Exit with 1 if recording adds more to a call, ns
    #[arg(long, value_name = "NS")]
    at_most: Option<f64>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let figures = measure(&super::plan(self.rounds, self.count, self.cpu)?, &|_| {})?;
        if self.json {
            println!("{}", figures.json());
        } else {
            print!("{}", figures.table());
        }
        let missed = self.at_most.is_some_and(|most| figures.added > most);
        if let Some(most) = self.at_most.filter(|_| missed) {
            eprintln!("recording adds {:.1} ns to a call, more than {most} ns", figures.added);
        }
        Ok(ExitCode::from(u8::from(missed)))
    }
}
