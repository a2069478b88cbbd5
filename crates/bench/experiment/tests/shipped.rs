//! The shipped experiments can be read and expanded, and are the same after writing and reading.

use experiment::{Experiment, Metric, PROCESSES, Processes, read, read_variant, shipped, shipped_named, variants};
use std::path::{Path, PathBuf};

#[test]
fn every_shipped_experiment_is_read_and_written_back() {
    for shipped in shipped() {
        let origin = format!("experiments/{}.toml", shipped.name);
        for first in shipped.read_all().unwrap_or_else(|e| panic!("{e}")) {
            assert_eq!(first.name, shipped.name, "its name is its file's");
            assert!(!first.about.is_empty(), "{origin}");
            let stages = first.stages().unwrap();
            assert!(stages.iter().all(|stage| !stage.cells.is_empty()), "{origin}");
            assert!(stages.iter().enumerate().all(|(i, stage)| stage.number as usize == i), "{origin}");
            let text = first.to_toml();
            let again = read(&text, "elsewhere", &[]).unwrap_or_else(|e| panic!("{e}\n{text}"));
            assert_eq!(first, again, "{text}");
            assert_eq!(stages, again.stages().unwrap());
        }
    }
}

#[test]
fn every_file_of_the_folder_is_shipped() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../experiments");
    for file in std::fs::read_dir(folder).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        let Some(name) = name.strip_suffix(".toml") else { continue };
        assert!(shipped_named(name).is_some(), "experiments/{name}.toml is not in the list of shipped experiments");
    }
}

#[test]
fn options_change_a_shipped_experiment() {
    let smoke = shipped_named("smoke").unwrap();
    let sets = ["run.gpu=soft", "run.duration=1s", "cuda.arrival=paced(50us)", "matrix.policy=stock,pi+phase-fair"];
    let changed = read(smoke.text, "smoke.toml", &sets.map(String::from)).unwrap_or_else(|e| panic!("{e}"));
    assert_eq!(changed.run.gpu, experiment::Gpu::Soft);
    assert_eq!((changed.run.repeats, changed.run.duration_ns), (5, Some(200_000_000)));
    assert_eq!(changed.subjects[0].arrival, experiment::Arrival::Paced { period_ns: 50_000 });
    assert_eq!(changed.policies(), ["stock", "pi+phase-fair"]);
    let stages = changed.stages().unwrap();
    assert_eq!(stages.iter().map(|s| s.run.policy.as_str()).collect::<Vec<_>>(), ["stock", "pi+phase-fair"]);
}

#[test]
fn every_shipped_experiment_is_documented_with_its_time() {
    // A key may have an experiment's name.
    let reference = include_str!("../../../../docs/reference/experiments.md");
    let (_, reference) = reference.split_once("\n## Shipped experiments\n").unwrap();
    for one in shipped().iter().flat_map(|shipped| shipped.read_all().unwrap()) {
        let plan = one.estimate().unwrap();
        let name = match &one.variant {
            Some(variant) => format!("{} --variant {variant}", one.name),
            None => one.name.clone(),
        };
        let row = reference.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
        let row = row.unwrap_or_else(|| panic!("`{name}` is not documented"));
        let seconds = plan.time_ns / 1_000_000_000;
        assert!(!plan.is_open() && row.ends_with(&format!("| {seconds} s |")), "{seconds} s: {row}");
        assert!(seconds < 600, "`{name}` takes {seconds} s");
    }
    let all = shipped().iter().map(|shipped| shipped.read_all().unwrap().len()).sum::<usize>();
    let rows = reference.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(rows, all, "rows of experiments that there are not");
}

#[test]
fn few_files_are_shipped() {
    assert!(shipped().len() <= 20, "{} files: make it a variant of one", shipped().len());
}

/// One process has no intervals. These check, count commands, are long series to be cut up, or have loads that take minutes to stop.
const ONE_PROCESS: [&str; 6] =
    ["beside", "busy", "crossover, variant thresholds", "quiet", "setups", "setups, variant starved"];

/// Figures of an experiment that cannot have intervals on any machine.
fn without_intervals(experiment: &Experiment) -> Option<String> {
    let run = &experiment.run;
    let title = experiment.title();
    if ONE_PROCESS.contains(&title.as_str()) {
        return (run.repeats > 1).then(|| format!("{title} has {} processes", run.repeats));
    }
    if run.repeats < PROCESSES {
        return Some(format!("{} processes, and an interval needs {PROCESSES}", run.repeats));
    }
    let metric = experiment.compare.as_ref().map(|compare| compare.metric)?;
    let is_extreme = matches!(metric, Metric::Min | Metric::Max);
    is_extreme.then(|| format!("[compare] has the metric {metric}, and an extreme has no interval"))
}

/// The experiments below a folder.
fn experiments_below(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            experiments_below(&path, found);
        } else if path.extension().is_some_and(|e| e == "toml")
            && std::fs::read_to_string(&path).unwrap().lines().any(|line| line == "[run]")
        {
            found.push(path);
        }
    }
}

#[test]
fn shipped_and_published_experiments_have_intervals() {
    let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    let mut files = Vec::new();
    for folder in ["experiments", "docs/results"] {
        experiments_below(&root.join(folder), &mut files);
    }
    assert!(files.len() > shipped().len(), "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let origin = file.to_string_lossy();
        let variants = variants(&text, &origin).unwrap_or_else(|e| panic!("{e}"));
        for variant in std::iter::once(None).chain(variants.iter().map(|variant| Some(variant.name.as_str()))) {
            let experiment =
                read_variant(&text, &origin, variant, &[], Processes::Shared).unwrap_or_else(|e| panic!("{e}"));
            assert_eq!(without_intervals(&experiment), None, "{origin} {variant:?}");
        }
    }
}
