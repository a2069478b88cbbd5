//! What a channel is used for, and what launches need of it.
//!
//! Transfers *set* the channel's tracker to their number, QMDs *add* to it. On one channel the two would have to wait for each other, so a channel is for the
//! kind that was prepared on it first.

use super::*;
use crate::validate::Invalid;
use pushbuf::encode::offset;

/// SET_REPORT_SEMAPHORE_D: RELEASE, ONE_WORD, with a flush.
const ONE_WORD: u32 = 1 << 28;

/// What tells the tracker how far the channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Transfers,
    Launches,
}

impl Channel {
    /// Lets pushbuffers start these QMDs, and no others. Each address is a multiple of 256.
    ///
    /// # Safety
    /// A kernel does whatever its code and its QMD say, to any memory of the address space, and nothing here looks at it. The caller answers for what the
    /// QMDs at these addresses say whenever they are started.
    pub unsafe fn grant_launches(&mut self, qmds: impl IntoIterator<Item = u64>) {
        self.granted = qmds.into_iter().collect();
        self.granted.sort_unstable();
        self.granted.dedup();
    }

    /// From now on for this.
    pub(crate) fn use_for(&mut self, what: Use) -> Result<(), Error> {
        match *self.used_for.get_or_insert(what) {
            has if has == what => Ok(()),
            Use::Transfers => Err(Error::OtherUse { has: "transfers" }),
            Use::Launches => Err(Error::OtherUse { has: "launches" }),
        }
    }

    /// Makes this a channel for launches. From now on it refuses transfers. Code that frees memory waits for all that the channel has under way, because
    /// nobody knows which memory kernels use. [`crate::Launch::prepare`] calls this, too.
    ///
    /// # Errors
    /// [`Error::OtherChannel`] for another engine's, [`Error::OtherUse`] for one that has transfers, and what makes it unusable.
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
    /// [`Error::OtherUse`] for one that has launches, and what makes it unusable.
    pub(crate) fn begin_transfers(&mut self) -> Result<(), Error> {
        self.usable()?;
        self.use_for(Use::Transfers)
    }

    /// GPU address of the word that tells how far the channel is: what QMDs of launches add to.
    pub fn tracker(&self) -> u64 {
        self.tracker.va()
    }

    /// For what all launches of one kind name.
    pub(crate) fn group_of_leases(&self) -> Arc<crate::lease::Group> {
        self.tracker.uses.group(|number| self.tracker.done(Ticket(number)))
    }

    /// The next `adds` numbers, announced as [`Channel::take_ticket`] does: the number before them, and the last as a ticket.
    #[inline]
    pub(crate) fn take_tickets(&mut self, adds: u32) -> (u64, Ticket) {
        let before = self.tracker.submitted.load(Ordering::Relaxed);
        let last = before + u64::from(adds);
        // ORDERING: sequentially consistent, see `lease`.
        self.tracker.submitted.store(last, Ordering::SeqCst);
        Point::AfterTicket.reached();
        (before, Ticket(last))
    }

    /// Whether the tracker was seen to have come to this number.
    #[inline]
    pub(crate) fn has_reached(&self, number: u64) -> bool {
        self.tracker.done(Ticket(number))
    }

    /// Numbers that will not be submitted after all.
    pub(crate) fn give_back_to(&mut self, before: u64) {
        self.tracker.give_back(before);
    }

    /// Checks the words of a launch: they may start these QMDs, and name the tracker and what `holds` says.
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

/// The words that wait for the tracker: how many there are. As CUDA's graphs wait for their counters.
pub(crate) fn acquire(words: &mut [u32], tracker: u64, count: u32) -> usize {
    let mut to = Words::new(words);
    let written = to.host_semaphore(HOST, tracker, count.into(), Execute::WAIT);
    debug_assert!(written.is_ok());
    to.len()
}
