//! The pictures of an invented run: what they contain, not the exact bytes.

#[path = "../../../bench/run-folder/tests/made/mod.rs"]
mod made;

use made::{part, read, routes, sample};
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

fn check(path: &Path, functional: bool) {
    let text = std::fs::read_to_string(path).unwrap();
    let doc = Document::parse(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let svg = doc.root_element();
    let name = path.display();
    assert!(svg.children().any(|n| n.has_tag_name("title")) && svg.children().any(|n| n.has_tag_name("desc")));
    let texts = texts(&doc);
    assert!(texts.iter().any(|t| t.contains("made-up: ")), "{name}: no title");
    assert!(texts.iter().any(|t| t.contains("NVIDIA H200")) && texts.iter().any(|t| t.contains("0123abc")), "{name}");
    assert_eq!(texts.iter().any(|t| t == "functional: no times"), functional, "{name}");
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
    let files = plot::all(&folder, &run).unwrap();
    assert_eq!(files.len(), 4 + 3 * folder.stages().len());
    files.iter().for_each(|f| check(f, false));
    let names: Vec<_> = files.iter().take(7).map(|f| f.file_name().unwrap().to_string_lossy()).collect();
    let against_size = ["latency", "host-to-gpu0", "host-to-gpu0-call", "host-to-gpu0-times-cuda"];
    assert_eq!(names[..4], against_size.map(|name| format!("0000-{name}.svg")));
    assert_eq!(names[4..], ["0000-cdf.svg", "0000-histogram.svg", "0000-timeline.svg"]);

    let text = std::fs::read_to_string(&files[0]).unwrap();
    let doc = Document::parse(&text).unwrap();
    assert_eq!((of_class(&doc, "series").len(), of_class(&doc, "point").len()), (3, 3 * folder.stages().len()));
    // Two have samples enough for p99.9.
    assert_eq!(of_class(&doc, "band").iter().filter(|b| b.children().any(|c| c.has_tag_name("path"))).count(), 2);
    assert!(text.contains("&lt;bar1&gt; &amp; &quot;co&quot;"));

    let text = std::fs::read_to_string(plots(&path, "0002-timeline.svg")).unwrap();
    let doc = Document::parse(&text).unwrap();
    let worst = of_class(&doc, "worst");
    assert_eq!(worst.len(), 3, "one a cell");
    let said = worst[1].children().find(|n| n.has_tag_name("title")).unwrap().text().unwrap().to_owned();
    assert!(said.starts_with("3 ms at "), "{said}");
    let said = texts(&doc);
    assert!(said.iter().any(|t| t == "circle: max, 3 ms") && said.iter().any(|t| t.contains("repeat 1, sample 7001")));
    assert!(!text.contains("900 ms"), "a round with counters is drawn");

    let text = std::fs::read_to_string(plots(&path, "0002-cdf.svg")).unwrap();
    let texts = texts(&Document::parse(&text).unwrap());
    assert!(["50 %", "90 %", "99.9 %", "99.99 %"].iter().all(|p| texts.iter().any(|t| t == p)), "{texts:?}");
}

/// About the time of a copy.
fn time(route: &str, bytes: u64) -> Option<f64> {
    let (start, rate) = match route.split("->").nth(1)? {
        "cuda" => (5_500.0, 55.0),
        e if e.starts_with("cuda") => (5_000.0 + 100.0 * e.len() as f64, 54.0),
        "bar1" if route.starts_with("gpu0") => (1_100.0, 0.9),
        "bar1[flush]" | "bar1" => (1_250.0, 18.0),
        e if e.starts_with("inline") && bytes > 4 << 20 => return None,
        e if e.starts_with("inline") => (2_300.0, 10.0),
        e => (3_000.0 + 150.0 * e.len() as f64, 50.0 + e.len() as f64 / 4.0),
    };
    Some(start + bytes as f64 / rate)
}

#[test]
fn many_routes_have_their_names_at_the_ends_of_their_lines() {
    let dir = tempfile::tempdir().unwrap();
    let kept = std::env::var_os("TEST_PICTURES").map(|path| PathBuf::from(path).join("many"));
    let text = routes("4B,1KiB,64KiB,1MiB,64MiB");
    let folder = Folder::create(&kept.unwrap_or_else(|| dir.path().join("run")), &read(&text), true).unwrap();
    for stage in folder.stages() {
        let samples = |c: &experiment::Cell| {
            let ns = time(c.subject.what.text(), c.bytes);
            ns.map_or(Vec::new(), |ns| {
                (0..9).map(|round| sample(round, u64::from(round) * 1_000_000_000, ns as u64)).collect()
            })
        };
        let cells: Vec<_> = stage.cells.iter().map(samples).collect();
        folder.write_part(&part(stage.number, 0, &cells), &cells).unwrap();
    }
    let run = Run::from_folder(&folder, Context::default()).unwrap();
    let files = plot::all(&folder, &run).unwrap();
    let names: Vec<_> = files.iter().map(|f| f.file_name().unwrap().to_string_lossy()).collect();
    let of_kind = ["", "-call", "-times-cuda"];
    let against_size =
        ["host-to-gpu0", "gpu0-to-host"].map(|direction| of_kind.map(|kind| format!("{direction}{kind}")));
    // One picture of all 51 would have an unreadable legend.
    assert_eq!(names[..6], against_size.concat().iter().map(|name| format!("0000-{name}.svg")).collect::<Vec<_>>());
    assert!(!names.iter().any(|name| name.ends_with("latency.svg")));
    let text = std::fs::read_to_string(&files[0]).unwrap();
    let doc = Document::parse(&text).unwrap();
    let of = |class: &str| of_class(&doc, class);
    let to_gpu = run.cells.iter().filter(|c| c.stage == 0 && c.what.text().ends_with("gpu0")).count();
    assert_eq!((of("name").len(), of("strong").len() + of("thin").len()), (to_gpu, to_gpu));
    let strong: Vec<_> =
        of("strong").iter().filter_map(|n| n.first_element_child()?.text()).map(str::to_owned).collect();
    assert!((2..=7).contains(&strong.len()) && strong.iter().any(|name| name == "bar1[flush]"), "{strong:?}");
    assert!(strong.iter().any(|name| name.starts_with("cuda")), "{strong:?}");
    let places: Vec<f64> = of("name")
        .iter()
        .map(|n| n.children().find(|c| c.has_tag_name("text")).unwrap().attribute("y").unwrap().parse().unwrap())
        .collect();
    assert!(places.windows(2).all(|w| w[1] - w[0] > 12.5), "no name covers another one: {places:?}");
    for file in &files[..6] {
        let text = std::fs::read_to_string(file).unwrap();
        assert!(Document::parse(&text).is_ok() && !text.contains("NaN") && !text.contains("inf\""));
    }
}

fn plots(path: &Path, name: &str) -> PathBuf {
    path.join("plots").join(name)
}

#[test]
fn a_functional_run_is_marked() {
    let dir = tempfile::tempdir().unwrap();
    let text = EXPERIMENT.replace("seed = 1", "").replace("repeats = 2", "repeats = 2\ngpu = \"soft\"");
    let (folder, run) = made(&dir.path().join("run"), &text.replace("8,64,512,4096,65536", "8,16"));
    let files = plot::all(&folder, &run).unwrap();
    assert_eq!(files.len(), 7);
    files.iter().for_each(|f| check(f, true));
}

#[test]
fn a_run_without_samples_has_no_pictures_and_one_sample_has() {
    let dir = tempfile::tempdir().unwrap();
    let text = EXPERIMENT.replace("8,64,512,4096,65536", "8");
    let folder = Folder::create(&dir.path().join("run"), &read(&text), false).unwrap();
    let run = Run::from_folder(&folder, Context::default()).unwrap();
    assert!(plot::all(&folder, &run).unwrap().is_empty());
    let cells = [vec![sample(0, 0, 2_000)], Vec::new(), vec![sample(1, 5, 0)]];
    folder.write_part(&part(0, 0, &cells), &cells).unwrap();
    let run = Run::from_folder(&folder, Context::default()).unwrap();
    let files = plot::all(&folder, &run).unwrap();
    assert_eq!(files.len(), 3);
    for f in files {
        let text = std::fs::read_to_string(f).unwrap();
        assert!(Document::parse(&text).is_ok() && !text.contains("NaN") && !text.contains("inf"));
    }
}
