//! How busy the kernels of each stream kept the GPU, and the gaps between them (`record --gpu-times`).

use schema::channel::Channel;
use schema::kernels::StreamRow;
use schema::operations::{GpuTime, Start, When};
use schema::streams::StreamKind;
use std::collections::{BTreeMap, HashMap, VecDeque};
use tape::call::{CallBody, SMS_NOT_KNOWN, stream_is};

/// Minimum length of a gap that is counted, in nanoseconds: below this, one kernel follows the other.
pub const GAP: u64 = 10_000;
/// Maximum number of intervals of a stream that may still merge with others. Times before a forgotten interval are cut
/// off.
const REMEMBERED: usize = 1024;
/// Maximum number of streams; kernels of further ones are not counted.
const MOST: usize = 1 << 12;

/// A channel and the stream that was passed to the call, `None` outside of any call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Stream {
    pub process: u32,
    pub slot: u32,
    pub generation: u32,
    pub handle: Option<u64>,
}

impl Stream {
    pub fn of(when: &When) -> Stream {
        let handle = when.call.as_ref().map(|call| call.stream);
        Stream { process: when.process, slot: when.slot, generation: when.generation, handle }
    }

    /// As traces show it: events outside of any call are in the default stream.
    pub fn or_default(self) -> Stream {
        Stream { handle: Some(self.handle.unwrap_or(0)), ..self }
    }

    /// `stream 0x51 (priority -5)`. `kinds`: those of the recording.
    pub fn title(&self, kinds: &[StreamKind]) -> String {
        let handle = self.handle.unwrap_or(0);
        let kind = kinds.iter().find(|kind| (kind.process, kind.stream) == (self.process, handle));
        let words = kind.map_or(String::new(), |kind| format!(" ({})", kind.words()));
        format!("stream {handle:#x}{words}")
    }
}

/// A call has made a stream.
pub(crate) fn made(kinds: &mut BTreeMap<(u32, u64), StreamKind>, process: u32, c: &CallBody) {
    let at = (process, c.stream);
    let (priority, sms) = stream_is(c.object);
    if (priority, sms) == (0, 0) {
        kinds.remove(&at);
    } else if kinds.len() < MOST || kinds.contains_key(&at) {
        let (green, sms) = (sms != 0, (sms != 0 && sms != SMS_NOT_KNOWN).then_some(sms));
        kinds.insert(at, StreamKind { process, stream: c.stream, priority, green, sms });
    }
}

/// Merges overlapping times into separate intervals. Works best if they are added in the order of their ends.
#[derive(Debug, Default)]
pub struct Apart {
    open: VecDeque<(u64, u64)>,
    /// The end of the last interval that was passed on.
    done: u64,
}

impl Apart {
    /// Adds a time. Calls `done` with each interval that can no longer grow, in order.
    pub fn add(&mut self, from: u64, to: u64, done: impl FnOnce(u64, u64)) {
        let (mut from, mut to) = (from.max(self.done), to);
        if from > to {
            return;
        }
        let first = self.open.partition_point(|s| s.1 < from);
        let behind = self.open.partition_point(|s| s.0 <= to);
        if first < behind {
            (from, to) = (from.min(self.open[first].0), to.max(self.open[behind - 1].1));
            self.open.drain(first..behind);
        }
        self.open.insert(first, (from, to));
        if self.open.len() > REMEMBERED
            && let Some((from, to)) = self.open.pop_front()
        {
            self.done = to;
            done(from, to);
        }
    }

    /// The remaining intervals.
    pub fn finish(self) -> impl Iterator<Item = (u64, u64)> {
        self.open.into_iter()
    }
}

/// All streams.
#[derive(Debug, Default)]
pub struct Streams(HashMap<Stream, One>);

#[derive(Debug, Default)]
struct One {
    apart: Apart,
    busy: Busy,
    runs: u64,
    bounded: u64,
    queued: u64,
}

#[derive(Debug, Default)]
struct Busy {
    first: Option<u64>,
    last: u64,
    ns: u64,
    gaps: u64,
    gaps_ns: u64,
    longest: u64,
}

impl Busy {
    fn add(&mut self, from: u64, to: u64) {
        if self.first.is_some() {
            let gap = from.saturating_sub(self.last);
            self.longest = self.longest.max(gap);
            if gap > GAP {
                self.gaps += 1;
                self.gaps_ns += gap;
            }
        }
        self.first.get_or_insert(from);
        self.last = to;
        self.ns += to - from;
    }
}

impl Streams {
    /// Adds a run of a kernel.
    pub fn add(&mut self, stream: Stream, time: &GpuTime) {
        if self.0.len() >= MOST && !self.0.contains_key(&stream) {
            return;
        }
        let one = self.0.entry(stream).or_default();
        one.runs += 1;
        one.bounded += u64::from(time.start == Start::Bounded);
        one.queued = one.queued.saturating_add(time.queued_ns);
        one.apart.add(time.start_ns, time.end_ns, |from, to| one.busy.add(from, to));
    }

    /// A row for each stream, the busiest first. `channels` and `kinds`: those of the recording.
    pub fn rows<'k>(self, channels: &[Channel], kinds: impl IntoIterator<Item = &'k StreamKind>) -> Vec<StreamRow> {
        let kinds: HashMap<_, StreamKind> = kinds.into_iter().map(|k| ((k.process, k.stream), *k)).collect();
        let by: HashMap<_, &Channel> = channels.iter().map(|c| ((c.process, c.slot, c.generation), c)).collect();
        let mut all: Vec<(Stream, StreamRow)> = self
            .0
            .into_iter()
            .map(|(s, one)| {
                let kind = s.handle.and_then(|handle| kinds.get(&(s.process, handle)).copied());
                (s, StreamRow { kind, ..one.row(s, by.get(&(s.process, s.slot, s.generation)).copied()) })
            })
            .collect();
        all.sort_by(|(a, x), (b, y)| y.busy_ns.cmp(&x.busy_ns).then_with(|| a.cmp(b)));
        all.into_iter().map(|(_, row)| row).collect()
    }
}

impl One {
    fn row(self, s: Stream, channel: Option<&Channel>) -> StreamRow {
        let mut busy = self.busy;
        self.apart.finish().for_each(|(from, to)| busy.add(from, to));
        let span_ns = busy.last - busy.first.unwrap_or(busy.last);
        StreamRow {
            process: s.process,
            pid: channel.map_or(0, |c| c.pid),
            slot: s.slot,
            generation: s.generation,
            gpu: channel.and_then(|c| c.gpu),
            engine: channel.map_or_else(String::new, |c| c.engine.clone()),
            stream: s.handle,
            kind: None,
            runs: self.runs,
            bounded: self.bounded,
            span_ns,
            busy_ns: busy.ns,
            share: busy.ns as f64 / span_ns.max(1) as f64,
            queued_ns: self.queued,
            gaps: busy.gaps,
            gaps_ns: busy.gaps_ns,
            longest_gap_ns: busy.longest,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: Stream = Stream { process: 0, slot: 1, generation: 0, handle: Some(0x51) };

    fn row(times: &[(u64, u64)]) -> StreamRow {
        let mut streams = Streams::default();
        for &(from, to) in times {
            let start = if from % 2 == 1 { Start::Bounded } else { Start::AfterTheDoorbell };
            let time =
                GpuTime { end_ns: to, start_ns: from, earliest_ns: from, start, queued_ns: 7, clock_error_ns: 0 };
            streams.add(STREAM, &time);
        }
        streams.rows(&[], []).remove(0)
    }

    #[test]
    fn kernels_that_overlap_are_counted_once_and_gaps_are_between_them() {
        let row =
            row(&[(0, 1_000), (2_000, 5_000), (3_001, 6_000), (1_500, 7_000), (17_001, 20_000), (30_000, 31_000)]);
        assert_eq!((row.runs, row.bounded, row.queued_ns), (6, 2, 42));
        assert_eq!((row.busy_ns, row.span_ns), (1_000 + 5_500 + 2_999 + 1_000, 31_000));
        // (10,000 ns are no gap, 10,001 are one.)
        assert_eq!((row.gaps, row.gaps_ns, row.longest_gap_ns), (1, 10_001, 10_001));
        assert!((row.share - 10_499.0 / 31_000.0).abs() < 1e-9);
    }

    #[test]
    fn times_that_come_by_their_ends_are_as_those_of_a_sorted_list() {
        let mut random = 1u64;
        let mut next = |below: u64| {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (random >> 33) % below
        };
        let mut times: Vec<(u64, u64)> = (0..100_000)
            .map(|n| {
                let to = 1_000_000 + n * 900 + next(20_000);
                (to - next(1_500), to)
            })
            .collect();
        times.sort_by_key(|t| t.1);
        let of_all = row(&times);
        times.sort_unstable();
        let (mut busy, mut last) = (0, times[0].0);
        for (from, to) in times {
            busy += to.max(last) - from.max(last);
            last = last.max(to);
        }
        assert_eq!(of_all.busy_ns, busy);
    }

    #[test]
    fn a_stream_has_what_is_known_of_its_channel() {
        let mut streams = Streams::default();
        let time =
            GpuTime { end_ns: 9, start_ns: 9, earliest_ns: 9, start: Start::Bounded, queued_ns: 0, clock_error_ns: 0 };
        streams.add(STREAM, &time);
        let channel = Channel { slot: 1, pid: 12, gpu: Some(3), engine: "GRAPHICS".into(), ..Channel::default() };
        let kind = StreamKind { process: 0, stream: 0x51, priority: -5, green: true, sms: Some(16) };
        let row = &streams.rows(&[Channel::default(), channel], &[StreamKind { stream: 0x52, ..kind }, kind])[0];
        assert_eq!(row.kind, Some(kind));
        assert_eq!((row.pid, row.gpu, row.engine.as_str(), row.stream), (12, Some(3), "GRAPHICS", Some(0x51)));
        assert_eq!((row.runs, row.busy_ns, row.share), (1, 0, 0.0));
    }
}
