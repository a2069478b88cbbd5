//! `doorbell doctor`: tries what works on this machine.

use crate::help::Page;
use environment::{Environment, Gpu};
use std::process::ExitCode;

/// Try what works on this machine and, for each thing that does not, say why
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell doctor", "one line for each thing that was tried"),
        ("doorbell doctor --json", "for programs; `possible` says whether recording is, `peers` which devices may write to which GPU"),
        ("doorbell doctor --no-try", "without a channel of doorbell's own on the GPU"),
    ])
    .statuses(&[(0, "a CUDA program can be recorded here"), (77, "it cannot")])
)]
pub struct Args {
    /// Print JSON instead of lines
    #[arg(long)]
    json: bool,
    /// Skip the live channel test
    #[arg(long)]
    no_try: bool,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let checks = doctor::examine(!self.no_try);
        let possible = doctor::possible(&checks);
        let environment = Environment::gather(Gpu::Real { pci: None }, None, Vec::new());
        let warnings = environment.warnings();
        if self.json {
            let peers = doctor::pairs();
            let all =
                serde_json::json!({ "possible": possible, "checks": checks, "warnings": warnings, "peers": peers });
            terminal::json::print(&all)?;
        } else {
            terminal::checks::print(&checks, possible, &warnings)?;
        }
        Ok(ExitCode::from(if possible { 0 } else { crate::IMPOSSIBLE }))
    }
}
