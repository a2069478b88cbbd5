//! A lane: a channel, what is prepared on it, and the word by which one thread at a time has it.
//!
//! A thread claims a lane with one exchange and lets it go with one store. Nobody waits for a claim on the way of a submission.
//! Whoever takes something away (a buffer, the lane itself) makes it invisible first and then waits until each lane has been
//! let go once ([`Lane::grace`]): a claim made later cannot find it any more.

use crate::choose::Ways;
use crate::error::Error;
use crate::launching::Launching;
use crate::mailbox::Mailbox;
use crate::prepared::{Ready, Rotating};
use crate::sleepers::Sleepers;
use gpu::points::Point;
use gpu::{Channel, Copies, Observer, Prepared};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// What is on a lane's channel.
pub(crate) struct Inner {
    // Before the channel that they are on.
    pub rings: Vec<Place<Rotating>>,
    pub transfers: Vec<Place<Ready>>,
    pub messages: Vec<Place<Mailbox>>,
    pub graphs: Vec<Place<Launching>>,
    /// Graphs that were released while their launches were under way.
    pub leaving: Vec<Launching>,
    /// On the graphics engine: what writes a word that a stream waits for.
    pub word: Option<Prepared>,
    /// None on the graphics engine.
    pub copies: Option<Copies>,
    pub ways: Arc<Ways>,
    pub channel: Channel,
}

/// A place that is used again and again: `used` is another number each time, also in another opening of the session.
pub(crate) struct Place<T> {
    pub used: u32,
    pub item: Option<T>,
}

impl<T> Place<T> {
    /// Puts it in the first free place; where, and how often that was used.
    pub fn put(places: &mut Vec<Place<T>>, most: usize, item: T) -> Result<(u32, u32), Error> {
        let at = match places.iter().position(|place| place.item.is_none()) {
            Some(at) => at,
            None if places.len() == most => return Err(Error::Limit(most)),
            None => {
                places.push(Place { used: 0, item: None });
                places.len() - 1
            }
        };
        static USES: AtomicU32 = AtomicU32::new(0);
        let place = &mut places[at];
        place.used = USES.fetch_add(1, Ordering::Relaxed);
        place.item = Some(item);
        Ok((at as u32, place.used))
    }

    #[inline]
    pub fn find(places: &mut [Place<T>], at: u32, used: u32) -> Option<&mut T> {
        places.get_mut(at as usize).filter(|place| place.used == used).and_then(|place| place.item.as_mut())
    }

    pub fn look(places: &[Place<T>], at: u32, used: u32) -> Option<&T> {
        places.get(at as usize).filter(|place| place.used == used).and_then(|place| place.item.as_ref())
    }

    pub fn take(places: &mut [Place<T>], at: u32, used: u32) -> Option<T> {
        let place = places.get_mut(at as usize).filter(|place| place.used == used)?;
        place.item.take()
    }
}

/// A cache line of its own each.
#[repr(align(128))]
pub(crate) struct Lane {
    /// Odd while a thread has it.
    claims: AtomicU64,
    inner: UnsafeCell<Option<Inner>>,
    /// Threads that look at `observer` now, and whether they may.
    readers: AtomicUsize,
    readable: AtomicBool,
    observer: UnsafeCell<Option<Observer>>,
    /// Polls in vain, about.
    pub vain: AtomicU32,
    /// Numbers of submissions in earlier openings of the session: no ticket of theirs is one of this.
    pub before: AtomicU64,
    /// A launch is under way whose results the CPU still has to move. Written by who has the lane.
    pub owes: AtomicBool,
    /// Who has it looks at no buffer.
    blind: AtomicBool,
    /// The threads that sleep until a submission of the lane is done.
    pub sleepers: Sleepers,
}

// SAFETY: `inner` is touched only through a `Claim`, which one thread at a time has; `observer` is written while `readable` is
// false and `readers` is 0, and read otherwise.
unsafe impl Sync for Lane {}
// SAFETY: what it holds may be used and dropped by any thread.
unsafe impl Send for Lane {}

/// One thread's hold on a lane.
pub(crate) struct Claim<'l> {
    lane: &'l Lane,
    number: u64,
}

impl Lane {
    pub const fn new() -> Lane {
        Lane {
            claims: AtomicU64::new(0),
            inner: UnsafeCell::new(None),
            readers: AtomicUsize::new(0),
            readable: AtomicBool::new(false),
            observer: UnsafeCell::new(None),
            vain: AtomicU32::new(0),
            before: AtomicU64::new(0),
            owes: AtomicBool::new(false),
            blind: AtomicBool::new(false),
            sleepers: Sleepers::new(),
        }
    }

    /// `None` while another thread has it.
    #[inline]
    pub fn claim(&self) -> Option<Claim<'_>> {
        Point::BeforeClaim.reached();
        let number = self.claims.load(Ordering::Relaxed);
        // ORDERING: sequentially consistent with what is looked at after it: see the head of the file.
        let free = number & 1 == 0
            && self.claims.compare_exchange(number, number + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        free.then(|| {
            Point::AfterClaim.reached();
            Claim { lane: self, number: number + 1 }
        })
    }

    /// Waits for it, yielding: for calls that may wait.
    pub fn claim_in_time(&self) -> Claim<'_> {
        loop {
            if let Some(claim) = self.claim() {
                return claim;
            }
            std::thread::yield_now();
        }
    }

    /// Returns when whoever has the lane now has let it go, or looks at no buffer.
    pub fn grace(&self) {
        let seen = self.claims.load(Ordering::SeqCst);
        // ORDERING: `blind` is that of the claim which was seen, or that has gone.
        while seen & 1 == 1 && self.claims.load(Ordering::SeqCst) == seen && !self.blind.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
    }

    /// Who has the lane looks at no buffer until what this answers is dropped, which is before the claim is: nobody who takes a
    /// buffer away waits for a long call.
    pub fn blind<'l>(&'l self, _claim: &Claim<'_>) -> Blind<'l> {
        self.blind.store(true, Ordering::SeqCst);
        Blind(&self.blind)
    }

    /// What threads may poll from now on.
    pub fn publish(&self, _claim: &Claim<'_>, observer: Observer) {
        debug_assert!(!self.readable.load(Ordering::SeqCst));
        // SAFETY: not readable, so nobody looks.
        unsafe { *self.observer.get() = Some(observer) };
        self.readable.store(true, Ordering::SeqCst);
    }

    /// Nobody polls any more when this returns.
    pub fn retract(&self) -> Option<Observer> {
        self.readable.store(false, Ordering::SeqCst);
        while self.readers.load(Ordering::SeqCst) > 0 {
            std::thread::yield_now();
        }
        // SAFETY: not readable, and the last reader has gone.
        unsafe { (*self.observer.get()).take() }
    }

    /// Looks at the observer; [`Error::Closed`] where there is none.
    #[inline]
    pub fn observe<T>(&self, look: impl FnOnce(&Observer) -> Result<T, Error>) -> Result<T, Error> {
        struct Reading<'l>(&'l AtomicUsize);
        impl Drop for Reading<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        // ORDERING: announced before `readable` is read: `retract` sees the one, or this the other.
        self.readers.fetch_add(1, Ordering::SeqCst);
        let _reading = Reading(&self.readers);
        if !self.readable.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        // SAFETY: readable after we were announced: it stays until we have gone.
        match unsafe { &*self.observer.get() } {
            Some(observer) => look(observer),
            None => Err(Error::Closed),
        }
    }
}

/// See [`Lane::blind`].
pub(crate) struct Blind<'l>(&'l AtomicBool);

impl Drop for Blind<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::SeqCst);
    }
}

impl Deref for Claim<'_> {
    type Target = Option<Inner>;

    #[inline]
    fn deref(&self) -> &Option<Inner> {
        // SAFETY: this thread alone has the lane.
        unsafe { &*self.lane.inner.get() }
    }
}

impl DerefMut for Claim<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Option<Inner> {
        // SAFETY: as above.
        unsafe { &mut *self.lane.inner.get() }
    }
}

impl Drop for Claim<'_> {
    #[inline]
    fn drop(&mut self) {
        // A plain store: a locked instruction would wait until the doorbell has left the write-combining buffers.
        // ORDERING: what was done with the lane is seen by whoever claims it next.
        self.lane.claims.store(self.number + 1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_takes_a_buffer_away_waits_for_those_that_look_at_buffers_alone() {
        use std::time::Duration;
        let lane = Lane::new();
        lane.grace();
        let claim = lane.claim().unwrap();
        let blind = lane.blind(&claim);
        lane.grace();
        drop(blind);
        let waited = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                lane.grace();
                waited.store(true, Ordering::SeqCst);
            });
            std::thread::sleep(Duration::from_millis(20));
            assert!(!waited.load(Ordering::SeqCst));
            drop(claim);
        });
        assert!(waited.load(Ordering::SeqCst) && lane.claim().is_some());
    }

    #[test]
    fn one_more_than_there_may_be_is_an_error_and_a_place_is_used_again_under_another_number() {
        let mut places = Vec::new();
        let all: Vec<_> = (0..3).map(|n| Place::put(&mut places, 3, n).unwrap()).collect();
        assert!(matches!(Place::put(&mut places, 3, 9), Err(Error::Limit(3))));
        let (at, used) = all[1];
        assert_eq!(Place::take(&mut places, at, used), Some(1));
        let (again, other) = Place::put(&mut places, 3, 9).unwrap();
        assert!(again == at && other != used);
        assert!(Place::find(&mut places, at, used).is_none() && Place::take(&mut places, at, used).is_none());
        assert_eq!(Place::find(&mut places, again, other), Some(&mut 9));
    }
}
