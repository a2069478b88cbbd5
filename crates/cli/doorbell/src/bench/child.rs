//! One process of a run: measures its stages, and leaves a part of each in the run's folder.

use super::machine;
use measure::clock::Clock;
use measure::stage::{self, Lab};
use run_folder::Folder;
use run_folder::runner::{PART, PROGRESS, STAGE, UNWRITTEN};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

pub fn run(folder: &Path, repeat: u32, numbers: &[u32]) -> anyhow::Result<ExitCode> {
    let folder = Folder::join(folder)?;
    let stages = folder.experiment().stages()?;
    let asked: Vec<_> = stages.iter().filter(|stage| numbers.contains(&stage.number)).collect();
    // SAFETY: the call takes numbers. The process under a lock policy that started this one ends with its own parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let run = &folder.experiment().run;
    let machine = machine::of(asked.first().map_or(run.gpu, |stage| stage.run.gpu), &run.device)?;
    let own = std::env::current_exe()?;
    measure::process::starts_by(vec![own.into(), "bench".into(), "--load".into()]);
    let clock = Clock::new();
    let lab = Lab { machine: &machine, clock: &clock, tell: &|text| say(PROGRESS, text) };
    for stage in asked {
        say(STAGE, &stage.number.to_string());
        let finished = stage::run(&lab, stage, repeat);
        if let Err(e) = folder.write_part(&finished.part, &finished.samples) {
            // The next stage could not be written either.
            crate::failure::print(&e.into());
            return Ok(ExitCode::from(UNWRITTEN));
        }
        say(PART, &stage.number.to_string());
    }
    Ok(ExitCode::SUCCESS)
}

/// One process of a load that runs in separate processes.
pub fn load(work: &str) -> anyhow::Result<ExitCode> {
    // A card has one driver: the process that measures.
    let open = |gpu| machine::of(gpu, &experiment::Device::Engine).map_err(|e| format!("{e:#}"));
    measure::working::work(work, open)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes one line for the process that leads the run or the soak. If that process has ended, this one ends, too.
pub fn say(kind: &str, text: &str) {
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{kind}{text}").and_then(|()| out.flush());
}
