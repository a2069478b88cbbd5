//! Memory of CUDA's that pushbuffers may name: pinned once, and for as long as CUDA leaves it where it is.

use crate::error::Error;
use crate::libcuda::Watched;
use crate::memory::AddressSpace;
use rm::graph::{MemoryId, ObjectGraph};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// A range of CUDA's memory that may be named until this is dropped.
#[derive(Debug)]
pub struct Pin {
    space: Arc<AddressSpace>,
    id: u64,
    va: u64,
    length: u64,
    place: rm::graph::Place,
}

/// All pins of an address space.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) watched: &'static Watched,
    rows: Mutex<Vec<Row>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Row {
    id: u64,
    va: u64,
    length: u64,
    /// What lay there: what lies there later under the same address is something else.
    pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Piece {
    memory: Option<MemoryId>,
    handle: (u32, u32),
    offset: u64,
}

impl Pins {
    pub(crate) fn new(watched: &'static Watched) -> Pins {
        Pins { watched, rows: Mutex::default(), next: AtomicU64::new(0) }
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.watched.unmaps.load(Ordering::SeqCst)
    }

    /// True if the range is pinned, and what was pinned still lies there.
    pub(crate) fn contain(&self, va: u64, length: u64) -> bool {
        let rows = self.rows.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = va.checked_add(length) else { return false };
        let graph = self.watched.graph();
        rows.iter().any(|row| {
            row.va <= va && end <= row.va + row.length && pieces(&graph, row.va, row.length).as_ref() == Ok(&row.pieces)
        })
    }
}

/// What lies in a range, without gaps.
fn pieces(graph: &ObjectGraph, va: u64, length: u64) -> Result<Vec<Piece>, &'static str> {
    let (mut at, end) = (va, va + length);
    let mut all = Vec::new();
    while at < end {
        let Some(found) = graph.place_of(at) else {
            return Err("not mapped for the GPU: allocate it with cudaMalloc or cudaHostAlloc, or cudaHostRegister it");
        };
        if found.managed {
            return Err("managed memory moves between CPU and GPU: use cudaMalloc or cudaHostAlloc memory");
        }
        all.push(Piece { memory: found.memory, handle: (found.client, found.handle), offset: found.offset });
        at = at.saturating_add(found.rest.max(1));
    }
    Ok(all)
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
