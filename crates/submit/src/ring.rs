//! Rotating frames: the producer fills the next while the copy of the one before is under way.

use crate::copying::Copy;
use crate::error::Error;
use crate::handle::{Buffer, RING, Ring, Transfer};
use crate::lane::Place;
use crate::session::Session;
use crate::transfers::{locate, name};

/// Rings of one lane.
const MOST: usize = 1024;

pub(crate) struct Rotating {
    transfers: Vec<Transfer>,
    /// The last copy of each frame.
    copies: Vec<Option<Copy>>,
    next: usize,
    /// The producer has it.
    taken: bool,
    from_at: u64,
    /// Address of the first frame.
    pointer: u64,
    bytes: u64,
}

/// A frame for the producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Which of the ring's.
    pub index: usize,
    /// Where it is in the source buffer.
    pub offset: u64,
    /// Its address.
    pub pointer: u64,
}

impl Session {
    /// A ring of `frames` frames of `bytes` each, one behind the other in both buffers from the offsets on.
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
        self.same_process()?;
        if !(2..=1024).contains(&frames) {
            return Err(Error::Argument("a ring has 2 to 1,024 frames"));
        }
        let now = self.now()?;
        let pointer = self.place(from)?.0.wrapping_add(from_at);
        let mut transfers = Vec::with_capacity(frames);
        let outside = Error::Argument("the frames go past the end of all addresses");
        if bytes.checked_mul(frames as u64).is_none_or(|all| to_at.max(from_at).checked_add(all).is_none()) {
            return Err(outside);
        }
        let made = (0..frames as u64).try_for_each(|frame| {
            let at = frame * bytes;
            transfers.push(self.prepare((to, to_at + at), (from, from_at + at), bytes)?);
            Ok(())
        });
        let put = made.and_then(|()| {
            let (lane, mut claim) = self.own_lane(self.half(now, (to, from))?, now)?;
            let inner = claim.as_mut().ok_or(Error::Closed)?;
            let copies = vec![None; frames];
            let transfers = transfers.clone();
            let rotating = Rotating { transfers, copies, next: 0, taken: false, from_at, pointer, bytes };
            let (index, used) = Place::put(&mut inner.rings, MOST, rotating)?;
            Ok(Ring(RING.encode(now.opening(), name(lane, index), used)))
        });
        if put.is_err() {
            transfers.into_iter().for_each(|transfer| drop(self.release(transfer)));
        }
        put
    }

    /// The next frame, for the producer to fill. Asked again before [`Session::ring_submit`] it is the same one.
    ///
    /// # Errors
    /// [`Error::Overrun`] while its last copy is under way, [`Error::Busy`], [`Error::Handle`], [`Error::Closed`], and as
    /// [`Session::query`].
    pub fn ring_next(&self, ring: Ring) -> Result<Frame, Error> {
        let (frame, last) = self.with_ring(ring, |ring| {
            let (index, at) = (ring.next, ring.next as u64 * ring.bytes);
            (Frame { index, offset: ring.from_at + at, pointer: ring.pointer + at }, ring.copies[index])
        })?;
        if let Some(copy) = last
            && !self.poll(copy)?
        {
            return Err(Error::Overrun);
        }
        self.with_ring(ring, |ring| ring.taken = true)?;
        Ok(frame)
    }

    /// Submits the copy of the frame that [`Session::ring_next`] gave, and goes on to the next.
    ///
    /// # Errors
    /// [`Error::Argument`] without a frame, [`Error::Overrun`], and as [`Session::submit`]; the frame stays the next then.
    pub fn ring_submit(&self, ring: Ring) -> Result<Copy, Error> {
        let (at, transfer) = self.with_ring(ring, |ring| (ring.next, ring.taken.then(|| ring.transfers[ring.next])))?;
        let transfer = transfer.ok_or(Error::Argument("take a frame of the ring first"))?;
        let copy = self.submit(transfer)?;
        self.with_ring(ring, |ring| {
            ring.copies[at] = Some(copy);
            ring.next = (at + 1) % ring.transfers.len();
            ring.taken = false;
        })?;
        Ok(copy)
    }

    /// Ends a ring. What of it is under way goes on.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn ring_release(&self, ring: Ring) -> Result<(), Error> {
        self.same_process()?;
        let now = self.now()?;
        let (place, used) = RING.decode(now.opening(), ring.0)?;
        let (lane, index) = locate(place);
        let lane = self.lanes.get(lane).ok_or_else(|| RING.wrong())?;
        let rotating = {
            let mut claim = self.still(lane.claim_in_time(), now)?;
            let inner = claim.as_mut().ok_or(Error::Closed)?;
            Place::take(&mut inner.rings, index, used).ok_or_else(|| RING.wrong())?
        };
        rotating.transfers.into_iter().try_for_each(|transfer| self.release(transfer))
    }

    fn with_ring<T>(&self, ring: Ring, look: impl FnOnce(&mut Rotating) -> T) -> Result<T, Error> {
        let now = self.now()?;
        let (place, used) = RING.decode(now.opening(), ring.0)?;
        let (lane, index) = locate(place);
        if lane >= self.lanes.len() {
            return Err(RING.wrong());
        }
        let mut claim = self.claim(lane, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        Place::find(&mut inner.rings, index, used).map(look).ok_or_else(|| RING.wrong())
    }
}
