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

/// Where a GPU virtual address of an address space lies, and on which GPU if it is a GPU's memory.
pub fn place_in(graph: &ObjectGraph, space: Option<(u32, u32)>, va: u64) -> (Place, Option<u32>) {
    graph.place_in(space, va).map_or((Place::Unknown, None), |(p, gpu)| (place(p), gpu))
}

/// A class by name where it is known, else by number.
pub fn class_name(class: u32) -> String {
    match rm::class::name(class).or_else(|| pushbuf::class::by_id(class).map(|c| c.name)) {
        Some(n) => n.into(),
        None if class == 0 => String::new(),
        None => format!("class {class:#06x}"),
    }
}
