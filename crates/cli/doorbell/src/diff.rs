//! `doorbell diff`: compares a program's locks on two recordings.

use crate::failure::Failure;
use crate::units;
use decode::Recording;
use schema::Document;
use schema::diff::Tolerance;
use schema::locks::Locks;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use terminal::json::or_text;
use terminal::table::Style;

/// Compare the lock patterns of two recordings
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell diff driver-570.doorbell driver-580.doorbell        which locks are new, gone, used otherwise
  doorbell diff stock.doorbell ticket.doorbell --top 5         the five that changed most
  doorbell diff a.doorbell b.doorbell --tolerance 0 --floor 0  every count
  doorbell diff a.doorbell b.doorbell --json | jq .equal

Locks are compared by name (module, place and kind). Where a library is of another version, a lock that is not there any
more and one that is used in the same way are taken for the same. Times are shown and never judged.

Exit status: 0 alike, 1 different, 2 an error.")]
pub struct Args {
    /// The first recording, made with `record --locks`
    #[arg(value_name = "FILE")]
    first: PathBuf,
    /// The second recording
    #[arg(value_name = "FILE")]
    second: PathBuf,
    /// Counts that differ by at most this many percent are alike
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = units::percent)]
    tolerance: f64,
    /// Counts that differ by at most this are alike, too
    #[arg(long, value_name = "N", default_value_t = 10)]
    floor: u64,
    /// Rows of each kind
    #[arg(long, value_name = "N", default_value_t = 20)]
    top: usize,
    /// JSON, numbers as numbers
    #[arg(long)]
    json: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (mut a, first) = locks(&self.first)?;
        let (mut b, second) = locks(&self.second)?;
        let tolerance = Tolerance { percent: self.tolerance, floor: self.floor };
        let diff = lock_analysis::diff(&a, &b, tolerance);
        if !self.json {
            symbols::of_variables(&mut a);
            symbols::of_variables(&mut b);
        }
        let style = Style::of_stdout();
        or_text(self.json, &Document::of(&diff), style, |out| {
            terminal::diff::write(&diff, (&a, &b), self.top, style, out)
        })?;
        for (path, locks) in [(&self.first, &a), (&self.second, &b)] {
            if locks.lost_events > 0 {
                say!("doorbell: {}: {} events are missing: its counts are too low", path.display(), locks.lost_events);
            }
        }
        crate::show::damage_of(&first)?;
        crate::show::damage_of(&second)?;
        Ok(ExitCode::from(u8::from(!diff.equal)))
    }
}

fn locks(path: &Path) -> anyhow::Result<(Locks, Recording)> {
    if path.is_dir() || path.extension().is_some_and(|e| e == "json") {
        let what = format!("{}: this is no recording", path.display());
        return Err(Failure::new(what, "`doorbell compare` compares runs of `doorbell bench`").into());
    }
    let recording = Recording::open(path)?;
    let locks = lock_analysis::all_recorded(&recording, 1, "a comparison")?;
    Ok((locks, recording))
}
