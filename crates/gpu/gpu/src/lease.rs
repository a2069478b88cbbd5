//! What happens when memory is freed. A lease is the right to name one memory: a [`Memory`](crate::Memory) or a
//! [`Pin`](crate::Pin).
//!
//! The rules for ending a lease. The reference page of libdoorbell states them for users ('When memory goes').
//!
//! 1. **No new submissions.** From [`Lease::end`] on no submission may name the memory. A submission takes its ticket, then
//!    reads its leases. Either it sees the end and gives up, or the thread that ends the lease sees the ticket.
//! 2. **Waits for threads have no limit.** A ticket whose submission is not finished belongs to a thread inside a call. It
//!    writes words, or copies bytes itself, and neither can be stopped. It takes microseconds, or until the thread gets a
//!    CPU.
//! 3. **Waits for the GPU have a limit.** They cover only channels whose submissions name this memory, up to the last of
//!    those submissions. Each channel remembers that one number for each lease ([`Uses`]). Other submissions do not matter.
//! 4. **After the limit:** some memory is freed by its owner in any case (CUDA's). Then those channels are stopped
//!    ([`wait_or_stop`](crate::tracker::wait_or_stop)). doorbell's own memory stays mapped, and no channel is stopped
//!    ([`wait`](crate::tracker::wait)). It is given back when the last of these submissions is done or their channel has
//!    ended ([`Leftovers`](crate::memory::Leftovers)).
//! 5. **A dead channel causes no wait.** Killed or stopped, it is first taken from the GPU
//!    ([`Tracker::stop`](crate::tracker::Tracker::stop)). Then its work does not touch memory any more. A channel that
//!    waits for a submission of a dead one dies, too ([`Channel::dies_with_others`](crate::Channel::dies_with_others)).
//!
//! Kernels are exempt from these rules, because the memory that they touch is unknown. CUDA's frees wait ten seconds for
//! pending launches, and stop no channel for them ([`Watched`](crate::Watched)). Copies on a launch channel name their
//! memory, so rule 4 holds for them.

use crate::fork;
use crate::points::Point;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// Leases with separate numbers. Further leases share one number, so waits for those are longer than needed.
const MOST: usize = 1 << 15;
/// The number that they share.
const SHARED: usize = 0;

/// The kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    Memory,
    Pin,
}

/// The right to name one memory.
#[derive(Debug)]
pub(crate) struct Lease {
    number: usize,
    of: Of,
    over: AtomicBool,
    opener: u32,
}

/// Numbers of leases, reused.
struct Numbers {
    free: Vec<usize>,
    next: usize,
}

impl Numbers {
    const fn new() -> Numbers {
        Numbers { free: Vec::new(), next: SHARED + 1 }
    }

    fn take(&mut self) -> usize {
        self.free.pop().unwrap_or_else(|| {
            let number = if self.next == MOST { SHARED } else { self.next };
            self.next = (self.next + 1).min(MOST);
            number
        })
    }
}

static NUMBERS: Mutex<Numbers> = Mutex::new(Numbers::new());

impl Lease {
    pub fn new(of: Of) -> Arc<Lease> {
        let number = poison::ignore(NUMBERS.lock()).take();
        Arc::new(Lease { number, of, over: AtomicBool::new(false), opener: fork::watch() })
    }

    /// A lease of memory that no submission may name.
    pub fn never() -> Arc<Lease> {
        Arc::new(Lease { number: SHARED, of: Of::Memory, over: AtomicBool::new(true), opener: 0 })
    }

    /// From now on no submission may name the memory.
    pub fn end(&self) {
        // ORDERING: sequentially consistent with a submission's ticket and its read of `over`: see the head of the file.
        self.over.store(true, Ordering::SeqCst);
        Point::AfterLease.reached();
    }

    /// Read after the ticket was taken.
    #[inline]
    pub fn is_over(&self) -> bool {
        self.over.load(Ordering::SeqCst)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // (A thread of the parent may have had the lock when a child was forked.)
        if self.number != SHARED && !fork::forked(self.opener) {
            poison::ignore(NUMBERS.lock()).free.push(self.number);
        }
    }
}

/// The last submission of one channel that names each lease. Written only by the channel's submitter.
///
/// After a number was reused, an old entry names a submission that is done, or makes a wait longer than needed.
pub(crate) struct Uses {
    last: Box<[AtomicU64]>,
    /// The last submission that may name any memory, and any pin: a pushbuffer's.
    any: [AtomicU64; 2],
    groups: Mutex<Vec<Arc<Group>>>,
}

/// The memory that all submissions of one kind name, for example a launch's. Submitting writes one number, however many
/// leases there are.
#[derive(Debug, Default)]
pub(crate) struct Group {
    last: AtomicU64,
    /// While leases are here, their numbers are not reused.
    leases: Mutex<Vec<Arc<Lease>>>,
}

impl Group {
    /// To be called before checking whether the lease is over.
    pub fn add<'l>(&self, leases: impl IntoIterator<Item = &'l Arc<Lease>>) {
        poison::ignore(self.leases.lock()).extend(leases.into_iter().cloned());
    }

    #[inline]
    pub fn used(&self, number: u64) {
        self.last.store(number, Ordering::Relaxed);
    }

    fn names(&self, lease: &Lease) -> bool {
        let leases = poison::ignore(self.leases.lock());
        leases.iter().any(|other| std::ptr::eq(&**other, lease) || lease.number == SHARED && other.number == SHARED)
    }
}

impl std::fmt::Debug for Uses {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Uses").finish_non_exhaustive()
    }
}

impl Uses {
    pub fn new() -> Uses {
        // Zeroed by the allocator: pages without a lease in use are never touched.
        let last = Box::into_raw(vec![0u64; MOST].into_boxed_slice());
        // SAFETY: 64-bit atomics have the size, the bits and here the alignment of u64; no other code has the slice.
        let last = unsafe { Box::from_raw(last as *mut [AtomicU64]) };
        Uses { last, any: Default::default(), groups: Mutex::default() }
    }

    /// Submission `number`, whose ticket is taken, names the lease.
    #[inline]
    pub fn named(&self, lease: &Lease, number: u64) {
        // ORDERING: published by the end of the submission, which the thread that ends the lease waits for.
        self.last[lease.number].store(number, Ordering::Relaxed);
    }

    /// The submission may name any memory, and any pin if `pins`.
    pub fn named_any(&self, number: u64, pins: bool) {
        self.any[0].store(number, Ordering::Relaxed);
        if pins {
            self.any[1].store(number, Ordering::Relaxed);
        }
    }

    /// A new group. Dropped groups whose last submission is done are forgotten.
    pub fn group(&self, is_done: impl Fn(u64) -> bool) -> Arc<Group> {
        let group = Arc::new(Group::default());
        let mut groups = poison::ignore(self.groups.lock());
        groups.retain(|other| Arc::strong_count(other) > 1 || !is_done(other.last.load(Ordering::Relaxed)));
        groups.push(group.clone());
        group
    }

    /// The last submission that names it, provided that all submissions are finished.
    pub fn last(&self, lease: &Lease) -> u64 {
        let any = self.any[usize::from(lease.of == Of::Pin)].load(Ordering::Relaxed);
        let one = self.last[lease.number].load(Ordering::Relaxed).max(any);
        let groups = poison::ignore(self.groups.lock());
        groups
            .iter()
            .filter(|group| group.names(lease))
            .map(|group| group.last.load(Ordering::Relaxed))
            .fold(one, u64::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_used_again_and_what_is_beyond_them_shares_one() {
        let mut numbers = Numbers::new();
        let all: Vec<usize> = (1..MOST).map(|_| numbers.take()).collect();
        assert!(all.iter().all(|number| *number != SHARED) && all.is_sorted());
        assert_eq!([numbers.take(), numbers.take()], [SHARED; 2]);
        numbers.free.push(9);
        assert_eq!([numbers.take(), numbers.take()], [9, SHARED]);
    }

    #[test]
    fn what_a_group_names_counts_until_it_is_done() {
        let uses = Uses::new();
        let [named, other] = [(); 2].map(|()| Lease::new(Of::Pin));
        let group = uses.group(|_| false);
        group.add([&named]);
        group.used(5);
        assert_eq!((uses.last(&named), uses.last(&other)), (5, 0));
        drop(group);
        drop(uses.group(|_| false));
        assert_eq!(uses.last(&named), 5, "its last submission is under way");
        drop(uses.group(|number| number <= 5));
        assert_eq!(uses.last(&named), 0);
        uses.named_any(9, false);
        assert_eq!((uses.last(&named), uses.last(&Lease::new(Of::Memory))), (0, 9));
        uses.named(&other, 11);
        assert_eq!((uses.last(&other), uses.last(&named)), (11, 0));
    }
}
