//! A stage on the software GPU: cells take turns while loads run; a missing or failed subject becomes a result.

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use experiment::{
    Addresses, Arrival, Cell, Class, Cpus, Data, Gpu, LoadSpec, MustReach, Observe, Process, Record, Run, Stage,
    SubjectSpec, Verify, What,
};
use measure::clock::Clock;
use measure::stage::{self, Finished, Lab, Next};
use run_folder::part::EndedBy;
use run_folder::part::Metered;
use run_folder::soak::measuring::Ending;
use run_folder::{Part, Status};

fn subject(what: &str) -> SubjectSpec {
    SubjectSpec {
        name: what.into(),
        what: What::Route(what.into()),
        sizes: Vec::new(),
        back_to_back: 1,
        addresses: Addresses::Fixed,
        data: Data::Fresh,
        arrival: Arrival::default(),
        observe: Observe::Done,
        class: None,
        cpus: None,
        deadline_ns: None,
        rests: true,
        baseline: None,
        beside: Vec::new(),
    }
}

fn cell(what: &str, bytes: u64) -> Cell {
    Cell { subject: subject(what), bytes }
}

fn stage(cells: Vec<Cell>, loads: Vec<LoadSpec>) -> Stage {
    let run = Run {
        seed: 7,
        rounds: 4,
        repeats: 1,
        samples: Some(40),
        duration_ns: None,
        timeout_ns: 10_000_000_000,
        noise_ns: 5_000_000,
        counters_every: 4,
        meter_ns: 0,
        patience_ns: None,
        class: Class::Other,
        cpus: Cpus::Last,
        policy: "stock".into(),
        gpu: Gpu::Soft,
        device: experiment::Device::Engine,
        record: Record::No,
    };
    Stage { number: 3, point: Vec::new(), run, verify: Verify { every: 4 }, cells, loads }
}

fn load(what: &str, count: u32, cpus: Cpus) -> LoadSpec {
    LoadSpec {
        name: what.into(),
        what: What::Route(what.into()),
        bytes: 4096,
        count,
        rate: None,
        cpus,
        class: Class::Other,
        check_every: 2,
        must_reach: None,
        process: Process::Shared,
    }
}

fn run(stage: &Stage) -> Finished {
    let machine = workload::Machine::of_driver(std::sync::Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap();
    stage::run(&Lab { machine: &machine, clock: &Clock::new(), tell: &|_| {} }, stage, 2)
}

/// Runs a stage with a duration until enough has happened in it; a busy machine needs longer. `last` sets its duration, ns. The last run is
/// `enough`, or took longest.
fn run_until(stage: &mut Stage, last: impl Fn(&mut Run, u64), enough: impl Fn(&Finished) -> bool) -> Finished {
    let mut times = [100, 300, 1_000, 3_000, 10_000].into_iter();
    let mut longer = || {
        last(&mut stage.run, times.next()? * 1_000_000);
        Some(run(stage))
    };
    let mut finished = longer().unwrap();
    while !enough(&finished) {
        match longer() {
            Some(one) => finished = one,
            None => break,
        }
    }
    finished
}

#[test]
fn cells_take_turns_and_every_transfer_is_a_sample() {
    let cells = vec![cell("host->ce0->gpu0", 8), cell("gpu0->ce1->host", 4096), cell("host->inline->gpu0", 64)];
    let Finished { part, samples } = run(&stage(cells, Vec::new()));
    assert_eq!((part.stage, part.repeat, part.noise.len()), (3, 2, 2));
    for (cell, samples) in part.cells.iter().zip(&samples) {
        assert_eq!((&cell.status, cell.samples, samples.len()), (&Status::Measured, 40, 40), "{cell:?}");
        assert!(cell.compared.whole >= 8 && cell.compared.guards && !cell.about.is_empty(), "{cell:?}");
        let rounds: Vec<u32> = samples.iter().map(|s| s.round).collect();
        assert_eq!(rounds, (0..40).map(|n| n / 10).collect::<Vec<_>>());
        assert!(samples.iter().all(|s| s.call_ns <= s.submitted_ns && s.submitted_ns <= s.done_ns));
        assert!(samples.windows(2).all(|two| two[0].done_ns <= two[1].call_ns));
        // The slowest of the rounds without counters, and those with them.
        assert_eq!((cell.worst.len(), cell.counted.map(|tally| tally.calls)), (40, Some(10)));
        let slowest = samples.iter().filter(|s| s.round != 3).map(|s| s.done()).max().unwrap();
        assert_eq!(samples[cell.worst[0].index as usize].done(), slowest);
        let turns: Vec<_> = cell.turns.iter().map(|t| (t.round, t.ended, t.rested_ns)).collect();
        assert_eq!(turns, [0, 1, 2, 3].map(|round| (round, EndedBy::Samples, 0)));
        assert!(cell.turns.iter().all(|turn| turn.ns > 0));
    }
}

#[test]
#[ignore = "2 s; run by .ci/run"]
fn a_turn_in_which_the_loads_rested_keeps_for_how_long() {
    let text = r#"
[run]
gpu = "soft"
rounds = 3
duration = "1s"
noise = "0s"
timeout = "20s"
[[subject]]
call = "lock(mutex)"
[[subject]]
call = "lock(mutex,name=free)"
[[load]]
call = "lock(mutex,hold=1500ms)"
"#;
    let stages = experiment::read_stored(text, "x.toml").unwrap().stages().unwrap();
    let Finished { part, samples } = run(&stages[0]);
    let (stuck, free) = (&part.cells[0], &part.cells[1]);
    let capped = |n: usize| samples[n].iter().filter(|s| s.capped).count();
    assert_eq!((capped(0), capped(1)), (1, 0));
    assert_eq!(stuck.turns.last().map(|turn| turn.ended), Some(EndedBy::Capped));
    // It rested from the first second on until the lock was free.
    let last = *stuck.turns.last().unwrap();
    assert!(last.rested_ns > 0 && last.rested_ns < last.ns - 900_000_000, "{:?}", stuck.turns);
    assert!(free.turns.len() == 3 && free.turns.iter().all(|turn| turn.rested_ns == 0), "{:?}", free.turns);
    assert_eq!(stuck.stuck_between, None);
}

#[test]
fn a_missing_or_wrong_subject_is_a_result_and_the_others_continue() {
    let cells = vec![
        cell("host->ce0->gpu0", 8),
        cell("host->cuda->gpu0", 8),
        cell("host->warp->gpu0", 8),
        cell("host->ce99->gpu0", 8),
        cell("host->ce0->gpu0", 0),
    ];
    let Finished { part, samples } = run(&stage(cells, Vec::new()));
    let status = |n: usize| &part.cells[n].status;
    assert_eq!(status(0), &Status::Measured);
    assert!(matches!(status(1), Status::Unavailable(why) if why.contains("no CUDA")), "{:?}", status(1));
    assert!(matches!(status(2), Status::Failed(why) if why.contains("warp")), "{:?}", status(2));
    assert!(matches!(status(3), Status::Unavailable(_)), "{:?}", status(3));
    assert!(matches!(status(4), Status::Unavailable(_) | Status::Failed(_)), "{:?}", status(4));
    assert_eq!(samples.iter().map(Vec::len).collect::<Vec<_>>(), [40, 0, 0, 0, 0]);
}

#[test]
fn loads_run_during_the_measurement_and_report_their_work() {
    let loads = vec![
        load("host->ce1->gpu0", 2, Cpus::Others),
        LoadSpec { rate: Some(100.0), ..load("gpu0->ce0->host", 1, Cpus::Any) },
        LoadSpec { what: What::Call("nothing".into()), ..load("host->ce2->gpu0", 1, Cpus::Any) },
    ];
    let mut stage = stage(vec![cell("host->inline->gpu0", 64)], loads);
    stage.run.samples = None;
    // The paced one catches up after delays, so that a short time may contain more than its rate.
    let paced = |part: &Part| part.loads[1].transfers as f64 / part.loads[1].seconds;
    let enough = |Finished { part, samples }: &Finished| {
        let [copies, _, call] = part.loads.as_slice() else { return false };
        let done = samples[0].len() > 10 && copies.transfers > 10 && copies.checked > 2 && call.transfers > 0;
        done && (5.0..130.0).contains(&paced(part))
    };
    let Finished { part, samples } = run_until(&mut stage, |run, ns| run.duration_ns = Some(ns), enough);
    assert!(samples[0].len() > 10 && part.cells[0].status == Status::Measured, "{part:?}");
    let [copies, slow, call] = part.loads.as_slice() else { panic!("{:?}", part.loads) };
    assert!(copies.transfers > 10 && copies.checked > 2 && copies.failed.is_empty(), "{copies:?}");
    assert!(copies.longest_ns > 0 && copies.threads == 2);
    assert!(call.transfers > 0 && call.bytes == 0, "how much of its bytes a call moves nobody counts: {call:?}");
    assert!(slow.failed.is_empty() && (5.0..130.0).contains(&paced(&part)), "{slow:?}");
}

#[test]
fn a_metered_cell_continues_and_its_samples_stay_unchanged() {
    let cells = vec![cell("host->ce0->gpu0", 8), cell("host->ce99->gpu0", 8)];
    let mut stage = stage(cells, vec![load("host->ce1->gpu0", 1, Cpus::Any)]);
    let enough = |Finished { part, .. }: &Finished| {
        let cell = &part.cells[0];
        let metered = |m: &Metered| m.transfers > 10.max(cell.compared.whole) && m.loads[0].transfers > 0;
        cell.metered.as_ref().is_some_and(metered)
    };
    let Finished { part, samples } = run_until(&mut stage, |run, ns| run.meter_ns = ns, enough);
    assert_eq!((part.cells[0].samples, samples[0].len()), (40, 40));
    let metered = part.cells[0].metered.as_ref().unwrap();
    assert!(metered.transfers > 10 && metered.seconds >= 0.1, "{metered:?}");
    assert!(metered.loads[0].transfers > 0, "{metered:?}");
    let link = metered.link_count.as_ref().unwrap();
    assert_eq!((link.by, link.why.as_deref()), (None, Some("the software GPU has no counters")));
    assert!(metered.counted.iter().any(|(name, ms)| name == "cpu_user_ms" && *ms >= 0.0), "{metered:?}");
    assert!(part.cells[0].compared.whole < metered.transfers && part.cells[1].metered.is_none());
    assert!(part.cells[0].worst.iter().all(|worst| worst.round < 4));
}

#[test]
fn a_missing_load_is_reported_and_the_measurement_continues() {
    let stage = stage(vec![cell("host->ce0->gpu0", 8)], vec![load("host->cuda->gpu0", 3, Cpus::Any)]);
    let Finished { part, samples } = run(&stage);
    assert_eq!(samples[0].len(), 40);
    let load = &part.loads[0];
    assert!(load.unavailable.as_ref().is_some_and(|why| why.contains("no CUDA")), "{load:?}");
    assert_eq!((load.transfers, load.failed.len()), (0, 0));
}

#[test]
fn rates_of_loads_alone_and_together_are_separate() {
    let hog = |name: &str| LoadSpec {
        name: name.into(),
        what: What::Call("hog".into()),
        bytes: 0,
        ..load(name, 1, Cpus::These(vec![environment::placement::affinity().unwrap()[0]]))
    };
    let loads = vec![
        LoadSpec { must_reach: Some(MustReach::Percent(90.0)), ..hog("one") },
        LoadSpec { must_reach: Some(MustReach::Percent(90.0)), rate: Some(50.0), ..hog("at a rate") },
        // Only its first turn, which every load has before the measurement, and none in the following hours.
        LoadSpec { must_reach: Some(MustReach::Times(1.0)), rate: Some(0.0001), ..hog("dead") },
    ];
    let Finished { part, .. } = run(&stage(vec![cell("host->inline->gpu0", 64)], loads));
    let [one, paced, dead] = part.loads.as_slice() else { panic!("{:?}", part.loads) };
    // A millisecond each: never more than this, alone or not.
    assert!(one.alone.is_some_and(|a_second| a_second > 1.0 && a_second <= 1000.0), "{one:?}");
    assert!(paced.alone.is_none() && dead.alone.is_none(), "only what has no rate of its own is looked at alone");
    assert!(dead.transfers == 0 && dead.seconds > 0.0 && dead.failed.is_empty(), "{dead:?}");
    assert!(part.loads.iter().all(|load| load.rested == 0.0), "nothing was stuck behind them");
}

/// A load on the measuring CPU shares it on purpose: it is not moved away with the threads that disturb.
#[test]
fn a_load_with_the_measuring_cpu_shares_it() {
    let hog = LoadSpec { what: What::Call("hog(yield)".into()), bytes: 0, ..load("hog", 1, Cpus::Last) };
    let mut stage = stage(vec![cell("host->bar1->gpu0", 64)], vec![hog]);
    let Finished { part, .. } = run_until(
        &mut stage,
        |run, ns| (run.samples, run.duration_ns) = (None, Some(ns)),
        |finished| finished.part.loads[0].waiting > 0.2,
    );
    let load = &part.loads[0];
    assert!(load.waiting > 0.2, "two threads that never sleep on one CPU: {load:?}");
}

#[test]
fn a_cpu_that_is_not_there_is_an_error_of_every_cell() {
    let mut stage = stage(vec![cell("host->ce0->gpu0", 8)], Vec::new());
    stage.run.cpus = Cpus::These(vec![100_000]);
    let Finished { part, .. } = run(&stage);
    assert!(matches!(&part.cells[0].status, Status::Failed(why) if why.contains("100000")), "{part:?}");
}

#[test]
fn several_under_way_have_channels_of_their_own() {
    let mut cells = vec![cell("host->ce0->gpu0", 4096)];
    cells[0].subject.arrival = Arrival::Closed { depth: 3 };
    let Finished { part, samples } = run(&stage(cells, Vec::new()));
    assert_eq!((&part.cells[0].status, samples[0].len()), (&Status::Measured, 40));
}

/// The status of one cell on a broken GPU, and its number of samples. A transfer is given up after `timeout_ns`.
fn broken(planted: Planted, what: &str, timeout_ns: u64) -> (Status, usize) {
    let driver = SoftDriver::broken(Mode::Strict, planted);
    let machine = workload::Machine::of_driver(std::sync::Arc::new(driver), false).unwrap();
    let mut stage = stage(vec![cell(what, 8)], Vec::new());
    stage.run.timeout_ns = timeout_ns;
    // More than it can take, however few transfers warm up on a busy machine.
    stage.run.samples = Some(400);
    let lab = Lab { machine: &machine, clock: &Clock::new(), tell: &|_| {} };
    let Finished { part, samples } = stage::run(&lab, &stage, 0);
    (part.cells[0].status.clone(), samples[0].len())
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn a_broken_gpu_is_a_failed_cell_with_its_reason() {
    let failed = |planted, timeout_ns| match broken(planted, "host->ce2->gpu0", timeout_ns) {
        (Status::Failed(why), samples) => (why, samples),
        other => panic!("{other:?}"),
    };
    // In parallel, because lost transfers take their whole time limit.
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (why, samples) = failed(Planted::LostRelease { from: 90 }, 300_000_000);
            assert!(why.contains("not there within") && samples < 400, "{samples}: {why}");
        });
        let (why, samples) = failed(Planted::ShortCopy, 10_000_000_000);
        assert!(why.contains("offset 7") && samples == 0, "verified before anything is timed: {why}");
        let (why, _) = failed(Planted::LongCopy, 10_000_000_000);
        assert!(why.contains("past the end"), "{why}");
        let (why, samples) = failed(Planted::DeadChannel { entry: 90, xid: 31 }, 10_000_000_000);
        assert!(why.contains("31") && samples < 400, "{samples}: {why}");
    });
}

#[test]
fn laps_reuse_opened_subjects_and_continue_after_a_wrong_byte() {
    // Each compared transfer comes after at most two that warm up.
    let driver = SoftDriver::broken(Mode::Strict, Planted::TornCopy { from: 300, lines: 3 });
    let machine = workload::Machine::of_driver(std::sync::Arc::new(driver), false).unwrap();
    let mut stage = stage(vec![cell("host->ce0->gpu0", 64), cell("host->inline->gpu0", 64)], Vec::new());
    stage.verify.every = 1;
    let lab = Lab { machine: &machine, clock: &Clock::new(), tell: &|_| {} };
    let (mut wrong, mut laps) = (Vec::new(), 0);
    let end = stage::run_on(&lab, &stage, None, &mut |lap| {
        let part = &lap.part;
        assert_eq!((part.noise.len(), part.cells.len()), (if laps == 0 { 2 } else { 0 }, 2));
        assert!(lap.ago_s >= part.seconds && part.seconds > 0.0);
        match &part.cells[0].status {
            Status::Failed(why) => {
                assert!(why.contains("offset 63") && lap.ended[0] == Some(Ending::Wrong), "{why}");
                wrong.push(laps);
            }
            status => assert_eq!((status, lap.samples[0].len()), (&Status::Measured, 40)),
        }
        assert_eq!((lap.ended[1], lap.samples[1].len()), (None, 40));
        laps += 1;
        if laps < 6 { Next::Again { noise: false } } else { Next::Stop }
    });
    assert!((1..=2).contains(&wrong.len()) && laps == 6, "{wrong:?}");
    assert!(end.samples.iter().all(Vec::is_empty));
}

#[test]
fn the_first_sample_above_a_bound_ends_its_lap() {
    let stage = stage(vec![cell("host->ce0->gpu0", 8), cell("host->inline->gpu0", 8)], Vec::new());
    let machine = workload::Machine::of_driver(std::sync::Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap();
    let lab = Lab { machine: &machine, clock: &Clock::new(), tell: &|_| {} };
    let bound = std::time::Duration::from_nanos(1);
    stage::run_on(&lab, &stage, Some(bound), &mut |lap| {
        let samples: Vec<usize> = lap.samples.iter().map(Vec::len).collect();
        assert_eq!(samples.iter().sum::<usize>(), 1, "{samples:?}");
        assert_eq!(lap.ended.iter().flatten().collect::<Vec<_>>(), [&Ending::Above]);
        Next::Stop
    });
}

#[test]
fn a_subject_may_have_a_seat_of_its_own_and_the_thread_is_afterwards_what_it_was() {
    let before = (environment::placement::affinity().unwrap(), environment::placement::scheduler().unwrap());
    let mut cells = vec![cell("host->ce0->gpu0", 8), cell("host->inline->gpu0", 8)];
    cells[0].subject.class = Some(Class::Nice(3));
    cells[0].subject.cpus = Some(Cpus::These(vec![before.0[0]]));
    let Finished { part, samples } = run(&stage(cells, Vec::new()));
    assert!(part.cells.iter().all(|c| c.status == Status::Measured), "{part:?}");
    assert_eq!(samples.iter().map(Vec::len).collect::<Vec<_>>(), [40, 40]);
    // The stage's placement, not that of the one subject.
    assert_eq!(part.cpu, before.0.last().copied());
    assert_eq!((environment::placement::affinity().unwrap(), environment::placement::scheduler().unwrap()), before);
}

#[test]
fn every_thread_of_a_load_has_worked_before_the_measurement_ends() {
    let loads = vec![load("host->ce1->gpu0", 4, Cpus::Any)];
    let Finished { part, .. } = run(&stage(vec![cell("host->inline->gpu0", 64)], loads));
    // Each compares its last transfer, if it made one.
    assert!(part.loads[0].failed.is_empty() && part.loads[0].checked >= 4, "{:?}", part.loads);
}
