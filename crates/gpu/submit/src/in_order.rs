//! What a submission waits for on the GPU, and what it signals: tickets of other lanes, CUDA streams and events, and words.
//!
//! The waits are put into the channel before the submission. So all later submissions on the lane wait, too, even if the submission itself then returns
//! [`Error::Full`].

use crate::by_cpu::DONE;
use crate::copying::Piece;
use crate::error::Error;
use crate::graphs::{found, locate_graph};
use crate::handle::{BUFFER, Buffer, COPY, Copy, Graph, Transfer};
use crate::numbering::has_launches;
use crate::session::{Now, Session};
use crate::words::Order;
use gpu::Channel;
use std::ffi::c_void;
use std::sync::Arc;

/// A CUDA stream (`CUstream`, `cudaStream_t`).
#[derive(Clone, Copy, Debug)]
pub struct Stream(pub(crate) *mut c_void);

impl Stream {
    /// # Safety
    /// A stream of the session's GPU, or null for the default stream. It lives until the call that gets it has returned.
    pub const unsafe fn from_raw(stream: *mut c_void) -> Stream {
        Stream(stream)
    }
}

/// A CUDA event (`CUevent`, `cudaEvent_t`).
#[derive(Clone, Copy, Debug)]
pub struct Event(pub(crate) *mut c_void);

impl Event {
    /// # Safety
    /// An event of the session's GPU. It lives until the call that gets it has returned.
    pub const unsafe fn from_raw(event: *mut c_void) -> Event {
        Event(event)
    }
}

/// A word of 32 bits in a buffer, at a multiple of 4, and a value.
pub type Word = (Buffer, u64, u32);

/// The waits and signals of a submission. The default: none.
#[derive(Clone, Copy, Debug, Default)]
pub struct InOrder<'a> {
    /// Submissions of this session. There is no wait for one that is done. If the lane of one dies before it is done, this submission's lane is stopped:
    /// submissions that wait get [`Error::Stopped`] and never run.
    pub after: &'a [Copy],
    /// All work that the stream has queued now. This is a CUDA call, with CUDA's locks.
    pub stream: Option<Stream>,
    /// The work that the event recorded last. Two CUDA calls.
    pub event: Option<Event>,
    /// Until the word has reached the value, counting up and wrapping. Only for copies of pieces.
    pub word: Option<Word>,
    /// Written when all pieces are copied. Only for copies of pieces.
    pub signal: Option<Word>,
}

impl<'a> InOrder<'a> {
    /// After submissions of the same session.
    pub fn after(copies: &'a [Copy]) -> InOrder<'a> {
        InOrder { after: copies, ..InOrder::default() }
    }

    /// After all work that a CUDA stream has queued now.
    pub fn after_stream(stream: Stream) -> InOrder<'a> {
        InOrder { stream: Some(stream), ..InOrder::default() }
    }

    #[inline]
    pub(crate) fn is_free(&self) -> bool {
        self.after.is_empty()
            && self.stream.is_none()
            && self.event.is_none()
            && self.word.is_none()
            && self.signal.is_none()
    }

    /// [`Error::Argument`] with this reason if the order names words.
    #[inline]
    pub(crate) fn without_words(&self, why: &'static str) -> Result<(), Error> {
        if self.word.or(self.signal).is_some() { Err(Error::Argument(why)) } else { Ok(()) }
    }
}

/// Words that CUDA writes: one for the stream, one for the event.
#[derive(Default)]
pub(crate) struct Queued {
    order: Option<Arc<Order>>,
    words: [Option<(usize, u32)>; 2],
}

impl Session {
    /// As [`Session::copy_batch`], in order, by a copy engine. Without pieces it only waits, on a lane to the GPU, and signals.
    ///
    /// # Errors
    /// As [`Session::copy_batch`]. [`Error::Unavailable`] for a stream or event without CUDA, [`Error::Cuda`], [`Error::Full`] also while 1,024 orders of
    /// streams are pending. [`Error::Killed`] and [`Error::Stopped`] also for the lane of a submission that is waited for.
    #[inline]
    pub fn copy_in(&self, pieces: &[Piece], order: &InOrder<'_>) -> Result<Copy, Error> {
        let queued = self.queue(order, |now| self.has_room(now, pieces.first().map(|piece| (piece.to, piece.from))))?;
        self.copy_queued(pieces, order, &queued)
    }

    /// As [`Session::submit`], or with bytes [`Session::submit_bytes`], in order. A transfer that the CPU stores, loads or reads uses a copy engine here, on
    /// any free lane: the GPU cannot make the CPU wait.
    ///
    /// # Errors
    /// As [`Session::submit`] and [`Session::copy_in`]; [`Error::Argument`] for words.
    #[inline]
    pub fn submit_in(&self, transfer: Transfer, bytes: Option<&[u8]>, order: &InOrder<'_>) -> Result<Copy, Error> {
        if order.is_free() {
            return self.go(transfer, bytes, order, &Queued::default());
        }
        order.without_words("a transfer waits for tickets, streams and events; words are for batches")?;
        let queued = self.queue(order, |now| self.can_go(now, transfer))?;
        self.go(transfer, bytes, order, &queued)
    }

    /// As [`Session::launch`], in order. All later launches wait, too. Bytes that the CPU stores for a chain are stored immediately.
    ///
    /// # Errors
    /// As [`Session::launch`] and [`Session::copy_in`]; [`Error::Argument`] for words. If another thread took the room in between, the graph was not launched.
    #[inline]
    pub fn launch_in(&self, graph: Graph, order: &InOrder<'_>) -> Result<Copy, Error> {
        if order.is_free() {
            return self.launch(graph);
        }
        order.without_words("a launch waits for tickets, streams and events; words are for batches")?;
        let queued = self.queue(order, |now| {
            let at = locate_graph(now, graph)?;
            let mut claim = self.claim(at.lane, now)?;
            let (launching, channel) = found(&mut claim, at)?;
            self.has_room_for((now, at.lane), &mut launching.form, channel)
        })?;
        let now = self.now()?;
        let at = locate_graph(now, graph)?;
        let mut claim = self.claim(at.lane, now)?;
        let (launching, channel) = found(&mut claim, at)?;
        self.start_behind((now, at.lane), &mut launching.form, channel, |channel| {
            self.put_waits(channel, now, at.lane, order, &queued)
        })
    }

    /// Queues the writes of words in the stream and after the event. `room` first checks whether there is room for the submission now; other threads may still
    /// take it.
    #[inline]
    pub(crate) fn queue(
        &self,
        order: &InOrder<'_>,
        room: impl FnOnce(Now) -> Result<(), Error>,
    ) -> Result<Queued, Error> {
        if order.stream.is_none() && order.event.is_none() {
            return Ok(Queued::default());
        }
        self.queue_words(order, room)
    }

    #[cold]
    fn queue_words(&self, wanted: &InOrder<'_>, room: impl FnOnce(Now) -> Result<(), Error>) -> Result<Queued, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        room(now)?;
        let _context = setup.enter()?;
        let order = self.order(&setup, now)?;
        // The stream first: a lane must never wait for a word whose write is not queued.
        let word = |write: &dyn Fn(usize, u32) -> cuda::Result<()>| -> Result<(usize, u32), Error> {
            let taken = order.take()?;
            write(taken.0, taken.1).inspect_err(|_| order.give_up(taken))?;
            Ok(taken)
        };
        // SAFETY: the caller that made the handles guarantees that they are valid; the words live as long as the session, whose close waits for its lanes.
        let after_stream =
            |Stream(stream): Stream| word(&|index, value| unsafe { order.words.write_after(stream, index, value) });
        // SAFETY: as above.
        let after_event =
            |Event(event): Event| word(&|index, value| unsafe { order.words.write_after_event(event, index, value) });
        // An idle stream needs no wait. (For the default stream a query looks at all blocking streams, as seen with driver 580.)
        // SAFETY: as above.
        let stream = wanted.stream.filter(|stream| !unsafe { order.words.is_idle(stream.0) });
        let words = [stream.map(after_stream).transpose()?, wanted.event.map(after_event).transpose()?];
        Ok(Queued { order: Some(order.clone()), words })
    }

    /// Makes all later work of the channel wait as `order` requires, except for its word. The caller has the lane.
    #[inline]
    pub(crate) fn put_waits(
        &self,
        channel: &mut Channel,
        now: Now,
        lane: usize,
        order: &InOrder<'_>,
        queued: &Queued,
    ) -> Result<(), Error> {
        for copy in order.after {
            self.wait_behind(channel, now, *copy)?;
        }
        let Some(words) = &queued.order else { return Ok(()) };
        for taken in queued.words.iter().flatten() {
            if has_launches(lane) {
                let region = words.for_launches(channel.space())?;
                channel.wait_for_word((region, 4 * taken.0 as u64), taken.1)?;
            } else {
                let (buffer, at, value) = words.place(*taken);
                // SAFETY: the caller's claim outlives this entry.
                let entry = unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) }?;
                channel.wait_for_word((&entry.region, at), value)?;
            }
        }
        Ok(())
    }

    /// Makes all later work of the channel wait for a submission. No lock, no allocation, no system call, no doorbell.
    #[inline]
    fn wait_behind(&self, channel: &mut Channel, now: Now, copy: Copy) -> Result<(), Error> {
        let (lane, number) = self.lane_of(now, copy)?;
        if lane == DONE {
            return Ok(());
        }
        let lane = self.lanes.get(usize::from(lane)).ok_or_else(|| COPY.wrong())?;
        lane.observe(|observer| {
            let ticket = observer.ticket(number).ok_or_else(|| COPY.wrong())?;
            Ok(channel.wait_for_other(observer, ticket)?)
        })
    }
}
