//! `doorbell bench noise`: what the machine adds by itself.

use super::{Where, result_file, seconds};
use lab::clock::Clock;
use report::table::{Style, to_stdout};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// What the machine adds by itself: late wakeups, and gaps of a busy thread
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell bench noise --seconds 60 --cpu 4 --fifo
  doorbell bench noise --json noise.json

No transfer on this CPU can be expected to be steadier. Half of the time sleeps to deadlines a
millisecond apart and says how late it woke; half reads the clock without a pause and says how
long it was kept from it.")]
pub struct Args {
    /// How long, both probes together
    #[arg(long, value_name = "SECONDS", default_value = "10", value_parser = seconds)]
    seconds: Duration,
    #[command(flatten)]
    place: Where,
    /// Write the result to this file, whole or not at all (`-`: standard output, and no table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.place.check()?;
        let json = self.json.as_deref().map(|p| result_file::open(p, 4096)).transpose()?;
        let clock = Clock::new();
        let noise = lab::noise::measure(&clock, self.place.wish(), self.seconds);
        if json.as_ref().is_none_or(|j| !j.is_stdout()) {
            let style = Style::of_stdout();
            to_stdout(|out| report::bench::write_noise(out, &style, &noise))?;
        }
        if let Some(j) = json {
            j.write(|out| {
                let mut v = report::bench::noise(&noise);
                v["clock_reading_ns"] = clock.reading_ns().into();
                Ok(writeln!(out, "{v:#}")?)
            })?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
