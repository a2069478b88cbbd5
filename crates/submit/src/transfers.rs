//! Copies that are ready to go: validated once, submitted often.

use crate::choose::{Direction, Executor};
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, Copy, TRANSFER, Transfer};
use crate::lane::Place;
use crate::prepared::{ByCpu, Ready};
use crate::session::{INLINE, Session};
use gpu::{CopyMode, CopyRelease, InlineMode, Prepared};
use rm::graph;

/// Transfers of one lane.
const MOST: usize = 4096;
/// Bits of a handle's place that number the transfer; the lane is above.
const INDEX: u32 = 12;
/// Most bytes of one transfer.
const MAX_BYTES: u64 = 1 << 30;
/// Most bytes that travel in the command stream.
pub(crate) const MAX_INLINE: u64 = 64 << 10;

pub(crate) fn locate(place: u32) -> (usize, u32) {
    ((place >> INDEX) as usize, place & ((1 << INDEX) - 1))
}

pub(crate) fn name(lane: usize, index: u32) -> u32 {
    (lane as u32) << INDEX | index
}

impl Session {
    /// Makes a copy ready on this thread's lane, by the executor that the profile names ([`Session::explain`]). Threads may hand it on: whoever
    /// submits it takes that lane. The call waits for the lane, allocates, and asks the kernel driver for memory.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Freed`], [`Error::Outside`], [`Error::Limit`], [`Error::Argument`] for no bytes or more than
    /// 1 GiB, [`Error::Closed`], [`Error::Forked`].
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
        // The CPU has to be able to read it, and it has to fit into slots.
        let inline = executor == Executor::Inline && direction == Direction::ToGpu && u64::from(bytes) <= MAX_INLINE;
        let half = if inline { INLINE } else { self.half(now, (to, from))? };
        let (lane, mut claim) = self.own_lane(&setup, half, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        // SAFETY: the claim outlives what is found.
        let find = |place| unsafe { self.buffers.find(place) };
        let (to_entry, entry) = (find(to_place)?, find(from_place)?);
        let to = to_entry.region.part(to_at, bytes.into())?;
        let source = entry.region.part(from_at, bytes.into())?;
        let ready = if executor.is_cpu() && Session::mapped(executor, to_entry, entry).is_ok() {
            let bytes = bytes.into();
            Ready::ByCpu(ByCpu { executor, to: to_place, to_at, from: from_place, from_at, bytes })
        } else if inline && entry.place == graph::Place::Host {
            let prepared = Prepared::inline(&mut inner.channel, &to, bytes, InlineMode::Headers)?;
            Ready::Read { prepared, source, buffer: from_place }
        } else {
            let (mode, release) = (CopyMode::Plain, CopyRelease::Word);
            Ready::Copy(Prepared::copy_with(&mut inner.channel, &to, &source, bytes, mode, release)?)
        };
        let (index, used) = Place::put(&mut inner.transfers, MOST, ready)?;
        Ok(Transfer(TRANSFER.encode(now.opening(), name(lane, index), used)))
    }

    /// Makes a copy of up to 64 KiB ready whose bytes are given at each submission ([`Session::submit_bytes`]): they travel in the
    /// command stream, by the graphics engine, and need no buffer. All of these share one lane.
    ///
    /// # Errors
    /// As [`Session::prepare`].
    pub fn prepare_bytes(&self, (to, to_at): (Buffer, u64), bytes: u64) -> Result<Transfer, Error> {
        let (setup, now) = (self.setup()?, self.now()?);
        let bytes = length(bytes, MAX_INLINE)?;
        let place = BUFFER.decode(now.opening(), to.0)?;
        let (lane, mut claim) = self.own_lane(&setup, INLINE, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        // SAFETY: the claim outlives what is found.
        let to = unsafe { self.buffers.find(place) }?.region.part(to_at, bytes.into())?;
        let prepared = Prepared::inline(&mut inner.channel, &to, bytes, InlineMode::Headers)?;
        let (index, used) = Place::put(&mut inner.transfers, MOST, Ready::Given(prepared))?;
        Ok(Transfer(TRANSFER.encode(now.opening(), name(lane, index), used)))
    }

    /// Submits what was prepared once more. No lock, no allocation, no system call.
    ///
    /// # Errors
    /// [`Error::Busy`] while another thread submits on the transfer's lane, [`Error::Full`] while 32 submissions of it are under
    /// way; after both it may be tried again. [`Error::Freed`], [`Error::Handle`], [`Error::Closed`], [`Error::Forked`],
    /// [`Error::Killed`], [`Error::Stopped`], and [`Error::Argument`] for what needs bytes. Nothing was submitted.
    #[inline]
    pub fn submit(&self, transfer: Transfer) -> Result<Copy, Error> {
        self.go(transfer, None, None)
    }

    /// As [`Session::submit`], with new bytes for what [`Session::prepare_bytes`] has made ready.
    ///
    /// # Errors
    /// As [`Session::submit`]; [`Error::Argument`] for another number of bytes than was prepared.
    #[inline]
    pub fn submit_bytes(&self, transfer: Transfer, bytes: &[u8]) -> Result<Copy, Error> {
        self.go(transfer, Some(bytes), None)
    }

    #[inline]
    pub(crate) fn go(&self, transfer: Transfer, bytes: Option<&[u8]>, behind: Option<Copy>) -> Result<Copy, Error> {
        let now = self.now()?;
        let (place, used) = TRANSFER.decode(now.opening(), transfer.0)?;
        let (lane, index) = locate(place);
        if lane > INLINE {
            return Err(TRANSFER.wrong());
        }
        let mut claim = self.claim(lane, now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        let ready = Place::find(&mut inner.transfers, index, used).ok_or_else(|| TRANSFER.wrong())?;
        if let Some(behind) = behind {
            if matches!(ready, Ready::ByCpu(_)) {
                return Err(Error::Argument("the transfer goes by the CPU's own stores or loads: wait for the ticket"));
            }
            self.wait_behind(&mut inner.channel, now, behind)?;
        }
        let ticket = match (ready, bytes) {
            (Ready::ByCpu(copy), None) => {
                let copy = *copy;
                return match self.by_cpu(now, inner, copy) {
                    Ok(Some(copy)) => Ok(copy),
                    // The transfer is there, its buffer has gone.
                    Ok(None) | Err(Error::Handle(_)) => Err(Error::Freed),
                    Err(error) => Err(error),
                };
            }
            (Ready::Copy(prepared), None) => prepared.submit(&mut inner.channel)?,
            (Ready::Read { prepared, source, buffer }, None) => {
                // SAFETY: the claim outlives what is found.
                unsafe { self.buffers.find(*buffer) }?;
                if !source.is_still_live() {
                    return Err(Error::Freed);
                }
                // SAFETY: host memory that is mapped for the CPU at the GPU's address, there as of just now; whoever frees it
                // while this call runs would free it under the reading of any CPU.
                let data = unsafe { std::slice::from_raw_parts(source.va() as *const u8, source.length() as usize) };
                prepared.submit_data(&mut inner.channel, data)?
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

    /// Ends a transfer. What of it is under way goes on.
    ///
    /// # Errors
    /// [`Error::Handle`], [`Error::Closed`], [`Error::Forked`].
    pub fn release(&self, transfer: Transfer) -> Result<(), Error> {
        self.same_process()?;
        let now = self.now()?;
        let (place, used) = TRANSFER.decode(now.opening(), transfer.0)?;
        let (lane, index) = locate(place);
        let lane = self.lanes.get(lane).ok_or_else(|| TRANSFER.wrong())?;
        let mut claim = self.still(lane.claim_in_time(), now)?;
        let inner = claim.as_mut().ok_or(Error::Closed)?;
        Place::take(&mut inner.transfers, index, used).map(drop).ok_or_else(|| TRANSFER.wrong())
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
