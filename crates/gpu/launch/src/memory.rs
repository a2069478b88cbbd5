//! doorbell's memory for a graph: the places of its QMDs and banks, and pins of the program's memory.

use crate::error::Error;
use cuda_graph::{Block, Memory as Of, Recipe, Refused, Site, Target, Touched};
use gpu::{AddressSpace, Memory, Pin, Region};
use std::collections::BTreeMap;
use std::sync::Arc;

/// As CUDA places QMDs.
const QMD_STRIDE: u64 = 0x200;
/// Banks do not share bytes that the GPU reads together.
const BANK_STRIDE: u64 = 0x100;

/// Moves the graph into doorbell's memory.
pub(crate) fn move_in(recipe: &Recipe, space: &Arc<AddressSpace>) -> Result<(Recipe, Arc<Memory>), Error> {
    let size = |block: &Block| match block.memory {
        Of::Qmd(_) => Some(block.bytes.next_multiple_of(QMD_STRIDE)),
        Of::Bank(_) => Some(block.bytes.next_multiple_of(BANK_STRIDE)),
        // The channel's own tracker replaces CUDA's counters and trackers.
        Of::Counter(_) | Of::Tracker => None,
    };
    // QMDs first: they stay together and at multiples of their stride.
    let order = |block: &Block| !matches!(block.memory, Of::Qmd(_));
    let (mut places, mut end) = (BTreeMap::new(), 0);
    for late in [false, true] {
        for (i, block) in recipe.blocks.iter().enumerate().filter(|(_, block)| order(block) == late) {
            if let Some(bytes) = size(block) {
                places.insert(i, end);
                end += bytes;
            }
        }
    }
    let memory = space.alloc_for_launch(end)?;
    let moved = recipe.relocate(|id, block| places.get(&id.0).map_or(block.address, |offset| memory.va() + offset))?;
    Ok((moved, memory))
}

/// Pins the memory that copies, fills and writes touch: one pin for each range; overlapping ranges are joined.
pub(crate) fn pin(touched: &[Touched], recipe: &Recipe, space: &Arc<AddressSpace>) -> Result<Vec<Pin>, Error> {
    let mut ranges: Vec<_> = touched.iter().filter(|t| t.bytes > 0).collect();
    ranges.sort_by_key(|t| t.address);
    let mut joined: Vec<(usize, u64, u64)> = Vec::new();
    for touched in ranges {
        let end = touched.address.checked_add(touched.bytes).ok_or(Refused::Form { what: "a range that overflows" })?;
        match joined.last_mut() {
            Some((_, _, last)) if touched.address < *last => *last = end.max(*last),
            _ => joined.push((touched.node.0, touched.address, end)),
        }
    }
    let pin = |(node, address, end): (usize, u64, u64)| {
        let bytes = end - address;
        space.pin(address, bytes).map_err(|cause| {
            let what = recipe.nodes.get(node).map_or("node", |n| n.work.name());
            Error::NotPinned { node, what, address, bytes, cause }
        })
    };
    joined.into_iter().map(pin).collect()
}

/// Watches CUDA's mappings that kernels need: their code, and shared constant banks.
pub(crate) fn watch(recipe: &Recipe, space: &Arc<AddressSpace>) -> Vec<Pin> {
    let of_qmds = |site: &Site| matches!(site, Site::Program(_) | Site::Prefetch(_) | Site::ConstantBuffer(..));
    let foreign = recipe.references().filter(|r| of_qmds(&r.site)).filter_map(|r| match r.target {
        Target::Foreign(address) => Some(address),
        Target::Own(..) => None,
    });
    space.watch_mappings(foreign)
}

/// The regions of pins, for the validator.
pub(crate) fn regions(pins: &[Pin]) -> Vec<Region> {
    pins.iter().map(|pin| pin.region().clone()).collect()
}
