//! Processes of a run: five share it, unless the file says how often it is repeated.

use experiment::{Processes, Run, read, read_stored, read_variant};

const SUBJECT: &str = "[[subject]]\ncall = \"launch\"\n";

fn of(run: &str, rest: &str, sets: &[&str]) -> Run {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let read = read(&format!("[run]\n{run}\n{rest}"), "x.toml", &sets).unwrap_or_else(|e| panic!("{e}"));
    // What is stored has the share of each process, and is read as it was measured.
    assert_eq!(read_stored(&read.to_toml(), "x").unwrap(), read);
    assert_eq!(experiment::read(&read.to_toml(), "x", &[]).unwrap(), read);
    read.run
}

const TEN_SECONDS: &str = "duration = \"10s\"\nrounds = 60\nsamples = 1000\nnoise = \"1s\"\nmeter = \"10s\"";

#[test]
fn five_processes_share_the_time_the_rounds_and_the_samples() {
    let run = of(TEN_SECONDS, SUBJECT, &[]);
    assert_eq!((run.repeats, run.rounds, run.samples, run.duration_ns), (5, 12, Some(200), Some(2_000_000_000)));
    assert_eq!((run.noise_ns, run.meter_ns, run.timeout_ns), (200_000_000, 2_000_000_000, 1_000_000_000));
    // A blocked call is marked after the same time as in one process.
    assert_eq!(run.patience_ns, Some(10_000_000_000));
    assert_eq!(of(TEN_SECONDS, SUBJECT, &["run.patience=2s"]).patience_ns, Some(2_000_000_000));
    let defaults = of("samples = 1000", SUBJECT, &[]);
    assert_eq!((defaults.repeats, defaults.rounds, defaults.samples), (5, 2, Some(200)));
    assert_eq!((defaults.duration_ns, defaults.noise_ns, defaults.patience_ns), (None, 40_000_000, None));
}

#[test]
fn with_repeats_each_process_has_all_of_it() {
    let whole = |run: Run| (run.rounds, run.samples, run.duration_ns, run.noise_ns, run.patience_ns);
    let all = (60, Some(1000), Some(10_000_000_000), 1_000_000_000, None);
    for repeats in [1, 3, 5] {
        let run = of(&format!("{TEN_SECONDS}\nrepeats = {repeats}"), SUBJECT, &[]);
        assert_eq!((run.repeats, whole(run)), (repeats, all));
        let run = of(TEN_SECONDS, SUBJECT, &[&format!("run.repeats={repeats}")]);
        assert_eq!((run.repeats, whole(run)), (repeats, all));
    }
    // As if the file did not have it.
    let run = of(&format!("{TEN_SECONDS}\nrepeats = 3"), SUBJECT, &["run.repeats="]);
    assert_eq!((run.repeats, run.rounds), (5, 12));
}

#[test]
fn short_runs_have_two_rounds_and_two_samples_in_each_process() {
    let run = of("rounds = 1\nsamples = 1", SUBJECT, &[]);
    assert_eq!((run.repeats, run.rounds, run.samples), (5, 2, Some(1)));
    let run = of("rounds = 6\nsamples = 6\nmeter = \"250ms\"\nduration = \"7ns\"", SUBJECT, &[]);
    assert_eq!((run.repeats, run.rounds, run.samples), (5, 2, Some(2)));
    // A metering is not shorter than it was, nor than a second.
    assert_eq!((run.meter_ns, run.duration_ns), (250_000_000, Some(2)));
    assert_eq!(of("samples = 1\nmeter = \"2s\"", SUBJECT, &[]).meter_ns, 1_000_000_000);
}

#[test]
fn each_process_visits_all_places_of_a_sweep_and_reads_counters() {
    let sweep = "[[subject]]\nroute = \"host->ce0->gpu0\"\nsizes = [\"4KiB\"]\naddresses = \"sweep(64KiB,512KiB)\"\n";
    let run = of("rounds = 10\nsamples = 20", sweep, &[]);
    assert_eq!((run.repeats, run.rounds, run.samples), (5, 8, Some(8)));
    let axis = format!("{SUBJECT}[matrix]\naddresses = [\"fixed\", \"sweep(64KiB,384KiB)\"]\n");
    assert_eq!(of("rounds = 6\nsamples = 600", &axis, &[]).rounds, 6);
    let counted = of("rounds = 10\nsamples = 600\ncounters-every = 5", SUBJECT, &[]);
    assert_eq!((counted.rounds, counted.counters_every), (5, 5));
    // They were never read.
    assert_eq!(of("rounds = 10\nsamples = 600\ncounters-every = 11", SUBJECT, &[]).rounds, 2);
}

#[test]
fn what_is_stored_without_repeats_was_measured_by_one_process() {
    let text = format!("[run]\n{TEN_SECONDS}\n{SUBJECT}");
    let run = read_stored(&text, "x.toml").unwrap().run;
    assert_eq!((run.repeats, run.rounds, run.duration_ns), (1, 60, Some(10_000_000_000)));
    let one = |sets: &[String]| read_variant(&text, "x.toml", None, sets, Processes::One).unwrap().run.repeats;
    assert_eq!((one(&[]), one(&["run.repeats=2".into()])), (1, 2));
}
