//! The best route at each size, and whether a route is as good as the best: with synthetic samples.

mod made;

use experiment::Metric;
use made::{part, read, sample};
use run_folder::run::{BestOfRun, JudgedCell, Verdict};
use run_folder::{Context, Folder, Run, Sample};

const ROUNDS: u32 = 8;

const TEXT: &str = r#"
name = "made-up"
[run]
rounds = 2
repeats = 4
samples = 400
[matrix]
bytes = ["64B", "4KiB", "1MiB"]
[[subject]]
name = "cuda"
route = "host->cuda->gpu0"
[[subject]]
name = "cuda, sync"
route = "host->cuda[sync]->gpu0"
[[subject]]
name = "bar1"
route = "host->bar1[flush]->gpu0"
[[subject]]
name = "ce"
route = "host->ce2->gpu0"
[[subject]]
name = "posted"
route = "host->bar1->gpu0"
observe = "submit"
[[subject]]
name = "auto"
route = "host->auto->gpu0"
[[subject]]
name = "back"
route = "gpu0->ce2->host"
"#;

/// The time of each size and subject, ns.
const TIMES: [[u64; 7]; 3] = [
    [6_000, 5_000, 1_300, 4_400, 50, 1_310, 3_600],
    [7_000, 5_500, 1_400, 4_500, 90, 1_480, 3_700],
    [27_000, 28_000, 50_000, 24_000, 900, 25_600, 23_000],
];

/// Rounds of a host that is slow in every third one, for all equally; `wide` spreads the rounds of one cell by so many parts of 100.
fn cell(ns: u64, wide: u64, seed: u64) -> Vec<Sample> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut all = Vec::new();
    for round in 0..ROUNDS {
        let slow = if round.is_multiple_of(3) { 150 } else { 100 };
        let of_round = 100 + random.u64(0..=2 * wide) - wide;
        for i in 0..200 {
            let at = u64::from(round) * 1_000_000_000 + i * 100_000;
            all.push(sample(round, at, ns * slow / 100 * of_round / 100 + random.u64(0..5)));
        }
    }
    all
}

fn run(asserts: &str, times: [[u64; 7]; 3], wide: u64) -> Run {
    let experiment = read(&format!("{TEXT}{asserts}"));
    let dir = tempfile::tempdir().unwrap();
    let folder = Folder::create(&dir.path().join("run"), &experiment, false).unwrap();
    for (stage, of_stage) in times.iter().enumerate() {
        let cells: Vec<Vec<Sample>> =
            (0..7).map(|n| cell(of_stage[n], if n == 5 { wide } else { 0 }, (stage * 7 + n) as u64 + 1)).collect();
        // Two rounds in each of four processes.
        for repeat in 0..ROUNDS / 2 {
            let of = |s: &&Sample| s.round / 2 == repeat;
            let renumbered = |s: &Sample| Sample { round: s.round % 2, ..*s };
            let cells: Vec<Vec<Sample>> =
                cells.iter().map(|all| all.iter().filter(of).map(renumbered).collect()).collect();
            folder.write_part(&part(stage as u32, repeat, &cells), &cells).unwrap();
        }
    }
    let run = Run::from_folder(&folder, Context { environment: serde_json::json!({}), ..Context::default() }).unwrap();
    let text = include_str!("../../../../docs/reference/run.schema.json");
    let schema = jsonschema::options().build(&serde_json::from_str(text).unwrap()).unwrap();
    let value = serde_json::from_slice(&run.to_json().unwrap()).unwrap();
    let wrong: Vec<_> = schema.iter_errors(&value).map(|e| format!("{}: {e}", e.instance_path())).collect();
    // (The start of this run is not set.)
    let wrong: Vec<_> = wrong.into_iter().filter(|w| !w.starts_with("/started") && !w.starts_with("/ended")).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
    run
}

fn of(run: &Run, metric: Metric) -> &BestOfRun {
    run.best.iter().find(|b| b.metric == metric).unwrap()
}

#[test]
fn the_best_route_of_each_size_is_shown_next_to_cudas_best_form() {
    let run = run("", TIMES, 0);
    // From the GPU there is only one route: no comparison is possible. A submission is no copy, and auto no single route.
    assert!(run.best.iter().all(|b| (b.source.as_str(), b.destination.as_str()) == ("host", "gpu0")));
    assert_eq!(
        run.best.iter().map(|b| b.metric).collect::<Vec<_>>(),
        [Metric::P50, Metric::Mean, Metric::P99, Metric::Max]
    );
    let p50 = of(&run, Metric::P50);
    let ranges: Vec<_> = p50.ranges.iter().map(|r| (r.from, r.to, r.subject.as_str())).collect();
    assert_eq!(ranges, [(64, 4096, "bar1"), (1 << 20, 1 << 20, "ce")]);
    let cudas: Vec<_> = p50.sizes.iter().map(|s| s.cuda.as_ref().unwrap().subject.as_str()).collect();
    assert_eq!(cudas, ["cuda, sync", "cuda, sync", "cuda"]);
    let small = &p50.sizes[0];
    let ratio = small.cuda.as_ref().unwrap().ratio.unwrap();
    assert!((ratio.ratio - 1300.0 / 5000.0).abs() < 0.01 && ratio.rounds == 8, "{ratio:?}");
    assert!(ratio.interval.unwrap().holds(ratio.ratio) && small.least == "bar1" && small.least_ns == small.value_ns);
    assert!(of(&run, Metric::Max).sizes[0].cuda.as_ref().unwrap().ratio.unwrap().interval.is_none());
}

#[test]
fn a_run_without_its_samples_compares_medians_alike() {
    let run = run(WITHIN, TIMES, 0);
    let alone = Run { best: Vec::new(), ..run.clone() }.with_best();
    let p50 = |run: &Run| {
        let sizes = run.best.iter().filter(|b| b.metric == Metric::P50).flat_map(|b| b.sizes.clone());
        // A median of medians is not quite that of all samples.
        let near = |ratio: f64| (50.0 * ratio).round();
        let against = |s: run_folder::run::BestAt| {
            (s.bytes, s.subject, s.value_ns, s.cuda.and_then(|c| Some(near(c.ratio?.ratio))))
        };
        sizes.map(against).collect::<Vec<_>>()
    };
    assert_eq!(p50(&alone), p50(&run));
    let ranges = |run: &Run| run.best.iter().map(|b| b.ranges.clone()).collect::<Vec<_>>();
    assert_eq!(ranges(&alone), ranges(&run));
    // Judged by asserts that its experiment did not have.
    let asserts = run.experiment.asserts.clone();
    let judged = Run { asserts: Vec::new(), ..alone }.judged_by(&asserts);
    let cells = |run: &Run| run.asserts.iter().flat_map(|a| a.cells.clone()).collect::<Vec<_>>();
    for (judged, by_samples) in cells(&judged).into_iter().zip(cells(&run)) {
        assert_eq!((judged.value, judged.bound), (by_samples.value, by_samples.bound));
        // Eight medians may say less than all samples, and never something else.
        assert!([by_samples.verdict, Verdict::NotJudged].contains(&judged.verdict), "{judged:?} {by_samples:?}");
    }
}

const WITHIN: &str = r#"
[[assert]]
subject = "auto"
within-best = "5%, 100ns"
[[assert]]
subject = "auto"
within-best = "2%"
among = ["cuda", "cuda, sync"]
[[assert]]
subject = "back"
within-best = "5%"
"#;

#[test]
fn a_route_is_held_against_the_best_one_at_each_size() {
    let run = run(WITHIN, TIMES, 0);
    let [best, cuda, back] = &run.asserts[..] else { panic!("{:?}", run.asserts) };
    use Verdict::{Broken, Held, NotJudged};
    let verdicts = |cells: &[JudgedCell]| cells.iter().map(|c| c.verdict).collect::<Vec<_>>();
    // 1,480 ns compared with 1,400: 5 % is less, 100 ns is more. 25,600 compared with 24,000: 6.7 %.
    assert_eq!(verdicts(&best.cells), [Held, Held, Broken]);
    let against: Vec<_> = best.cells.iter().map(|c| c.against.as_ref().unwrap().subject.as_str()).collect();
    assert_eq!(against, ["bar1", "bar1", "ce"]);
    assert!((best.cells[1].bound.unwrap() - 1503.0).abs() < 10.0, "{:?}", best.cells[1]);
    assert!((best.cells[2].against.as_ref().unwrap().ratio.unwrap().ratio - 1.0667).abs() < 0.001);
    assert_eq!(verdicts(&cuda.cells), [Held, Held, Held]);
    assert_eq!(cuda.cells[2].against.as_ref().unwrap().subject, "cuda");
    assert_eq!(verdicts(&back.cells), [NotJudged; 3]);
    assert!(back.cells[0].why.as_ref().unwrap().contains("no other route"), "{:?}", back.cells[0]);
    assert_eq!((best.verdict, cuda.verdict, run.asserts_held()), (Broken, Held, false));
}

#[test]
fn cells_that_the_rounds_do_not_decide_are_not_judged() {
    // 5.6 % above the best one, in rounds that are up to 5 % to either side: the interval reaches below 5 %.
    let mut times = TIMES;
    times[2][5] = 25_350;
    let run = run(WITHIN, times, 5);
    let large = &run.asserts[0].cells[2];
    let ratio = large.against.as_ref().unwrap().ratio.unwrap();
    assert!(ratio.ratio > 1.05 && ratio.interval.unwrap().low < 1.05, "{ratio:?}");
    assert_eq!(large.verdict, Verdict::NotJudged, "{large:?}");
    assert!(large.why.as_ref().unwrap().contains("the rounds do not say"), "{large:?}");
    // It is no success either.
    assert!(!run.asserts_held());
}
