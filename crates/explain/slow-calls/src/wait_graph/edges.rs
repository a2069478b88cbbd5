//! Which thread waits for which, from two looks.
//!
//! Invariant: a wait counts only if both looks have it: the same thread, the same lock, the same begin. Then the thread waited for the
//! whole time between the looks. If all threads of a cycle did, then at one moment each waited for the next: no thread of a program
//! that makes progress is in one.

use lock_analysis::ops::{Class, is_wait_for_condition};
use std::collections::HashMap;
use tape::live::{Live, LiveCall, LiveHold, LiveLock, LiveProcess, LiveThread, state};
use tape::lock::{attr, op};

/// A thread, as the second look has it.
pub struct Thread<'a> {
    pub process: &'a LiveProcess,
    pub row: &'a LiveThread,
    /// The state that both looks have; if they differ, `running` if one of them has that, else `unknown`.
    pub state: &'a str,
    pub system_call: Option<&'a str>,
    /// A call that both looks have.
    pub call: Option<&'a LiveCall>,
    /// The thread for whose end it waits in both looks.
    pub joins: Option<usize>,
    /// A wait that both looks have.
    pub waits: Option<Wait>,
    /// CUDA called a function of the program in it, in both looks.
    pub is_in_host_function: bool,
}

/// What a thread waits for.
pub struct Wait {
    pub lock: LiveHold,
    pub class: Class,
    pub holder: Holder,
    /// It is Python's lock, the GIL. (Its wait begins again every 5 ms.)
    pub is_python: bool,
}

/// Who must act before the wait ends. (A kernel, a stream or another process will be others.)
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// These threads have it.
    Threads(Vec<Held>),
    /// A lock whose holder was not seen and that names none.
    Unknown,
    /// No thread had it in both looks.
    Free,
    /// It was given on between the looks.
    Changes,
    /// A condition or a semaphore: any thread may signal it.
    Signal,
}

/// A thread that has a lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Held {
    /// Index of the thread; `None`: it was not seen.
    pub thread: Option<usize>,
    /// Its number; 0 if it was not seen.
    pub tid: i32,
    pub how: How,
    /// When it took the lock, if that is known.
    pub since: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Alone,
    Reads,
    /// It waits to write, before readers that come later.
    Queues,
}

/// The threads of both looks, and their waits.
pub struct Threads<'a> {
    pub all: Vec<Thread<'a>>,
    /// By process and number.
    index: HashMap<(i32, i32), usize>,
    /// Waits for a mutex or a rwlock that only the second look has, or that began again between the looks.
    pub short: Vec<(usize, LiveHold)>,
    /// Waits for a condition that both looks have, but that began again between them.
    pub renewed: Vec<(usize, LiveHold)>,
}

impl<'a> Threads<'a> {
    pub fn of(first: &'a Live, second: &'a Live) -> Threads<'a> {
        let before = |p: &LiveProcess| first.processes.iter().find(|f| f.pid == p.pid);
        let mut index = HashMap::new();
        let (mut all, mut pairs) = (Vec::new(), Vec::new());
        let (mut short, mut renewed) = (Vec::new(), Vec::new());
        for process in second.processes.iter().filter(|p| p.state != state::ENDED) {
            let Some(earlier) = before(process) else { continue };
            let rows: HashMap<i32, &LiveThread> = earlier.threads.iter().map(|t| (t.tid, t)).collect();
            for row in &process.threads {
                let Some(was) = rows.get(&row.tid) else { continue };
                let n = all.len();
                index.insert((process.pid, row.tid), n);
                let is_live = row.state != state::ENDED;
                // (A waiting thread that the kernel runs has got its lock, and did not yet get so far as to write that down.)
                let runs = [was, row].iter().any(|t| t.state == state::RUNNING);
                let wait = row.waits.filter(|w| is_live && !runs && was.waits.as_ref() == Some(w));
                match row.waits.filter(|_| is_live && wait.is_none()) {
                    Some(w) if is_lock(&w) => short.push((n, w)),
                    Some(w) if was.waits.is_some_and(|before| before.address == w.address) => renewed.push((n, w)),
                    _ => {}
                }
                pairs.push((earlier, wait, *was));
                all.push(Thread {
                    process,
                    row,
                    state: match was.state == row.state {
                        true => &row.state,
                        false if runs => state::RUNNING,
                        false => state::UNKNOWN,
                    },
                    system_call: row.system_call.as_deref().filter(|s| was.system_call.as_deref() == Some(*s)),
                    call: row.call.as_ref().filter(|c| is_live && was.call.as_ref() == Some(*c)),
                    joins: None,
                    waits: None,
                    is_in_host_function: row.host_function.is_some() && row.host_function == was.host_function,
                });
            }
        }
        let look = Looks { index: &index, pairs: &pairs, all: &all };
        let waits: Vec<Option<Wait>> = (0..pairs.len()).map(|n| look.wait(n)).collect();
        all.iter_mut().zip(waits).zip(&pairs).for_each(|((t, wait), (_, _, was))| {
            // (A thread that runs does not wait.)
            let joins = t.row.joins.filter(|tid| was.joins == Some(*tid) && t.state != state::RUNNING);
            t.joins = joins.and_then(|tid| index.get(&(t.process.pid, tid)).copied());
            t.waits = wait;
        });
        for (n, lock) in &renewed {
            let gil = python_lock(&all, &index, *n, lock, &pairs);
            all[*n].waits = gil;
        }
        Threads { all, index, short, renewed }
    }

    pub fn position(&self, pid: i32, tid: i32) -> Option<usize> {
        self.index.get(&(pid, tid)).copied()
    }
}

/// The wait for Python's lock of a thread whose wait began again between the looks; `None` if it waits for something else, or if the lock
/// was given on.
fn python_lock(
    all: &[Thread<'_>],
    index: &HashMap<(i32, i32), usize>,
    n: usize,
    lock: &LiveHold,
    pairs: &[Pair<'_>],
) -> Option<Wait> {
    let (is, was) = (all.get(n)?.process, pairs.get(n)?.0);
    let of = |p: &LiveProcess| p.python.iter().find(|g| g.condition == lock.address).copied();
    let gil = of(is).filter(|gil| gil.is_locked && gil.holder > 0 && of(was) == Some(*gil))?;
    let thread = index.get(&(is.pid, gil.holder)).copied();
    let held = Held { thread, tid: gil.holder, how: How::Alone, since: None };
    let holder = Holder::Threads(vec![held]);
    Some(Wait { lock: *lock, class: Class::Cond, holder, is_python: true })
}

fn is_lock(w: &LiveHold) -> bool {
    matches!(Class::of(w.op()), Some(Class::Mutex | Class::Rwlock))
}

fn writes(w: &LiveHold) -> bool {
    matches!(w.op(), op::RWLOCK_WRLOCK..=op::RWLOCK_CLOCKWRLOCK)
}

/// The wait ends by itself: the function has a time limit.
pub fn has_limit(w: &LiveHold) -> bool {
    matches!(
        w.op(),
        op::MUTEX_TIMEDLOCK
            | op::MUTEX_CLOCKLOCK
            | op::RWLOCK_TIMEDRDLOCK
            | op::RWLOCK_CLOCKRDLOCK
            | op::RWLOCK_TIMEDWRLOCK
            | op::RWLOCK_CLOCKWRLOCK
            | op::COND_TIMEDWAIT
            | op::COND_CLOCKWAIT
            | op::SEM_TIMEDWAIT
            | op::SEM_CLOCKWAIT
    )
}

/// For each thread: its process in the first look, the wait of both looks, and its row in the first.
type Pair<'a> = (&'a LiveProcess, Option<LiveHold>, &'a LiveThread);

struct Looks<'a, 'i> {
    index: &'i HashMap<(i32, i32), usize>,
    pairs: &'i [Pair<'a>],
    all: &'i [Thread<'a>],
}

impl Looks<'_, '_> {
    fn wait(&self, n: usize) -> Option<Wait> {
        let (earlier, lock, _) = self.pairs.get(n)?;
        let lock = (*lock)?;
        let class = Class::of(lock.op())?;
        let process = self.all.get(n)?.process;
        let holder = match class {
            Class::Cond | Class::Sem => Holder::Signal,
            Class::Mutex | Class::Rwlock => {
                let word = |p: &LiveProcess| p.locks.iter().find(|l| l.address == lock.address).copied();
                self.holder(n, process, &lock, [word(earlier), word(process)])
            }
        };
        Some(Wait { lock, class, holder, is_python: false })
    }

    fn holder(&self, waiter: usize, p: &LiveProcess, lock: &LiveHold, words: [Option<LiveLock>; 2]) -> Holder {
        let [Some(was), Some(is)] = words else {
            // The lock itself could not be read, so the tables of the threads count.
            let rows = self.rows(p, lock.address);
            return if rows.is_empty() { Holder::Unknown } else { Holder::Threads(rows) };
        };
        if was.holder > 0 || is.holder > 0 {
            return if was.holder == is.holder { self.alone(waiter, p, lock, is.holder) } else { Holder::Changes };
        }
        // A rwlock that readers have, or a lock that is free.
        let writers = || self.queued(p, lock.address);
        match (was.readers.min(is.readers), was.readers.max(is.readers)) {
            (0, 0) => Holder::Free,
            (0, _) => Holder::Changes,
            // Readers do not wait for readers, but for a writer that waits, if the lock prefers writers.
            _ if !writes(lock) && writers().is_empty() => Holder::Changes,
            _ if !writes(lock) => Holder::Threads(writers()),
            (readers, _) => {
                let mut all: Vec<Held> =
                    self.rows(p, lock.address).into_iter().filter(|h| h.how == How::Reads).collect();
                if all.is_empty() {
                    return Holder::Unknown;
                }
                let unseen = Held { thread: None, tid: 0, how: How::Reads, since: None };
                all.extend((all.len() < readers as usize).then_some(unseen));
                Holder::Threads(all)
            }
        }
    }

    /// The lock names this thread in both looks.
    fn alone(&self, waiter: usize, p: &LiveProcess, lock: &LiveHold, tid: i32) -> Holder {
        let is_shared = lock.flags as u8 & attr::SHARED != 0;
        let elsewhere = || self.index.iter().find(|((_, t), _)| is_shared && *t == tid).map(|(_, n)| *n);
        let thread = self.index.get(&(p.pid, tid)).copied().or_else(elsewhere);
        // (Processes may map a shared lock at different addresses.)
        // (The first row: a recursive mutex has one for each time that it was taken.)
        let hold = |rows: &[LiveHold]| rows.iter().find(|h| h.address == lock.address && holds(h)).copied();
        let looks = thread.and_then(|n| Some((self.pairs.get(n)?.2, self.all.get(n)?)));
        let rows = looks.map(|(was, is)| (hold(&was.holds), hold(&is.row.holds)));
        let since = match rows {
            Some((Some(was), Some(is))) if was == is => Some(is.since).filter(|since| *since != 0),
            // It gave the lock back and took it again.
            Some((Some(_), Some(_))) => return Holder::Changes,
            _ => None,
        };
        // A thread that got the lock, but did not run since, still has its wait in its row.
        let has_row = matches!(rows, Some((Some(_), Some(_))));
        if thread == Some(waiter) && !has_row && looks.is_none_or(|(_, is)| is.system_call != Some("futex")) {
            return Holder::Changes;
        }
        Holder::Threads(vec![Held { thread, tid, how: How::Alone, since }])
    }

    /// The threads whose tables have the lock in both looks.
    fn rows(&self, p: &LiveProcess, address: u64) -> Vec<Held> {
        let of = |(n, t): (usize, &Thread<'_>)| {
            let hold = t.row.holds.iter().find(|h| h.address == address && holds(h))?;
            let was = self.pairs.get(n)?.2;
            let reads = matches!(hold.op(), op::RWLOCK_RDLOCK..=op::RWLOCK_CLOCKRDLOCK);
            (t.process.pid == p.pid && was.holds.contains(hold) && t.row.state != state::ENDED).then_some(Held {
                thread: Some(n),
                tid: t.row.tid,
                how: if reads { How::Reads } else { How::Alone },
                since: Some(hold.since).filter(|since| *since != 0),
            })
        };
        self.all.iter().enumerate().filter_map(of).collect()
    }

    /// The threads that wait to write.
    fn queued(&self, p: &LiveProcess, address: u64) -> Vec<Held> {
        let of = |(n, t): (usize, &Thread<'_>)| {
            let lock = self.pairs.get(n)?.1?;
            (t.process.pid == p.pid && lock.address == address && writes(&lock)).then_some(Held {
                thread: Some(n),
                tid: t.row.tid,
                how: How::Queues,
                since: Some(lock.since),
            })
        };
        self.all.iter().enumerate().filter_map(of).collect()
    }
}

/// Not a mutex that its thread gave back while it waits for a condition.
fn holds(h: &LiveHold) -> bool {
    h.since != 0 || h.turn != 0 || !is_wait_for_condition(h.op())
}
