//! `doorbell bench noise`: delays that the machine itself causes.

use super::Where;
use crate::help::Page;
use crate::progress::Progress;
use crate::{result, units};
use measure::clock::Clock;
use std::process::ExitCode;
use std::time::Duration;
use terminal::table::Style;

/// Measure what the machine adds by itself: late wakeups, and gaps of a busy thread
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell bench noise --duration 60s --cpu 4 --fifo", ""),
        ("doorbell bench noise -o noise.json", ""),
    ])
    .text("No transfer on this CPU can be expected to be steadier. Half of the time the thread sleeps to deadlines a \
           millisecond apart, and the lateness of its wakeups is measured; half of the time it reads the clock without a \
           pause, and the gaps are measured.")
)]
pub struct Args {
    /// How long, both probes together
    #[arg(long, value_name = units::TIME, default_value = "10s", value_parser = units::time)]
    duration: Duration,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    result: result::Args,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        self.place.check()?;
        let out = self.result.open(4096)?;
        let clock = Clock::new();
        let progress = Progress::new();
        progress.show("measuring");
        let noise = measure::noise::measure(&clock, self.place.wish(), self.duration);
        drop(progress);
        out.write(
            |out| {
                let mut v = terminal::noise::json(&noise);
                v["clock_reading_ns"] = clock.reading_ns().into();
                Ok(writeln!(out, "{v:#}")?)
            },
            |out| terminal::noise::write(out, &Style::of_stdout(), &noise),
        )?;
        Ok(ExitCode::SUCCESS)
    }
}
