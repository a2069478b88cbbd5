//! The submissions of other channels that a channel waits for.
//!
//! Its submitter alone writes this. Every thread reads it: a channel that waits for a dead one never finishes. A thread that waits for it, or holds a CUDA
//! stream for it, must learn that without the submitter's help.

use crate::tracker::{Ticket, Tracker};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

/// More channels than a session has lanes.
const SLOTS: usize = 256;

/// One slot for each other channel, in the order of the first wait.
pub(crate) struct Awaited {
    slots: Box<[Slot]>,
    more: OnceLock<Box<Awaited>>,
}

#[derive(Default)]
struct Slot {
    other: OnceLock<Weak<Tracker>>,
    /// Its last submission that is waited for.
    ticket: AtomicU64,
    /// The first submission here that waits for it.
    before: AtomicU64,
}

impl Awaited {
    pub fn new() -> Awaited {
        Awaited { slots: (0..SLOTS).map(|_| Slot::default()).collect(), more: OnceLock::new() }
    }

    /// Submissions from `before` on wait for another channel's. False if this is the first wait for that channel. To be called by the submitter alone.
    pub fn add(&self, other: &Arc<Tracker>, ticket: Ticket, before: Ticket) -> bool {
        for slot in &self.slots {
            let known = slot.other.get();
            if known.is_some_and(|known| known.as_ptr() != Arc::as_ptr(other)) {
                continue;
            }
            slot.before.store(before.0, Ordering::Relaxed);
            // ORDERING: who sees this ticket sees its `before`. With the ticket before this one, a later `before` does no harm: if that ticket is not done,
            // this channel still waits for it.
            slot.ticket.store(ticket.0, Ordering::Release);
            return known.is_some() || slot.other.set(Arc::downgrade(other)).is_err();
        }
        self.more.get_or_init(|| Box::new(Awaited::new())).add(other, ticket, before)
    }

    /// Whether `is` holds for one of them: the other channel, its ticket, and the first submission here that waits for it.
    pub fn any(&self, mut is: impl FnMut(&Tracker, Ticket, Ticket) -> bool) -> bool {
        let mut all = self;
        loop {
            for slot in &all.slots {
                let Some(other) = slot.other.get() else { return false };
                let ticket = Ticket(slot.ticket.load(Ordering::Acquire));
                let before = Ticket(slot.before.load(Ordering::Relaxed));
                // (The submitting channel keeps the other one's tracker: without it there is no channel here either.)
                if other.upgrade().is_some_and(|other| is(&other, ticket, before)) {
                    return true;
                }
            }
            match all.more.get() {
                Some(more) => all = more,
                None => return false,
            }
        }
    }
}

impl std::fmt::Debug for Awaited {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Awaited").finish_non_exhaustive()
    }
}
