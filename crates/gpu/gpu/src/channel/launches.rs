//! What a channel is used for, and what launches need from it.
//!
//! Transfers *set* the channel's tracker to their number, QMDs *add* to it. On one channel the two would have to wait for each other, so a channel is for
//! the kind that was prepared on it first.

use super::*;
use crate::validate::Invalid;
use pushbuf::encode::offset;

/// SET_REPORT_SEMAPHORE_D: RELEASE, ONE_WORD, with a flush.
const ONE_WORD: u32 = 1 << 28;

/// The kind of work that updates the tracker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Transfers,
    Launches,
}

impl Channel {
    /// Lets pushbuffers start these QMDs, and no others. Each address is a multiple of 256.
    ///
    /// # Safety
    /// A kernel may do anything to any memory of the address space, as its code and its QMD define, and doorbell does not check it. The caller is
    /// responsible for the contents of the QMDs at these addresses whenever they are started.
    pub unsafe fn grant_launches(&mut self, qmds: impl IntoIterator<Item = u64>) {
        self.granted = qmds.into_iter().collect();
        self.granted.sort_unstable();
        self.granted.dedup();
    }

    /// From now on the channel is for this kind only.
    pub(crate) fn use_for(&mut self, what: Use) -> Result<(), Error> {
        match *self.used_for.get_or_insert(what) {
            has if has == what => Ok(()),
            Use::Transfers => Err(Error::OtherUse { has: "transfers" }),
            Use::Launches => Err(Error::OtherUse { has: "launches" }),
        }
    }

    /// Makes this a channel for launches. From now on it refuses transfers. Code that frees memory waits for all of the channel's pending work, because
    /// the memory that kernels use is unknown. [`crate::Launch::prepare`] calls this, too.
    ///
    /// # Errors
    /// [`Error::OtherChannel`] for another engine's, [`Error::OtherUse`] for one with transfers, or the reason why it is unusable.
    pub fn begin_launches(&mut self) -> Result<(), Error> {
        self.usable()?;
        if self.engine != Engine::Graphics {
            return Err(Error::OtherChannel);
        }
        self.use_for(Use::Launches)?;
        self.tracker.launches();
        Ok(())
    }

    /// Makes this a channel for transfers.
    ///
    /// # Errors
    /// [`Error::OtherUse`] for one with launches, or the reason why it is unusable.
    pub(crate) fn begin_transfers(&mut self) -> Result<(), Error> {
        self.usable()?;
        self.use_for(Use::Transfers)
    }

    /// GPU address of the word that counts the channel's finished work: launches' QMDs add to it.
    pub fn tracker(&self) -> u64 {
        self.tracker.va()
    }

    /// A group for the memory that all launches of one kind name.
    pub(crate) fn group_of_leases(&self) -> Arc<crate::lease::Group> {
        self.tracker.uses.group(|number| self.tracker.done(Ticket(number)))
    }

    /// Takes the next `adds` numbers, announced as in [`Channel::take_ticket`]. Returns the number before them, and the last as a ticket.
    #[inline]
    pub(crate) fn take_tickets(&mut self, adds: u32) -> (u64, Ticket) {
        let before = self.tracker.submitted.load(Ordering::Relaxed);
        let last = before + u64::from(adds);
        // ORDERING: sequentially consistent, see `lease`.
        self.tracker.submitted.store(last, Ordering::SeqCst);
        Point::AfterTicket.reached();
        (before, Ticket(last))
    }

    /// Whether the tracker was seen to have reached this number.
    #[inline]
    pub(crate) fn has_reached(&self, number: u64) -> bool {
        self.tracker.done(Ticket(number))
    }

    /// Returns numbers that will not be submitted after all.
    pub(crate) fn give_back_to(&mut self, before: u64) {
        self.tracker.give_back(before);
    }

    /// Checks the words of a launch: they may start these QMDs, and name the tracker and the memory of `space`.
    pub(crate) fn check_launch(&self, words: &[u32], qmds: &[u64], space: &dyn Ranges) -> Result<(), Invalid> {
        let (architecture, graphics) = (self.space.device().architecture(), self.engine == Engine::Graphics);
        validate::check(words, &Rules { architecture, graphics, copies: self.copies, launches: qmds, space })
    }
}

/// The words that end a pushbuffer between launches. They wait until the tracker has counted all earlier launches, and then set it. The compute class
/// writes the number. A host release with RELEASE_WFI would wait for CUDA's kernels, too.
pub(super) fn release(words: &mut [u32], tracker: u64, ticket: Ticket) -> usize {
    let waits = acquire(words, tracker, ticket.payload().wrapping_sub(1));
    let mut to = Words::new(words.get_mut(waits..).unwrap_or_default());
    let semaphore = [(tracker >> 32) as u32, tracker as u32, ticket.payload(), ONE_WORD];
    let written = to.inc(COMPUTE, offset::REPORT_SEMAPHORE_A, &semaphore);
    debug_assert!(written.is_ok());
    waits + to.len()
}

/// Writes the words that wait for the tracker, and returns how many there are. CUDA's graphs wait for their counters in the same way.
pub(crate) fn acquire(words: &mut [u32], tracker: u64, count: u32) -> usize {
    let mut to = Words::new(words);
    let written = to.host_semaphore(HOST, tracker, count.into(), Execute::WAIT);
    debug_assert!(written.is_ok());
    to.len()
}
