//! A graph that is ready to be launched, and what its parameters keep.

use crate::error::Error;
use gpu::{Memory, Pin};
use launch::Kind;
use std::sync::Arc;

/// What a graph's handle stands for.
pub(crate) struct Launching {
    pub graph: launch::Graph,
    /// Of each kernel, in the order in which a launch starts them: its number among the graph's nodes, and bytes of its
    /// parameters.
    pub kernels: Vec<(usize, u32)>,
    /// What parameters point to, by kernel and offset.
    pub pointers: Vec<(u32, u32, Keeps)>,
}

/// What keeps memory where it is while a parameter points there.
#[allow(dead_code, reason = "held")]
pub(crate) enum Keeps {
    /// CUDA's: when CUDA frees it, the graph is not launched any more.
    Pin(Pin),
    /// The session's own.
    Memory(Arc<Memory>),
}

impl Launching {
    pub fn new(graph: launch::Graph) -> Launching {
        let kernels = graph.nodes().iter().filter_map(|node| match node.kind {
            Kind::Kernel { parameters, .. } => Some((node.number, parameters)),
            _ => None,
        });
        Launching { kernels: kernels.collect(), pointers: Vec::new(), graph }
    }

    /// A kernel's number among the nodes, if so many bytes lie within its parameters.
    #[inline]
    pub fn node(&self, kernel: u32, offset: u32, length: u64) -> Result<usize, Error> {
        let of = self.kernels.get(kernel as usize);
        let &(node, size) = of.ok_or(Error::Argument("the graph has no kernel of this number; they count from 0"))?;
        let offset = u64::from(offset);
        if offset + length > u64::from(size) {
            return Err(Error::Outside { offset, length, size: size.into() });
        }
        Ok(node)
    }
}
