//! What /proc and the memory of programs have in addition to the rows of threads.
//!
//! Invariant: an answer comes within [`PATIENCE`], also if the kernel does not answer for a process. What is not known by then is left
//! out.

use super::THREADS;
use super::kin::Relatives;
use super::proc::{self, Sleep, children, joined, numbers, sleep, status, system_call};
use super::waiting;
use crate::control::Ask;
use crate::control::messages::Answer;
use crate::end::how_it_ended;
use crate::{inspect, processes, stream_work};
use std::collections::BTreeSet;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveEnd, LiveProcess, LiveThread, how, state};

/// The time of a look. /proc is read for threads until [`THREADS_WITHIN`].
pub const PATIENCE: Duration = Duration::from_millis(480);
const THREADS_WITHIN: Duration = Duration::from_millis(200);
const WORDS_WITHIN: Duration = Duration::from_millis(100);
/// Maximum number of processes, and of those that are known from before and were never recorded.
const PROCESSES: usize = 512;
const UNRECORDED: usize = 64;

pub struct Details {
    pub begun: Instant,
    /// Names may be in the answer.
    pub names: bool,
    relatives: Relatives,
}

/// A thread that sleeps in a system call: the indexes of its process and of itself.
pub struct Sleeper {
    pub process: usize,
    pub thread: usize,
    pub sleep: Sleep,
}

impl Details {
    pub fn new(names: bool, relatives: Relatives) -> Details {
        Details { begun: Instant::now(), names, relatives }
    }

    /// Answers from another thread.
    pub fn answer(self, live: Live, ask: Ask) {
        let finish = move || {
            let live = self.add(live);
            ask.answer(Answer { now: Some(live), ..Answer::ok() });
        };
        // (If there can be no thread, the peer hears after some seconds that the recorder is busy.)
        let _ = std::thread::Builder::new().name("now".into()).spawn(finish);
    }

    /// Its time begins now. (It may have waited for the look before it.)
    pub fn add(mut self, mut live: Live) -> Live {
        self.begun = Instant::now();
        let mut room = THREADS.saturating_sub(live.processes.iter().map(|p| p.threads.len()).sum());
        let mut sleepers = Vec::new();
        self.relatives(&mut live);
        inspect::add(&mut live.processes);
        let mut known: BTreeSet<i32> = live.processes.iter().map(|p| p.pid).collect();
        let mut n = 0;
        while let Some(p) = live.processes.get_mut(n) {
            let mut started = Vec::new();
            if p.state == state::ENDED {
                self.ended(p);
            } else {
                live.cut |= !self.list(p, &mut room);
                for (i, t) in p.threads.iter_mut().enumerate() {
                    t.state = state::UNKNOWN.into();
                    if p.pid > 0 && !p.other_numbers && self.begun.elapsed() < THREADS_WITHIN {
                        let sleep = self.thread(p.pid, t);
                        sleepers.extend(sleep.map(|sleep| Sleeper { process: n, thread: i, sleep }));
                        started.extend(children(p.pid, t.tid));
                    }
                }
                self.process(p);
            }
            for pid in started {
                if known.len() < PROCESSES && known.insert(pid) {
                    live.processes.push(LiveProcess { pid, unrecorded: true, ..LiveProcess::default() });
                }
            }
            n += 1;
        }
        stream_work::read_words(&mut live.processes, WORDS_WITHIN);
        waiting::add(&self, &mut live, &sleepers);
        live
    }

    /// Adds what is known of processes that were looked at before: what those had that have ended, and those that were never recorded.
    fn relatives(&self, live: &mut Live) {
        let mut new = Vec::new();
        for known in self.relatives.all() {
            match live.processes.iter_mut().find(|p| p.pid == known.pid) {
                Some(p) if p.state == state::ENDED => (p.shares, p.pipes) = (known.shares, known.pipes),
                Some(_) => {}
                None if known.state == state::ENDED => new.push(known),
                None => new.push(LiveProcess { shares: Vec::new(), pipes: Vec::new(), state: String::new(), ..known }),
            }
        }
        let from = new.len().saturating_sub(UNRECORDED);
        live.processes.extend(new.into_iter().skip(from));
    }

    /// Adds the threads that have recorded nothing. False: there was no room for all.
    fn list(&self, p: &mut LiveProcess, room: &mut usize) -> bool {
        if p.pid <= 0 || p.other_numbers || self.begun.elapsed() > THREADS_WITHIN {
            return true;
        }
        let known: BTreeSet<i32> = p.threads.iter().map(|t| t.tid).collect();
        let mut new = numbers(&format!("/proc/{}/task", p.pid), THREADS + 1);
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
        if p.unrecorded && p.state == state::ENDED {
            p.threads.clear();
        }
        if p.state == state::TRACED || p.threads.iter().any(|t| t.state == state::TRACED) {
            // (The kernel names the thread that traces.)
            let tracer = proc::process_of(proc::tracer(&folder));
            p.tracer = tracer.map(|tracer| proc::other(tracer, how::TRACES, self.names));
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

    /// The system call in which the thread sleeps is also returned.
    pub fn thread(&self, pid: i32, t: &mut LiveThread) -> Option<Sleep> {
        let folder = format!("/proc/{pid}/task/{}", t.tid);
        let (now, stat) = status(&folder);
        t.state = now.into();
        if self.names && now != state::ENDED {
            t.name = stat.as_ref().map(proc::name).unwrap_or_default();
        }
        if t.tid == pid && t.waits.is_none() && now != state::ENDED {
            t.sleeps = proc::sleeps(&folder);
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
