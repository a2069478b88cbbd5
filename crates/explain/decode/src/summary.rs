//! The tally of a recording.

use crate::checkpoints::Checkpoints;
use crate::complete;
use crate::gaps::Gaps;
use crate::gathering::Gathering;
use crate::inline_writes::Window;
use crate::kernel_times::Counter;
use crate::merge::missing;
use crate::processes;
use crate::ranges::{Range, Texts, watched};
use crate::recording::{InsightError, Recording, Source};
use crate::stored::stored;
use crate::tally::{Commonest, Sizes};
use crate::walk::{At, Call, GraphKernel, Outcome, Segment, Sink, walk, walk_to};
use pushbuf::decode::Item;
use pushbuf::ops::{How, Inline, Launch, Op, Purpose, Semaphore, What};
use schema::Place;
use schema::channel::{Accounted, Channel, Watch};
use schema::operations::Shape;
use schema::processes::HowEnded;
use schema::summary::{
    Copies, Direction, FirstClock, LaunchShape, Launches, Lost, Page, Pauses, Problems, Program, RecordedBy, Saved,
    Semaphores, Site, SizeCount, Summary, Tap, Transfers, UnknownMethod,
};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::time::Instant;
use tape::event::{PageBody, SiteBody, lack, site_why};

/// Shapes and sizes listed, at most.
const LISTED: usize = 12;

/// The summary that is in the file, else of a walk.
pub fn summary(recording: &Recording) -> Result<Summary, InsightError> {
    stored(recording).map_or_else(|| summary_of_walk(recording), Ok)
}

/// Goes through the whole tape.
pub fn summary_of_walk(recording: &Recording) -> Result<Summary, InsightError> {
    let mut tally = Tally { kernel_times: Counter::of(recording), ..Tally::default() };
    let outcome = walk(recording, &mut tally)?;
    Ok(tally.close(recording, outcome))
}

/// The same, and notes places to begin at; `None` if it is not done at that time, or once `skip` returns true.
pub(crate) fn summary_until(
    recording: &Recording,
    end: Option<Instant>,
    skip: fn() -> bool,
    places: &mut Checkpoints,
) -> Result<Option<Summary>, InsightError> {
    let patience = Patience { end, skip: Some(skip), ..Patience::default() };
    let gathering = Some(places.gathering());
    let mut tally = Tally { kernel_times: Counter::of(recording), patience, gathering, ..Tally::default() };
    let outcome = walk_to(recording, &mut tally, places)?;
    Ok((!tally.patience.is_over.get()).then(|| tally.close(recording, outcome)))
}

/// Until when a walk may go on.
#[derive(Default)]
struct Patience {
    end: Option<Instant>,
    skip: Option<fn() -> bool>,
    steps: Cell<u32>,
    is_over: Cell<bool>,
}

impl Patience {
    /// Asked at each step. The clock is read at some.
    fn is_over(&self) -> bool {
        if self.end.is_some() || self.skip.is_some() {
            self.steps.set(self.steps.get().wrapping_add(1));
            if self.steps.get().is_multiple_of(1024) {
                let is_late = self.end.is_some_and(|end| Instant::now() > end);
                self.is_over.set(self.is_over.get() || is_late || self.skip.is_some_and(|skip| skip()));
            }
        }
        self.is_over.get()
    }
}

/// Counts as the walk goes.
#[derive(Default)]
struct Tally {
    trapped: u64,
    rewritten: u64,
    handed_over: u64,
    recorded: u64,
    copy_engine: Kind,
    inline: Kind,
    own: (u64, u64),
    fills: (u64, u64),
    semaphores: Semaphores,
    launches: Launches,
    shapes: Commonest<Shape>,
    programs: Commonest<u64>,
    /// Inline writes that counted as copies: place and bytes.
    recent: Window<(Located, u64)>,
    methods: Commonest<(u32, u16)>,
    problems: Problems,
    sites: BTreeMap<(u32, u64), Site>,
    pages: Vec<Page>,
    notes: Vec<String>,
    calls: u64,
    /// Ranges and marks of NVTX.
    ranges: u64,
    /// Copies and launches of each image.
    of_image: BTreeMap<u32, (u64, u64)>,
    /// Where times were asked for.
    kernel_times: Option<Counter>,
    patience: Patience,
    /// Where places are noted.
    gathering: Option<Rc<RefCell<Gathering>>>,
}

/// Where bytes lie, and on which GPU.
type Located = (Place, Option<u32>);

#[derive(Default)]
struct Kind {
    sizes: Sizes,
    directions: BTreeMap<(Option<Located>, Located), Moved>,
}

/// What was transferred in one direction.
#[derive(Clone, Copy, Default)]
struct Moved {
    count: u64,
    bytes: u64,
    timed: u64,
    timed_bytes: u64,
    ns: u64,
    longest_ns: u64,
}

impl Kind {
    fn add(&mut self, from: Option<Located>, to: Located, bytes: u64) {
        self.sizes.add(bytes);
        let d = self.directions.entry((from, to)).or_default();
        (d.count, d.bytes) = (d.count + 1, d.bytes.saturating_add(bytes));
    }

    /// One of those took so long.
    fn took(&mut self, from: Option<Located>, to: Located, bytes: u64, ns: u64) {
        let d = self.directions.entry((from, to)).or_default();
        d.timed += 1;
        d.timed_bytes = d.timed_bytes.saturating_add(bytes);
        d.ns = d.ns.saturating_add(ns);
        d.longest_ns = d.longest_ns.max(ns);
    }

    fn take_back(&mut self, from: Option<Located>, to: Located, bytes: u64) {
        self.sizes.remove(bytes);
        if let Some(d) = self.directions.get_mut(&(from, to)) {
            (d.count, d.bytes) = (d.count.saturating_sub(1), d.bytes.saturating_sub(bytes));
        }
    }

    fn close(&self) -> Transfers {
        let commonest = self.sizes.commonest(LISTED).into_iter();
        Transfers {
            bytes: self.sizes.bytes,
            by_place: self
                .directions
                .iter()
                .filter(|(_, d)| d.count > 0)
                .map(|(&(from, to), d)| Direction {
                    from: from.map(|f| f.0),
                    from_gpu: from.and_then(|f| f.1),
                    to: to.0,
                    to_gpu: to.1,
                    count: d.count,
                    bytes: d.bytes,
                    timed: d.timed,
                    timed_bytes: d.timed_bytes,
                    gpu_ns: d.ns,
                    longest_ns: d.longest_ns,
                })
                .collect(),
            sizes: self.sizes.buckets(),
            other_sizes: self.sizes.not_told_apart(),
            commonest_sizes: commonest.map(|(bytes, count)| SizeCount { bytes, count }).collect(),
        }
    }
}

impl Sink for Tally {
    fn done(&self) -> bool {
        self.patience.is_over()
    }

    fn call(&mut self, _: Source, _: u64, _: &Call<'_>, _: &rm::abi::Branch) {
        self.calls += 1;
    }

    fn range(&mut self, _: &Range, _: &Texts) {
        self.ranges += 1;
    }

    fn page(&mut self, process: u32, p: &PageBody) {
        self.pages.push(Page { process, address: p.addr, class: p.class, handle: p.handle, tapped: p.tapped != 0 });
    }

    fn site(&mut self, process: u32, s: &SiteBody, path: &[u8]) {
        let patched = s.patched != 0;
        let site = Site {
            process,
            address: s.ip,
            module: String::from_utf8_lossy(path).into_owned(),
            offset: s.offset,
            patched,
            why: (!patched).then(|| site_text(s.why).into()),
            code: s.code.iter().map(|b| format!("{b:02x}")).collect(),
        };
        // A site is told of again when its state changes.
        self.sites.insert((process, s.ip), site);
    }

    fn note(&mut self, text: &[u8]) {
        if self.notes.len() < 1000 {
            self.notes.push(String::from_utf8_lossy(text).into_owned());
        }
    }

    fn channel_end(&mut self, c: &Channel) {
        drop(self.recent.ended(c.number));
    }

    fn submission(&mut self, at: &At<'_>) {
        let s = at.submission;
        if s.ring.is_some() {
            let by = if s.trapped() { &mut self.trapped } else { &mut self.rewritten };
            *by += 1;
            self.handed_over += u64::from(s.handed_over());
        }
        self.recorded += s.word_count() as u64 * 4;
        self.gather(|gathering| gathering.submission(at));
        self.kernel_times.iter_mut().for_each(|counter| counter.submission(at));
    }

    fn submission_end(&mut self, at: &At<'_>) {
        self.kernel_times.iter_mut().for_each(|counter| counter.submission_end(at));
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        self.kernel_times.iter_mut().for_each(|counter| counter.segment(at, s));
        let p = &mut self.problems;
        p.holes += u64::from(s.after_gap);
        match s.entry.lack {
            lack::UNMAPPED => {
                p.unmapped_segments += 1;
                p.unmapped_bytes += u64::from(s.dwords) * 4;
            }
            lack::TOO_LONG => p.cut_segments += 1,
            lack::RING_FULL => p.torn_segments += 1,
            missing::NEVER_COPIED => p.uncopied_segments += 1,
            _ => {}
        }
        p.late_segments += u64::from(s.entry.is_late());
    }

    fn item(&mut self, at: &At<'_>, item: &Item<'_>) {
        self.kernel_times.iter_mut().for_each(|counter| counter.item(at, item));
        let (target, address) = match item {
            Item::Write(w) => (w.target, w.address),
            Item::Run(r) => (r.target, r.address),
            Item::Unknown { .. } => {
                self.problems.bad_headers += 1;
                return;
            }
            Item::Skipped { words, .. } => {
                self.problems.skipped_words += words.len() as u64;
                return;
            }
            _ => return,
        };
        if target.method(address).is_none() {
            self.methods.add((target.class_id, address));
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        self.gather(|gathering| gathering.kernel(kernel.kernel.clone()));
        if let Some(counter) = &mut self.kernel_times {
            counter.graph_kernel(at, kernel);
        }
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        self.gather(|gathering| gathering.op(at, op));
        if let Some(counter) = &mut self.kernel_times {
            counter.op(at, op);
        }
        self.problems.guessed += u64::from(op.guessed);
        if let Some(s) = op.semaphore() {
            self.semaphore(s);
        }
        match &op.what {
            What::Copy(c) => {
                let (from, to) = (Some(at.located(c.src)), at.located(c.dst));
                self.copy_engine.add(from, to, c.bytes());
                if let Some(time) = at.gpu_time() {
                    self.copy_engine.took(from, to, c.bytes(), time.duration_ns());
                }
                self.of_image.entry(at.channel.process).or_default().0 += 1;
            }
            What::Fill(f) => self.fills = (self.fills.0 + 1, self.fills.1.saturating_add(f.bytes())),
            What::Inline(i) => self.inline(at, op.at, i),
            What::Launch(l) => self.launch(at, l),
            What::Semaphore(_) => {}
        }
    }
}

impl Tally {
    fn gather(&self, f: impl FnOnce(&mut Gathering)) {
        if let Some(gathering) = &self.gathering {
            f(&mut gathering.borrow_mut());
        }
    }

    fn semaphore(&mut self, s: &Semaphore) {
        if s.operation.is_acquire() {
            self.semaphores.acquired += 1;
        } else {
            self.semaphores.released += 1;
            self.semaphores.timestamps += u64::from(s.timestamp);
        }
    }

    fn inline(&mut self, at: &At<'_>, where_: pushbuf::ops::At, i: &Inline) {
        if i.purpose != Purpose::Data {
            self.own = (self.own.0 + 1, self.own.1.saturating_add(i.bytes()));
            return;
        }
        let place = at.located(i.dst);
        self.inline.add(None, place, i.bytes());
        self.recent.wrote(at.channel.number, where_, (place, i.bytes()));
    }

    fn launch(&mut self, at: &At<'_>, l: &Launch) {
        match l.how {
            How::InlineQmd => self.launches.by_inline_qmd += 1,
            How::Pcas { .. } | How::Pcas2 { .. } => self.launches.by_pcas += 1,
        }
        let started = at.started();
        if !started.and_then(|s| s.shape).is_some_and(|s| s.is_empty()) {
            self.of_image.entry(at.channel.process).or_default().1 += 1;
        }
        self.launches.again += u64::from(started.is_some_and(|s| s.again));
        match started.and_then(|s| s.shape) {
            Some(s) if s.is_empty() => self.launches.empty += 1,
            Some(s) => {
                self.programs.add(s.code());
                self.shapes.add(s);
            }
            None => self.launches.without_qmd += 1,
        }
        // A write in an earlier segment that has counted as a copy turns out to be this launch's own.
        let Some(written) = l.written_at else { return };
        if let Some((place, bytes)) = self.recent.launched(at.channel.number, written) {
            self.inline.take_back(None, place, bytes);
            self.own = (self.own.0 + 1, self.own.1.saturating_add(bytes));
        }
    }

    fn close(self, r: &Recording, out: Outcome) -> Summary {
        let kernel_times = self.kernel_times.map(|counter| counter.close(r, &out));
        let h = r.header();
        let end = r.end();
        let lost = losses(r, &out);
        let sum = |f: fn(&Channel) -> u64| out.channels.iter().map(f).fold(0, u64::saturating_add);
        let mut problems = self.problems;
        problems.unknown_methods = self
            .methods
            .top(64)
            .into_iter()
            .map(|((class, offset), count)| UnknownMethod { class, offset, count })
            .collect();
        (problems.unknown_events, problems.stray_bytes, problems.late_rings) =
            (out.unknown_events, out.stray_bytes, out.late);
        let mut trouble = match end {
            Some(e) if !r.is_selected() => e.trouble.clone(),
            _ => r.ends().flat_map(|e| e.trouble.iter().cloned()).collect(),
        };
        trouble.extend(out.channels.iter().filter(|c| c.surplus > 0).map(|c| {
            format!("channel {}: {} entries on the tape, its GP_PUT accounts for {}", c.label(), c.entries, c.accounted)
        }));
        let incomplete_because = complete::of_walk(r, &out, &self.pages, &problems, &lost);
        let entries_lost = lost.by_channels.max(lost.by_gaps);
        let gpus: BTreeSet<u32> = out.channels.iter().filter_map(|c| c.gpu).collect();
        let gpus = gpus.into_iter().collect();
        let clock = crate::rows::clock(r);
        let processes = processes::rows(r, &out, &self.of_image, &incomplete_because, &clock);
        let mut launches = self.launches;
        launches.programs = self.programs.distinct() as u64;
        launches.shapes = self.shapes.distinct() as u64;
        launches.not_told_apart = self.shapes.others.max(self.programs.others);
        let sites: Vec<Site> = self.sites.into_values().collect();
        Summary {
            program: program(r),
            recorded_by: RecordedBy {
                doorbell: h.doorbell.clone(),
                host: h.host.clone(),
                kernel: h.kernel.clone(),
                cpu: h.cpu.clone(),
            },
            clock: r.clocks().first().map(|c| FirstClock {
                monotonic_ns: c.monotonic_ns,
                realtime_ns: c.realtime_ns,
                error_ns: c.error_ns,
            }),
            children: if r.version() == 1 { "not recorded" } else { "followed" }.into(),
            nothing: nothing(&out, r).filter(|_| r.damage().is_none() && lost.gap_events == 0).map(Into::into),
            driver: h.driver.clone(),
            gpu: h.gpu.clone(),
            gpus,
            cuda: h.cuda.clone(),
            tap: Tap {
                asked: h.tap.clone(),
                trapped: self.trapped,
                rewritten: self.rewritten,
                handed_over: self.handed_over,
                sites_patched: sites.iter().filter(|s| s.patched).count() as u64,
            },
            locks: h.locks.then_some(if h.lock_waits { "waits" } else { "all" }.into()),
            seconds: seconds(r, &out),
            submissions: sum(|c| c.submissions),
            doorbells: out.doorbells,
            entries: sum(|c| c.entries),
            complete: incomplete_because.is_empty(),
            incomplete_because,
            saved: saved(r),
            pauses: pauses(r, &out),
            recorder: r.end().and_then(|e| e.recorder_use),
            kernel_times,
            nvtx: out.nvtx.map(|_| watched(out.nvtx, self.ranges)),
            lost: if entries_lost > 0 { entries_lost } else { lost.gap_events },
            lost_detail: lost,
            command_bytes: sum(|c| c.command_bytes),
            command_bytes_recorded: self.recorded,
            copies: Copies {
                copy_engine: self.copy_engine.sizes.count,
                copy_engine_detail: self.copy_engine.close(),
                inline: self.inline.sizes.count,
                inline_detail: self.inline.close(),
                inline_for_launches: self.own.0,
                inline_for_launches_bytes: self.own.1,
            },
            fills: self.fills.0,
            fill_bytes: self.fills.1,
            semaphores: self.semaphores,
            launches: launches.by_pcas + launches.by_inline_qmd - launches.empty,
            launch_detail: launches,
            launch_shapes: self
                .shapes
                .top(LISTED)
                .into_iter()
                .map(|(shape, count)| LaunchShape { shape, count })
                .collect(),
            channels: out.channels.len() as u64,
            channel_list: out.channels,
            streams: out.streams.into_values().collect(),
            problems,
            sites,
            pages: self.pages,
            notes: r.notes().iter().cloned().chain(self.notes).collect(),
            trouble,
            end: ended(r),
            driver_calls: self.calls,
            processes,
            unwatched: r.unwatched().iter().map(|u| processes::unwatched(u, &clock)).collect(),
            damage: r.damage().map(ToString::to_string),
        }
    }
}

/// Programs ran that nobody watched: what they did is not known.
fn is_partly_unwatched(r: &Recording) -> bool {
    let reasons = r.end().into_iter().flat_map(|e| &e.incomplete_because);
    let unseen = |reason: &String| ["not watched: ", "found no region"].iter().any(|word| reason.contains(word));
    !r.unwatched().is_empty() || reasons.into_iter().any(unseen)
}

const UNKNOWN: &str = "unknown: no doorbell was seen, but not everything that ran was watched; to watch it, start doorbell inside, as \
                       `unshare -U doorbell record ./app` does";

/// What it usually means that no doorbell is on the tape.
fn nothing(out: &Outcome, r: &Recording) -> Option<&'static str> {
    if out.doorbells > 0 || out.channels.iter().any(|c| c.entries > 0) {
        return None;
    }
    Some(match r.end() {
        _ if r.header().tap == "off" => "the tap was off: driver calls only",
        Some(e) if !e.agent => {
            "the agent never reported in: the program did not load it, or ended before; nothing of it was seen"
        }
        _ if r.header().saved.is_some() => "no doorbell was rung in the time that this file covers",
        _ if r.version() == 1 => {
            "the program rang no doorbell itself: its children or a program that it execed did, or it used no GPU"
        }
        _ if r.is_selected() => "this process rang no doorbell",
        _ if is_partly_unwatched(r) => UNKNOWN,
        _ => "no doorbell was rung: the program used no GPU",
    })
}

fn pauses(r: &Recording, out: &Outcome) -> Option<Pauses> {
    let hz = r.header().tsc_hz;
    (out.pauses.count > 0).then(|| Pauses {
        count: out.pauses.count,
        seconds: if hz.is_finite() && hz > 0.0 { out.pauses.ticks as f64 / hz } else { 0.0 },
        doorbells: r.total(|e| e.paused_doorbells, |e| e.paused_doorbells),
    })
}

fn saved(r: &Recording) -> Option<Saved> {
    let s = r.header().saved.clone()?;
    // (When a part of a recording is begun, it is not known how long it will be.)
    let seconds = if s.seconds > 0.0 { s.seconds } else { r.end().map_or(0.0, |end| end.seconds) };
    Some(Saved {
        reason: s.reason,
        what: s.what,
        number: s.number,
        seconds,
        events: s.events,
        bytes: s.bytes,
        doorbells: s.doorbells,
        processes: s.processes,
        forgotten: s.forgotten,
    })
}

fn losses(r: &Recording, out: &Outcome) -> Lost {
    let sum = |f: fn(&Channel) -> u64| out.channels.iter().map(f).fold(0, u64::saturating_add);
    // The recorder counts each ring once, also a gap at the very end, which has no event after it. GAP events are what
    // there is where the recorder was killed; never more than is missing.
    let gaps = Gaps {
        events: out.gaps.events.max(r.total(|e| e.gap_events, |e| e.gap_events)),
        entries: out.gaps.entries.max(r.total(|e| e.gap_entries, |e| e.gap_entries)),
        bytes: out.gaps.bytes.max(r.total(|e| e.gap_bytes, |e| e.gap_bytes)),
    };
    Lost {
        by_channels: sum(|c| c.lost),
        by_gaps: gaps.entries,
        gap_events: gaps.events,
        gap_bytes: gaps.bytes,
        channels_unaccounted: sum(|c| u64::from(c.accounted_by == Accounted::Seen)),
        rings_missing: sum(|c| c.rings_missing),
        blind_rings: sum(|c| if c.watch == Watch::Blind { c.rings } else { 0 }),
        unrung: sum(|c| c.unrung),
        strangers: out.strangers.max(r.total(|e| e.strangers, |e| e.strangers)),
    }
}

fn program(r: &Recording) -> Program {
    let h = r.header();
    let of = |p: &tape::file::Process| Program {
        exe: p.exe.clone(),
        args: p.args.clone(),
        pid: p.pid,
        started: h.started.clone(),
    };
    match r.images() {
        [.., last] if r.is_selected() => of(&last.process),
        _ => {
            let pid = r.end().map_or_else(|| r.images().first().map_or(0, |i| i.process.pid), |e| e.pid);
            Program { exe: h.exe.clone(), args: h.args.clone(), pid, started: h.started.clone() }
        }
    }
}

/// Of the first program, or of the process that was asked for.
fn ended(r: &Recording) -> Option<HowEnded> {
    if r.is_selected() {
        return r.ends().last().map(processes::ended);
    }
    r.end().map(|e| HowEnded { how: e.how.clone(), exit_code: e.exit_code, signal: e.signal })
}

fn seconds(r: &Recording, out: &Outcome) -> Option<f64> {
    if r.is_selected() {
        return Some(r.ends().map(|e| e.seconds).sum());
    }
    if let Some(e) = r.end()
        && e.seconds > 0.0
    {
        return Some(e.seconds);
    }
    if let (Some(a), Some(b)) = (r.clocks().first(), r.clocks().last())
        && b.monotonic_ns > a.monotonic_ns
    {
        return Some((b.monotonic_ns - a.monotonic_ns) as f64 / 1e9);
    }
    let hz = r.header().tsc_hz;
    let ticks = out.last_ring?.saturating_sub(r.first_tsc()?);
    (hz.is_finite() && hz > 0.0).then(|| ticks as f64 / hz)
}

fn site_text(why: u32) -> &'static str {
    match why {
        site_why::TAP_IS_TRAP => "the tap is `trap`",
        site_why::SHAPE => "neither dead padding after it nor a long enough instruction",
        site_why::NO_STUB => "no room for a stub within 2 GiB",
        site_why::REFUSED => "mprotect or membarrier refused",
        site_why::FULL => "out of slots for sites",
        site_why::NOT_A_DOORBELL => "a load, or a store of another width",
        _ => "no reason given",
    }
}
