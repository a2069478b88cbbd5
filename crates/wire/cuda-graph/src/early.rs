//! Programmatic dependent launch: a kernel that begins before the one ahead of it has ended.
//!
//! CUDA uses three mechanisms for it (seen on an H200, driver 580.159.04, CUDA 13.0). The first kernel may start its dependents early
//! (ENABLE_PROGRAM_PRE_EXIT, by `griddepcontrol.launch_dependents`) and arrives at a latch when it is done. The second waits for that latch in
//! `griddepcontrol.wait`. All launches of a channel group share the latch numbers. CUDA gives each such edge of each executable graph a separate
//! number (0x438 and up, while streams take turns with lower ones). A copy of the graph with the same numbers would arrive at CUDA's.
//!
//! A recipe drops the overlap. Without these fields both QMDs are, field for field, those of two kernels in a plain chain of the same recording:
//! the second is started when the first is done. Neither instruction hangs then: in the recording the same code also ran as the first kernel, with
//! no latch to wait for, and as the last, with no dependent to start. The order holds only if the first kernel's end is the only thing that starts
//! the second; that is checked.

use crate::recipe::{Edge, How, Node, NodeId};
use crate::refused::Refused;
use pushbuf::qmd::{DependentAction, Qmd};
use std::collections::HashSet;

/// The QMD fields for it.
const FIELDS: [&str; 7] = [
    "ARRIVE_AT_LATCH_VALID",
    "ARRIVE_AT_LATCH_ID",
    "WAIT_ON_LATCH_VALID",
    "WAIT_ON_LATCH_ID",
    "ENABLE_PROGRAM_PRE_EXIT",
    "LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE",
    "LATCH_ACQUIRE_INVALIDATE_TEXTURE_DATA_CACHE",
];

fn is_set(qmd: &Qmd, field: &str) -> bool {
    qmd.field(field).is_some_and(|value| value != 0)
}

/// The latch that a QMD arrives at, or waits for.
fn latch(qmd: &Qmd, valid: &str, id: &str) -> Option<u64> {
    is_set(qmd, valid).then(|| qmd.field(id).unwrap_or(0))
}

fn arrives(qmd: &Qmd) -> Option<u64> {
    latch(qmd, "ARRIVE_AT_LATCH_VALID", "ARRIVE_AT_LATCH_ID")
}

fn waits(qmd: &Qmd) -> Option<u64> {
    latch(qmd, "WAIT_ON_LATCH_VALID", "WAIT_ON_LATCH_ID")
}

/// Accepts only the combinations that were seen: an early start with an arrival and vice versa, an invalidation only with a wait, a latch number
/// only with the field that it numbers.
pub(crate) fn check(address: u64, qmd: &Qmd) -> Result<(), Refused> {
    let needs = [
        ("ARRIVE_AT_LATCH_VALID", "ENABLE_PROGRAM_PRE_EXIT"),
        ("ARRIVE_AT_LATCH_ID", "ARRIVE_AT_LATCH_VALID"),
        ("ENABLE_PROGRAM_PRE_EXIT", "ARRIVE_AT_LATCH_VALID"),
        ("WAIT_ON_LATCH_ID", "WAIT_ON_LATCH_VALID"),
        ("LATCH_ACQUIRE_INVALIDATE_SHADER_DATA_CACHE", "WAIT_ON_LATCH_VALID"),
        ("LATCH_ACQUIRE_INVALIDATE_TEXTURE_DATA_CACHE", "WAIT_ON_LATCH_VALID"),
    ];
    match needs.into_iter().find(|(field, with)| is_set(qmd, field) && !is_set(qmd, with)) {
        Some((field, _)) => Err(Refused::QmdField { qmd: address, field, value: qmd.field(field).unwrap_or(0) }),
        None => Ok(()),
    }
}

/// Takes the overlap out of the nodes' QMDs, where the order stays.
pub(crate) fn drop_overlap(nodes: &mut [Node], edges: &[Edge], started: &HashSet<NodeId>) -> Result<(), Refused> {
    let of = |node: &Node| node.work.kernel().map(|k| (k.address, k.qmd));
    for (i, node) in nodes.iter().enumerate() {
        let Some((address, qmd)) = of(node) else { continue };
        let Some(latch) = waits(&qmd) else { continue };
        let ahead = ahead(NodeId(i), edges, started);
        let mut arriving =
            nodes.iter().enumerate().filter(|(_, n)| of(n).is_some_and(|(_, q)| arrives(&q) == Some(latch)));
        let refused = Refused::Latch { qmd: address, latch };
        let first = arriving.next().ok_or(refused.clone())?;
        if std::iter::once(first).chain(arriving).any(|(n, _)| !ahead.contains(&NodeId(n))) {
            return Err(refused);
        }
    }
    // A wait outside the graph would also wait for the copy's kernel.
    let unheard = nodes.iter().filter_map(of).find_map(|(qmd, words)| {
        let latch = arrives(&words)?;
        let heard = nodes.iter().filter_map(of).any(|(_, other)| waits(&other) == Some(latch));
        (!heard).then_some(Refused::LatchUnheard { qmd, latch })
    });
    if let Some(refused) = unheard {
        return Err(refused);
    }
    for node in nodes {
        if let Some(kernel) = node.work.kernel_mut() {
            for field in FIELDS.into_iter().filter(|field| is_set(&kernel.qmd, field)).collect::<Vec<_>>() {
                kernel.qmd.set(field, 0)?;
            }
        }
    }
    Ok(())
}

/// The nodes that have ended when this one starts, by their QMDs alone: it counts them, or they alone start it.
fn ahead(node: NodeId, edges: &[Edge], started: &HashSet<NodeId>) -> HashSet<NodeId> {
    let (mut ahead, mut left) = (HashSet::new(), vec![node]);
    while let Some(to) = left.pop() {
        let into: Vec<(NodeId, DependentAction)> = edges
            .iter()
            .filter(|edge| edge.to == to)
            .filter_map(|edge| match edge.how {
                How::Dependent { action, .. } => Some((edge.from, action)),
                _ => None,
            })
            .collect();
        let alone = into.len() == 1 && !started.contains(&to);
        for (from, action) in into {
            if (action == DependentAction::DecrementDependence || alone) && ahead.insert(from) {
                left.push(from);
            }
        }
    }
    ahead
}
