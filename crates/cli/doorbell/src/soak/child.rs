//! The measuring process of a soak: laps of its stages, until all is measured or it is interrupted.

use crate::bench::{child::say, machine};
use crate::signals;
use measure::clock::Clock;
use measure::stage::{self, Lab, Next};
use run_folder::Error;
use run_folder::runner::{PROGRESS, UNWRITTEN};
use run_folder::soak::Folder;
use run_folder::soak::account::Held;
use run_folder::soak::clock::{self, Clock as SoakClock};
use run_folder::soak::lead::{LAP, OVER};
use run_folder::soak::measuring::{Measuring, Over, Stop, Then};
use run_folder::soak::planted::Planted;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};

pub fn run(folder: &Path, process: u32, planted: &[Planted]) -> anyhow::Result<ExitCode> {
    let stop = signals::count_interrupts();
    // SAFETY: the call takes numbers. The process under a lock policy that started this one ends with its own parent.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    let folder = Folder::join(folder)?;
    let gpu = folder.experiment().run.gpu;
    let machine = machine::of(gpu, &folder.experiment().run.device)?;
    let lab_clock = Clock::new();
    let lab = Lab { machine: &machine, clock: &lab_clock, tell: &|text| say(PROGRESS, text) };
    let clock = soak_clock(&folder)?;
    let watch = || held(gpu);
    let mut measuring = Measuring::new(&folder, &clock, process, &watch)?;
    let bound = folder.asked().stop_above_ns.map(std::time::Duration::from_nanos);
    let (mut laps, mut failed) = (0u64, None::<Error>);
    let over = 'soak: loop {
        for stage in folder.stages() {
            let mut then = None;
            let end = stage::run_on(&lab, stage, bound, &mut |mut lap| {
                laps += 1;
                planted.iter().for_each(|fault| fault.strike(laps, &mut lap));
                match measuring.lap(stage, lap, why_stop(&folder, stop)) {
                    Ok(next) => {
                        let progress = measuring.progress();
                        let worst = progress.worst_ns.map_or("-".into(), |ns| ns.to_string());
                        if progress.any {
                            say(LAP, &format!("{} {:.3} {worst}", progress.period, progress.done_s));
                        }
                        let again = if let Then::Lap { noise } = next { Some(noise) } else { None };
                        then = Some(next);
                        again.map_or(Next::Stop, |noise| Next::Again { noise })
                    }
                    Err(e) => {
                        failed = Some(e);
                        Next::Stop
                    }
                }
            });
            if let Some(e) = failed {
                crate::failure::print(&e.into());
                return Ok(ExitCode::from(UNWRITTEN));
            }
            match then {
                Some(Then::Over(over)) => break 'soak over,
                Some(_) => {}
                None => {
                    let why = end.part.cells.iter().find_map(|cell| match &cell.status {
                        run_folder::Status::Failed(why) => Some(why.clone()),
                        _ => None,
                    });
                    break 'soak Over::Impossible(why.unwrap_or_else(|| "no lap was measured".into()));
                }
            }
        }
    };
    say(OVER, &serde_json::to_string(&over)?);
    Ok(ExitCode::SUCCESS)
}

/// A recording that is longer than this is deleted, and a new process continues, so the recording never fills the disk.
const LONGEST: u64 = 1 << 30;

fn why_stop(folder: &Folder, stop: &AtomicU32) -> Stop {
    if stop.load(Ordering::Relaxed) > 0 {
        return Stop::Told;
    }
    let length = folder.recording().and_then(|tape| std::fs::metadata(tape).ok()).map_or(0, |file| file.len());
    if length > LONGEST { Stop::Renew("its recording was 1 GiB long: a new one begins".into()) } else { Stop::No }
}

/// The system's clock. With simulated time, a clock that continues one period after the end of the last period, as if
/// the restart had taken a period.
fn soak_clock(folder: &Folder) -> Result<SoakClock, Error> {
    let Some(lap_s) = folder.asked().simulated_lap_s else { return Ok(SoakClock::system()) };
    let last = folder.periods()?.last().and_then(|last| clock::read(&last.ended));
    let from = last.map_or_else(clock::utc_s, |ended| ended + folder.asked().every_s);
    Ok(SoakClock::simulated(from, lap_s))
}

fn held(gpu: experiment::Gpu) -> Held {
    let held = environment::Held::now(measure::stage::gpu_of(gpu));
    Held {
        rss_bytes: held.rss_bytes.ok(),
        mappings: held.mappings.ok(),
        descriptors: held.descriptors.ok(),
        threads: held.threads.ok(),
        handles: held.driver_files.ok(),
        gpu_used_bytes: held.gpu_used_bytes.ok(),
    }
}
