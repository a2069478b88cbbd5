//! Invented pages over invented data.

use experiment::Observe;
use html::markdown_tables::Page;
use run_folder::data_file::{Cell, Digest, Load, Origin, Rows, Series, Stage};
use std::path::Path;

fn origin() -> Origin {
    Origin {
        name: "made-up".into(),
        about: "nobody measured this".into(),
        doorbell: "0.1.0".into(),
        commit: Some("6ba3a506d601".into()),
        command: Vec::new(),
        started: "2026-11-22T18:00:00Z".into(),
        functional: false,
        complete: true,
        machine: [("gpu.name".to_owned(), "A GPU".into()), ("cpu.online".to_owned(), 2.into())].into(),
        experiment: String::new(),
    }
}

/// 8 rounds of 250 samples: `from` ns and up to 99 more.
fn cell(subject: &str, from: u64) -> Cell {
    let rounds: Vec<Vec<u64>> = (0..8).map(|r| (0..250).map(|i| from + (i * 7 + r) % 100).collect()).collect();
    Cell {
        subject: subject.into(),
        what: format!("host->{subject}->gpu0"),
        bytes: 4096,
        back_to_back: 1,
        observe: Observe::Done,
        baseline: Some("cuda".into()),
        missing: None,
        period_ns: None,
        spans_ns: None,
        done: Some(Series::of(&rounds, run_folder::data_file::series::EXACT)),
        submit: None,
        engine: None,
        commands: Default::default(),
    }
}

fn stage(number: u32, threads: u32, cells: Vec<Cell>) -> Stage {
    let load = Load {
        name: "neighbour".into(),
        what: "module(400)".into(),
        threads,
        transfers: 20,
        bytes: 0,
        seconds: 10.0,
        longest_ns: 500_000_000,
    };
    Stage {
        number,
        point: vec![("neighbour.count".into(), threads.to_string())],
        policy: "stock".into(),
        rounds: 2,
        repeats: 4,
        seconds: 10.0,
        loads: vec![load],
        cells,
    }
}

fn data() -> Digest {
    let mut stuck = cell("cuda", 300_000_000);
    let series = stuck.done.as_mut().unwrap();
    series.rounds = vec![String::new(); 8];
    series.rounds[0] = Series::of(&[vec![1_020_000_000]], 99).rounds[0].clone();
    (series.capped, series.capped_from) = (1, Some(1_020_000_000));
    let mut absent = cell("bar1", 1);
    (absent.missing, absent.done) = (Some("unavailable: no BAR1".into()), None);
    Digest {
        samples: Vec::new(),
        schema: "doorbell.digest/1".into(),
        origin: origin(),
        stages: vec![
            stage(0, 0, vec![cell("cuda", 6000), cell("ce3", 4000), absent]),
            stage(1, 1, vec![stuck, cell("ce3", 4100)]),
        ],
    }
}

/// A page over this data, in a folder where the data is.
fn page(dir: &Path, digest: &Digest, text: &str) -> Page {
    std::fs::write(dir.join("made-up.json"), digest.to_text().unwrap()).unwrap();
    Page::new(&dir.join("page.md"), text.into())
}

const PAGE: &str = "# A page
<!-- machine: data=made-up.json -->
<!-- end -->
<!-- names: \"neighbour.count=0\"=nothing \"1\"=\"a thread that loads modules\" -->

<!-- table: data=made-up.json rows=neighbour.count
     columns=neighbour.count,load.rate,cuda:samples,cuda:max.auto,cuda:p99,ce3:rate,ce3:p50.both,ce3:p99,ce3:ratio.both -->
| while this runs | its calls a second | CUDA: copies | max | p99, us | copies a second | p50, us | p99, us | times CUDA |
|---|--:|--:|--:|--:|--:|--:|--:|--:|
<!-- end -->

| subject | about |
|---|---|
| cuda | typed |

```text
<!-- table: an example -->
```
";

#[test]
fn a_page_is_filled_and_a_changed_digit_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let digest = data();
    let (filled, checked, refused) = page(dir.path(), &digest, PAGE).filled().unwrap();
    assert_eq!((checked.tables, refused), (1, vec![]));
    let rows: Vec<&str> =
        filled.lines().filter(|l| l.starts_with("| nothing") || l.starts_with("| a thread")).collect();
    assert_eq!(
        rows,
        [
            "| nothing | - | 2,000 | 6.10 us | 6.10 | 246,987 | 4.05 (4.05 to 4.05) | 4.10 | 0.669 (0.669 to 0.669) |",
            "| a thread that loads modules | 2.00 | 1 | at least 1.02 s | - | 241,034 | 4.15 (4.15 to 4.15) | 4.20 | - |",
        ]
    );
    assert!(filled.contains("| cuda | typed |") && filled.contains("<!-- table: an example -->"));
    assert!(filled.contains("\nMeasured on A GPU, 2 CPUs; doorbell at commit 6ba3a506d601, 2026-11-22.\n"), "{filled}");
    let again = page(dir.path(), &digest, &filled);
    assert_eq!(again.check().unwrap().tables, 1);
    assert_eq!(again.filled().unwrap().0, filled, "filling twice changes nothing");

    // Every digit of the table.
    let begin = filled.find("| nothing").unwrap();
    let end = filled.rfind("<!-- end").unwrap();
    for (at, c) in filled[begin..end].char_indices().filter(|(_, c)| c.is_ascii_digit()) {
        let mut other = filled.clone();
        let digit = if c == '9' { "8" } else { "9" };
        other.replace_range(begin + at..begin + at + 1, digit);
        let e = page(dir.path(), &digest, &other).check().unwrap_err();
        assert!(e.what.contains("its data give") && e.to_string().contains("page.md:"), "{e}");
    }
    // A row less, a row more.
    let without: String = filled.lines().filter(|l| !l.starts_with("| a thread")).map(|l| format!("{l}\n")).collect();
    assert!(page(dir.path(), &digest, &without).check().is_err());

    // Digits of the data file: the checksum catches those that no table shows.
    let text = digest.to_text().unwrap();
    let digits: Vec<usize> = text.char_indices().filter(|(_, c)| c.is_ascii_digit()).map(|(at, _)| at).collect();
    for at in digits.iter().step_by(digits.len() / 40) {
        let page = page(dir.path(), &digest, &filled);
        let mut other = text.clone();
        let digit = if &other[*at..at + 1] == "7" { "6" } else { "7" };
        other.replace_range(*at..at + 1, digit);
        std::fs::write(dir.path().join("made-up.json"), other).unwrap();
        assert!(page.check().is_err(), "byte {at}");
    }
}

#[test]
fn data_that_are_no_results_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    for (change, why) in [
        ((|o| o.functional = true) as fn(&mut Origin), "software GPU"),
        (|o| o.commit = Some("6ba3a506d601-changed".into()), "files differed"),
        (|o| o.commit = None, "no commit"),
        (|o| o.complete = false, "not complete"),
    ] {
        let mut digest = data();
        change(&mut digest.origin);
        let (filled, _, refused) = page(dir.path(), &digest, PAGE).filled().unwrap();
        assert!(refused[0].why.contains(why), "{refused:?}");
        let e = page(dir.path(), &digest, &filled).check().unwrap_err();
        assert!(e.what.contains(why), "{e}");
    }
}

#[test]
fn mistakes_are_reported_with_their_line_and_the_allowed_values() {
    let dir = tempfile::tempdir().unwrap();
    let marker = |text: &str| format!("one\n<!-- table: {text} -->\n<!-- end -->\n");
    let all = "data=made-up.json rows=subject columns=subject,p50 neighbour.count=0";
    for (text, line, what) in [
        (marker("rows=subject columns=p50"), 2, "data=FILE is missing"),
        (marker("data=none.json rows=subject columns=p50"), 2, "No such file"),
        (marker("data=made-up.json columns=p50"), 2, "rows= is missing"),
        (marker("data=made-up.json rows=size columns=p50"), 2, "the keys are subject, what, bytes"),
        (marker("data=made-up.json rows=subject columns=p98"), 2, "is no column"),
        (marker("data=made-up.json rows=subject columns=ce9:p50"), 2, "its values are cuda, ce3, bar1"),
        (marker(&format!("{all} colour=red")), 2, "no key of the data"),
        (marker(&format!("{all} unit=min")), 2, "ns, us, ms, s, auto"),
        (marker("data=made-up.json rows=subject columns=p50 neighbour.count=3"), 2, "its values are 0, 1"),
        (marker("data=made-up.json rows=subject columns=p50"), 2, "which differ in load, stage, neighbour.count"),
        (marker("data=made-up.json rows=neighbour.count columns=subject"), 2, "add it to rows="),
        (marker(&format!("{all} rows")), 2, "\"rows\" has no value"),
        (marker("data=made-up.json rows=subject columns=submit.p50 neighbour.count=0"), 2, "--parts submit"),
        (marker("data=made-up.json rows=subject columns=median(p50)"), 2, "no field p50"),
        ("one\n<!-- table: a=b\n".into(), 2, "does not end"),
        (format!("<!-- table: {all} -->\n"), 1, "no <!-- end -->"),
        (format!("<!-- table: {all} -->\nprose\n<!-- end -->\n"), 2, "only a table"),
        (format!("<!-- table: {all} -->\n| a |\n|---|\n<!-- end -->\n"), 1, "has 1 cells, and columns= names 2"),
        ("<!-- end -->\n".into(), 1, "without a table"),
    ] {
        let e = page(dir.path(), &data(), &text).filled().unwrap_err();
        assert!(e.line == line && e.what.contains(what), "{text}\n{e}");
    }
}

#[test]
fn names_with_commas_are_quoted_and_paced_ones_have_their_rate() {
    let dir = tempfile::tempdir().unwrap();
    let mut digest = data();
    let paced = &mut digest.stages[0].cells[1];
    paced.subject = "copy, Python: CUDA".into();
    // 250 in each of eight rounds, one per 250 us; the last of a round ends 4 us after its release.
    (paced.period_ns, paced.spans_ns) = (Some(250_000), Some(vec![249 * 250_000 + 4_000; 8]));
    let text = "<!-- names: \"copy, Python: CUDA\"=Python -->\n<!-- table: data=made-up.json rows=neighbour.count neighbour.count=0 \
                columns=\"'copy, Python: CUDA':rate,'copy, Python: CUDA'&bytes=4KiB:p99\" -->\n<!-- end -->\n\
                <!-- table: data=made-up.json rows=subject neighbour.count=0 subject=\"cuda|'copy, Python: CUDA'\" columns=subject,p99 -->\n<!-- end -->\n";
    let (filled, ..) = page(dir.path(), &digest, text).filled().unwrap();
    assert!(filled.contains("\n| 4,000 | 4.10 |\n") && filled.contains("\n| Python | 4.10 |\n"), "{filled}");
}

#[test]
fn rows_are_counted_over() {
    let dir = tempfile::tempdir().unwrap();
    let row = |bytes: u64, repeat: u64, payload: f64| {
        serde_json::json!({ "cell": { "bytes": bytes }, "repeat": repeat,
            "measured": { "payload": payload * 1e9, "wire": { "bytes": payload * 1.1e9 }, "latency": { "buckets": [1] } } })
    };
    let rows = (0..10).map(|i| row(4096 << (i / 5), i % 5, 50.0 + i as f64)).collect();
    let empty = Rows { schema: "doorbell.rows/1".into(), origin: origin(), stored: None, rows: Vec::new() };
    let mut as_written = serde_json::to_value(empty).unwrap();
    as_written["rows"] = rows;
    std::fs::write(dir.path().join("rows.json"), as_written.to_string()).unwrap();
    let text = "<!-- table: data=rows.json rows=cell.bytes columns=cell.bytes,median(measured.payload).G.both,\
                median(measured.wire.bytes/measured.payload),max(measured.payload).G repeat=0|1|2|3|4 -->\n<!-- end -->\n";
    let (filled, ..) = Page::new(&dir.path().join("page.md"), text.into()).filled().unwrap();
    assert!(
        filled.contains("| 4KiB | 52.0 (50.0 to 54.0) | 1.10 | 54.0 |\n| 8KiB | 57.0 (55.0 to 59.0) | 1.10 | 59.0 |"),
        "{filled}"
    );
    // As a script writes them: fields within fields, integers and truths.
    as_written["rows"] = (0..3)
        .map(|i| serde_json::json!({ "a": { "n": 1000 + i }, "ms": (i == 1).then_some(2.5), "right": true }))
        .collect();
    as_written["stored"] = "medians of a made-up program".into();
    std::fs::write(dir.path().join("script.json"), as_written.to_string()).unwrap();
    let table = "<!-- table: data=script.json rows=right columns=right,count(a.n),sum(a.n),count(ms),median(ms) -->\n<!-- end -->\n";
    let e = Page::new(&dir.path().join("page.md"), table.into()).filled().unwrap_err();
    assert!(e.line == 1 && e.what.contains("has no samples"), "{e}");
    let marked = format!("<!-- machine: data=script.json -->\n<!-- end -->\n{table}");
    let (filled, ..) = Page::new(&dir.path().join("page.md"), marked).filled().unwrap();
    assert!(filled.contains("| yes | 3 | 3,003 | 1 | 2.50 |"), "{filled}");
    assert!(
        filled.contains("**Stored figures**: medians of a made-up program. The samples were not kept."),
        "{filled}"
    );
    let p50 = text.replace("max(measured.payload).G", "p50");
    let e = Page::new(&dir.path().join("page.md"), p50).filled().unwrap_err();
    assert!(e.what.contains("median(FIELD)"), "{e}");
}
