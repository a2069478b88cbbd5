//! What of CUDA's memory is pinned, and whether what was pinned still lies there.

use crate::watched::Watched;
use rm::graph::{MemoryId, ObjectGraph};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// All pins of an address space.
#[derive(Debug)]
pub(crate) struct Pins {
    pub(crate) watched: &'static Watched,
    pub(crate) rows: Mutex<Vec<Row>>,
    pub(crate) next: AtomicU64,
}

#[derive(Debug)]
pub(crate) struct Row {
    pub id: u64,
    pub va: u64,
    pub length: u64,
    /// What lay there: what lies there later under the same address is something else.
    pub pieces: Vec<Piece>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
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
pub(crate) fn pieces(graph: &ObjectGraph, va: u64, length: u64) -> Result<Vec<Piece>, &'static str> {
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
