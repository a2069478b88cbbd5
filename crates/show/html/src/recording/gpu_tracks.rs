//! The GPU's tracks of a timeline: when the kernels of each stream and the copies of each channel ran (`record --gpu-times`).
//!
//! As on the other rows a page has room for so many. These are bars: the longest, the longest of each name, and those that the longest calls started, kernels
//! and copies apart from each other. All are counted: a track has bins with the share of time in which one of its kernels or copies ran.

use crate::recording::streams::{copies_title, stream_name, title};
use decode::Largest;
use decode::streams::{Apart, Stream, Streams};
use export::About;
use schema::Summary;
use schema::happened::OneCall;
use schema::kernel_runs::KernelRun;
use schema::kernels::StreamRow;
use schema::names::short_name;
use schema::operations::{CopyRow, GpuTime, Shape, Start, When};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use terminal::cell;

/// The room of a page for kernels or for copies.
struct Room {
    /// Bars because they are the longest.
    longest: usize,
    /// Bars that are shown because a long call started them, and the number of such calls.
    of_calls: usize,
    calls: usize,
    /// Tracks; the last one has the work of all others.
    tracks: usize,
    /// Names with separate entries.
    names: usize,
}

const KERNELS: Room = Room { longest: 10_000, of_calls: 2_000, calls: 1_000, tracks: 32, names: 2_000 };
const COPIES: Room = Room { longest: 2_500, of_calls: 500, calls: 250, tracks: 8, names: 250 };
/// Bars of one call.
const OF_ONE_CALL: u32 = 100;
/// Rows of a track for overlapping bars.
const LANES: usize = 6;
/// Bins of time of a track, and of all tracks together.
const BINS: usize = 2_000;
const ALL_BINS: usize = 16_000;
/// Characters of a short name, and total bytes of the full ones.
const LETTERS: usize = 90;
const WHOLE: usize = 128 << 10;
/// Grids, and streams of copies, with separate entries.
const GRIDS: usize = 1_000;
/// Replaces the texts beyond the limit.
const MANY: &str = "(one of many)";

/// Kinds of bars.
const BARS: [&str; 2] = ["kernel", "copy"];
const KERNEL: usize = 0;
const COPY: usize = 1;

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
    kind: usize,
    /// Of its kind.
    name: usize,
    /// For a copy, its stream.
    grid: usize,
    start: u8,
    in_graph: bool,
    /// It may have started earlier by this much.
    earlier: u64,
    queued: u64,
    call: Option<CallKey>,
}

struct Track {
    apart: Apart,
    /// Nanoseconds of each bin in which something ran.
    busy: Vec<u64>,
}

/// A call that started a bar.
struct Call {
    lane: usize,
    from: i64,
    ns: u64,
    name: usize,
}

/// Texts by their numbers, in the order of their first use.
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

/// All kernels, or all copies.
struct Kind {
    room: Room,
    /// Full names.
    names: Texts,
    longest: Largest<Bar>,
    of_name: Vec<Option<Bar>>,
    /// The longest calls that start some, and how many of those are bars.
    long_calls: HashMap<CallKey, (u64, u32)>,
    of_calls: Largest<(u64, Bar)>,
    streams: Streams,
    places: HashMap<Stream, usize>,
    others: Option<usize>,
    all: u64,
}

impl Kind {
    fn new(room: Room, long: Largest<(u64, CallKey)>) -> Kind {
        Kind {
            names: Texts::of(room.names),
            longest: Largest::new(room.longest),
            of_name: Vec::new(),
            long_calls: long.iter().map(|(ns, call)| (*call, (*ns, 0))).collect(),
            of_calls: Largest::new(room.of_calls),
            streams: Streams::default(),
            places: HashMap::new(),
            others: None,
            all: 0,
            room,
        }
    }

    /// Makes it a bar if it qualifies. `grid`: the number of its text.
    fn bar(&mut self, mut bar: Bar, grid: impl FnOnce() -> usize) {
        self.of_name.resize(self.names.all.len(), None);
        let of_its_call = bar.call.and_then(|call| self.long_calls.get_mut(&call)).and_then(|(ns, bars)| {
            *bars += 1;
            (*bars <= OF_ONE_CALL).then_some(*ns)
        });
        let is_long = self.longest.would_keep(|least| bar.ns > least.ns);
        let is_of_name = self.of_name[bar.name].is_none_or(|longest| bar.ns > longest.ns);
        if !(is_long || is_of_name || of_its_call.is_some()) {
            return;
        }
        bar.grid = grid();
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

    fn bars(&self) -> impl Iterator<Item = &Bar> {
        let of_calls = self.of_calls.iter().map(|(_, bar)| bar);
        self.longest.iter().chain(of_calls).chain(self.of_name.iter().flatten())
    }

    fn track(&mut self, stream: Stream, tracks: &mut Vec<Track>) -> usize {
        if let Some(track) = self.places.get(&stream).copied().or(self.others) {
            return track;
        }
        let track = tracks.len();
        tracks.push(Track { apart: Apart::default(), busy: vec![0; BINS] });
        if self.places.len() + 1 < self.room.tracks {
            self.places.insert(stream, track);
        } else {
            self.others = Some(track);
        }
        track
    }

    /// Its tracks by process, channel and stream, with their titles; all others are the last. And how busy each stream was.
    fn tracks(
        &mut self,
        summary: &Summary,
        title: impl Fn(&StreamRow) -> String,
        others: &str,
    ) -> (Vec<(usize, String)>, Vec<StreamRow>) {
        let rows = std::mem::take(&mut self.streams).rows(&summary.channel_list, &summary.streams);
        let of_row =
            |r: &StreamRow| Stream { process: r.process, slot: r.slot, generation: r.generation, handle: r.stream };
        let by: HashMap<Stream, &StreamRow> = rows.iter().map(|row| (of_row(row), row)).collect();
        let mut order: Vec<(Stream, usize)> = self.places.iter().map(|(stream, track)| (*stream, *track)).collect();
        order.sort_unstable();
        let titled =
            |(stream, track): &(Stream, usize)| (*track, by.get(stream).map_or_else(String::new, |row| title(row)));
        let mut tracks: Vec<(usize, String)> = order.iter().map(titled).collect();
        tracks.extend(self.others.map(|track| (track, others.to_owned())));
        (tracks, rows)
    }
}

/// What the GPU did from one time of the recording to another.
struct Ran<'a> {
    kind: usize,
    stream: Stream,
    when: &'a When,
    gpu: &'a GpuTime,
    from: i64,
    to: i64,
    name: usize,
    in_graph: bool,
}

pub struct GpuTracks {
    /// The end of the recording, in ns.
    end: u64,
    tracks: Vec<Track>,
    /// Kernels, then copies.
    kinds: [Kind; BARS.len()],
    /// The code of the last kernel, and the number of its name.
    last: Option<(u64, usize)>,
    grids: Texts,
    all: u64,
    /// Calls that are asked for, once all bars are known.
    wanted: Option<BTreeSet<CallKey>>,
    calls: BTreeMap<CallKey, Call>,
}

/// The total number, and the number of bars.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    pub all: u64,
    pub single: u64,
}

/// The data for a page.
pub struct Shown {
    pub data: serde_json::Value,
    pub streams: Vec<StreamRow>,
    pub kernels: Counted,
    pub copies: Counted,
    /// Nanoseconds of a bin.
    pub bin: u64,
}

/// The calls whose kernels and copies are always bars: those that took the longest to start something.
pub struct LongCalls([Largest<(u64, CallKey)>; BARS.len()]);

impl Default for LongCalls {
    fn default() -> LongCalls {
        LongCalls([KERNELS, COPIES].map(|room| Largest::new(room.calls)))
    }
}

impl LongCalls {
    pub fn add(&mut self, call: &OneCall) {
        let (Some(number), Some(ns)) = (call.number, call.ns) else { return };
        let kind = match call.kind {
            "launch" | "graph launch" => KERNEL,
            "copy" | "async copy" | "memset" => COPY,
            _ => return,
        };
        self.0[kind].add((ns, (call.process, call.tid, number)));
    }
}

impl GpuTracks {
    pub fn new(end: u64, long: LongCalls) -> GpuTracks {
        let [of_kernels, of_copies] = long.0;
        GpuTracks {
            end,
            tracks: Vec::new(),
            kinds: [Kind::new(KERNELS, of_kernels), Kind::new(COPIES, of_copies)],
            last: None,
            grids: Texts::of(GRIDS),
            all: 0,
            wanted: None,
            calls: BTreeMap::new(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.all == 0
    }

    /// Adds a kernel that ran from one time of the recording to another.
    pub fn kernel(&mut self, k: &KernelRun, (from, to): (i64, i64)) {
        let (name, stream) = (self.kernel_name(k), Stream::of(&k.when));
        let ran = Ran { kind: KERNEL, stream, when: &k.when, gpu: &k.gpu, from, to, name, in_graph: k.in_graph };
        self.add(&ran, || shape(&k.shape));
    }

    /// Adds a copy or a fill, with times of the GPU. (Those of one channel run in order, in whichever stream they are.)
    pub fn copy(&mut self, c: &CopyRow, gpu: &GpuTime, (from, to): (i64, i64)) {
        let name = self.kinds[COPY].names.number(&c.label());
        let stream = Stream::of(&c.when);
        let channel = Stream { handle: None, ..stream };
        let ran = Ran { kind: COPY, stream: channel, when: &c.when, gpu, from, to, name, in_graph: false };
        self.add(&ran, || stream.handle.map_or("its stream is not known".into(), stream_name));
    }

    fn add(&mut self, ran: &Ran<'_>, grid: impl FnOnce() -> String) {
        let Ran { kind, stream, when, gpu, from, to, name, in_graph } = *ran;
        self.all += 1;
        let of = &mut self.kinds[kind];
        of.all += 1;
        of.streams.add(stream, gpu);
        let track = of.track(stream, &mut self.tracks);
        let Track { apart, busy } = &mut self.tracks[track];
        let end = self.end;
        apart.add(from.max(0) as u64, to.max(0) as u64, |from, to| spread(busy, end, from, to));

        let call = when.call.as_ref().filter(|call| call.number != 0);
        let bar = Bar {
            ns: to.abs_diff(from),
            number: self.all,
            from,
            track,
            kind,
            name,
            grid: 0,
            start: match gpu.start {
                Start::AfterTheDoorbell => 0,
                Start::AfterTheOneBefore => 1,
                Start::Bounded => 2,
                Start::Stored => 3,
            },
            in_graph,
            earlier: gpu.start_ns.saturating_sub(gpu.earliest_ns),
            queued: gpu.queued_ns,
            call: call.map(|call| (when.process, when.tid, call.number)),
        };
        let grids = &mut self.grids;
        of.bar(bar, || grids.number(&grid()));
    }

    fn kernel_name(&mut self, k: &KernelRun) -> usize {
        let names = &mut self.kinds[KERNEL].names;
        // (Most kernels follow one of the same code, and a name is long.)
        if let Some((code, number)) = self.last
            && code == k.code
            && k.name.as_ref().is_none_or(|name| names.all[number] == *name)
        {
            return number;
        }
        let number = match &k.name {
            Some(name) => names.number(name),
            None => names.number(&format!("kernel {:#x}", k.code)),
        };
        self.last = Some((k.code, number));
        number
    }

    /// Each bar once, by the order of their doorbells.
    fn bars(&self) -> BTreeMap<u64, Bar> {
        self.kinds.iter().flat_map(Kind::bars).map(|bar| (bar.number, *bar)).collect()
    }

    /// Whether a call started a bar. Asked once all kernels and copies were added.
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

    /// The data that the script draws. `rank`: the final lanes of threads.
    pub fn shown(mut self, about: &About, rank: &[i64]) -> Shown {
        let end = self.end;
        for Track { apart, busy } in &mut self.tracks {
            std::mem::take(apart).finish().for_each(|(from, to)| spread(busy, end, from, to));
        }
        let bars = self.bars();
        let (summary, many) = (&about.summary, about.summary.processes.len() > 1);
        let [kernels, copies] = &mut self.kinds;
        let (mut tracks, streams) = kernels.tracks(summary, |row| title(row, many), "kernels of all other streams");
        let of_kernels = tracks.len();
        tracks.extend(copies.tracks(summary, |row| copies_title(row, many), "copies of all other channels").0);
        let mut place = vec![0; self.tracks.len()];
        tracks.iter().enumerate().for_each(|(n, (track, _))| place[*track] = n);
        let step = if tracks.len() * BINS > ALL_BINS { 5 } else { 1 };
        let bins = BINS / step;

        let calls: Vec<(&CallKey, &Call)> = self.calls.iter().collect();
        let call_numbers: HashMap<CallKey, i64> = (0..).zip(&calls).map(|(n, (key, _))| (**key, n)).collect();
        let mut sorted: Vec<Bar> = bars.into_values().collect();
        sorted.sort_unstable_by_key(|bar| (bar.from, bar.number));
        let first_name = [0, self.kinds[KERNEL].names.all.len()];
        let mut lanes: Vec<Vec<i64>> = vec![Vec::new(); tracks.len()];
        let (mut flat, mut last) = (Vec::new(), 0);
        for bar in &sorted {
            let track = place[bar.track];
            let lane = lane_of(&mut lanes[track], bar.from, bar.from.saturating_add_unsigned(bar.ns));
            let call = bar.call.and_then(|call| call_numbers.get(&call)).copied().unwrap_or(-1);
            let start = i64::from(bar.start) + if bar.in_graph { 4 } else { 0 };
            let name = first_name[bar.kind] + bar.name;
            flat.extend([track as i64, lane as i64, bar.kind as i64, bar.from - last]);
            flat.extend([bar.ns as i64, name as i64, start, bar.earlier as i64, bar.queued as i64]);
            flat.extend([bar.grid as i64, call]);
            last = bar.from;
        }
        let track = |(n, (number, title)): (usize, &(usize, String))| {
            let busy = permille(&self.tracks[*number].busy, step, end);
            let kind = if n < of_kernels { KERNEL } else { COPY };
            serde_json::json!({ "title": title, "kind": kind, "lanes": lanes[n].len(), "busy": busy })
        };
        let rows: Vec<_> = tracks.iter().enumerate().map(track).collect();
        let calls: Vec<i64> = calls
            .iter()
            .flat_map(|(_, c)| [rank[c.lane], c.from, i64::try_from(c.ns).unwrap_or(i64::MAX), c.name as i64])
            .collect();
        let mut texts = names(&self.kinds[KERNEL].names.all);
        texts.extend(self.kinds[COPY].names.all.iter().map(|name| vec![name.clone()]));
        let data = serde_json::json!({
            "kinds": BARS, "bins": bins, "names": texts, "grids": self.grids.all, "tracks": rows, "calls": calls, "bars": flat,
        });
        let [kernels, copies] = [KERNEL, COPY].map(|kind| Counted {
            all: self.kinds[kind].all,
            single: sorted.iter().filter(|bar| bar.kind == kind).count() as u64,
        });
        Shown { data, streams, kernels, copies, bin: end / bins as u64 }
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

/// Bins that are not empty, and how full they are, in thousandths. `step`: bins that are merged into one.
fn permille(busy: &[u64], step: usize, end: u64) -> Vec<u64> {
    let whole = (end * step as u64 / busy.len() as u64).max(1);
    let part = |bins: &[u64]| (bins.iter().sum::<u64>() * 1000).div_ceil(whole).min(1000);
    let parts = busy.chunks(step).map(part).enumerate().filter(|(_, part)| *part > 0);
    parts.flat_map(|(bin, part)| [bin as u64, part]).collect()
}

/// The first lane that is free from then on; if none is, the one that becomes free first.
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

/// Short and full names, as far as there is room; then only the short ones.
fn names(all: &[String]) -> Vec<Vec<String>> {
    let mut room = WHOLE;
    let pair = |name: &String| {
        // (For code without a name, the short name is its address.)
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
    use schema::Place;
    use schema::operations::{InCall, Mode};
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
            launch: None,
            symbol: None,
            name: Some(name.into()),
            code: 0x100,
            in_graph: false,
            shape,
            ran: schema::operations::Ran::default(),
            gpu,
        }
    }

    fn about() -> About {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-copies.doorbell");
        About::of(&Recording::open(&fixture).unwrap(), 0).unwrap()
    }

    fn add(tracks: &mut GpuTracks, run: &KernelRun) {
        let (from, to) = (run.gpu.start_ns as i64, run.gpu.end_ns as i64);
        tracks.kernel(run, (from, to));
    }

    /// A copy to the device on channel `slot`.
    fn copied(slot: u64, (start, ns): (u64, u64), bytes: u64, call: u32) -> CopyRow {
        let KernelRun { mut when, gpu, .. } = run(0x51, (start, ns), "", call);
        when.slot = slot as u32;
        CopyRow {
            when,
            mode: Mode::CopyEngine,
            src: Some(0),
            src_place: Some(Place::Host),
            src_gpu: None,
            dst: 0,
            dst_place: Place::Video,
            dst_gpu: Some(0),
            bytes,
            lines: 1,
            pipelined: false,
            pitch: true,
            semaphore: None,
            payload: None,
            physical: false,
            gpu: Some(GpuTime { start: Start::Stored, ..gpu }),
            ran: schema::operations::Ran::default(),
            complete: true,
            guessed: false,
        }
    }

    fn add_copy(tracks: &mut GpuTracks, copy: &CopyRow) {
        let gpu = copy.gpu.unwrap();
        tracks.copy(copy, &gpu, (gpu.start_ns as i64, gpu.end_ns as i64));
    }

    fn numbers(v: &serde_json::Value) -> Vec<i64> {
        v.as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect()
    }

    #[test]
    fn of_many_kernels_the_longest_of_all_of_each_name_and_of_long_calls_are_bars() {
        let (many, end) = (150_000u64, 150_000 * 1_000);
        let mut long = LongCalls::default();
        long.0[KERNEL].add((1_000_000, (0, 7, 5)));
        let mut tracks = GpuTracks::new(end, long);
        for n in 0..many {
            // Short kernels of a rare name, some of them by a long call.
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
        assert_eq!(shown.kernels, Counted { all: many, single: bars.len() as u64 });
        let room = KERNELS;
        let most = room.longest + room.of_calls + room.names;
        assert!((room.longest..most).contains(&bars.len()), "{}", bars.len());
        let of_call = bars.iter().filter(|bar| bar[10] == 0).count();
        assert_eq!(of_call, many as usize / 1_500, "each kernel of the long call");
        let last_track = shown.data["tracks"].as_array().unwrap().len() as i64 - 1;
        assert_eq!(last_track + 1, KERNELS.tracks as i64);
        assert_eq!(shown.data["tracks"][last_track as usize]["title"], "kernels of all other streams");
        assert!(bars.iter().any(|bar| bar[0] == last_track));
        // Every kernel is counted, a bar or not.
        let busy: i64 =
            (0..KERNELS.tracks).flat_map(|n| numbers(&shown.data["tracks"][n]["busy"])).skip(1).step_by(2).sum();
        let bin = shown.bin as f64;
        let sum = (0..many).map(|n| if n % 1_500 == 0 { 10 } else { 100 + n % 800 }).sum::<u64>() as f64;
        let counted = busy as f64 / 1000.0 * bin;
        // (The last track's kernels do not overlap either; shares are rounded up.)
        assert!(counted >= sum && counted < sum * 1.2, "{counted} {sum}");
        let whole: usize =
            shown.data["names"].as_array().unwrap().iter().filter(|n| n.as_array().unwrap().len() > 1).count();
        assert!(whole >= 40, "{whole}");
    }

    /// 60,000 kernels, each with its own name, grid and call, and as many copies, each of a different size.
    pub(in crate::recording) fn worst(end: u64) -> GpuTracks {
        let mut tracks = GpuTracks::new(end, LongCalls::default());
        let step = end / 60_001;
        for n in 0..60_000u64 {
            let ns = step / 2 + n % 7;
            let mut one = run(n % 40, (n * step, ns), &format!("k{n}_{}", "y".repeat(200)), n as u32);
            one.shape.grid = [n as u32; 3];
            add(&mut tracks, &one);
            let one = copied(n % 20, (n * step, ns), 1025 * n, n as u32);
            add_copy(&mut tracks, &one);
        }
        for n in 0..60_000 {
            if tracks.wants((0, 7, n)) {
                tracks.call((0, 7, n), 0, ((u64::from(n) * step) as i64, step / 3), 4_999);
            }
        }
        tracks
    }

    #[test]
    fn of_many_copies_the_longest_are_bars_and_each_channel_has_a_track() {
        let (many, end) = (100_000u64, 100_000 * 1_000);
        let mut long = LongCalls::default();
        long.0[COPY].add((1_000_000, (0, 7, 5)));
        let mut tracks = GpuTracks::new(end, long);
        // A kernel that is shorter than all copies is still a bar.
        add(&mut tracks, &run(0x51, (10, 5), "k", 1));
        for n in 0..many {
            let (ns, call) = if n % 1_000 == 0 { (10, 5) } else { (100 + n % 800, 9) };
            add_copy(&mut tracks, &copied(n % 3, (n * 1_000, ns), (n % 40) << 20, call));
        }
        let shown = tracks.shown(&about(), &[0]);
        let bars = numbers(&shown.data["bars"]);
        let bars: Vec<&[i64]> = bars.chunks(11).collect();
        assert_eq!((shown.kernels, shown.copies.all), (Counted { all: 1, single: 1 }, many));
        assert!((COPIES.longest..COPIES.longest + 150).contains(&(bars.len() - 1)), "{}", bars.len());
        assert_eq!(bars.iter().filter(|bar| bar[4] == 10).count(), 100, "each copy of the long call");
        let tracks = shown.data["tracks"].as_array().unwrap();
        assert_eq!(tracks.iter().map(|t| t["kind"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 1, 1]);
        let name = |bar: &[i64]| shown.data["names"][bar[5] as usize][0].as_str().unwrap().to_owned();
        let names: BTreeSet<String> = bars.iter().filter(|bar| bar[2] == 1).map(|bar| name(bar)).collect();
        assert!(names.len() == 40 && names.contains("copy 7 MiB host to device"), "{names:?}");
    }

    #[test]
    fn names_and_grids_have_an_end() {
        let shown = worst(100_000_000_000).shown(&about(), &[63]);
        let names = shown.data["names"].as_array().unwrap();
        assert_eq!(names.len(), KERNELS.names + COPIES.names);
        for last in [KERNELS.names - 1, KERNELS.names + COPIES.names - 1] {
            assert_eq!(names[last][0], MANY);
        }
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
