//! Graphs that name pageable memory: the CPU moves the results of their launches when these have ended.

use crate::lane::Inner;
use crate::launching::{Form, Launching};
use gpu::Channel;
use std::time::Duration;

/// Moves the results of launches that have ended. Returns whether the program has the results of all launches now.
pub(crate) fn bring(Inner { graphs, leaving, channel, .. }: &mut Inner) -> bool {
    let mut all = true;
    for launching in graphs.iter_mut().filter_map(|place| place.item.as_mut()).chain(leaving) {
        if let Form::Staged(graph) = &mut launching.form {
            all &= graph.finish(channel);
        }
    }
    all
}

/// Frees the graphs that were released while their launches were pending, if these have ended. In CUDA's context, if there is
/// one.
pub(crate) fn give_back(Inner { leaving, channel, .. }: &mut Inner) {
    if leaving.is_empty() || matches!(channel.idle(Duration::ZERO), Err(gpu::Error::Timeout { .. })) {
        return;
    }
    for mut launching in leaving.drain(..) {
        end(&mut launching, channel);
    }
}

/// Moves the results of its last launch, which has ended.
pub(crate) fn end(launching: &mut Launching, channel: &Channel) {
    if let Form::Staged(graph) = &mut launching.form {
        graph.finish(channel);
    }
}
