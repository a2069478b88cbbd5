//! Replaces pageable memory in a graph's memcpy nodes by pinned memory.
//!
//! With pageable memory, CUDA moves the bytes with the CPU, in the middle of each launch. In a copy of the graph the nodes name pinned memory instead. The
//! program that launches the copy moves the bytes: into the pinned memory before the launch, and out of it after the launch.

use crate::Result;
use crate::context::Context;
use crate::functions::{Copy3d, Cuda, RawGraph, RawNode, Side3d};
use crate::graph::Graph;
use std::ffi::c_void;

/// `CU_GRAPH_NODE_TYPE_MEMCPY`, and `_GRAPH`: a child graph.
const MEMCPY: i32 = 1;
const CHILD: i32 = 4;
/// `CU_MEMORYTYPE_HOST`, and `_UNIFIED`: memory of any kind.
const HOST: i32 = 1;
const UNIFIED: i32 = 4;
/// `CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP`.
const PORTABLE_MAPPED: u32 = 0x01 | 0x02;
/// Alignment of one node's bytes in the pinned memory.
const ALIGN: usize = 256;

/// A copy of a graph, and the pinned memory that its memcpy nodes name instead of pageable memory.
#[derive(Debug)]
pub struct Staged<'c> {
    pub graph: Graph<'c>,
    pub staging: Staging,
}

/// Pinned memory, freed when dropped, and the parts of the program's memory that it replaces.
#[derive(Debug)]
pub struct Staging {
    cuda: Cuda,
    memory: *mut u8,
    parts: Vec<Part>,
}

// SAFETY: plain memory and addresses; CUDA's call may be made from any thread.
unsafe impl Send for Staging {}
// SAFETY: as above; the callers order the moves.
unsafe impl Sync for Staging {}

/// The memory that one side of a node names.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// The node writes it.
    out: bool,
    /// Its first byte in the program's memory.
    first: usize,
    /// Its offset in the pinned memory, where it is packed.
    offset: usize,
    width: usize,
    rows: usize,
    slices: usize,
    /// From row to row, and from slice to slice, in the program's memory.
    pitch: usize,
    slice: usize,
}

/// A node, its parameters, and its sides that name pageable memory: source, destination.
type Pageable = (RawNode, Copy3d, [Option<Part>; 2]);

impl Context {
    /// A copy of a graph. Its memcpy nodes, also in child graphs, name pinned memory instead of pageable memory. `None` where no node names pageable memory.
    /// Does not launch the graph and does not change it.
    ///
    /// # Errors
    /// CUDA's error, or [`crate::Error::Missing`].
    ///
    /// # Safety
    /// `graph` is the handle (`CUgraph`) of a live graph.
    pub unsafe fn staged(&self, graph: *mut c_void) -> Result<Option<Staged<'_>>> {
        // Checked first, because not every graph can be cloned.
        if self.pageable(graph)?.is_empty() {
            return Ok(None);
        }
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle; the caller's graph lives.
        unsafe { self.cuda.cuGraphClone(&mut raw, graph) }?;
        let clone = Graph { context: self, raw };
        let mut nodes = self.pageable(clone.raw)?;
        let (mut parts, mut end) = (Vec::new(), 0);
        for part in nodes.iter_mut().flat_map(|(_, _, sides)| sides.iter_mut().flatten()) {
            part.offset = end;
            end = (end + part.bytes()).next_multiple_of(ALIGN);
            parts.push(*part);
        }
        let mut memory = std::ptr::null_mut();
        // SAFETY: writes one pointer.
        unsafe { self.cuda.cuMemHostAlloc(&mut memory, end, PORTABLE_MAPPED) }?;
        let staging = Staging { cuda: self.cuda, memory: memory.cast(), parts };
        // SAFETY: `end` fresh bytes, which no other code has.
        unsafe { staging.memory.write_bytes(0, end) };
        for (node, mut copy, [from, to]) in nodes {
            if let Some(part) = from {
                copy.from = staging.side(&part, &copy.from);
            }
            if let Some(part) = to {
                copy.to = staging.side(&part, &copy.to);
            }
            // SAFETY: a memcpy node of the copy; the pinned memory has the bytes that it names.
            unsafe { self.cuda.cuGraphMemcpyNodeSetParams(node, &copy) }?;
        }
        Ok(Some(Staged { graph: clone, staging }))
    }

    /// The memcpy nodes that name pageable memory.
    fn pageable(&self, graph: RawGraph) -> Result<Vec<Pageable>> {
        let mut found = Vec::new();
        for node in memcpy_nodes(&self.cuda, graph)? {
            // SAFETY: plain numbers and pointers, for which zero is a valid value.
            let mut copy: Copy3d = unsafe { std::mem::zeroed() };
            // SAFETY: a memcpy node of a live graph; writes one structure.
            unsafe { self.cuda.cuGraphMemcpyNodeGetParams(node, &mut copy) }?;
            let sides = [self.part(&copy, &copy.from, false)?, self.part(&copy, &copy.to, true)?];
            if sides.iter().any(Option::is_some) {
                found.push((node, copy, sides));
            }
        }
        Ok(found)
    }

    /// The memory that a side names, if it is pageable.
    fn part(&self, copy: &Copy3d, side: &Side3d, out: bool) -> Result<Option<Part>> {
        let base = match side.kind {
            HOST => side.host as u64,
            UNIFIED => side.device,
            _ => return Ok(None),
        };
        if copy.width == 0 || base == 0 || self.pointer(base)?.is_some() {
            return Ok(None);
        }
        let slice = side.pitch * side.height;
        let first = base as usize + side.x + side.y * side.pitch + side.z * slice;
        // (A copy of one dimension has one row.)
        let (rows, slices) = (copy.height.max(1), copy.depth.max(1));
        Ok(Some(Part { out, first, offset: 0, width: copy.width, rows, slices, pitch: side.pitch, slice }))
    }
}

/// The memcpy nodes of a graph and its child graphs.
fn memcpy_nodes(cuda: &Cuda, graph: RawGraph) -> Result<Vec<RawNode>> {
    let mut count = 0;
    // SAFETY: writes the number.
    unsafe { cuda.cuGraphGetNodes(graph, std::ptr::null_mut(), &mut count) }?;
    let mut nodes = vec![std::ptr::null_mut(); count];
    // SAFETY: writes at most as many handles as there is room for.
    unsafe { cuda.cuGraphGetNodes(graph, nodes.as_mut_ptr(), &mut count) }?;
    nodes.truncate(count);
    let mut found = Vec::new();
    for node in nodes {
        let mut kind = 0;
        // SAFETY: a node of a live graph; writes one number.
        unsafe { cuda.cuGraphNodeGetType(node, &mut kind) }?;
        match kind {
            MEMCPY => found.push(node),
            CHILD => {
                let mut child = std::ptr::null_mut();
                // SAFETY: as above; writes one handle, of the graph within the node.
                unsafe { cuda.cuGraphChildGraphNodeGetGraph(node, &mut child) }?;
                found.extend(memcpy_nodes(cuda, child)?);
            }
            _ => {}
        }
    }
    Ok(found)
}

impl Part {
    fn bytes(&self) -> usize {
        self.width * self.rows * self.slices
    }

    /// First byte, and the end (exclusive).
    fn range(&self) -> (usize, usize) {
        (self.first, self.first + (self.slices - 1) * self.slice + (self.rows - 1) * self.pitch + self.width)
    }

    /// Pieces without a gap: the program's address, offset in the pinned memory, bytes.
    fn pieces(&self) -> impl Iterator<Item = (usize, usize, usize)> + '_ {
        let (rows, bytes) =
            if self.pitch == self.width { (1, self.width * self.rows) } else { (self.rows, self.width) };
        let all = (0..self.slices).flat_map(move |slice| (0..rows).map(move |row| (slice, row)));
        all.enumerate().map(move |(n, (slice, row))| {
            (self.first + slice * self.slice + row * self.pitch, self.offset + n * bytes, bytes)
        })
    }
}

impl Staging {
    /// An address in the program's memory that one node writes and another reads or writes. With staging, the time at which the bytes are moved would decide
    /// the result, not the order of the nodes alone.
    pub fn conflict(&self) -> Option<u64> {
        let overlap = |a: &Part, b: &Part| a.range().0.max(b.range().0) < a.range().1.min(b.range().1);
        self.parts.iter().enumerate().find_map(|(n, written)| {
            let another = |(m, other): (usize, &Part)| m != n && overlap(written, other);
            let found = written.out && self.parts.iter().enumerate().any(another);
            found.then_some(written.first as u64)
        })
    }

    /// Bytes that are moved before a launch, and after it.
    pub fn bytes(&self) -> (usize, usize) {
        let of = |out| self.parts.iter().filter(|part| part.out == out).map(Part::bytes).sum();
        (of(false), of(true))
    }

    /// Moves the bytes that the nodes read into the pinned memory.
    ///
    /// # Safety
    /// The program's memory that the graph names is allocated, no thread writes it during this call, and no launch of the graph is pending.
    pub unsafe fn take_in(&self) {
        for (from, at, bytes) in self.parts.iter().filter(|part| !part.out).flat_map(Part::pieces) {
            // SAFETY: the caller's promise for the program's memory; the pinned memory was made for these bytes.
            unsafe { std::ptr::copy_nonoverlapping(from as *const u8, self.memory.add(at), bytes) };
        }
    }

    /// Moves the bytes that the nodes wrote to the program's memory.
    ///
    /// # Safety
    /// As [`Staging::take_in`]; also, no thread reads that memory during this call. The graph was launched.
    pub unsafe fn bring_out(&self) {
        for (to, at, bytes) in self.parts.iter().filter(|part| part.out).flat_map(Part::pieces) {
            // SAFETY: as above.
            unsafe { std::ptr::copy_nonoverlapping(self.memory.add(at), to as *mut u8, bytes) };
        }
    }

    /// The side that names the pinned memory.
    fn side(&self, part: &Part, was: &Side3d) -> Side3d {
        let at = self.memory.wrapping_add(part.offset);
        let (x, y, z) = (0, 0, 0);
        Side3d { x, y, z, host: at.cast(), device: at as u64, pitch: part.width, height: part.rows, ..*was }
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // SAFETY: allocated by `staged`; the code that launched the graph has waited for it.
        let _ = unsafe { self.cuda.cuMemFreeHost(self.memory.cast()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(out: bool, first: usize, width: usize, rows: usize, pitch: usize) -> Part {
        Part { out, first, offset: 512, width, rows, slices: 2, pitch, slice: 3 * pitch }
    }

    #[test]
    fn rows_are_packed_and_whole_slices_go_at_once() {
        let pieces: Vec<_> = part(false, 1000, 10, 2, 100).pieces().collect();
        assert_eq!(pieces, [(1000, 512, 10), (1100, 522, 10), (1300, 532, 10), (1400, 542, 10)]);
        let pieces: Vec<_> = part(false, 1000, 100, 3, 100).pieces().collect();
        assert_eq!(pieces, [(1000, 512, 300), (1300, 812, 300)]);
        assert_eq!(part(false, 1000, 10, 2, 100).range(), (1000, 1410));
    }
}
