//! What sleeping threads wait for, and which other processes could end that: only looked for if a thread sleeps in such a system call.

use super::details::{Details, PATIENCE, Sleeper};
use super::others::{self, Found};
use super::proc::{children, other, process_of};
use super::readers::{self, Job, Read, Wanted};
use super::waits::{Want, kind, link, want};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveBarrier, LiveOn, LiveOther, LiveProcess, LiveShared, LiveThread, how, on, state};
use tape::lock::attr;

/// The memory of programs is read until this time of a look.
const MEMORY_WITHIN: Duration = Duration::from_millis(320);
/// Maximum number of other processes of one wait, and of all; of threads of one; and of mappings of a process, and of all.
const OTHERS: usize = 64;
const ALL_OTHERS: usize = 8000;
const TIDS: usize = 64;
const SHARED: usize = 64;
const ALL_SHARED: usize = 4000;

/// A wait of a thread.
struct Wait {
    process: usize,
    thread: usize,
    want: Want,
    on: LiveOn,
}

/// Words of futexes, and descriptors of arrays of poll, by process and address.
#[derive(Default)]
struct Memory {
    words: HashMap<(usize, u64), (u32, Option<LiveBarrier>)>,
    polls: HashMap<(usize, u64), Vec<(i32, bool)>>,
}

pub fn add(details: &Details, live: &mut Live, sleepers: &[Sleeper]) {
    let wants: Vec<Wait> = sleepers.iter().filter_map(|s| wait(live, s)).collect();
    let memory = read_memory(details, live, &wants);
    let mut waits = expand(live, wants, &memory);
    search(details, live, &mut waits);
    let places: BTreeSet<u64> = waits.iter().filter_map(|w| Some(w.on.place.as_ref()?.inode)).collect();
    let names: BTreeSet<String> = waits.iter().map(|w| w.on.name.clone()).collect();
    for w in waits {
        if let Some(t) = live.processes.get_mut(w.process).and_then(|p| p.threads.get_mut(w.thread)) {
            t.on.push(w.on);
        }
    }
    // Of those that have ended, only what others have, too.
    let is_live = |p: &&LiveProcess| p.state != state::ENDED;
    let live_shares = live.processes.iter().filter(is_live).flat_map(|p| &p.shares);
    let inodes: BTreeSet<u64> = live_shares.map(|s| s.inode).collect();
    for p in live.processes.iter_mut().filter(|p| p.state == state::ENDED) {
        p.pipes.retain(|had| names.contains(&had.name));
        p.shares.retain(|s| inodes.contains(&s.inode));
    }
    let mut room = ALL_SHARED;
    for p in &mut live.processes {
        named_by_locks(details, p);
        // Those first in which somebody waits.
        p.shares.sort_by_key(|s| (!places.contains(&s.inode), s.begin));
        p.shares.truncate(SHARED.min(room));
        room -= p.shares.len();
        if !details.names {
            p.shares.iter_mut().for_each(|s| s.path.clear());
        }
    }
}

fn thread_of(live: &Live, process: usize, thread: usize) -> Option<(&LiveProcess, &LiveThread)> {
    let p = live.processes.get(process)?;
    Some((p, p.threads.get(thread)?))
}

/// What a thread waits for, from its system call alone.
fn wait(live: &Live, s: &Sleeper) -> Option<Wait> {
    let (p, t) = thread_of(live, s.process, s.thread)?;
    let want = want(&s.sleep).filter(|_| t.joins.is_none())?;
    let mut on = LiveOn::default();
    match want {
        Want::File { fd, to } => (on.name, on.to) = (link(p.pid, fd), to.into()),
        Want::FileLock { fd } => on.name = link(p.pid, fd),
        Want::Ioctl { fd, request } => (on.name, on.request) = (link(p.pid, fd), Some(request)),
        Want::Futex { address, expected, .. } => (on.address, on.expected) = (Some(address), expected),
        Want::Poll { .. } | Want::Child { .. } | Want::Kind(_) => {}
    }
    on.kind = match want {
        Want::File { .. } => kind(&on.name),
        Want::FileLock { .. } => on::FILE_LOCK,
        Want::Ioctl { .. } => on::IOCTL,
        Want::Futex { .. } => on::FUTEX,
        Want::Poll { .. } => on::EVENTS,
        Want::Child { .. } => on::CHILD,
        Want::Kind(kind) => kind,
    }
    .into();
    if on.kind == on::IOCTL || t.state == state::UNINTERRUPTIBLE {
        let wchan = fs::read_to_string(format!("/proc/{}/task/{}/wchan", p.pid, t.tid)).unwrap_or_default();
        on.wchan = if wchan == "0" { String::new() } else { wchan };
    }
    Some(Wait { process: s.process, thread: s.thread, want, on })
}

/// Reads the locks, words and mappings that are wanted. (Mappings only if a word may be in shared memory, or if a process that could
/// have written there has ended or is stopped.)
fn read_memory(details: &Details, live: &mut Live, waits: &[Wait]) -> Memory {
    let mut wanted: BTreeMap<usize, Wanted> = BTreeMap::new();
    let mut maps =
        live.processes.iter().any(|p| [state::ENDED, state::STOPPED, state::TRACED].contains(&p.state.as_str()));
    for w in waits {
        let of = wanted.entry(w.process).or_default();
        match w.want {
            Want::Futex { address, is_private, .. } => {
                of.words.insert(address);
                maps |= !is_private;
            }
            Want::Poll { address, count } => drop(of.polls.insert((address, count))),
            _ => {}
        }
    }
    let mut jobs: Vec<Job<(usize, Read)>> = Vec::new();
    for (n, p) in live.processes.iter().enumerate() {
        let mut wanted = wanted.remove(&n).unwrap_or_default();
        wanted.locks = p.threads.iter().filter_map(|t| t.waits.as_ref()).map(|w| (w.address, w.op())).collect();
        let (pid, is_live) = (p.pid, p.state != state::ENDED);
        if pid > 0 && is_live && (maps || !wanted.is_empty()) {
            let read = Box::new(move |to: &Sender<(usize, Read)>| {
                readers::memory(pid, &wanted, |read| drop(to.send((n, read))));
                if maps {
                    let _ = to.send((n, Read::Shares(readers::shares(pid))));
                }
            });
            jobs.push(Job { pid, read });
        }
    }
    let mut memory = Memory::default();
    readers::run(jobs, details.begun + MEMORY_WITHIN, |(n, read)| {
        let Some(p) = live.processes.get_mut(n) else { return };
        match read {
            Read::Lock(lock) => p.locks.push(lock),
            Read::Word(address, word, barrier) => drop(memory.words.insert((n, address), (word, barrier))),
            Read::Poll(address, fds) => drop(memory.polls.insert((n, address), fds)),
            Read::Shares(shares) => p.shares = shares,
        }
    });
    memory
}

/// Adds what the memory has. A poll becomes a wait for each of its descriptors.
fn expand(live: &Live, waits: Vec<Wait>, memory: &Memory) -> Vec<Wait> {
    let mut out = Vec::new();
    for mut w in waits {
        let Some(p) = live.processes.get(w.process) else { continue };
        match w.want {
            Want::Futex { address, is_private, .. } => {
                if let Some((word, barrier)) = memory.words.get(&(w.process, address)) {
                    (w.on.value, w.on.barrier) = (Some(*word), *barrier);
                }
                w.on.place = p.place(address).filter(|_| !is_private);
                out.push(w);
            }
            Want::Poll { address, .. } => match memory.polls.get(&(w.process, address)) {
                Some(fds) if !fds.is_empty() => out.extend(fds.iter().map(|(fd, writes)| {
                    let (name, to) = (link(p.pid, *fd), if *writes { how::WRITE } else { how::READ });
                    let on = LiveOn { kind: kind(&name).into(), name, to: to.into(), ..LiveOn::default() };
                    Wait { want: Want::File { fd: *fd, to }, on, ..w }
                })),
                _ => out.push(w),
            },
            _ => out.push(w),
        }
    }
    out
}

/// Finds the other processes.
fn search(details: &Details, live: &Live, waits: &mut [Wait]) {
    let pid_of = |w: &Wait| live.processes.get(w.process).map_or(0, |p| p.pid);
    let recorded: Vec<i32> =
        live.processes.iter().filter(|p| p.pid > 0 && p.state != state::ENDED).map(|p| p.pid).collect();
    let (mut links, mut inodes) = (BTreeMap::new(), BTreeSet::new());
    for w in waits.iter() {
        let is_file = [on::PIPE, on::SOCKET, on::FILE, on::FILE_LOCK].contains(&w.on.kind.as_str());
        if let Want::File { fd, .. } | Want::FileLock { fd } = w.want
            && is_file
        {
            links.insert(w.on.name.clone(), (pid_of(w), fd));
        }
        inodes.extend(w.on.place.as_ref().map(|p| (p.device.clone(), p.inode)));
    }
    let mut jobs: Vec<Job<Found>> = Vec::new();
    if !links.is_empty() {
        let recorded = recorded.clone();
        jobs.push(Job { pid: 0, read: Box::new(move |to| others::open(&recorded, &links, to)) });
    }
    if !inodes.is_empty() {
        jobs.push(Job { pid: 0, read: Box::new(move |to| others::mapped(&recorded, &inodes, to)) });
    }
    let mut left = jobs.len();
    let (mut open, mut maps, mut fifos) = (Vec::new(), Vec::new(), BTreeSet::new());
    let until = (Instant::now() + others::WITHIN).min(details.begun + PATIENCE);
    readers::run(jobs, until, |found| match found {
        Found::Open { link, pid, how } => open.push((link, pid, how)),
        Found::Maps { pid, shares, words } => maps.push((pid, shares, words)),
        Found::Fifo { link } => drop(fifos.insert(link)),
        Found::Through => left -= 1,
    });
    let places: Vec<_> = waits.iter().filter_map(|w| Some((w.process, w.thread, w.on.place.clone()?))).collect();
    let mut room = ALL_OTHERS;
    for w in waits.iter_mut() {
        let Some((p, t)) = thread_of(live, w.process, w.thread) else { continue };
        if fifos.contains(&w.on.name) {
            w.on.kind = on::PIPE.into();
        }
        let mut all: Vec<LiveOther> = Vec::new();
        let with = |pid, how: &str, tids: Vec<i32>| LiveOther { tids, ..other(pid, how, details.names) };
        match w.want {
            Want::File { .. } if w.on.kind != on::FILE => {
                let of = open.iter().filter(|(link, ..)| *link == w.on.name);
                all.extend(of.map(|(_, pid, how)| with(*pid, how, Vec::new())));
                // What those had that have ended.
                for q in &live.processes {
                    let had = q.pipes.iter().filter(|had| had.name == w.on.name);
                    let (pid, name, state) = (q.pid, q.name.clone(), q.state.clone());
                    all.extend(had.map(|had| LiveOther {
                        pid,
                        name: name.clone(),
                        state: state.clone(),
                        how: had.how.clone(),
                        tids: Vec::new(),
                    }));
                }
            }
            Want::FileLock { fd } => {
                let of =
                    open.iter().filter(|(link, _, h)| *link == w.on.name && *h == how::HOLDS).map(|(_, pid, _)| *pid);
                let holders: BTreeSet<i32> =
                    others::lock_holders(p.pid, fd).into_iter().filter(|n| *n > 0).chain(of).collect();
                all.extend(holders.into_iter().map(|pid| with(pid, how::HOLDS, Vec::new())));
            }
            Want::Child { pid } => {
                let of_all = || p.threads.iter().flat_map(|t| children(p.pid, t.tid)).collect();
                let of: Vec<i32> = if pid > 0 { vec![pid] } else { of_all() };
                all.extend(of.into_iter().take(OTHERS).map(|pid| with(pid, how::CHILD, Vec::new())));
            }
            Want::Futex { .. } => {
                all.extend(holder(details, live, p, t));
                if let Some(place) = &w.on.place {
                    let has = |shares: &[LiveShared]| {
                        shares.iter().any(|s| (&s.device, s.inode) == (&place.device, place.inode))
                    };
                    for (n, q) in live.processes.iter().enumerate().filter(|(n, q)| *n != w.process && has(&q.shares)) {
                        let waits = places.iter().filter(|(process, _, at)| *process == n && at == place);
                        let tids = waits.filter_map(|(_, thread, _)| Some(q.threads.get(*thread)?.tid)).collect();
                        let (name, state) = (q.name.clone(), q.state.clone());
                        all.push(LiveOther { pid: q.pid, name, state, how: how::MAPS.into(), tids });
                    }
                    for (pid, shares, words) in maps.iter().filter(|(_, shares, _)| has(shares)) {
                        let q = LiveProcess { shares: shares.clone(), ..LiveProcess::default() };
                        let is_there = |address: u64| {
                            q.place(address).is_some_and(|at| (at.inode, at.offset) == (place.inode, place.offset))
                        };
                        let tids = words.iter().filter(|(_, word)| is_there(*word)).map(|(tid, _)| *tid).collect();
                        all.push(with(*pid, how::MAPS, tids));
                    }
                }
            }
            _ => {}
        }
        // Those first that can end the wait: they hold it, can do the opposite, or do not wait there, too.
        let can = |o: &LiveOther| match o.how.as_str() {
            how::READ => w.on.to == how::WRITE,
            how::WRITE => w.on.to == how::READ,
            how::MAPS => o.tids.is_empty(),
            how::BOTH => w.on.kind != on::SOCKET,
            _ => true,
        };
        all.sort_by_key(|o| (!can(o), o.pid == p.pid, o.pid));
        all.truncate(OTHERS.min(room));
        room -= all.len();
        all.iter_mut().for_each(|o| o.tids.truncate(TIDS));
        (w.on.others, w.on.cut) = (all, left > 0 && !matches!(w.want, Want::Child { .. } | Want::Kind(_)));
        if !details.names {
            hide(&mut w.on);
        }
    }
}

/// The process whose thread a lock names as its holder, if the lock is shared between processes.
fn holder(details: &Details, live: &Live, p: &LiveProcess, t: &LiveThread) -> Option<LiveOther> {
    let waits = t.waits.as_ref().filter(|w| w.flags as u8 & attr::SHARED != 0)?;
    let lock = p.locks.iter().find(|l| l.address == waits.address && l.holder > 0)?;
    let recorded = live.processes.iter().find(|q| q.threads.iter().any(|t| t.tid == lock.holder));
    // (The first thread of a process that has ended has its number.)
    let pid = recorded.map(|q| q.pid).or_else(|| process_of(lock.holder)).unwrap_or(lock.holder);
    Some(LiveOther { tids: vec![lock.holder], ..other(pid, how::HOLDS, details.names) })
}

/// Removes names of files. (Numbers of pipes, and devices, are no names.)
fn hide(on: &mut LiveOn) {
    if on.name.starts_with('/') && kind(&on.name) != on::DEVICE {
        on.name = "/".into();
    }
    on.place.iter_mut().for_each(|p| p.path.clear());
}

/// Adds the threads that locks name as their holders and that /proc does not have. (The number in a lock that processes share may be
/// another process's thread.)
fn named_by_locks(details: &Details, p: &mut LiveProcess) {
    let is_shared = |address: u64| {
        let waits = p.threads.iter().filter_map(|t| t.waits.as_ref());
        waits.filter(|w| w.address == address).any(|w| w.flags as u8 & attr::SHARED != 0)
    };
    let is_new = |tid: i32| tid > 0 && p.threads.iter().all(|t| t.tid != tid);
    let named = p.locks.iter().filter(|l| is_new(l.holder) && !is_shared(l.address)).map(|l| l.holder);
    let named: BTreeSet<i32> = named.collect();
    for tid in named {
        let mut t = LiveThread { tid, state: state::UNKNOWN.into(), ..LiveThread::default() };
        if !p.other_numbers {
            details.thread(p.pid, &mut t);
        }
        p.threads.push(t);
    }
}
