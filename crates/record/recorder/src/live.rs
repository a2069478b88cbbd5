//! The answer to `now`: what the threads of all recorded processes do at this moment.
//!
//! The thread that drains the rings only copies the rows of the threads, which are in the shared memory ([`rows`]). Another thread
//! then reads /proc and the words of locks ([`Details::add`]), so the rings wait for neither. The program is not stopped, and executes
//! nothing for it.
//!
//! Invariant: a row that changes while it is read is read again, or left out.

use crate::control::Ask;
use crate::control::messages::Answer;
use crate::image::Image;
use crate::lock_word::{self, Held};
use crate::{processes, sched};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::sync::atomic::{Ordering, fence};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use tape::call;
use tape::live::{Live, LiveCall, LiveHold, LiveLock, LiveProcess, LiveThread, state};
use tape::lock::attr;
use tape::region::{CallRow, HeldLock, LockTable, contents};

/// Maximum number of threads, and of locks that they hold, in an answer.
const THREADS: usize = 4000;
const HOLDS: usize = 8000;
/// How often rows that change are read again.
const READINGS: u32 = 8;
/// /proc is read for this long. Threads that are left get no state.
const PATIENCE: Duration = Duration::from_millis(500);

/// What the threads' rows have now. `hz`: ticks per second.
pub fn rows(images: &[Image], hz: f64) -> Live {
    let mut live = Live { tsc: crate::clock::tsc(), hz, ..Live::default() };
    let (mut threads, mut holds) = (0, 0);
    for image in images {
        let control = image.region.control();
        // In a pause no thread records which locks it takes or releases, so older rows may be wrong.
        let has_paused = control.pauses.load(Ordering::Relaxed) != 0;
        let paused_at = control.paused_at.load(Ordering::Relaxed);
        let mut of: BTreeMap<i32, LiveThread> = BTreeMap::new();
        for i in image.region.mapped() {
            let (Some(owner), Some(ring)) = (image.region.table().owner(i), image.region.ring(i)) else { continue };
            if threads == THREADS || holds >= HOLDS {
                live.cut = true;
                break;
            }
            let (waits, mut held) = locks(ring.locks());
            held.retain(|h| !has_paused || h.since > paused_at);
            let call = call(ring.call());
            if image.region.table().owner(i).is_none_or(|now| now.tid() != owner.tid()) {
                continue;
            }
            (threads, holds) = (threads + 1, holds + held.len());
            // (A thread may have a second, larger ring. Its rows stay in the first.)
            let t = of.entry(owner.tid()).or_default();
            t.tid = owner.tid();
            t.call = t.call.take().or(call);
            t.waits = t.waits.or(waits);
            t.holds.extend(held);
        }
        live.processes.push(LiveProcess {
            pid: image.pid,
            paused: image.is_paused(),
            state: if image.has_ended() { state::ENDED } else { state::UNKNOWN }.into(),
            other_numbers: control.pid.load(Ordering::Relaxed) != image.pid,
            threads: of.into_values().collect(),
            locks: Vec::new(),
        });
    }
    live
}

/// Reads something until two readings in a row are the same. Otherwise `None`.
fn twice<T: PartialEq>(read: impl Fn() -> T) -> Option<T> {
    let mut before = read();
    for _ in 0..READINGS {
        // ORDERING: the loads of one reading before those of the next.
        fence(Ordering::Acquire);
        let now = read();
        if now == before {
            return Some(now);
        }
        before = now;
    }
    None
}

/// The lock that a thread waits for, and those that it holds. Each is read on its own: a thread that takes and releases one lock all
/// the time may hold another one for long. (A thread that the kernel took off its CPU while it wrote a row of a lock that it had just
/// taken leaves parts of two rows. Such a thread does not wait, so it is in no cycle, and a mutex itself names its holder.)
fn locks(table: &LockTable) -> (Option<LiveHold>, Vec<LiveHold>) {
    let waits = || {
        // ORDERING: Acquire pairs with the agent's Release: if the word is 1, the row is complete.
        let waits = table.waits.load(Ordering::Acquire) == 1;
        let row = lock(&table.waiting);
        // (It is complete only if it still counts after it was read.)
        fence(Ordering::Acquire);
        (waits && table.waits.load(Ordering::Relaxed) == 1).then_some(row)
    };
    let n = || table.n.load(Ordering::Relaxed) as usize;
    let held = |(i, row): (usize, &HeldLock)| Some((i, twice(|| lock(row))?));
    let mut rows: Vec<_> = table.held.iter().take(n()).enumerate().filter_map(held).collect();
    // (A row that was given back meanwhile does not count.)
    let n = n();
    rows.retain(|(i, _)| *i < n);
    (twice(waits).flatten(), rows.into_iter().map(|(_, row)| row).collect())
}

fn lock(row: &HeldLock) -> LiveHold {
    let flags = row.flags.load(Ordering::Relaxed);
    let is_open = flags & HeldLock::OPEN != 0;
    LiveHold {
        address: row.addr.load(Ordering::Relaxed),
        site: row.site.load(Ordering::Relaxed),
        since: if is_open { 0 } else { row.since.load(Ordering::Relaxed) },
        flags: flags as u16,
        turn: if is_open { row.wait.load(Ordering::Relaxed) } else { 0 },
    }
}

fn call(row: &CallRow) -> Option<LiveCall> {
    let read = || {
        let (function, body) = row.event()?;
        Some((function, body.began, body.seq, body.stream, body.object, row.kernel.load(Ordering::Relaxed)))
    };
    let (function, began, number, stream, object, kernel) = twice(read).flatten()?;
    let function = call::function(function).map_or_else(|| format!("call {function}"), |f| f.name.into());
    Some(LiveCall { function, began, number, stream, object, kernel })
}

/// What /proc and the program's memory have in addition.
pub struct Details {
    begun: Instant,
    names: bool,
}

/// Adds what /proc and the program's memory have.
pub fn complete(live: Live, names: bool) -> Live {
    Details { begun: Instant::now(), names }.add(live)
}

impl Details {
    /// Answers from another thread.
    pub fn answer(live: Live, names: bool, ask: Ask) {
        let finish = move || {
            ask.answer(Answer { now: Some(complete(live, names)), ..Answer::ok() });
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

/// The state of a process or of one of its threads, which has this folder in /proc.
fn status(folder: &str) -> &'static str {
    let text = match fs::read(format!("{folder}/stat")) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            return state::ENDED;
        }
        Err(_) => return state::UNKNOWN,
    };
    match processes::state(&text) {
        Some('R') => state::RUNNING,
        Some('S' | 'I') => state::SLEEPING,
        Some('D') => state::UNINTERRUPTIBLE,
        Some('T') => state::STOPPED,
        Some('t') => state::TRACED,
        Some('Z' | 'X' | 'x') => state::ENDED,
        _ => state::UNKNOWN,
    }
}

/// The thread that pthread_join waits for, from the arguments of its futex call: the word is the other thread's number until the kernel
/// clears it at the thread's end. Only that wait is shared between processes (not FUTEX_PRIVATE_FLAG) and has the bare number of a
/// thread as its value.
fn joined<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Option<i32> {
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let (operation, value) = (hex(arguments.nth(1)?)? as i32, hex(arguments.next()?)? as u32);
    let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&(operation & !libc::FUTEX_CLOCK_REALTIME));
    i32::try_from(value).ok().filter(|tid| waits && *tid > 0)
}

/// Names of the system calls in which threads of programs sleep.
fn system_call(number: i64) -> String {
    const NAMES: [(i64, &str); 48] = [
        (libc::SYS_accept, "accept"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_close, "close"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_epoll_wait, "epoll_wait"),
        (libc::SYS_execve, "execve"),
        (libc::SYS_exit_group, "exit_group"),
        (libc::SYS_fallocate, "fallocate"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_fdatasync, "fdatasync"),
        (libc::SYS_flock, "flock"),
        (libc::SYS_fsync, "fsync"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_io_getevents, "io_getevents"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_mprotect, "mprotect"),
        (libc::SYS_mq_timedreceive, "mq_timedreceive"),
        (libc::SYS_msgrcv, "msgrcv"),
        (libc::SYS_munmap, "munmap"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_open, "open"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_pause, "pause"),
        (libc::SYS_poll, "poll"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_pread64, "pread64"),
        (libc::SYS_pselect6, "pselect6"),
        (libc::SYS_pwrite64, "pwrite64"),
        (libc::SYS_read, "read"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
        (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
        (libc::SYS_select, "select"),
        (libc::SYS_semop, "semop"),
        (libc::SYS_semtimedop, "semtimedop"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_wait4, "wait4"),
        (libc::SYS_waitid, "waitid"),
        (libc::SYS_write, "write"),
        (libc::SYS_writev, "writev"),
    ];
    let name = NAMES.iter().find(|(n, _)| *n == number);
    name.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).into())
}

/// The program may record names: [`contents::NO_NAMES`].
pub fn has_names(images: &[Image]) -> bool {
    images.iter().all(|i| i.region.control().contents & contents::NO_NAMES == 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicU64};
    use tape::region::HELD;

    /// A thread that waits for one lock after the other: what is read is one of its waits, never parts of two.
    #[test]
    fn a_wait_that_changes_is_read_whole_or_left_out() {
        // SAFETY: atomics alone, for which zeros are values.
        let table: Box<LockTable> = unsafe { Box::new(std::mem::zeroed()) };
        let (over, seen) = (AtomicBool::new(false), AtomicU64::new(0));
        let write = |row: &HeldLock, n: u64| {
            [&row.addr, &row.site, &row.since].iter().for_each(|word| word.store(n, Ordering::Relaxed));
        };
        std::thread::scope(|s| {
            s.spawn(|| {
                // A lock that is held all the time, below those that come and go.
                write(&table.held[0], 7);
                table.n.store(1, Ordering::Release);
                for n in 100.. {
                    write(&table.waiting, n);
                    table.waits.store(1, Ordering::Release);
                    std::hint::spin_loop();
                    table.waits.store(0, Ordering::Release);
                    table.n.store(2, Ordering::Release);
                    write(&table.held[1], n);
                    table.n.store(1, Ordering::Release);
                    if over.load(Ordering::Relaxed) {
                        break;
                    }
                }
            });
            while table.n.load(Ordering::Acquire) == 0 {}
            for _ in 0..200_000 {
                let (waits, held) = locks(&table);
                if let Some(row) = waits {
                    assert!(row.address == row.site && row.site == row.since, "{row:?}");
                    seen.fetch_add(1, Ordering::Relaxed);
                }
                assert_eq!(held.first().map(|h| h.address), Some(7));
            }
            over.store(true, Ordering::Relaxed);
        });
        println!("{seen:?} rows");
        table.n.store(u32::MAX, Ordering::Relaxed);
        assert!(locks(&table).1.len() <= HELD);
    }

    #[test]
    fn states_are_those_of_proc() {
        assert_eq!(status("/proc/thread-self"), state::RUNNING);
        assert_eq!(status("/proc/999999999"), state::ENDED);
        assert_eq!(joined("0x7f00 0x109 0x1f 0x0".split(' ')), Some(31));
        assert_eq!(joined("0x7f00 0x189 0x1f 0x0".split(' ')), None, "a private word");
        assert_eq!(joined("0x7f00 0x109".split(' ')), None);
        assert_eq!(processes::state(b"12 (a) b) T 1 2"), Some('T'));
        assert_eq!((system_call(libc::SYS_ioctl), system_call(9999)), ("ioctl".into(), "system call 9999".into()));
    }
}
