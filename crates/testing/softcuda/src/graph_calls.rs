//! Stream capture and graphs.

use crate::copy3d::Copy3d;
use crate::graph::{Exec, Graph};
use crate::lock::launching;
use crate::memory::soft;
use crate::node::Node;
use crate::status::*;
use crate::stream::Stream;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, Mutex};

/// The objects of programs' handles. The handles are their addresses.
struct Handles<T>(Mutex<BTreeMap<u64, Arc<T>>>);

static GRAPHS: Handles<Graph> = Handles(Mutex::new(BTreeMap::new()));
static EXECS: Handles<Exec> = Handles(Mutex::new(BTreeMap::new()));

impl<T> Handles<T> {
    fn change<R>(&self, change: impl FnOnce(&mut BTreeMap<u64, Arc<T>>) -> R) -> R {
        let mut all = poison::ignore(self.0.lock());
        change(&mut all)
    }

    fn add(&self, what: T) -> *mut c_void {
        let what = Arc::new(what);
        let handle = Arc::as_ptr(&what).cast_mut().cast();
        self.change(|all| all.insert(handle as u64, what));
        handle
    }

    fn find(&self, handle: *mut c_void) -> Option<Arc<T>> {
        self.change(|all| all.get(&(handle as u64)).cloned())
    }

    fn remove(&self, handle: *mut c_void) -> c_int {
        let taken = self.change(|all| all.remove(&(handle as u64)));
        status(taken.is_some(), INVALID_VALUE)
    }
}

/// The node at an address, of any graph.
fn with_node(node: *mut c_void, then: impl FnOnce(&mut Node) -> c_int) -> c_int {
    let graphs = GRAPHS.change(|all| all.values().cloned().collect::<Vec<_>>());
    let mut then = Some(then);
    let find = |graph: &Arc<Graph>| {
        graph.nodes(|nodes| {
            let found = nodes.iter_mut().find(|one| std::ptr::eq(std::ptr::from_ref::<Node>(one).cast(), node))?;
            Some(then.take()?(found))
        })
    };
    graphs.iter().find_map(find).unwrap_or(INVALID_VALUE)
}

calls! {
    cuStreamBeginCapture_v2(stream: *mut c_void, _mode: c_int) {
        // Not the default stream.
        if stream.is_null() { return CAPTURE_UNSUPPORTED; }
        Stream::find(stream as u64).map_or(INVALID_HANDLE, |stream| stream.begin_capture())
    }
    cuStreamEndCapture(stream: *mut c_void, graph: *mut *mut c_void) {
        let Some(stream) = Stream::find(stream as u64) else { return INVALID_HANDLE };
        match stream.end_capture() {
            Ok(nodes) => give(graph, GRAPHS.add(Graph::new(nodes))),
            Err(error) => give(graph, std::ptr::null_mut()).max(error),
        }
    }
    cuStreamIsCapturing(stream: *mut c_void, status: *mut c_int) {
        Stream::find(stream as u64).map_or(INVALID_HANDLE, |stream| give(status, stream.capture_status()))
    }

    cuGraphGetNodes(graph: *mut c_void, nodes: *mut *mut c_void, count: *mut usize) {
        let Some(graph) = GRAPHS.find(graph) else { return INVALID_VALUE };
        let all = graph.nodes(|all| all.iter_mut().map(|node| std::ptr::from_mut(node).cast()).collect::<Vec<*mut c_void>>());
        if count.is_null() || nodes.is_null() { return give(count, all.len()); }
        // SAFETY: the caller's variable: how many there is room for.
        let room = unsafe { count.read_unaligned() };
        for n in 0..room {
            let node = all.get(n).copied().unwrap_or(std::ptr::null_mut());
            // SAFETY: the caller's room.
            unsafe { nodes.add(n).write_unaligned(node) };
        }
        give(count, all.len().min(room))
    }
    cuGraphClone(clone: *mut *mut c_void, graph: *mut c_void) {
        let Some(graph) = GRAPHS.find(graph) else { return INVALID_VALUE };
        give(clone, GRAPHS.add(Graph::new(graph.nodes(|nodes| nodes.to_vec()))))
    }
    cuGraphNodeGetType(node: *mut c_void, kind: *mut c_int) {
        with_node(node, |node| give(kind, match node {
            Node::Kernel(_) => 0,
            Node::Copy { .. } => 1,
            Node::Fill { .. } => 2,
        }))
    }
    cuGraphMemcpyNodeGetParams(node: *mut c_void, copy: *mut Copy3d) {
        with_node(node, |node| Copy3d::of(node).map_or(INVALID_VALUE, |found| give(copy, found)))
    }
    cuGraphMemcpyNodeSetParams(node: *mut c_void, copy: *const Copy3d) {
        if copy.is_null() { return INVALID_VALUE; }
        // SAFETY: the caller's.
        let copy = unsafe { copy.read_unaligned() };
        with_node(node, |node| match (&node, copy.node()) {
            (Node::Copy { .. }, Some(other)) => {
                *node = other;
                SUCCESS
            }
            _ => INVALID_VALUE,
        })
    }
    cuGraphInstantiateWithFlags(exec: *mut *mut c_void, graph: *mut c_void, _flags: u64) {
        let Some(graph) = GRAPHS.find(graph) else { return INVALID_VALUE };
        match graph.instantiate() {
            Ok(made) => give(exec, EXECS.add(made)),
            Err(error) => error,
        }
    }
    cuGraphLaunch(exec: *mut c_void, stream: *mut c_void) {
        let Some(exec) = EXECS.find(exec) else { return INVALID_VALUE };
        let Some(stream) = Stream::find(stream as u64) else { return INVALID_HANDLE };
        if soft().is_some_and(|soft| soft.channel.has_failed()) { return LAUNCH_FAILED; }
        launching(|| stream.unless_captured(|stream| {
            if stream.is_idle() {
                // As CUDA does: on the thread that calls.
                let submitted = exec.submit();
                stream.put(move |_| submitted.into_iter().for_each(|wait| wait()));
            } else {
                stream.put(move |_| exec.submit().into_iter().for_each(|wait| wait()));
            }
            SUCCESS
        }))
    }
    cuGraphExecDestroy(exec: *mut c_void) { EXECS.remove(exec) }
    cuGraphDestroy(graph: *mut c_void) { GRAPHS.remove(graph) }
}
