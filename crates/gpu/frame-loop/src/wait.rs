//! How a loop waits for a result. Only this file would change for another kind of wait.

use crate::error::{Ended, Reason};
use crate::memory::Memory;
use crate::options::Waiting;
use crate::sys;
use std::sync::atomic::Ordering;
use submit::Error;

/// How long it spins without a tick.
const SPIN: u64 = 10_000_000;
/// Timers are late by about this.
const SLACK: u64 = 30_000;
/// Maximum time that it spins before and after the usual moment of a result.
const AROUND: u64 = 100_000;
/// The shortest nap, and the longest, within which it sees a stop.
const NAP: (u64, u64) = (20_000, 1_000_000);
/// How long it waits for a result after a stop.
const STOP: u64 = 100_000_000;
/// Polls between two looks at the clock.
const CLOCK: u32 = 16;

pub(crate) struct Waiter {
    waiting: Waiting,
    limit: u64,
    /// Approximate time of a result: follows quicker results soon and slower ones slowly.
    usual: u64,
}

impl Waiter {
    pub fn new(waiting: Waiting, limit: u64) -> Waiter {
        Waiter { waiting, limit, usual: 0 }
    }

    /// Waits for the launch made at `launched`. Returns the time at which it was seen done. `next`: the thread's next tick, if it is
    /// known.
    pub fn wait(
        &mut self,
        memory: &Memory,
        launched: u64,
        next: Option<u64>,
        poll: impl Fn() -> Result<bool, Error>,
    ) -> Result<u64, Ended> {
        let spin_until = match self.waiting {
            Waiting::Spin => next.unwrap_or(launched + SPIN),
            Waiting::Nap => {
                let around = (self.usual / 8).min(AROUND) + SLACK;
                let early = self.usual.saturating_sub(around);
                if early > 0 && !poll()? {
                    nap(memory, launched + early);
                }
                launched + self.usual + around
            }
        };
        let (mut polls, mut stopped) = (0u32, None);
        loop {
            if poll()? {
                let now = sys::now();
                let took = now.saturating_sub(launched);
                self.usual = match self.usual {
                    0 => took,
                    usual if took < usual => usual - (usual - took) / 4,
                    usual => usual + (took - usual) / 16,
                };
                return Ok(now);
            }
            polls = polls.wrapping_add(1);
            if !polls.is_multiple_of(CLOCK) {
                std::hint::spin_loop();
                continue;
            }
            let now = sys::now();
            if now.saturating_sub(launched) > self.limit {
                return Err(Reason::Timeout.into());
            }
            if memory.header().source.stop.load(Ordering::Relaxed) != 0
                && now > *stopped.get_or_insert(now.saturating_add(STOP))
            {
                return Err(Reason::Asked.into());
            }
            if now >= spin_until {
                // Seen at most a sixteenth later than it is done.
                nap(memory, now + (now.saturating_sub(launched) / 16).clamp(NAP.0, NAP.1));
                polls = CLOCK - 1;
            }
        }
    }
}

/// Sleeps until this time, or until the bell changes.
fn nap(memory: &Memory, until: u64) {
    let bell = &memory.header().source.bell;
    sys::sleep(bell, bell.load(Ordering::Relaxed), Some(until));
}
