//! Rotating frames: the producer fills the next one while the copy of the previous one is pending.
//!
//! All frames share one prepared transfer, whose addresses move within the two buffers.

use crate::error::Error;
use crate::handle::{BUFFER, Buffer, Copy, RING, Ring};
use crate::in_order::InOrder;
use crate::lane::{Inner, Place};
use crate::prepared::Rotating;
use crate::session::{Now, Session};
use crate::transfers::{length, locate, name};
use gpu::{CopyMode, CopyRelease, Prepared};

/// Maximum number of rings of one lane.
const MOST: usize = 1024;
/// Maximum number of bytes of a frame.
const MAX_BYTES: u64 = 1 << 30;

/// A frame for the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Its index in the ring.
    pub index: usize,
    /// Its offset in the source buffer.
    pub offset: u64,
    /// Its address for the CPU; 0 in CUDA's GPU memory, which the CPU does not see.
    pub pointer: u64,
}

fn taken(ring: &Rotating) -> Result<(), Error> {
    if ring.taken { Ok(()) } else { Err(Error::Argument("take a frame of the ring first")) }
}

impl Session {
    /// A ring of `frames` frames of `bytes` each, one after the other in both buffers from the offsets on. It is on this thread's
    /// lane, and uses the copy engine.
    ///
    /// # Errors
    /// As [`Session::prepare`]; [`Error::Argument`] for fewer than two frames.
    pub fn ring(
        &self,
        (to, to_at): (Buffer, u64),
        (from, from_at): (Buffer, u64),
        bytes: u64,
        frames: usize,
    ) -> Result<Ring, Error> {
        if !(2..=1024).contains(&frames) {
            return Err(Error::Argument("a ring has 2 to 1,024 frames"));
        }
        let (setup, now) = (self.setup()?, self.now()?);
        let frame = length(bytes, MAX_BYTES)?;
        // No product overflows: 2^30 by 2^10.
        let all = bytes * frames as u64;
        let [to_place, from_place] = [BUFFER.decode(now.opening(), to.0)?, BUFFER.decode(now.opening(), from.0)?];
        let (lane, mut claim) = self.own_lane(&setup, self.half(now, (to, from))?, now)?;
        let Inner { rings, channel, .. } = claim.as_mut().ok_or(Error::Closed)?;
        // SAFETY: the claim outlives these entries.
        let (to, entry) = unsafe { (self.buffers.find(to_place)?, self.buffers.find(from_place)?) };
        let (to, from) = (to.region.part(to_at, all)?, entry.region.part(from_at, all)?);
        let (mode, release) = (CopyMode::Plain, CopyRelease::Word);
        let prepared = Prepared::copy(channel, &to, &from, frame, (mode, release))?;
        let pointer = entry.seen_at().map(|at| at.wrapping_add(from_at));
        let copies = vec![None; frames];
        let (to, from) = (to.va(), from.va());
        let ring = Rotating { prepared, to, from, from_at, pointer, bytes, copies, next: 0, taken: false };
        let (index, used) = Place::put(rings, MOST, ring)?;
        Ok(Ring(RING.encode(now.opening(), name(lane, index), used)))
    }

    /// The next frame, for the producer to fill. A second call before [`Session::ring_submit`] returns the same frame.
    ///
    /// # Errors
    /// [`Error::Overrun`] while its last copy is pending, [`Error::Busy`], [`Error::Handle`], [`Error::Closed`], and as
    /// [`Session::query`].
    pub fn ring_next(&self, ring: Ring) -> Result<Frame, Error> {
        self.with_ring(ring, |_, _, channel, ring| {
            // A frame that was never submitted has no copy whose poll would find this.
            if channel.space().device().forked() {
                return Err(Error::Forked);
            }
            if let Some(copy) = ring.copies[ring.next]
                && !self.poll(copy)?
            {
                return Err(Error::Overrun);
            }
            ring.taken = true;
            let at = ring.next as u64 * ring.bytes;
            Ok(Frame {
                index: ring.next,
                offset: ring.from_at + at,
                pointer: ring.pointer.map_or(0, |first| first.wrapping_add(at)),
            })
        })
    }

    /// Submits the copy of the frame that [`Session::ring_next`] returned, and moves to the next.
    ///
    /// # Errors
    /// [`Error::Argument`] without a frame, and as [`Session::submit`]; the frame stays the next then.
    pub fn ring_submit(&self, ring: Ring) -> Result<Copy, Error> {
        self.ring_submit_in(ring, &InOrder::default())
    }

    /// As [`Session::ring_submit`], in order.
    ///
    /// # Errors
    /// As [`Session::ring_submit`] and [`Session::copy_in`]; [`Error::Argument`] for words.
    pub fn ring_submit_in(&self, ring: Ring, order: &InOrder<'_>) -> Result<Copy, Error> {
        order.without_words("a frame waits for tickets, streams and events; words are for batches")?;
        let queued = self.queue(order, |_| self.with_ring(ring, |_, _, _, ring| taken(ring)))?;
        self.with_ring(ring, |now, lane, channel, ring| {
            taken(ring)?;
            self.put_waits(channel, now, lane, order, &queued)?;
            let at = ring.next as u64 * ring.bytes;
            let ticket = ring.prepared.submit_at(channel, ring.to + at, ring.from + at)?;
            let copy = self.submitted(now, lane, ticket);
            ring.copies[ring.next] = Some(copy);
            ring.next = if ring.next + 1 == ring.copies.len() { 0 } else { ring.next + 1 };
            ring.taken = false;
            Ok(copy)
        })
    }

    /// Ends a ring. Its pending copies still run.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn ring_release(&self, ring: Ring) -> Result<(), Error> {
        Session::same_process()?;
        let now = self.now()?;
        let (place, used) = RING.decode(now.opening(), ring.0)?;
        let (lane, index) = locate(place);
        let lane = self.lanes.get(lane).ok_or_else(|| RING.wrong())?;
        let mut claim = self.still(lane.claim_in_time(), now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        Place::take(&mut inner.rings, index, used).map(drop).ok_or_else(|| RING.wrong())
    }

    #[inline]
    fn with_ring<T>(
        &self,
        ring: Ring,
        look: impl FnOnce(Now, usize, &mut gpu::Channel, &mut Rotating) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let now = self.now()?;
        let (place, used) = RING.decode(now.opening(), ring.0)?;
        let (lane, index) = locate(place);
        if lane >= self.lanes.len() {
            return Err(RING.wrong());
        }
        let mut claim = self.claim(lane, now)?;
        let Inner { rings, channel, .. } = claim.as_mut().ok_or(Error::Closed)?;
        let ring = Place::find(rings, index, used).ok_or_else(|| RING.wrong())?;
        look(now, lane, channel, ring)
    }
}
