//! What people read, word for word, of a small recording with one of everything.

#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;

use decode::walk::Filter;
use decode::{Recording, lists};
use std::io;
use terminal::table::{Out, Style};
use terminal::{channels, copies, launches, objects, ranges, submissions, summary};

fn tape() -> (tempfile::TempDir, Recording) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.doorbell");
    synthetic::one_of_everything().write(&path);
    let r = Recording::open(&path).unwrap();
    (dir, r)
}

fn text(f: impl FnOnce(&mut dyn Out) -> io::Result<()>) -> String {
    let mut out = Vec::new();
    f(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn of_submissions(r: &Recording, filter: Filter) -> String {
    let mut out = Vec::new();
    lists::submissions::<anyhow::Error>(r, &filter, |row| Ok(submissions::write(&mut out, &PLAIN, &row)?)).unwrap();
    String::from_utf8(out).unwrap()
}

fn of_copies(r: &Recording, filter: Filter) -> String {
    let mut out = Vec::new();
    copies::LIST.write::<anyhow::Error>(&mut out, PLAIN, |f| lists::copies(r, &filter, f)).unwrap();
    String::from_utf8(out).unwrap()
}

const PLAIN: Style = Style { colour: false, width: None };

#[test]
fn the_summary() {
    let (_dir, r) = tape();
    let s = decode::summary(&r).unwrap();
    insta::assert_snapshot!(text(|out| summary::write(out, &PLAIN, &s)));
}

#[test]
fn a_recording_without_submissions_gets_an_explanation() {
    let said = |change: fn(&mut synthetic::Tape)| {
        let dir = tempfile::tempdir().unwrap();
        let mut t = synthetic::Tape::new();
        t.context(1);
        change(&mut t);
        t.write(&dir.path().join("t"));
        let s = decode::summary(&Recording::open(&dir.path().join("t")).unwrap()).unwrap();
        assert_eq!(serde_json::to_value(&s).unwrap()["children"], "followed");
        (text(|out| summary::write(out, &PLAIN, &s)), s.nothing.map(|why| why.into_owned()))
    };
    let (t, why) = said(|_| ());
    let why = why.unwrap();
    assert!(why.contains("used no GPU") && t.contains(&why), "{t}");
    let (t, why) = said(|t| t.end.as_mut().unwrap().agent = false);
    let why = why.unwrap();
    assert!(why.contains("agent never reported in") && t.contains(&why), "{t}");
    assert!(said(|t| t.header.tap = "off".into()).1.unwrap().contains("tap was off"));
    // Events that were recorded and lost, or perhaps after the damage, do not count as none.
    assert_eq!(said(|t| t.gap(1, 3, 2, 100)).1, None);
    assert_eq!(
        said(|t| {
            t.channel(1, 0, 0x5c00_1000, 1, 64);
            t.submit(1, 0, &[&synthetic::copy_64_mib()]);
        })
        .1,
        None
    );
}

#[test]
fn the_submissions() {
    let (_dir, r) = tape();
    insta::assert_snapshot!(of_submissions(&r, Filter::default()));
}

#[test]
fn segments_without_their_words_and_with_late_ones_say_so() {
    let dir = tempfile::tempdir().unwrap();
    synthetic::late_and_uncopied().write(&dir.path().join("t"));
    let r = Recording::open(&dir.path().join("t")).unwrap();
    let shown = of_submissions(&r, Filter::default());
    let entries: Vec<&str> = shown.lines().filter(|l| l.starts_with("  [")).collect();
    assert!(entries[0].ends_with(", read late: its words may be of a later submission"), "{shown}");
    assert!(entries[1].ends_with(": words missing: the program died before they were copied"), "{shown}");
    let s = decode::summary(&r).unwrap();
    let summary = text(|out| summary::write(out, &PLAIN, &s));
    assert!(summary.contains("1 segment read late") && summary.contains("1 segment not copied yet"), "{summary}");
}

#[test]
fn the_copies_and_launches() {
    let (_dir, r) = tape();
    insta::assert_snapshot!("copies", of_copies(&r, Filter::default()));
    insta::assert_snapshot!(
        "launches",
        text(|out| {
            launches::LIST.write::<anyhow::Error>(out, PLAIN, |f| lists::launches(&r, &Filter::default(), f)).unwrap();
            Ok(())
        })
    );
}

#[test]
fn with_two_gpus_each_is_named() {
    use synthetic::{DEVICE_AT, HOST_AT, PEER_AT, copy};
    let dir = tempfile::tempdir().unwrap();
    let mut t = synthetic::two_gpus();
    t.submit(100, 0, &[&copy(DEVICE_AT, PEER_AT, 4096)]);
    t.submit(100, 1, &[&copy(HOST_AT, PEER_AT, 4096)]);
    t.write(&dir.path().join("t"));
    let r = Recording::open(&dir.path().join("t")).unwrap();
    let s = decode::summary(&r).unwrap();
    let summary = text(|out| summary::write(out, &PLAIN, &s));
    assert!(summary.contains("2 x NVIDIA H100 80GB HBM3 (GPU 0, 1)"), "{summary}");
    let copies = of_copies(&r, Filter::default());
    let rows: Vec<&str> = copies.lines().skip(1).collect();
    let shows =
        |row: &str, from: &str, to: &str| row.contains(&format!("{from} 0x")) && row.contains(&format!("{to} 0x"));
    assert!(shows(rows[0], "GPU 0", "GPU 1"), "{copies}");
    assert!(shows(rows[1], "host", "GPU"), "{copies}");
}

#[test]
fn the_objects() {
    let (_dir, r) = tape();
    struct Nothing;
    impl decode::walk::Sink for Nothing {}
    let graph = decode::walk::walk(&r, &mut Nothing).unwrap().graphs.remove(&0).unwrap();
    insta::assert_snapshot!(text(|out| {
        let rows = decode::rows::objects(std::iter::once((0, &graph)), 100);
        objects::write(out, &PLAIN, &rows, [graph.object_tree().len(), graph.gpu_mappings().count()])
    }));
}

#[test]
fn a_filter_shows_one_channel_and_no_more_than_the_limit() {
    let (_dir, r) = tape();
    let only = |slot, generation| Filter { channel: Some((slot, generation)), limit: None, ..Filter::default() };
    let all = of_submissions(&r, Filter::default());
    let heads = |t: &str| t.lines().filter(|l| l.starts_with('#')).count();
    assert_eq!(heads(&all), 7);
    assert_eq!(heads(&of_submissions(&r, only(0, None))), 2);
    assert_eq!(heads(&of_submissions(&r, only(1, Some(0)))), 5);
    assert_eq!(heads(&of_submissions(&r, only(1, Some(1)))), 0);
    let two = Filter { channel: Some((1, None)), limit: Some(2), ..Filter::default() };
    let t = of_submissions(&r, two.clone());
    assert_eq!(heads(&t), 2);
    assert!(all.contains(&t[..t.len() / 2]));
    let none = Filter { channel: None, limit: Some(0), ..Filter::default() };
    assert_eq!(of_submissions(&r, none), "");
    assert_eq!(of_copies(&r, two).lines().count(), 3);
}

#[test]
fn colour_adds_only_escapes() {
    let (_dir, r) = tape();
    let s = decode::summary(&r).unwrap();
    let coloured = text(|out| summary::write(out, &Style { colour: true, width: None }, &s));
    let plain = text(|out| summary::write(out, &PLAIN, &s));
    assert!(coloured.contains("\x1b[1m"));
    let stripped =
        coloured.replace("\x1b[1m", "").replace("\x1b[31m", "").replace("\x1b[32m", "").replace("\x1b[0m", "");
    assert_eq!(stripped, plain);
}

#[test]
fn a_narrow_terminal_gets_no_line_longer_than_it_is() {
    let (_dir, r) = tape();
    let s = decode::summary(&r).unwrap();
    let t = text(|out| channels::write(out, &Style { colour: false, width: Some(100) }, &s.channel_list, 0));
    assert!(t.lines().all(|l| l.chars().count() <= 100), "{t}");
}

#[test]
fn a_recording_with_kernel_times_lists_kernels_without_times() {
    use tape::file::{KernelEnds, ProcessEnd};
    use tape::stamp::{self, StampsBody, state};
    let shown = |state: u32, ends: KernelEnds| {
        let dir = tempfile::tempdir().unwrap();
        let mut t = synthetic::kernel_launches(9, |t| {
            let body = StampsBody { state, area: synthetic::SLOTS_AT, result: 2, ..StampsBody::default() };
            t.event(100, stamp::kind::STAMPS, 0, &body, &[], &[]);
        });
        t.ends(if state == state::ON { &[1, 2, 3] } else { &[] });
        t.process_ends = vec![ProcessEnd { kernel_ends: Some(ends), ..ProcessEnd::default() }];
        t.write(&dir.path().join("t"));
        let s = decode::summary(&Recording::open(&dir.path().join("t")).unwrap()).unwrap();
        let text = text(|out| summary::write(out, &PLAIN, &s));
        let lines = text.lines().skip_while(|line| !line.starts_with("kernel times"));
        lines.take_while(|line| !line.starts_with("end")).map(str::to_owned).collect::<Vec<_>>()
    };
    let ends = KernelEnds { stamped: 7, ends: 3, slots_full: 2, ..KernelEnds::default() };
    let expected = [
        "kernel times the GPU's time is known of 3 of 9 runs",
        "               2 without: more than 260,000 kernels were in flight. Wait for the GPU more often, or record a part of the program (`record --capture`)",
        "               4 without: their end had not arrived when the recording ended. Wait for the GPU (`cudaDeviceSynchronize`) before the program ends",
    ];
    assert_eq!(shown(state::ON, ends), expected);
    let expected = [
        "kernel times the GPU's time is unknown for all of 9 runs",
        "               9 without: CUDA did not map doorbell's memory for the GPU (CUresult 2). Raise the limit of locked memory (`ulimit -l`)",
    ];
    assert_eq!(shown(state::REFUSED, KernelEnds::default()), expected);
}

#[test]
fn ranges_of_nvtx() {
    let text_of = |mut t: synthetic::Tape| {
        let dir = tempfile::tempdir().unwrap();
        t.range(200, 199_000, 700_000, "request");
        t.range(201, 201_000, 230_000, "step");
        t.write(&dir.path().join("t"));
        let r = Recording::open(&dir.path().join("t")).unwrap();
        let all = lock_analysis::ranges(&r, &Filter::default()).unwrap();
        let each = lock_analysis::each_range(&r, &Filter::default()).unwrap();
        text(|out| {
            ranges::write(out, &PLAIN, &all)?;
            writeln!(out)?;
            ranges::write_each(out, &PLAIN, &each)
        })
    };
    insta::assert_snapshot!(text_of(synthetic::copy_times()));
    // Without times of the GPU: what there was before.
    let mut tape = synthetic::copy_times();
    tape.header.gpu_times = false;
    insta::assert_snapshot!(text_of(tape));
}
