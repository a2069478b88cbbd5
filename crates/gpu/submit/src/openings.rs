//! Numbers of openings, for all sessions of the process. Handles contain the lowest 8 bits, so no two sessions that are open at the same time have the same.
//! Also the process that opened them: a fork's child has no session.

use crate::error::Error;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Maximum number of open sessions of a process.
pub(crate) const MOST: usize = 200;

struct Openings {
    last: u64,
    /// The lowest 8 bits of the open sessions' numbers.
    open: [bool; 256],
}

static OPENINGS: Mutex<Openings> = Mutex::new(Openings { last: 0, open: [false; 256] });

/// The process that opened the first session; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// The process whose threads set something up, and in the lower half how many of them do so now.
static SET_UPS: AtomicU64 = AtomicU64::new(0);

/// Calls take locks that may stay taken forever in a forked child, so they call this first. No system call once a session was opened.
pub(crate) fn same_process() -> Result<(), Error> {
    match PROCESS.load(Ordering::SeqCst) {
        0 if forked_in_set_up(SET_UPS.load(Ordering::SeqCst)) => Err(Error::Forked),
        0 => Ok(()),
        process if gpu::fork::forked(process) => Err(Error::Forked),
        _ => Ok(()),
    }
}

/// Whether threads of the parent had set something up at the fork: they are not here, but their locks are.
fn forked_in_set_up(set_ups: u64) -> bool {
    set_ups as u32 > 0 && set_ups >> 32 != u64::from(std::process::id())
}

/// A set-up of the process: while it lives, a fork's child cannot use doorbell, because it cannot take the locks.
pub(crate) struct SetUp(());

impl SetUp {
    pub fn begin() -> Result<SetUp, Error> {
        same_process()?;
        let own = u64::from(std::process::id()) << 32;
        let next = |now: u64| match now >> 32 == own >> 32 {
            true => Some(now + 1),
            // (A child of a process that was in no set-up begins its own count.)
            false => (!forked_in_set_up(now)).then_some(own | 1),
        };
        SET_UPS.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next).map(|_| SetUp(())).map_err(|_| Error::Forked)
    }
}

impl Drop for SetUp {
    fn drop(&mut self) {
        SET_UPS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The highest number of a submission that any lane of the process has given out in an opening that has ended.
static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// The numbers of a new opening's submissions are higher than this.
pub(crate) fn numbers() -> u64 {
    NUMBERS.load(Ordering::SeqCst)
}

pub(crate) fn numbers_reached(number: u64) {
    NUMBERS.fetch_max(number, Ordering::SeqCst);
}

/// A new number. [`Error::Limit`] while [`MOST`] sessions are open, [`Error::Forked`].
pub(crate) fn take() -> Result<u64, Error> {
    same_process()?;
    let taken = poison::ignore(OPENINGS.lock()).take();
    taken.ok_or(Error::Limit(MOST))
}

/// A session is open: a fork's child of this process cannot have one.
pub(crate) fn opened() {
    PROCESS.store(gpu::fork::watch(), Ordering::SeqCst);
}

pub(crate) fn give_back(opening: u64) {
    poison::ignore(OPENINGS.lock()).open[opening as usize % 256] = false;
}

impl Openings {
    fn take(&mut self) -> Option<u64> {
        if self.open.iter().filter(|open| **open).count() >= MOST {
            return None;
        }
        loop {
            self.last += 1;
            let open = &mut self.open[self.last as usize % 256];
            if !*open {
                *open = true;
                return Some(self.last);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_open_sessions_have_the_same_lowest_bits() {
        let mut openings = Openings { last: 0, open: [false; 256] };
        let all: Vec<u64> = std::iter::from_fn(|| openings.take()).collect();
        assert_eq!(all.len(), MOST);
        openings.open[all[7] as usize] = false;
        // 56 low bits were never used: these are given first, and after them only numbers that were given back.
        for _ in 0..56 {
            let opening = openings.take().unwrap();
            assert!(opening > 200 && openings.take().is_none());
            openings.open[opening as usize % 256] = false;
        }
        // Numbers 256 + 1 to 256 + 7 would be those of open sessions.
        assert_eq!(openings.take(), Some(256 + all[7]));
    }
}
