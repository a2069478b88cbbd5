//! Recordings with markers planted wherever a name, a path or data may be.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::Recording;
use pushbuf::encode::{Words, inline_dma};
use redact::{Redaction, RedactionError, What};
use rm::abi::{self, Plain as _, nr, rm_request};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use synthetic::{CLIENT, CTL, GPU_0, Tape, one_of_everything};
use tape::event::{FileBody, IoctlBody, NoteBody, SiteBody, file, kind};
use tape::fault::{self, WatchedBody};
use tape::file::{Ancestor, End, Header, Item, Process, Reader, Saved, TapeError, Unwatched, Writer};
use tape::live::*;
use tape::lock::{self, HoldBody, LocksBody, MappingBody, PairBody, SchedBody};
use tape::switch::{self, SwitchesBody, TaskBody};

/// One for each option, in the order of [`OPTIONS`]. A thread's name has 15 bytes.
const MARKERS: [&str; 5] = ["PLANTEDDATA", "PLANTEDNAME", "PLANTEDARG", "PLANTEDPATH", "PLANTEDENV"];
const MARK: &str = "PLANTED";
const NONE: What = What { data: false, names: false, arguments: false, paths: false, environment: false };
const OPTIONS: [What; 5] = [
    What { data: true, ..NONE },
    What { names: true, ..NONE },
    What { arguments: true, ..NONE },
    What { paths: true, ..NONE },
    What { environment: true, ..NONE },
];

fn name16() -> [u8; 16] {
    let mut name = [0; 16];
    name[..11].copy_from_slice(b"PLANTEDNAME");
    name
}

fn planted() -> Tape {
    let mut t = one_of_everything();
    let exe = "/home/PLANTEDPATH/bin/PLANTEDNAME";
    let args = vec![exe.to_owned(), "--key=PLANTEDARG".into()];
    (t.header.exe, t.header.args) = (exe.into(), Some(args.clone()));
    t.header.host = "PLANTEDENV".into();
    t.header.kernel = "6.8.0-PLANTEDENV".into();
    t.header.cpu = "PLANTEDENV CPU".into();
    t.header.extra = [("variables".to_owned(), Value::from("TOKEN=PLANTEDENV"))].into_iter().collect();
    let what = "kernel PLANTEDNAME of PLANTEDENV took 5 ms".to_owned();
    t.header.saved = Some(Saved { reason: "kernel > 3ms".into(), what, ..Saved::default() });
    let through = vec![Ancestor { pid: 4000, name: "PLANTEDNAME".into() }];
    t.processes.push(Process { pid: 4242, exe: exe.into(), args: Some(args), through, ..Process::default() });
    let path = "/srv/PLANTEDPATH x/PLANTEDNAME y".to_owned();
    t.unwatched.push(Unwatched {
        pid: 9,
        path: path.clone(),
        why: "statically linked".into(),
        count: 1,
        ..Unwatched::default()
    });
    let end = t.end.as_mut().unwrap();
    end.incomplete_because = vec![format!("not watched: {path} (statically linked)")];
    end.trouble = vec!["thread PLANTEDNAME of /PLANTEDPATH/PLANTEDNAME".into()];

    let tid = 4242;
    let library = b"/usr/PLANTEDPATH/libPLANTEDNAME.so.7";
    let len = library.len() as u32;
    t.event(tid, lock::kind::LOCKS, 0, &LocksBody { layout: lock::LAYOUT, pid: 4242 }, &[], &[]);
    let map = MappingBody { start: 0x1000, end: 0x9000, rights: 5, path: len, ..Default::default() };
    // (With a build id.)
    t.event(tid, lock::kind::MAPPING, 11, &map, library, b"PLANTEDNAME");
    let sched = SchedBody { tid, name: name16(), ..Default::default() };
    t.event(tid, lock::kind::SCHED, 0, &sched, &[], &[]);
    let task = TaskBody { tid: 77, pid: 78, name: name16(), ..Default::default() };
    let text = b"/home/PLANTEDPATH/PLANTEDNAME may not";
    let switches = SwitchesBody { layout: switch::LAYOUT, scope: 1, text: text.len() as u32, ..Default::default() };
    t.event(switch::WRITER, switch::kind::SWITCHES, 0, &switches, text, &[]);
    let watched = WatchedBody { layout: fault::LAYOUT, text: text.len() as u32, ..WatchedBody::default() };
    t.event(fault::WRITER, fault::kind::WATCHED, 0, &watched, text, &[]);
    t.event(switch::WRITER, switch::kind::TASK, 0, &task, &[], &[]);
    for n in 0..4 {
        let pair = PairBody { addr: 0x2000 + 64 * (n % 2), site: 0x1100, hold: 5, release: 4 };
        t.event(tid, lock::kind::PAIR, u16::from(lock::op::MUTEX_LOCK) << 8, &pair, &[], &[]);
    }
    let hold = HoldBody { addr: 0x2000, site: 0x1100, release_site: 0x1104, wait: 3, hold: 4, ..Default::default() };
    t.event(tid, lock::kind::HOLD, u16::from(lock::op::MUTEX_LOCK) << 8, &hold, &[], &[]);
    t.event(tid, kind::SITE, 0, &SiteBody { ip: 0x1200, path: len, ..Default::default() }, library, &[]);
    let open = FileBody { fd: 50, other: -1, file: file::NODE, path: len };
    t.event(tid, kind::OPEN, 0, &open, library, &[]);
    t.note(tid, "PLANTEDNAME y.so: opened with dlmopen: its locks and calls are not recorded");
    t.note(tid, "odd: /opt/PLANTEDPATH/PLANTEDNAME.");

    // The client's name, a control that no reader knows, and a call that no reader knows.
    let secret = MARKERS.join(" ").into_bytes();
    let root = abi::Nvos64 { new: 0xc1d0_0009, class: rm::class::NV01_ROOT_CLIENT, ..Default::default() };
    let control = abi::Nvos54 { client: CLIENT, object: CLIENT, cmd: 0x102, ..Default::default() };
    let calls = [
        (rm_request(nr::ALLOC, size_of::<abi::Nvos64>()), root.as_bytes().to_vec()),
        (rm_request(nr::CONTROL, size_of::<abi::Nvos54>()), control.as_bytes().to_vec()),
        (rm_request(0xd9, secret.len()), secret.clone()),
    ];
    for (request, arg) in calls {
        let (arg_len, nested) = (arg.len() as u32, secret.len() as u32);
        let body = IoctlBody { fd: CTL, file: file::CTL, request, arg: arg_len, nested, ..Default::default() };
        t.event(tid, kind::IOCTL, 0, &body, &arg, &secret);
    }
    // An event of unknown kind, and bytes that are no event.
    t.event(tid, 999, 0, &NoteBody::default(), &secret, &[]);

    let mut buffer = [0; 64];
    let mut words = Words::new(&mut buffer);
    words.inline(2, synthetic::DEVICE_AT, b"PLANTEDDATA.PLANTEDDATA.", inline_dma::PITCH).unwrap();
    let words = words.as_slice().to_vec();
    t.channel(tid, 9, 0x5c00_0099, 1, 1024);
    t.submit(tid, 9, &[&words]);
    t.raw(tid, &[b"\xff\xff\xff\xff\xff\xff\xff\xff", &secret[..]].concat());
    t
}

fn written(mut t: Tape) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.doorbell");
    t.write(&path);
    (dir, path)
}

fn redacted(from: &Path, what: What) -> (PathBuf, Option<TapeError>) {
    let to = from.with_extension("redacted");
    let damage = Redaction::open(from, what).unwrap().write(File::create(&to).unwrap(), &to).unwrap();
    (to, damage)
}

/// Whether the bytes occur in the file, or in its unpacked events and summary.
fn has(path: &Path, bytes: &[u8]) -> bool {
    let mut all = fs::read(path).unwrap();
    let mut reader = Reader::open(path).unwrap();
    while let Ok(Some(item)) = reader.item() {
        if let Item::Events { bytes, .. } | Item::Summary(bytes) = item {
            all.extend(bytes);
        }
    }
    all.windows(bytes.len()).any(|w| w == bytes)
}

/// Where two documents differ in more than a text in which a marker was planted.
fn difference(a: &Value, b: &Value, at: &str, out: &mut Vec<String>) {
    match (a, b) {
        (Value::Object(x), Value::Object(y)) if x.keys().eq(y.keys()) => {
            x.iter().zip(y).for_each(|((k, a), (_, b))| difference(a, b, &format!("{at}/{k}"), out));
        }
        (Value::Array(x), Value::Array(y)) if x.len() == y.len() => {
            x.iter().zip(y).enumerate().for_each(|(i, (a, b))| difference(a, b, &format!("{at}/{i}"), out));
        }
        _ if a == b || a.to_string().contains(MARK) && !b.to_string().contains(MARK) => {}
        // The one library without a marker.
        _ if a == "/lib/libcuda.so.13" && b.as_str().is_some_and(|b| b.starts_with("/dir-")) => {}
        _ => out.push(format!("{at}: {a} and {b}")),
    }
}

#[test]
fn nothing_that_was_planted_is_left_and_tables_stay() {
    let (_dir, a) = written(planted());
    // (The summary is packed, and has every name that the rest has.)
    assert!(decode::store_summary(&a, std::time::Duration::from_secs(60)).unwrap());
    assert!(MARKERS.iter().all(|m| has(&a, m.as_bytes())) && has(&a, &GPU_0), "nothing to remove");
    let (b, damage) = redacted(&a, What::ALL);
    assert!(damage.is_none());
    assert!(!has(&b, MARK.as_bytes()), "a marker is left");
    assert!(!has(&b, &GPU_0), "a GPU's UUID is left");
    let (a, b) = (Recording::open(&a).unwrap(), Recording::open(&b).unwrap());
    let documents = |r: &Recording| {
        let summary = serde_json::to_value(decode::summary(r).unwrap()).unwrap();
        let locks = serde_json::to_value(lock_analysis::locks(r, 1000).unwrap()).unwrap();
        assert!(summary["submissions"].as_u64() > Some(7) && locks["locks"].as_array().unwrap().len() == 2, "{locks}");
        [summary, locks]
    };
    let mut differences = Vec::new();
    for (a, b) in documents(&a).iter().zip(&documents(&b)) {
        difference(a, b, "", &mut differences);
    }
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert_eq!(b.header().extra["redacted"], serde_json::json!(What::ALL.list()));
    assert_eq!((a.header().args.is_some(), b.header().args.is_some(), b.header().no_data), (true, false, true));
}

#[test]
fn each_option_removes_its_own() {
    let (_dir, a) = written(planted());
    for (option, mark) in OPTIONS.into_iter().zip(MARKERS) {
        let (b, _) = redacted(&a, option);
        let left: Vec<&str> = MARKERS.into_iter().filter(|m| has(&b, m.as_bytes())).collect();
        let wanted: Vec<&str> = MARKERS.into_iter().filter(|m| *m != mark).collect();
        assert_eq!(left, wanted, "{:?}", option.list());
    }
    // (Inline data of this recording holds the same bytes.)
    let (b, _) = redacted(&a, What { data: true, ..OPTIONS[4] });
    assert!(!has(&b, &GPU_0));
}

#[test]
fn what_was_removed_before_is_still_said() {
    let (dir, a) = written(planted());
    let (once, _) = redacted(&a, OPTIONS[0]);
    let twice = dir.path().join("twice");
    Redaction::open(&once, OPTIONS[1]).unwrap().write(File::create(&twice).unwrap(), &twice).unwrap();
    assert_eq!(Recording::open(&twice).unwrap().header().extra["redacted"], serde_json::json!(["names", "data"]));
}

#[test]
fn names_in_looks_are_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a.doorbell");
    let thread = |name: &str| LiveThread { name: name.into(), ..LiveThread::default() };
    let name = || String::from("PLANTEDNAME");
    let path_of = || String::from("/home/PLANTEDNAME/file");
    let other = LiveOther { name: name(), ..LiveOther::default() };
    let place = LivePlace { path: path_of(), ..LivePlace::default() };
    let on = LiveOn { name: path_of(), place: Some(place), others: vec![other.clone()], ..LiveOn::default() };
    let work = LiveWork { name: name(), ..LiveWork::default() };
    let process = LiveProcess {
        name: name(),
        tracer: Some(other),
        shares: vec![LiveShared { path: path_of(), ..LiveShared::default() }],
        streams: vec![LiveStream { work: vec![work], ..LiveStream::default() }],
        threads: vec![LiveThread { on: vec![on], ..thread("PLANTEDNAME") }, thread("")],
        ..LiveProcess::default()
    };
    let live = Live { tsc: 7, processes: vec![process], ..Live::default() };
    let mut w = Writer::create(&path, &Header::default()).unwrap();
    w.looks(&Looks { first: live.clone(), second: live }).unwrap();
    w.end(&End::default()).unwrap();
    let (redacted, _) = redacted(&path, What::ALL);
    let recording = Recording::open(&redacted).unwrap();
    let names = |live: &Live| live.processes[0].threads.iter().map(|t| t.name.clone()).collect::<Vec<_>>();
    let looks = recording.looks().unwrap();
    assert_eq!((names(&looks.first), looks.second.tsc), (vec!["thread-1".into(), String::new()], 7));
    assert!(!has(&redacted, MARK.as_bytes()));
}

#[test]
fn a_recording_that_was_cut_is_redacted_up_to_there() {
    let (_dir, a) = written(planted());
    let whole = fs::read(&a).unwrap();
    for cut in [whole.len() / 4, whole.len() / 2, whole.len() - 300] {
        // (Chunks are multiples of eight bytes, so an odd cut is never between two.)
        let cut = cut | 1;
        fs::write(&a, &whole[..cut]).unwrap();
        let (b, damage) = redacted(&a, What::ALL);
        assert!(matches!(damage, Some(TapeError::Damaged { .. })), "{cut}: {damage:?}");
        assert!(!has(&b, MARK.as_bytes()));
        let (a, b) = (Recording::open(&a).unwrap(), Recording::open(&b).unwrap());
        assert!(b.damage().is_none() && b.end().is_none() && !b.is_whole());
        let submissions = |r: &Recording| decode::summary(r).unwrap().submissions;
        assert_eq!(submissions(&a), submissions(&b), "{cut}");
    }
    fs::write(&a, &whole[..40]).unwrap();
    assert!(matches!(Redaction::open(&a, What::ALL), Err(RedactionError::Tape(TapeError::Damaged { .. }))));
    fs::write(&a, "text").unwrap();
    assert!(matches!(Redaction::open(&a, What::ALL), Err(RedactionError::Tape(TapeError::NotATape { .. }))));
}

/// Flipped bits in events: no reader panics, and bytes that are no event any more do not stay.
#[test]
fn hostile_events_are_no_trouble() {
    for seed in 1..60u64 {
        let mut t = planted();
        let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        t.flip(40, |n| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % n
        });
        let (_dir, a) = written(t);
        let (b, damage) = redacted(&a, What::ALL);
        assert!(damage.is_none());
        decode::summary(&Recording::open(&b).unwrap()).unwrap();
    }
}
