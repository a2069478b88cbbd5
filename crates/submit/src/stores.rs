//! Copies to the GPU by the CPU's own stores: they are there when the submission returns.
//!
//! Stores through BAR1 are posted; a load of the last byte comes back when all of them have arrived. While it stores, a thread has a
//! ticket of its lane, so whoever frees memory waits for it as for an engine's copy.

use crate::buffers::Entry;
use crate::error::Error;
use crate::handle::{BUFFER, COPY, Copy};
use crate::lane::Inner;
use crate::session::{Now, Session};
use rm::graph::Place;

/// The place, in a ticket, of copies that no lane has: they were done when they got it.
pub(crate) const DONE: u8 = u8::MAX;

/// A copy, by where its ends lie among the buffers.
#[derive(Clone, Copy)]
pub(crate) struct Stored {
    pub to: (u32, u32),
    pub to_at: u64,
    pub from: (u32, u32),
    pub from_at: u64,
    pub bytes: u64,
}

impl Session {
    /// Whether the CPU can store what it loads from the one buffer into the other; in words, why not.
    pub(crate) fn may_store<'e>(to: &'e Entry, from: &Entry) -> Result<(), &'e str> {
        match (&to.map, from.place) {
            (Ok(_), Place::Host) => Ok(()),
            (Ok(_), _) => Err("the CPU does not read the source"),
            (Err(why), _) => Err(why),
        }
    }

    /// Stores it. `Ok(None)` where the CPU cannot.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Outside`], [`Error::Handle`], [`Error::Full`]: nothing was written.
    #[inline]
    pub(crate) fn store(&self, now: Now, inner: &mut Inner, copy: Stored) -> Result<Option<Copy>, Error> {
        // SAFETY: whoever has `inner` has a claim, which outlives what is found.
        let (to, from) = unsafe { (self.buffers.find(copy.to)?, self.buffers.find(copy.from)?) };
        let (Ok(map), Ok(())) = (&to.map, Session::may_store(to, from)) else { return Ok(None) };
        if now.asks() {
            // Before the ticket is taken, as for an engine's copies.
            to.region.ask_where_wanted()?;
            from.region.ask_where_wanted()?;
        }
        let Inner { copies: Some(copies), channel, .. } = inner else { return Ok(None) };
        let held = copies.begin(channel)?;
        held.hold((&to.region, copy.to_at), copy.bytes)?;
        held.hold((&from.region, copy.from_at), copy.bytes)?;
        let at = from.pointer.wrapping_add(copy.from_at);
        // SAFETY: within host memory that the CPU sees there, and that nobody frees while it is held.
        let data = unsafe { std::slice::from_raw_parts(at as *const u8, copy.bytes as usize) };
        map.write(copy.to_at, data)?;
        map.read(copy.to_at + copy.bytes - 1, &mut [0])?;
        drop(held);
        Ok(Some(Copy(COPY.encode_number(now.opening(), DONE, 0))))
    }

    /// What `copy_async` is asked for, if the table says stores.
    #[inline]
    pub(crate) fn stored(&self, now: Now, inner: &mut Inner, piece: &crate::Piece) -> Result<Option<Copy>, Error> {
        let decode = |buffer: crate::Buffer| BUFFER.decode(now.opening(), buffer.0);
        let (to, from) = (decode(piece.to)?, decode(piece.from)?);
        let direction = self.direction(to.0, from.0);
        if inner.ways.choose(direction, piece.bytes) != crate::Executor::Stores {
            return Ok(None);
        }
        let copy = Stored { to, to_at: piece.to_at, from, from_at: piece.from_at, bytes: piece.bytes };
        self.store(now, inner, copy)
    }
}
