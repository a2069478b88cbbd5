//! The pinned parts of CUDA memory, and whether the pinned memory is still there.
//!
//! Two events end a pin. Either the graph shows other memory at its address: the driver got a call to unmap or free it
//! ([`PinTable::holds`] checks). Or CUDA is about to free the allocation without a driver call, as it does with blocks
//! that share a mapping (a hook calls [`PinTable::freed`]).

use crate::lease::Lease;
use rm::graph::{Moment, ObjectGraph};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// Checks with the allocator of a range whether it is still the allocation that was pinned.
pub type Witness = Arc<dyn Fn() -> bool + Send + Sync>;

/// All pins of one CUDA.
#[derive(Debug, Default)]
pub(crate) struct PinTable {
    rows: Mutex<Vec<Row>>,
    next: AtomicU64,
    /// The number of pins, readable without the lock.
    count: AtomicUsize,
}

/// A pinned range, and its address space.
pub(crate) struct Row {
    pub id: u64,
    pub space: u64,
    pub va: u64,
    pub length: u64,
    /// The GPU that will access it.
    pub gpu: [u8; 16],
    /// The memory objects that were there: later ones at the same address differ from these.
    pub pieces: Vec<Piece>,
    pub witness: Option<Witness>,
    /// Ended when the row is removed.
    pub lease: Arc<Lease>,
}

impl std::fmt::Debug for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let range = format_args!("{:#x}, {:#x} bytes", self.va, self.length);
        f.debug_struct("Row").field("id", &self.id).field("range", &range).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    /// When the memory was made. Ids change, this does not, and no other memory has it.
    memory: Option<Moment>,
    handle: (u32, u32),
    offset: u64,
}

impl Row {
    fn holds(&self, va: u64, length: u64) -> bool {
        va >= self.va && va - self.va <= self.length && length <= self.length - (va - self.va)
    }

    fn overlaps(&self, base: u64, length: u64) -> bool {
        // Neither sum overflows: a pin's was checked, and the other saturates.
        self.va < base.saturating_add(length) && base < self.va + self.length
    }

    fn still_there(&self, graph: &ObjectGraph) -> bool {
        pieces(graph, self.va, self.length, self.gpu).as_ref() == Ok(&self.pieces)
    }
}

impl PinTable {
    fn rows(&self) -> MutexGuard<'_, Vec<Row>> {
        poison::ignore(self.rows.lock())
    }

    /// Adds a row. Returns its id.
    pub fn add(&self, mut row: Row) -> u64 {
        row.id = self.next.fetch_add(1, Ordering::Relaxed);
        let (id, mut rows) = (row.id, self.rows());
        rows.push(row);
        self.count.store(rows.len(), Ordering::SeqCst);
        id
    }

    pub fn remove(&self, id: u64) {
        self.end(|row| row.id == id);
    }

    pub fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Ends the pins of memory that is about to be freed, and returns their leases.
    pub fn freed(&self, base: u64, length: u64) -> Vec<Arc<Lease>> {
        if self.count() == 0 { Vec::new() } else { self.end(|row| row.overlaps(base, length)) }
    }

    /// Ends the pins whose memory is no longer there, and returns their leases.
    pub fn unmapped(&self, graph: &ObjectGraph) -> Vec<Arc<Lease>> {
        if self.count() == 0 { Vec::new() } else { self.end(|row| !row.still_there(graph)) }
    }

    fn end(&self, ends: impl Fn(&Row) -> bool) -> Vec<Arc<Lease>> {
        let (mut rows, mut ended) = (self.rows(), Vec::new());
        rows.retain(|row| {
            let goes = ends(row);
            if goes {
                row.lease.end();
                ended.push(row.lease.clone());
            }
            !goes
        });
        self.count.store(rows.len(), Ordering::SeqCst);
        ended
    }

    /// True if one pin holds the whole range for the address space, and the pinned memory is still there.
    pub fn contain(&self, graph: &ObjectGraph, space: u64, va: u64, length: u64) -> bool {
        let rows = self.rows();
        rows.iter().any(|row| row.space == space && row.holds(va, length) && row.still_there(graph))
    }

    /// True if that pin is still valid for the range.
    pub fn holds(&self, graph: &ObjectGraph, id: u64, va: u64, length: u64) -> bool {
        let rows = self.rows();
        rows.iter().any(|row| row.id == id && row.holds(va, length) && row.still_there(graph))
    }

    /// The pin's witness. Call it without holding any lock of doorbell: it may take CUDA's.
    pub fn witness(&self, id: u64) -> Option<Witness> {
        self.rows().iter().find(|row| row.id == id)?.witness.clone()
    }
}

/// Whether calls were seen that mapped the whole range for this GPU, each naming it.
pub(crate) fn is_mapped_by_name(graph: &ObjectGraph, va: u64, length: u64, gpu: [u8; 16]) -> bool {
    let (mut at, end) = (va, va + length);
    while at < end {
        if !graph.is_mapped_for(gpu, at) {
            return false;
        }
        at = at.saturating_add(graph.place_on(gpu, at).map_or(1, |found| found.rest.max(1)));
    }
    true
}

pub(crate) const OF_ANOTHER: &str =
    "mapped for another GPU only: allocate it on this one, or enable peer access (cudaDeviceEnablePeerAccess)";

/// The pieces of a range that is mapped for the GPU without gaps.
pub(crate) fn pieces(graph: &ObjectGraph, va: u64, length: u64, gpu: [u8; 16]) -> Result<Vec<Piece>, &'static str> {
    let (mut at, end) = (va, va + length);
    let mut all = Vec::new();
    while at < end {
        let Some(found) = graph.place_on(gpu, at) else {
            return Err(match graph.place_of(at) {
                Some(_) => OF_ANOTHER,
                None => "not mapped for the GPU: allocate it with cudaMalloc or cudaHostAlloc, or cudaHostRegister it",
            });
        };
        if found.managed {
            return Err("managed memory moves between CPU and GPU: use cudaMalloc or cudaHostAlloc memory");
        }
        let memory = found.memory.and_then(|id| Some(graph.memory(id)?.born));
        all.push(Piece { memory, handle: (found.client, found.handle), offset: found.offset });
        at = at.saturating_add(found.rest.max(1));
    }
    Ok(all)
}

/// The GPUs for which a whole range is mapped; none if the calls that mapped it did not name them.
pub(crate) fn gpus(graph: &ObjectGraph, va: u64, length: u64) -> Vec<[u8; 16]> {
    let (mut at, end) = (va, va + length);
    let mut all: Option<Vec<[u8; 16]>> = None;
    while at < end {
        let here = graph.gpus_of(at);
        if !here.is_empty() {
            all = Some(match all {
                None => here,
                Some(before) => before.into_iter().filter(|gpu| here.contains(gpu)).collect(),
            });
        }
        at = at.saturating_add(graph.place_of(at).map_or(1, |found| found.rest.max(1)));
    }
    all.unwrap_or_default()
}
