//! `doorbell doctor`: what works on this machine, found by trying it.

use std::process::ExitCode;

/// What works on this machine and, for each thing that does not, why.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell doctor            one line for each thing that was tried
  doorbell doctor --json     the same for a program; `possible` says whether recording is
  doorbell doctor --no-try   without a channel and a copy of 8 bytes of our own on the GPU

Exit status: 0 if a CUDA program can be recorded here, 77 if not.")]
pub struct Args {
    /// JSON instead of lines.
    #[arg(long)]
    json: bool,
    /// Make no channel of our own to see whether it is possible.
    #[arg(long)]
    no_try: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let checks = doctor::examine(!self.no_try);
        let possible = doctor::possible(&checks);
        if self.json {
            report::json::print(&serde_json::json!({ "possible": possible, "checks": checks }))?;
        } else {
            report::checks::print(&checks, possible)?;
        }
        Ok(ExitCode::from(if possible { 0 } else { crate::IMPOSSIBLE }))
    }
}
