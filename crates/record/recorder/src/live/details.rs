//! What /proc and the memory of programs have in addition to the rows of threads.
//!
//! Invariant: an answer comes within [`PATIENCE`], also if the kernel does not answer for a process. What is not known by then is left
//! out.

use super::THREADS;
use super::proc::{self, Sleep, children, joined, numbers, sleep, status, system_call};
use super::waiting;
use crate::control::Ask;
use crate::control::messages::Answer;
use crate::end::how_it_ended;
use crate::processes;
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveEnd, LiveProcess, LiveThread, how, state};

/// The time of a look. /proc is read for threads until [`THREADS_WITHIN`].
pub const PATIENCE: Duration = Duration::from_millis(480);
const THREADS_WITHIN: Duration = Duration::from_millis(200);
/// Maximum number of unrecorded children that have ended.
const ZOMBIES: usize = 64;

pub struct Details {
    pub begun: Instant,
    /// Names may be in the answer.
    pub names: bool,
}

/// A thread that sleeps in a system call: the indexes of its process and of itself.
pub struct Sleeper {
    pub process: usize,
    pub thread: usize,
    pub sleep: Sleep,
}

impl Details {
    /// Answers from another thread.
    pub fn answer(live: Live, names: bool, ask: Ask) {
        let finish = move || {
            let live = Details { begun: Instant::now(), names }.add(live);
            ask.answer(Answer { now: Some(live), ..Answer::ok() });
        };
        // (If there can be no thread, the peer hears after some seconds that the recorder is busy.)
        let _ = std::thread::Builder::new().name("now".into()).spawn(finish);
    }

    pub fn add(&self, mut live: Live) -> Live {
        let mut room = THREADS.saturating_sub(live.processes.iter().map(|p| p.threads.len()).sum());
        let (mut sleepers, mut zombies) = (Vec::new(), BTreeSet::new());
        for (n, p) in live.processes.iter_mut().enumerate() {
            if p.state == state::ENDED {
                self.ended(p);
                continue;
            }
            live.cut |= !self.list(p, &mut room);
            for (i, t) in p.threads.iter_mut().enumerate() {
                t.state = state::UNKNOWN.into();
                if p.pid > 0 && !p.other_numbers && self.begun.elapsed() < THREADS_WITHIN {
                    let sleep = self.thread(p.pid, t);
                    sleepers.extend(sleep.map(|sleep| Sleeper { process: n, thread: i, sleep }));
                    zombies.extend(children(p.pid, t.tid));
                }
            }
            self.process(p);
        }
        let known: BTreeSet<i32> = live.processes.iter().map(|p| p.pid).collect();
        let zombies = zombies.into_iter().filter(|pid| !known.contains(pid)).filter_map(|pid| self.zombie(pid));
        live.processes.extend(zombies.take(ZOMBIES));
        waiting::add(self, &mut live, &sleepers);
        live
    }

    /// Adds the threads that have recorded nothing. False: there was no room for all.
    fn list(&self, p: &mut LiveProcess, room: &mut usize) -> bool {
        if p.pid <= 0 || p.other_numbers || self.begun.elapsed() > THREADS_WITHIN {
            return true;
        }
        let known: BTreeSet<i32> = p.threads.iter().map(|t| t.tid).collect();
        let mut new = numbers(&format!("/proc/{}/task", p.pid), THREADS);
        new.retain(|tid| !known.contains(tid));
        let fits = new.len() <= *room;
        new.truncate(*room);
        *room -= new.len();
        p.threads.extend(new.into_iter().map(|tid| LiveThread { tid, ..LiveThread::default() }));
        fits
    }

    fn process(&self, p: &mut LiveProcess) {
        if p.pid <= 0 {
            return;
        }
        let folder = format!("/proc/{}", p.pid);
        let (now, stat) = status(&folder);
        if let Some(s) = stat {
            p.parent = s.ppid;
            p.name = if self.names { proc::name(&s) } else { String::new() };
            // (The first thread may have ended before the others.)
            let of_others = p.threads.iter().map(|t| &t.state).find(|s| *s != state::ENDED && *s != state::UNKNOWN);
            p.state = match now {
                state::ENDED => of_others.cloned().unwrap_or_else(|| state::ENDED.into()),
                of_first => of_first.into(),
            };
            if p.state == state::ENDED {
                p.ended = Some(end(s.zombie, Some(s.status)));
            }
        } else {
            p.state = now.into();
            p.ended = (now == state::ENDED).then(|| end(false, None));
        }
        if p.state == state::TRACED || p.threads.iter().any(|t| t.state == state::TRACED) {
            let tracer = proc::tracer(&folder);
            p.tracer = (tracer > 0).then(|| proc::other(tracer, how::TRACES, self.names));
        }
    }

    /// Whether somebody has waited for a process that has ended.
    fn ended(&self, p: &mut LiveProcess) {
        let stat = Some(p.pid).filter(|pid| *pid > 0).and_then(processes::stat);
        let is_zombie = stat.is_some_and(|s| s.zombie);
        p.ended.get_or_insert_with(|| end(is_zombie, None)).zombie = is_zombie;
        if !self.names {
            p.name.clear();
        }
    }

    /// A child of a recorded process, if it has ended and nobody has waited for it.
    fn zombie(&self, pid: i32) -> Option<LiveProcess> {
        let s = processes::stat(pid).filter(|s| s.zombie)?;
        Some(LiveProcess {
            pid,
            name: if self.names { proc::name(&s) } else { String::new() },
            parent: s.ppid,
            unrecorded: true,
            state: state::ENDED.into(),
            ended: Some(end(true, Some(s.status))),
            ..LiveProcess::default()
        })
    }

    /// The system call in which the thread sleeps is also returned.
    pub fn thread(&self, pid: i32, t: &mut LiveThread) -> Option<Sleep> {
        let folder = format!("/proc/{pid}/task/{}", t.tid);
        let (now, stat) = status(&folder);
        t.state = now.into();
        if self.names && now != state::ENDED {
            t.name = stat.as_ref().map(proc::name).unwrap_or_default();
        }
        // (The system call of a thread that runs is not known.)
        let sleep = sleep(&folder).filter(|_| [state::SLEEPING, state::UNINTERRUPTIBLE].contains(&now))?;
        t.system_call = Some(system_call(sleep.number));
        if t.waits.is_none() {
            t.joins = joined(&sleep).filter(|tid| *tid != t.tid && processes::has_thread(pid, *tid));
        }
        Some(sleep)
    }
}

/// `status`: as wait gives it.
pub fn end(zombie: bool, status: Option<i32>) -> LiveEnd {
    let status = status.map(ExitStatus::from_raw);
    LiveEnd {
        how: status.map_or_else(|| "ended".into(), how_it_ended),
        exit_code: status.and_then(|s| s.code()),
        signal: status.and_then(|s| s.signal()),
        at: 0,
        zombie,
    }
}

#[cfg(test)]
mod tests;
