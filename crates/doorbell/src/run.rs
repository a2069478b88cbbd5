//! `doorbell run`: a program whose locks follow other protocols.

use crate::failure::Failure;
use crate::preload;
use crate::record::Gpu;
use plan::Plan;
use recorder::{PolicyOptions, run_with_policies};
use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::ExitCode;

/// Run a program with other lock protocols under it, nothing rebuilt
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  doorbell run --lock-policy pi,phase-fair -- ./app     every lock that these suit
  doorbell run --lock-policy plan.toml -- ./app         lock by lock
  doorbell run --lock-policy guard -- ./app             one mutex round CUDA's launches and copies
  doorbell run --lock-policy ticket --report - -- ./app what was done, on standard error at the end

Policies:
  pi          mutexes: who holds one runs at the priority of who waits for it
  ticket      mutexes: first come, first served
  phase-fair  rwlocks: readers and writers take turns, writers first come, first served
  boost       mutexes, rwlocks: holders raised to their waiters' real-time priority while they wait (CAP_SYS_NICE)
  guard       CUDA's launches, copies and memsets: one at a time, under one mutex with priority inheritance; calls that
              wait for a stream, an event or a device are left alone, and nobody waits for the mutex over a second
  stock       the lock's own protocol

A plan is TOML; what no rule names follows `mutexes` and `rwlocks` (stock where they are left out):
  mutexes = \"pi\"
  calls = \"guard\"
  [[lock]]
  name = \"libcuda+0x3f21c0/mutex\"    # as `doorbell show --locks` names it
  policy = \"ticket\"
  [[lock]]
  module = \"libcuda\"
  policy = \"phase-fair\"              # all its rwlocks

Locks shared between processes and robust mutexes keep their own protocol. DOORBELL_LOCK_POLICY=off in the environment
leaves all locks alone. The program's output, exit status and signals are its own.")]
pub struct Args {
    /// Policies, with commas, or the file of a plan
    #[arg(long, value_name = "POLICY|PLAN")]
    pub lock_policy: String,
    /// Where to say at the end what was done: a file, or - for standard error
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Which GPU the program finds
    #[arg(long, value_enum, default_value_t = Gpu::Real)]
    pub gpu: Gpu,
    /// Program and its arguments
    #[arg(last = true, required = true, value_name = "PROGRAM")]
    pub command: Vec<OsString>,
}

impl Args {
    pub fn run(self) -> anyhow::Result<ExitCode> {
        let plan = Plan::read(&self.lock_policy).map_err(|e| Failure::new(e.to_string(), e.hint()))?;
        let report = self.report.as_deref();
        // Before the program runs: it may take days.
        let mut out = report.filter(|p| p.as_os_str() != "-").map(open).transpose()?;
        let options = PolicyOptions {
            command: self.command.clone(),
            agent: preload::AGENT,
            soft: (self.gpu == Gpu::Soft).then_some(preload::SOFTGPU),
        };
        let mut text = String::new();
        let status = run_with_policies(&options, |b| plan.write(b), |b| text = plan::outcome::text(b))?;
        match &mut out {
            Some(file) => std::io::Write::write_all(file, text.as_bytes())?,
            None if report.is_some() => eprint!("{text}"),
            None => {}
        }
        Ok(match status.code() {
            Some(c) => ExitCode::from(c as u8),
            None => ExitCode::from(128u8.wrapping_add(status.signal().unwrap_or(0) as u8)),
        })
    }
}

fn open(path: &std::path::Path) -> Result<std::fs::File, Failure> {
    std::fs::File::create(path)
        .map_err(|e| Failure::new(format!("--report {}: {e}", path.display()), "give a file that can be written, or -"))
}
