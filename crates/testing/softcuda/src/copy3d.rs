//! A memcpy node as the driver API has it.

use crate::memory;
use crate::node::Node;
use std::ffi::c_int;

/// `CU_MEMORYTYPE_HOST`, `_DEVICE`.
const HOST: c_int = 1;
const DEVICE: c_int = 2;

/// `CUDA_MEMCPY3D_v2`.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Copy3d {
    from: Side,
    to: Side,
    width: usize,
    height: usize,
    depth: usize,
}

#[derive(Clone, Copy)]
#[repr(C)]
struct Side {
    /// X in bytes, Y, Z, level.
    origin: [usize; 4],
    kind: c_int,
    host: u64,
    device: u64,
    array: u64,
    reserved: u64,
    pitch: usize,
    height: usize,
}

impl Copy3d {
    /// The copy of a memcpy node, which has one row.
    pub fn of(node: &Node) -> Option<Copy3d> {
        let Node::Copy { to, from, bytes } = *node else { return None };
        let side = |at: u64| {
            let is_device = memory::find(at, |_, block| block.video).unwrap_or(false);
            let (kind, host, device) = if is_device { (DEVICE, 0, at) } else { (HOST, at, 0) };
            Side { origin: [0; 4], kind, host, device, array: 0, reserved: 0, pitch: bytes, height: 1 }
        };
        Some(Copy3d { from: side(from), to: side(to), width: bytes, height: 1, depth: 1 })
    }

    /// A memcpy node of one row.
    pub fn node(&self) -> Option<Node> {
        let at = |side: &Side| match side.kind {
            _ if side.origin != [0; 4] => None,
            HOST => Some(side.host),
            DEVICE => Some(side.device),
            _ => None,
        };
        let is_row = (self.height, self.depth) == (1, 1);
        Some(Node::Copy { to: at(&self.to)?, from: at(&self.from)?, bytes: self.width }).filter(|_| is_row)
    }
}
