//! `doorbell demo`: records a small program that stalls, says why, and shows what removes the stall, on any machine.

mod commands;
mod stall;

use crate::failure::Failure;
use crate::help::Page;
use crate::record::{self, CaptureArg, Gpu, LocksArg, OnFull, TapArg};
use anyhow::Context;
use clap::ValueEnum;
use recorder::Outcome;
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// See a program that stalls, why, and what removes the stall: on the real GPU if there is one, else on the software GPU
#[derive(Debug, clap::Args)]
#[command(
    after_help = Page::examples(&[
        ("doorbell demo", "writes doorbell-demo.doorbell and a page of it, doorbell-demo.html"),
        ("doorbell demo --commands", "what a driver sends to a GPU, instead"),
        ("doorbell demo --gpu soft --tap trap -o /tmp/demo.doorbell", ""),
    ])
    .statuses(&[(0, "done"), (2, "an error"), (77, "not possible on this machine (`--gpu real` without a GPU)")])
)]
pub struct Args {
    /// Write the recording to this file; the name takes %h, %p, %n, %q{VAR} [default: doorbell-demo.doorbell, then
    /// doorbell-demo.2.doorbell and so on]
    #[arg(short, long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Replace the file if it exists
    #[arg(long)]
    force: bool,
    /// Record copies and kernels, and show the commands that a driver sends for them
    #[arg(long)]
    commands: bool,
    /// How doorbells are seen
    #[arg(long, value_enum, value_name = "TAP", default_value_t = TapArg::Auto)]
    tap: TapArg,
    /// Which GPU
    #[arg(long, value_enum, value_name = "GPU", default_value_t = Which::Auto)]
    gpu: Which,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Which {
    /// The real one if there is one, else the software GPU
    Auto,
    /// This machine's GPU
    Real,
    /// doorbell's GPU in software
    Soft,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let (gpu, why) = self.which()?;
        let claim = record::claim_result(self.out.as_deref(), "doorbell-demo.doorbell".as_ref(), self.force)?;
        let out = claim.path().to_owned();
        let done = say(&[&format!("{why}.")]).and_then(|()| self.show(gpu, &out));
        if done.is_err() {
            claim.give_up();
        }
        match done {
            // A reader that stops reading is no error.
            Err(e) if e.downcast_ref::<io::Error>().is_some_and(|e| e.kind() == io::ErrorKind::BrokenPipe) => {
                Ok(ExitCode::SUCCESS)
            }
            done => done,
        }
    }

    fn show(&self, gpu: Gpu, out: &Path) -> anyhow::Result<ExitCode> {
        let done = if self.commands { self.commands(gpu, out) } else { self.stall(gpu, out) };
        let is_impossible = |e: &anyhow::Error| e.downcast_ref::<Failure>().is_some_and(Failure::is_impossible);
        if gpu == Gpu::Real && self.gpu == Which::Auto && done.as_ref().is_err_and(is_impossible) {
            say(&["The GPU cannot be used (the reason is above): the software GPU instead."])?;
            return self.show(Gpu::Soft, out);
        }
        done
    }

    /// The GPU to use, and the reason.
    fn which(&self) -> anyhow::Result<(Gpu, String)> {
        let version = recorder::driver_version();
        let known = version.as_deref().map(|v| rm::abi::Abi::for_own_channels(v, gpu::accepts_unverified()));
        Ok(match (self.gpu, version, known) {
            (Which::Soft, ..) => (Gpu::Soft, "On the software GPU, as asked".into()),
            (_, Some(v), Some(Ok(_))) => (Gpu::Real, format!("On this machine's GPU, driver {v}")),
            (Which::Real, _, Some(Err(e))) => return Err(e).context("--gpu real"),
            (Which::Real, ..) => {
                let why = "no NVIDIA driver on this machine (/proc/driver/nvidia/version is not there)";
                return Err(Failure::impossible(why, "`--gpu soft` needs none").into());
            }
            (Which::Auto, _, Some(Err(e))) => (Gpu::Soft, format!("On the software GPU: {e}")),
            (Which::Auto, ..) => (Gpu::Soft, "On the software GPU: this machine has no NVIDIA driver".into()),
        })
    }

    /// # Errors
    /// The program failed, or found no GPU that it can use.
    fn record(
        &self,
        gpu: Gpu,
        locks: Option<LocksArg>,
        command: Vec<OsString>,
        file: &Path,
    ) -> anyhow::Result<Outcome> {
        let args = record::Args {
            out: Some(file.to_owned()),
            force: true,
            tap: self.tap,
            locks,
            python: false,
            gpu_times: false,
            no_switches: false,
            calls: false,
            no_calls: false,
            nvtx: false,
            no_nvtx: false,
            fix: None,
            capture: CaptureArg::Always,
            dormant: false,
            on_full: OnFull::Gap,
            ring: 8 << 20,
            memory: None,
            wait: false,
            no_data: false,
            no_args: false,
            max_size: None,
            rotate: None,
            flight: Default::default(),
            agent_dir: None,
            gpu,
            quiet: true,
            command,
        };
        let outcome = args.record(file)?;
        if outcome.status.code() == Some(crate::IMPOSSIBLE.into()) {
            let why = "the recorded program found no GPU that it can use (its reason is above)";
            return Err(Failure::impossible(why, "`doorbell demo --gpu soft` needs none").into());
        }
        if !outcome.status.success() {
            anyhow::bail!("the recorded program failed ({}); the recording is {}", outcome.status, file.display());
        }
        Ok(outcome)
    }
}

/// Prints lines on standard output; a reader that stopped reading ends the demo.
fn say(lines: &[&str]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for line in lines {
        writeln!(out, "{line}")?;
    }
    Ok(out.flush()?)
}

fn me() -> String {
    std::env::args().next().unwrap_or_else(|| "doorbell".into())
}
