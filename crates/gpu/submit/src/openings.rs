//! Numbers of openings, for all sessions of the process. Handles contain the lowest 8 bits, so no two sessions that are open at the same time have the same.
//! Also the process that opened them: a fork's child has no session.

use crate::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

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

/// Set-up calls take locks that may stay taken forever in a forked child, so they call this first. No system call.
pub(crate) fn same_process() -> Result<(), Error> {
    match PROCESS.load(Ordering::SeqCst) {
        0 => Ok(()),
        process if gpu::fork::forked(process) => Err(Error::Forked),
        _ => Ok(()),
    }
}

/// A new number. [`Error::Limit`] while [`MOST`] sessions are open, [`Error::Forked`].
pub(crate) fn take() -> Result<u64, Error> {
    same_process()?;
    let taken = OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).take();
    taken.ok_or(Error::Limit(MOST))
}

/// A session is open: a fork's child of this process cannot have one.
pub(crate) fn opened() {
    PROCESS.store(gpu::fork::watch(), Ordering::SeqCst);
}

pub(crate) fn give_back(opening: u64) {
    OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).open[opening as usize % 256] = false;
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
