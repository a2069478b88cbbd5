//! `graphs` beside the libcuda in software, whose graphs are words in CUDA's form that the software GPU runs.

#[path = "../../softcuda/tests/program/mod.rs"]
mod program;

use sample::{Launcher, Options, run, shapes};

/// What it has to run; of the others, as much as it can.
const MUST: [&str; 12] = [
    "one",
    "chain-2",
    "chain-100",
    "chain-2000",
    "queued",
    "memset-1-64B",
    "memset-4-4B",
    "memset-4-64KiB-zero",
    "memcpy-d2d-4KiB",
    "memcpy-h2d-8B",
    "memcpy-d2h-1MiB",
    "two-graphs",
];

#[test]
fn shapes_of_graphs_run_on_the_software_gpu() {
    if !program::inside("shapes_of_graphs_run_on_the_software_gpu") {
        return;
    }
    // (Its copies reach no memory that it does not know.)
    let only = shapes().into_iter().filter(|name| !name.contains("pageable")).collect();
    let report = run("graphs", &Options { only, progress: |line| println!("{line}"), ..Options::default() }).unwrap();
    for name in MUST {
        let part = report.parts.iter().find(|part| part.name == name).unwrap();
        assert!(part.launches >= 6 && part.skipped.is_none(), "{part}");
    }
}

/// What is launched past CUDA; of the others, each is refused by name or right.
const PAST: [&str; 7] = ["one", "chain-2", "chain-100", "queued", "memset-4-64B", "memcpy-h2d-4KiB", "two-graphs"];

#[test]
fn shapes_of_graphs_have_the_same_results_past_cuda() {
    if !program::inside("shapes_of_graphs_have_the_same_results_past_cuda") {
        return;
    }
    let only: Vec<String> = shapes().into_iter().filter(|name| !name.contains("pageable")).collect();
    let options = Options { only, count: Some(8), progress: |line| println!("{line}"), ..Options::default() };
    let report = run("graphs", &Options { launcher: Launcher::Doorbell, ..options }).unwrap();
    for name in PAST {
        let part = report.parts.iter().find(|part| part.name == name).unwrap();
        assert!(part.launches >= 8 && part.skipped.is_none(), "{part}");
    }
}
