//! `doorbell record`: run a program and put every submission that it makes on a tape.

use crate::failure::Failure;
use crate::preload;
use clap::ValueEnum;
use recorder::{Options, Outcome, Tap};
use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a program and record every command it sends to the GPU
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell record -- ./app --its-own-options
  doorbell record -o run.doorbell --tap trap -- python3 train.py
  doorbell record --locks -- ./app                 its locks, CUDA's calls and context switches as well; `doorbell show
                                                   --locks` and `--calls` explain them
  doorbell record --calls --tap off -- ./app       CUDA's calls alone: launches, copies, graphs, events, waits
  doorbell record --no-data --no-args -- ./app     nothing of its data or arguments on the tape
  doorbell record --gpu soft -- doorbell sample copies --gpu soft

The program's output, exit status and signals are its own; doorbell exits with the program's status.
Child processes and programs that it execs are not recorded.")]
pub struct Args {
    /// Tape to write; by default the program's name with .doorbell behind it
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// How doorbells are seen
    #[arg(long, value_enum, default_value_t = TapArg::Auto)]
    pub tap: TapArg,
    /// Record every lock operation as well: mutexes, rwlocks, conditions, semaphores (any program, GPU or not)
    #[arg(long)]
    pub locks: bool,
    /// With --locks or --calls: leave context switches out, so that nobody learns who kept a holder off its CPU
    #[arg(long)]
    pub no_switches: bool,
    /// Record CUDA's calls as well, each with its time, result, stream and bytes; `--locks` does that, too
    #[arg(long)]
    pub calls: bool,
    /// With --locks: leave CUDA's calls alone
    #[arg(long, conflicts_with = "calls")]
    pub no_calls: bool,
    /// What to do when a thread's ring is full
    #[arg(long, value_enum, default_value_t = OnFull::Gap)]
    pub on_full: OnFull,
    /// Size of each thread's ring, MiB
    #[arg(long, value_name = "MIB", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub ring: u32,
    /// Keep methods and launches, drop the data in the stream
    #[arg(long)]
    pub no_data: bool,
    /// Leave the program's name and arguments out of the tape
    #[arg(long)]
    pub no_args: bool,
    /// Stop recording (not the program) at this size of the tape, MiB
    #[arg(long, value_name = "MIB")]
    pub limit: Option<u64>,
    /// Which GPU the program finds
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    pub gpu: Gpu,
    /// Treat the driver as this branch (570 or 580) although its version is not known
    #[arg(long, value_name = "BRANCH")]
    pub driver_abi: Option<String>,
    /// Say nothing on standard error
    #[arg(short, long)]
    pub quiet: bool,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TapArg {
    /// Rewrite the instruction that rings where that is proven safe, else trap
    Auto,
    /// Trap every store to a doorbell (about 2 us each)
    Trap,
    /// As auto
    Patch,
    /// Driver calls only
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OnFull {
    /// Leave events out and count them
    Gap,
    /// Let the thread wait
    Wait,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Gpu {
    /// This machine's
    Real,
    /// doorbell's own, in software
    Soft,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let driver = recorder::driver_version();
        // Locks are there without a GPU, and calls where a library brings its own.
        let no_gpu = (self.locks || self.calls) && driver.is_none() && self.driver_abi.is_none();
        if self.gpu == Gpu::Real && !no_gpu {
            known_driver(driver.as_deref(), self.driver_abi.as_deref())?;
        }
        let out = self.out.clone().unwrap_or_else(|| default_name(&self.command));
        let outcome = self.record(&out)?;
        if !self.quiet {
            let view = match (self.locks, self.calls) {
                (true, _) => " --locks",
                (_, true) => " --calls",
                _ => "",
            };
            tell(&out, &outcome, view);
        }
        Ok(match outcome.status.code() {
            Some(c) => ExitCode::from(c as u8),
            None => ExitCode::from(128u8.wrapping_add(outcome.status.signal().unwrap_or(0) as u8)),
        })
    }

    pub fn record(&self, out: &std::path::Path) -> anyhow::Result<Outcome> {
        Ok(recorder::record(&Options {
            command: self.command.clone(),
            out: out.into(),
            tap: match self.tap {
                TapArg::Auto => Tap::Auto,
                TapArg::Trap => Tap::Trap,
                TapArg::Patch => Tap::Patch,
                TapArg::Off => Tap::Off,
            },
            wait_on_full: self.on_full == OnFull::Wait,
            locks: self.locks,
            switches: !self.no_switches,
            calls: self.calls || self.locks && !self.no_calls,
            ring_bytes: (self.ring as usize) << 20,
            no_data: self.no_data,
            no_args: self.no_args,
            limit: self.limit.map(|m| m << 20),
            agent: preload::AGENT,
            soft: (self.gpu == Gpu::Soft).then_some(preload::SOFTGPU),
            version: env!("CARGO_PKG_VERSION"),
        })?)
    }
}

/// Whether a program can be recorded on the driver of this `version`, or on one whose branch the user insists on.
fn known_driver(version: Option<&str>, insist: Option<&str>) -> Result<(), Failure> {
    match (version, insist) {
        (_, Some(branch)) => rm::abi::Abi::insist(branch).map(|_| ()).map_err(|e| {
            Failure::new(
                format!("--driver-abi {branch}: {e}"),
                "give the branch whose channel layout the driver has: 570 or 580",
            )
        }),
        (Some(version), None) => rm::abi::Abi::for_version(version).map(|_| ()).map_err(|e| {
            let hint = "`--driver-abi 580` records all the same, if you know that its channel layout is that of 580";
            Failure::new(e.to_string(), hint)
        }),
        (None, None) => Err(Failure::impossible(
            "no NVIDIA driver on this machine (/proc/driver/nvidia/version is not there)",
            "`--gpu soft` records a program on doorbell's software GPU; `doorbell demo` shows it at work",
        )),
    }
}

fn default_name(command: &[OsString]) -> PathBuf {
    let name = command.first().map(PathBuf::from).unwrap_or_default();
    let mut f = name.file_name().map(OsString::from).unwrap_or_else(|| "recording".into());
    f.push(".doorbell");
    PathBuf::from(f)
}

fn tell(out: &std::path::Path, o: &Outcome, view: &str) {
    let e = &o.end;
    let mut err = std::io::stderr().lock();
    let bold =
        if err.is_terminal() && std::env::var_os("NO_COLOR").is_none() { ("\x1b[1m", "\x1b[0m") } else { ("", "") };
    let rings = e.trapped + e.tapped;
    let _ = writeln!(
        err,
        "{}doorbell:{} {} doorbells in {:.1} s ({} by rewritten sites, {} by traps), {} -> {}",
        bold.0,
        bold.1,
        rings,
        e.seconds,
        e.tapped,
        e.trapped,
        size(o.bytes),
        out.display()
    );
    if e.how.starts_with("recording stopped") {
        let _ = writeln!(err, "doorbell: {}", e.how);
    }
    if e.gap_events > 0 {
        let _ = writeln!(
            err,
            "doorbell: {} events ({} GPFIFO entries) did not fit into the rings; hint: --ring 64 or --on-full wait",
            e.gap_events, e.gap_entries
        );
    }
    for t in &e.trouble {
        let _ = writeln!(err, "doorbell: {t}");
    }
    let _ = writeln!(err, "doorbell: `doorbell show{view} {}` explains it", out.display());
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{:.1} KiB", bytes as f64 / 1024.0),
        _ => format!("{:.1} MiB", bytes as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_driver_is_known_or_insisted_on_or_refused_with_a_hint() {
        let refused = |version, insist| known_driver(version, insist).unwrap_err();
        assert!(known_driver(Some("580.65.06"), None).is_ok());
        assert!(known_driver(Some("999.1"), Some("580")).is_ok());
        // A program may bring a driver of its own, as one with the software GPU linked into it does.
        assert!(known_driver(None, Some("570")).is_ok());
        let e = refused(Some("999.1"), None);
        assert!(e.to_string().contains("\"999.1\"") && e.to_string().contains("580.65.06"), "{e}");
        assert!(e.hint().contains("--driver-abi 580"));
        assert_eq!(e.status(), crate::ERROR);
        let e = refused(Some("580.65.06"), Some("47"));
        assert!(e.to_string().starts_with("--driver-abi 47: ") && e.hint().contains("570 or 580"), "{e}");
        let e = refused(None, None);
        assert!(e.to_string().contains("no NVIDIA driver") && e.hint().contains("--gpu soft"), "{e}");
        assert_eq!(e.status(), crate::IMPOSSIBLE);
    }
}
