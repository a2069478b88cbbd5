//! Memory of CUDA's that pushbuffers may name: pinned once, and for as long as CUDA leaves it where it is.

use crate::error::Error;
use crate::pins::{Row, pieces};
use crate::space::AddressSpace;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

/// A range of CUDA's memory that may be named until this is dropped.
#[derive(Debug)]
pub struct Pin {
    space: Arc<AddressSpace>,
    id: u64,
    va: u64,
    length: u64,
    place: rm::graph::Place,
}

impl AddressSpace {
    /// Lets pushbuffers name `length` bytes of CUDA's memory at `va`, until the pin is dropped or CUDA unmaps them.
    /// Ask CUDA for the exact size first (`cuMemGetAddressRange`): its mappings are coarser than its allocations.
    ///
    /// # Errors
    /// Where the range is not wholly mapped for this GPU, or is managed memory.
    pub fn pin(self: &Arc<Self>, va: u64, length: u64) -> Result<Pin, Error> {
        let refuse = |why| Error::NotPinnable { va, length, why };
        if self.device().forked() {
            return Err(Error::Forked);
        }
        let Some(pins) = &self.pins else {
            return Err(refuse("this address space is not CUDA's: use its own memory"));
        };
        if va == 0 || length == 0 || va.checked_add(length).is_none() {
            return Err(refuse("no memory: the address is null or the length is"));
        }
        let graph = pins.watched.graph();
        let pieces = pieces(&graph, va, length).map_err(refuse)?;
        let place = graph.place_of(va).map_or(rm::graph::Place::Unknown, |found| found.place);
        drop(graph);
        let id = pins.next.fetch_add(1, Ordering::Relaxed);
        pins.rows.lock().unwrap_or_else(PoisonError::into_inner).push(Row { id, va, length, pieces });
        Ok(Pin { space: self.clone(), id, va, length, place })
    }
}

impl Pin {
    pub fn va(&self) -> u64 {
        self.va
    }

    /// Bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Where its first byte lies.
    pub fn place(&self) -> rm::graph::Place {
        self.place
    }

    pub fn space(&self) -> &Arc<AddressSpace> {
        &self.space
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        let Some(pins) = &self.space.pins else { return };
        pins.rows.lock().unwrap_or_else(PoisonError::into_inner).retain(|row| row.id != self.id);
        self.space.unmapped();
    }
}
