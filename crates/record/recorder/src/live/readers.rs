//! Threads that read /proc and the memory of programs. The kernel may never answer for a process that hangs in it while it changes
//! its mappings, so nobody waits for these threads for longer than a given time.
//!
//! Invariant: while a reading of a process takes longer than it had time, no other reading of that process begins. So threads that the
//! kernel does not answer do not become more with each look.

use super::waits::POLLED;
use crate::inspect::maps::{self, Line};
use crate::lock_word::{self, Held};
use std::collections::{BTreeSet, VecDeque};
use std::fs;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;
use tape::live::{LiveBarrier, LiveLock, LiveShared};

/// Threads of one reading, and readings of all that have not ended. (One that the kernel does not answer stays.)
const THREADS: usize = 16;
const ALL: usize = 256;
/// Readings that have not ended: of which process, and until when they had time.
static RUNNING: Mutex<Vec<(i32, Instant)>> = Mutex::new(Vec::new());

fn running() -> MutexGuard<'static, Vec<(i32, Instant)>> {
    RUNNING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads something of a process, which has time until then. `None`: the kernel has not answered an earlier reading.
pub fn reading<T>(pid: i32, until: Instant, read: impl FnOnce() -> T) -> Option<T> {
    let mut all = running();
    let now = Instant::now();
    if all.len() >= ALL || all.iter().any(|(of, until)| *of == pid && *until < now) {
        return None;
    }
    all.push((pid, until));
    drop(all);
    let read = read();
    let mut all = running();
    if let Some(own) = all.iter().position(|one| *one == (pid, until)) {
        all.swap_remove(own);
    }
    Some(read)
}

/// Maximum number of mappings of a process that are looked at.
const SHARED: usize = 4096;

pub type Reads<T> = Box<dyn FnOnce(&Sender<T>) + Send>;

/// What is to be read of a process. (0: of several, each in a [`reading`].)
pub struct Job<T> {
    pub pid: i32,
    pub read: Reads<T>,
}

/// Runs the jobs in other threads, and takes what they send until all have ended, or until a time.
pub fn run<T: Send + 'static>(jobs: Vec<Job<T>>, until: Instant, mut take: impl FnMut(T)) {
    let (send, received) = channel();
    let threads = jobs.len().min(THREADS);
    let jobs = Arc::new(Mutex::new(VecDeque::from(jobs)));
    for _ in 0..threads {
        let (jobs, send) = (jobs.clone(), send.clone());
        let work = move || {
            let next = || jobs.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
            while let Some(Job { pid, read }) = next().filter(|_| Instant::now() < until) {
                match pid {
                    0 => read(&send),
                    pid => drop(reading(pid, until, || read(&send))),
                }
            }
        };
        let _ = std::thread::Builder::new().name("now reads".into()).spawn(work);
    }
    drop(send);
    while let Ok(found) = received.recv_timeout(until.saturating_duration_since(Instant::now())) {
        take(found);
    }
}

/// What is wanted of a process's memory.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Locks: address and operation.
    pub locks: BTreeSet<(u64, u8)>,
    /// Words of futexes.
    pub words: BTreeSet<u64>,
    /// Arrays of poll: address and length.
    pub polls: BTreeSet<(u64, usize)>,
}

impl Wanted {
    pub fn is_empty(&self) -> bool {
        self.locks.is_empty() && self.words.is_empty() && self.polls.is_empty()
    }
}

/// What was read of a process.
#[derive(Clone, Debug, PartialEq)]
pub enum Read {
    Lock(LiveLock),
    /// A word, and the barrier that it is in.
    Word(u64, u32, Option<LiveBarrier>),
    /// The descriptors of an array of poll, and whether they are to be written to.
    Poll(u64, Vec<(i32, bool)>),
    Shares(Vec<LiveShared>),
}

pub fn memory(pid: i32, wanted: &Wanted, mut to: impl FnMut(Read)) {
    let mut last = None;
    for (address, op) in &wanted.locks {
        let (address, of) = (*address, lock_word::held(pid, *address, *op));
        let lock = match of {
            Some(Held::Free) => LiveLock { address, ..LiveLock::default() },
            Some(Held::By(holder)) => LiveLock { address, holder, readers: 0 },
            Some(Held::Readers(readers)) => LiveLock { address, holder: 0, readers },
            None => continue,
        };
        // (A rwlock may be waited for by several operations.)
        if last.replace(lock) != Some(lock) {
            to(Read::Lock(lock));
        }
    }
    for address in &wanted.words {
        let around = lock_word::read::<5>(pid, address.wrapping_sub(4));
        let alone = || lock_word::read::<1>(pid, *address).map(|[word]| (word, None));
        if let Some((word, barrier)) = around.map(|words| (words[1], barrier(words))).or_else(alone) {
            to(Read::Word(*address, word, barrier));
        }
    }
    for (address, count) in &wanted.polls {
        // `struct pollfd`: the descriptor, and the events in the low half of the next word.
        let pairs = (0..*count.min(&POLLED) as u64).filter_map(|i| lock_word::read::<2>(pid, address + 8 * i));
        let wants =
            pairs.map(|[fd, events]| (fd as i32, events as i16 & (libc::POLLIN | libc::POLLOUT) == libc::POLLOUT));
        to(Read::Poll(*address, wants.filter(|(fd, _)| *fd >= 0).collect()));
    }
}

/// The barrier whose second word this is: `in`, `current_round`, `count`, `shared`, `out` of glibc's `struct pthread_barrier` (since
/// 2.25). Its threads wait for a change of `current_round`. `None` if the words cannot be those of a barrier in which threads wait.
fn barrier([entered, round, count, shared, out]: [u32; 5]) -> Option<LiveBarrier> {
    let arrived = entered.wrapping_sub(round);
    let is_one = (1..count).contains(&arrived) && count <= 1 << 20 && [0, 128].contains(&shared) && out <= round;
    is_one.then_some(LiveBarrier { arrived, count })
}

/// The memory that a process shares with others, except files of programs and of doorbell.
pub fn shares(pid: i32) -> Vec<LiveShared> {
    let text = fs::read(format!("/proc/{pid}/maps")).unwrap_or_default();
    maps::lines(&text).filter_map(|line| shared(&line)).take(SHARED).collect()
}

/// A mapping, if processes can share data there.
fn shared(line: &Line<'_>) -> Option<LiveShared> {
    let path = std::str::from_utf8(line.path).ok().filter(|_| line.is_shared && line.inode != 0)?;
    let is_memory = ["/dev/shm/", "/dev/zero", "/memfd:", "/SYSV"].iter().any(|p| path.starts_with(p));
    // (All processes map a device, but each has another part of it.)
    let is_device = path.starts_with("/dev/") && !is_memory;
    let is_writable = line.body.rights & 2 != 0;
    let is_own = path.contains("doorbell-region");
    ((is_memory || is_writable) && !is_device && !is_own).then(|| LiveShared {
        begin: line.body.start,
        end: line.body.end,
        offset: line.body.offset,
        device: String::from_utf8_lossy(line.device).into_owned(),
        inode: line.inode,
        path: path.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn jobs_that_hang_are_not_waited_for() {
        let (begun, mut got) = (Instant::now(), Vec::new());
        let hangs = || Job::<i32> { pid: -7, read: Box::new(|_| std::thread::sleep(Duration::from_millis(400))) };
        let sends = |n: i32| Job::<i32> { pid: -100 - n, read: Box::new(move |send| send.send(n).unwrap_or_default()) };
        let jobs = std::iter::once(hangs()).chain((0..40).map(sends)).collect();
        run(jobs, begun + Duration::from_millis(100), |n| got.push(n));
        assert!(begun.elapsed() < Duration::from_millis(350), "{:?}", begun.elapsed());
        got.sort_unstable();
        assert_eq!(got, (0..40).collect::<Vec<_>>());
        // The process that hangs is not read again until the kernel has answered.
        let soon = || Instant::now() + Duration::from_millis(300);
        assert_eq!((reading(-7, soon(), || 1), reading(-8, soon(), || 2)), (None, Some(2)));
        let begun = Instant::now();
        run(vec![hangs(), sends(1)], soon(), |n| assert_eq!(n, 1));
        assert!(begun.elapsed() < Duration::from_millis(200), "{:?}", begun.elapsed());
        while reading(-7, soon(), || ()).is_none() {
            assert!(begun.elapsed() < Duration::from_secs(10));
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[test]
    fn barriers_are_known_by_their_form() {
        assert_eq!(barrier([3, 0, 4, 128, 0]), Some(LiveBarrier { arrived: 3, count: 4 }));
        assert_eq!(barrier([9, 8, 4, 0, 8]), Some(LiveBarrier { arrived: 1, count: 4 }));
        // A semaphore, a mutex, a barrier in which nobody waits.
        for words in [[0, 0, 1, 128, 0], [0, 2, 0, 77, 1], [8, 8, 4, 0, 8], [3, 0, 4, 1, 0]] {
            assert_eq!(barrier(words), None, "{words:?}");
        }
    }

    #[test]
    fn shared_memory_is_found_in_maps() {
        let shared = |line: &str| shared(&maps::mapping(line.as_bytes())?);
        let of = |line: &str| shared(line).map(|s| s.inode);
        assert_eq!(of("7f00-7f01 rw-s 00001000 00:01 1028      /dev/zero (deleted)"), Some(1028));
        assert_eq!(of("7f00-7f01 r--s 00001000 00:19 7         /dev/shm/a b"), Some(7));
        assert_eq!(shared("7f00-7f01 rw-s 00001000 00:01 1028  /memfd:a").unwrap().offset, 0x1000);
        for line in [
            "7f00-7f01 r--s 00000000 fd:01 12 /usr/lib/gconv/gconv-modules.cache",
            "7f00-7f01 rw-s 00000000 00:06 12 /dev/nvidia0",
            "7f00-7f01 rw-p 00000000 fd:01 12 /tmp/a",
            "7f00-7f01 rw-s 00000000 00:01 12 /memfd:doorbell-region (deleted)",
            "7f00-7f01 rw-p 00000000 00:00 0 ",
            "",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
    }
}
