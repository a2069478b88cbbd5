//! Nodes of graphs: listed, added, and changed in an executable graph.

use crate::Result;
use crate::capture::capturing;
use crate::context::Context;
use crate::functions::{KernelNode, NodeParameters, RawGraph, RawNode};
use crate::graph::{Graph, GraphExec, THREAD_LOCAL};
use crate::kernel::Function;
use crate::launch::{Launch, pointers};
use crate::stream::Stream;

/// `CU_GRAPH_NODE_TYPE_CONDITIONAL`.
const CONDITIONAL: i32 = 13;
/// `CU_GRAPH_COND_ASSIGN_DEFAULT`: the value is set at each launch.
const ASSIGN_DEFAULT: u32 = 1;

/// A node of a live graph.
#[derive(Clone, Copy, Debug)]
pub struct Node(RawNode);

/// When the body of a conditional node runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Body {
    /// Once, if its value is not 0.
    If = 0,
    /// As long as its value is not 0.
    While = 1,
}

impl<'c> Graph<'c> {
    /// All nodes (`cuGraphGetNodes`), in an order that CUDA chooses.
    pub fn nodes(&self) -> Result<Vec<Node>> {
        let (cuda, mut count) = (self.context.cuda, 0);
        // SAFETY: writes the number.
        unsafe { cuda.cuGraphGetNodes(self.raw, std::ptr::null_mut(), &mut count) }?;
        let mut nodes = vec![std::ptr::null_mut(); count];
        // SAFETY: writes at most as many handles as there is room for.
        unsafe { cuda.cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &mut count) }?;
        nodes.truncate(count);
        Ok(nodes.into_iter().map(Node).collect())
    }

    /// Adds a copy of another graph, after a node.
    pub fn add_child(&self, after: Node, child: &Graph<'_>) -> Result<Node> {
        let mut node = std::ptr::null_mut();
        // SAFETY: writes one handle; both graphs live, and the node belongs to this one.
        unsafe { self.context.cuda.cuGraphAddChildGraphNode(&mut node, self.raw, &after.0, 1, child.raw) }?;
        Ok(Node(node))
    }

    /// Adds a conditional node after another, and its empty body. The node's value is `value` at the start of each launch.
    pub fn add_conditional<'g>(&'g self, after: Node, body: Body, value: u32) -> Result<(Node, Inner<'g, 'c>)> {
        let (cuda, context, mut condition) = (self.context.cuda, self.context.raw, 0);
        // SAFETY: writes one handle; the graph and the context live.
        unsafe { cuda.cuGraphConditionalHandleCreate(&mut condition, self.raw, context, value, ASSIGN_DEFAULT) }?;
        let mut parameters = NodeParameters {
            kind: CONDITIONAL,
            reserved: [0; 3],
            condition,
            conditional: body as i32,
            bodies: 1,
            graphs: std::ptr::null_mut(),
            context,
            rest: [0; 25],
            reserved_too: 0,
        };
        let mut node = std::ptr::null_mut();
        // SAFETY: writes one handle, and the address of the bodies into the parameters.
        unsafe { cuda.cuGraphAddNode(&mut node, self.raw, &after.0, 1, &mut parameters) }?;
        // SAFETY: an array of one, which lives as long as the node.
        let raw = unsafe { parameters.graphs.as_ref() }.copied().unwrap_or(std::ptr::null_mut());
        Ok((Node(node), Inner { _of: self, raw }))
    }

    /// Captures what `submit` puts into the stream into this graph, after a node (`cuStreamBeginCaptureToGraph`).
    pub fn capture_more(&self, after: Node, stream: &Stream<'_>, submit: impl FnOnce() -> Result<()>) -> Result<()> {
        capture_into(self.context, self.raw, &[after.0], stream, submit)
    }
}

/// A graph within a node of another, which owns it.
#[derive(Debug)]
pub struct Inner<'g, 'c> {
    _of: &'g Graph<'c>,
    raw: RawGraph,
}

impl Inner<'_, '_> {
    /// Captures what `submit` puts into the stream into this graph.
    pub fn capture(&self, stream: &Stream<'_>, submit: impl FnOnce() -> Result<()>) -> Result<()> {
        capture_into(self._of.context, self.raw, &[], stream, submit)
    }
}

fn capture_into(
    context: &Context,
    graph: RawGraph,
    after: &[RawNode],
    stream: &Stream<'_>,
    submit: impl FnOnce() -> Result<()>,
) -> Result<()> {
    let _alone = capturing();
    let (cuda, none) = (context.cuda, std::ptr::null());
    // SAFETY: stream, graph and nodes live; no edge data.
    unsafe { cuda.cuStreamBeginCaptureToGraph(stream.raw, graph, after.as_ptr(), none, after.len(), THREAD_LOCAL) }?;
    let submitted = submit();
    let mut same = std::ptr::null_mut();
    // Ended in any case, or the stream would stay unusable.
    // SAFETY: writes one handle, that of the graph.
    let ended = unsafe { cuda.cuStreamEndCapture(stream.raw, &mut same) };
    submitted.and(ended)
}

impl GraphExec<'_> {
    /// Prepares it for launches, after the stream's pending work (`cuGraphUpload`).
    pub fn upload(&self, stream: &Stream<'_>) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.cuda.cuGraphUpload(self.raw, stream.raw) }
    }

    /// Gives a kernel node these parameters from the next launch on. The node is in the graph that this was made from.
    ///
    /// # Errors
    /// CUDA's error, or [`crate::Error::Missing`].
    ///
    /// # Safety
    /// As [`Function::launch_as`], for later launches. The node belongs to that graph. The launch's attributes stay as they were.
    pub unsafe fn set_kernel(
        &self,
        node: Node,
        function: &Function<'_>,
        launch: &Launch,
        parameters: &[&[u8]],
    ) -> Result<()> {
        let mut pointers = pointers(parameters);
        let kernel = KernelNode {
            function: function.raw,
            grid: launch.grid,
            block: launch.block,
            shared_bytes: launch.shared_bytes,
            arguments: pointers.as_mut_ptr(),
            extra: std::ptr::null_mut(),
        };
        // SAFETY: the parameters are read before the call returns; the caller promises the rest.
        unsafe { self.context.cuda.cuGraphExecKernelNodeSetParams(self.raw, node.0, &kernel) }
    }
}
