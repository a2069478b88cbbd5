//! Other processes that a thread waits for, in a system call: the other end of a pipe, the holder of a file's lock, whoever shares the
//! memory of a word.
//!
//! Several processes may be able to end such a wait. Those that cannot count first: stopped ones, then those that have ended, then the
//! others. Which one should have ended it is not known, so no line says that one did not do its work.

use crate::wait_graph::edges::{Holder, Thread, Threads};
use crate::wait_graph::streams::{On, Streams};
use lock_analysis::ops::Class;
use std::collections::{BTreeSet, HashMap};
use tape::live::{Live, LiveEnd, LiveOn, LiveOther, LiveProcess, LiveThread, how, on, state};

/// A process for which a thread waits.
pub struct Peer<'a> {
    pub pid: i32,
    pub name: &'a str,
    pub state: &'a str,
    pub ended: Option<&'a LiveEnd>,
    /// Of a process in the looks: how many threads it has.
    pub threads: usize,
}

/// What a thread waits for in a system call.
pub struct Outside<'a> {
    pub on: &'a LiveOn,
    /// The processes that must act, by index: all of one kind.
    pub peers: Vec<usize>,
    /// Those that can act, too: living ones, while `peers` cannot.
    pub others: usize,
    /// All of `peers` must act, and nobody else can end the wait.
    pub is_certain: bool,
}

/// The processes for which threads wait.
#[derive(Default)]
pub struct Peers<'a> {
    pub all: Vec<Peer<'a>>,
    /// By thread.
    pub of: HashMap<usize, Outside<'a>>,
    /// By stream, of those whose work has not ended: processes with the same memory for which it may wait: that have died or are stopped, else
    /// that sleep.
    pub of_streams: HashMap<usize, Vec<usize>>,
    /// The only thread of a process in the looks.
    only: HashMap<i32, usize>,
    index: HashMap<i32, usize>,
}

/// Waits that are shown though nobody is known who could end them. (Threads that wait for several things, or for a time, do so on purpose.)
fn is_worth_a_line(on: &LiveOn, t: &Thread<'_>) -> bool {
    is_for_one(t) && [on::PIPE, on::SOCKET, on::FILE_LOCK].contains(&on.kind.as_str())
}

/// Not in poll, which ends with any of its descriptors, or with its time.
fn is_for_one(t: &Thread<'_>) -> bool {
    t.row.on.len() == 1 && t.system_call.is_some_and(|s| !s.contains("poll") && !s.contains("select"))
}

/// A thread that sleeps so often between two looks looks at something again and again.
const OFTEN: u64 = 4;

/// Nothing more is known of a wait than that it is for a process that has ended.
static NO_CALL: LiveOn = LiveOn {
    kind: String::new(),
    name: String::new(),
    to: String::new(),
    address: None,
    value: None,
    expected: None,
    place: None,
    barrier: None,
    request: None,
    wchan: String::new(),
    others: Vec::new(),
    cut: false,
};

impl<'a> Peers<'a> {
    pub fn of(first: &'a Live, second: &'a Live, threads: &Threads<'a>, streams: &Streams<'_>) -> Peers<'a> {
        let mut peers = Peers::default();
        for p in second.processes.iter().filter(|p| p.state != state::ENDED) {
            let mut living = threads.all.iter().enumerate().filter(|(_, t)| t.process.pid == p.pid);
            if let (Some((n, _)), None) = (living.next(), living.next())
                && p.threads.iter().filter(|t| t.state != state::ENDED).count() == 1
            {
                peers.only.insert(p.pid, n);
            }
        }
        for (n, t) in threads.all.iter().enumerate() {
            let may_wait = match t.waits.as_ref().map(|w| &w.holder) {
                None => t.joins.is_none(),
                Some(Holder::Signal) => true,
                // (A lock in shared memory whose holder is not among the threads.)
                Some(Holder::Unknown) => true,
                Some(Holder::Threads(all)) => all.iter().all(|h| h.thread.is_none()),
                Some(_) => false,
            };
            let outside = if may_wait { peers.outside(first, second, t, threads) } else { None };
            // (Without a process it says at least what the thread waits for.)
            if let Some(of) = outside.filter(|of| !of.peers.is_empty() || is_worth_a_line(of.on, t)) {
                peers.of.insert(n, of);
            }
        }
        for (s, stream) in streams.all.iter().enumerate() {
            let is_work = stream.head.as_ref().is_some_and(|head| head.on == On::Work);
            let process = second.processes.iter().find(|p| p.pid == stream.pid && is_work);
            let mut found = process.map_or_else(Vec::new, |p| peers.gone(second, p));
            if let (true, Some(p)) = (found.is_empty(), process) {
                found = peers.asleep(second, p, threads);
            }
            if !found.is_empty() {
                peers.of_streams.insert(s, found);
            }
        }
        peers
    }

    fn outside(
        &mut self,
        first: &'a Live,
        second: &'a Live,
        t: &Thread<'a>,
        threads: &Threads<'a>,
    ) -> Option<Outside<'a>> {
        let (pid, tid) = (t.process.pid, t.row.tid);
        let was = first.processes.iter().find(|p| p.pid == pid)?.threads.iter().find(|t| t.tid == tid)?;
        let same = |o: &&'a LiveOn| was.on.iter().any(|b| b.is_same_wait(o));
        let mut best: Option<Outside<'a>> = None;
        for on in t.row.on.iter().filter(same) {
            let Some(found) = self.who(first, second, t, on) else { continue };
            if best.as_ref().is_none_or(|of| of.peers.is_empty()) {
                best = Some(found);
            }
        }
        let (known, unknown) = match best {
            Some(of) if of.peers.is_empty() => (None, Some(of)),
            of => (of, None),
        };
        known.or_else(|| self.polled(second, t, was, threads)).or(unknown)
    }

    /// Who can end a wait.
    fn who(&mut self, first: &'a Live, second: &'a Live, t: &Thread<'a>, on: &'a LiveOn) -> Option<Outside<'a>> {
        let pid = t.process.pid;
        // (Who waits for the same word does not wake others up, nor a parent that waits for its children.)
        let is_absent = |o: &&LiveOther| o.pid != pid && o.tids.is_empty() && !waits_for_children(second, o.pid);
        let can = |o: &&LiveOther| match on.kind.as_str() {
            on::PIPE if on.to == how::READ => o.pid != pid && [how::WRITE, how::BOTH].contains(&o.how.as_str()),
            on::PIPE => o.pid != pid && [how::READ, how::BOTH].contains(&o.how.as_str()),
            on::SOCKET => o.how == how::PEER && o.pid != pid,
            on::CHILD => o.how == how::CHILD,
            on::FUTEX => is_absent(o),
            _ => false,
        };
        let holds = |o: &&LiveOther| o.how == how::HOLDS;
        let mut all: Vec<&LiveOther> = on.others.iter().filter(holds).collect();
        if all.is_empty() {
            all = on.others.iter().filter(can).collect();
        }
        let ended_before = |pid| first.processes.iter().any(|p| p.pid == pid && p.state == state::ENDED);
        let of = |states: &[&str]| -> BTreeSet<i32> {
            all.iter().filter(|o| states.contains(&o.state.as_str())).map(|o| o.pid).collect()
        };
        let mut pids = of(&[state::STOPPED, state::TRACED]);
        if pids.is_empty() {
            pids = of(&[state::ENDED]).into_iter().filter(|pid| ended_before(*pid)).collect();
        }
        if pids.is_empty() {
            pids = all.iter().filter(|o| o.state != state::ENDED).map(|o| o.pid).collect();
        }
        let others = all.iter().filter(|o| !pids.contains(&o.pid) && o.state != state::ENDED).count();
        let peers = pids.iter().map(|pid| self.peer(second, *pid, &all)).collect();
        let is_alone = t.process.threads.iter().filter(|t| t.state != state::ENDED).count() == 1;
        let is_certain = !on.cut
            && others == 0
            && match on.kind.as_str() {
                on::FILE_LOCK => true,
                on::FUTEX if all.iter().all(holds) => true,
                on::FUTEX => match on.barrier {
                    Some(b) => pids.len() == b.count.saturating_sub(b.arrived) as usize,
                    None => is_alone && pids.len() == 1,
                },
                _ => is_for_one(t) && is_alone && pids.len() == 1,
            };
        Some(Outside { on, peers, others, is_certain })
    }

    /// A thread that runs, or sleeps for short times, in no call. It may poll memory that a process does not write which has died or is
    /// stopped. A process's first thread that slept often since the first look, and that others need for nothing, may also poll for a
    /// process that waits for something itself.
    fn polled(
        &mut self,
        second: &'a Live,
        t: &Thread<'a>,
        was: &LiveThread,
        threads: &Threads<'a>,
    ) -> Option<Outside<'a>> {
        // (Its state and its system call are read one after the other.)
        let polls =
            naps(t.system_call) || t.state == state::RUNNING || t.state == state::SLEEPING && t.system_call.is_none();
        if t.call.is_some() || t.waits.is_some() || !polls {
            return None;
        }
        let is_free = t.row.holds.is_empty() && t.process.streams.is_empty();
        let mut peers = self.gone(second, t.process);
        if peers.is_empty() && is_free && t.row.sleeps.saturating_sub(was.sleeps) >= OFTEN {
            peers = self.asleep(second, t.process, threads);
        }
        (!peers.is_empty()).then_some(Outside { on: &NO_CALL, peers, others: 0, is_certain: false })
    }

    /// Processes that shared memory with this one, and that have died or are stopped.
    fn gone(&mut self, second: &'a Live, process: &LiveProcess) -> Vec<usize> {
        let died =
            |p: &LiveProcess| p.ended.as_ref().is_some_and(|e| e.signal.is_some() || e.exit_code.unwrap_or(0) != 0);
        let is_gone = |p: &&LiveProcess| p.pid != process.pid && (died(p) || p.state == state::STOPPED);
        let pids: Vec<i32> =
            second.processes.iter().filter(is_gone).filter(|p| shares(p, process)).map(|p| p.pid).collect();
        pids.into_iter().map(|pid| self.peer(second, pid, &[])).collect()
    }

    /// Processes that share memory with this one and of which all threads sleep, in no CUDA call and not for children.
    fn asleep(&mut self, second: &'a Live, process: &LiveProcess, threads: &Threads<'a>) -> Vec<usize> {
        let sleeps = |p: &&LiveProcess| {
            let mut all = threads.all.iter().filter(|t| t.process.pid == p.pid).peekable();
            all.peek().is_some() && all.all(|t| t.state == state::SLEEPING && t.call.is_none() && !naps(t.system_call))
        };
        let others = second.processes.iter().filter(|p| p.pid != process.pid && p.state != state::ENDED);
        let idle = others.filter(|p| shares(p, process)).filter(sleeps).filter(|p| !waits_for_children(second, p.pid));
        let pids: Vec<i32> = idle.map(|p| p.pid).collect();
        pids.into_iter().map(|pid| self.peer(second, pid, &[])).collect()
    }

    fn peer(&mut self, second: &'a Live, pid: i32, others: &[&'a LiveOther]) -> usize {
        if let Some(n) = self.index.get(&pid) {
            return *n;
        }
        let known = second.processes.iter().find(|p| p.pid == pid);
        let other = others.iter().find(|o| o.pid == pid);
        let name = known.map(|p| p.name.as_str()).filter(|name| !name.is_empty());
        let state = known.map(|p| p.state.as_str()).filter(|s| *s != state::UNKNOWN);
        self.index.insert(pid, self.all.len());
        self.all.push(Peer {
            pid,
            name: name.or(other.map(|o| o.name.as_str())).unwrap_or(""),
            state: state.or(other.map(|o| o.state.as_str())).unwrap_or(state::UNKNOWN),
            ended: known.and_then(|p| p.ended.as_ref()),
            threads: known.map_or(0, |p| p.threads.len()),
        });
        self.all.len() - 1
    }

    /// The only thread of a peer.
    pub fn thread_of(&self, peer: usize) -> Option<usize> {
        let p = self.all.get(peer)?;
        self.only.get(&p.pid).copied().filter(|_| p.ended.is_none())
    }
}

/// A thread that looks again and again sleeps in these.
fn naps(system_call: Option<&str>) -> bool {
    system_call.is_some_and(|name| ["nanosleep", "clock_nanosleep", "sched_yield"].contains(&name))
}

/// Two processes have the same memory.
fn shares(a: &LiveProcess, b: &LiveProcess) -> bool {
    a.shares.iter().any(|s| b.shares.iter().any(|o| (&o.device, o.inode) == (&s.device, s.inode)))
}

/// All threads of a process wait for its children.
fn waits_for_children(live: &Live, pid: i32) -> bool {
    let Some(p) = live.processes.iter().find(|p| p.pid == pid) else { return false };
    let mut threads = p.threads.iter().filter(|t| t.state != state::ENDED).peekable();
    threads.peek().is_some()
        && threads.all(|t| {
            t.on.iter().any(|o| o.kind == on::CHILD) || t.system_call.as_deref().is_some_and(|s| s.starts_with("wait"))
        })
}

/// `a pipe (pipe:[123])`
pub fn what(on: &LiveOn, class: Option<Class>) -> String {
    let place = on.place.as_ref().map(|p| {
        let path = match p.path.as_str() {
            "" | "/dev/zero (deleted)" => "shared memory",
            path => path,
        };
        format!("{path}+{:#x}", p.offset)
    });
    match (on.kind.as_str(), place) {
        (on::PIPE, _) => format!("pipe {}", on.name),
        (on::SOCKET, _) => format!("socket {}", on.name),
        (on::FILE_LOCK, _) => format!("the lock of file {}", on.name),
        (on::CHILD, _) => "the end of a child".into(),
        (on::FUTEX, place) => {
            let of = place.unwrap_or_else(|| format!("{:#x}", on.address.unwrap_or(0)));
            match (on.barrier, class) {
                (Some(b), _) => format!("barrier {of} ({} of {} are there)", b.arrived, b.count),
                (None, Some(Class::Sem)) => format!("semaphore {of}"),
                (None, Some(Class::Cond)) => format!("condition {of}"),
                (None, _) => format!("word {of}"),
            }
        }
        (kind, _) => format!("{kind} {}", on.name),
    }
}
