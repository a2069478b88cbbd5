//! What ended a cell, the rounds in which the loads rested, when paced samples were released, and the weight of their rounds.

mod made;

use made::{part, read, sample};
use run_folder::part::{CellTurn, EndedBy};
use run_folder::run::{Cause, Lasted, Rested, StageLasted};
use run_folder::{Context, Explained, Folder, Interrupted, Part, Run, Sample, Status};
use std::collections::{BTreeMap, HashMap};

const ROUNDS: u32 = 6;

fn experiment(subject: &str) -> experiment::Experiment {
    read(&format!(
        r#"
name = "made-up"
[run]
rounds = {ROUNDS}
repeats = 2
duration = "6s"
samples = 600
[[subject]]
name = "base"
route = "host->cuda->gpu0"
sizes = "8"
{subject}
"#
    ))
}

fn run_of(experiment: &experiment::Experiment, parts: &[(Part, Vec<Sample>)], context: Context) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), experiment, false).unwrap();
    for (part, samples) in parts {
        folder.write_part(part, std::slice::from_ref(samples)).unwrap();
    }
    let run = Run::from_folder(&folder, context).unwrap();
    let text = include_str!("../../../../docs/reference/run.schema.json");
    let schema = jsonschema::options().build(&serde_json::from_str(text).unwrap()).unwrap();
    let value = serde_json::from_slice(&run.to_json().unwrap()).unwrap();
    let wrong: Vec<_> = schema.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    folder.write_run(&run).unwrap();
    assert_eq!(folder.run().unwrap(), run);
    run
}

/// Closed samples of 1 us, with these numbers for each round.
fn closed(each: [u64; ROUNDS as usize]) -> Vec<Sample> {
    let of_round =
        |(round, n): (u32, u64)| (0..n).map(move |i| sample(round, u64::from(round) * 1_000_000 + i * 2_000, 1_000));
    (0..).zip(each).flat_map(of_round).collect()
}

fn turns(ended: [EndedBy; ROUNDS as usize], rested: &[u32]) -> Vec<CellTurn> {
    let one = |(round, ended): (u32, EndedBy)| {
        let rested_ns = if rested.contains(&round) { 250_000_000 } else { 0 };
        CellTurn { round, ns: 500_000_000, ended, rested_ns }
    };
    (0..).zip(ended).map(one).collect()
}

fn with_turns(repeat: u32, turns: Vec<CellTurn>) -> (Part, Vec<Sample>) {
    let samples = closed([100; 6]);
    let mut part = part(0, repeat, std::slice::from_ref(&samples));
    part.cells[0].turns = turns;
    (part, samples)
}

#[test]
fn the_end_of_a_cell_and_its_time_are_kept() {
    use EndedBy::{Capped, Samples, Time};
    let of = |first: Vec<CellTurn>, second: Vec<CellTurn>| {
        let parts = [with_turns(0, first), with_turns(1, second)];
        let run = run_of(&experiment(""), &parts, Context::default());
        (run.cells[0].lasted.clone(), run.stages[0].lasted.clone(), run.cells[0].per_round.rested_ns.clone())
    };
    let all = || turns([Samples; 6], &[]);
    let lasted = Lasted { ended: Samples, seconds: 6.0, turns: 12, rested: None };
    let stage = StageLasted { seconds: 6.0, ended: BTreeMap::from([(Samples, 1)]), rested: None };
    assert_eq!(of(all(), all()), (Some(lasted.clone()), Some(stage), vec![]));
    // A round that ended with its time took fewer samples than requested; the same for a cell without a last turn.
    let mut fewer = all();
    fewer.pop();
    for (second, rounds) in [(turns([Samples, Time, Samples, Samples, Samples, Samples], &[]), 12), (fewer, 11)] {
        let (cell, stage, _) = of(all(), second);
        assert_eq!(cell.map(|c| (c.ended, c.turns)), Some((Time, rounds)));
        assert_eq!(stage.unwrap().ended, BTreeMap::from([(Time, 1)]));
    }
    // The loads rested in three rounds of twelve.
    let (cell, stage, by_round) =
        of(turns([Samples, Time, Time, Time, Time, Capped], &[1, 5]), turns([Samples; 6], &[0]));
    let rested = Some(Rested { rounds: 3, of: 12, seconds: 0.75 });
    assert_eq!(cell, Some(Lasted { ended: Capped, rested, ..lasted }));
    assert_eq!(stage.unwrap().rested, rested);
    let ms: Vec<u64> = by_round.iter().map(|ns| ns / 1_000_000).collect();
    assert_eq!(ms, [0, 250, 0, 0, 0, 250, 250, 0, 0, 0, 0, 0]);
    // An older doorbell stored none of it.
    assert_eq!(of(vec![], vec![]), (None, None, vec![]));
}

#[test]
fn a_run_that_was_stopped_or_lost_a_process_reports_it_for_its_cells() {
    let one = || [with_turns(0, turns([EndedBy::Samples; 6], &[]))];
    let ended = |run: &Run| (run.cells[0].lasted.as_ref().unwrap().ended, run.stages[0].lasted.clone().unwrap().ended);
    let interrupted = Some(Interrupted { at: Some((0, 1)) });
    let stopped = run_of(&experiment(""), &one(), Context { interrupted, ..Context::default() });
    assert_eq!(ended(&stopped), (EndedBy::Interrupted, BTreeMap::from([(EndedBy::Interrupted, 1)])));
    let failed = HashMap::from([((0, 1), "its process died".to_owned())]);
    let died = run_of(&experiment(""), &one(), Context { failed, ..Context::default() });
    assert_eq!(ended(&died).0, EndedBy::Failed);
    let mut wrong = one();
    wrong[0].0.cells[0].status = Status::Failed("byte 7 is wrong".into());
    assert_eq!(ended(&run_of(&experiment(""), &wrong, Context::default())).0, EndedBy::Failed);
}

const PACED: &str = "arrival = \"paced(10us)\"\ndeadline = \"5us\"";

/// Releases of one round, and the duration of each.
fn paced(round: u32, all: &[(u64, u64)]) -> Vec<Sample> {
    all.iter().map(|(at, ns)| sample(round, u64::from(round) * 1_000_000 + at * 1_000, ns * 1_000)).collect()
}

#[test]
fn paced_arrivals_are_counted_as_they_were_due() {
    use EndedBy::{Samples, Time};
    // The first round ends with two misses, the second begins with one and contains a gap of 15 us. The third ends with a sample that took 35 us:
    // those due at 10, 20 and 30 us were never made, and had waited for 25, 15 and 5 us.
    let samples = [
        paced(0, &[(0, 1), (10, 6), (20, 6)]),
        paced(1, &[(0, 6), (25, 1), (35, 1)]),
        paced(2, &[(0, 35)]),
        paced(3, &[(0, 35)]),
    ]
    .concat();
    let mut part = part(0, 0, std::slice::from_ref(&samples));
    let ended = [Time, Time, Time, Samples];
    part.cells[0].turns =
        (0..).zip(ended).map(|(round, ended)| CellTurn { round, ns: 1, ended, rested_ns: 0 }).collect();
    let run = run_of(&experiment(PACED), &[(part, samples)], Context::default());
    let cell = &run.cells[0];
    let misses = cell.misses.unwrap();
    // Five of the eight that were made; and of the three that were not, the two that had waited for more than 5 us.
    assert_eq!((misses.missed, misses.of, misses.unmade), (7, 10, 2));
    assert_eq!(
        (misses.longest_run, misses.first),
        (3, Some(1)),
        "the long one of the third round, and the two behind it"
    );
    let arrivals = cell.arrivals.clone().unwrap();
    assert_eq!((arrivals.wanted_per_second.round(), arrivals.gaps, arrivals.longest_gap_ns), (100_000.0, 1, 15_000));
    assert_eq!(arrivals.unmade, 3, "of the last round all samples are there");
    let expected = 8.0 / (30e-6 + 45e-6 + 10e-6 + 10e-6);
    assert!((arrivals.achieved_per_second / expected - 1.0).abs() < 1e-9, "{arrivals:?}");
    assert!(run_of(&experiment(""), &[with_turns(0, vec![])], Context::default()).cells[0].arrivals.is_none());
}

#[test]
fn the_worst_calls_are_explained_by_the_call() {
    let mut samples = closed([20; 6]);
    // One waits long for its end, one is long in its call.
    samples[3].done_ns += 5_000_000;
    samples[50].submitted_ns += 80_000;
    samples[50].done_ns += 80_000;
    let mut part = part(0, 0, std::slice::from_ref(&samples));
    // The kernel counted until the end: for the first, nearly all of its sleep was after its call.
    part.cells[0].worst = vec![
        Explained { index: 3, asleep_ns: Some(4_990_000), on_cpu_ns: Some(9_000), ..Explained::default() },
        Explained { index: 50, asleep_ns: Some(70_000), on_cpu_ns: Some(9_000), ..Explained::default() },
    ];
    let run = run_of(&experiment("observe = \"submit\""), &[(part, samples)], Context::default());
    let worst = &run.cells[0].worst;
    assert_eq!((worst[0].index, worst[0].value_ns, worst[0].mostly), (50, 80_100, Cause::Asleep));
    let waits = worst.iter().find(|w| w.index == 3).unwrap();
    assert_eq!((waits.value_ns, waits.mostly), (100, Cause::Submission));
    assert!(worst.iter().all(|w| w.mostly != Cause::Unknown), "what is in the call is in the call");
}

#[test]
fn rounds_with_little_or_no_weight_are_reported() {
    let of = |each| {
        let both = [0, 1].map(|repeat| {
            let samples = closed(each);
            (part(0, repeat, std::slice::from_ref(&samples)), samples)
        });
        run_of(&experiment(""), &both, Context::default()).warnings
    };
    assert_eq!(of([100, 100, 400, 100, 100, 100]), [""; 0]);
    let stuck = of([100, 100, 1, 100, 401, 100]);
    assert!(stuck.len() == 1 && stuck[0].contains("base at 8 bytes in stage 0, 1 to 401"), "{stuck:?}");
    let none = of([100, 100, 100, 100, 0, 0]);
    assert!(none.len() == 1 && none[0].contains("base at 8 bytes in stage 0, 8 of 12 rounds"), "{none:?}");
}
