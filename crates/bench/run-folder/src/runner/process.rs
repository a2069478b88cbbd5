//! One process under one policy: its start, and the lines that it prints.

use crate::child::{Child, GO, Gone, PROGRESS, Slow, policy_command, recorded_command};
use crate::runner::{News, Runner, threads};
use crate::{Error, Folder};
use experiment::{Gpu, Record, Stage, What};
use std::ffi::OsString;
use std::sync::atomic::Ordering;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Prefixes of the lines that a process prints: the number of a stage that begins, and the number of a finished stage.
pub const STAGE: &str = "stage ";
pub const PART: &str = "part ";

/// Time limit for starting, and for opening and closing a stage's routes and threads. A process that prints no line for longer is treated as hung.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time limit of a stage without a duration.
const UNBOUNDED: Duration = Duration::from_secs(600);
/// Time for a process to end after SIGTERM.
const LEAVE: Duration = Duration::from_secs(5);

/// Whether a part of the stage loads modules from the driver's cache of compiled code: `module(400,cached)`.
pub(crate) fn needs_cache(stage: &Stage) -> bool {
    let of_cells = stage.cells.iter().map(|cell| &cell.subject.what);
    let has = |what: &What| matches!(what, What::Call(text) if text.split(['(', ',', ')']).any(|word| word.trim() == "cached"));
    of_cells.chain(stage.loads.iter().map(|load| &load.what)).any(has)
}

pub(crate) struct Process<'p> {
    pub runner: &'p Runner<'p>,
    pub policy: &'p str,
    pub repeat: u32,
    pub stages: &'p [&'p Stage],
}

/// How a process ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The stage, if it had begun one.
    Stopped(Option<u32>),
    Gone(Option<u32>, Gone),
}

impl<'p> Process<'p> {
    pub fn run(&self, hear: &mut dyn FnMut(&'p Stage, News<'_>)) -> Result<End, Error> {
        // The measurement is of code that is compiled each time, not of the driver's cache on disk, unless the load uses the cache. Then the cache
        // is in a folder of this process.
        let cache = if self.stages.iter().any(|stage| needs_cache(stage)) {
            Some(tempfile::tempdir().map_err(Error::start("a temporary folder"))?)
        } else {
            None
        };
        let words = self.command();
        let child = Child::start(&words, |command| {
            match &cache {
                Some(folder) => command.env("CUDA_CACHE_DISABLE", "0").env("CUDA_CACHE_PATH", folder.path()),
                None => command.env("CUDA_CACHE_DISABLE", "1"),
            };
        });
        let mut child = child.map_err(Error::start(&words[0].to_string_lossy()))?;
        let mut at = None;
        let silence = self.hear(&child, &mut at, hear);
        let gone = match silence {
            None => child.wait(PATIENCE, || self.stopped() > 0).map_err(Error::start("its end"))?,
            Some(_) => None,
        };
        let why = match (gone, silence) {
            (Some(status), _) => Ok(child.gone(status)),
            (None, silence) => {
                let hung = match (silence, self.stopped()) {
                    (Some(what), 0) => format!("{what}{}", threads::where_threads_are(child.id())),
                    (what, _) => what.unwrap_or_else(|| "its process hung at its end".into()),
                };
                let stage = at.and_then(|n| self.stages.iter().find(|s| s.number == n)).or(self.stages.first());
                let process = child.id();
                let mut tell = |what: Slow<'_>| {
                    let what = match what {
                        Slow::Ending => News::Ending { process, at_most: LEAVE + GO },
                        Slow::LeftBehind(processes) => News::LeftBehind(processes),
                    };
                    stage.iter().for_each(|stage| hear(stage, what));
                };
                child.end(LEAVE, || self.stopped() > 1, &mut tell).map_err(Error::start("its end"))?;
                Err(hung)
            }
        };
        Ok(match why {
            _ if self.stopped() > 0 => End::Stopped(at),
            Err(hung) => End::Gone(at, Gone::Died(hung)),
            Ok(Gone::Interrupted) => End::Stopped(at),
            Ok(Gone::Died(why)) => End::Gone(at, Gone::Died(format!("its process ended, {why}"))),
            Ok(gone) => End::Gone(at, gone),
        })
    }

    /// Reads its lines until the end: `None`. Also returns if it prints no line for too long, or if the run must stop.
    fn hear(&self, child: &Child, at: &mut Option<u32>, hear: &mut dyn FnMut(&'p Stage, News<'_>)) -> Option<String> {
        let (mut last, mut heard) = ("its start".to_owned(), Instant::now());
        loop {
            let stage = at.and_then(|n| self.stages.iter().find(|s| s.number == n)).copied();
            let patience = PATIENCE + stage.map_or(PATIENCE, time_of);
            match child.line() {
                Ok(line) => {
                    heard = Instant::now();
                    if let Some(number) = line.strip_prefix(STAGE) {
                        *at = number.trim().parse().ok();
                    } else if line.starts_with(PART) {
                        if let Some(stage) = stage {
                            hear(stage, News::Finished);
                        }
                        last = format!("the end of stage {}", at.unwrap_or_default());
                        // Between two stages: a process that dies now has lost no stage.
                        let next = at.and_then(|n| self.stages.iter().position(|s| s.number == n)).map(|i| i + 1);
                        *at = next.and_then(|i| self.stages.get(i)).map(|s| s.number);
                    } else if let Some(text) = line.strip_prefix(PROGRESS) {
                        last = text.to_owned();
                        if let Some(stage) = stage {
                            hear(stage, News::Doing(text));
                        }
                    }
                }
                Err(RecvTimeoutError::Disconnected) => return None,
                Err(RecvTimeoutError::Timeout) if self.stopped() > 0 => {
                    return Some("it was told to stop".into());
                }
                Err(RecvTimeoutError::Timeout) if heard.elapsed() > patience => {
                    return Some(format!("its process hung: no message for {} s after {last}", patience.as_secs()));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        }
    }

    /// Number of stop requests.
    fn stopped(&self) -> u32 {
        self.runner.stop.load(Ordering::Relaxed)
    }

    fn command(&self) -> Vec<OsString> {
        let runner = self.runner;
        let stages: Vec<String> = self.stages.iter().map(|s| s.number.to_string()).collect();
        let mut child: Vec<OsString> = vec![runner.program.clone().into()];
        child.extend(["bench", "--child"].map(OsString::from));
        child.push(runner.folder.path().into());
        child.extend(["--repeat".into(), self.repeat.to_string().into()]);
        child.extend(["--stages".into(), stages.join(",").into()]);
        let gpu = self.stages.first().map_or(Gpu::Real, |s| s.run.gpu);
        if let Some(stage) = self.stages.first().filter(|s| s.run.record == Record::Commands) {
            let tape = runner.folder.path().join(Folder::tape_name(stage.number, self.repeat));
            return recorded_command(gpu, runner.program.as_os_str(), &tape, false, child);
        }
        policy_command(self.policy, gpu, runner.program.as_os_str(), runner.folder.path(), self.repeat, child)
    }
}

/// Maximum time of a stage without output.
fn time_of(stage: &Stage) -> Duration {
    let run = &stage.run;
    let blocked = Duration::from_nanos(run.patience_ns.unwrap_or(0));
    let measured = run.duration_ns.map_or(UNBOUNDED, Duration::from_nanos).max(blocked) * 2;
    let metered = Duration::from_nanos(run.meter_ns) * 2 * stage.cells.len() as u32;
    measured + metered + Duration::from_nanos(run.noise_ns) + Duration::from_nanos(run.timeout_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_that_load_from_the_cache_of_compiled_code_are_known_by_their_calls() {
        for (load, needs) in [
            ("module(40,cached)", true),
            ("module( cached )", true),
            ("module(400)", false),
            ("lock(name=cached)", false),
        ] {
            let text = format!("[run]\nsamples = 1\n[[subject]]\ncall = \"launch\"\n[[load]]\ncall = \"{load}\"\n");
            let stages = experiment::read(&text, "x.toml", &[]).unwrap().stages().unwrap();
            assert_eq!(needs_cache(&stages[0]), needs, "{load}");
        }
    }
}
