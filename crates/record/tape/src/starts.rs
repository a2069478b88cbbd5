//! Counts programs that are started with the agent in their environment and those that have loaded it, and stops further
//! ones. A part of the [`crate::session`] and of the [`crate::policy`] board.
//!
//! Whether a program gets the agent is decided at its exec, by the agent of the process that starts it: only there are
//! the file, the rights and the limits known. This agent first counts the program as *expected*, then checks whether the
//! recorder is closing. The recorder first sets `closing`, then waits for the expected programs. So the library's file is
//! never removed while a loader may still open it, and the recorder learns of programs that were expected and never
//! loaded the agent.
//!
//! Invariant: `started` is never more than `expected`, unless a program writes over this memory.

use crate::session::unwatched;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

#[repr(C)]
pub struct Starts {
    /// Programs that were started with the agent in their environment and that can load it. Agents; the recorder for the first.
    pub expected: AtomicU32,
    /// Agents whose constructor has run. Agents.
    pub started: AtomicU32,
    /// 1 when the recorder's files are about to be removed. Recorder.
    closing: AtomicU32,
    /// The recorder's user. Recorder, before the first program.
    pub user: AtomicU32,
    /// The recorder's capabilities, a bit each: a process needs as many to open its files. Recorder, before the first
    /// program.
    pub capabilities: AtomicU64,
    /// Device number of the recorder's /proc: in another one, numbers of processes mean others. Recorder, before the first program.
    pub proc: AtomicU64,
    /// Programs that were started without the agent, by reason ([`unwatched`]). Agents.
    pub without: [AtomicU32; unwatched::COUNT],
    _pad: [u32; 7],
}

const _: () = assert!(size_of::<Starts>() == 128);

impl Starts {
    /// A program is about to be started with the agent. False: it must not be, because the recorder is closing.
    pub fn expect(&self) -> bool {
        // ORDERING: SeqCst here and in `close`: either the recorder sees this program, or this sees that it is closing.
        self.expected.fetch_add(1, Ordering::SeqCst);
        let open = self.closing.load(Ordering::SeqCst) == 0;
        if !open {
            self.take_back();
        }
        open
    }

    /// The program was not started after all.
    pub fn take_back(&self) {
        self.expected.fetch_sub(1, Ordering::SeqCst);
    }

    /// The program's agent works.
    pub fn arrive(&self) {
        self.started.fetch_add(1, Ordering::SeqCst);
    }

    /// The program was started without the agent. `why`: one of [`unwatched`].
    pub fn leave_out(&self, why: u32) {
        if let Some(n) = self.without.get(why as usize) {
            n.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// From now on no program gets the agent.
    pub fn close(&self) {
        self.closing.store(1, Ordering::SeqCst);
    }

    /// Expected programs that have not loaded the agent so far.
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
