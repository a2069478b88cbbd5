//! The maximum number of entries in a channel's ring: those submitted since it was last known to be empty.

use lock_analysis::fast_map::FastMap;
use std::collections::BTreeSet;

/// Maximum number of streams that are tracked.
const STREAMS: usize = 1 << 16;

/// The ring of one channel.
#[derive(Clone, Copy, Debug, Default)]
struct Ring {
    process: u32,
    /// Entries that it has room for; 0 if that is not known.
    room: u64,
    /// Entries since it was empty: an upper bound of those that are left.
    since: u64,
}

/// All channels of the recording.
#[derive(Debug, Default)]
pub struct Rings {
    of: FastMap<usize, Ring>,
    /// Channels by process and stream.
    streams: FastMap<(u32, u64), BTreeSet<usize>>,
}

impl Rings {
    pub fn submitted(&mut self, channel: usize, process: u32, room: u32, entries: usize, stream: Option<u64>) {
        let ring = self.of.entry(channel).or_default();
        (ring.process, ring.room) = (process, room.into());
        ring.since = ring.since.saturating_add(entries as u64);
        if let Some(stream) = stream
            && (self.streams.len() < STREAMS || self.streams.contains_key(&(process, stream)))
        {
            self.streams.entry((process, stream)).or_default().insert(channel);
        }
    }

    /// All submissions of this stream of the process are done; `None`: all submissions of the process.
    pub fn emptied(&mut self, process: u32, stream: Option<u64>) {
        match stream {
            None => self.of.values_mut().filter(|r| r.process == process).for_each(|r| r.since = 0),
            Some(stream) => {
                for channel in self.streams.get(&(process, stream)).into_iter().flatten() {
                    if let Some(r) = self.of.get_mut(channel) {
                        r.since = 0;
                    }
                }
            }
        }
    }

    /// Whether the channel's ring may be full: it has as many entries as its room, minus a sixteenth, because the CPU may have waited
    /// for room before it wrote its own.
    pub fn may_be_full(&self, channel: usize) -> bool {
        self.of.get(&channel).is_some_and(|r| r.room > 0 && r.since >= r.room - r.room / 16)
    }
}
