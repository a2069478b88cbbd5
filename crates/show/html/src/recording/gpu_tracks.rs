//! The GPU's tracks of a timeline: when the kernels of each stream ran (`record --gpu-times`).
//!
//! As on the other rows a page has room for so many. These kernels are bars: the longest, the longest of each name, and those that the longest launching
//! calls started. All are counted: a track has bins with the share of time in which one of its kernels ran.

use crate::recording::streams::title;
use decode::streams::{Apart, Stream, Streams};
use decode::{Largest, short_name};
use export::About;
use schema::happened::OneCall;
use schema::kernel_runs::KernelRun;
use schema::kernels::StreamRow;
use schema::operations::{Shape, Start};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use terminal::cell;

/// Kernels that are bars because they are the longest.
const LONGEST: usize = 10_000;
/// Kernels that are bars because a long call launched them, such calls, and kernels of one of them.
const OF_CALLS: usize = 2_000;
const CALLS: usize = 1_000;
const OF_ONE_CALL: u32 = 100;
/// Tracks; what other streams did is on the last one.
const TRACKS: usize = 32;
/// Rows of a track for kernels that overlap.
const LANES: usize = 6;
/// Bins of time of a track, and of all tracks together.
const BINS: usize = 2_000;
const ALL_BINS: usize = 16_000;
/// Names that are told apart, letters of a short one, and bytes of all whole ones.
const NAMES: usize = 2_000;
const LETTERS: usize = 90;
const WHOLE: usize = 128 << 10;
/// Grids that are told apart.
const GRIDS: usize = 1_000;
/// Stands for the texts that are more.
const MANY: &str = "(one of many)";

/// Kinds of bars: more may follow.
const BARS: [&str; 1] = ["kernel"];
const KERNEL: i64 = 0;

/// A process image, a thread, and the number of one of its calls.
pub type CallKey = (u32, i32, u32);

/// Ordered by how long it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Bar {
    ns: u64,
    /// Counts all, in the order of their doorbells.
    number: u64,
    from: i64,
    track: usize,
    name: usize,
    grid: usize,
    start: u8,
    in_graph: bool,
    /// By so much it may have started earlier.
    earlier: u64,
    queued: u64,
    call: Option<CallKey>,
}

struct Track {
    apart: Apart,
    /// Nanoseconds of each bin in which a kernel ran.
    busy: Vec<u64>,
}

/// A call that launched a bar.
struct Call {
    lane: usize,
    from: i64,
    ns: u64,
    name: usize,
}

/// Texts by their numbers, the first ones that came.
struct Texts {
    all: Vec<String>,
    numbers: HashMap<String, usize>,
    room: usize,
}

impl Texts {
    fn of(room: usize) -> Texts {
        Texts { all: Vec::new(), numbers: HashMap::new(), room }
    }

    fn number(&mut self, text: &str) -> usize {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let text = if self.all.len() + 1 < self.room { text } else { MANY };
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        self.all.push(text.to_owned());
        self.numbers.insert(text.to_owned(), self.all.len() - 1);
        self.all.len() - 1
    }
}

pub struct GpuTracks {
    /// Of the recording, in ns.
    end: u64,
    tracks: Vec<Track>,
    places: HashMap<Stream, usize>,
    others: Option<usize>,
    /// By their whole names.
    names: Texts,
    /// The code of the last kernel, and the number of its name.
    last: Option<(u64, usize)>,
    grids: Texts,
    longest: Largest<Bar>,
    of_name: Vec<Option<Bar>>,
    /// The longest launching calls, and how many of their kernels are bars.
    long_calls: HashMap<CallKey, (u64, u32)>,
    of_calls: Largest<(u64, Bar)>,
    streams: Streams,
    all: u64,
    /// Calls that are asked for, once all kernels are known.
    wanted: Option<BTreeSet<CallKey>>,
    calls: BTreeMap<CallKey, Call>,
}

/// What a page shows of it.
pub struct Shown {
    pub data: serde_json::Value,
    pub streams: Vec<StreamRow>,
    /// Kernels, and those of them that are bars.
    pub all: u64,
    pub single: u64,
    /// Nanoseconds of a bin.
    pub bin: u64,
}

/// The calls whose kernels are bars in any case: those that took the longest to launch something.
pub struct LongCalls(Largest<(u64, CallKey)>);

impl Default for LongCalls {
    fn default() -> LongCalls {
        LongCalls(Largest::new(CALLS))
    }
}

impl LongCalls {
    pub fn add(&mut self, call: &OneCall) {
        let (Some(number), Some(ns)) = (call.number, call.ns) else { return };
        if !matches!(call.kind, "launch" | "graph launch") {
            return;
        }
        self.0.add((ns, (call.process, call.tid, number)));
    }
}

impl GpuTracks {
    pub fn new(end: u64, long: LongCalls) -> GpuTracks {
        GpuTracks {
            end,
            tracks: Vec::new(),
            places: HashMap::new(),
            others: None,
            names: Texts::of(NAMES),
            last: None,
            grids: Texts::of(GRIDS),
            longest: Largest::new(LONGEST),
            of_name: Vec::new(),
            long_calls: long.0.iter().map(|(ns, call)| (*call, (*ns, 0))).collect(),
            of_calls: Largest::new(OF_CALLS),
            streams: Streams::default(),
            all: 0,
            wanted: None,
            calls: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// A kernel ran from one time of the recording to another.
    pub fn add(&mut self, k: &KernelRun, (from, to): (i64, i64)) {
        self.all += 1;
        let stream = Stream::of(&k.when);
        self.streams.add(stream, &k.gpu);
        let track = self.track(stream);
        let Track { apart, busy } = &mut self.tracks[track];
        let end = self.end;
        apart.add(from.max(0) as u64, to.max(0) as u64, |from, to| spread(busy, end, from, to));

        let call = k.when.call.as_ref().filter(|call| call.number != 0);
        let mut bar = Bar {
            ns: to.abs_diff(from),
            number: self.all,
            from,
            track,
            name: 0,
            grid: 0,
            start: match k.gpu.start {
                Start::AfterTheDoorbell => 0,
                Start::AfterTheOneBefore => 1,
                Start::Bounded => 2,
                Start::Stored => 3,
            },
            in_graph: k.in_graph,
            earlier: k.gpu.start_ns.saturating_sub(k.gpu.earliest_ns),
            queued: k.gpu.queued_ns,
            call: call.map(|call| (k.when.process, k.when.tid, call.number)),
        };
        bar.name = self.name(k);
        self.of_name.resize(self.names.all.len(), None);
        let of_its_call = bar.call.and_then(|call| self.long_calls.get_mut(&call)).and_then(|(ns, kernels)| {
            *kernels += 1;
            (*kernels <= OF_ONE_CALL).then_some(*ns)
        });
        let is_long = self.longest.would_keep(|least| bar.ns > least.ns);
        let is_of_name = self.of_name[bar.name].is_none_or(|longest| bar.ns > longest.ns);
        if !(is_long || is_of_name || of_its_call.is_some()) {
            return;
        }
        bar.grid = self.grids.number(&shape(&k.shape));
        if is_of_name {
            self.of_name[bar.name] = Some(bar);
        }
        if is_long {
            self.longest.add(bar);
        }
        if let Some(ns) = of_its_call {
            self.of_calls.add((ns, bar));
        }
    }

    fn name(&mut self, k: &KernelRun) -> usize {
        // (Most kernels follow one of the same code, and a name is long.)
        if let Some((code, number)) = self.last
            && code == k.code
            && k.name.as_ref().is_none_or(|name| self.names.all[number] == *name)
        {
            return number;
        }
        let number = match &k.name {
            Some(name) => self.names.number(name),
            None => self.names.number(&format!("kernel {:#x}", k.code)),
        };
        self.last = Some((k.code, number));
        number
    }

    fn track(&mut self, stream: Stream) -> usize {
        if let Some(&track) = self.places.get(&stream) {
            return track;
        }
        if let Some(others) = self.others {
            return others;
        }
        let track = self.tracks.len();
        self.tracks.push(Track { apart: Apart::default(), busy: vec![0; BINS] });
        if track + 1 < TRACKS {
            self.places.insert(stream, track);
        } else {
            self.others = Some(track);
        }
        track
    }

    /// Each bar once, by the order of their doorbells.
    fn bars(&self) -> BTreeMap<u64, Bar> {
        let longest = self.longest.iter();
        let of_calls = self.of_calls.iter().map(|(_, bar)| bar);
        let of_names = self.of_name.iter().flatten();
        longest.chain(of_calls).chain(of_names).map(|bar| (bar.number, *bar)).collect()
    }

    /// Whether a call launched a bar. Asked once all kernels were added.
    pub fn wants(&mut self, call: CallKey) -> bool {
        if self.wanted.is_none() {
            self.wanted = Some(self.bars().values().filter_map(|bar| bar.call).collect());
        }
        self.wanted.as_ref().is_some_and(|wanted| wanted.contains(&call))
    }

    /// That call: its lane among those of threads, when it was, and its name among those of events.
    pub fn call(&mut self, key: CallKey, lane: usize, (from, ns): (i64, u64), name: usize) {
        self.calls.insert(key, Call { lane, from, ns, name });
    }

    /// What the script draws. `rank`: where the lanes of threads are in the end.
    pub fn shown(mut self, about: &About, rank: &[i64]) -> Shown {
        let end = self.end;
        for Track { apart, busy } in &mut self.tracks {
            std::mem::take(apart).finish().for_each(|(from, to)| spread(busy, end, from, to));
        }
        let bars = self.bars();
        let streams = std::mem::take(&mut self.streams).rows(&about.summary.channel_list);
        // By process, channel and stream; all others are the last.
        let mut order: Vec<(Stream, usize)> = self.places.iter().map(|(stream, track)| (*stream, *track)).collect();
        order.sort_unstable();
        let mut place = vec![order.len(); self.tracks.len()];
        order.iter().enumerate().for_each(|(n, (_, track))| place[*track] = n);
        let of_row =
            |r: &StreamRow| Stream { process: r.process, slot: r.slot, generation: r.generation, handle: r.stream };
        let by: HashMap<Stream, &StreamRow> = streams.iter().map(|row| (of_row(row), row)).collect();
        let many = about.summary.processes.len() > 1;
        let mut titles: Vec<String> =
            order.iter().map(|(s, _)| by.get(s).map_or_else(String::new, |row| title(row, many))).collect();
        let mut tracks: Vec<usize> = order.iter().map(|(_, track)| *track).collect();
        if let Some(others) = self.others {
            titles.push("kernels of all other streams".into());
            tracks.push(others);
        }
        let step = if tracks.len() * BINS > ALL_BINS { 5 } else { 1 };
        let bins = BINS / step;

        let calls: Vec<(&CallKey, &Call)> = self.calls.iter().collect();
        let call_numbers: HashMap<CallKey, i64> = (0..).zip(&calls).map(|(n, (key, _))| (**key, n)).collect();
        let mut sorted: Vec<Bar> = bars.into_values().collect();
        sorted.sort_unstable_by_key(|bar| (bar.from, bar.number));
        let mut lanes: Vec<Vec<i64>> = vec![Vec::new(); tracks.len()];
        let (mut flat, mut last) = (Vec::new(), 0);
        for bar in &sorted {
            let track = place[bar.track];
            let lane = lane_of(&mut lanes[track], bar.from, bar.from.saturating_add_unsigned(bar.ns));
            let call = bar.call.and_then(|call| call_numbers.get(&call)).copied().unwrap_or(-1);
            let start = i64::from(bar.start) + if bar.in_graph { 4 } else { 0 };
            flat.extend([track as i64, lane as i64, KERNEL, bar.from - last]);
            flat.extend([bar.ns as i64, bar.name as i64, start, bar.earlier as i64, bar.queued as i64]);
            flat.extend([bar.grid as i64, call]);
            last = bar.from;
        }
        let track = |(n, number): (usize, &usize)| {
            let busy = permille(&self.tracks[*number].busy, step, end);
            serde_json::json!({ "title": titles[n], "lanes": lanes[n].len(), "busy": busy })
        };
        let rows: Vec<_> = tracks.iter().enumerate().map(track).collect();
        let calls: Vec<i64> = calls
            .iter()
            .flat_map(|(_, c)| [rank[c.lane], c.from, i64::try_from(c.ns).unwrap_or(i64::MAX), c.name as i64])
            .collect();
        let data = serde_json::json!({
            "kinds": BARS, "bins": bins, "names": names(&self.names.all), "grids": self.grids.all, "tracks": rows, "calls": calls, "bars": flat,
        });
        Shown { data, streams, all: self.all, single: sorted.len() as u64, bin: end / bins as u64 }
    }
}

/// Adds a time to the bins that it is in.
fn spread(busy: &mut [u64], end: u64, from: u64, to: u64) {
    let bins = busy.len() as u128;
    let edge = |bin: usize| (u128::from(end) * bin as u128 / bins) as u64;
    let (from, to) = (from.min(end), to.min(end));
    let mut bin = (u128::from(from) * bins / u128::from(end.max(1))) as usize;
    while let Some(ns) = busy.get_mut(bin)
        && edge(bin) < to
    {
        *ns += to.min(edge(bin + 1)).saturating_sub(from.max(edge(bin)));
        bin += 1;
    }
}

/// Bins with something in them, and which part of them, of a thousand. `step`: bins that are made one.
fn permille(busy: &[u64], step: usize, end: u64) -> Vec<u64> {
    let whole = (end * step as u64 / busy.len() as u64).max(1);
    let part = |bins: &[u64]| (bins.iter().sum::<u64>() * 1000).div_ceil(whole).min(1000);
    let parts = busy.chunks(step).map(part).enumerate().filter(|(_, part)| *part > 0);
    parts.flat_map(|(bin, part)| [bin as u64, part]).collect()
}

/// The first lane that is free from then on; the one that is free the earliest, if none is.
fn lane_of(lanes: &mut Vec<i64>, from: i64, to: i64) -> usize {
    let lane = match lanes.iter().position(|until| *until <= from) {
        Some(lane) => lane,
        None if lanes.len() < LANES => {
            lanes.push(0);
            lanes.len() - 1
        }
        None => lanes.iter().enumerate().min_by_key(|(_, until)| **until).map_or(0, |(lane, _)| lane),
    };
    lanes[lane] = lanes[lane].max(to);
    lane
}

/// Short and whole, as far as there is room; without the whole one where that is no longer.
fn names(all: &[String]) -> Vec<Vec<String>> {
    let mut room = WHOLE;
    let pair = |name: &String| {
        // (One of code without name is its address.)
        let short: String = if name.starts_with("kernel 0x") || name == MANY { name.clone() } else { short_name(name) };
        let short: String = short.chars().take(LETTERS).collect();
        if short == *name || name.len() > room {
            return vec![short];
        }
        room -= name.len();
        vec![short, name.clone()]
    };
    all.iter().map(pair).collect()
}

fn shape(s: &Shape) -> String {
    let cluster = s.cluster.map_or(String::new(), |cluster| format!(", clusters of {}", cell::extent(cluster)));
    format!("{} blocks of {} threads{cluster}", cell::extent(s.grid), cell::extent(s.block))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use decode::Recording;
    use schema::operations::{GpuTime, InCall, When};
    use std::path::Path;

    /// A kernel of stream `stream` that a call launched.
    fn run(stream: u64, (start, ns): (u64, u64), name: &str, call: u32) -> KernelRun {
        let call = InCall { name: "cuLaunchKernel", number: call, stream, object: 0, python: None };
        let when = When {
            submission: 0,
            tsc: 0,
            seconds: None,
            process: 0,
            pid: 1,
            tid: 7,
            slot: 0,
            generation: 0,
            engine: "GRAPHICS".into(),
            call: Some(call),
            ranges: Vec::new(),
        };
        let shape = Shape {
            grid: [stream as u32 + 1, 1, 1],
            block: [32, 1, 1],
            cluster: None,
            registers: 16,
            shared_memory: 0,
            program: 0x100,
            kernel: None,
        };
        let gpu = GpuTime {
            end_ns: start + ns,
            start_ns: start,
            earliest_ns: start,
            start: Start::AfterTheOneBefore,
            queued_ns: 5,
            clock_error_ns: 0,
        };
        KernelRun {
            when,
            symbol: None,
            name: Some(name.into()),
            code: 0x100,
            in_graph: false,
            shape,
            start_seconds: None,
            end_seconds: None,
            gpu,
        }
    }

    fn about() -> About {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-copies.doorbell");
        About::of(&Recording::open(&fixture).unwrap(), 0).unwrap()
    }

    fn add(tracks: &mut GpuTracks, run: &KernelRun) {
        let (from, to) = (run.gpu.start_ns as i64, run.gpu.end_ns as i64);
        tracks.add(run, (from, to));
    }

    fn numbers(v: &serde_json::Value) -> Vec<i64> {
        v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
    }

    #[test]
    fn of_many_kernels_the_longest_of_all_of_each_name_and_of_long_calls_are_bars() {
        let (many, end) = (150_000u64, 150_000 * 1_000);
        let mut long = LongCalls::default();
        long.0.add((1_000_000, (0, 7, 5)));
        let mut tracks = GpuTracks::new(end, long);
        for n in 0..many {
            // Short ones of a rare name, some of them by a long call.
            let (ns, name, call) = match n % 1_500 {
                0 => (10, "rare".to_owned(), 5),
                m => (100 + n % 800, format!("kernel<{}>({})", m % 40, "x".repeat(300)), 9),
            };
            add(&mut tracks, &run(n % 50, (n * 1_000, ns), &name, call));
        }
        assert!(tracks.wants((0, 7, 5)) && tracks.wants((0, 7, 9)) && !tracks.wants((0, 8, 9)));
        tracks.call((0, 7, 5), 0, (3, 4), 2);
        let shown = tracks.shown(&about(), &[0]);
        let text = shown.data.to_string();
        assert!(text.len() < 900 << 10, "{}", text.len());
        let bars = numbers(&shown.data["bars"]);
        let bars: Vec<&[i64]> = bars.chunks(11).collect();
        assert_eq!((shown.all, bars.len() as u64), (many, shown.single));
        assert!((LONGEST..LONGEST + OF_CALLS + NAMES).contains(&bars.len()), "{}", bars.len());
        let of_call = bars.iter().filter(|bar| bar[10] == 0).count();
        assert_eq!(of_call, many as usize / 1_500, "each kernel of the long call");
        let last_track = shown.data["tracks"].as_array().unwrap().len() as i64 - 1;
        assert_eq!(last_track + 1, TRACKS as i64);
        assert_eq!(shown.data["tracks"][last_track as usize]["title"], "kernels of all other streams");
        assert!(bars.iter().any(|bar| bar[0] == last_track));
        // Every kernel is counted, a bar or not.
        let busy: i64 = (0..TRACKS).flat_map(|n| numbers(&shown.data["tracks"][n]["busy"])).skip(1).step_by(2).sum();
        let bin = shown.bin as f64;
        let sum = (0..many).map(|n| if n % 1_500 == 0 { 10 } else { 100 + n % 800 }).sum::<u64>() as f64;
        let counted = busy as f64 / 1000.0 * bin;
        // (The last track's kernels do not overlap either; shares are rounded up.)
        assert!(counted >= sum && counted < sum * 1.2, "{counted} {sum}");
        let whole: usize =
            shown.data["names"].as_array().unwrap().iter().filter(|n| n.as_array().unwrap().len() > 1).count();
        assert!(whole >= 40, "{whole}");
    }

    /// 60,000 kernels, each with a name, a grid and a call of its own.
    pub(in crate::recording) fn worst(end: u64) -> GpuTracks {
        let mut tracks = GpuTracks::new(end, LongCalls::default());
        let step = end / 60_001;
        for n in 0..60_000u64 {
            let ns = step / 2 + n % 7;
            let mut one = run(n % 40, (n * step, ns), &format!("k{n}_{}", "y".repeat(200)), n as u32);
            one.shape.grid = [n as u32; 3];
            add(&mut tracks, &one);
        }
        for n in 0..60_000 {
            if tracks.wants((0, 7, n)) {
                tracks.call((0, 7, n), 0, ((u64::from(n) * step) as i64, step / 3), 4_999);
            }
        }
        tracks
    }

    #[test]
    fn names_and_grids_have_an_end() {
        let shown = worst(100_000_000_000).shown(&about(), &[63]);
        assert_eq!(shown.data["names"].as_array().unwrap().len(), NAMES);
        assert_eq!(shown.data["names"][NAMES - 1][0], MANY);
        assert_eq!(shown.data["grids"].as_array().unwrap().len(), GRIDS);
    }

    #[test]
    fn kernels_that_overlap_are_in_lanes_of_their_own() {
        let mut lanes = Vec::new();
        let of = [(0, 10), (5, 20), (10, 12), (11, 13), (12, 14), (20, 30)];
        assert_eq!(of.map(|(from, to)| lane_of(&mut lanes, from, to)), [0, 1, 0, 2, 0, 0]);
        let mut lanes = Vec::new();
        assert_eq!((0..9).map(|n| lane_of(&mut lanes, n, 100 - n)).max(), Some(LANES - 1));
    }

    #[test]
    fn a_time_is_in_the_bins_that_it_covers() {
        let mut busy = vec![0; 10];
        spread(&mut busy, 1_000, 150, 420);
        spread(&mut busy, 1_000, 950, 5_000);
        assert_eq!(busy, [0, 50, 100, 100, 20, 0, 0, 0, 0, 50]);
        assert_eq!(permille(&busy, 1, 1_000), [1, 500, 2, 1000, 3, 1000, 4, 200, 9, 500]);
        assert_eq!(permille(&busy, 5, 1_000), [0, 540, 1, 100]);
    }
}
