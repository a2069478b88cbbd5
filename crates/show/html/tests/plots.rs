//! The pictures of an invented run: what they contain, not the exact bytes.

#[path = "../../../bench/run-folder/tests/made/mod.rs"]
mod made;

use made::{part, read, sample};
use roxmltree::{Document, Node};
use run_folder::{Context, Folder, Run, Sample};
use serde_json::json;
use std::path::{Path, PathBuf};

const EXPERIMENT: &str = r#"
name = "made-up"
about = "nobody measured this"
[run]
rounds = 10
repeats = 2
samples = 20000
counters-every = 5
[matrix]
bytes = "8,64,512,4096,65536"
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
[[subject]]
name = "<bar1> & \"co\""
route = "host->bar1->gpu0"
[[subject]]
name = "host->ce3->gpu0"
route = "host->ce3->gpu0"
"#;

fn samples(repeat: u32, ns: f64, each: u64, seed: u64) -> Vec<Sample> {
    let mut random = fastrand::Rng::with_seed(seed * 7 + u64::from(repeat));
    let mut all = Vec::new();
    for round in 0..10 {
        let slow = if (round + repeat).is_multiple_of(4) { 1.15 } else { 1.0 };
        for i in 0..each {
            // A tail as machines have it: a power law above a narrow body.
            let tail = (1.0 - random.f64()).powf(-0.25);
            let ns = ns * slow * (0.9 + 0.1 * tail * (1.0 + random.f64() * 0.2));
            all.push(sample(round, u64::from(round) * 40_000_000 + i * 20_000, ns as u64));
        }
    }
    all
}

fn made(path: &Path, text: &str) -> (Folder, Run) {
    let folder = Folder::create(path, &read(text), true).unwrap();
    for stage in folder.stages() {
        for repeat in 0..2 {
            let cell = |c: &experiment::Cell| {
                let bytes = c.bytes as f64;
                let (ns, each) = match c.subject.name.as_str() {
                    "cuda" => (6_000.0 + bytes / 20.0, 1250),
                    "host->ce3->gpu0" => (2_800.0 + bytes / 40.0, 100),
                    _ => (400.0 + bytes / 6.0, 1250),
                };
                samples(repeat, ns, each, u64::from(stage.number) * 10 + ns as u64)
            };
            let mut cells: Vec<_> = stage.cells.iter().map(cell).collect();
            if stage.number == 2 && repeat == 1 {
                cells[1][7_001].done_ns += 3_000_000;
            }
            // Rounds in which counters were read are in no picture.
            cells[0].iter_mut().filter(|s| s.round == 4).for_each(|s| s.done_ns += 900_000_000);
            folder.write_part(&part(stage.number, repeat, &cells), &cells).unwrap();
        }
    }
    let context = Context {
        commit: Some("0123abc".into()),
        started: "2026-11-22T18:00:00Z".into(),
        environment: json!({ "facts": { "host.name": "node1", "gpu.name": "NVIDIA H200", "cpu.model": "Xeon" } }),
        ..Context::default()
    };
    let run = Run::from_folder(&folder, context).unwrap();
    folder.write_run(&run).unwrap();
    (folder, run)
}

fn of_class<'a>(doc: &'a Document<'_>, class: &str) -> Vec<Node<'a, 'a>> {
    doc.descendants().filter(|n| n.attribute("class") == Some(class)).collect()
}

fn texts(doc: &Document<'_>) -> Vec<String> {
    doc.descendants().filter(|n| n.has_tag_name("text")).map(|n| n.text().unwrap_or("").to_owned()).collect()
}

/// All coordinates of a path, as pairs of x and y if it has only those.
fn numbers(d: &str) -> Vec<f64> {
    d.split(|c: char| c.is_alphabetic() || c == ' ').filter(|t| !t.is_empty()).map(|t| t.parse().unwrap()).collect()
}

fn check(path: &Path) {
    let text = std::fs::read_to_string(path).unwrap();
    let doc = Document::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let svg = doc.root_element();
    let name = path.display();
    assert!(svg.children().any(|n| n.has_tag_name("title")) && svg.children().any(|n| n.has_tag_name("desc")));
    let texts = texts(&doc);
    assert!(texts.iter().any(|t| t.contains("made-up: ")), "{name}: no title");
    assert!(texts.iter().any(|t| t.contains("NVIDIA H200")) && texts.iter().any(|t| t.contains("0123abc")), "{name}");
    assert!(
        texts.iter().filter(|t| [" us", " ns", " x"].iter().any(|unit| t.ends_with(unit))).count() > 1,
        "{name}: no units"
    );
    // Nothing is outside the picture, and every number is finite.
    let [width, height] = ["width", "height"].map(|a| svg.attribute(a).unwrap().parse::<f64>().unwrap());
    for n in doc.descendants().filter(|n| n.has_tag_name("text")) {
        let [x, y] = ["x", "y"].map(|a| n.attribute(a).unwrap().parse::<f64>().unwrap());
        assert!((0.0..=width).contains(&x) && (0.0..=height).contains(&y), "{name}: {:?}", n.text());
    }
    for n in doc.descendants().filter_map(|n| n.attribute("d")) {
        assert!(numbers(n.trim_end_matches('Z')).iter().all(|v| (0.0..=width.max(height)).contains(v)), "{name}: {n}");
    }
    // Series differ in their dashes and in their markers, not only in colour.
    let entries = of_class(&doc, "entry");
    let look = |n: &Node<'_, '_>| {
        let of = |tag: &str| n.children().find(|c| c.has_tag_name(tag));
        let dash = of("path").and_then(|p| p.attribute("stroke-dasharray")).unwrap_or("none").to_owned();
        let marker = ["circle", "polygon"].into_iter().find_map(of);
        (
            dash,
            marker.map(|m| {
                m.tag_name().name().to_owned()
                    + m.attribute("points").map_or("", |p| if p.split(' ').count() == 3 { "3" } else { "4" })
            }),
        )
    };
    let mut looks: Vec<_> = entries.iter().map(look).collect();
    let n = looks.len();
    looks.sort();
    looks.dedup();
    assert_eq!(looks.len(), n, "{name}");
}

#[test]
fn every_picture_has_a_description() {
    let dir = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("TEST_PICTURES").map(PathBuf::from);
    let path = kept.unwrap_or_else(|| dir.path().join("run"));
    let (folder, run) = made(&path, EXPERIMENT);
    let files = html::plots(&run, Some(&folder), &path.join("plots")).unwrap();
    files.iter().for_each(|f| check(f));
    let of = |kind: &str| {
        let is_it = |f: &&PathBuf| f.file_name().unwrap().to_string_lossy().starts_with(kind);
        files.iter().filter(is_it).map(|f| std::fs::read_to_string(f).unwrap()).collect::<Vec<_>>()
    };
    // Of the smallest size, one in the middle, and the largest.
    assert_eq!(["latency", "cdf", "histogram", "rounds", "worst"].map(|kind| of(kind).len()), [1, 3, 3, 3, 1]);
    let text = &of("latency")[0];
    let doc = Document::parse(text).unwrap();
    assert_eq!((of_class(&doc, "series").len(), of_class(&doc, "point").len()), (3, 3 * folder.stages().len()));
    assert!(text.contains("&lt;bar1&gt; &amp; &quot;co&quot;"));
    assert!(of("worst")[0].contains("3.00 ms at "), "the slowest sample");
    for text in files.iter().map(|f| std::fs::read_to_string(f).unwrap()) {
        assert!(!text.contains("900 ms"), "a round with counters is drawn");
    }
    let texts = texts(&Document::parse(&of("cdf")[0]).unwrap());
    assert!(["50 %", "90 %", "99.9 %", "99.99 %"].iter().all(|p| texts.iter().any(|t| t == p)), "{texts:?}");
}

#[test]
fn a_functional_run_has_no_pictures() {
    let dir = tempfile::tempdir().unwrap();
    let text = EXPERIMENT.replace("repeats = 2", "repeats = 2\ngpu = \"soft\"");
    let (folder, run) = made(&dir.path().join("run"), &text.replace("8,64,512,4096,65536", "8,16"));
    assert!(html::plots(&run, Some(&folder), &dir.path().join("plots")).unwrap().is_empty());
}

#[test]
fn a_run_without_samples_has_no_pictures_and_one_sample_has() {
    let dir = tempfile::tempdir().unwrap();
    let text = EXPERIMENT.replace("8,64,512,4096,65536", "8");
    let folder = Folder::create(&dir.path().join("run"), &read(&text), false).unwrap();
    let plots = |run: &Run| html::plots(run, Some(&folder), &dir.path().join("plots")).unwrap();
    assert!(plots(&Run::from_folder(&folder, Context::default()).unwrap()).is_empty());
    let cells = [vec![sample(0, 0, 2_000)], Vec::new(), vec![sample(1, 5, 0)]];
    folder.write_part(&part(0, 0, &cells), &cells).unwrap();
    let files = plots(&Run::from_folder(&folder, Context::default()).unwrap());
    assert_eq!(files.len(), 3);
    for f in files {
        let text = std::fs::read_to_string(f).unwrap();
        assert!(Document::parse(&text).is_ok() && !text.contains("NaN") && !text.contains("inf"));
    }
}
