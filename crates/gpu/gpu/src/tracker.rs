//! How far a channel has come: one semaphore that every prepared transfer releases with its own number.

use crate::awaited::Awaited;
use crate::error::Error;
use crate::fork;
use crate::lease::{Lease, Uses};
use crate::memory::Memory;
use crate::observer::notified;
use crate::patience::Patience;
use crate::points::Point;
use std::any::Any;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// A submission of a prepared transfer. Valid as long as its channel lives: the engine releases 32 bits of the number, and
/// at most 2^31 submissions are unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(pub(crate) u64);

impl Ticket {
    /// Which submission of its channel it is, from 1.
    #[inline]
    pub fn number(self) -> u64 {
        self.0
    }

    /// The value that the engine releases.
    #[inline]
    pub(crate) fn payload(self) -> u32 {
        self.0 as u32
    }
}

/// Polls without a pause between them: a pause (140 cycles on recent Xeons) would prolong a short transfer.
const EAGER: u32 = 4096;
/// How long a wait lasts before it checks for errors.
const AGAIN: Duration = Duration::from_millis(10);

/// A channel that can be stopped permanently.
pub(crate) trait Stop: std::fmt::Debug + Send + Sync {
    /// On return the GPU no longer works for the channel.
    fn stop(&self);
}

/// Memory that lives as long as this.
type Keep = Arc<dyn Any + Send + Sync>;

/// Shared with code that frees memory the channel may still access.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// GPU address of the semaphore (payload @0, nanoseconds @8), mapped at the same address for the CPU.
    va: u64,
    /// Keeps it mapped.
    _memory: Keep,
    /// The last number that a submission took.
    pub submitted: AtomicU64,
    /// The last number whose submission is finished. Numbers above it belong to a thread that is inside a call.
    finished: AtomicU64,
    /// The last submission that names each memory.
    pub uses: Uses,
    /// The submissions of other channels that it waits for.
    pub awaited: Awaited,
    /// Semaphore value at the last drain timeout: no second wait before it has moved. [`NOT_LOST`] otherwise.
    lost: AtomicU64,
    /// GPU address of the channel's USERD, mapped at the same address for the CPU, and what keeps it there.
    userd: OnceLock<(u64, Keep)>,
    /// Has the channel's error notifier.
    page: OnceLock<Arc<Memory>>,
    token: AtomicU32,
    /// The process of the channel. A fork's child has only copies, and no submissions in progress.
    opener: u32,
    /// It counts launches: the memory that they touch is unknown.
    launches: AtomicBool,
    /// Stopped, because its work did not finish before memory had to be freed, or dropped.
    stopped: AtomicBool,
    channel: OnceLock<Arc<dyn Stop>>,
}

const NOT_LOST: u64 = u64::MAX;

/// How far a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InFlight {
    /// Runlist << 16 | channel number.
    pub token: u32,
    /// Numbers of the last submission, and of the last that is done.
    pub submitted: u64,
    pub reached: u64,
    /// The last wait of a thread that frees memory timed out.
    pub lost: bool,
    /// It was stopped permanently, so that memory could be freed.
    pub stopped: bool,
    /// GP_GET and GP_PUT, from USERD.
    pub get: u32,
    pub put: u32,
}

impl Tracker {
    /// A tracker whose semaphore is at `va`.
    ///
    /// # Safety
    /// Sixteen bytes at `va`, a multiple of 16, are mapped for the CPU as long as `memory` lives.
    pub unsafe fn new(va: u64, memory: Keep) -> Tracker {
        let (submitted, token) = (AtomicU64::new(0), AtomicU32::new(0));
        let (lost, userd, page) = (AtomicU64::new(NOT_LOST), OnceLock::new(), OnceLock::new());
        let (stopped, channel) = (AtomicBool::new(false), OnceLock::new());
        let (finished, uses, awaited) = (AtomicU64::new(0), Uses::new(), Awaited::new());
        let (launches, opener) = (AtomicBool::new(false), fork::watch());
        let tracker = Tracker {
            va,
            _memory: memory,
            submitted,
            finished,
            uses,
            awaited,
            lost,
            userd,
            page,
            token,
            opener,
            launches,
            stopped,
            channel,
        };
        tracker.word64(0).store(0, Ordering::Relaxed);
        tracker
    }

    fn word64(&self, offset: u64) -> &AtomicU64 {
        // SAFETY: an aligned word of the semaphore; `new`'s caller promised the mapping.
        unsafe { &*((self.va + offset) as *const AtomicU64) }
    }

    /// Sets its channel, the channel's page, and the place of its USERD.
    pub fn of_channel(&self, token: u32, page: &Arc<Memory>, (userd, memory): (u64, Keep), channel: Arc<dyn Stop>) {
        let _ = self.channel.set(channel);
        let _ = self.page.set(page.clone());
        self.token.store(token, Ordering::Relaxed);
        let _ = self.userd.set((userd, memory));
    }

    /// The submitter has put its last submission into the ring, or has given its number back, and touches no more memory.
    #[inline]
    pub fn finish(&self) {
        // ORDERING: a thread that waits for this sees the memory that the submission has named, and the work of its thread.
        self.finished.store(self.submitted.load(Ordering::Relaxed), Ordering::Release);
    }

    /// `last` is the last number again: the submission that took a later one was never made.
    pub fn give_back(&self, last: u64) {
        // ORDERING: a thread that waits for this sees the work of the submitting thread.
        self.submitted.store(last, Ordering::SeqCst);
        self.finished.store(last, Ordering::Release);
    }

    /// The channel is for launches from now on.
    pub fn launches(&self) {
        self.launches.store(true, Ordering::SeqCst);
    }

    /// Whether launches are in progress.
    pub fn launching(&self) -> bool {
        self.launches.load(Ordering::SeqCst)
            && !fork::forked(self.opener)
            && !self.done(Ticket(self.submitted.load(Ordering::SeqCst)))
            && !self.is_off()
    }

    /// Ends the channel: on return its work in flight does not touch memory any more.
    pub fn stop(&self) {
        // Set first, so that a thread about to submit gives up.
        self.stopped.store(true, Ordering::SeqCst);
        Point::BeforeStop.reached();
        if let Some(channel) = self.channel.get() {
            // (It waits for a thread that is already stopping it.)
            channel.stop();
        }
    }

    /// The channel was dropped.
    pub fn end(&self) {
        self.stopped.store(true, Ordering::SeqCst);
    }

    #[inline]
    pub fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::SeqCst)
    }

    /// An error killed the channel. Not to be called in a fork's child.
    fn is_killed(&self) -> bool {
        self.page.get().is_some_and(|page| notified(page).is_some())
    }

    /// How far the channel is now; reads GPU memory.
    pub fn in_flight(&self) -> InFlight {
        let word = |offset: usize| {
            self.userd.get().map_or(0, |(at, _memory)| {
                // SAFETY: a word of USERD, whose memory is kept. If the ring belongs to another channel by now, this only
                // reads it.
                unsafe { &*((at + offset as u64) as *const AtomicU32) }.load(Ordering::Acquire)
            })
        };
        InFlight {
            token: self.token.load(Ordering::Relaxed),
            submitted: self.submitted.load(Ordering::SeqCst),
            reached: self.reached(),
            lost: self.lost.load(Ordering::Relaxed) != NOT_LOST,
            stopped: self.is_stopped(),
            get: word(pushbuf::userd::GP_GET),
            put: word(pushbuf::userd::GP_PUT),
        }
    }

    /// GPU address of the semaphore.
    pub fn va(&self) -> u64 {
        self.va
    }

    /// The semaphore's word.
    #[inline]
    fn payload(&self) -> u32 {
        // SAFETY: an aligned word of a mapping that lives as long as self. The callers check for a forked child.
        let word = unsafe { &*(self.va as *const AtomicU32) };
        // ORDERING: memory written by the transfers up to this number is visible with it.
        word.load(Ordering::Acquire)
    }

    /// The number released last: the last submitted number, minus the releases still to come.
    #[inline]
    pub fn reached(&self) -> u64 {
        let payload = self.payload();
        // ORDERING: after the word, which is Acquire: a released number was submitted before.
        let submitted = self.submitted.load(Ordering::Relaxed);
        submitted.saturating_sub((submitted as u32).wrapping_sub(payload).into())
    }

    /// All submitted work is done. For the submitter only.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.payload() == self.submitted.load(Ordering::Relaxed) as u32
    }

    #[inline]
    pub fn done(&self, ticket: Ticket) -> bool {
        self.reached() >= ticket.0
    }

    #[cfg(test)]
    pub(crate) fn pretend(&self, payload: u32) {
        // SAFETY: the semaphore's word, see `payload`.
        unsafe { &*(self.va as *const AtomicU32) }.store(payload, Ordering::Release);
    }

    /// The GPU's time in nanoseconds at the last release.
    pub fn timestamp(&self) -> u64 {
        self.word64(8).load(Ordering::Acquire)
    }

    /// If a thread is inside a submission, waits for it without a limit.
    pub fn wait_for_threads(&self) {
        // (The tracker need not be mapped in a fork's child.)
        if fork::forked(self.opener) {
            return;
        }
        let mut patience = Patience::new();
        // ORDERING: after the end of a lease, see there.
        let last = self.submitted.load(Ordering::SeqCst);
        // Stop if the number is given back.
        while self.finished.load(Ordering::Acquire) < last && self.submitted.load(Ordering::SeqCst) >= last {
            patience.pause();
        }
    }

    /// Waits for the submissions that name a lease, which is over, or for all submissions. Wait for the threads first. False
    /// if they do not finish in time, or if an earlier wait timed out and the channel has not moved since. The pending work
    /// of a dead channel counts as finished.
    pub fn wait_for_uses(&self, lease: Option<&Lease>, deadline: Instant) -> bool {
        if fork::forked(self.opener) {
            return true;
        }
        let all = || self.submitted.load(Ordering::SeqCst);
        self.wait_until(lease.map_or_else(all, |lease| self.uses.last(lease)), deadline)
    }

    /// Whether no submission that names it is in progress; does not wait.
    pub fn is_done_with(&self, lease: &Lease) -> bool {
        if fork::forked(self.opener) {
            return true;
        }
        let last = self.submitted.load(Ordering::SeqCst);
        self.finished.load(Ordering::Acquire) >= last && (self.is_off() || self.done(Ticket(self.uses.last(lease))))
    }

    /// Waits for all that was submitted so far, as [`Tracker::wait_for_uses`].
    pub fn drain(&self, deadline: Instant) -> bool {
        self.wait_for_threads();
        self.wait_for_uses(None, deadline)
    }

    fn is_dead(&self) -> bool {
        self.is_stopped() || self.is_killed()
    }

    /// Whether the channel is dead, or waits for one that is. If so, it is taken from the GPU before this returns.
    pub fn is_off(&self) -> bool {
        self.stopped_if(self.is_dead() || self.waits_for_the_dead(&mut Vec::new()))
    }

    fn stopped_if(&self, dead: bool) -> bool {
        if dead {
            self.stop();
        }
        dead
    }

    /// Whether it waits for a submission of a dead channel, which will never finish, or of a channel that does. Those between end here. `seen`: the channels
    /// that were looked at. (Two channels may wait for each other's earlier submissions.)
    fn waits_for_the_dead(&self, seen: &mut Vec<*const Tracker>) -> bool {
        self.awaited.any(|other, ticket, before| {
            let pending = || !other.done(ticket);
            // (In this order: work that was done before its channel died is done.)
            !self.done(before) && pending() && (other.is_dead() || other.dies(seen)) && pending()
        })
    }

    fn dies(&self, seen: &mut Vec<*const Tracker>) -> bool {
        if seen.contains(&std::ptr::from_ref(self)) {
            return false;
        }
        seen.push(self);
        self.stopped_if(self.waits_for_the_dead(seen))
    }

    /// As [`Channel::dies_with_others`](crate::Channel::dies_with_others), for any thread. Never true in a fork's child.
    pub fn dies_with_others(&self) -> bool {
        self.stopped_if(!fork::forked(self.opener) && self.waits_for_the_dead(&mut Vec::new()))
    }

    /// Waits for a submission. Not to be called by a thread that is inside one.
    pub fn wait_until(&self, mut last: u64, deadline: Instant) -> bool {
        let mut patience = Patience::new();
        loop {
            // A number may be given back: then it is never released.
            last = last.min(self.submitted.load(Ordering::SeqCst));
            let reached = self.reached();
            if self.done(Ticket(last)) || self.is_off() {
                // That an earlier submission is done does not mean that the channel has moved.
                if self.lost.load(Ordering::Relaxed) != reached || self.is_stopped() {
                    self.lost.store(NOT_LOST, Ordering::Relaxed);
                }
                return true;
            }
            if self.lost.load(Ordering::Relaxed) == reached {
                return false;
            }
            if Instant::now() > deadline {
                self.lost.store(reached, Ordering::Relaxed);
            }
            patience.pause();
        }
    }

    /// Spins until `ticket` is done. Calls `stuck` after each [`AGAIN`] without it; an error from `stuck` ends the wait.
    pub fn wait(
        &self,
        ticket: Ticket,
        limit: Duration,
        mut stuck: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        let start = Instant::now();
        for _ in 0..EAGER {
            if self.done(ticket) {
                return Ok(());
            }
        }
        let mut next = AGAIN;
        loop {
            for _ in 0..64 {
                if self.done(ticket) {
                    return Ok(());
                }
                std::hint::spin_loop();
            }
            let after = start.elapsed();
            if after < next && after <= limit {
                continue;
            }
            next = after + AGAIN;
            stuck()?;
            if after > limit {
                return Err(Error::Timeout { wanted: ticket.payload(), found: self.payload(), after });
            }
        }
    }
}

/// Waits for submissions that name a lease that is over, by the rules at the head of `lease`. False if some are still in
/// progress after `limit`.
pub(crate) fn wait(trackers: &[Arc<Tracker>], lease: &Lease, limit: Duration) -> bool {
    let deadline = after_threads(trackers, limit);
    // Waits for all, even if one of them fails; the limit is for all of them together.
    trackers.iter().filter(|tracker| !tracker.wait_for_uses(Some(lease), deadline)).count() == 0
}

/// Waits for threads first; that takes none of the GPU's time. Returns the deadline for the GPU.
fn after_threads(trackers: &[Arc<Tracker>], limit: Duration) -> Instant {
    trackers.iter().for_each(|tracker| tracker.wait_for_threads());
    Instant::now() + limit
}

/// Whether no submission that names it is in progress; does not wait.
pub(crate) fn is_unused(trackers: &[Arc<Tracker>], lease: &Lease) -> bool {
    trackers.iter().all(|tracker| tracker.is_done_with(lease))
}

/// As [`wait`], for memory that will be freed in any case: channels that still have such submissions are stopped. `None`:
/// all memory is freed.
pub(crate) fn wait_or_stop(trackers: &[Arc<Tracker>], leases: Option<&[Arc<Lease>]>, limit: Duration) {
    let deadline = after_threads(trackers, limit);
    for tracker in trackers {
        let done = match leases {
            None => tracker.wait_for_uses(None, deadline),
            Some(leases) => leases.iter().all(|lease| tracker.wait_for_uses(Some(lease), deadline)),
        };
        if !done {
            tracker.stop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[repr(align(16))]
    struct Semaphore([AtomicU64; 2]);

    fn tracker() -> Arc<Tracker> {
        let memory = Arc::new(Semaphore([const { AtomicU64::new(7) }; 2]));
        // SAFETY: sixteen aligned bytes that the tracker keeps.
        Arc::new(unsafe { Tracker::new(std::ptr::from_ref(&memory.0) as u64, memory) })
    }

    /// Plays the GPU.
    fn release(tracker: &Tracker, number: u32) {
        tracker.pretend(number);
    }

    fn with_two_pending() -> Arc<Tracker> {
        let tracker = tracker();
        tracker.submitted.store(2, Ordering::SeqCst);
        tracker.finish();
        release(&tracker, 0);
        tracker
    }

    fn soon(milliseconds: u64) -> Instant {
        Instant::now() + Duration::from_millis(milliseconds)
    }

    #[test]
    fn a_number_that_is_given_back_keeps_nobody_waiting() {
        let tracker = tracker();
        tracker.submitted.store(1, Ordering::SeqCst);
        tracker.finish();
        let given = tracker.clone();
        let (about_to, started) = std::sync::mpsc::channel();
        let waits = std::thread::spawn(move || {
            about_to.send(()).unwrap();
            // Ten minutes: the wait ends earlier, or the test hangs.
            given.drain(soon(600_000))
        });
        started.recv().unwrap();
        std::thread::sleep(Duration::from_millis(5));
        tracker.give_back(0);
        assert!(waits.join().unwrap());
    }

    #[test]
    fn a_channel_that_was_given_up_is_waited_for_again_when_it_has_moved() {
        let tracker = tracker();
        tracker.submitted.store(2, Ordering::SeqCst);
        tracker.finish();
        assert!(!tracker.drain(soon(1)) && tracker.in_flight().lost);
        // Immediately: the channel has not moved.
        assert!(!tracker.drain(soon(600_000)));
        release(&tracker, 1);
        assert!(!tracker.drain(soon(1)) && tracker.in_flight().lost, "waited for, in vain again");
        assert!(tracker.wait_until(1, soon(600_000)), "done before");
        assert!(!tracker.drain(soon(600_000)), "it has not moved since");
        release(&tracker, 2);
        assert!(tracker.drain(soon(600_000)) && !tracker.in_flight().lost);
        tracker.submitted.store(3, Ordering::SeqCst);
        tracker.finish();
        let other = tracker.clone();
        let waits = std::thread::spawn(move || other.drain(soon(600_000)));
        std::thread::sleep(Duration::from_millis(5));
        release(&tracker, 3);
        assert!(waits.join().unwrap());
    }

    #[test]
    fn death_spreads_to_those_that_wait_and_to_no_others() {
        let [first, second, third, fourth] = [(); 4].map(|()| with_two_pending());
        // The third waits for the second, and that for the first one's second submission; the fourth only for its first, which is done.
        assert!(!second.awaited.add(&first, Ticket(1), Ticket(1)) && second.awaited.add(&first, Ticket(2), Ticket(2)));
        third.awaited.add(&second, Ticket(2), Ticket(1));
        fourth.awaited.add(&first, Ticket(1), Ticket(1));
        release(&first, 1);
        release(&second, 1);
        let all = [third.clone(), second.clone(), first.clone(), fourth.clone()];
        assert!(all.iter().all(|tracker| !tracker.is_off() && !tracker.is_stopped()));
        first.stop();
        assert!(third.is_off() && !fourth.is_off());
        assert!(second.is_stopped() && third.is_stopped() && !fourth.is_stopped());
    }

    /// No thread may wait for the one between.
    #[test]
    fn what_waits_for_a_dead_channel_through_others_is_off_and_a_circle_of_waits_ends() {
        let [dead, between, last, other] = [(); 4].map(|()| with_two_pending());
        // The second submissions of two wait for the first ones of each other.
        last.awaited.add(&other, Ticket(1), Ticket(2));
        other.awaited.add(&last, Ticket(1), Ticket(2));
        last.awaited.add(&between, Ticket(1), Ticket(2));
        between.awaited.add(&dead, Ticket(1), Ticket(1));
        assert!(!last.is_off() && !other.dies_with_others());
        dead.stop();
        assert!(other.dies_with_others() && [&between, &last, &other].iter().all(|tracker| tracker.is_stopped()));
    }

    #[test]
    fn more_channels_may_be_awaited_than_there_are_slots() {
        let (waits, others) = (tracker(), (0..600).map(|_| tracker()).collect::<Vec<_>>());
        waits.submitted.store(1, Ordering::SeqCst);
        for other in &others {
            other.submitted.store(1, Ordering::SeqCst);
            assert!(!waits.awaited.add(other, Ticket(1), Ticket(1)));
        }
        assert!(others.iter().all(|other| waits.awaited.add(other, Ticket(1), Ticket(1))));
        assert!(!waits.is_off());
        others[599].stop();
        assert!(waits.is_off());
    }

    #[test]
    fn a_ticket_stays_done_however_many_come_after_it() {
        let tracker = tracker();
        let old = Ticket(5);
        for submitted in [5, 6, 1 << 31, (1 << 31) + 6, u64::from(u32::MAX), (1 << 32) + 4, (7 << 33) + 1] {
            tracker.submitted.store(submitted, Ordering::SeqCst);
            release(&tracker, submitted as u32);
            assert!(tracker.done(old) && tracker.done(Ticket(submitted)) && !tracker.done(Ticket(submitted + 1)));
            // Three of them are still to come.
            tracker.submitted.store(submitted + 3, Ordering::SeqCst);
            assert_eq!(tracker.reached(), submitted);
            assert!(!tracker.done(Ticket(submitted + 3)) && tracker.done(Ticket(submitted)));
        }
    }
}
