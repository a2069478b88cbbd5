//! Nodes that are no kernels, fills or copies, and other ways to make, change and launch a graph.

use super::capture::{HEAD, Maker, Part};
use super::memory::{Place, Space};
use super::{Made, Play, Shape, shape};
use crate::{Error, Result};
use cuda::{Body, Graph, Node};
use std::cell::Cell;
use std::ffi::c_void;
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

pub(super) fn shapes() -> Vec<Shape> {
    vec![
        shape("event-record", event_record),
        shape("event-wait", event_wait),
        shape("host", host),
        shape("child", child),
        shape("if", |m| conditional(m, Body::If, 1)),
        shape("if-not", |m| conditional(m, Body::If, 0)),
        shape("while-not", |m| conditional(m, Body::While, 0)),
        shape("for-kernels", for_kernels),
        shape("by-kernels", |_| {
            let reason = "a kernel that launches graphs is linked with CUDA's device runtime, which no driver carries";
            Err(Error::Unavailable { reason: reason.into() })
        }),
        shape("uploaded", |m| Ok(Made { play: Play::Uploaded, ..chain(m, 10)?.into() })),
        shape("two-streams", |m| Ok(Made { play: Play::Streams, ..chain(m, 10)?.into() })),
        shape("two-graphs", |m| Ok(Made { parts: vec![chain(m, 3)?, chain(m, 5)?], play: Play::Waited })),
        shape("updated", updated),
    ]
}

fn chain<'c>(m: &Maker<'c>, kernels: usize) -> Result<Part<'c>> {
    let log = m.take_log(kernels)?;
    m.capture(|| (0..kernels).try_for_each(|_| m.log(0, log, m.value())))
}

/// A node between two kernels that records an event.
fn event_record<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let (log, event) = (m.take_log(2)?, m.event()?);
    let part = m.capture(|| {
        m.log(0, log, m.value())?;
        event.record_for_outside(m.stream(0)?)?;
        m.log(0, log, m.value())
    })?;
    // Kept for as long as the graph is launched.
    Ok(Made { parts: vec![part], play: Play::Recorded(event) })
}

/// A node between two kernels that waits for an event of another stream's.
fn event_wait<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let (log, event) = (m.take_log(2)?, m.event()?);
    let part = m.capture(|| {
        m.log(0, log, m.value())?;
        m.stream(0)?.wait_for_outside(&event)?;
        m.log(0, log, m.value())
    })?;
    Ok(Made { parts: vec![part], play: Play::Recorded(event) })
}

/// A host function between two kernels. The second kernel copies the word that the function wrote.
fn host<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let (log, word, out) = (m.take_log(1)?, m.memory.take(Space::Pinned, 4)?, m.take(4)?);
    let part = m.capture(|| {
        m.log(0, log, m.value())?;
        // SAFETY: an aligned word of pinned memory that outlives the graph, and that no other code writes while the graph runs.
        unsafe { m.stream(0)?.call_host(next, m.memory.address(word) as *mut c_void) }?;
        m.then(move |model| model.each(word, 1, |_, was| was.wrapping_mul(3).wrapping_add(1)));
        m.copy(0, out, word)
    })?;
    Ok(part.into())
}

extern "C" fn next(word: *mut c_void) {
    // SAFETY: the word that `host` gives.
    let word = unsafe { AtomicU32::from_ptr(word.cast()) };
    let was = word.load(Ordering::Relaxed);
    word.store(was.wrapping_mul(3).wrapping_add(1), Ordering::Release);
}

/// The only node of a graph.
fn only(graph: &Graph<'_>) -> cuda::Result<Node> {
    let nodes = graph.nodes()?;
    nodes.first().copied().ok_or(cuda::Error::Length { what: "nodes of a graph of one kernel", to: 1, from: 0 })
}

/// A graph of three kernels as a node between two.
fn child<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let (log, first, last) = (m.take_log(5)?, m.value(), m.value());
    // The model acts in the order of the calls: the child's kernels after the first one.
    let parent = m.graph(|| m.log(0, log, first))?;
    let inner = m.graph(|| (0..3).try_for_each(|_| m.log(0, log, m.value())))?;
    let node = parent.add_child(only(&parent)?, &inner)?;
    parent.capture_more(node, m.stream(0)?, || m.log(0, log, last))?;
    Ok(m.part(parent)?.into())
}

/// A kernel, a conditional node whose body is a kernel, and a kernel. The node's value is fixed when it is launched.
fn conditional<'c>(m: &Maker<'c>, body: Body, value: u32) -> Result<Made<'c>> {
    let (log, inside) = (m.take_log(2)?, m.take_log(1)?);
    let graph = m.graph(|| m.log(0, log, m.value()))?;
    let (node, inner) = graph.add_conditional(only(&graph)?, body, value)?;
    inner.capture(m.stream(0)?, || m.log(0, inside, m.value()))?;
    if value == 0 {
        m.never();
    }
    graph.capture_more(node, m.stream(0)?, || m.log(0, log, m.value()))?;
    Ok(m.part(graph)?.into())
}

/// Made so that kernels too could launch it; launched by the host.
fn for_kernels<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let (log, out) = (m.take_log(2)?, m.take(HEAD)?);
    let part = m.capture_with(
        || {
            m.log(0, log, m.value())?;
            m.copy(0, out, log.first(HEAD))?;
            m.log(0, log, m.value())
        },
        |graph| graph.instantiate_for_kernels(),
    )?;
    Ok(Made { parts: vec![part], play: Play::Uploaded })
}

/// One kernel, whose entry changes.
fn updated<'c>(m: &Maker<'c>) -> Result<Made<'c>> {
    let (log, entry): (Place, Rc<Cell<u32>>) = (m.take_log(1)?, Rc::new(Cell::new(m.value())));
    let mut part = m.capture(|| m.log(0, log, entry.get()))?;
    let its = Rc::clone(&entry);
    part.acts = vec![Box::new(move |model| model.log(log, its.get()))];
    let node = only(&part.graph)?;
    // A driver that cannot do it reports that before the first launch, here for a graph that is never launched.
    m.set_entry(&part.graph.instantiate()?, node, log, entry.get())?;
    Ok(Made { parts: vec![part], play: Play::Updated { node, log, entry } })
}
