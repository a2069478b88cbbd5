//! Order between copies or launches and a CUDA stream, in both directions: one of them writes a word and the other waits for it.
//!
//! Each use takes its own word, in turn. A word is used again when the write of its last use has arrived; until then the use after
//! [`WORDS`] others is [`Error::Full`].

use crate::buffers::Entry;
use crate::by_cpu::DONE;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, Copy};
use crate::in_order::Stream;
use crate::lane::Inner;
use crate::numbering::{WIDE, has_launches, launches_of};
use crate::open::Setup;
use crate::promises::{Promise, Promises};
use crate::session::{Now, Session};
use crate::words::{Order, WORDS};
use gpu::{InlineMode, Prepared};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

impl Session {
    /// The words, which the first call allocates.
    pub(crate) fn order(&self, setup: &Setup, now: Now) -> Result<Arc<Order>, Error> {
        let mut order = poison::ignore(setup.order.lock());
        if let Some(order) = &*order {
            return Ok(order.clone());
        }
        let without = || Error::Unavailable("the session is without CUDA: it has no streams".into());
        let machine = setup.machine.as_ref().ok_or_else(without)?;
        let context = machine.context().map_err(|why| Error::Unavailable(why.reason))?;
        let words = Arc::new(cuda::Words::new(context, WORDS)?);
        let (pointer, bytes) = (words.address(), 4 * WORDS as u64);
        let entry = Entry::of_cuda(machine, pointer, bytes, false)?;
        let (place, used) = self.buffers.add(entry)?;
        let buffer = Buffer(BUFFER.encode(now.opening(), place, used));
        let promises = Promises::new(&words);
        let made = Arc::new(Order { promises, words, buffer, launches: OnceLock::new(), next: AtomicU64::new(0) });
        *order = Some(made.clone());
        Ok(made)
    }

    /// Whether a lane of a batch's direction has room for a submission now. Other threads may still take it.
    pub(crate) fn has_room(&self, now: Now, first: Option<(Buffer, Buffer)>) -> Result<(), Error> {
        // (One without pieces only waits, on a lane to the GPU.)
        let half = first.map_or(Ok(0), |buffers| self.half(now, buffers))?;
        let (_, mut claim) = self.any_lane(half, now)?;
        let Some(Inner { copies: Some(copies), channel, .. }) = &mut *claim else { return Err(Error::Closed) };
        // It is dropped before it is submitted, so it does not count.
        copies.begin(channel)?;
        Ok(())
    }

    /// Makes all later work of the CUDA stream wait for a copy or launch: the lane writes a word after it, and the stream gets a wait for
    /// that word. This is a CUDA call, with CUDA's locks. A copy by stores or loads is already done, so the stream gets no wait.
    ///
    /// If the lane dies first, the word is still written within a tenth of a second, so that the stream continues, although the copy has
    /// not ended. The copy's ticket returns the error.
    ///
    /// # Errors
    /// As [`Session::copy_in`]; [`Error::Busy`] while another thread submits on the lane.
    pub fn stream_wait(&self, Stream(stream): Stream, copy: Copy) -> Result<(), Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let (lane, _) = self.lane_of(now, copy)?;
        // Checks that it is a submission.
        self.query(copy)?;
        if lane == DONE {
            return Ok(());
        }
        // A launch lane waits for the copy lane next to it, in each chain.
        let lane = launches_of(lane.into()).unwrap_or(lane.into());
        let _context = setup.enter()?;
        let order = self.order(&setup, now)?;
        // Another list may have the lane by now, and wait.
        let is_over = || Ok::<_, Error>(lane == WIDE && self.query(copy)? == 0);
        if is_over()? {
            return Ok(());
        }
        order.promises.start()?;
        let taken = order.take()?;
        let promise = |channel: &gpu::Channel| Promise { lane: channel.observer(), index: taken.0, value: taken.1 };
        let write = || -> Result<Option<Promise>, Error> {
            let mut claim = self.claim(lane, now)?;
            if is_over()? {
                return Ok(None);
            }
            let Inner { copies, channel, word, .. } = claim.as_mut().ok_or(Error::Closed)?;
            if has_launches(lane) {
                let region = order.for_launches(channel.space())?;
                channel.write_word((region, 4 * taken.0 as u64), taken.1)?;
                return Ok(Some(promise(channel)));
            }
            let (buffer, at, value) = order.place(taken);
            // SAFETY: the claim outlives this entry.
            let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
            if let Some(copies) = copies {
                let mut written = copies.begin(channel)?;
                written.release((&entry.region, at), value)?;
                written.submit()?;
                return Ok(Some(promise(channel)));
            }
            // The graphics engine writes it inline, after the barrier that ended the copy.
            if word.is_none() {
                *word = Some(Prepared::inline(channel, &entry.region, 4, InlineMode::Headers)?);
            }
            let word = word.as_mut().ok_or(Error::Closed)?;
            word.aim(entry.region.va() + at, None)?;
            word.submit_data(channel, &value.to_le_bytes())?;
            Ok(Some(promise(channel)))
        };
        match write() {
            Ok(Some(promise)) => order.promises.add(promise),
            result => {
                order.give_up(taken);
                return result.map(|_| ());
            }
        }
        // SAFETY: the caller that made the handle guarantees that it is a stream; the words live as long as the session, whose close waits
        // for its lanes.
        Ok(unsafe { order.words.hold_until(stream, taken.0, taken.1) }?)
    }
}
