//! Copies that are written when they are submitted, and their progress.

use crate::by_cpu::DONE;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, COPY, Copy};
use crate::in_order::{InOrder, Queued};
use crate::lane::Inner;
use crate::numbering::launches_of;
use crate::open::LANES;
use crate::scattered::List;
use crate::session::{Now, Session};
use gpu::Patience;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// One piece of a batch.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Piece {
    pub to: Buffer,
    pub to_at: u64,
    pub from: Buffer,
    pub from_at: u64,
    pub bytes: u64,
}

/// Failed polls of a lane between two checks for a missed doorbell.
const LOOK: u32 = 4096;

impl Session {
    /// Copies `bytes` from one buffer to another, on this thread's lane or, if another thread is submitting there, on any free lane.
    /// Sizes for which the profile names them are copied by the CPU's own stores and loads ([`Session::explain`]). Copies may end in
    /// any order: if the order matters, wait for the earlier copy first.
    ///
    /// # Errors
    /// [`Error::Busy`] and [`Error::Full`]: try again. [`Error::Handle`], [`Error::Freed`], [`Error::Outside`], [`Error::Closed`],
    /// [`Error::Forked`], [`Error::Killed`], [`Error::Stopped`]. The copy was not submitted.
    #[inline]
    pub fn copy_async(
        &self,
        (to, to_at): (Buffer, u64),
        (from, from_at): (Buffer, u64),
        bytes: u64,
    ) -> Result<Copy, Error> {
        self.copy_batch(&[Piece { to, to_at, from, from_at, bytes }])
    }

    /// Copies many pieces with one ticket. They may overtake one another, so no piece may need another's result. More than 256 are
    /// submitted in parts. If there is no room for one, the call waits until the GPU has copied earlier ones.
    ///
    /// # Errors
    /// As [`Session::copy_async`]. [`Error::Limit`] for more than 4,096 pieces that wait for a word. If memory is freed, the session closed or the lane dies
    /// meanwhile, the first parts may have been copied. They have ended then.
    #[inline]
    pub fn copy_batch(&self, pieces: &[Piece]) -> Result<Copy, Error> {
        self.copy_queued(pieces, &InOrder::default(), &Queued::default())
    }

    /// As [`Session::copy_in`], after the writes of words were queued in streams.
    #[inline]
    pub(crate) fn copy_queued(&self, pieces: &[Piece], order: &InOrder<'_>, queued: &Queued) -> Result<Copy, Error> {
        self.copy_list(&List::Pieces(pieces), order, queued)
    }

    #[inline]
    pub(crate) fn copy_list(&self, list: &List<'_>, order: &InOrder<'_>, queued: &Queued) -> Result<Copy, Error> {
        let now = self.now()?;
        let (at, mut claim) = match (list.first(), order.word.or(order.signal)) {
            (Some(buffers), _) => self.lane_for(now, buffers, (list.count()?, !order.is_free()))?,
            (None, Some((word, ..))) => self.any_lane(self.half(now, (word, word))?, now)?,
            (None, None) if !order.is_free() => self.any_lane(0, now)?,
            (None, None) => return Err(Error::Argument("an empty batch: pass one piece at least")),
        };
        // A copy without order may be made without an engine.
        if let (List::Pieces([piece]), true, Some(inner)) = (list, order.is_free(), &mut *claim)
            && let Some(done) =
                self.by_cpu_if_chosen(now, inner, (piece.to, piece.to_at), (piece.from, piece.from_at), piece.bytes)?
        {
            return Ok(done);
        }
        let Some(Inner { copies: Some(copies), channel, .. }) = &mut *claim else { return Err(Error::Closed) };
        // SAFETY: the claim outlives these entries.
        let find = |buffer: Buffer| unsafe { self.buffers.find(BUFFER.decode(now.opening(), buffer.0)?) };
        let waits = self.put_waits(channel, now, at, order, queued);
        match waits.and_then(|()| self.submit_list((copies, channel), (now, at), list, order, find)) {
            Ok(ticket) => Ok(self.submitted(now, at, ticket)),
            Err(error) => {
                if !order.is_free() {
                    // What the lane now waits for is seen by those that look for an idle one.
                    let _ = channel.release();
                }
                Err(error)
            }
        }
    }

    pub(crate) fn submitted(&self, now: Now, lane: usize, ticket: gpu::Ticket) -> Copy {
        let before = self.lanes[lane].before.load(Ordering::Relaxed);
        Copy(COPY.encode_number(now.opening(), lane as u8, before + ticket.number()))
    }

    /// Lane and number of a submission of this opening; [`DONE`] for a copy that the CPU has made.
    #[inline]
    pub(crate) fn lane_of(&self, now: Now, copy: Copy) -> Result<(u8, u64), Error> {
        let (lane, number) = COPY.decode_number(now.opening(), copy.0)?;
        let number = match self.lanes.get(usize::from(lane)) {
            // The 8 bits of the opening repeat. Numbers of submissions do not.
            Some(of) => number.checked_sub(of.before.load(Ordering::Relaxed)).filter(|number| *number > 0),
            None => (lane == DONE && number == now.whole_opening()).then_some(0),
        };
        Ok((lane, number.ok_or_else(|| COPY.wrong())?))
    }

    /// Whether a copy is from host memory into video memory.
    #[inline]
    pub(crate) fn is_to_video(&self, now: Now, (to, from): (Buffer, Buffer)) -> bool {
        let place =
            |buffer: Buffer| BUFFER.decode(now.opening(), buffer.0).map(|(place, _)| self.buffers.is_video(place));
        matches!((place(to), place(from)), (Ok(true), Ok(false)))
    }

    /// The lanes that serve a direction.
    #[inline]
    pub(crate) fn half(&self, now: Now, (to, from): (Buffer, Buffer)) -> Result<usize, Error> {
        let [(to, _), (from, _)] = [BUFFER.decode(now.opening(), to.0)?, BUFFER.decode(now.opening(), from.0)?];
        Ok(match (self.buffers.is_video(to), self.buffers.is_video(from)) {
            (false, true) => LANES,
            (true, true) => now.between(),
            _ => 0,
        })
    }

    /// As [`Session::copy_async`], and waits until the copy is done. It also waits for a lane and for room on it.
    ///
    /// # Errors
    /// As [`Session::copy_async`] and [`Session::wait`]. After [`Error::Timeout`] the copy may still be pending, or not submitted.
    pub fn copy(&self, to: (Buffer, u64), from: (Buffer, u64), bytes: u64, limit: Duration) -> Result<(), Error> {
        let start = Instant::now();
        let mut patience = Patience::new();
        let copy = loop {
            match self.copy_async(to, from, bytes) {
                Err(Error::Busy | Error::Full(_)) if start.elapsed() < limit => patience.pause(),
                Err(Error::Busy | Error::Full(_)) => return Err(Error::Timeout(limit)),
                other => break other?,
            }
        };
        self.wait(copy, limit.saturating_sub(start.elapsed()))
    }

    /// Number of pending submissions of the copy's lane, up to this one: 0 when it is done.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`], [`Error::Killed`], [`Error::Stopped`].
    #[inline]
    pub fn query(&self, copy: Copy) -> Result<u64, Error> {
        let (lane, number) = self.lane_of(self.now()?, copy)?;
        if lane == DONE {
            // It has no lane, so any lane can show whether this is a fork's child.
            return self.lanes[0].observe(|observer| if observer.forked() { Err(Error::Forked) } else { Ok(0) });
        }
        let (launches, lane) = (launches_of(usize::from(lane)), self.lanes.get(usize::from(lane)));
        let lane = lane.ok_or_else(|| COPY.wrong())?;
        let missing = lane.observe(|observer| {
            if observer.forked() {
                return Err(Error::Forked);
            }
            let ticket = observer.ticket(number).ok_or_else(|| COPY.wrong())?;
            match observer.missing(ticket) {
                // A launch is not over until its results are moved.
                0 => Ok(u64::from(lane.owes.load(Ordering::Acquire) && !Session::bring(lane))),
                _ if observer.is_stopped() => Err(Error::Stopped),
                missing => observer.error().map_or(Ok(missing), |code| Err(Error::Killed(code))),
            }
        })?;
        if missing > 0
            && let Some(launches) = launches
        {
            // The copies of a chain wait for its launch.
            self.lanes[launches].observe(|launches| match launches.error() {
                _ if launches.is_stopped() => Err(Error::Stopped),
                Some(code) => Err(Error::Killed(code)),
                None => Ok(()),
            })?;
        }
        Ok(missing)
    }

    /// Whether it is done: its results are then visible to the CPU and to every GPU.
    ///
    /// # Errors
    /// As [`Session::query`].
    #[inline]
    pub fn poll(&self, copy: Copy) -> Result<bool, Error> {
        let done = self.query(copy)? == 0;
        if !done && self.vain(copy) {
            self.look(copy)?;
        }
        Ok(done)
    }

    /// Counts a failed poll; true every [`LOOK`] polls of a lane.
    #[inline]
    fn vain(&self, copy: Copy) -> bool {
        let lane = COPY.lane(copy.0).and_then(|lane| self.lanes.get(lane));
        // If two threads count at the same time, one count is lost: the exact time of the check does not matter.
        lane.is_some_and(|lane| {
            let polls = lane.vain.load(Ordering::Relaxed).wrapping_add(1);
            lane.vain.store(polls, Ordering::Relaxed);
            polls.is_multiple_of(LOOK)
        })
    }

    /// Has its channels check for a missed doorbell, if no other thread has their lanes. If they wait for a dead lane, they end, and so do the lanes between.
    pub(crate) fn look(&self, copy: Copy) -> Result<(), Error> {
        let now = self.now()?;
        let lane = usize::from(self.lane_of(now, copy)?.0);
        // The copies of a chain wait for its launch, whose doorbell may be the one that was missed.
        for lane in [Some(lane), launches_of(lane)].into_iter().flatten() {
            if let Ok(claim) = self.claim(lane, now)
                && let Some(inner) = &*claim
            {
                inner.channel.check_doorbell();
            }
            // (Or the lane has gone: the next query returns that.)
            let _ = self.lanes[lane].observe(|observer| Ok(observer.dies_with_others()));
        }
        Ok(())
    }
}
