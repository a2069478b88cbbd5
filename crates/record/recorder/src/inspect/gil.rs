//! Who has Python's lock, the GIL, while other threads wait for it.
//!
//! A thread that needs the GIL waits for a condition, with a time limit of 5 ms, again and again (`take_gil` in CPython's
//! Python/ceval_gil.c). The words before that condition are the same from 3.7 on, so no version is needed
//! (before, they were separate variables):
//!
//! ```c
//! struct _gil_runtime_state {       // Include/internal/pycore_gil.h
//!     unsigned long interval;       // -32, microseconds
//!     PyThreadState *last_holder;   // -24
//!     int locked;                   // -16
//!     unsigned long switch_number;  //  -8, how often another thread got it
//!     pthread_cond_t cond;
//!     pthread_mutex_t mutex;        // +48, held for each change of the words above
//! ```
//!
//! Where a `PyThreadState` has its thread's pthread_t depends on the version. It is found by what it points to: the C library's
//! record of a thread, which has its own address in two places, and the thread's number.
//!
//! Invariant: a holder is named if two readings are the same, while no thread was about to change them, and only one thread fits.

use super::maps::Maps;
use super::memory::{begin, half, words};
use std::collections::BTreeSet;
use std::time::Duration;
use tape::live::{LiveGil, LiveProcess, is_of_python};
use tape::lock::op;

/// Conditions that are looked at in a process.
const CONDITIONS: usize = 256;
/// How often words that change are read again, and the time between two readings.
const READINGS: u32 = 8;
const PAUSE: Duration = Duration::from_micros(50);
/// The pthread_t is within so many bytes of a `PyThreadState`.
const STATE: usize = 1024;
/// The head of glibc's `struct pthread` on x86-64: its own address at 0 and 16. The thread's number is further on.
const TID: u64 = 0x2d0;
/// An interpreter with its own GIL has it within so many bytes.
const INTERPRETER: u64 = 1 << 20;

/// A process, what its threads wait for, and the numbers of its threads.
pub struct Waits {
    pid: i32,
    conditions: BTreeSet<u64>,
    tids: BTreeSet<i32>,
    /// Threads that /proc has by the same numbers count, too.
    has_same_numbers: bool,
    /// Threads that wait for a condition, and which.
    waiters: BTreeSet<(u64, i32)>,
}

impl Waits {
    pub fn of(p: &LiveProcess) -> Waits {
        let is_timed = |w: &tape::live::LiveHold| matches!(w.op(), op::COND_TIMEDWAIT | op::COND_CLOCKWAIT);
        let of = |t: &tape::live::LiveThread| Some((t.waits.filter(is_timed)?.address, t.tid));
        let waiters: BTreeSet<(u64, i32)> =
            if p.pid > 0 { p.threads.iter().filter_map(of).collect() } else { BTreeSet::new() };
        Waits {
            pid: p.pid,
            conditions: waiters.iter().map(|(address, _)| *address).take(CONDITIONS).collect(),
            tids: p.threads.iter().map(|t| t.tid).collect(),
            has_same_numbers: !p.other_numbers,
            waiters,
        }
    }

    pub fn gils(&self) -> Vec<LiveGil> {
        // (The mappings are read if there is something like a GIL.)
        let mut maps = None;
        self.conditions.iter().filter_map(|at| self.gil(*at, &mut maps)).collect()
    }

    fn gil(&self, condition: u64, maps: &mut Option<Maps>) -> Option<LiveGil> {
        let mut before = None;
        for _ in 0..READINGS {
            let Some(now) = Words::of(self.pid, condition)? else {
                before = None;
                std::thread::sleep(PAUSE);
                continue;
            };
            let maps = maps.get_or_insert_with(|| Maps::of(self.pid));
            if !now.is_of_python(self.pid, condition, maps) {
                return None;
            }
            let holder = if now.is_locked { self.thread(now.last_holder) } else { None };
            if before == Some((now, holder)) {
                // (A thread that itself waits for it has not got it, or the look is older than that.)
                let holder = holder.filter(|tid| !self.waiters.contains(&(condition, *tid)));
                return Some(LiveGil {
                    condition,
                    is_locked: now.is_locked,
                    holder: holder.unwrap_or(0),
                    switches: now.switches,
                });
            }
            before = Some((now, holder));
        }
        None
    }

    /// The thread of a `PyThreadState`.
    fn thread(&self, state: u64) -> Option<i32> {
        let mut bytes = [0; STATE];
        let n = begin(self.pid, state, &mut bytes);
        let words = bytes[..n].as_chunks::<8>().0.iter().map(|w| u64::from_le_bytes(*w));
        let candidates: BTreeSet<u64> = words.filter(|w| w % 16 == 0 && (1 << 16..1 << 47).contains(w)).collect();
        let tids: BTreeSet<i32> = candidates.into_iter().filter_map(|p| thread_of(self.pid, p)).collect();
        let tid = *tids.first().filter(|_| tids.len() == 1)?;
        let is_known = self.tids.contains(&tid)
            || self.has_same_numbers && std::path::Path::new(&format!("/proc/{}/task/{tid}", self.pid)).exists();
        is_known.then_some(tid)
    }
}

/// The number of the thread with this pthread_t. (CPython itself stores the number from 3.11 on, but a child after a fork has the
/// parent's.)
pub fn thread_of(pid: i32, pthread: u64) -> Option<i32> {
    let [own, _, again] = words(pid, pthread)?;
    let tid = i32::try_from(half(pid, pthread.checked_add(TID)?)?).ok()?;
    (own == pthread && again == pthread && tid > 0).then_some(tid)
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Words {
    last_holder: u64,
    is_locked: bool,
    switches: u64,
}

impl Words {
    /// The words before a condition. Outer `None`: they are not those of a GIL. Inner `None`: a thread may be changing them.
    fn of(pid: i32, condition: u64) -> Option<Option<Words>> {
        let [interval, last_holder, locked, switches, _, _, _, _, _, _, mutex] =
            words::<11>(pid, condition.checked_sub(32)?)?;
        let is_one = (1..=1_000_000_000).contains(&interval)
            && last_holder.is_multiple_of(8)
            && (1 << 16..1 << 47).contains(&last_holder)
            // (Before 3.13 an `int` with nothing in its other half, which was zero from the start.)
            && locked <= 1;
        let is_at_rest = mutex as u32 == 0;
        is_one.then_some(is_at_rest.then_some(Words { last_holder, is_locked: locked == 1, switches }))
    }

    /// The condition is Python's own variable, or in the interpreter that the last holder belongs to.
    fn is_of_python(&self, pid: i32, condition: u64, maps: &Maps) -> bool {
        let is_static = || maps.file(condition).is_some_and(|name| is_of_python(&String::from_utf8_lossy(name)));
        let is_in_interpreter = || {
            let of = words::<3>(pid, self.last_holder).map(|[_previous, _next, interpreter]| interpreter);
            of.is_some_and(|at| at % 8 == 0 && condition.checked_sub(at).is_some_and(|n| n < INTERPRETER))
        };
        is_static() || self.is_locked && is_in_interpreter()
    }
}
