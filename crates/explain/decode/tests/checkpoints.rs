//! A walk that begins at a place in the file finds what a whole walk finds from there on; where it may not begin there, it is a whole walk.

mod synthetic;

use decode::walk::{At, Filter, GraphKernel, Pattern, Segment, Sink, walk};
use decode::{Recording, ranges, store_summary_and_places};
use pushbuf::decode::Item;
use pushbuf::ops::{Op, What};
use schema::Clock;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use synthetic::*;
use tape::event::RingBody;
use tape::file::{Item as FileItem, Place, Reader, Writer};
use tape::{call, nvtx};

const LONG: Duration = Duration::from_secs(600);

/// All that comes with submissions from a time stamp on, or with those that a filter lets pass.
#[derive(Default)]
struct Rows {
    from: u64,
    begins: bool,
    filter: Option<(Filter, Clock)>,
    /// The walk is told of the filter.
    skips: bool,
    rows: Vec<String>,
    given: u64,
}

impl Rows {
    fn add(&mut self, at: &At<'_>, row: impl FnOnce() -> String) {
        let wanted = self.filter.as_ref().is_none_or(|(filter, clock)| filter.wants_at(at, clock));
        if wanted && at.submission.tsc >= self.from {
            self.rows.push(format!("{} {}", at.number, row()));
        }
    }
}

impl Sink for Rows {
    fn from(&self) -> Option<u64> {
        self.begins.then_some(self.from)
    }

    fn filter(&self) -> Option<&Filter> {
        self.filter.as_ref().filter(|_| self.skips).map(|(filter, _)| filter)
    }

    fn submission(&mut self, at: &At<'_>) {
        self.given += 1;
        let ranges: Vec<_> = at.ranges().collect();
        let (s, c) = (at.submission, at.channel);
        self.add(at, || format!("{} {:?} {} {} {ranges:?}", s.tid, s.ring, c.label(), c.engine));
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        let place = at.located(s.va);
        self.add(at, || format!("{:?} {:x} {:?} {} {} {place:?}", s.entry, s.va, s.words, s.after_gap, s.va_guessed));
    }

    fn item(&mut self, at: &At<'_>, item: &Item<'_>) {
        self.add(at, || item.to_string());
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        let places = match &op.what {
            What::Copy(c) => format!("{:?} {:?}", at.located(c.src), at.located(c.dst)),
            _ => String::new(),
        };
        self.add(at, || format!("{op:?} {places} {:?} {:?} {:?}", at.started(), at.kernel(), at.gpu_time()));
    }

    fn graph_kernel(&mut self, at: &At<'_>, k: &GraphKernel) {
        self.add(at, || format!("{:x} {:?} {:?} {:?}", k.qmd, k.shape, k.kernel, k.gpu));
    }

    fn range(&mut self, r: &ranges::Range, texts: &ranges::Texts) {
        if self.filter.is_none() && r.ended.is_some_and(|(tsc, _)| tsc >= self.from) {
            self.rows.push(format!("{r:?} {}", texts.label(r.key)));
        }
    }
}

/// Rows from a time stamp on, with what is known at the end, and how many submissions a sink was given.
fn rows(path: &Path, from: u64, begins: bool) -> (Vec<String>, u64) {
    rows_of(path, Rows { from, begins, ..Rows::default() })
}

fn rows_of(path: &Path, mut rows: Rows) -> (Vec<String>, u64) {
    let r = Recording::open(path).unwrap();
    let out = walk(&r, &mut rows).unwrap();
    let Rows { mut rows, given, .. } = rows;
    rows.extend(out.channels.iter().map(|c| format!("{c:?}")));
    let graphs: Vec<_> = out.graphs.values().map(|g| g.living()).collect();
    rows.push(format!("{:?} {:?} {:?} {:?}", out.doorbells_of, out.pauses, out.gaps, out.range_oddities));
    rows.push(format!(
        "{:?} {:?}",
        (out.strangers, out.doorbells, out.unknown_events, out.stray_bytes, out.late),
        graphs
    ));
    rows.push(format!("{:?} {:?} {:?}", (out.first_ring, out.last_ring), (out.call_layout, out.lock_layout), out.nvtx));
    (rows, given)
}

/// Time stamps all over a recording.
fn times(path: &Path, many: u64) -> Vec<u64> {
    let r = Recording::open(path).unwrap();
    let out = walk(&r, &mut Rows { from: u64::MAX, ..Rows::default() }).unwrap();
    let (Some(first), Some(last)) = (out.first_ring, out.last_ring) else { return Vec::new() };
    (0..=many).map(|i| first + (last - first) / many * i).chain([0, last, last + 1]).collect()
}

/// Compares rows with and without places: how many walks did not begin at the begin.
fn compare(path: &Path, many: u64) -> usize {
    let mut later = 0;
    for from in times(path, many) {
        let ((whole, all), (part, given)) = (rows(path, from, false), rows(path, from, true));
        let differs = whole.iter().zip(&part).find(|(a, b)| a != b);
        assert!(whole == part, "{} from {from}: {} and {}, {differs:#?}", path.display(), whole.len(), part.len());
        later += usize::from(given < all);
    }
    later
}

/// Ranges that are open for long, two threads at one channel, memory and channels that come and go, names.
fn busy(turns: u64) -> Tape {
    let mut t = Tape::new();
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.channel(100, 1, 0x5c00_1001, 11, 1024);
    t.event(100, call::kind::CALLS, 0, &call::CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
    let name = b"_Z3addPi";
    t.event(100, call::kind::NAME, 0, &call::NameBody { handle: 0xf1, name: 8, pad: 0 }, name, &[]);
    let text = |t: &mut Tape, text: &str| {
        let id = nvtx::text(text.as_bytes());
        let body = nvtx::TextBody { id, bytes: text.len() as u32, ..nvtx::TextBody::default() };
        t.event(100, nvtx::kind::TEXT, 0, &body, text.as_bytes(), &[]);
        id
    };
    let epoch = text(&mut t, "epoch");
    t.event(100, nvtx::kind::PUSH, 0, &nvtx::RangeBody { text: epoch, ..Default::default() }, &[], &[]);
    t.event(101, nvtx::kind::START, 0, &nvtx::RangeBody { text: epoch, id: 7, ..Default::default() }, &[], &[]);
    for turn in 0..turns {
        t.tsc += 1000;
        let step = text(&mut t, &format!("step {}", turn % 10));
        t.event(100, nvtx::kind::PUSH, 0, &nvtx::RangeBody { text: step, id: 1, ..Default::default() }, &[], &[]);
        t.call = RingBody { function: 1, call: turn as u32 + 1, kernel: 0xf1, ..RingBody::default() };
        t.submit(100, 0, &[&launch(QMD_AT, [turn % 100 + 1, 2, 1])]);
        t.call = RingBody::default();
        t.submit(if turn % 3 == 0 { 100 } else { 101 }, 1, &[&copy(HOST_AT, DEVICE_AT, 4096), &fill(DEVICE_AT, 0, 64)]);
        if turn % 20 == 0 {
            let (handle, va) = (0x5d00_0000 + turn as u32, 0x7e00_0000_0000 + (turn << 20));
            t.memory(101, handle, rm::class::NV01_MEMORY_SYSTEM, va, 1 << 16);
        }
        if turn % 50 == 49 {
            t.end_channel(101, 1);
            t.channel(100, 1, 0x5c00_1001 + turn as u32, 11, 1024);
        }
        t.event(100, nvtx::kind::POP, 0, &nvtx::EndBody { domain: 0, id: 1 }, &[], &[]);
        if turn % 7 == 0 {
            t.cut(100);
            t.cut(101);
        }
    }
    t
}

fn all(dir: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for (i, mut tape) in [busy(400)].into_iter().chain(synthetic::of_every_kind()).enumerate() {
        all.push(dir.join(i.to_string()));
        tape.write(&all[i]);
    }
    all.push(dir.join("large"));
    synthetic::large(all.last().unwrap(), 6000);
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    for name in ["h200-launches.doorbell", "h200-copies.doorbell", "h200-programmatic.doorbell"] {
        all.push(dir.join(name));
        again(&fixtures.join(name), all.last().unwrap());
    }
    all
}

/// A recording of another version, as this one writes it.
fn again(from: &Path, to: &Path) {
    let mut reader = Reader::open(from).unwrap();
    let mut w = Writer::create(to, &reader.header().clone()).unwrap();
    while let Some(item) = reader.item().unwrap() {
        match item {
            FileItem::Events { process, tid, bytes } => w.events(process, tid, &bytes),
            FileItem::Clock(c) => w.clock(&c),
            FileItem::Note(text) => w.note(&text),
            FileItem::Process(p) => w.process(&p),
            FileItem::ProcessEnd(e) => w.process_end(&e),
            FileItem::Unwatched(u) => w.unwatched(&u),
            FileItem::Looks(looks) => w.looks(&looks),
            FileItem::End(e) => w.end(&e),
            other => panic!("{other:?}"),
        }
        .unwrap();
    }
}

#[test]
fn from_any_place_the_rows_are_those_of_a_whole_walk() {
    let dir = tempfile::tempdir().unwrap();
    let mut began = Vec::new();
    for path in all(dir.path()) {
        assert!(store_summary_and_places(&path, LONG, 5).unwrap(), "{}", path.display());
        began.push((path.file_name().unwrap().to_string_lossy().into_owned(), compare(&path, 7)));
    }
    println!("{began:?}");
    for name in ["0", "large", "h200-launches.doorbell", "h200-copies.doorbell"] {
        assert!(began.iter().any(|(n, later)| n == name && *later > 3), "{name}: {began:?}");
    }
}

/// Ten parts, each with a thread, a channel, a call, a stream, a kernel and a range of its own; and one of the first part's at the end of the seventh.
fn phases() -> Tape {
    let mut t = Tape::new();
    t.context(100);
    for slot in 0..3 {
        t.channel(100, slot, 0x5c00_1000 + slot, if slot == 2 { 11 } else { 1 }, 1024);
    }
    t.event(100, call::kind::CALLS, 0, &call::CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
    for part in 0..10u64 {
        for turn in 0..60u32 {
            let part = if (part, turn) == (7, 59) { 0 } else { part };
            let tid = 100 + part as i32;
            t.tsc += 1000;
            if turn == 0 {
                let name = format!("_Z2k{part}Pi");
                let body = call::NameBody { handle: 0xf0 + part, name: name.len() as u32, pad: 0 };
                t.event(tid, call::kind::NAME, 0, &body, name.as_bytes(), &[]);
            }
            let text = format!("part {part}");
            let id = nvtx::text(text.as_bytes());
            let body = nvtx::TextBody { id, bytes: text.len() as u32, ..nvtx::TextBody::default() };
            t.event(tid, nvtx::kind::TEXT, 0, &body, text.as_bytes(), &[]);
            t.event(tid, nvtx::kind::PUSH, 0, &nvtx::RangeBody { text: id, id: 1, ..Default::default() }, &[], &[]);
            let (function, stream) = (call::FUNCTIONS[part as usize].number.into(), 0x1000 + part);
            t.call = RingBody { function, call: turn + 1, kernel: 0xf0 + part, stream, ..RingBody::default() };
            t.submit(tid, (part % 2) as u32, &[&launch(QMD_AT, [u64::from(turn) + 1, 2, 1])]);
            t.call = RingBody::default();
            if part == 3 {
                t.submit(tid, 2, &[&copy(HOST_AT, DEVICE_AT, 4096)]);
            }
            t.event(tid, nvtx::kind::POP, 0, &nvtx::EndBody { domain: 0, id: 1 }, &[], &[]);
            if turn % 9 == 0 {
                t.cut(tid);
            }
        }
    }
    t
}

#[test]
fn a_filter_is_given_what_it_lets_pass_and_little_else() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    phases().write(&path);
    let call = |part: usize| Some(call::FUNCTIONS[part].name.to_owned());
    let named = |text: &str| Some(Pattern::new(text).unwrap());
    let filters = [
        (Filter { thread: Some(104), ..Filter::default() }, 300),
        (Filter { thread: Some(100), ..Filter::default() }, 400),
        (Filter { call: call(5), ..Filter::default() }, 300),
        (Filter { stream: Some(0x1009), ..Filter::default() }, 200),
        (Filter { channel: Some((2, None)), ..Filter::default() }, 300),
        (Filter { range: named("part [26]$"), ..Filter::default() }, 400),
        (Filter { kernel: named("k4"), ..Filter::default() }, 300),
        (Filter { call: call(5), thread: Some(104), ..Filter::default() }, 100),
        (Filter { thread: Some(1), ..Filter::default() }, 100),
    ];
    let clock = decode::rows::clock(&Recording::open(&path).unwrap());
    let of = |filter: &Filter, skips| {
        let filter = Some((filter.clone(), clock));
        rows_of(&path, Rows { filter, skips, ..Rows::default() })
    };
    let before: Vec<_> = filters.iter().map(|(filter, _)| of(filter, true)).collect();
    assert!(before.iter().all(|(_, given)| *given == 660), "without places all of it is read");
    assert!(store_summary_and_places(&path, LONG, 20).unwrap());
    for ((filter, most), (right, _)) in filters.iter().zip(before) {
        let (found, given) = of(filter, true);
        // (A kernel's name is no property of a submission: rows of others near it are there as well.)
        if filter.kernel.is_none() {
            assert!(found == right, "{filter:?}");
        } else {
            assert!(right.iter().filter(|row| row.contains("k4")).all(|row| found.contains(row)), "{filter:?}");
        }
        assert!(given < *most, "{filter:?}: {given}");
    }
}

/// The driver's calls that name its engine come after some of its submissions: another thread made them.
#[test]
fn a_channel_whose_engine_becomes_known_in_the_middle_of_a_span_is_found_by_it() {
    const HANDLE: u32 = 0x5c00_1005;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let mut t = Tape::new();
    t.context(100);
    t.announced(100, 5, HANDLE, 1024);
    t.bare_channel(5, HANDLE, 77, 1024);
    let submits = |t: &mut Tape, n: u32| {
        for turn in 0..n {
            t.tsc += 1000;
            t.submit(100, 5, &[&copy(HOST_AT, DEVICE_AT, 4096)]);
            if turn % 9 == 0 {
                t.cut(100);
            }
        }
    };
    submits(&mut t, 230);
    t.driver_channel(100, DEVICE, 0, HANDLE, 11, 1024);
    t.engines(100, HANDLE, 11);
    submits(&mut t, 230);
    t.write(&path);
    let clock = decode::rows::clock(&Recording::open(&path).unwrap());
    let of = |skips| {
        let filter = Filter { engine: Some("COPY2".to_owned()), ..Filter::default() };
        rows_of(&path, Rows { filter: Some((filter, clock)), skips, ..Rows::default() })
    };
    let (right, whole) = of(false);
    assert!(whole == 460 && right.len() > 230, "{whole}: {:?}", right.first());
    assert!(store_summary_and_places(&path, LONG, 100).unwrap());
    let (found, given) = of(true);
    assert!(found == right && given < whole, "{given} of {whole}");
}

/// Where the places lie in the file.
fn places(path: &Path) -> Vec<Place> {
    let mut reader = Reader::open(path).unwrap().unread();
    let mut all = Vec::new();
    while let Ok(Some(item)) = reader.item() {
        if let FileItem::Checkpoint = item {
            all.push(reader.place());
        }
    }
    all
}

#[test]
fn places_are_few_and_take_little() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    synthetic::large(&path, 20_000);
    let before = std::fs::metadata(&path).unwrap().len();
    assert!(store_summary_and_places(&path, LONG, 1).unwrap());
    let after = std::fs::metadata(&path).unwrap().len();
    let many = places(&path).len();
    println!("{many} places: {before} bytes, then {after}");
    assert!((8..=64).contains(&many) && after - before < (1 << 20) + before / 16 + 20_000, "{many}, {before}, {after}");
}

/// With one file: a copy of it is damaged.
fn small(path: &Path) -> (Vec<u8>, u64) {
    let mut t = busy(30);
    t.write(path);
    assert!(store_summary_and_places(path, LONG, 8).unwrap());
    let from = *times(path, 4).get(3).unwrap();
    assert!(compare(path, 4) >= 4);
    (std::fs::read(path).unwrap(), from)
}

#[test]
fn a_damaged_place_costs_a_walk_and_never_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let (whole, from) = small(&path);
    let first = places(&path)[0].offset - 48;
    let right = rows(&path, from, false).0;
    let file = File::options().write(true).open(&path).unwrap();
    // All over the places and the index behind them.
    for at in (first..whole.len() as u64).step_by(11) {
        file.write_all_at(&[whole[at as usize] ^ 4], at).unwrap();
        assert!(rows(&path, from, true).0 == right, "a flipped bit at {at}");
        file.write_all_at(&[whole[at as usize]], at).unwrap();
    }
    for cut in (first..whole.len() as u64).rev().step_by(11) {
        file.set_len(cut).unwrap();
        assert!(Recording::open(&path).unwrap().damage().is_none(), "cut at {cut}");
        assert!(rows(&path, from, true).0 == right, "cut at {cut}");
    }
}

/// Of events that are damaged a whole walk knows less: so does one that could begin behind them.
#[test]
fn behind_damaged_events_the_walk_is_a_whole_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let (whole, from) = small(&path);
    let first = places(&path)[0].offset - 48;
    let file = File::options().write(true).open(&path).unwrap();
    for at in (16..first).step_by(83) {
        file.write_all_at(&[whole[at as usize] ^ 4], at).unwrap();
        if Recording::open(&path).is_ok() {
            assert!(rows(&path, from, true).0 == rows(&path, from, false).0, "a flipped bit at {at}");
        }
        file.write_all_at(&[whole[at as usize]], at).unwrap();
    }
}
