//! Waits for submissions: for one, for the first of several, for all of several.
//!
//! There is no `cancel`. The GPU reads ahead: the words of a submission may be inside the GPU before its waits have ended, GP_PUT cannot be taken back, and of
//! a channel's registers only its doorbell may be written. A program that changed words in memory could not find out which of them were read. So a submission
//! ends by itself or with its lane. Only the wait can be given up: by its limit, or, in a [`crate::Queue`], by [`crate::Queue::wake`] and
//! [`crate::Queue::remove`].

use crate::error::Error;
use crate::handle::{COPY, Copy};
use crate::lane::Lane;
use crate::session::Session;
use crate::sleepers::Sleepers;
use crate::wait::{Pace, Paused, Wait};
use std::sync::atomic::Ordering;
use std::time::Duration;

impl Session {
    /// Sets how waits of this session wait from now on, unless a call sets it. At first [`Wait::Spin`]; the value stays when the session is closed.
    pub fn set_wait(&self, how: Wait) {
        self.how.store(how.encode(), Ordering::Relaxed);
    }

    pub(crate) fn how(&self) -> Wait {
        Wait::decode(self.how.load(Ordering::Relaxed))
    }

    /// Waits until it is done, in the way that [`Session::set_wait`] has set.
    ///
    /// # Errors
    /// As [`Session::query`], and [`Error::Timeout`].
    pub fn wait(&self, copy: Copy, limit: Duration) -> Result<(), Error> {
        self.wait_by(self.how(), copy, limit)
    }

    /// As [`Session::wait`], in this way. A sleeping thread notices within 50 us that the session is closed or the lane has died, or at the end of a longer
    /// nap: see [`Wait`]. No lock, no allocation.
    ///
    /// # Errors
    /// As [`Session::wait`].
    pub fn wait_by(&self, how: Wait, copy: Copy, limit: Duration) -> Result<(), Error> {
        let other = Sleepers::new();
        let sleepers = self.lane(copy).map_or(&other, |lane| &lane.sleepers);
        let (_, number) = COPY.decode_number(self.now()?.opening(), copy.0)?;
        let mut pace = Pace::new(how, limit, sleepers, number);
        loop {
            let missing = self.query(copy).inspect_err(|_| sleepers.wake_all())?;
            if pace.has_slept() {
                sleepers.reached(number.saturating_sub(missing));
            }
            if missing == 0 {
                pace.done();
                return Ok(());
            }
            match pace.pause() {
                Paused::Again => {}
                Paused::Doubt => self.look(copy)?,
                Paused::Over => return Err(Error::Timeout(limit)),
            }
        }
    }

    /// Waits until one of these submissions is done, on any lanes. Returns its index; if several are done, the lowest. No allocation.
    ///
    /// # Errors
    /// As [`Session::wait`], if none is done and one can never be: [`Session::query`] shows which. [`Error::Argument`] for an empty list.
    pub fn wait_any(&self, copies: &[Copy], limit: Duration) -> Result<usize, Error> {
        if copies.is_empty() {
            return Err(Error::Argument("none to wait for: pass one submission at least"));
        }
        self.wait_for(copies, limit, |session| session.any(copies))
    }

    /// Waits until all of these submissions are done, on any lanes. No allocation.
    ///
    /// # Errors
    /// As [`Session::wait`], as soon as one of them can never be done, even while others are pending: [`Session::query`] shows which.
    pub fn wait_all(&self, copies: &[Copy], limit: Duration) -> Result<(), Error> {
        // (Without copies, no lane is checked.)
        Session::same_process()?;
        self.now()?;
        let mut first = 0;
        self.wait_for(copies, limit, |session| session.all(copies, &mut first))
    }

    fn any(&self, copies: &[Copy]) -> Result<Option<usize>, Error> {
        let mut wrong = None;
        for (at, copy) in copies.iter().enumerate() {
            match self.query(*copy) {
                Ok(0) => return Ok(Some(at)),
                Ok(_) => {}
                Err(error) => wrong = wrong.or(Some(error)),
            }
        }
        wrong.map_or(Ok(None), Err)
    }

    /// Those before `first` are done.
    fn all(&self, copies: &[Copy], first: &mut usize) -> Result<Option<()>, Error> {
        let mut done = true;
        for copy in &copies[*first..] {
            done &= self.query(*copy)? == 0;
            *first += usize::from(done);
        }
        Ok(done.then_some(()))
    }

    fn wait_for<T>(
        &self,
        copies: &[Copy],
        limit: Duration,
        mut found: impl FnMut(&Session) -> Result<Option<T>, Error>,
    ) -> Result<T, Error> {
        // There is no estimate of how long several lanes take together.
        let sleepers = Sleepers::new();
        let mut pace = Pace::new(self.how(), limit, &sleepers, 0);
        loop {
            if let Some(found) = found(self)? {
                return Ok(found);
            }
            match pace.pause() {
                Paused::Again => {}
                Paused::Doubt => self.look_at(copies.iter().copied())?,
                Paused::Over => return Err(Error::Timeout(limit)),
            }
        }
    }

    /// Checks the lanes of these submissions for errors, each lane once.
    pub(crate) fn look_at(&self, copies: impl Iterator<Item = Copy>) -> Result<(), Error> {
        let mut seen = [0u64; 4];
        for copy in copies {
            let Some(lane) = COPY.lane(copy.0) else { continue };
            let (word, bit) = (lane / 64 % 4, 1 << (lane % 64));
            if seen[word] & bit == 0 && self.query(copy).is_ok_and(|missing| missing > 0) {
                seen[word] |= bit;
                self.look(copy)?;
            }
        }
        Ok(())
    }

    fn lane(&self, copy: Copy) -> Option<&Lane> {
        self.lanes.get(COPY.lane(copy.0)?)
    }
}
