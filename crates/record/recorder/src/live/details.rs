//! What /proc and the memory of programs have in addition to the rows of threads.

use super::proc::{joined, status, system_call};
use crate::control::Ask;
use crate::control::messages::Answer;
use crate::lock_word::{self, Held};
use crate::{processes, sched};
use std::collections::BTreeSet;
use std::fs;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveLock, LiveProcess, LiveThread, state};
use tape::lock::attr;

/// /proc is read for this long. Threads that are left get no state.
const PATIENCE: Duration = Duration::from_millis(500);

/// What /proc and the program's memory have in addition.
pub struct Details {
    begun: Instant,
    names: bool,
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

    fn add(&self, mut live: Live) -> Live {
        let wanted: BTreeSet<Wanted> = live.processes.iter().filter(|p| p.pid > 0).flat_map(wanted).collect();
        for (pid, lock) in words(wanted) {
            if let Some(p) = live.processes.iter_mut().find(|p| p.pid == pid) {
                p.locks.push(lock);
            }
        }
        for p in &mut live.processes {
            self.holders(p);
            for t in &mut p.threads {
                t.state = state::UNKNOWN.into();
                if p.pid > 0 && !p.other_numbers && self.begun.elapsed() < PATIENCE {
                    self.thread(p.pid, t);
                }
            }
            if p.pid > 0 && p.state != state::ENDED {
                // (The first thread may have ended before the others.)
                let of_others = p.threads.iter().map(|t| &t.state).find(|s| *s != state::ENDED && *s != state::UNKNOWN);
                p.state = match status(&format!("/proc/{}", p.pid)) {
                    state::ENDED => of_others.cloned().unwrap_or_else(|| state::ENDED.into()),
                    of_first => of_first.into(),
                };
            }
        }
        live
    }

    /// Adds the threads that locks name as their holders and that have recorded nothing. (The number in a lock that processes share
    /// may be another process's thread.)
    fn holders(&self, p: &mut LiveProcess) {
        let is_shared = |l: &LiveLock| {
            let waits = p.threads.iter().filter_map(|t| t.waits.as_ref());
            waits.filter(|w| w.address == l.address).any(|w| w.flags as u8 & attr::SHARED != 0)
        };
        let named: BTreeSet<i32> = p
            .locks
            .iter()
            .filter(|l| l.holder > 0 && !is_shared(l) && p.threads.iter().all(|t| t.tid != l.holder))
            .map(|l| l.holder)
            .collect();
        p.threads.extend(named.into_iter().map(|tid| LiveThread { tid, ..LiveThread::default() }));
    }

    fn thread(&self, pid: i32, t: &mut LiveThread) {
        let at = format!("/proc/{pid}/task/{}", t.tid);
        t.state = status(&at).into();
        if t.state == state::ENDED {
            return;
        }
        if self.names {
            let name = sched::name(pid, t.tid);
            t.name = String::from_utf8_lossy(name.split(|b| *b == 0).next().unwrap_or_default()).into_owned();
        }
        // (The system call of a thread that runs is not known.)
        if [state::SLEEPING, state::UNINTERRUPTIBLE].contains(&t.state.as_str()) {
            let text = fs::read_to_string(format!("{at}/syscall")).unwrap_or_default();
            let mut words = text.split_whitespace();
            let number = words.next().and_then(|n| n.parse::<i64>().ok());
            t.system_call = number.filter(|n| *n >= 0).map(system_call);
            if number == Some(libc::SYS_futex) && t.waits.is_none() {
                t.joins = joined(words).filter(|tid| *tid != t.tid && processes::has_thread(pid, *tid));
            }
        }
    }
}

/// A lock that a thread waits for: process, address, and the operation.
type Wanted = (i32, u64, u8);

fn wanted(p: &LiveProcess) -> Vec<Wanted> {
    let waits = p.threads.iter().filter_map(|t| t.waits.as_ref());
    waits.map(|w| (p.pid, w.address, w.op())).collect()
}

/// What these locks name as their holders. Read by a separate thread, because the kernel never answers for a process that hangs in
/// it while it changes its mappings.
fn words(wanted: BTreeSet<Wanted>) -> Vec<(i32, LiveLock)> {
    let (tell, told) = channel();
    let read = move || {
        let mut locks = Vec::new();
        for (pid, address, op) in wanted {
            let lock = match lock_word::held(pid, address, op) {
                Some(Held::Free) => LiveLock { address, ..LiveLock::default() },
                Some(Held::By(holder)) => LiveLock { address, holder, readers: 0 },
                Some(Held::Readers(readers)) => LiveLock { address, holder: 0, readers },
                None => continue,
            };
            // (A rwlock may be waited for by several operations.)
            if locks.last() != Some(&(pid, lock)) {
                locks.push((pid, lock));
            }
        }
        let _ = tell.send(locks);
    };
    let thread = std::thread::Builder::new().name("lock words".into()).spawn(read);
    thread.ok().and_then(|_| told.recv_timeout(PATIENCE).ok()).unwrap_or_default()
}
