//! Where memory lies, as the driver calls on the tape say.

use rm::graph::ObjectGraph;
use schema::Place;

/// Where a GPU virtual address lies now.
pub fn place_at(graph: &ObjectGraph, va: u64) -> Place {
    graph.place_of(va).map_or(Place::Unknown, |l| place(l.place))
}

/// The graph's place as a row has it.
pub fn place(p: rm::graph::Place) -> Place {
    match p {
        rm::graph::Place::Video => Place::Video,
        rm::graph::Place::Host => Place::Host,
        rm::graph::Place::Unknown => Place::Unknown,
    }
}

/// The places of all mapped GPU addresses at one moment, quicker to ask than the graph.
#[derive(Debug)]
pub(crate) struct Places {
    /// Start, end, place; sorted, not overlapping.
    ranges: Vec<(u64, u64, Place)>,
    /// The graph has learnt something since.
    pub stale: bool,
}

impl Default for Places {
    fn default() -> Places {
        Places { ranges: Vec::new(), stale: true }
    }
}

impl Places {
    pub fn refresh(&mut self, graph: &ObjectGraph) {
        if !self.stale {
            return;
        }
        self.stale = false;
        self.ranges.clear();
        self.ranges.extend(graph.gpu_mappings().map(|m| (m.base, m.base.saturating_add(m.length), place(m.place))));
    }

    pub fn at(&self, va: u64) -> Place {
        let i = self.ranges.partition_point(|(start, ..)| *start <= va);
        match i.checked_sub(1).map(|i| self.ranges[i]) {
            Some((_, end, place)) if va < end => place,
            _ => Place::Unknown,
        }
    }
}

/// A class by name where it is known, else by number.
pub fn class_name(class: u32) -> String {
    match rm::class::name(class).or_else(|| pushbuf::class::by_id(class).map(|c| c.name)) {
        Some(n) => n.into(),
        None if class == 0 => String::new(),
        None => format!("class {class:#06x}"),
    }
}
