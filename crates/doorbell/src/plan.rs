//! `doorbell plan`: from what a tape says of its locks to a plan for `run --lock-policy`.

use crate::failure::Failure;
use insight::Recording;
use std::path::PathBuf;
use std::process::ExitCode;

/// Write a plan for `run --lock-policy` from what a recording says of its locks
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell record --locks -- ./app && doorbell plan app.doorbell > plan.toml
  doorbell run --lock-policy plan.toml -- ./app

A lock gets a rule where the recording shows a wait that its policy shortens:
  pi          a thread of real-time priority waited for one of lower priority that inheritance would have sped up
  ticket      others were faster: a wait of more than four times the longest hold; not where the usual wait
              is shorter than a hand-over takes (10 us), which every wait would cost then
  phase-fair  the same of a rwlock
All others keep their own protocol; those that waited are listed as comments, with the reason.")]
pub struct Args {
    /// The recording (of `record --locks`)
    file: PathBuf,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let recording = Recording::open(&self.file)?;
        let locks = lock_analysis::locks(&recording, 0)?;
        if !locks.recorded {
            let what = format!("{}: has no locks on it", self.file.display());
            return Err(Failure::new(what, "record it with `doorbell record --locks`").into());
        }
        print!("{}", advice::plan(&locks));
        crate::show::damage_of(&recording)
    }
}
