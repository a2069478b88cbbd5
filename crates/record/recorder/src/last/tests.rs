//! A saved part reads the same as the whole recording for the same time, and memory does not grow.

use super::*;
use crate::flight::Schedule;
use crate::kept::time_of;
use crate::synthetic::*;
use decode::walk::{At, Call, Segment, Sink, walk};
use decode::{Recording, Source};
use pushbuf::ops::{Op, What};
use rm::abi::{self, Plain as _, nr, uvm};
use std::cell::Cell;
use std::path::Path;
use std::time::Instant;
use tape::event::*;
use tape::file::{End, Item, Reader};
use tape::ring::whole_events;
use tape::{call, lock, nvtx};

mod parts;

thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

fn now() -> u64 {
    NOW.get()
}

fn asked(span: Span, name: &Path) -> Last {
    Last { span, when: Vec::new(), name: name.into(), force: false, signal: None, most_files: 100 }
}

fn newest(header: Header, last: &Last) -> Newest {
    NOW.set(0);
    let schedule = Schedule::new(last.clone(), header.tsc_hz, Arc::new(|_| ()));
    Newest::new(header, Saver::new(schedule), now)
}

fn request(until: u64) -> Request {
    let end = End { how: "still running".into(), agent: true, complete: true, ..End::default() };
    Request { why: why("SIGUSR1", String::new(), now()), until, end, ..Request::default() }
}

/// Whole events of one thread, as they arrived.
struct Piece {
    process: u32,
    tid: i32,
    events: Vec<u8>,
    /// When its last event ended, and the time before which no event arrives after this piece.
    last: u64,
    until: u64,
}

/// A recording in small pieces in the order of time, and its items that are no events.
fn pieces(path: &Path, piece: usize) -> (Vec<Piece>, Vec<Beside>) {
    let mut reader = Reader::open(path).unwrap();
    let (mut pieces, mut beside) = (Vec::new(), Vec::new());
    while let Some(item) = reader.item().unwrap() {
        match item {
            Item::Events { process, tid, bytes } => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let n = match whole_events(rest, piece) {
                        0 => whole_events(rest, 1 << 20),
                        n => n,
                    };
                    let (part, later) = rest.split_at(n);
                    let last = Events::new(part).map(|e| time_of(&e)).max().unwrap();
                    pieces.push((last, process, tid, part.to_vec()));
                    rest = later;
                }
            }
            Item::Clock(c) => beside.push(Beside::Clock(c)),
            Item::Process(p) => beside.push(Beside::Process(*p)),
            _ => {}
        }
    }
    // (A thread's pieces keep their order.)
    pieces.sort_by_key(|p| p.0);
    let mut until: Vec<u64> = pieces.iter().map(|p| Events::new(&p.3).map(|e| time_of(&e)).min().unwrap()).collect();
    for i in (1..until.len()).rev() {
        until[i - 1] = until[i - 1].min(until[i]);
    }
    until.push(u64::MAX);
    let piece = |((last, process, tid, events), until)| Piece { process, tid, events, last, until };
    (pieces.into_iter().zip(until.split_off(1)).map(piece).collect(), beside)
}

/// Feeds a recording. `each` sees every piece.
fn feed(path: &Path, piece: usize, newest: &mut Newest, mut each: impl FnMut(&mut Newest, u64)) {
    let (pieces, beside) = pieces(path, piece);
    beside.into_iter().for_each(|b| newest.beside(b));
    let mut packer = Packer::default();
    for Piece { process, tid, events, last, until } in pieces {
        NOW.set(now().max(last) + 1);
        let packed = packer.pack(&events).map(<[u8]>::to_vec);
        newest.events(process, tid, &events, packed.as_deref());
        assert!(newest.bytes() <= newest.bound.max(newest.kept.bytes()), "{} of {}", newest.bytes(), newest.bound);
        // (The earliest time of all later events.)
        each(newest, until);
    }
}

/// Everything that a reader gets from some time on, as text.
struct Seen {
    from: u64,
    all: Vec<(u64, String)>,
    /// Operations that depend on earlier events, by their place, and their number.
    guessed: Vec<(u64, u64)>,
}

impl Seen {
    fn of(path: &Path, from: u64) -> Seen {
        let r = Recording::open(path).unwrap();
        let mut seen = Seen { from, all: Vec::new(), guessed: Vec::new() };
        let outcome = walk(&r, &mut seen).unwrap();
        let lost: u64 = outcome.channels.iter().map(|c| c.lost + c.surplus + c.rings_missing).sum();
        assert_eq!((lost, outcome.strangers, outcome.unknown_events, outcome.late), (0, 0, 0, 0), "{}", path.display());
        seen.all.sort();
        seen
    }

    fn add(&mut self, tsc: u64, text: String) {
        if tsc >= self.from {
            self.all.push((tsc, text));
        }
    }
}

/// An operation without the number of its segment, which counts from the beginning of the part.
fn described(what: &What) -> String {
    match what {
        What::Inline(i) => format!("inline {:x} {} {:?}", i.dst, i.bytes(), i.purpose),
        What::Launch(l) => format!("launch {:?} {:x} {:?}", l.how, l.qmd_address, l.qmd.map(|q| format!("{q:?}"))),
        other => format!("{other:?}"),
    }
}

impl Sink for Seen {
    fn call(&mut self, source: Source, tsc: u64, call: &Call<'_>, _: &rm::abi::Branch) {
        self.add(tsc, format!("{source:?} {call:?}"));
    }

    fn segment(&mut self, at: &At<'_>, s: &Segment<'_>) {
        let sub = at.submission;
        let (ring, label, engine) = (sub.ring.map(|r| r.seq), at.channel.label(), &at.channel.engine);
        let ranges: Vec<_> = at.ranges().collect();
        self.add(
            sub.tsc,
            format!("{} {ring:?} {label} {engine} {} {:?} {:x} {ranges:?}", sub.tid, s.entry.seq, s.words, s.va),
        );
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        let tsc = at.submission.tsc;
        if op.guessed {
            self.guessed.push((tsc, at.channel.slot.into()));
        } else {
            let places = match &op.what {
                What::Copy(c) => format!("{:?} {:?}", at.located(c.src), at.located(c.dst)),
                _ => String::new(),
            };
            let kernel = at.kernel().map(|k| format!("{k:?}"));
            self.add(tsc, format!("{} {} {places} {kernel:?}", at.channel.label(), described(&op.what)));
        }
    }

    fn wants_events(&self) -> bool {
        true
    }

    fn event(&mut self, source: Source, e: &Event<'_>, ranges: Option<&decode::ranges::Open>) {
        // (Lasting events are also before the part.)
        self.add(e.head.tsc, format!("{source:?} {e:?} {ranges:?}"));
    }

    fn range(&mut self, range: &decode::ranges::Range, texts: &decode::ranges::Texts) {
        if let Some((ended, _)) = range.ended {
            self.add(ended, format!("{range:?} {}", texts.label(range.key)));
        }
    }
}

/// Compares the saved part with the whole recording. Returns the number of rows in the part.
fn compare(whole: &Path, part: &Path) -> usize {
    compare_until(whole, part, u64::MAX)
}

/// The same for a part that ends at `until`.
fn compare_until(whole: &Path, part: &Path, until: u64) -> usize {
    let header = Recording::open(part).unwrap().header().clone();
    let from = header.saved.unwrap().from_tsc;
    let (mut a, b) = (Seen::of(whole, from), Seen::of(part, from));
    a.all.retain(|row| row.0 < until);
    a.guessed.retain(|at| at.0 < until);
    // Operations that depend on missing events are marked as such, and are as many as in the whole.
    let ops = |s: &Seen| s.all.len() + s.guessed.iter().filter(|(tsc, _)| *tsc >= from).count();
    assert_eq!(ops(&a), ops(&b), "{}", part.display());
    let lacks: Vec<_> = b.all.iter().filter(|row| a.all.binary_search(row).is_err()).take(3).collect();
    let instead: Vec<_> = a.all.iter().filter(|row| lacks.first().is_some_and(|l| l.0 == row.0)).collect();
    assert!(lacks.is_empty(), "{}: not in the whole: {lacks:#?}, but {instead:#?}", part.display());
    let guessed = b.guessed.len().saturating_sub(a.guessed.len());
    assert!(a.all.len() - b.all.len() == guessed && guessed <= 64, "{guessed} of {} are guesses", b.all.len());
    b.all.len()
}

fn saved(newest: Newest, dir: &Path) -> std::path::PathBuf {
    let saves = newest.finish(Some(request(u64::MAX)));
    assert_eq!((saves.files.len(), saves.failed), (1, 0), "{saves:?}");
    assert!(saves.files[0].path.starts_with(dir));
    saves.files[0].path.clone()
}

/// Two threads that use two channels, one of which both ring. Calls, locks, ranges, names, memory that is allocated and freed,
/// channels that end.
fn busy(turns: u64) -> Tape {
    let mut t = Tape::new();
    for tid in [100, 101] {
        let thread = ThreadBody { tid, ordinal: 0, from_ring: NO_RING, ..ThreadBody::default() };
        t.event(tid, kind::THREAD, 0, &thread, &[], &[]);
        let body = lock::LocksBody { layout: lock::LAYOUT, pid: 4242 };
        t.event(tid, lock::kind::LOCKS, 0, &body, &[], &[]);
        t.event(tid, call::kind::CALLS, 0, &call::CallsBody { layout: call::LAYOUT, pid: 4242 }, &[], &[]);
    }
    t.event(
        100,
        nvtx::kind::NVTX,
        0,
        &nvtx::NvtxBody { layout: nvtx::LAYOUT, state: nvtx::state::CONNECTED },
        &[],
        &[],
    );
    t.context(100);
    t.channel(100, 0, 0x5c00_1000, 1, 1024);
    t.channel(100, 1, 0x5c00_1001, 11, 1024);
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
    for turn in 0..turns {
        let step = text(&mut t, &format!("step {}", turn % 10));
        t.event(100, nvtx::kind::PUSH, 0, &nvtx::RangeBody { text: step, id: 1, ..Default::default() }, &[], &[]);
        t.tsc += 1000;
        let began = t.tsc;
        t.call = RingBody { function: 1, call: turn as u32 + 1, kernel: 0xf1, ..RingBody::default() };
        t.submit(100, 0, &[&launch(QMD_AT, [turn % 100 + 1, 2, 1])]);
        t.call = RingBody::default();
        let done = call::CallBody { began, seq: turn as u32 + 1, ..Default::default() };
        t.event(100, call::kind::CALL, 1, &done, &[], &[]);
        t.submit(if turn % 3 == 0 { 100 } else { 101 }, 1, &[&copy(HOST_AT, DEVICE_AT, 4096), &fill(DEVICE_AT, 0, 64)]);
        let pair = lock::PairBody { addr: 0x5000, site: 0x2000, hold: 60, release: 4 };
        t.event(101, lock::kind::PAIR, u16::from(lock::op::MUTEX_LOCK) << 8, &pair, &[], &[]);
        if turn % 50 == 0 {
            t.memory(
                101,
                0x5d00_0000 + turn as u32,
                rm::class::NV01_MEMORY_SYSTEM,
                0x7e00_0000_0000 + (turn << 20),
                1 << 16,
            );
        }
        if turn % 10 == 0 {
            comes_and_goes(&mut t, 101, turn as u32);
        }
        if turn % 200 == 199 {
            // Another channel in the slot, with other counters.
            t.end_channel(101, 1);
            t.channel(100, 1, 0x5c00_1001 + turn as u32, 11, 1024);
        }
        t.event(100, nvtx::kind::POP, 0, &nvtx::EndBody { domain: 0, id: 1 }, &[], &[]);
    }
    t.event(100, nvtx::kind::POP, 0, &nvtx::EndBody::default(), &[], &[]);
    t
}

#[test]
fn the_part_is_read_as_the_whole_is_read_for_its_time() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.doorbell");
    busy(3000).write(&whole);
    let header = Reader::open(&whole).unwrap().header().clone();
    let mut rows = Vec::new();
    for (bound, piece) in [(200 << 10, 1 << 10), (400 << 10, 4 << 10), (2 << 20, 64 << 10)] {
        let last = asked(Span::Bytes(bound), &dir.path().join("part.doorbell"));
        let mut newest = newest(header.clone(), &last);
        feed(&whole, piece, &mut newest, |_, _| ());
        assert!(newest.cut > 0 || bound > 1 << 20, "all of it fits into {bound}");
        assert_eq!(newest.kept.forgotten, 0);
        rows.push(compare(&whole, &saved(newest, dir.path())));
    }
    println!("rows: {rows:?}");
    assert!(rows[0] > 500 && rows[1] > rows[0], "{rows:?}");
    // A span of time, whatever memory it takes.
    let last = asked(Span::Time(Duration::from_nanos(500_000)), &dir.path().join("part.doorbell"));
    let mut newest = newest(header, &last);
    feed(&whole, 4 << 10, &mut newest, |_, _| ());
    let part = saved(newest, dir.path());
    assert!(compare(&whole, &part) > 100);
    let s = decode::summary(&Recording::open(&part).unwrap()).unwrap();
    let about = s.saved.unwrap();
    assert!((0.0004..0.0006).contains(&about.seconds) && about.doorbells > 5000, "{about:?}");
    assert!(s.complete, "{:?}", s.incomplete_because);
}

/// Saves in the middle, at many places.
#[test]
fn any_moment_can_be_saved() {
    let dir = tempfile::tempdir().unwrap();
    let whole = dir.path().join("whole.doorbell");
    busy(600).write(&whole);
    let header = Reader::open(&whole).unwrap().header().clone();
    let last = asked(Span::Bytes(60 << 10), &dir.path().join("part.doorbell"));
    let mut newest = newest(header, &last);
    let mut pieces = 0;
    feed(&whole, 700, &mut newest, |n, until| {
        pieces += 1;
        if pieces % 97 == 0 {
            n.save(request(until));
        }
    });
    let saves = newest.finish(None);
    assert!(saves.files.len() > 5 && saves.failed == 0, "{} files of {pieces} pieces", saves.files.len());
    for file in saves.files {
        let r = Recording::open(&file.path).unwrap();
        let s = decode::summary(&r).unwrap();
        assert_eq!(
            (s.lost, s.problems.holes, s.problems.bad_headers, s.damage.clone()),
            (0, 0, 0, None),
            "{}",
            file.path.display()
        );
        assert!(s.complete, "{:?}", s.incomplete_because);
    }
}

/// Recordings of an H200.
#[test]
fn recordings_of_a_gpu_are_read_the_same() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures");
    for name in ["h200-launches.doorbell", "h200-copies.doorbell"] {
        let dir = tempfile::tempdir().unwrap();
        let whole = fixtures.join(name);
        let header = Reader::open(&whole).unwrap().header().clone();
        let size = std::fs::metadata(&whole).unwrap().len();
        for part in [2, 4] {
            let last = asked(Span::Bytes(size / part), &dir.path().join(name));
            let mut newest = newest(header.clone(), &last);
            feed(&whole, 4 << 10, &mut newest, |_, _| ());
            println!("{name}: {} forgotten of {size} bytes", newest.kept.forgotten);
            println!("{name}: {} rows", compare(&whole, &saved(newest, dir.path())));
        }
    }
}

/// Memory with a range of addresses that the program sees, allocated and freed again.
fn comes_and_goes(t: &mut Tape, tid: i32, n: u32) {
    let (memory, fd, length) = (0x5d00_0000 + n, 50 + (n % 4) as i32, 1 << 16);
    let base = 0x7e00_0000_0000 + (u64::from(n % 64) << 16);
    let range = uvm::Range { base, length, ..uvm::Range::default() };
    t.ioctl(tid, UVM, file::UVM, uvm::CREATE_EXTERNAL_RANGE, range.as_bytes(), &[]);
    t.memory_of(tid, DEVICE, memory, rm::class::NV01_MEMORY_SYSTEM, length);
    t.external(tid, GPU_0, memory, base, length);
    let body = FileBody { fd, other: -1, file: file::GPU, path: 12 };
    t.event(tid, kind::OPEN, 0, &body, b"/dev/nvidia0", &[]);
    let map = abi::Nvos33Fd { client: CLIENT, device: DEVICE, memory, length, fd, ..Default::default() };
    t.rm(tid, nr::MAP_MEMORY, &map, &[]);
    let body = MmapBody { addr: base, len: length, fd, file: file::GPU, ..Default::default() };
    t.event(tid, kind::MMAP, 0, &body, &[], &[]);
    t.event(tid, kind::CLOSE, 0, &FileBody { fd, other: -1, file: file::GPU, path: 0 }, &[], &[]);
    t.event(tid, kind::MUNMAP, 0, &MunmapBody { addr: base, len: length }, &[], &[]);
    t.ioctl(tid, UVM, file::UVM, uvm::FREE, range.as_bytes(), &[]);
    t.free(tid, memory);
}

#[test]
fn calls_of_what_is_gone_are_left_out_and_what_is_still_mapped_stays() {
    let driver = "580.159.04";
    let branch = rm::abi::Abi::of(driver).branch();
    let mut t = Tape::new();
    t.context(1);
    let of_driver =
        |t: &mut Tape| t.take_open().into_iter().map(|((_, tid), bytes)| (tid, bytes)).collect::<BTreeMap<_, _>>();
    let begin = of_driver(&mut t);
    assert_eq!(crate::compact::compact(driver, branch, &begin), None, "nothing is gone");
    (0..50).for_each(|n| comes_and_goes(&mut t, 2, n));
    // Freed while a range of addresses still maps it.
    let range = uvm::Range { base: 0x7d00_0000_0000, length: 1 << 16, ..uvm::Range::default() };
    t.ioctl(2, UVM, file::UVM, uvm::CREATE_EXTERNAL_RANGE, range.as_bytes(), &[]);
    t.memory_of(2, DEVICE, 0x5e00_0000, rm::class::NV01_MEMORY_SYSTEM, 1 << 16);
    t.external(2, GPU_0, 0x5e00_0000, range.base, range.length);
    t.free(2, 0x5e00_0000);
    let mut all = begin.clone();
    all.extend(of_driver(&mut t));
    let fewer = crate::compact::compact(driver, branch, &all).unwrap();
    let calls = |of: &BTreeMap<i32, Vec<u8>>, tid: i32| Events::new(&of[&tid]).count();
    assert_eq!(fewer[&1], all[&1]);
    assert_eq!((calls(&all, 2), calls(&fewer, 2)), (50 * 11 - 50 + 4, 4));
    assert_eq!(crate::compact::compact(driver, branch, &fewer), None);
}

const HZ: u64 = 1_000_000_000;
/// Turns of a day, each this many seconds long.
const TURN: u64 = 10;
const TURNS: u64 = 24 * 3600 / TURN;

/// One turn of a program that runs for a day: threads, processes, memory and channels are created and end, and texts occur only once.
fn turn_of_a_day(t: &mut Tape, turn: u64) -> Vec<Beside> {
    let mut beside = Vec::new();
    t.tsc = (turn + 1) * TURN * HZ;
    NOW.set(t.tsc + HZ / 2);
    let tid = 100 + (turn % 30_000) as i32;
    if turn == 0 {
        t.context(1);
    }
    if turn.is_multiple_of(100) {
        // (The previous process has ended.)
        let index = (turn / 100) as u32 + 1;
        if index > 1 {
            beside.push(Beside::ProcessEnd(ProcessEnd { index: index - 1, ..ProcessEnd::default() }));
        }
        beside.push(Beside::Process(Process { index, pid: 1000 + index as i32, ..Process::default() }));
    }
    if turn.is_multiple_of(6) {
        beside.push(Beside::Clock(Clock { tsc: t.tsc, ..Clock::default() }));
    }
    let thread = ThreadBody { tid, ordinal: 0, from_ring: NO_RING, ..ThreadBody::default() };
    t.event(tid, kind::THREAD, 0, &thread, &[], &[]);
    t.event(tid, lock::kind::SCHED, 0, &lock::SchedBody { tid, ..Default::default() }, &[], &[]);
    let name = format!("step {turn}");
    let body = nvtx::TextBody { id: nvtx::text(name.as_bytes()), bytes: name.len() as u32, ..Default::default() };
    t.event(tid, nvtx::kind::TEXT, 0, &body, name.as_bytes(), &[]);
    comes_and_goes(t, tid, turn as u32);
    if turn.is_multiple_of(100) {
        t.channel(tid, 0, 0x5c00_1000 + turn as u32, 11, 64);
    }
    (0..8).for_each(|_| t.submit(tid, 0, &[&copy(HOST_AT, DEVICE_AT, 4096)]));
    if turn % 100 == 99 {
        t.end_channel(tid, 0);
        t.free(tid, GROUP + (0x5c00_1000 + turn as u32 - 99) % 0x1000);
    }
    t.process = (turn / 100) as u32 + 1;
    t.note(5000 + t.process as i32, "a process that comes and goes");
    t.process = 0;
    beside
}

#[test]
fn a_day_takes_no_more_memory_than_an_hour() {
    let header = Header { tsc_hz: HZ as f64, driver: "580.159.04".into(), ..Header::default() };
    for span in [Span::Bytes(2 << 20), Span::Time(Duration::from_secs(30))] {
        let dir = tempfile::tempdir().unwrap();
        let mut newest = newest(header.clone(), &asked(span, &dir.path().join("a.doorbell")));
        let (mut packer, begun, mut most, mut after_an_hour) = (Packer::default(), Instant::now(), 0, 0);
        let mut t = Tape::new();
        newest.beside(Beside::Process(Process { index: 0, pid: 1, ..Process::default() }));
        for turn in 0..TURNS {
            turn_of_a_day(&mut t, turn).into_iter().for_each(|b| newest.beside(b));
            for ((process, tid), bytes) in t.take_open() {
                let packed = packer.pack(&bytes).map(<[u8]>::to_vec);
                newest.events(process, tid, &bytes, packed.as_deref());
            }
            most = most.max(newest.bytes());
            if turn == 3600 / TURN {
                after_an_hour = most;
            }
        }
        let (forgotten, queue) = (newest.kept.forgotten, newest.queue.len());
        println!(
            "{span:?}: {most} bytes at most, {after_an_hour} in the first hour; at the end (calls, words) {:?}, {forgotten} forgotten, {queue} pieces, {:?}",
            newest.kept.sizes(),
            begun.elapsed()
        );
        assert!(most <= newest.bound, "{most}");
        // Driver calls of freed objects take no memory. (Texts that occur only once do.)
        assert!(newest.kept.sizes().0 < 600 << 10, "{:?}", newest.kept.sizes());
        assert!(newest.processes.len() < 100 && newest.clocks.len() <= CLOCKS && newest.ended.len() < 100);
        let s = decode::summary(&Recording::open(&saved(newest, dir.path())).unwrap()).unwrap();
        assert_eq!((s.lost, s.problems.bad_headers, s.damage), (0, 0, None));
        let about = s.saved.unwrap();
        assert!(about.doorbells > 60_000 && about.processes > 80, "{about:?}");
    }
}
