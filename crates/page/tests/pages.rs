//! What stands on a page, of runs that nobody measured and of recordings.

mod made;

use made::{THOUSAND, named, run};
use page::document::{Block, Document};
use results::Status;
use results::run::Missing;
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

fn document(runs: Vec<results::Run>) -> Document {
    let runs: Vec<_> = runs.into_iter().map(named).collect();
    page::of_runs(&runs).unwrap()
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
    let html = page::html(&document);
    assert!(html.len() < 2 << 20, "{} bytes", html.len());
    let text = read(&html);
    for said in [
        "Which way wins, and latency against size",
        "What loads do to those beside them",
        "Distributions",
        "The slowest samples",
        "Deadlines",
        "All cells",
        "Loads",
        "Environment and warnings",
        "beside 64 x crowd",
        "NVIDIA H200",
        "broken",
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
    // Links lead somewhere, and no two places have one name.
    let ids = attributes(&html, "id");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
    let links: Vec<&str> = attributes(&html, "href").into_iter().collect();
    assert!(links.iter().all(|l| l.strip_prefix('#').is_some_and(|id| ids.contains(&id))), "{links:?}");
    // Each picture has its data and a file of its own.
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
fn a_page_names_its_own_script_and_style_and_nothing_else() {
    use base64::Engine;
    use sha2::{Digest, Sha256};
    let html = page::html(&document(vec![run(THOUSAND)]));
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
    // What was asked for is a time, too.
    let text = text.split("[[assert]]").next().unwrap();
    let document = document(vec![run(text)]);
    assert_eq!(document.figures().count(), 0);
    for text in [read(&page::html(&document)), page::markdown(&document)] {
        assert!(text.contains("never how fast"), "no banner");
        assert!(text.contains("1,000 of 1,000 cells worked"));
        assert_eq!(has_times(&text), None);
    }
}

#[test]
fn what_is_missing_or_failed_has_its_reason_and_no_figure() {
    let mut run = run(THOUSAND);
    run.complete = false;
    run.missing = vec![Missing { stage: 99, repeat: 1, why: "the run was stopped before it".into() }];
    run.cells[0].status = Status::Failed("byte 7 was wrong".into());
    run.cells[1].status = Status::Unavailable("no such engine".into());
    let figures = run.cells[0].figures.done.as_mut().unwrap();
    figures.summary.p50 = 123_456_789;
    let document = document(vec![run]);
    let text = page::markdown(&document);
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
    let html = page::html(&document);
    let ids = attributes(&html, "id");
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
}

#[test]
fn pictures_are_files() {
    let dir = tempfile::tempdir().unwrap();
    let files = page::pictures(&document(vec![run(THOUSAND)]), dir.path()).unwrap();
    assert!(files.len() > 8);
    assert!(files.iter().all(|f| f.extension().is_some_and(|e| e == "svg") && f.is_file()));
}

#[test]
fn recordings_of_an_h200_are_told() {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../insight/fixtures");
    for (name, said) in [("h200-launches", "CUDA graphs"), ("h200-copies", "From where to where")] {
        let recording = insight::Recording::open(&fixtures.join(format!("{name}.doorbell"))).unwrap();
        let document = page::of_recording(&recording).unwrap();
        let html = page::html(&document);
        for said in [said, "NVIDIA H200", "Channels", "nothing is lost"] {
            assert!(html.contains(said), "{name}: {said}");
        }
        assert!(page::markdown(&document).contains("| "), "{name}");
    }
}

#[test]
fn a_soak_says_what_delayed_the_sample_above_its_bound() {
    let html = page::html(&page::of_soak(&made::soak()));
    let text = read(&html);
    for wanted in [
        "above the bound",
        "libcuda+0x32499f/rwlock",
        "cuModuleLoadData",
        "loader &lt;jit&gt;",
        "634.0 ms above 1.0 ms",
    ] {
        assert!(html.contains(wanted) || text.contains(wanted), "{wanted}");
    }
}
