//! Where memory is, according to the driver calls on the tape.

use rm::graph::ObjectGraph;
use schema::Place;

/// The graph's place in the form for rows.
pub fn place(p: rm::graph::Place) -> Place {
    match p {
        rm::graph::Place::Video => Place::Video,
        rm::graph::Place::Host => Place::Host,
        rm::graph::Place::Unknown => Place::Unknown,
    }
}

/// The address space and the GPU of a channel, as far as they are known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Reach {
    /// Client and handle.
    pub space: Option<(u32, u32)>,
    /// Device instance.
    pub gpu: Option<u32>,
}

pushbuf::snapshot!(Reach { space, gpu });

/// Where a GPU virtual address points for a channel, and on which GPU if it is GPU memory.
pub fn place_in(graph: &ObjectGraph, reach: Reach, va: u64) -> (Place, Option<u32>) {
    graph.place_in(reach.space, reach.gpu, va).map_or((Place::Unknown, None), |(p, gpu)| (place(p), gpu))
}

/// A class by name if that is known, else by number.
pub fn class_name(class: u32) -> String {
    match rm::class::name(class).or_else(|| pushbuf::class::by_id(class).map(|c| c.name)) {
        Some(n) => n.into(),
        None if class == 0 => String::new(),
        None => format!("class {class:#06x}"),
    }
}
