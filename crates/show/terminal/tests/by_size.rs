//! Routes against sizes, for an invented run: the compact tables, the best of each size, and one route compared with the best.

#[path = "../../../bench/run-folder/tests/made/mod.rs"]
mod made;

use made::{part, read, routes, sample};
use run_folder::part::Status;
use run_folder::{Context, Folder, Loaded, Run, Sample, Tally};
use std::sync::LazyLock;
use terminal::table::Style;

const ASSERTS: &str = r#"
[[assert]]
subject = "host->auto->gpu0"
within-best = "5%, 100ns"
[[assert]]
subject = "host->auto->gpu0"
within-best = "2%"
among = ["host->cuda->gpu0", "host->cuda[polled]->gpu0"]
"#;

/// About the time of a copy: a start-up time and a rate for each route.
fn time(route: &str, bytes: u64) -> Option<f64> {
    let (start, rate) = match route.split("->").nth(1)? {
        "cuda" => (5_500.0, 55.0),
        e if e.starts_with("cuda") => (5_000.0 + 100.0 * e.len() as f64, 54.0),
        "bar1" | "aperture" if route.starts_with("gpu0") => (1_100.0, 0.9),
        "bar1" => (60.0, 30.0),
        "bar1[flush]" => (1_250.0, 18.0),
        e if e.starts_with("inline") && bytes > 4 << 20 => return None,
        e if e.starts_with("inline") => (2_300.0, 10.0),
        e if e.starts_with("ce") || e == "split" => (4_300.0, 55.1),
        "auto" if bytes < 64 << 10 => (1_290.0, 18.0),
        "auto" => (4_350.0, 54.9),
        _ => (8_000.0, 40.0),
    };
    Some(start + bytes as f64 / rate)
}

fn samples(route: &str, bytes: u64) -> Vec<Sample> {
    let Some(ns) = time(route, bytes) else { return Vec::new() };
    let mut random = fastrand::Rng::with_seed(bytes + route.len() as u64);
    let one = |n: u64| {
        let ns = ns * (1.0 + 0.01 * random.f64());
        sample((n / 15) as u32, n / 15 * 1_000_000_000 + n * 100_000, ns as u64)
    };
    (0..150).map(one).collect()
}

static RUN: LazyLock<Run> = LazyLock::new(|| {
    // Fewer sizes are quicker.
    run(&format!("{}{ASSERTS}", routes("4B,1KiB,64KiB,256KiB,64MiB")))
});

fn run(text: &str) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &read(text), false).unwrap();
    for stage in folder.stages() {
        let cells: Vec<_> = stage.cells.iter().map(|c| samples(c.subject.what.text(), c.bytes)).collect();
        let mut part = part(stage.number, 0, &cells);
        for cell in &mut part.cells {
            cell.counted = Some(Tally { calls: 100, on_cpu_ns: 410_000, ..Tally::default() });
            if cell.samples == 0 {
                cell.status = Status::Unavailable("4 MiB at most go in one submission".into());
            }
        }
        folder.write_part(&part, &cells).unwrap();
    }
    Run::from_folder(&folder, Context::default()).unwrap()
}

fn printed(run: &Run, width: Option<u16>) -> String {
    let mut out = Vec::new();
    terminal::run::write(&mut out, &Style { width, ..Style::default() }, run, None).unwrap();
    String::from_utf8(out).unwrap()
}

/// The lines from the one with the title to the next empty one.
fn section<'t>(text: &'t str, title: &str) -> Vec<&'t str> {
    let lines = text.lines().skip_while(|line| *line != title);
    lines.take_while(|line| !line.is_empty()).collect()
}

#[test]
fn every_direction_has_a_table_of_routes_against_sizes() {
    let text = printed(&RUN, None);
    let to_gpu = section(&text, "host to gpu0");
    assert!(to_gpu[1].starts_with("p50 in us"), "{to_gpu:#?}");
    let heads: Vec<&str> = to_gpu[2].split("  ").map(str::trim).filter(|h| !h.is_empty()).collect();
    assert_eq!((heads.len(), heads[0], heads[1], heads[5]), (6, "route", "4 B", "64 MiB"), "{heads:?}");
    let row = |label: &str| -> Vec<&str> {
        let found = to_gpu.iter().find(|line| line.starts_with(&format!("{label}  ")));
        found.unwrap_or_else(|| panic!("{label}: {to_gpu:#?}")).split_whitespace().collect()
    };
    assert!(row("bar1[flush]")[1].ends_with('*'), "{:?}", row("bar1[flush]"));
    // Its bytes may not have arrived: it is faster, and not the best.
    let posted = row("bar1 (the call)");
    assert!(posted[3] == "0.006" && !posted.iter().any(|cell| cell.contains('*')), "{posted:?}");
    assert_eq!(row("inline").iter().filter(|cell| **cell == "-").count(), 1);
    assert!(to_gpu.iter().any(|line| line.starts_with("p50 of the call alone")));
    assert!(to_gpu.iter().any(|line| line.starts_with("on a CPU in us")), "{to_gpu:#?}");
    // The same memories of another kind are distinguished within their direction.
    assert!(row("bar1[flush], host[pageable]").len() > 6);
    assert!(section(&text, "gpu0 to host").len() > 40);

    let best = section(&text, "the best from host to gpu0");
    assert!(best[2].starts_with("p50   bar1[flush]") && best[2].contains("4 B"), "{best:#?}");
    assert!(best[3].trim_start().starts_with(".."), "{best:#?}");
    assert!(best.iter().any(|line| line.starts_with("max   ")));
}

#[test]
fn the_tables_fit_a_terminal() {
    for width in [66, 80] {
        let text = printed(&RUN, Some(width));
        for title in
            ["host to gpu0", "gpu0 to host", "the best from host to gpu0", "p50 of host->auto->gpu0 against the best"]
        {
            let section = section(&text, title);
            assert!(section.len() > 5, "{title}: {section:#?}");
            let tables = section.iter().filter(|line| !line.starts_with("left out") && !line.contains(", "));
            let long: Vec<_> = tables.filter(|line| line.chars().count() > usize::from(width)).collect();
            assert!(long.is_empty(), "{title}: {long:#?}");
        }
        // Sizes without room in one table are in the next.
        let heads: Vec<_> = text.lines().filter(|line| line.starts_with("route  ")).collect();
        assert!(heads.iter().any(|line| line.ends_with("64 MiB")), "{heads:#?}");
    }
}

#[test]
fn one_route_is_compared_with_the_best_at_each_size() {
    let text = printed(&RUN, None);
    let table = section(&text, "p50 of host->auto->gpu0 against the best");
    assert_eq!(table.len(), 2 + 5, "{table:#?}");
    assert!(table[2].contains("bar1[flush]") && table[2].matches("held").count() == 2, "{}", table[2]);
    assert!(text.contains("at most 5 % or 100 ns above the best of all other routes between the same memories"));
}

#[test]
fn the_best_of_each_stage_and_the_largest_value_within_a_bound_are_shown() {
    let text = r#"
name = "made-up"
[run]
rounds = 10
samples = 150
[matrix]
loads = ["none", "large"]
large.bytes = ["64KiB", "1MiB"]
bytes = ["64B", "4KiB", "64KiB"]
[[subject]]
name = "ce"
route = "host->ce3->gpu0"
[[subject]]
name = "bar1"
route = "host->bar1[flush]->gpu0"
[[load]]
name = "large"
route = "host->ce3->gpu0"
[[largest]]
axis = "large.bytes"
subject = "ce"
metric = "max"
at-most = "50us"
"#;
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &read(text), false).unwrap();
    for stage in folder.stages() {
        // With the load doorbell's engine takes 30 us longer, or 300; what the CPU stores does not.
        let beside = match stage.point.iter().find(|(name, _)| name == "large.bytes") {
            None => 0,
            Some((_, bytes)) if bytes == "64KiB" => 30_000,
            Some(_) => 300_000,
        };
        let cells: Vec<Vec<Sample>> = [4_000 + beside + stage.cells[0].bytes / 50, 1_000 + stage.cells[0].bytes]
            .map(|ns| (0..150).map(|n| sample((n / 15) as u32, n * 1_000_000, ns + n % 7)).collect())
            .to_vec();
        let mut part = part(stage.number, 0, &cells);
        let load = |l: &experiment::LoadSpec| Loaded {
            name: l.name.clone(),
            threads: 1,
            transfers: 1000,
            bytes: 1000 * l.bytes,
            seconds: 1.0,
            ..Loaded::default()
        };
        part.loads = stage.loads.iter().map(load).collect();
        folder.write_part(&part, &cells).unwrap();
    }
    let text = printed(&Run::from_folder(&folder, Context::default()).unwrap(), None);
    let winners = section(&text, "who wins from host to gpu0, stage by stage");
    // A title, a head, a line, and three stages.
    assert!(winners.len() >= 5, "{text}");
    let row = |value: &str| *winners.iter().find(|line| line.contains(value)).unwrap();
    assert!(row("none").contains("bar1 to 64 B; ce to 64 KiB") && row("none").contains("0 of 3"), "{winners:#?}");
    assert!(row("1MiB").contains("bar1 to 64 KiB") && row("1MiB").contains("2 of 3"), "{winners:#?}");
    let largest = section(&text, "the largest large.bytes up to which max of ce is at most 50.0 us");
    assert_eq!(largest.len(), 1 + 3, "one answer for each size: {text}");
    assert!(
        largest[1].contains("64KiB: 34.0 us (large 0.066 GB/s); then 1MiB: 304 us (large 1.05 GB/s)"),
        "{largest:#?}"
    );
}

#[test]
fn many_subjects_with_loads_have_a_table_for_each_figure() {
    let subjects: String =
        (0..8).map(|n| format!("[[subject]]\nname = \"victim {n}\"\ncall = \"lock(mutex)\"\n")).collect();
    let text = format!(
        "name = \"made-up\"\n[run]\nrounds = 10\nsamples = 150\n[matrix]\nloads = [\"none\", \"hog\", \"hog + memory\"]\n{subjects}\
         [[load]]\nname = \"hog\"\ncall = \"hog\"\n[[load]]\nname = \"memory\"\ncall = \"triad\"\n"
    );
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &read(&text), false).unwrap();
    for stage in folder.stages() {
        let of = |n: u64| {
            (0..150)
                .map(|i| sample((i / 15) as u32, i * 1_000_000, 1_000 * (n + 1) + 10_000 * u64::from(stage.number)))
                .collect()
        };
        let cells: Vec<Vec<Sample>> = (0..8).map(of).collect();
        folder.write_part(&part(stage.number, 0, &cells), &cells).unwrap();
    }
    let text = printed(&Run::from_folder(&folder, Context::default()).unwrap(), None);
    for figure in ["p50", "max"] {
        let table = section(&text, &format!("side by side, {figure}"));
        assert_eq!(table.len(), 2 + 3, "a title, a head, a line for each aggressor: {text}");
        assert!(table[1].contains("victim 7") && table[4].starts_with("hog + memory"), "{table:#?}");
        assert!(table[2].contains("8.00 us") && table[4].contains("28.0 us"), "{table:#?}");
    }
    // Too few samples: no table of dashes.
    assert!(!text.contains("side by side, p99.9"));
}
