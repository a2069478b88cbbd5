//! Threads: their names, and policy and priority at a time.

use serde::Serialize;
use std::collections::{BTreeMap, HashMap};
use tape::lock::SchedBody;

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sched {
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    /// CPUs that it may run on, the first 128; all zero if not known.
    pub mask: [u64; 2],
}

impl Sched {
    /// Comparable: every SCHED_DEADLINE above every SCHED_FIFO and SCHED_RR, those above all others (0).
    pub fn rank(&self) -> i32 {
        match self.policy {
            libc_policy::DEADLINE => 100,
            libc_policy::FIFO | libc_policy::RR => self.priority,
            _ => 0,
        }
    }

    /// True if there is no CPU that both may run on.
    pub fn apart(&self, other: &Sched) -> bool {
        let known = |m: &[u64; 2]| m.iter().any(|w| *w != 0);
        let shared = self.mask.iter().zip(&other.mask).any(|(a, b)| a & b != 0);
        known(&self.mask) && known(&other.mask) && !shared
    }

    pub fn name(&self) -> String {
        match self.policy {
            libc_policy::FIFO => format!("SCHED_FIFO {}", self.priority),
            libc_policy::RR => format!("SCHED_RR {}", self.priority),
            libc_policy::DEADLINE => "SCHED_DEADLINE".into(),
            0 if self.nice == 0 => "SCHED_OTHER".into(),
            0 => format!("SCHED_OTHER nice {}", self.nice),
            3 => "SCHED_BATCH".into(),
            5 => "SCHED_IDLE".into(),
            p => format!("policy {p}"),
        }
    }
}

/// Numbers of the kernel's ABI.
mod libc_policy {
    pub const FIFO: i32 = 1;
    pub const RR: i32 = 2;
    pub const DEADLINE: i32 = 6;
}

#[derive(Debug, Default)]
pub struct Threads {
    known: BTreeMap<i32, Thread>,
    by_pthread: HashMap<u64, i32>,
}

#[derive(Debug, Default)]
struct Thread {
    name: String,
    /// In the order of the tape, which is that of time but for what other threads said of it.
    history: Vec<(u64, Sched)>,
}

/// A thread as a reader sees it.
#[derive(Clone, Debug, Serialize)]
pub struct ThreadRow {
    pub tid: i32,
    pub name: String,
    /// At its first event.
    pub sched: String,
    /// Later ones: seconds since the first event of the tape, and what it became.
    pub changes: Vec<(f64, String)>,
}

impl Threads {
    pub fn add(&mut self, by: i32, tsc: u64, s: &SchedBody) {
        let tid = match s.tid {
            0 => match self.by_pthread.get(&s.pthread) {
                Some(&tid) => tid,
                // It has not had an event of its own: its first will say.
                None => return,
            },
            tid => tid,
        };
        if s.pthread != 0 && tid == by {
            self.by_pthread.insert(s.pthread, tid);
        }
        let t = self.known.entry(tid).or_default();
        let end = s.name.iter().position(|b| *b == 0).unwrap_or(s.name.len());
        if end > 0 {
            t.name = String::from_utf8_lossy(&s.name[..end]).into_owned();
        }
        let before = t.history.last().map(|(_, s)| *s);
        let now = Sched {
            policy: if s.policy < 0 { before.map_or(0, |b| b.policy) } else { s.policy },
            priority: s.priority,
            nice: if s.cpus == 0 { before.map_or(0, |b| b.nice) } else { s.nice },
            mask: if s.cpus == 0 { before.map_or([0; 2], |b| b.mask) } else { s.mask },
        };
        if before != Some(now) {
            t.history.push((tsc, now));
        }
    }

    /// How it was scheduled at a time: what was last said before, or first said after.
    pub fn at(&self, tid: i32, tsc: u64) -> Option<Sched> {
        let h = &self.known.get(&tid)?.history;
        h.iter().rev().find(|(t, _)| *t <= tsc).or(h.first()).map(|(_, s)| *s)
    }

    pub fn name(&self, tid: i32) -> &str {
        self.known.get(&tid).map_or("", |t| t.name.as_str())
    }

    pub fn any_real_time(&self) -> bool {
        self.known.values().any(|t| t.history.iter().any(|(_, s)| s.rank() > 0))
    }

    pub fn rows(&self, seconds: impl Fn(u64) -> f64) -> Vec<ThreadRow> {
        let row = |(tid, t): (&i32, &Thread)| ThreadRow {
            tid: *tid,
            name: t.name.clone(),
            sched: t.history.first().map_or_else(String::new, |(_, s)| s.name()),
            changes: t.history.iter().skip(1).map(|(tsc, s)| (seconds(*tsc), s.name())).collect(),
        };
        self.known.iter().map(row).collect()
    }
}
