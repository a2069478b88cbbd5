//! The commands that the calls of a cell sent to the GPU, from the recording of its process.
//!
//! A part stores how many calls had each value ([`Spread`]), so parts of several repeats add up exactly; `run.json` has the minimum, the median and
//! the maximum of each.

mod compared;

pub use compared::{Differing, Said, compared};

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The data for finding a part's samples in the recording of its process: the measuring thread, and the time stamp counter at two moments.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Counter {
    pub pid: i32,
    pub tid: i32,
    pub began: Anchor,
    pub ended: Anchor,
}

/// One moment on the clock of the samples and on the time stamp counter.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Anchor {
    /// Since the part began.
    pub ns: u64,
    pub tsc: u64,
    /// How far apart the two readings can be.
    pub error_ns: f64,
}

/// The recording of a part, and how it was joined with the samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Recorded {
    /// Its file, in the run's folder.
    pub tape: String,
    /// Why it was not joined with the samples; then no cell has commands.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_joined: Option<String>,
    /// How far the clocks of samples and recording can be apart.
    pub clock_error_ns: f64,
    /// Why the recording is incomplete: counts may be too low.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incomplete_because: Vec<String>,
    pub doorbells: Doorbells,
}

/// Every doorbell of a recording, by when it was rung.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Doorbells {
    /// By the measuring thread between a sample's call and the call's return.
    pub in_calls: u64,
    /// By it between a call's return and the end of the sample.
    pub waiting: u64,
    /// By it at any other time: opening, warming up, comparing.
    pub untimed: u64,
    pub other_threads: u64,
}

/// The commands of one call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Call {
    pub doorbells: u64,
    /// GPFIFO entries.
    pub entries: u64,
    /// Bytes of the segments that the entries point to.
    pub pushbuffer_bytes: u64,
    /// The inline data in them.
    pub inline_bytes: u64,
    /// Operations of pthread locks; a lock with its unlock is one.
    pub locks: u64,
    pub lock_wait_ns: u64,
    /// From the call to its first doorbell; none without a doorbell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_doorbell_ns: Option<u64>,
    /// The executors that moved bytes or ran: `inline`, `COPY2`, `fill COPY2`, `kernel`.
    pub executors: BTreeMap<String, Moved<u64>>,
    /// Writes of methods, by class.
    pub methods: BTreeMap<String, u64>,
}

/// Operations of an executor, and the bytes that they moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved<T> {
    pub operations: T,
    pub bytes: T,
}

/// How many calls had each value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Spread(BTreeMap<u64, u64>);

/// Figures over calls.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Typical {
    pub min: u64,
    /// For an even number of calls, the lower of the two in the middle.
    pub median: u64,
    pub max: u64,
    pub mean: f64,
}

impl Spread {
    pub fn add(&mut self, value: u64) {
        self.add_many(value, 1);
    }

    fn add_many(&mut self, value: u64, calls: u64) {
        if calls > 0 {
            *self.0.entry(value).or_default() += calls;
        }
    }

    fn merge(&mut self, other: &Spread) {
        other.0.iter().for_each(|(value, calls)| self.add_many(*value, *calls));
    }

    pub fn calls(&self) -> u64 {
        self.0.values().sum()
    }

    /// Each value, and how many calls had it.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().map(|(value, calls)| (*value, *calls))
    }

    /// All zero without calls.
    pub fn typical(&self) -> Typical {
        let calls = self.calls();
        let (Some((min, _)), Some((max, _))) = (self.0.first_key_value(), self.0.last_key_value()) else {
            return Typical::default();
        };
        let mut before = 0;
        let middle = self.0.iter().find(|(_, n)| {
            before += **n;
            before * 2 >= calls
        });
        let median = middle.map_or(*max, |(value, _)| *value);
        let sum: f64 = self.0.iter().map(|(value, n)| *value as f64 * *n as f64).sum();
        Typical { min: *min, median, max: *max, mean: sum / calls as f64 }
    }
}

/// The commands of all calls of a cell, in one part.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Commands {
    pub calls: u64,
    /// The first call, which is not included in the others.
    pub first: Call,
    pub doorbells: Spread,
    pub entries: Spread,
    pub pushbuffer_bytes: Spread,
    pub inline_bytes: Spread,
    pub locks: Spread,
    pub lock_wait_ns: Spread,
    /// Only calls that rang a doorbell.
    #[serde(default)]
    pub until_doorbell_ns: Spread,
    pub executors: BTreeMap<String, Moved<Spread>>,
    pub methods: BTreeMap<String, Spread>,
    pub channels: Vec<UsedChannel>,
}

/// A channel that calls of a cell used, the places of its parts, and the commands that all calls together sent through it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct UsedChannel {
    /// `COPY2`, `GRAPHICS`; empty if it is not known.
    pub engine: String,
    /// `host`, `video` or `?`.
    pub gpfifo: String,
    pub userd: String,
    pub pushbuffer: String,
    /// Places of the semaphores that it released.
    pub semaphores: Vec<String>,
    pub doorbells: u64,
    pub entries: u64,
    pub pushbuffer_bytes: u64,
}

impl Commands {
    /// From all calls of a cell, in their order.
    pub fn of(calls: &[Call], channels: Vec<UsedChannel>) -> Option<Commands> {
        let (first, others) = calls.split_first()?;
        let mut all = Commands { calls: others.len() as u64, first: first.clone(), channels, ..Commands::default() };
        others.iter().for_each(|call| all.add(call));
        all.pad();
        Some(all)
    }

    fn add(&mut self, call: &Call) {
        self.doorbells.add(call.doorbells);
        self.entries.add(call.entries);
        self.pushbuffer_bytes.add(call.pushbuffer_bytes);
        self.inline_bytes.add(call.inline_bytes);
        self.locks.add(call.locks);
        self.lock_wait_ns.add(call.lock_wait_ns);
        call.until_doorbell_ns.iter().for_each(|ns| self.until_doorbell_ns.add(*ns));
        for (name, moved) in &call.executors {
            let of = self.executors.entry(name.clone()).or_default();
            of.operations.add(moved.operations);
            of.bytes.add(moved.bytes);
        }
        for (class, writes) in &call.methods {
            self.methods.entry(class.clone()).or_default().add(*writes);
        }
    }

    /// Adds zeros for calls without an executor or class.
    fn pad(&mut self) {
        let calls = self.calls;
        let executors = self.executors.values_mut().flat_map(|of| [&mut of.operations, &mut of.bytes]);
        for spread in executors.chain(self.methods.values_mut()) {
            spread.add_many(0, calls - spread.calls());
        }
    }

    /// Merges several parts; the first call is that of the first part.
    pub fn merged<'c>(mut parts: impl Iterator<Item = &'c Commands>) -> Option<Commands> {
        let mut all = parts.next()?.clone();
        for part in parts {
            all.calls += part.calls;
            let spreads = [
                (&mut all.doorbells, &part.doorbells),
                (&mut all.entries, &part.entries),
                (&mut all.pushbuffer_bytes, &part.pushbuffer_bytes),
                (&mut all.inline_bytes, &part.inline_bytes),
                (&mut all.locks, &part.locks),
                (&mut all.lock_wait_ns, &part.lock_wait_ns),
                (&mut all.until_doorbell_ns, &part.until_doorbell_ns),
            ];
            spreads.into_iter().for_each(|(all, part)| all.merge(part));
            for (name, moved) in &part.executors {
                let of = all.executors.entry(name.clone()).or_default();
                of.operations.merge(&moved.operations);
                of.bytes.merge(&moved.bytes);
            }
            for (class, writes) in &part.methods {
                all.methods.entry(class.clone()).or_default().merge(writes);
            }
            part.channels.iter().for_each(|channel| channel.add_to(&mut all.channels));
            all.pad();
        }
        Some(all)
    }
}

impl UsedChannel {
    /// Adds it to the channel that is equal except for its counts.
    pub fn add_to(&self, all: &mut Vec<UsedChannel>) {
        let key = |c: &UsedChannel| UsedChannel { doorbells: 0, entries: 0, pushbuffer_bytes: 0, ..c.clone() };
        match all.iter_mut().find(|c| key(c) == key(self)) {
            Some(same) => {
                same.doorbells += self.doorbells;
                same.entries += self.entries;
                same.pushbuffer_bytes += self.pushbuffer_bytes;
            }
            None => all.push(self.clone()),
        }
    }
}

/// The commands of a cell's calls, over all repeats.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CommandsOfRun {
    /// All but the first of each repeat.
    pub calls: u64,
    /// The first of the first repeat.
    pub first: Call,
    pub doorbells: Typical,
    pub entries: Typical,
    pub pushbuffer_bytes: Typical,
    pub inline_bytes: Typical,
    pub locks: Typical,
    pub lock_wait_ns: Typical,
    /// From the call to its first doorbell, for calls that rang one: locks and building commands, in a recorded process.
    pub until_doorbell_ns: Typical,
    pub executors: BTreeMap<String, Moved<Typical>>,
    pub methods: BTreeMap<String, Typical>,
    pub channels: Vec<UsedChannel>,
    pub to_gpu: ToGpu,
}

/// Bytes that a call sends over the bus to the GPU before any payload; the mean over all calls. Packet headers, read requests and traffic in the
/// other direction are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToGpu {
    /// Stores of the CPU: four bytes a doorbell.
    pub doorbell: f64,
    /// Stores of the CPU: eight bytes for each entry, if the GPFIFO is in GPU memory.
    pub gpfifo: f64,
    /// Stores of the CPU: GP_PUT, four bytes for each doorbell, if USERD is in GPU memory.
    pub userd: f64,
    /// Segments in GPU memory, which the GPU reads there. The recording does not show which of their bytes the CPU stores for a submission: a
    /// prepared segment is already there, except for a word or two.
    #[serde(alias = "pushbuffer_stored")]
    pub not_fetched: f64,
    /// Read by the GPU: segments, and entries if the GPFIFO is in host memory.
    pub fetched: f64,
    /// Bytes of channels whose places are unknown; not included in the others.
    pub unknown: f64,
}

impl ToGpu {
    fn of(channels: &[UsedChannel], calls: u64) -> ToGpu {
        let mut all = ToGpu::default();
        for c in channels {
            let (doorbells, entries, pushbuffer) = (4 * c.doorbells, 8 * c.entries, c.pushbuffer_bytes);
            all.doorbell += doorbells as f64;
            match c.gpfifo.as_str() {
                "video" => all.gpfifo += entries as f64,
                "host" => all.fetched += entries as f64,
                _ => all.unknown += entries as f64,
            }
            match c.userd.as_str() {
                "video" => all.userd += doorbells as f64,
                // The GPU reads GP_PUT there; how often is unknown.
                "host" => {}
                _ => all.unknown += doorbells as f64,
            }
            match c.pushbuffer.as_str() {
                "video" => all.not_fetched += pushbuffer as f64,
                "host" => all.fetched += pushbuffer as f64,
                _ => all.unknown += pushbuffer as f64,
            }
        }
        let each = |sum: f64| if calls == 0 { 0.0 } else { sum / calls as f64 };
        ToGpu {
            doorbell: each(all.doorbell),
            gpfifo: each(all.gpfifo),
            userd: each(all.userd),
            not_fetched: each(all.not_fetched),
            fetched: each(all.fetched),
            unknown: each(all.unknown),
        }
    }

    /// All known bytes over the bus.
    pub fn sum(&self) -> f64 {
        self.doorbell + self.gpfifo + self.userd + self.fetched
    }
}

impl CommandsOfRun {
    /// `None` where no part has any.
    pub fn of<'c>(parts: impl Iterator<Item = &'c Commands>) -> Option<CommandsOfRun> {
        let mut first_calls = 0;
        let all = Commands::merged(parts.inspect(|_| first_calls += 1))?;
        let moved = |of: &Moved<Spread>| Moved { operations: of.operations.typical(), bytes: of.bytes.typical() };
        Some(CommandsOfRun {
            calls: all.calls,
            doorbells: all.doorbells.typical(),
            entries: all.entries.typical(),
            pushbuffer_bytes: all.pushbuffer_bytes.typical(),
            inline_bytes: all.inline_bytes.typical(),
            locks: all.locks.typical(),
            lock_wait_ns: all.lock_wait_ns.typical(),
            until_doorbell_ns: all.until_doorbell_ns.typical(),
            executors: all.executors.iter().map(|(name, of)| (name.clone(), moved(of))).collect(),
            methods: all.methods.iter().map(|(class, of)| (class.clone(), of.typical())).collect(),
            to_gpu: ToGpu::of(&all.channels, all.calls + first_calls),
            first: all.first,
            channels: all.channels,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(doorbells: u64, executor: Option<&str>) -> Call {
        let executors =
            executor.map(|name| (name.to_owned(), Moved { operations: 1, bytes: 64 })).into_iter().collect();
        Call { doorbells, executors, ..Call::default() }
    }

    #[test]
    fn the_first_call_is_separate_and_calls_without_an_executor_count_as_none() {
        let calls = [call(9, None), call(1, Some("inline")), call(2, None), call(1, Some("inline"))];
        let all = Commands::of(&calls, Vec::new()).unwrap();
        assert_eq!((all.calls, all.first.doorbells), (3, 9));
        assert_eq!(all.doorbells.typical(), Typical { min: 1, median: 1, max: 2, mean: 4.0 / 3.0 });
        let Moved { operations, bytes } = &all.executors["inline"];
        assert_eq!((operations.typical().min, operations.typical().median), (0, 1));
        assert_eq!(bytes.typical(), Typical { min: 0, median: 64, max: 64, mean: 128.0 / 3.0 });
        assert_eq!(Commands::of(&[], Vec::new()), None);
    }

    #[test]
    fn parts_add_up_as_if_they_were_one() {
        let one = Commands::of(&[call(9, None), call(1, Some("inline")), call(3, None)], Vec::new()).unwrap();
        let two = Commands::of(&[call(9, None), call(2, Some("COPY2"))], Vec::new()).unwrap();
        let all = Commands::merged([&one, &two].into_iter()).unwrap();
        assert_eq!((all.calls, all.doorbells.typical().median), (3, 2));
        for name in ["inline", "COPY2"] {
            let operations = &all.executors[name].operations;
            assert_eq!(operations.calls(), 3, "{name}");
            assert_eq!(operations.typical(), Typical { min: 0, median: 0, max: 1, mean: 1.0 / 3.0 });
        }
    }

    #[test]
    fn bytes_on_the_bus_depend_on_the_memory() {
        let channel = |gpfifo: &str, userd: &str, pushbuffer: &str| UsedChannel {
            gpfifo: gpfifo.into(),
            userd: userd.into(),
            pushbuffer: pushbuffer.into(),
            doorbells: 10,
            entries: 20,
            pushbuffer_bytes: 600,
            ..UsedChannel::default()
        };
        let all = |channel: UsedChannel| ToGpu::of(&[channel], 10);
        let as_cuda = all(channel("video", "video", "host"));
        assert_eq!((as_cuda.doorbell, as_cuda.gpfifo, as_cuda.userd, as_cuda.fetched), (4.0, 16.0, 4.0, 60.0));
        assert_eq!((as_cuda.sum(), as_cuda.unknown), (84.0, 0.0));
        let in_host = all(channel("host", "host", "video"));
        assert_eq!((in_host.gpfifo, in_host.not_fetched, in_host.fetched), (0.0, 60.0, 16.0));
        assert_eq!(all(channel("?", "?", "?")).unknown, 80.0);
        assert_eq!(ToGpu::of(&[], 0), ToGpu::default());
    }

    #[test]
    fn channels_that_are_alike_are_one() {
        let channel = UsedChannel { engine: "COPY2".into(), doorbells: 3, entries: 4, ..UsedChannel::default() };
        let mut all = vec![channel.clone()];
        channel.add_to(&mut all);
        UsedChannel { engine: "COPY3".into(), ..channel }.add_to(&mut all);
        assert_eq!(all.iter().map(|c| (c.doorbells, c.entries)).collect::<Vec<_>>(), [(6, 8), (3, 4)]);
    }
}
