//! Prepared copies: validated once, submitted often.

use crate::choose::{Direction, Executor};
use crate::copying::Piece;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, Copy, TRANSFER, Transfer};
use crate::in_order::{InOrder, Queued};
use crate::lane::Place;
use crate::numbering::INLINE;
use crate::prepared::{ByCpu, Ends, Ready};
use crate::session::{Now, Session};
use gpu::{CopyMode, CopyRelease, InlineMode, Prepared};
use rm::graph;

/// Maximum number of transfers of one lane.
const MOST: usize = 4096;
/// Bits of a handle's place that number the transfer; the lane is in the bits above.
const INDEX: u32 = 12;
/// Maximum number of bytes of one transfer.
const MAX_BYTES: u64 = 1 << 30;
/// Maximum number of bytes of an inline transfer.
pub(crate) const MAX_INLINE: u64 = 64 << 10;

pub(crate) fn locate(place: u32) -> (usize, u32) {
    ((place >> INDEX) as usize, place & ((1 << INDEX) - 1))
}

pub(crate) fn name(lane: usize, index: u32) -> u32 {
    (lane as u32) << INDEX | index
}

impl Session {
    /// Prepares a copy on this thread's lane, with the executor that the profile names ([`Session::explain`]). Any thread may submit it, and
    /// then takes that lane. The call waits for the lane, allocates, and gets memory from the kernel driver.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Freed`], [`Error::Outside`], [`Error::Limit`], [`Error::Argument`] for 0 bytes or more than 1 GiB,
    /// [`Error::Closed`], [`Error::Forked`].
    pub fn prepare(
        &self,
        (to, to_at): (Buffer, u64),
        (from, from_at): (Buffer, u64),
        bytes: u64,
    ) -> Result<Transfer, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let bytes = length(bytes, MAX_BYTES)?;
        let [to_place, from_place] = [BUFFER.decode(now.opening(), to.0)?, BUFFER.decode(now.opening(), from.0)?];
        let direction = self.direction(to_place.0, from_place.0);
        let executor = setup.ways.choose(direction, bytes.into());
        // The CPU must be able to read the bytes, and they must fit into slots.
        let inline = executor == Executor::Inline && direction == Direction::ToGpu && u64::from(bytes) <= MAX_INLINE;
        let half = if inline { INLINE } else { self.half(now, (to, from))? };
        let (lane, mut claim) = self.own_lane(&setup, half, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        // SAFETY: the claim outlives these entries.
        let find = |place| unsafe { self.buffers.find(place) };
        let (to_entry, entry) = (find(to_place)?, find(from_place)?);
        let to = to_entry.region.part(to_at, bytes.into())?;
        let source = entry.region.part(from_at, bytes.into())?;
        let ends = Ends { to: to_place, to_at, from: from_place, from_at, bytes: bytes.into() };
        let ready = if executor.is_cpu() && Session::mapped(executor, to_entry, entry).is_ok() {
            Ready::ByCpu(ByCpu { executor, ends })
        } else if inline && entry.place == graph::Place::Host {
            let prepared = Prepared::inline(&mut inner.channel, &to, bytes, InlineMode::Headers)?;
            Ready::Read { prepared, source, ends }
        } else {
            let (mode, release) = (CopyMode::Plain, CopyRelease::Word);
            Ready::Copy(Prepared::copy(&mut inner.channel, &to, &source, bytes, (mode, release))?)
        };
        let (index, used) = Place::put(&mut inner.transfers, MOST, ready)?;
        Ok(Transfer(TRANSFER.encode(now.opening(), name(lane, index), used)))
    }

    /// Prepares a copy of up to 64 KiB whose bytes are passed at each submission ([`Session::submit_bytes`]). The bytes are part of the command
    /// stream, by the graphics engine, and need no buffer. All such transfers share one lane.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_bytes(&self, (to, to_at): (Buffer, u64), bytes: u64) -> Result<Transfer, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let bytes = length(bytes, MAX_INLINE)?;
        let place = BUFFER.decode(now.opening(), to.0)?;
        let (lane, mut claim) = self.own_lane(&setup, INLINE, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        // SAFETY: the claim outlives this entry.
        let to = unsafe { self.buffers.find(place) }?.region.part(to_at, bytes.into())?;
        let prepared = Prepared::inline(&mut inner.channel, &to, bytes, InlineMode::Headers)?;
        let (index, used) = Place::put(&mut inner.transfers, MOST, Ready::Given(prepared))?;
        Ok(Transfer(TRANSFER.encode(now.opening(), name(lane, index), used)))
    }

    /// Submits a prepared transfer. No lock, no allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread submits on the transfer's lane, and [`Error::Full`] while 32 submissions of it are pending; after
    /// both try again. [`Error::Freed`], [`Error::Handle`], [`Error::Closed`], [`Error::Forked`], [`Error::Killed`], [`Error::Stopped`], and
    /// [`Error::Argument`] for a transfer that needs bytes. The transfer was not submitted.
    #[inline]
    pub fn submit(&self, transfer: Transfer) -> Result<Copy, Error> {
        self.go(transfer, None, &InOrder::default(), &Queued::default())
    }

    /// As [`Session::submit`], with new bytes for a transfer that [`Session::prepare_bytes`] has prepared.
    ///
    /// # Errors
    /// As [`Session::submit`]; [`Error::Argument`] for another number of bytes than was prepared.
    #[inline]
    pub fn submit_bytes(&self, transfer: Transfer, bytes: &[u8]) -> Result<Copy, Error> {
        self.go(transfer, Some(bytes), &InOrder::default(), &Queued::default())
    }

    #[inline]
    pub(crate) fn go(
        &self,
        transfer: Transfer,
        bytes: Option<&[u8]>,
        order: &InOrder<'_>,
        queued: &Queued,
    ) -> Result<Copy, Error> {
        let now = self.now()?;
        let (lane, index, used) = Session::locate_transfer(now, transfer)?;
        let mut claim = self.claim(lane, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        let ready = Place::find(&mut inner.transfers, index, used).ok_or_else(|| TRANSFER.wrong())?;
        if !order.is_free() {
            if let Ready::ByCpu(ByCpu { ends, .. }) | Ready::Read { ends, .. } = ready {
                // The CPU would read the source now, before the work that the copy must wait for.
                let piece = ends.piece(now);
                drop(claim);
                return self.copy_queued(&[piece], order, queued).map_err(gone);
            }
            self.put_waits(&mut inner.channel, now, lane, order, queued)?;
        }
        let ticket = match (ready, bytes) {
            (Ready::ByCpu(copy), None) => {
                let copy = *copy;
                return match self.by_cpu(now, inner, copy) {
                    Ok(Some(copy)) => Ok(copy),
                    Ok(None) => Err(Error::Freed),
                    Err(error) => Err(gone(error)),
                };
            }
            (Ready::Copy(prepared), None) => prepared.submit(&mut inner.channel)?,
            (Ready::Read { prepared, source, .. }, None) => {
                // Before the ticket is taken, as for an engine's copies.
                source.ask_where_wanted()?;
                // SAFETY: host memory, which is mapped for the CPU at the GPU's address.
                unsafe { prepared.submit_from(&mut inner.channel, source) }?
            }
            (Ready::Given(prepared), Some(bytes)) if bytes.len() as u64 == prepared.bytes() => {
                prepared.submit_data(&mut inner.channel, bytes)?
            }
            (Ready::Given(_), Some(_)) => {
                return Err(Error::Argument("another number of bytes than the transfer was prepared for"));
            }
            (Ready::Given(_), None) => {
                return Err(Error::Argument("the transfer takes its bytes at each submission: pass them"));
            }
            (_, Some(_)) => return Err(Error::Argument("the transfer has a source: it takes no bytes")),
        };
        Ok(self.submitted(now, lane, ticket))
    }

    /// Whether the transfer exists and its lane is free now.
    pub(crate) fn can_go(&self, now: Now, transfer: Transfer) -> Result<(), Error> {
        let (lane, index, used) = Session::locate_transfer(now, transfer)?;
        let claim = self.claim(lane, now)?;
        let inner = claim.as_ref().ok_or(Error::Closed)?;
        Place::look(&inner.transfers, index, used).map(|_| ()).ok_or_else(|| TRANSFER.wrong())
    }

    /// Lane, place there, and how often that was used.
    #[inline]
    fn locate_transfer(now: Now, transfer: Transfer) -> Result<(usize, u32, u32), Error> {
        let (place, used) = TRANSFER.decode(now.opening(), transfer.0)?;
        let (lane, index) = locate(place);
        if lane > INLINE { Err(TRANSFER.wrong()) } else { Ok((lane, index, used)) }
    }

    /// Ends a transfer. Its pending submissions still run.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn release(&self, transfer: Transfer) -> Result<(), Error> {
        Session::same_process()?;
        let now = self.now()?;
        let (lane, index, used) = Self::locate_transfer(now, transfer)?;
        let lane = self.lanes.get(lane).ok_or_else(|| TRANSFER.wrong())?;
        let mut claim = self.still(lane.claim_in_time(), now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        Place::take(&mut inner.transfers, index, used).map(drop).ok_or_else(|| TRANSFER.wrong())
    }
}

/// The transfer exists, but one of its buffers has ended.
fn gone(error: Error) -> Error {
    if matches!(error, Error::Handle(_)) { Error::Freed } else { error }
}

impl Ends {
    fn piece(&self, now: Now) -> Piece {
        let buffer = |(place, used)| Buffer(BUFFER.encode(now.opening(), place, used));
        let Ends { to, to_at, from, from_at, bytes } = *self;
        Piece { to: buffer(to), to_at, from: buffer(from), from_at, bytes }
    }
}

pub(crate) fn length(bytes: u64, most: u64) -> Result<u32, Error> {
    match u32::try_from(bytes) {
        Ok(0) => Err(Error::Argument("no bytes: pass how many are to be copied")),
        Ok(length) if bytes <= most => Ok(length),
        _ if most == MAX_INLINE => Err(Error::Argument("at most 64 KiB travel in the command stream")),
        _ => Err(Error::Argument("a prepared copy, or a frame, has 1 GiB at most")),
    }
}
