//! A prepared graph, and the memory that its parameters keep.

use crate::error::Error;
use gpu::{Memory, Pin, Region};
use launch::{ChainBeside, Kind, Node, StagedGraph};
use std::sync::Arc;

/// The object that is launched.
#[allow(clippy::large_enum_variant, reason = "the launch of a graph goes through no further pointer")]
pub(crate) enum Form {
    /// A graph, or a chain with one doorbell.
    One(launch::Graph),
    /// A chain whose copies are on the copy lane next to the launch lane.
    Beside(Box<ChainBeside>),
    /// A graph that names pageable memory.
    Staged(Box<StagedGraph>),
}

/// The object that a graph's handle names.
pub(crate) struct Launching {
    pub form: Form,
    /// For each kernel, in the order in which a launch starts them: its number among the graph's nodes, and bytes of
    /// its parameters.
    pub kernels: Vec<(usize, u32)>,
    /// Memory that parameters point to, by kernel and offset.
    pub pointers: Vec<(u32, u32, Keeps)>,
}

/// Keeps memory in place while a parameter points to it.
#[allow(dead_code, reason = "held")]
pub(crate) enum Keeps {
    /// CUDA's memory: when CUDA frees it, launches of the graph are refused.
    Pin(Pin),
    /// The session's own memory.
    Memory(Arc<Memory>),
}

impl Launching {
    pub fn new(form: Form) -> Launching {
        let kernels = form.nodes().iter().filter_map(|node| match node.kind {
            Kind::Kernel { parameters, .. } => Some((node.number, parameters)),
            _ => None,
        });
        Launching { kernels: kernels.collect(), pointers: Vec::new(), form }
    }

    /// A kernel's number among the nodes, if these bytes are within its parameters.
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

impl Form {
    fn nodes(&self) -> &[Node] {
        match self {
            Form::One(graph) => graph.nodes(),
            Form::Beside(chain) => chain.nodes(),
            Form::Staged(graph) => graph.nodes(),
        }
    }

    pub fn parameters(&self, node: usize) -> Option<&[u8]> {
        match self {
            Form::One(graph) => graph.parameters(node),
            Form::Beside(chain) => chain.parameters(node),
            Form::Staged(graph) => graph.parameters(node),
        }
    }

    #[inline]
    pub fn set_parameter(&mut self, node: usize, offset: u32, bytes: &[u8]) -> Result<(), Error> {
        Ok(match self {
            Form::One(graph) => graph.set_parameter(node, offset, bytes),
            Form::Beside(chain) => chain.set_parameter(node, offset, bytes),
            Form::Staged(graph) => graph.set_parameter(node, offset, bytes),
        }?)
    }

    pub fn set_pointer(&mut self, node: usize, offset: u32, to: (&Region, u64)) -> Result<(), Error> {
        Ok(match self {
            Form::One(graph) => graph.set_pointer(node, offset, to),
            Form::Beside(chain) => chain.set_pointer(node, offset, to),
            Form::Staged(graph) => graph.set_pointer(node, offset, to),
        }?)
    }
}
