//! Runs an experiment: for each repeat one process under each lock policy, which measures its stages in sequence and leaves a finished part of each
//! in the run's folder. Each recorded stage has a separate process.
//!
//! The invariant: a process that dies or hangs loses only its current stage. A finished part is never measured again, so a run that was stopped at
//! any moment continues after its last part. A lost stage leaves no part: a continued run measures it again.

mod process;
pub mod threads;

use crate::child::Gone;
use crate::{Error, Folder};
use experiment::Stage;
use process::{End as Ended, Process};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

pub use crate::child::{PROGRESS, UNWRITTEN};
pub use process::{PART, STAGE};

/// Stage and repeat, and why.
type Lost = HashMap<(u32, u32), String>;

/// A run in progress.
pub struct Runner<'r> {
    pub folder: &'r Folder,
    /// The path of this program: each process runs it.
    pub program: PathBuf,
    /// Number of stop requests from outside: the run ends, and finished parts stay. After the second time it waits for no process.
    pub stop: &'r AtomicU32,
}

/// News of a run in progress.
#[derive(Clone, Copy, Debug)]
pub struct Heard<'h> {
    pub stage: &'h Stage,
    pub repeat: u32,
    /// Number of finished parts, and of all parts.
    pub done: usize,
    pub of: usize,
    pub what: News<'h>,
}

#[derive(Clone, Copy, Debug)]
pub enum News<'h> {
    /// The current activity.
    Doing(&'h str),
    Finished,
    /// The process died or hung: there is no part, and the run continues.
    Lost(&'h str),
    /// A process was asked to end and has not ended yet: the run waits for it.
    Ending {
        process: u32,
        at_most: Duration,
    },
    /// These processes were killed, but have not ended: the run does not wait for them.
    LeftBehind(&'h [u32]),
}

/// The result of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    pub end: End,
    /// Stage and repeat of each part whose process died or hung, and the reason.
    pub lost: Lost,
}

/// How a run ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    Complete,
    /// Stage and repeat of the part in progress, if there was one.
    Stopped {
        at: Option<(u32, u32)>,
    },
    /// No part of it can be measured on this machine, and the reason.
    Impossible(String),
}

impl Runner<'_> {
    /// Runs every missing part; `hear` is called with the news.
    ///
    /// # Errors
    /// A process cannot be started, the folder cannot be written.
    pub fn run(&self, hear: &mut dyn FnMut(Heard<'_>)) -> Result<Outcome, Error> {
        let mut lost = HashMap::new();
        let end = self.all(&mut lost, hear)?;
        Ok(Outcome { end, lost })
    }

    fn all(&self, lost: &mut Lost, hear: &mut dyn FnMut(Heard<'_>)) -> Result<End, Error> {
        let repeats = self.folder.experiment().run.repeats.max(1);
        let mut policies: Vec<&str> = Vec::new();
        for stage in self.folder.stages() {
            if !policies.contains(&stage.run.policy.as_str()) {
                policies.push(&stage.run.policy);
            }
        }
        for repeat in 0..repeats {
            // Compared policies take turns: none is always first.
            let mut random = fastrand::Rng::with_seed(self.folder.experiment().run.seed.wrapping_add(repeat.into()));
            random.shuffle(&mut policies);
            for policy in &policies {
                match self.policy(policy, repeat, lost, hear)? {
                    End::Complete => {}
                    other => return Ok(other),
                }
            }
        }
        Ok(End::Complete)
    }

    /// All stages of one policy in one repeat.
    fn policy(
        &self,
        policy: &str,
        repeat: u32,
        lost: &mut Lost,
        hear: &mut dyn FnMut(Heard<'_>),
    ) -> Result<End, Error> {
        let has_part = |stage: &Stage| self.folder.has_part(stage.number, repeat);
        loop {
            let is_left = |stage: &&Stage| stage.run.policy == policy && !lost.contains_key(&(stage.number, repeat));
            let missing: Vec<&Stage> =
                self.folder.stages().iter().filter(is_left).filter(|stage| !has_part(stage)).collect();
            if missing.is_empty() {
                return Ok(End::Complete);
            }
            if self.stop.load(Ordering::Relaxed) > 0 {
                return Ok(End::Stopped { at: None });
            }
            // A recorded stage has a separate process, and therefore a separate recording.
            let (bare, recorded): (Vec<&Stage>, Vec<&Stage>) =
                missing.into_iter().partition(|stage| stage.run.record.is_no());
            // The same for stages with loads that need the driver's cache of compiled code: the cache is on or off for a whole process.
            let (with, without): (Vec<&Stage>, Vec<&Stage>) =
                bare.into_iter().partition(|stage| process::needs_cache(stage));
            let missing = match (without.is_empty(), with.is_empty()) {
                (false, _) => without,
                (true, false) => with,
                (true, true) => recorded[..1].to_vec(),
            };
            let process = Process { runner: self, policy, repeat, stages: &missing };
            let ended = process.run(&mut |stage, what| {
                let (done, of) = self.counted();
                hear(Heard { stage, repeat, done, of, what });
            })?;
            let (costs, why): (Vec<&Stage>, String) = match ended {
                Ended::Stopped(at) => {
                    // The last reported one may be finished: the next had begun then.
                    let from = at.map(|at| missing.iter().skip_while(move |stage| stage.number != at));
                    let under_way = from.and_then(|mut stages| stages.find(|stage| !has_part(stage)));
                    return Ok(End::Stopped { at: under_way.map(|stage| (stage.number, repeat)) });
                }
                Ended::Gone(at, gone) => match (at, gone) {
                    (_, Gone::Impossible(why)) if self.counted().0 == 0 => return Ok(End::Impossible(why)),
                    (_, Gone::Unwritten { what, hint }) => return Err(Error::Unwritten { what, hint }),
                    (Some(at), Gone::Died(why)) => (missing.into_iter().filter(|s| s.number == at).collect(), why),
                    // It died before its first stage: the next process would fail at the same point.
                    (_, Gone::Impossible(why) | Gone::Died(why)) => (missing, why),
                    (_, Gone::Done | Gone::Interrupted) => (missing, "its process ended without measuring it".into()),
                },
            };
            for stage in costs.into_iter().filter(|stage| !has_part(stage)) {
                lost.insert((stage.number, repeat), why.clone());
                let (done, of) = self.counted();
                hear(Heard { stage, repeat, done, of, what: News::Lost(&why) });
            }
        }
    }

    /// Number of finished parts, and of all parts.
    fn counted(&self) -> (usize, usize) {
        let repeats = self.folder.experiment().run.repeats.max(1);
        let all = self.folder.stages().iter().flat_map(|stage| (0..repeats).map(|repeat| (stage.number, repeat)));
        let done = all.filter(|(stage, repeat)| self.folder.has_part(*stage, *repeat)).count();
        (done, self.folder.stages().len() * repeats as usize)
    }
}
