//! A lane: a channel, the objects prepared on it, and the word with which one thread at a time claims it.
//!
//! A thread claims a lane with one exchange and releases it with one store. No submission waits for a claim. A thread that
//! removes something (a buffer, the lane itself) first makes it invisible, and then waits until each lane has been released
//! once ([`Lane::grace`]): a later claim cannot find it any more.

use crate::choose::Ways;
use crate::error::Error;
use crate::launching::Launching;
use crate::mailbox::Mailbox;
use crate::prepared::{Ready, Rotating};
use crate::sleepers::Sleepers;
use gpu::points::Point;
use gpu::{Channel, Copies, Observer, Patience, Prepared};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The channel of a lane, and the objects on it.
pub(crate) struct Inner {
    // Dropped before the channel that they are on.
    pub rings: Vec<Place<Rotating>>,
    pub transfers: Vec<Place<Ready>>,
    pub messages: Vec<Place<Mailbox>>,
    pub graphs: Vec<Place<Launching>>,
    /// Graphs that were released while their launches were pending.
    pub leaving: Vec<Launching>,
    /// On the graphics engine: writes a word that a stream waits for.
    pub word: Option<Prepared>,
    /// None on the graphics engine.
    pub copies: Option<Copies>,
    pub ways: Arc<Ways>,
    pub channel: Channel,
}

/// A place that is reused: `used` is another number each time, even in another opening of the session.
pub(crate) struct Place<T> {
    pub used: u32,
    pub item: Option<T>,
}

impl<T> Place<T> {
    /// Puts it in the first free place. Returns the place, and how often that was used.
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

/// Each has its own cache line.
#[repr(align(128))]
pub(crate) struct Lane {
    /// Odd while a thread has it.
    claims: AtomicU64,
    inner: UnsafeCell<Option<Inner>>,
    /// Number of threads that look at `observer` now, and whether they may.
    readers: AtomicUsize,
    readable: AtomicBool,
    observer: UnsafeCell<Option<Observer>>,
    /// Failed polls, approximately.
    pub vain: AtomicU32,
    /// The highest number of a submission in earlier openings, so that their tickets are not valid in this one.
    pub before: AtomicU64,
    /// A launch is pending whose results the CPU must still move. Written by the thread that has the lane.
    pub owes: AtomicBool,
    /// The thread that has the lane looks at no buffer.
    blind: AtomicBool,
    /// The threads that sleep until a submission of the lane is done.
    pub sleepers: Sleepers,
}

// SAFETY: `inner` is touched only through a `Claim`, which one thread at a time has; `observer` is written while `readable` is
// false and `readers` is 0, and read otherwise.
unsafe impl Sync for Lane {}
// SAFETY: its contents may be used and dropped by any thread.
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
        // ORDERING: sequentially consistent with the loads after it: see the head of the file.
        let free = number & 1 == 0
            && self.claims.compare_exchange(number, number + 1, Ordering::SeqCst, Ordering::Relaxed).is_ok();
        free.then(|| {
            Point::AfterClaim.reached();
            Claim { lane: self, number: number + 1 }
        })
    }

    /// Waits for the lane: for calls that may wait.
    pub fn claim_in_time(&self) -> Claim<'_> {
        let mut patience = Patience::new();
        loop {
            if let Some(claim) = self.claim() {
                return claim;
            }
            patience.pause();
        }
    }

    /// Returns when the thread that has the lane now has released it, or looks at no buffer.
    pub fn grace(&self) {
        let mut patience = Patience::new();
        let seen = self.claims.load(Ordering::SeqCst);
        // ORDERING: `blind` belongs to the claim that was seen, or that claim has ended.
        while seen & 1 == 1 && self.claims.load(Ordering::SeqCst) == seen && !self.blind.load(Ordering::SeqCst) {
            patience.pause();
        }
    }

    /// Declares that the thread that has the lane looks at no buffer until the result is dropped, which is before the claim is. Only
    /// that thread may call this. So a thread that removes a buffer does not wait for a long call: the call may wait for work that
    /// only ends when the removal stops its lane.
    pub fn blind(&self) -> Blind<'_> {
        self.blind.store(true, Ordering::SeqCst);
        Blind(&self.blind)
    }

    /// Lets threads poll this observer from now on.
    pub fn publish(&self, _claim: &Claim<'_>, observer: Observer) {
        debug_assert!(!self.readable.load(Ordering::SeqCst));
        // SAFETY: not readable, so no thread looks.
        unsafe { *self.observer.get() = Some(observer) };
        self.readable.store(true, Ordering::SeqCst);
    }

    /// When this returns, no thread polls any more.
    pub fn retract(&self) -> Option<Observer> {
        self.readable.store(false, Ordering::SeqCst);
        let mut patience = Patience::new();
        while self.readers.load(Ordering::SeqCst) > 0 {
            patience.pause();
        }
        // SAFETY: not readable, and the last reader has ended.
        unsafe { (*self.observer.get()).take() }
    }

    /// Looks at the observer; [`Error::Closed`] if there is none.
    #[inline]
    pub fn observe<T>(&self, look: impl FnOnce(&Observer) -> Result<T, Error>) -> Result<T, Error> {
        struct Reading<'l>(&'l AtomicUsize);
        impl Drop for Reading<'_> {
            fn drop(&mut self) {
                self.0.fetch_sub(1, Ordering::SeqCst);
            }
        }
        // ORDERING: announced before `readable` is read: `retract` sees the reader, or the reader sees `retract`'s store.
        self.readers.fetch_add(1, Ordering::SeqCst);
        let _reading = Reading(&self.readers);
        if !self.readable.load(Ordering::SeqCst) {
            return Err(Error::Closed);
        }
        // SAFETY: readable after this reader was announced: the observer stays until the reader has ended.
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
        // ORDERING: the next claim sees all changes of the lane.
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
        let blind = lane.blind();
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
