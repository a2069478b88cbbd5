//! From a run's folder to its data file, and back to its figures.

#[path = "../../run-folder/tests/made/mod.rs"]
mod made;

use experiment::{Compare, Experiment, Metric, Observe};
use run_folder::data_file::{Digest, Measured, Rows};
use run_folder::run::Context;
use run_folder::{Folder, Run, Sample};
use statistics::Figure;

/// Two cells of 10 rounds in each of 4 processes, with engine times only in the second.
fn run(path: &std::path::Path, change: impl Fn(&mut Experiment, &mut Vec<Vec<Sample>>)) -> (Folder, Run) {
    let mut experiment = made::experiment();
    experiment.run.repeats = 4;
    experiment.subjects = vec![made::subject("host->ce0->gpu0", &[4096]), made::subject("host->bar1->gpu0", &[4096])];
    experiment.compare = Some(Compare { baseline: "host->bar1->gpu0".into(), metric: Metric::P50 });
    let mut of_repeat: Vec<Vec<Vec<Sample>>> = [(1, 2), (3, 4), (5, 6), (7, 8)]
        .iter()
        .map(|(a, b)| vec![made::samples(*a, 20_000), made::samples(*b, 15_000)])
        .collect();
    of_repeat.iter_mut().for_each(|cells| change(&mut experiment, cells));
    let folder = Folder::create(path, &experiment, false).unwrap();
    for (repeat, cells) in (0..).zip(&of_repeat) {
        folder.write_part(&made::part(0, repeat, cells), cells).unwrap();
    }
    let run = Run::from_folder(&folder, Context { commit: Some("6ba3a506d601".into()), ..Context::default() }).unwrap();
    (folder, run)
}

fn measured(digest: &Digest, number: usize, part: Observe) -> Measured {
    digest.measured(&digest.stages[0], number, part).unwrap().expect("the part is kept")
}

#[test]
fn figures_are_those_of_run_json() {
    let dir = tempfile::tempdir().unwrap();
    // Few values, each often: all are stored.
    let coarse = |_: &mut Experiment, cells: &mut Vec<Vec<Sample>>| {
        cells.iter_mut().flatten().for_each(|s| s.done_ns = s.release_ns + s.done() / 100 * 100);
    };
    let (folder, run) = run(dir.path(), coarse);
    let digest = run_folder::data_file::of_folder(&folder, &run, &[]).unwrap();
    let text = digest.to_text().unwrap();
    let again = Digest::read(text.as_bytes()).unwrap();
    assert_eq!(again, digest);
    assert!(text.len() < 20_000, "{} bytes of 70,000 samples", text.len());
    let (a, b) = (measured(&again, 0, Observe::Done), measured(&again, 1, Observe::Done));
    for (measured, cell) in [&a, &b].into_iter().zip(&run.cells) {
        assert!(again.stages[0].cells[cell.cell as usize].done.as_ref().unwrap().is_exact());
        let figure = cell.figures.done.as_ref().unwrap();
        let value = |f| measured.figure(f).map(|v| v.value);
        let summary = &figure.summary;
        assert_eq!((measured.samples(), value(Figure::P50)), (summary.count, Some(summary.p50 as f64)));
        assert_eq!(
            (value(Figure::P999), value(Figure::Max)),
            (summary.p999.map(|v| v as f64), Some(summary.max as f64))
        );
        assert_eq!(measured.figure(Figure::P50).unwrap().interval, figure.p50_interval);
        assert_eq!(measured.figure(Figure::P999).unwrap().interval, figure.p999_interval);
        let rate = cell.rate.as_ref().unwrap();
        assert_eq!(measured.rate().map(|v| (v.value, v.interval)), Some((rate.transfers_per_second, rate.interval)));
    }
    let ratio = run.cells[0].ratio.as_ref().unwrap().ratio;
    let again = a.ratio(&b, Figure::P50).unwrap();
    assert_eq!((again.value, again.interval), (ratio.ratio, ratio.interval));
    assert_eq!(a.ratio(&b, Figure::P9999), None, "too few samples");
}

#[test]
fn buckets_are_as_near_as_they_state_and_the_maximum_is_exact() {
    let dir = tempfile::tempdir().unwrap();
    // Long times, all different: more letters than are stored one by one.
    let long = |_: &mut Experiment, cells: &mut Vec<Vec<Sample>>| {
        cells.iter_mut().flatten().for_each(|s| s.done_ns = s.release_ns + s.done() * 1000 + s.call_ns % 997);
    };
    let (folder, run) = run(dir.path(), long);
    let digest = run_folder::data_file::of_folder(&folder, &run, &[Observe::Done, Observe::Submit]).unwrap();
    let cell = &digest.stages[0].cells[0];
    assert!(!cell.done.as_ref().unwrap().is_exact());
    assert!(cell.submit.is_some() && cell.engine.is_none(), "the parts that were asked for");
    let (near, exact) =
        (measured(&digest, 0, Observe::Done), run.cells[0].figures.done.as_ref().unwrap().summary.clone());
    let value = |f| near.figure(f).unwrap().value;
    let within = |near: f64, exact: f64| (near - exact).abs() <= exact * run_folder::data_file::series::ERROR;
    assert!(within(value(Figure::P50), exact.p50 as f64) && within(value(Figure::P99), exact.p99.unwrap() as f64));
    assert!(within(value(Figure::Mean), exact.mean));
    assert_eq!(value(Figure::Max), exact.max as f64);
}

/// As above, with the samples next to the file in place of rounds.
#[test]
fn figures_of_samples_next_to_the_file_are_exact() {
    let dir = tempfile::tempdir().unwrap();
    let long = |_: &mut Experiment, cells: &mut Vec<Vec<Sample>>| {
        cells.iter_mut().flatten().for_each(|s| s.done_ns = s.release_ns + s.done() * 1000 + s.call_ns % 997);
    };
    let (folder, run) = run(&dir.path().join("run"), long);
    let samples = run_folder::data_file::samples_folder(&dir.path().join("made-up.json.gz"));
    assert_eq!(samples, dir.path().join("made-up"));
    let mut digest = run_folder::data_file::of_folder(&folder, &run, &[]).unwrap();
    digest.copy_samples(&folder, &samples).unwrap();
    let text = digest.to_text().unwrap();
    let mut again = Digest::read(text.as_bytes()).unwrap();
    assert!(!again.has_rounds() && text.len() < 6_000, "{} bytes", text.len());
    again.read_samples(&samples).unwrap();
    for (number, cell) in run.cells.iter().enumerate() {
        let (measured, figure) = (measured(&again, number, Observe::Done), cell.figures.done.as_ref().unwrap());
        let value = |f| measured.figure(f).map(|v| v.value);
        let summary = &figure.summary;
        assert_eq!(measured.samples(), summary.count);
        assert_eq!(value(Figure::P50), Some(summary.p50 as f64));
        assert_eq!((value(Figure::P99), value(Figure::Mean)), (summary.p99.map(|v| v as f64), Some(summary.mean)));
        assert_eq!(measured.figure(Figure::P50).unwrap().interval, figure.p50_interval);
    }
    std::fs::copy(samples.join("0000-00.parquet"), samples.join("0000-01.parquet")).unwrap();
    let e = again.read_samples(&samples).unwrap_err().to_string();
    assert!(e.contains("0000-01.parquet"), "{e}");
}

#[test]
fn a_figure_in_rows_is_a_number() {
    let read = |value: &str| {
        let origin = r#""name":"","about":"","doorbell":"","commit":null,"command":[],"started":"","functional":false,"complete":true"#;
        let rows = format!(r#"{{"a":{{"b":1}}}},{{"a":{{"b":{value}}}}}"#);
        let text = format!(r#"{{"schema":"doorbell.rows/1",{origin},"machine":{{}},"experiment":"","rows":[{rows}]}}"#);
        Rows::read(text.as_bytes()).map(|rows| rows.rows[1].get("a.b").cloned())
    };
    let texts = [
        "4.99 us",
        "+2.1 %",
        "2.1%",
        "12",
        "+1.5 to +3.3 %",
        "528 764 1,290",
        "-2.7 % (-2.8 to -1.6)",
        "1.2ms",
        "1 - 2",
    ];
    for text in texts {
        let e = read(&format!("{text:?}")).unwrap_err().to_string();
        assert!(e.starts_with("row 2, a.b:") && e.contains(text) && e.contains("store the number"), "{e}");
    }
    for label in
        ["8 B to host, CUDA", "2 threads", "16 of 800 copies", "-", "", "nan", "from 5 to 200 us", "580.159.04"]
    {
        assert_eq!(read(&format!("{label:?}")).unwrap(), Some(label.into()));
    }
    assert_eq!((read("4.5").unwrap(), read("null").unwrap()), (Some(4.5.into()), None));
}

#[test]
fn an_interrupted_sample_has_a_minimum_time() {
    let dir = tempfile::tempdir().unwrap();
    let cut = |_: &mut Experiment, cells: &mut Vec<Vec<Sample>>| {
        let last = cells[0].last_mut().unwrap();
        (last.done_ns, last.capped) = (last.release_ns + 1_000_000_000, true);
    };
    let (folder, run) = run(dir.path(), cut);
    let digest = run_folder::data_file::of_folder(&folder, &run, &[]).unwrap();
    let (a, b) = (measured(&digest, 0, Observe::Done), measured(&digest, 1, Observe::Done));
    assert_eq!((a.capped, b.capped), (4, 0));
    assert!(a.figure(Figure::Max).unwrap().at_least && a.figure(Figure::Mean).unwrap().at_least);
    assert!(!a.figure(Figure::P50).unwrap().at_least && !b.figure(Figure::Max).unwrap().at_least);
}

#[test]
fn other_files_than_data_files_are_refused() {
    let read = |text: &str| Digest::read(text.as_bytes()).unwrap_err().to_string();
    assert!(read("{}").contains("no data file"));
    assert!(read(r#"{"schema":"doorbell.run/1"}"#).contains("doorbell.run/1"));
    let dir = tempfile::tempdir().unwrap();
    let (folder, run) = run(dir.path(), |_, _| {});
    let mut digest = run_folder::data_file::of_folder(&folder, &run, &[]).unwrap();
    digest.stages[0].cells[1].done.as_mut().unwrap().rounds.pop();
    assert!(read(&digest.to_text().unwrap()).contains("39 rounds, and the stage has 40"));
}
