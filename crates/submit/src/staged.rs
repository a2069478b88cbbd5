//! Graphs that name pageable memory: the CPU moves the results of their launches when these are over.

use crate::lane::Inner;
use crate::launching::{Form, Launching};

/// Moves the results of launches that are over. Whether the program has those of all launches now.
pub(crate) fn bring(Inner { graphs, channel, .. }: &mut Inner) -> bool {
    let mut all = true;
    for place in graphs {
        if let Some(Form::Staged(graph)) = place.item.as_mut().map(|launching| &mut launching.form) {
            all &= graph.finish(channel);
        }
    }
    all
}

/// Before a lane is emptied. Pinned memory that a launch may still use stays for ever.
pub(crate) fn end(inner: &mut Inner, is_idle: bool) {
    bring(inner);
    let is_staged = |launching: &mut Launching| matches!(launching.form, Form::Staged(_));
    let places = inner.graphs.iter_mut().filter(|_| !is_idle);
    places.filter_map(|place| place.item.take_if(is_staged)).for_each(std::mem::forget);
}
