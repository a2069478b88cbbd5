//! Numbers of openings, for all sessions of the process: handles carry the lowest 8 bits, so no two sessions that are open at a time have the same. And which
//! process that is: a fork's child has none of them.

use crate::error::Error;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

/// Sessions of a process that are open at a time.
pub(crate) const MOST: usize = 200;

struct Openings {
    last: u64,
    /// The lowest 8 bits of those that are open.
    open: [bool; 256],
}

static OPENINGS: Mutex<Openings> = Mutex::new(Openings { last: 0, open: [false; 256] });

/// The process that opened the first session; 0 before.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Set-up calls take locks that a forked child may find taken for ever: they ask this first.
pub(crate) fn same_process() -> Result<(), Error> {
    match PROCESS.load(Ordering::SeqCst) {
        0 => Ok(()),
        process if process == std::process::id() => Ok(()),
        _ => Err(Error::Forked),
    }
}

/// A number that was not given before. [`Error::Limit`] while [`MOST`] sessions are open, [`Error::Forked`].
pub(crate) fn take() -> Result<u64, Error> {
    same_process()?;
    let taken = OPENINGS.lock().unwrap_or_else(PoisonError::into_inner).take();
    taken.ok_or(Error::Limit(MOST))
}

/// A session is open: a fork's child of this process may not have one.
pub(crate) fn opened() {
    PROCESS.store(std::process::id(), Ordering::SeqCst);
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
        // 56 low bits were never used: these come first, and again only what was given back.
        for _ in 0..56 {
            let opening = openings.take().unwrap();
            assert!(opening > 200 && openings.take().is_none());
            openings.open[opening as usize % 256] = false;
        }
        // Number 256 + 1 to 256 + 7 would be those of sessions that are open.
        assert_eq!(openings.take(), Some(256 + all[7]));
    }
}
