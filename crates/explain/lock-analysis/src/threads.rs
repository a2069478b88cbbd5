//! Threads: their names, and policy and priority at a time.

use crate::fast_map::FastMap;
use decode::Source;
use schema::locks::ThreadRow;
use std::collections::BTreeMap;
use tape::lock::SchedBody;
use tape::switch::{DeadlineBody, TaskBody};

/// How a thread is scheduled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sched {
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    /// SCHED_DEADLINE: from the begin of a period to the deadline, ns; 0 if not known.
    pub deadline: u64,
    /// CPUs that it may run on, the first 128; all zero if not known.
    pub mask: [u64; 2],
}

impl Sched {
    /// It has precedence over all threads of the usual policies.
    pub fn is_real_time(&self) -> bool {
        self.rank() > 0
    }

    /// Every SCHED_DEADLINE above every SCHED_FIFO and SCHED_RR, those above all others (0).
    fn rank(&self) -> i32 {
        match self.policy {
            libc_policy::DEADLINE => 100,
            libc_policy::FIFO | libc_policy::RR => self.priority,
            _ => 0,
        }
    }

    /// The kernel would run it and not the other. Between two threads under SCHED_DEADLINE it is the one with the shorter
    /// relative deadline: the tape lacks their absolute deadlines.
    pub fn is_above(&self, other: &Sched) -> bool {
        let deadlines = self.policy == libc_policy::DEADLINE && other.policy == libc_policy::DEADLINE;
        match deadlines {
            true => self.deadline != 0 && self.deadline < other.deadline,
            false => self.rank() > other.rank(),
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
            libc_policy::DEADLINE if self.deadline == 0 => "SCHED_DEADLINE".into(),
            libc_policy::DEADLINE => format!("SCHED_DEADLINE {} us", self.deadline / 1000),
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
    pub const OTHER: i32 = 0;
    pub const BATCH: i32 = 3;
    pub const FIFO: i32 = 1;
    pub const RR: i32 = 2;
    pub const DEADLINE: i32 = 6;
}

#[derive(Debug, Default)]
pub struct Threads {
    known: BTreeMap<Source, Thread>,
    by_pthread: FastMap<(u32, u64), i32>,
    /// Threads that got a CPU after one of the program's, as they were then. The key's process is the one whose switches
    /// have them.
    others: BTreeMap<Source, Thread>,
    /// By number: the threads of the program that have or had it. Each PID namespace has its own numbers, and they are
    /// used again.
    of_number: FastMap<i32, Vec<Source>>,
}

#[derive(Debug, Default)]
struct Thread {
    name: String,
    /// In the order of the tape, which is that of time except for events by other threads. After [`Threads::finish`], in
    /// the order of time.
    history: Vec<(u64, Sched)>,
}

impl Thread {
    fn at(&self, tsc: u64) -> Option<Sched> {
        let after = self.history.partition_point(|(t, _)| *t <= tsc);
        self.history.get(after.saturating_sub(1)).map(|(_, s)| *s)
    }
}

impl Threads {
    pub fn add(&mut self, by: Source, tsc: u64, s: &SchedBody) {
        let tid = match s.tid {
            0 => match self.by_pthread.get(&(by.process, s.pthread)) {
                Some(&tid) => tid,
                // It has had no event so far; its first will have this.
                None => return,
            },
            tid => tid,
        };
        if s.pthread != 0 && tid == by.tid {
            self.by_pthread.insert((by.process, s.pthread), tid);
        }
        let thread = self.meant(by, tid);
        let t = self.known.entry(thread).or_insert_with(|| {
            self.of_number.entry(tid).or_default().push(thread);
            Thread::default()
        });
        let end = s.name.iter().position(|b| *b == 0).unwrap_or(s.name.len());
        if end > 0 {
            t.name = String::from_utf8_lossy(&s.name[..end]).into_owned();
        }
        let before = t.history.last().map(|(_, s)| *s);
        let policy = if s.policy < 0 { before.map_or(0, |b| b.policy) } else { s.policy };
        let nice = if s.cpus == 0 { before.map_or(0, |b| b.nice) } else { s.nice };
        let now = Sched {
            policy,
            priority: s.priority,
            // (For other policies, two system calls disagree on it.)
            nice: if policy == libc_policy::OTHER || policy == libc_policy::BATCH { nice } else { 0 },
            deadline: before.filter(|b| b.policy == policy).map_or(0, |b| b.deadline),
            mask: if s.cpus == 0 { before.map_or([0; 2], |b| b.mask) } else { s.mask },
        };
        if before != Some(now) {
            t.history.push((tsc, now));
        }
    }

    /// The thread that event writer `by` means by a number: one of its process, or else of another recorded one.
    fn meant(&self, by: Source, tid: i32) -> Source {
        let own = Source { process: by.process, tid };
        if tid == by.tid || self.known.contains_key(&own) {
            return own;
        }
        self.of_number.get(&tid).and_then(|all| all.last()).copied().unwrap_or(own)
    }

    /// Adds the deadline, which the last [`Threads::add`] of this thread lacked.
    pub fn deadline(&mut self, by: Source, d: &DeadlineBody) {
        let thread = self.meant(by, d.tid);
        let last = self.known.get_mut(&thread).and_then(|t| t.history.last_mut());
        if let Some((_, s)) = last.filter(|(_, s)| s.policy == libc_policy::DEADLINE) {
            s.deadline = d.deadline;
        }
    }

    /// Adds a thread that got a CPU after one of the program's: another program's, or one without other events.
    pub fn task(&mut self, by: Source, tsc: u64, t: &TaskBody) {
        let end = t.name.iter().position(|b| *b == 0).unwrap_or(t.name.len());
        let to = self.others.entry(Source { process: by.process, tid: t.tid }).or_default();
        if end > 0 {
            to.name = String::from_utf8_lossy(&t.name[..end]).into_owned();
        }
        if t.policy >= 0 {
            let (policy, priority, nice) = (t.policy, t.priority, t.nice);
            to.history.push((tsc, Sched { policy, priority, nice, deadline: 0, mask: [0; 2] }));
        }
    }

    /// Call it once, after all events.
    pub fn finish(&mut self) {
        let all = self.known.values_mut().chain(self.others.values_mut());
        all.for_each(|t| t.history.sort_by_key(|(tsc, _)| *tsc));
    }

    /// How a thread was scheduled at a time: the last record before it, or else the first after it.
    pub fn at(&self, thread: Source, tsc: u64) -> Option<Sched> {
        self.known.get(&thread).or_else(|| self.others.get(&thread))?.at(tsc)
    }

    pub fn name(&self, thread: Source) -> &str {
        let known = self.known.get(&thread).filter(|t| !t.name.is_empty());
        known.or_else(|| self.others.get(&thread)).map_or("", |t| t.name.as_str())
    }

    /// As [`Threads::at`], for a thread that had a CPU before or after one of this process. It may be of another process
    /// or another program.
    pub fn other_at(&self, process: u32, tid: i32, tsc: u64) -> Option<Sched> {
        let own = Source { process, tid };
        let known = self.known.get(&own).or_else(|| self.elsewhere(tid, tsc)).or_else(|| self.others.get(&own));
        known?.at(tsc)
    }

    /// As [`Threads::name`], for such a thread.
    pub fn other_name(&self, process: u32, tid: i32, tsc: u64) -> &str {
        match self.name(Source { process, tid }) {
            "" => self.elsewhere(tid, tsc).map_or("", |t| t.name.as_str()),
            name => name,
        }
    }

    /// The thread of any process that had a number at a time: the one with the latest begin before it, or else the
    /// earliest after it.
    fn elsewhere(&self, tid: i32, tsc: u64) -> Option<&Thread> {
        let began = |t: &&Thread| t.history.first().map_or(0, |(first, _)| *first);
        let all = || self.of_number.get(&tid).into_iter().flatten().filter_map(|thread| self.known.get(thread));
        let before = all().filter(|t| began(t) <= tsc).max_by_key(began);
        before.or_else(|| all().min_by_key(began))
    }

    pub fn any_real_time(&self) -> bool {
        self.known.values().any(|t| t.history.iter().any(|(_, s)| s.is_real_time()))
    }

    pub fn rows(&self, seconds: impl Fn(u64) -> f64) -> Vec<ThreadRow> {
        let row = |(thread, t): (&Source, &Thread)| ThreadRow {
            process: thread.process,
            tid: thread.tid,
            name: t.name.clone(),
            sched: t.history.first().map_or_else(String::new, |(_, s)| s.name()),
            changes: t.history.iter().skip(1).map(|(tsc, s)| (seconds(*tsc), s.name())).collect(),
        };
        self.known.iter().map(row).collect()
    }
}
