//! What CUDA sent to its channels, in the form that a recipe needs.

use cuda_graph::{Channel, Segment};
use gpu::Given;

/// Channels by handle, in the order of first use.
pub(crate) fn channels_of<'a>(given: impl Iterator<Item = &'a Given>) -> (Vec<u32>, Vec<Channel>) {
    let mut handles: Vec<u32> = Vec::new();
    let mut channels: Vec<Channel> = Vec::new();
    for channel in given.flat_map(|given| &given.channels) {
        if !handles.contains(&channel.handle) {
            handles.push(channel.handle);
            channels.push(Channel { class: channel.class, engines: channel.engines.clone(), group: channel.group });
        }
    }
    (handles, channels)
}

/// The channels and the segments of one reading, channel by channel.
pub(crate) fn segments_of(given: &Given) -> (Vec<Channel>, Vec<Segment<'_>>) {
    let numbered = given.channels.iter().enumerate();
    let segments = numbered.flat_map(|(channel, of)| of.segments.iter().map(move |words| Segment { channel, words }));
    (channels_of(std::iter::once(given)).1, segments.collect())
}
