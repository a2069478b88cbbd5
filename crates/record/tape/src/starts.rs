//! The programs that are started with the agent in their environment: how many were, how many have loaded it, and whether
//! more may be. A part of the [`crate::session`] and of the [`crate::policy`] board.
//!
//! Who decides whether a program gets the agent is the agent of the process that starts it, at its exec: nobody else sees
//! the file, the rights and the limits that count. It counts the program as *expected* first and asks then whether the
//! recorder is closing. The recorder says that it is closing first and waits then for what is expected. So the library's
//! file never goes while a loader may still open it, and a program that was expected and never came is known.
//!
//! Invariant: `started` is never more than `expected`, but for a program that writes over this.

use crate::session::unwatched;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[repr(C)]
pub struct Starts {
    /// Programs that were started with the agent in their environment and that can load it. Agents; the recorder for the first.
    pub expected: AtomicU32,
    /// Agents whose constructor has run. Agents.
    pub started: AtomicU32,
    /// 1 when the recorder's files are about to go. Recorder.
    closing: AtomicU32,
    /// The recorder's user. Recorder, before the first program.
    pub user: AtomicU32,
    /// The recorder's capabilities, a bit each: who opens its files needs as many. Recorder, before the first program.
    pub capabilities: AtomicU64,
    /// Device number of the recorder's /proc: in another one, numbers of processes mean others. Recorder, before the first program.
    pub proc: AtomicU64,
    /// Programs that were started without the agent, by reason ([`unwatched`]). Agents.
    pub without: [AtomicU32; unwatched::COUNT],
    _pad: [u32; 8],
}

const _: () = assert!(size_of::<Starts>() == 128);

impl Starts {
    /// A program is about to be started with the agent. False: it must not be, for the recorder is closing.
    pub fn expect(&self) -> bool {
        // ORDERING: SeqCst here and in `close`: either the recorder sees this program, or this sees that it is closing.
        self.expected.fetch_add(1, Ordering::SeqCst);
        let open = self.closing.load(Ordering::SeqCst) == 0;
        if !open {
            self.take_back();
        }
        open
    }

    /// It was not started after all.
    pub fn take_back(&self) {
        self.expected.fetch_sub(1, Ordering::SeqCst);
    }

    /// Its agent is at work.
    pub fn arrive(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    /// It was started without the agent. `why`: one of [`unwatched`].
    pub fn leave_out(&self, why: u32) {
        if let Some(n) = self.without.get(why as usize) {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on no program gets the agent.
    pub fn close(&self) {
        self.closing.store(1, Ordering::SeqCst);
    }

    /// Programs that were to load the agent and have not, so far.
    pub fn silent(&self) -> u32 {
        let started = self.started.load(Ordering::SeqCst);
        self.expected.load(Ordering::SeqCst).saturating_sub(started)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_expected_is_waited_for_and_nobody_is_once_it_closes() {
        // SAFETY: numbers.
        let s: Starts = unsafe { core::mem::zeroed() };
        assert!(s.expect() && s.expect());
        s.arrive();
        assert_eq!(s.silent(), 1);
        s.close();
        assert!(!s.expect());
        assert_eq!(s.silent(), 1);
        s.take_back();
        assert_eq!(s.silent(), 0);
        s.leave_out(unwatched::STATIC);
        s.leave_out(u32::MAX);
        assert_eq!(s.without[unwatched::STATIC as usize].load(Ordering::Relaxed), 1);
    }
}
