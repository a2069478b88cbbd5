//! The contents of pages, for invented runs and for recordings.

mod made;

use html::document::{Block, Document};
use made::{THOUSAND, named, run};
use run_folder::Status;
use run_folder::run::Missing;
use std::collections::BTreeSet;
use std::path::Path;

/// The text between tags, scripts and styles left out.
fn read(html: &str) -> String {
    let mut out = String::new();
    let mut rest = html;
    while let Some(at) = rest.find('<') {
        out.push_str(&rest[..at]);
        out.push(' ');
        let end = match &rest[at..] {
            tag if tag.starts_with("<script") => tag.find("</script>"),
            tag if tag.starts_with("<style") => tag.find("</style>"),
            _ => None,
        };
        let from = at + end.unwrap_or(0);
        rest = rest[from..].find('>').map_or("", |end| &rest[from + end + 1..]);
    }
    out.push_str(rest);
    out
}

fn attributes<'h>(html: &'h str, name: &str) -> Vec<&'h str> {
    let lead = format!(" {name}=\"");
    html.split(lead.as_str()).skip(1).filter_map(|rest| rest.split('"').next()).collect()
}

fn document(runs: Vec<run_folder::Run>) -> Document {
    let runs: Vec<_> = runs.into_iter().map(named).collect();
    html::of_runs(&runs).unwrap()
}

/// `12.3 us` and the like.
fn has_times(text: &str) -> Option<String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let is_time = |pair: &&[&str]| pair[0].parse::<f64>().is_ok() && ["ns", "us", "ms", "GB/s"].contains(&pair[1]);
    words.windows(2).find(is_time).map(|pair| pair.join(" "))
}

#[test]
fn a_thousand_cells_fit_and_say_what_they_say() {
    let run = run(THOUSAND);
    assert_eq!((run.cells.len(), run.stages.len()), (1_000, 100));
    assert!(run.best.len() > 6, "{}", run.best.len());
    let document = document(vec![run]);
    let html = html::html(&document);
    assert!(html.len() < 2 << 20, "{} bytes", html.len());
    let text = read(&html);
    for said in [
        "The best way, and latency against size",
        "What each load delays",
        "Distributions",
        "The slowest samples",
        "missed",
        "All cells",
        "beside: ",
        "Environment and warnings",
        "with 64 x crowd",
        "NVIDIA H200",
        "BROKEN",
        "CPU 15 is not isolated &lt;b&gt;",
        "not known: nobody asked",
    ] {
        assert!(text.contains(said), "{said} is not said");
    }
    assert!(has_times(&text).is_some());
    // Names from elsewhere are text.
    assert!(!html.contains("<script>alert") && html.contains("&lt;script&gt;alert(1)"));
    assert_eq!(html.matches("<script").count(), 1);
    assert!(!html.contains(" style=\""), "the policy forbids styles of elements");
    // All links have a target, and no two places have the same name.
    let ids = attributes(&html, "id");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    let links: Vec<&str> = attributes(&html, "href").into_iter().collect();
    assert!(links.iter().all(|l| l.strip_prefix('#').is_some_and(|id| ids.contains(&id))), "{links:?}");
    // Each picture has its data and a separate file.
    assert!(document.figures().count() > 8);
    let names: BTreeSet<&str> = document.figures().map(|f| f.name.as_str()).collect();
    assert_eq!(names.len(), document.figures().count());
    for figure in document.figures() {
        assert!(!figure.table.rows.is_empty(), "{}", figure.name);
        roxmltree::Document::parse(&figure.file).unwrap_or_else(|e| panic!("{}: {e}", figure.name));
        assert!(figure.file.contains("0123abc") && figure.file.contains("NVIDIA H200"), "{}", figure.name);
    }
    for table in document.tables() {
        assert!(table.rows.iter().all(|r| r.cells.len() == table.columns.len()), "{}", table.caption);
    }
}

#[test]
fn a_page_names_only_its_own_script_and_style() {
    use base64::Engine;
    use sha2::{Digest, Sha256};
    let html = html::html(&document(vec![run(THOUSAND)]));
    let policy = html.split("Content-Security-Policy\" content=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(policy.starts_with("default-src 'none'; "), "{policy}");
    for element in ["style", "script"] {
        let inner = html.split(&format!("<{element}>")).nth(1).unwrap().split(&format!("</{element}>")).next().unwrap();
        let hash = base64::engine::general_purpose::STANDARD.encode(Sha256::digest(inner));
        assert!(policy.contains(&format!("{element}-src 'sha256-{hash}'")), "{element}: {policy}");
    }
    for asks in ["http://", "https://", "url(", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!html.contains(asks), "{asks}");
    }
}

#[test]
fn a_functional_run_has_no_times_and_no_pictures() {
    let text = THOUSAND.replace("samples = 2000", "samples = 2000\ngpu = \"soft\"");
    // The requested bound is a time, too.
    let text = text.split("[[assert]]").next().unwrap();
    let document = document(vec![run(text)]);
    assert_eq!(document.figures().count(), 0);
    for text in [read(&html::html(&document)), html::markdown(&document)] {
        assert!(text.contains("never how fast"), "no banner");
        assert!(text.contains("1,000 of 1,000 cells worked"));
        assert_eq!(has_times(&text), None);
    }
}

#[test]
fn two_functional_runs_are_compared_without_times() {
    let text = THOUSAND.replace("samples = 2000", "samples = 2000\ngpu = \"soft\"");
    let text = text.split("[[assert]]").next().unwrap();
    let document = made::two(run(text), run(text));
    assert_eq!(document.figures().count(), 0);
    for text in [read(&html::html(&document)), html::markdown(&document)] {
        assert!(text.contains("Times are not compared"));
        assert_eq!(has_times(&text), None);
    }
}

#[test]
fn missing_or_failed_cells_have_a_reason_and_no_figure() {
    let mut run = run(THOUSAND);
    run.complete = false;
    run.missing = vec![Missing { stage: 99, repeat: 1, why: "the run was stopped before it".into() }];
    run.cells[0].status = Status::Failed("byte 7 was wrong".into());
    run.cells[1].status = Status::Unavailable("no such engine".into());
    let figures = run.cells[0].figures.done.as_mut().unwrap();
    figures.summary.p50 = 123_456_789;
    let document = document(vec![run]);
    let text = html::markdown(&document);
    for said in
        ["is not complete", "the run was stopped before it", "byte 7 was wrong", "no such engine", "1 cell failed"]
    {
        assert!(text.contains(said), "{said}");
    }
    assert!(!text.contains("123 ms"), "the figure of a failed cell stands");
}

#[test]
fn several_runs_stand_side_by_side() {
    let mut second = run(THOUSAND);
    second.experiment.name = "other".into();
    second.cells.truncate(3);
    let document = document(vec![run(THOUSAND), second]);
    let together = &document.articles[0];
    assert_eq!((together.title.as_str(), document.articles.len()), ("Side by side", 3));
    let tables: Vec<_> = together
        .sections
        .iter()
        .flat_map(|s| &s.blocks)
        .filter_map(|b| if let Block::Table(t) = b { Some(t) } else { None })
        .collect();
    assert_eq!(tables[0].rows.len(), 3, "those that both have");
    let heads: Vec<&str> = tables[0].columns.iter().map(|c| c.head.as_str()).collect();
    assert!(heads.ends_with(&["thousand", "other"]), "{heads:?}");
    let html = html::html(&document);
    let ids = attributes(&html, "id");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
}

/// The texts of a section, without tables and pictures.
fn said(document: &Document, section: &str) -> Vec<String> {
    let mut all = Vec::new();
    for block in document.articles.iter().flat_map(|a| &a.sections).filter(|s| s.id == section).flat_map(|s| &s.blocks)
    {
        match block {
            Block::Answer(text) => all.push(text.clone()),
            Block::Text(text) => all.push(format!("({text})")),
            _ => {}
        }
    }
    all
}

/// Calls alone and with a thread of load, timed by a clock whose step is 10 ns.
const STEPS: &str = r#"
name = "steps"
[run]
gpu = "none"
rounds = 10
samples = 2000
[matrix]
crowd.count = [0, 1]
[[subject]]
call = "nothing"
[[subject]]
call = "lock(mutex)"
[[load]]
name = "crowd"
call = "hog"
[compare]
baseline = "nothing"
[[assert]]
subject = "lock(mutex)"
metric = "p50"
at-most = "1ns"
"#;

/// The medians of a cell's rounds, and an interval around them.
fn medians(cell: &mut run_folder::run::CellOfRun, p50: u64, reach: f64) {
    let figure = cell.figures.done.as_mut().unwrap();
    figure.summary.p50 = p50;
    (figure.summary.min, figure.summary.max) = (p50, p50 * 100);
    (figure.summary.p90, figure.summary.p99, figure.summary.p999) = (None, None, None);
    let (low, high) = (p50 as f64 - reach, p50 as f64 + reach);
    figure.p50_interval = Some(statistics::Interval { low, high });
    figure.p999_interval = None;
    cell.per_round.p50 = vec![p50; 10];
    cell.per_round.max = vec![p50 * 100; 10];
    cell.worst.clear();
}

#[test]
fn an_overlap_and_a_maximum_are_no_findings() {
    let page_of = |loaded: u64, reach: f64| {
        let mut run = run(STEPS);
        for cell in &mut run.cells {
            let with_load = cell.stage == 1;
            medians(cell, if with_load { loaded } else { 80 }, reach);
            cell.per_round.p50[0] = 70;
            cell.ratio = None;
        }
        document(vec![run])
    };
    let shaded = |d: &Document| {
        let cells = d
            .tables()
            .filter(|t| t.caption.contains("while each load runs"))
            .flat_map(|t| &t.rows)
            .flat_map(|r| &r.cells);
        cells.filter(|c| matches!(c.mark, html::document::Mark::Heat(_))).count()
    };
    // One step of 10 ns: an interval holds half a step to each side.
    let one_step = page_of(90, 5.0);
    let text = said(&one_step, "answer").join(" ");
    assert!(text.contains("No load certainly delays anything") && !text.contains("1.12"), "{text}");
    assert_eq!(shaded(&one_step), 0, "neither medians nor maxima");
    // Far apart, but within the intervals.
    let overlap = page_of(120, 30.0);
    assert!(said(&overlap, "answer").join(" ").contains("No load certainly delays anything"));
    assert_eq!(shaded(&overlap), 0);
    let certain = page_of(240, 5.0);
    let text = said(&certain, "answer").join(" ");
    assert!(
        text.contains("the p50 of nothing is 3.00 times what it is alone (2.76 to 3.27: 240 ns against 80 ns)"),
        "{text}"
    );
    assert_eq!(shaded(&certain), 2);
}

#[test]
fn a_ratio_that_may_be_one_is_no_finding() {
    let answer = |low: f64, high: f64| {
        let mut run =
            run(THOUSAND.split("[[load]]").next().unwrap().replace("crowd.count = [0, 1, 16, 64]\n", "").as_str());
        run.best.clear();
        for cell in &mut run.cells {
            if let Some(ratio) = &mut cell.ratio {
                ratio.ratio.ratio = f64::midpoint(low, high);
                ratio.ratio.interval = Some(statistics::Interval { low, high });
            }
        }
        said(&document(vec![run]), "answer").join(" ")
    };
    assert!(answer(0.9, 1.1).contains("No difference from cuda is certain"), "{}", answer(0.9, 1.1));
    assert!(answer(0.4, 0.6).contains("0.500 times the p50 of cuda (0.400 to 0.600)"), "{}", answer(0.4, 0.6));
}

#[test]
fn a_broken_assert_is_shown_above_every_finding() {
    let document = document(vec![run(STEPS)]);
    let (html, markdown) = (html::html(&document), html::markdown(&document));
    for text in [html.split("<main").nth(1).unwrap(), &markdown] {
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}: {text:.600}"));
        let broken = at("Broken assert: ");
        for below in ["NVIDIA H200", "What was found", "The slowest of"] {
            assert!(broken < at(below), "{below} stands above it");
        }
    }
}

#[test]
fn rounds_over_time_keep_repeats_apart() {
    let mut run = run(STEPS);
    for cell in &mut run.cells {
        // Two repeats at two speeds.
        let of = &mut cell.per_round;
        of.repeat = (0..20).map(|n| n / 10).collect();
        of.round = (0..20).map(|n| n % 10).collect();
        of.p50 = (0..20).map(|n| if n < 10 { 1_000 } else { 1_150 }).collect();
    }
    let document = document(vec![run]);
    let figure = document.figures().find(|f| f.name.starts_with("rounds")).expect("a picture of rounds");
    let lines: Vec<&str> = figure.file.split("class=\"series\"").skip(1).collect();
    assert_eq!(lines.len(), 2, "a panel for each cell");
    let path = lines[0].split(" d=\"").nth(1).unwrap().split('"').next().unwrap();
    assert_eq!(path.matches('M').count(), 2, "no line joins two repeats: {path}");
    assert_eq!((figure.table.rows.len(), figure.table.columns.len()), (20, 4));
    assert!(figure.file.contains("the next repeat"));
}

#[test]
fn where_it_is_about_rates_pictures_have_gigabytes_a_second() {
    let text = THOUSAND.replace("baseline = \"cuda\"", "baseline = \"cuda\"\nmetric = \"rate\"");
    let document_of = |text: &str| document(vec![run(text)]);
    let rates = document_of(&text);
    let figures: Vec<_> = rates.figures().filter(|f| f.name.starts_with("rates")).collect();
    assert!(figures.iter().any(|f| f.title.contains("GB/s against size")), "{}", figures.len());
    assert!(figures.iter().all(|f| f.table.columns.iter().any(|c| c.unit == "GB/s")));
    let one_size = document_of(&text.replace("bytes = \"4B..64MiB\"", "bytes = [\"64MiB\"]"));
    assert!(one_size.figures().any(|f| f.title == "host to gpu0, 64 MiB, crowd.count = 0: GB/s"));
    let rounds = one_size.figures().find(|f| f.name.starts_with("rounds")).unwrap();
    assert!(rounds.about.starts_with("GB/s of each round"), "{}", rounds.about);
    assert!(!document_of(THOUSAND).figures().any(|f| f.name.starts_with("rates")), "asked for times");
}

#[test]
fn pictures_are_files() {
    let dir = tempfile::tempdir().unwrap();
    let files = html::pictures(&document(vec![run(THOUSAND)]), dir.path()).unwrap();
    assert!(files.len() > 8);
    assert!(files.iter().all(|f| f.extension().is_some_and(|e| e == "svg") && f.is_file()));
}

#[test]
fn recordings_of_an_h200_are_told() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../explain/decode/fixtures");
    for (name, said) in [("h200-launches", "CUDA graphs"), ("h200-copies", "copy engine ")] {
        let recording = decode::Recording::open(&fixtures.join(format!("{name}.doorbell"))).unwrap();
        let document = html::of_recording(&recording).unwrap();
        let html = html::html(&document);
        for said in [said, "NVIDIA H200", "Channels", "nothing is lost"] {
            assert!(html.contains(said), "{name}: {said}");
        }
        assert!(html::markdown(&document).contains("| "), "{name}");
    }
}

#[test]
fn a_soak_shows_what_delayed_the_sample_above_its_bound() {
    let html = html::html(&html::of_soak(&made::soak()));
    let text = read(&html);
    for wanted in
        ["above the bound", "libcuda+0x32499f/rwlock", "cuModuleLoadData", "loader &lt;jit&gt;", "634 ms above 1.00 ms"]
    {
        assert!(html.contains(wanted) || text.contains(wanted), "{wanted}");
    }
}

#[test]
fn a_leak_that_is_not_ruled_out_is_not_called_harmless() {
    let mut soak = made::soak();
    let leak = &mut soak.leaks[0];
    (leak.what, leak.leaking, leak.not_judged) = ("rss_bytes".into(), false, None);
    let mib = f64::from(1 << 20);
    leak.interval = Some(statistics::Interval { low: -2_379.5 * mib, high: 3_790.5 * mib });
    leak.matters = mib;
    let row = |soak: &run_folder::soak::Soak| {
        let text = html::markdown(&html::of_soak(soak));
        text.lines().find(|l| l.starts_with("| rss")).unwrap_or_else(|| panic!("{text}")).to_owned()
    };
    let open = row(&soak);
    assert!(open.contains("-2.32 GiB to 3.70 GiB") && open.contains("not ruled out"), "{open}");
    soak.leaks[0].interval = Some(statistics::Interval { low: -10.0, high: 10.0 });
    assert!(row(&soak).contains("does not grow"), "{}", row(&soak));
}
