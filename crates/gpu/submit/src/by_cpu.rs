//! Copies by the CPU's own stores to the GPU and loads from it. They are done when the submission returns.
//!
//! Stores through BAR1 are posted; a load of the last byte returns when all of them have arrived. Until then the thread has a
//! ticket of its lane and holds both regions, so a free waits for it as for an engine's copy.

use crate::buffers::Entry;
use crate::choose::Executor;
use crate::error::Error;
use crate::handle::{BUFFER, Buffer, COPY, Copy};
use crate::lane::Inner;
use crate::prepared::{ByCpu, Ends};
use crate::session::{Now, Session};
use gpu::Bar1Map;
use rm::graph::Place;

/// The place, in a ticket, of copies that have no lane: they were done when they got the ticket.
pub(crate) const DONE: u8 = u8::MAX;

impl Session {
    /// The mapping that the CPU stores to or loads from; otherwise, in words, why there is none.
    pub(crate) fn mapped<'e>(executor: Executor, to: &'e Entry, from: &'e Entry) -> Result<&'e Bar1Map, &'e str> {
        let (of_gpu, other) = if executor == Executor::Loads { (from, to) } else { (to, from) };
        match (&of_gpu.map, other.place) {
            (Ok(map), Place::Host) => Ok(map),
            (Ok(_), _) => Err("the CPU does not reach the other end"),
            (Err(why), _) => Err(why),
        }
    }

    /// Makes the copy. `Ok(None)` if the CPU cannot.
    ///
    /// # Errors
    /// [`Error::Freed`], [`Error::Outside`], [`Error::Handle`], [`Error::Full`]: no byte was written.
    #[inline]
    pub(crate) fn by_cpu(&self, now: Now, inner: &mut Inner, copy: ByCpu) -> Result<Option<Copy>, Error> {
        let ByCpu { executor, ends: copy } = copy;
        // SAFETY: a caller that has `inner` has a claim, which outlives these entries.
        let (to, from) = unsafe { (self.buffers.find(copy.to)?, self.buffers.find(copy.from)?) };
        let Ok(map) = Session::mapped(executor, to, from) else { return Ok(None) };
        if now.asks() {
            // Before the ticket is taken, as for an engine's copies.
            to.region.ask_where_wanted()?;
            from.region.ask_where_wanted()?;
        }
        let Inner { copies: Some(copies), channel, .. } = inner else { return Ok(None) };
        let held = copies.begin(channel)?;
        held.hold((&to.region, copy.to_at), copy.bytes)?;
        held.hold((&from.region, copy.from_at), copy.bytes)?;
        let bytes = copy.bytes as usize;
        if executor == Executor::Loads {
            let at = to.pointer.wrapping_add(copy.to_at);
            // SAFETY: within host memory that the CPU sees there and that cannot be freed while it is held; other accesses to
            // the destination of a copy are the program's race.
            let data = unsafe { std::slice::from_raw_parts_mut(at as *mut u8, bytes) };
            map.read(copy.from_at, data)?;
        } else {
            let at = from.pointer.wrapping_add(copy.from_at);
            // SAFETY: as above, for its source.
            let data = unsafe { std::slice::from_raw_parts(at as *const u8, bytes) };
            map.write(copy.to_at, data)?;
            map.wait_for_stores(copy.to_at + copy.bytes - 1)?;
        }
        drop(held);
        Ok(Some(Copy(COPY.encode_number(now.opening(), DONE, now.whole_opening()))))
    }

    /// Makes the copy for `copy_async`, if the table names the CPU for it.
    #[inline]
    pub(crate) fn by_cpu_if_chosen(
        &self,
        now: Now,
        inner: &mut Inner,
        (to, to_at): (Buffer, u64),
        (from, from_at): (Buffer, u64),
        bytes: u64,
    ) -> Result<Option<Copy>, Error> {
        let decode = |buffer: Buffer| BUFFER.decode(now.opening(), buffer.0);
        let (to, from) = (decode(to)?, decode(from)?);
        let executor = inner.ways.choose(self.direction(to.0, from.0), bytes);
        if !executor.is_cpu() {
            return Ok(None);
        }
        self.by_cpu(now, inner, ByCpu { executor, ends: Ends { to, to_at, from, from_at, bytes } })
    }
}
