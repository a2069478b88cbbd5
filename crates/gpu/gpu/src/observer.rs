//! How far a channel is, for threads that do not submit: only its submitter uses the channel itself.

use crate::device::Device;
use crate::memory::Memory;
use crate::space::AddressSpace;
use crate::tracker::{Ticket, Tracker};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// A view of one channel. It keeps the memory that it reads mapped, even after the channel is dropped.
#[derive(Clone, Debug)]
pub struct Observer {
    tracker: Arc<Tracker>,
    /// Has the channel's error notifier.
    page: Arc<Memory>,
    device: Arc<Device>,
}

impl Observer {
    pub(crate) fn new(tracker: &Arc<Tracker>, page: &Arc<Memory>, device: &Arc<Device>) -> Observer {
        Observer { tracker: tracker.clone(), page: page.clone(), device: device.clone() }
    }

    pub(crate) fn tracker(&self) -> &Arc<Tracker> {
        &self.tracker
    }

    /// The address space of the tracker.
    pub(crate) fn space(&self) -> &AddressSpace {
        self.page.space()
    }

    /// True when the submission is done, and all before it on the channel. Never true in a fork's child.
    #[inline]
    pub fn done(&self, ticket: Ticket) -> bool {
        !self.forked() && self.tracker.done(ticket)
    }

    /// Submissions up to this one that are not done.
    #[inline]
    pub fn missing(&self, ticket: Ticket) -> u64 {
        ticket.number().saturating_sub(self.tracker.reached())
    }

    /// Whether all submissions are done.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.missing(Ticket(self.tracker.submitted.load(Ordering::Relaxed))) == 0
    }

    /// The ticket of that number, if there was one.
    #[inline]
    pub fn ticket(&self, number: u64) -> Option<Ticket> {
        let submitted = self.tracker.submitted.load(Ordering::Relaxed);
        (number > 0 && number <= submitted).then_some(Ticket(number))
    }

    /// The error that killed the channel (Xid), if one did.
    pub fn error(&self) -> Option<u32> {
        if self.forked() { None } else { killed(&self.page, &self.tracker) }
    }

    /// The channel was stopped, because memory had to be freed before its work finished.
    pub fn is_stopped(&self) -> bool {
        self.tracker.is_stopped()
    }

    /// Whether it waits for a submission of a dead channel. If so, it is stopped ([`crate::Channel::dies_with_others`]).
    pub fn dies_with_others(&self) -> bool {
        self.tracker.dies_with_others()
    }

    /// Whether an error or a stop has ended the channel, or one that it waits for. If so, the GPU no longer works for it on return; that takes one
    /// call of the driver, once.
    pub fn is_dead(&self) -> bool {
        !self.forked() && self.tracker.is_off()
    }

    #[inline]
    pub fn forked(&self) -> bool {
        self.device.forked()
    }
}

/// ROBUST_CHANNEL_PREEMPTIVE_REMOVAL (nverror.h): the channel was freed with pending work.
const PREEMPTIVE_REMOVAL: u32 = 45;

/// The error that killed a channel. The driver also sets one if a channel is stopped: that is none. Not to be called in a fork's child.
#[inline]
pub(crate) fn killed(page: &Memory, tracker: &Tracker) -> Option<u32> {
    notified(page).filter(|code| *code != PREEMPTIVE_REMOVAL || !tracker.is_stopped())
}

/// The error in the notifier at the start of a channel's page. Not to be called in a fork's child.
#[inline]
pub(crate) fn notified(page: &Memory) -> Option<u32> {
    // SAFETY: a channel's page is a whole page, mapped and aligned as long as `page` lives.
    let word = |at: usize| unsafe { &*page.as_ptr().add(at).cast::<AtomicU32>() };
    // NvNotification: info32 @8, status in the upper half of @12.
    let status = word(12).load(Ordering::Acquire) >> 16;
    (status == 0xffff).then(|| word(8).load(Ordering::Relaxed))
}
