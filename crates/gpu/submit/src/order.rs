//! Order between copies or launches and a CUDA stream, in both directions: by a word that one of them writes and the other waits for.
//!
//! Each use takes a word of its own, in turn. A word is used again when what it was used for last has been written; until then the
//! use after [`WORDS`] others is [`Error::Full`].

use crate::buffers::Entry;
use crate::by_cpu::DONE;
use crate::copying::Piece;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, Copy};
use crate::in_order::Stream;
use crate::lane::Inner;
use crate::numbering::{has_launches, launches_of};
use crate::open::Setup;
use crate::promises::{Promise, Promises};
use crate::session::{Now, Session};
use crate::words::{Order, WORDS};
use gpu::{InlineMode, Prepared};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock, PoisonError};

impl Session {
    /// The words, which the first call allocates.
    pub(crate) fn order(&self, setup: &Setup, now: Now) -> Result<Arc<Order>, Error> {
        let mut order = setup.order.lock().unwrap_or_else(PoisonError::into_inner);
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
    pub(crate) fn has_room(&self, now: Now, pieces: &[Piece]) -> Result<(), Error> {
        // (One without pieces only waits, on a lane to the GPU.)
        let half = pieces.first().map_or(Ok(0), |piece| self.half(now, (piece.to, piece.from)))?;
        let (_, mut claim) = self.any_lane(half, now)?;
        let Some(Inner { copies: Some(copies), channel, .. }) = &mut *claim else { return Err(Error::Closed) };
        // Dropped before it is submitted, it never was.
        copies.begin(channel)?;
        Ok(())
    }

    /// What is put into the CUDA stream from now on waits for a copy or launch: the lane writes a word behind it, and a wait for that goes
    /// into the stream. A call of CUDA's, with its locks. A copy by stores or loads is done: nothing goes into the stream.
    ///
    /// If the lane dies before, the word is written all the same, within a tenth of a second, so that the stream goes on: without what it was to wait for, which
    /// the copy's ticket says.
    ///
    /// # Errors
    /// As [`Session::copy_in`]; [`Error::Busy`] while another thread submits on the lane.
    pub fn stream_wait(&self, Stream(stream): Stream, copy: Copy) -> Result<(), Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let (lane, _) = self.lane_of(now, copy)?;
        // That it is one.
        self.query(copy)?;
        if lane == DONE {
            return Ok(());
        }
        // A lane of launches waits for the copies beside it, in each chain.
        let lane = launches_of(lane.into()).unwrap_or(lane.into());
        let _context = setup.enter()?;
        let order = self.order(&setup, now)?;
        order.promises.start()?;
        let taken = order.take()?;
        let promise = |channel: &gpu::Channel| Promise { lane: channel.observer(), index: taken.0, value: taken.1 };
        let write = || -> Result<Promise, Error> {
            let mut claim = self.claim(lane, now)?;
            let Inner { copies, channel, word, .. } = claim.as_mut().ok_or(Error::Closed)?;
            if has_launches(lane) {
                let region = order.for_launches(channel.space())?;
                channel.write_word((region, 4 * taken.0 as u64), taken.1)?;
                return Ok(promise(channel));
            }
            let (buffer, at, value) = order.place(taken);
            // SAFETY: the claim outlives what is found.
            let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
            if let Some(copies) = copies {
                let mut written = copies.begin(channel)?;
                written.release((&entry.region, at), value)?;
                written.submit()?;
                return Ok(promise(channel));
            }
            // The graphics engine writes it inline, behind the barrier with which the copy has ended.
            if word.is_none() {
                *word = Some(Prepared::inline(channel, &entry.region, 4, InlineMode::Headers)?);
            }
            let word = word.as_mut().ok_or(Error::Closed)?;
            word.aim(entry.region.va() + at, None)?;
            word.submit_data(channel, &value.to_le_bytes())?;
            Ok(promise(channel))
        };
        match write() {
            Ok(promise) => order.promises.add(promise),
            Err(error) => {
                order.give_up(taken);
                return Err(error);
            }
        }
        // SAFETY: who made the handle says that it is a stream; the words go with the session, whose close waits for its lanes.
        Ok(unsafe { order.words.hold_until(stream, taken.0, taken.1) }?)
    }
}
