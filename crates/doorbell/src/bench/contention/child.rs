//! One process under one policy: measures every cell, a line of JSON for each on standard output.

use super::Args;
use crate::bench::machine as routes;
use crate::record::Gpu;
use lab::clock::Clock;
use lock_lab::contention::{self, Cell, Plan};
use std::io::Write;
use std::process::ExitCode;

/// What opening and closing a cell's threads may take beyond its time; whoever takes longer hangs.
pub const CELL_HANGS_S: u64 = 20;
/// What starting may take.
pub const START_HANGS_S: u64 = 20;

pub fn run(args: &Args, cells: &[Cell], cpu: Option<usize>, others: &[usize]) -> anyhow::Result<ExitCode> {
    if args.gpu == Gpu::Soft {
        crate::sample::with_softgpu()?;
    }
    // Later than its parent, which says where it hangs before it ends it.
    let all = 2 * START_HANGS_S + cells.len() as u64 * (args.duration.as_secs() + 1 + CELL_HANGS_S);
    // CUDA's waits have no end of their own: whatever hangs, the process ends by a signal, and never later than its parent.
    // SAFETY: both take numbers; no handler is set for the first one's signal.
    unsafe {
        libc::alarm(all.min(u32::MAX.into()) as u32);
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
    }
    let machine = routes::open(args.gpu)?;
    let clock = Clock::new();
    for (n, cell) in cells.iter().enumerate() {
        let plan = Plan {
            duration: args.duration,
            cpu,
            others: others.to_vec(),
            priority: args.fifo,
            seed: args.seed.wrapping_add(n as u64),
            timeout: args.timeout,
            tell,
        };
        let outcome = contention::run(&machine, cell, &plan, &clock);
        let mut out = std::io::stdout().lock();
        report::json::line(&mut out, &outcome)?;
        out.flush()?;
    }
    Ok(ExitCode::SUCCESS)
}

/// A line that is no result: that it is still on its way.
pub const PROGRESS: char = '#';

fn tell(what: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{PROGRESS} {what}").and_then(|()| out.flush());
}
