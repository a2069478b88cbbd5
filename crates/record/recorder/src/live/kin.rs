//! Processes that a recorded program has started, also those that record nothing: what they have open and which memory they share,
//! so that this is known after they have ended. A thread reads it soon after their start, and again when they have lived twice as long.
//!
//! Invariant: the thread that drains the rings never waits for this one, which uses at most one part in [`REST`] of a CPU.

use super::details::end;
use super::others::pipes_if;
use super::proc::{self, children, numbers, status};
use super::readers::{Job, run, shares};
use crate::processes::Handle;
use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tape::live::{LivePipe, LiveProcess, LiveShared, state};

/// The latest so many processes are kept, those that have ended go first.
const KEPT: usize = 128;
/// Mappings, and pipes and sockets, of one.
const SHARED: usize = 256;
const PIPES: usize = 64;
/// Threads of one whose children are looked for.
const THREADS: usize = 1024;
/// Requests that wait.
const ASKED: usize = 64;
const REST: u32 = 10;
/// Time for a reading.
const PATIENCE: Duration = Duration::from_millis(200);
/// A child that is started by a hook is there a little later.
const LATER: Duration = Duration::from_millis(40);
/// Without another process there is nothing to read again.
const ALONE: Duration = Duration::from_secs(3600);
/// The first time that a process is read again.
const AGAIN: Duration = Duration::from_secs(1);

struct Known {
    process: LiveProcess,
    handle: Handle,
    since: Instant,
    /// It is read again when it has lived so long.
    next: Duration,
}

type All = Arc<Mutex<VecDeque<Known>>>;

/// What is known; another thread adds to it.
#[derive(Default)]
pub struct Kin {
    all: All,
    asks: Option<SyncSender<i32>>,
}

impl Kin {
    /// A process is new, or has started children. False: too many are asked for, so it must be asked for again.
    pub fn ask(&mut self, pid: i32) -> bool {
        let asks = self.asks.get_or_insert_with(|| {
            let (asks, asked) = sync_channel(ASKED);
            let all = self.all.clone();
            // (If there can be no thread, nothing is known.)
            let _ = std::thread::Builder::new().name("kin".into()).spawn(move || learn(&asked, &all));
            asks
        });
        pid <= 0 || !matches!(asks.try_send(pid), Err(std::sync::mpsc::TrySendError::Full(_)))
    }

    pub fn known(&self) -> Relatives {
        Relatives(self.all.clone())
    }
}

/// For the thread that makes an answer.
#[derive(Default)]
pub struct Relatives(All);

impl Relatives {
    /// All that are known, with how those ended that have ended.
    pub fn all(&self) -> Vec<LiveProcess> {
        let of = |k: &Known| {
            let mut p = k.process.clone();
            if k.handle.has_ended() {
                p.state = state::ENDED.into();
                p.ended = Some(end(k.handle.remains().is_some(), k.handle.status()));
            }
            p
        };
        lock(&self.0).iter().map(of).collect()
    }
}

fn lock(all: &All) -> MutexGuard<'_, VecDeque<Known>> {
    all.lock().unwrap_or_else(PoisonError::into_inner)
}

fn learn(asked: &Receiver<i32>, all: &All) {
    let mut later: BTreeSet<i32> = BTreeSet::new();
    loop {
        let is_alone = lock(all).len() < 2;
        let wait = match later.is_empty() {
            true if is_alone => ALONE,
            true => AGAIN,
            false => LATER,
        };
        let begun = match asked.recv_timeout(wait) {
            Ok(pid) => {
                let begun = Instant::now();
                let new: BTreeSet<i32> = std::iter::once(pid).chain(asked.try_iter()).collect();
                new.iter().for_each(|pid| add(*pid, all, false));
                later.extend(new);
                begun
            }
            Err(RecvTimeoutError::Timeout) => {
                let begun = Instant::now();
                // (A child closes the ends of pipes that it does not use when it has started.)
                std::mem::take(&mut later).into_iter().for_each(|pid| add(pid, all, true));
                read_again(all);
                begun
            }
            Err(RecvTimeoutError::Disconnected) => return,
        };
        let took = begun.elapsed();
        if took > Duration::from_millis(1) {
            std::thread::sleep((took * REST).min(AGAIN));
        }
    }
}

/// Adds a process and its descendants; with `renews`, those that are known are read again.
fn add(pid: i32, all: &All, renews: bool) {
    let mut todo = vec![pid];
    let mut at = 0;
    while let Some(pid) = todo.get(at).copied().filter(|_| at < KEPT) {
        at += 1;
        let is_known = lock(all).iter().any(|k| k.process.pid == pid && !k.handle.has_ended());
        if is_known && renews {
            renew(pid, all);
        } else if !is_known && let Some(known) = Known::new(pid) {
            keep(known, all);
        }
        let threads = numbers(&format!("/proc/{pid}/task"), THREADS);
        todo.extend(threads.into_iter().flat_map(|tid| children(pid, tid)));
    }
}

impl Known {
    fn new(pid: i32) -> Option<Known> {
        let handle = Handle::open(pid);
        let (shares, pipes) = read(pid).unwrap_or_default();
        let (now, stat) = status(&format!("/proc/{pid}"));
        let stat = stat.filter(|_| handle.was_there())?;
        let process = LiveProcess {
            pid,
            name: proc::name(&stat),
            parent: stat.ppid,
            began: crate::clock::tsc(),
            unrecorded: true,
            state: now.into(),
            shares,
            pipes,
            ..LiveProcess::default()
        };
        Some(Known { process, handle, since: Instant::now(), next: AGAIN })
    }
}

fn keep(known: Known, all: &All) {
    let mut all = lock(all);
    all.retain(|k| k.process.pid != known.process.pid);
    if all.len() >= KEPT {
        let oldest = all.iter().position(|k| k.handle.has_ended()).unwrap_or(0);
        all.remove(oldest);
    }
    all.push_back(known);
}

/// Those that have lived twice as long as when they were last read. (A process alone shares nothing.)
fn read_again(all: &All) {
    let is_due = |k: &&Known| k.since.elapsed() > k.next && !k.handle.has_ended();
    let due: Vec<i32> = match lock(all) {
        all if all.len() > 1 => all.iter().filter(is_due).map(|k| k.process.pid).collect(),
        _ => Vec::new(),
    };
    due.into_iter().for_each(|pid| renew(pid, all));
}

fn renew(pid: i32, all: &All) {
    let Some((shares, pipes)) = read(pid) else { return };
    let stat = status(&format!("/proc/{pid}")).1;
    if let Some(k) = lock(all).iter_mut().find(|k| k.process.pid == pid) {
        // (One that ends meanwhile has nothing any more.)
        if k.handle.has_ended() {
            return;
        }
        (k.process.shares, k.process.pipes) = (shares, pipes);
        stat.iter().for_each(|s| k.process.name = proc::name(s));
        k.next = k.since.elapsed() * 2;
    }
}

/// `None`: the kernel does not answer, or the process is ending: it loses its memory first, then its files, and only then has it ended.
fn read(pid: i32) -> Option<(Vec<LiveShared>, Vec<LivePipe>)> {
    let read = move |to: &Sender<_>| {
        let is_pipe = |link: &str| link.starts_with("pipe:[") || link.starts_with("socket:[");
        let mut shares = shares(pid);
        shares.truncate(SHARED);
        let pipes = pipes_if(pid, is_pipe).into_iter().take(PIPES).collect();
        let has_memory = std::fs::read(format!("/proc/{pid}/statm")).is_ok_and(|pages| !pages.starts_with(b"0 "));
        if has_memory {
            let _ = to.send((shares, pipes));
        }
    };
    let mut found = None;
    run(vec![Job { pid, read: Box::new(read) }], Instant::now() + PATIENCE, |read| found = Some(read));
    found
}
