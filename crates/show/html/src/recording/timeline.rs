//! The timeline of a recording: when each thread was in a call or waited, and when which work was sent to which channel.
//!
//! A page has room for a limited number of events. The longest ones are shown one by one, the rest are counted in bins of time, and the page says
//! so.

use crate::Error;
use crate::document::{Block, Cell, Section, Table, number, text};
use crate::numbers::{moment, ns};
use crate::recording::gpu_tracks::{Counted, GpuTracks, LongCalls, Shown};
use crate::view;
use decode::{Largest, Recording};
use export::{About, ExportError, Writer};
use lock_analysis::Happened;
use schema::lines::Line;
use schema::locks::WaitRow;
use schema::names::short_name;
use schema::operations::{Mode, When};
use std::collections::HashMap;
use terminal::number::{bytes, count, nanoseconds};
use terminal::table::Out;

/// Events that the page shows one by one.
const SINGLE: usize = 10_000;
/// Bins of time.
const BINS: usize = 400;
/// Threads and channels with rows; the last row has the work of all others.
const LANES: usize = 64;
/// Names of events with separate entries, and characters of each.
const NAMES: usize = 5_000;
const LETTERS: usize = 90;
/// Replaces the names beyond the limit.
const MANY: &str = "(one of many names)";
/// Rows of the table below.
const LISTED: usize = 20;

/// What the page draws with its script.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// As JSON: `end` in ns, `names`, `kinds`, `lanes` with their bins, `events` as five numbers each.
    pub data: String,
    /// A text about its contents.
    pub says: String,
    /// It has tracks of the GPU, and some of copies.
    pub has_gpu_tracks: bool,
    pub has_copies: bool,
    /// What the page opens at, and goes to next.
    pub next: Next,
}

/// The events that a reader is led to, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Next {
    /// Calls, by the time that they lost.
    Lost,
    /// Waits for locks, the longest first. No call was slow, or none was recorded.
    Waits,
    /// All events, the longest first: nothing is known to be lost.
    #[default]
    Longest,
}

/// A call or a wait of which time was lost.
#[derive(Clone, Debug)]
pub struct Lost {
    pub process: u32,
    pub tid: i32,
    /// A call, else a wait for a lock.
    pub is_call: bool,
    /// When it began, in seconds since the recording did.
    pub at: f64,
    pub ns: u64,
    pub lost_ns: u64,
    pub name: String,
    /// Where the time went: depth, time and text of each line.
    pub lines: Vec<(usize, String, String)>,
}

/// Kinds of events: a row each below a thread or a channel.
const KINDS: [&str; 8] =
    ["calls", "waits for locks", "locks held", "driver calls", "doorbells", "copies", "launches", "ranges of NVTX"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Place {
    Thread(u32, i32),
    Channel(u32, u32, u32),
    Others,
}

struct Lane {
    name: String,
    /// For each kind, the number of events by bin.
    bins: [Vec<u32>; KINDS.len()],
}

/// The longest sorts last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    ns: u64,
    from: i64,
    lane: usize,
    kind: usize,
    name: usize,
}

struct Collected<'a> {
    about: &'a About,
    end: u64,
    lanes: Vec<Lane>,
    places: HashMap<Place, usize>,
    names: Vec<String>,
    numbers: HashMap<String, usize>,
    longest: Largest<Event>,
    all: u64,
    /// `None` if the GPU's times are not recorded.
    gpu: Option<GpuTracks>,
    /// Who held the lock for most of a wait, by the waiting thread and the time stamp of the wait's begin.
    holders: HashMap<(u32, i32, u64), String>,
}

/// `None` if no event has a time. `waits`: the longest, whose holders are named. `lost`: the slow calls, the worst first.
pub fn section(r: &Recording, waits: &[WaitRow], lost: Vec<Lost>) -> Result<Option<Section>, Error> {
    let about = About::of(r, 0)?;
    let mut c = Collected::new(&about);
    c.holders = waits.iter().filter_map(|w| Some(((w.process, w.tid, w.tsc), holder(w)?))).collect();
    if about.has_gpu_times {
        c.gpu = Some(GpuTracks::new(c.end, long_calls(r)?));
    }
    export::each_row(r, &about, &mut c)?;
    let has_bars = c.gpu.as_ref().is_some_and(|gpu| !gpu.is_empty());
    let (next, lost) = match lost.is_empty() {
        false => (Next::Lost, lost),
        true if !waits.is_empty() => (Next::Waits, waits.iter().map(waited).collect()),
        true => (Next::Longest, lost),
    };
    ((c.all > 0 || has_bars) && c.end > 0).then(|| c.section(next, &lost)).transpose()
}

fn waited(w: &WaitRow) -> Lost {
    Lost {
        process: w.process,
        tid: w.tid,
        is_call: false,
        at: w.at,
        ns: w.wait_ns,
        lost_ns: w.wait_ns,
        name: w.lock.clone(),
        lines: Vec::new(),
    }
}

/// The thread that held the lock for at least half of the wait, and the CUDA call in which it took it.
fn holder(w: &WaitRow) -> Option<String> {
    let held = w.holders.first().filter(|h| h.of_wait_ns >= w.wait_ns / 2)?;
    let inside = held.inside.as_ref().map_or(String::new(), |call| format!(" in {call}"));
    let thread = if held.thread.is_empty() { "thread" } else { &held.thread };
    Some(format!("held by {thread} {}{inside}", held.tid))
}

/// The calls that took the longest to launch or copy something.
fn long_calls(r: &Recording) -> Result<LongCalls, Error> {
    let mut long = LongCalls::default();
    lock_analysis::each_call(r, |c| {
        if let Happened::Call(c) = &c {
            long.add(c);
        }
        Ok::<(), decode::InsightError>(())
    })?;
    Ok(long)
}

impl Writer for Collected<'_> {
    fn wants_details(&self) -> bool {
        false
    }

    fn wants_range_work(&self) -> bool {
        false
    }

    fn row(&mut self, row: &Line<'_>) -> Result<(), ExportError> {
        let about = self.about;
        let at = |tsc: u64| about.ns(tsc);
        match row {
            Line::CudaCall(c) => {
                let till_end = (self.end as i64).saturating_sub(at(c.tsc)).max(0) as u64;
                let line = decode::python::user(&c.python).map(|f| format!("{} at {}", c.call, f.place()));
                let name = line.as_ref().unwrap_or(&c.call);
                let (thread, when) = (Place::Thread(c.process, c.tid), (at(c.tsc), c.ns.unwrap_or(till_end)));
                self.add(thread, 0, when.0, when.1, name);
                let key = c.number.map(|number| (c.process, c.tid, number));
                if let Some(key) = key.filter(|key| self.gpu.as_mut().is_some_and(|gpu| gpu.wants(*key))) {
                    let (lane, name) = (self.lane(thread), self.name(name));
                    self.gpu.iter_mut().for_each(|gpu| gpu.call(key, lane, when, name));
                }
            }
            Line::Lock(u) => {
                let thread = Place::Thread(u.process, u.tid);
                for (kind, span) in [(1, u.waited), (2, u.held)] {
                    let Some((from, to)) = span else { continue };
                    let holder = self.holders.get(&(u.process, u.tid, from)).filter(|_| kind == 1);
                    let name = holder.map(|holder| format!("{}, {holder}", u.lock));
                    self.add(thread, kind, at(from), at(to).abs_diff(at(from)), name.as_deref().unwrap_or(&u.lock));
                }
            }
            Line::Call(c) => {
                let ticks = c.ticks.unwrap_or(0);
                let took = at(c.tsc.saturating_add(ticks)).abs_diff(at(c.tsc));
                self.add(Place::Thread(c.process, c.tid), 3, at(c.tsc), took, c.what.as_deref().unwrap_or(c.call));
            }
            Line::Submission(s) => {
                let name = format!("doorbell {}", s.engine);
                self.add(Place::Thread(s.process, s.tid), 4, at(s.tsc), 0, name.trim_end());
            }
            Line::Copy(c) => {
                let what = match c.mode {
                    Mode::Fill => "fill",
                    Mode::Inline => "inline write",
                    Mode::CopyEngine => "copy",
                };
                let name = format!("{what} of {}", bytes(c.bytes));
                self.add(channel(&c.when), 5, at(c.when.tsc), 0, &name);
                if let (Some(gpu), Some(time), Some(when)) = (&mut self.gpu, &c.gpu, about.ran(&c.ran)) {
                    gpu.copy(c, time, when);
                }
            }
            Line::Launch(l) if !l.empty => {
                let code = || l.shape.map_or("kernel ?".into(), |s| format!("kernel {:#x}", s.code()));
                let name = l.name.as_deref().map_or_else(code, short_name);
                self.add(channel(&l.when), 6, at(l.when.tsc), 0, &name);
            }
            Line::KernelRun(k) => {
                if let (Some(gpu), Some(when)) = (&mut self.gpu, about.ran(&k.ran)) {
                    gpu.kernel(k, when);
                }
            }
            Line::Range(r) => {
                let till_end = (self.end as i64).saturating_sub(at(r.tsc)).max(0) as u64;
                let took = r.ns.unwrap_or(if r.style == "mark" { 0 } else { till_end });
                self.add(Place::Thread(r.process, r.tid), 7, at(r.tsc), took, &r.label());
            }
            _ => {}
        }
        Ok(())
    }
}

fn channel(when: &When) -> Place {
    Place::Channel(when.process, when.slot, when.generation)
}

impl Collected<'_> {
    fn new(about: &About) -> Collected<'_> {
        Collected {
            end: (about.summary.seconds.unwrap_or(0.0).max(0.0) * 1e9) as u64,
            about,
            lanes: Vec::new(),
            places: HashMap::new(),
            names: Vec::new(),
            numbers: HashMap::new(),
            longest: Largest::new(SINGLE),
            all: 0,
            gpu: None,
            holders: HashMap::new(),
        }
    }

    fn add(&mut self, place: Place, kind: usize, from: i64, ns: u64, name: &str) {
        self.all += 1;
        let lane = self.lane(place);
        let bin = (from.max(0) as u128 * BINS as u128 / u128::from(self.end.max(1))).min(BINS as u128 - 1) as usize;
        let bins = &mut self.lanes[lane].bins[kind];
        bins.resize(BINS, 0);
        bins[bin] = bins[bin].saturating_add(1);
        if !self.longest.would_keep(|least| ns >= least.ns) {
            return;
        }
        let name = self.name(name);
        self.longest.add(Event { ns, from, lane, kind, name });
    }

    fn lane(&mut self, place: Place) -> usize {
        if let Some(&lane) = self.places.get(&place) {
            return lane;
        }
        if self.lanes.len() >= LANES - 1 && place != Place::Others {
            return self.lane(Place::Others);
        }
        let (bins, name) = (Default::default(), self.called(place));
        self.lanes.push(Lane { name, bins });
        self.places.insert(place, self.lanes.len() - 1);
        self.lanes.len() - 1
    }

    fn called(&self, place: Place) -> String {
        let s = &self.about.summary;
        let pid = |process: u32| match s.processes.iter().find(|p| p.index == process) {
            Some(p) if s.processes.len() > 1 => format!(", pid {}", p.pid),
            _ => String::new(),
        };
        match place {
            Place::Others => "all others".into(),
            Place::Thread(process, tid) => {
                let named = self.about.threads.iter().find(|t| (t.process, t.tid) == (process, tid));
                let name = named.map(|t| t.name.as_str()).filter(|name| !name.is_empty());
                format!("thread {tid}{}{}", name.map_or(String::new(), |name| format!(" {name}")), pid(process))
            }
            Place::Channel(process, slot, generation) => {
                let of =
                    |c: &&schema::channel::Channel| (c.process, c.slot, c.generation) == (process, slot, generation);
                let Some(c) = s.channel_list.iter().find(of) else { return format!("channel {slot}") };
                let gpu = c.gpu.map_or(String::new(), |n| format!(", GPU {n}"));
                format!("channel {} {}{gpu}{}", c.label(), c.engine, pid(process))
            }
        }
    }

    fn name(&mut self, name: &str) -> usize {
        let name: String = name.chars().take(LETTERS).collect();
        if let Some(&number) = self.numbers.get(&name) {
            return number;
        }
        if self.names.len() >= NAMES - 1 && name != MANY {
            return self.name(MANY);
        }
        self.names.push(name.clone());
        self.numbers.insert(name, self.names.len() - 1);
        self.names.len() - 1
    }

    /// The event as the page finds it among those of a lane, or adds it to them.
    fn lost(&mut self, lost: &Lost) -> (usize, serde_json::Value) {
        let (lane, name) = (self.lane(Place::Thread(lost.process, lost.tid)), self.name(&lost.name));
        let (kind, from) = (if lost.is_call { 0 } else { 1 }, (lost.at * 1e9).round() as i64);
        let (ns, lost, lines) = (lost.ns, lost.lost_ns, &lost.lines);
        (lane, serde_json::json!({ "kind": kind, "from": from, "ns": ns, "name": name, "lost": lost, "lines": lines }))
    }

    fn section(mut self, next: Next, lost: &[Lost]) -> Result<Section, Error> {
        let mut lost: Vec<(usize, serde_json::Value)> = lost.iter().map(|lost| self.lost(lost)).collect();
        let longest = self.longest.into_sorted();
        let single = longest.len() as u64;
        let says = if self.all > single {
            format!(
                "The {} longest of {} events are drawn individually. The others are counted: each shade is a bin of {}.",
                count(single),
                count(self.all),
                nanoseconds(self.end / BINS as u64)
            )
        } else {
            format!("All {} events are drawn individually.", count(self.all))
        };
        let mut table = Table::new(
            "longest",
            format!("The {LISTED} longest events"),
            vec![text("what"), text("row"), text("of"), number("at", "s"), number("took", "ns")],
        )
        .folded();
        for e in longest.iter().filter(|e| e.ns > 0).take(LISTED) {
            table.row(vec![
                Cell::text(&*self.names[e.name]),
                Cell::text(KINDS[e.kind]),
                Cell::text(&*self.lanes[e.lane].name),
                moment(e.from as f64 / 1e9),
                ns(e.ns),
            ]);
        }
        // Threads by their numbers, then channels.
        let mut order: Vec<(Place, usize)> = self.places.into_iter().collect();
        order.sort_unstable();
        let mut rank = vec![0; order.len()];
        order.iter().enumerate().for_each(|(n, (_, lane))| rank[*lane] = n as i64);
        let lane = |l: &Lane| serde_json::json!({ "name": l.name, "bins": sparse(&l.bins) });
        let lanes: Vec<_> = order.iter().map(|(_, n)| lane(&self.lanes[*n])).collect();
        let events: Vec<i64> = longest
            .iter()
            .flat_map(|e| [rank[e.lane], e.kind as i64, e.from, e.ns.min(i64::MAX as u64) as i64, e.name as i64])
            .collect();
        let lost: Vec<_> = lost
            .iter_mut()
            .map(|(lane, event)| {
                event["lane"] = rank[*lane].into();
                event.take()
            })
            .collect();
        let gpu = self.gpu.filter(|gpu| !gpu.is_empty()).map(|gpu| gpu.shown(self.about, &rank));
        let mut data = serde_json::json!({
            "end": self.end, "bins": BINS, "kinds": KINDS, "names": self.names, "lanes": lanes, "events": events,
            "lost": lost,
        });
        let times = match &gpu {
            Some(gpu) => on_the_gpu(gpu),
            None => {
                "The GPU's own times are not recorded: copies and launches are at the time of their doorbell.".into()
            }
        };
        let (says, has_gpu_tracks) = (format!("{says} {times}"), gpu.is_some());
        let has_copies = gpu.as_ref().is_some_and(|gpu| gpu.copies.all > 0);
        let streams = gpu.and_then(|gpu| {
            data["gpu"] = gpu.data;
            (!gpu.streams.is_empty()).then_some(gpu.streams)
        });
        let mut section = Section::new("timeline", "Timeline");
        section.push(Block::Timeline(Timeline { data: data.to_string(), says, has_gpu_tracks, has_copies, next }));
        if let Some(streams) = streams {
            let write = |out: &mut dyn Out, style| terminal::kernels::write_streams(out, &style, &streams);
            section
                .blocks
                .extend(view::section("streams", "How busy the kernels of each stream kept the GPU", write).blocks);
        }
        if !table.rows.is_empty() {
            section.push(Block::Table(table));
        }
        Ok(section)
    }
}

/// A text about the tracks of the GPU.
fn on_the_gpu(gpu: &Shown) -> String {
    let mut says = Vec::new();
    for (Counted { all, single }, things, started) in
        [(gpu.kernels, "kernels", "launched"), (gpu.copies, "copies", "made")]
    {
        if all > single {
            says.push(format!(
                "Of {} {things} with a time of the GPU, {} are drawn individually: the longest, the longest of each name, and those that the longest calls {started}.",
                count(all),
                count(single)
            ));
        } else if all > 0 {
            says.push(format!("All {} {things} with a time of the GPU are drawn individually.", count(all)));
        }
    }
    if gpu.kernels.all > gpu.kernels.single || gpu.copies.all > gpu.copies.single {
        says.push(format!("Rows `busy` count all of them, in bins of {}.", nanoseconds(gpu.bin)));
    }
    says.push("The rows of channels have copies and launches at the time of their doorbell.".into());
    says.join(" ")
}

/// For each kind: the bins that are not empty, with their counts.
fn sparse(bins: &[Vec<u32>; KINDS.len()]) -> Vec<Vec<u32>> {
    let pairs = |all: &Vec<u32>| {
        let some = all.iter().enumerate().filter(|(_, n)| **n > 0);
        some.flat_map(|(bin, n)| [bin as u32, *n]).collect()
    };
    bins.iter().map(pairs).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::gpu_tracks;
    use std::path::Path;

    #[test]
    fn the_longest_events_are_single_and_a_page_stays_small() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-copies.doorbell");
        let about = About::of(&Recording::open(&fixture).unwrap(), 0).unwrap();
        let mut c = Collected::new(&about);
        let many = 120_000;
        for n in 0..many {
            let name = format!("{n} {}", "x".repeat(200));
            c.add(Place::Thread(0, n % 1000), (n % 7) as usize, i64::from(n) * 1000, n as u64, &name);
        }
        c.gpu = Some(gpu_tracks::tests::worst(c.end));
        let line = (2, "12.3 ms".to_owned(), "x".repeat(100));
        let lost = |n| Lost {
            process: 0,
            tid: n,
            is_call: true,
            at: 1.0,
            ns: 1,
            lost_ns: 1,
            name: "x".into(),
            lines: vec![line.clone(); 40],
        };
        let section = c.section(Next::Lost, &(0..11).map(lost).collect::<Vec<_>>()).unwrap();
        let Block::Timeline(t) = &section.blocks[0] else { panic!("{section:?}") };
        assert!(t.says.starts_with("The 10,000 longest of 120,000 events are drawn individually."), "{}", t.says);
        let data: serde_json::Value = serde_json::from_str(&t.data).unwrap();
        let of_gpu = data["gpu"].to_string().len();
        assert!(t.data.len() - of_gpu < 2 << 20, "{}", t.data.len() - of_gpu);
        // (A page is at most 3 MiB, and the rest of it is less than 200 KiB.)
        assert!(t.data.len() < 2_800 << 10, "{}", t.data.len());
        let events: Vec<i64> = data["events"].as_array().unwrap().iter().map(|n| n.as_i64().unwrap()).collect();
        assert_eq!((events.len(), data["lanes"].as_array().unwrap().len()), (5 * SINGLE, LANES));
        assert!(events.chunks(5).all(|e| e[3] >= (many as i64) - SINGLE as i64));
        // Every event is in a bin, single or not.
        let bins = data["lanes"].as_array().unwrap().iter().flat_map(|l| l["bins"].as_array().unwrap());
        let in_bins: u64 =
            bins.flat_map(|kind| kind.as_array().unwrap().iter().skip(1).step_by(2)).map(|n| n.as_u64().unwrap()).sum();
        assert_eq!(in_bins, many as u64);
        assert_eq!(data["lanes"][LANES - 1]["name"], "all others");
    }

    #[test]
    fn a_recording_of_an_h200_has_rows_for_its_thread_and_channels() {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures/h200-copies.doorbell");
        let r = Recording::open(&fixture).unwrap();
        let section = section(&r, &[], Vec::new()).unwrap().unwrap();
        let Block::Timeline(t) = &section.blocks[0] else { panic!("{section:?}") };
        let data: serde_json::Value = serde_json::from_str(&t.data).unwrap();
        let names: Vec<&str> = data["lanes"].as_array().unwrap().iter().map(|l| l["name"].as_str().unwrap()).collect();
        assert!(names[0].starts_with("thread ") && names.iter().any(|n| n.starts_with("channel ")), "{names:?}");
        assert!(t.says.contains("GPU's own times are not recorded"), "{}", t.says);
    }

    #[test]
    fn a_wait_names_the_thread_that_held_the_lock_and_the_call_in_which_it_did() {
        let fixture = "../../explain/decode/fixtures/h100-module-load.doorbell";
        let r = Recording::open(&Path::new(env!("CARGO_MANIFEST_DIR")).join(fixture)).unwrap();
        let waits = lock_analysis::locks(&r, 50).unwrap().waits;
        let section = section(&r, &waits, Vec::new()).unwrap().unwrap();
        let Block::Timeline(t) = &section.blocks[0] else { panic!("{section:?}") };
        let data: serde_json::Value = serde_json::from_str(&t.data).unwrap();
        let names: Vec<&str> = data["names"].as_array().unwrap().iter().map(|name| name.as_str().unwrap()).collect();
        let wanted = "libcuda+0x32499f/rwlock, held by loader 569 in cuModuleLoadData";
        assert!(names.contains(&wanted), "{names:?}");
    }
}
