//! Twelve hours of invented laps with a simulated clock: the folder's report, whatever happened in that time.

use run_folder::soak::Folder;
use run_folder::soak::account::{FaultKind, Held, Soak};
use run_folder::soak::clock::Clock;
use run_folder::soak::folder::Asked;
use run_folder::soak::measuring::{Ending, Lap, Measuring, Over, Stop, Then};
use run_folder::soak::planted::Planted;
use run_folder::{Compared, Error, Loaded, Part, PartCell, Sample, Status};
use std::path::Path;

const TEXT: &str = r#"
[run]
gpu = "none"
samples = 20
[[subject]]
call = "lock(mutex)"
name = "lock"
[[subject]]
call = "lock(rwlock-read)"
name = "reader"
[[load]]
call = "lock(mutex)"
name = "crowd"
count = 2
rate = 100
[compare]
baseline = "lock"
"#;

const HOUR: f64 = 3600.0;
/// Two laps make a period.
const LAP_S: f64 = 300.0;

fn asked() -> Asked {
    let started = "2026-11-23T00:00:00Z".into();
    Asked { started, asked_s: 12.0 * HOUR, every_s: 600.0, simulated_lap_s: Some(LAP_S), ..Asked::default() }
}

/// Each period is synced to disk, and a test would only wait for that.
fn folder_in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

fn create(path: &Path) -> Folder {
    let experiment = experiment::read_stored(TEXT, "x.toml").unwrap();
    Folder::create(path, &experiment, asked(), false).unwrap()
}

/// 40 samples of about a microsecond each, of two cells, next to a load that reaches its rate.
fn lap(random: &mut fastrand::Rng) -> Lap {
    let mut samples = |times: f64| -> Vec<Sample> {
        let one = |n: u64| {
            let call_ns = n * 10_000;
            let done_ns = call_ns + (times * (1_000.0 + 50.0 * random.f64())) as u64;
            Sample { release_ns: call_ns, call_ns, submitted_ns: call_ns + 100, done_ns, ..Sample::default() }
        };
        (0..40).map(one).collect()
    };
    let samples = vec![samples(2.0), samples(1.0)];
    let cell = || PartCell {
        about: String::new(),
        status: Status::Measured,
        samples: 40,
        compared: Compared { whole: 40, guards: true },
        worst: Vec::new(),
        counted: None,
        metered: None,
        stuck_between: None,
        turns: Vec::new(),
        commands: None,
    };
    let crowd = Loaded { name: "crowd".into(), threads: 2, transfers: 2_000, seconds: 10.0, ..Loaded::default() };
    let part = Part {
        stage: 0,
        repeat: 0,
        began: String::new(),
        seconds: 10.0,
        cpu: None,
        class: String::new(),
        throttled: 0,
        cells: vec![cell(), cell()],
        loads: vec![crowd],
        noise: Vec::new(),
        clock_error_ns: None,
        counted: vec![("power_w".into(), 90.0), ("energy_mj".into(), 900_000.0)],
        notes: Vec::new(),
        counter: None,
        recorded: None,
    };
    Lap { part, samples, ended: vec![None, None], ago_s: 10.0 }
}

/// What this process holds: memory and descriptors of the test itself.
fn held() -> Held {
    let held = environment::Held::now(environment::Gpu::None);
    Held { rss_bytes: held.rss_bytes.ok(), descriptors: held.descriptors.ok(), threads: Some(1), ..Held::default() }
}

fn steady() -> Held {
    Held { rss_bytes: Some(50 << 20), descriptors: Some(9), threads: Some(1), ..Held::default() }
}

/// Laps of one process, starting at `from_s`, until it reports that it is over; `change` may modify each.
fn measure(
    folder: &Folder,
    process: u32,
    from_s: f64,
    held: &dyn Fn() -> Held,
    mut change: impl FnMut(u64, &mut Lap) -> bool,
) -> Over {
    let told = |stop| if stop { Stop::Told } else { Stop::No };
    measure_until(folder, process, from_s, held, |number, lap| told(change(number, lap)))
}

fn measure_until(
    folder: &Folder,
    process: u32,
    from_s: f64,
    held: &dyn Fn() -> Held,
    mut change: impl FnMut(u64, &mut Lap) -> Stop,
) -> Over {
    let clock = Clock::simulated(1_700_000_000.0 + from_s, LAP_S);
    let mut measuring = Measuring::new(folder, &clock, process, held).unwrap();
    let mut random = fastrand::Rng::with_seed(u64::from(process) + 1);
    for number in 1.. {
        let mut lap = lap(&mut random);
        let stop = change(number, &mut lap);
        if let Then::Over(over) = measuring.lap(&folder.stages()[0], lap, stop).unwrap() {
            return over;
        }
    }
    unreachable!()
}

fn kinds(soak: &Soak) -> Vec<FaultKind> {
    let mut kinds: Vec<FaultKind> = soak.faults.iter().map(|fault| fault.kind).collect();
    kinds.dedup();
    kinds
}

/// Twelve hours in one process, in which something goes wrong.
fn with(held: &dyn Fn() -> Held, change: impl FnMut(u64, &mut Lap) -> bool) -> Soak {
    let dir = folder_in_memory();
    let folder = create(dir.path());
    assert_eq!(measure(&folder, 0, 0.0, held, change), Over::Done);
    folder.soak().unwrap()
}

#[test]
fn twelve_hours_are_72_periods_also_when_they_are_stopped_and_begun_again() {
    let dir = folder_in_memory();
    let folder = create(dir.path());
    // Told to stop in the middle of period 30.
    assert_eq!(measure(&folder, 0, 0.0, &steady, |number, _| number == 61), Over::Stopped);
    let half = folder.soak().unwrap();
    assert_eq!((half.periods.len(), half.complete, half.done_s), (31, false, 61.0 * LAP_S));
    assert!(half.verdict.held && half.verdict.headline.ends_with("of 12 h") && !half.verdict.headline.contains("all"));
    // Twenty minutes later.
    let over = measure(&folder, 1, 61.0 * LAP_S + 1200.0, &steady, |_, _| false);
    assert_eq!(over, Over::Done);
    let soak = folder.soak().unwrap();
    assert!(soak.complete && soak.verdict.held && soak.simulated_clock, "{:?}", soak.faults);
    // The interrupted period is kept, so there is one more.
    assert_eq!((soak.periods.len(), soak.done_s), (73, 12.0 * HOUR));
    assert_eq!(soak.gaps.iter().map(|gap| gap.seconds).collect::<Vec<_>>(), [1200.0]);
    let lock = &soak.cells[0];
    assert_eq!(
        (lock.count, lock.checked, lock.wrong, lock.over.as_ref().unwrap().periods),
        (144 * 40, 144 * 40, 0, 73)
    );
    assert!((1_990.0..2_110.0).contains(&lock.mean_ns.unwrap()) && lock.worst.len() == 20);
    let reader = soak.cells[1].over.as_ref().unwrap().speed_up.as_ref().unwrap();
    assert!(reader.over == "lock" && (1.95..2.05).contains(&reader.times) && reader.interval.is_some());
    assert_eq!((soak.thirds.len(), soak.power.unwrap().mean_w), (3, 90.0));
    assert!(soak.periods.iter().all(|period| period.loads[0].held && period.loads[0].wanted == Some(180.0)));
    folder.write_soak(&soak).unwrap();
    let read = run_folder::soak::folder::read_soak(dir.path()).unwrap();
    assert_eq!((read.verdict, read.faults, read.processes), (soak.verdict, soak.faults, soak.processes));
    assert_eq!((read.cells.len(), read.periods.len(), read.experiment), (2, 73, soak.experiment));
    // The kept data does not grow with samples.
    let size = std::fs::metadata(dir.path().join("periods/0003.json")).unwrap().len();
    assert!(size < 10_000, "{size}");
}

#[test]
fn a_wrong_subject_is_found_by_name_and_the_rest_continues() {
    let soak = with(&steady, |number, lap| {
        Planted::Drift.strike(number, lap);
        Planted::DeadLoad { lap: 101 }.strike(number, lap);
        match number {
            // Slower than its requested rate, and one with an ended thread.
            3 | 4 => lap.part.loads[0].transfers = 1_000,
            6 => lap.part.loads[0].failed = vec![("wrong data".into(), 1)],
            80 => {
                lap.ended[1] = Some(Ending::Wrong);
                lap.part.cells[1].status = Status::Failed("sample 39: a wrong byte at offset 63".into());
            }
            _ => {}
        }
        false
    });
    let of = |kind| soak.faults.iter().filter(move |fault| fault.kind == kind);
    let wrong: Vec<_> = of(FaultKind::Corrupted).collect();
    assert_eq!(
        (wrong.len(), wrong[0].period, wrong[0].cell.as_ref().unwrap().subject.as_str()),
        (1, Some(39), "reader")
    );
    assert!(wrong[0].what.contains("offset 63") && !soak.verdict.held && soak.complete);
    assert_eq!((soak.cells[1].wrong, soak.cells[1].count), (1, 144 * 40));
    let dead: Vec<_> = of(FaultKind::DeadLoad).collect();
    let periods: Vec<u32> = dead.iter().filter_map(|fault| fault.period).collect();
    assert_eq!(periods, [1, 2].into_iter().chain(50..72).collect::<Vec<_>>());
    assert!(dead[0].what.contains("100.0 of 180.0 a second") && dead[1].what.contains("wrong data"), "{dead:?}");
    assert!(dead[2].what.contains("crowd") && dead[2].what.contains("it did nothing"));
    assert!(of(FaultKind::Drift).any(|fault| fault.what.starts_with("mean: 1.")), "{:?}", soak.drift);
    assert_eq!(of(FaultKind::Leak).count(), 0);
}

#[test]
fn leaks_are_found_by_name() {
    let soak = with(&held, |number, lap| {
        [Planted::LeakDescriptor, Planted::LeakMemory].iter().for_each(|planted| planted.strike(number, lap));
        false
    });
    let leaking: Vec<&str> = soak.leaks.iter().filter(|l| l.leaking).map(|l| l.what.as_str()).collect();
    assert_eq!((leaking, kinds(&soak)), (vec!["rss_bytes", "descriptors"], vec![FaultKind::Leak]), "{:?}", soak.leaks);
    assert!(soak.faults[0].what.contains("rss_bytes") && soak.faults[0].what.contains("an hour"));
}

#[test]
fn a_lost_or_failed_transfer_ends_the_process_and_its_samples_are_kept() {
    let dir = folder_in_memory();
    let folder = create(dir.path());
    let lose = |number: u64, lap: &mut Lap| {
        if number == 4 {
            lap.ended[0] = Some(Ending::Lost);
            lap.part.cells[0].status = Status::Failed("64 B were not there within 1 s".into());
        }
        false
    };
    assert!(matches!(measure(&folder, 0, 0.0, &steady, lose), Over::Renew(why) if why.contains("not there")));
    let soak = folder.soak().unwrap();
    assert_eq!((kinds(&soak), soak.periods.len(), soak.cells[0].lost), (vec![FaultKind::Lost], 2, 1));
    assert_eq!((soak.cells[0].count, soak.done_s), (4 * 40, 4.0 * LAP_S));
    // Nothing can be measured here, or nothing continues.
    let none = |why: Status| {
        move |_: u64, lap: &mut Lap| {
            lap.samples.iter_mut().for_each(Vec::clear);
            lap.part.cells.iter_mut().for_each(|cell| cell.status = why.clone());
            false
        }
    };
    let unavailable = none(Status::Unavailable("no CUDA".into()));
    assert_eq!(measure(&folder, 1, 0.0, &steady, unavailable), Over::Impossible("no CUDA".into()));
    let failed = none(Status::Failed("closed".into()));
    assert_eq!(measure(&folder, 1, 0.0, &steady, failed), Over::Renew("closed".into()));
    assert_eq!(folder.periods().unwrap().len(), 2, "what measured nothing leaves no period");
}

#[test]
fn a_sample_above_the_bound_shows_where_its_time_went() {
    let dir = folder_in_memory();
    let experiment = experiment::read_stored(TEXT, "x.toml").unwrap();
    let bounded = Asked { stop_above_ns: Some(50_000), ..asked() };
    let folder = Folder::create(dir.path(), &experiment, bounded, false).unwrap();
    let slow = |number: u64, lap: &mut Lap| {
        if number == 3 {
            lap.ended[1] = Some(Ending::Above);
            let last = lap.samples[1].last_mut().unwrap();
            last.submitted_ns = last.call_ns + 80_000;
            last.done_ns = last.call_ns + 82_000;
        }
        false
    };
    let over = measure(&folder, 0, 0.0, &steady, slow);
    assert!(
        matches!(&over, Over::Above(why) if why.contains("82.0 us above 50.0 us: 80.0 us in the call")),
        "{over:?}"
    );
    let soak = folder.soak().unwrap();
    assert_eq!((kinds(&soak), soak.complete), (vec![FaultKind::Above], false));
    assert!(soak.faults[0].at.is_some() && soak.cells[1].worst[0].total_ns == 82_000);
}

#[test]
fn a_renewed_process_closes_its_period_and_the_next_one_continues() {
    let dir = folder_in_memory();
    let folder = create(dir.path());
    let renew = |number: u64, _: &mut Lap| if number == 3 { Stop::Renew("full".into()) } else { Stop::No };
    assert_eq!(measure_until(&folder, 0, 0.0, &steady, renew), Over::Renew("full".into()));
    let soak = folder.soak().unwrap();
    assert_eq!((soak.periods.len(), soak.done_s, soak.complete), (2, 3.0 * LAP_S, false));
    assert_eq!(measure(&folder, 1, soak.done_s, &steady, |number, _| number == 2), Over::Stopped);
    let soak = folder.soak().unwrap();
    assert_eq!((soak.done_s, soak.faults.len()), (5.0 * LAP_S, 0));
    assert_eq!(soak.periods.iter().map(|period| period.process).collect::<Vec<_>>(), [0, 0, 1]);
}

#[test]
fn a_folder_is_written_by_one_and_never_replaced_by_accident() {
    let dir = folder_in_memory();
    let path = dir.path().join("soak");
    let folder = create(&path);
    let experiment = folder.experiment().clone();
    assert!(matches!(Folder::create(&path, &experiment, asked(), false), Err(Error::Busy { .. })));
    assert!(matches!(Folder::create(&path, &experiment, asked(), true), Err(Error::Busy { .. })));
    measure(&folder, 0, 0.0, &steady, |number, _| number == 5);
    drop(folder);
    assert!(matches!(Folder::create(&path, &experiment, asked(), false), Err(Error::Exists(_))));
    Folder::resume(&path).unwrap().give_up().unwrap();
    assert!(Folder::is_measured(&path), "what was measured stays");
    // What a killed soak was writing.
    let resumed = Folder::resume(&path).unwrap();
    assert_eq!((resumed.periods().unwrap().len(), resumed.experiment()), (3, &experiment));
    drop(resumed);
    std::fs::remove_file(path.join("periods/0001.json")).unwrap();
    let e = Folder::open(&path).unwrap().periods().unwrap_err();
    assert!(e.to_string().contains("0001.json"), "{e}");
    std::fs::write(path.join("periods/0001.json"), "{\"schema\": \"doorbell.soak-period/9\"}").unwrap();
    assert!(Folder::open(&path).unwrap().periods().is_err());
    std::fs::write(dir.path().join("mine"), "").unwrap();
    assert!(matches!(Folder::create(dir.path(), &experiment, asked(), true), Err(Error::NotOurs(_))));
    Folder::create(&path, &experiment, asked(), true).unwrap();
    assert!(Folder::open(&path).unwrap().periods().unwrap().is_empty());
}

/// A disk on which no file may be longer than a few bytes.
#[test]
fn a_period_that_cannot_be_written_is_an_error_and_the_finished_ones_stay() {
    let dir = folder_in_memory();
    let folder = create(dir.path());
    measure(&folder, 0, 0.0, &steady, |number, _| number == 4);
    let before = folder.periods().unwrap();
    let periods = dir.path().join("periods");
    let aside = dir.path().join("aside");
    std::fs::rename(&periods, &aside).unwrap();
    let clock = Clock::simulated(0.0, LAP_S);
    let mut measuring = Measuring::new(&folder, &clock, 1, &steady).unwrap();
    let mut random = fastrand::Rng::with_seed(1);
    let e = (0..2).find_map(|_| measuring.lap(&folder.stages()[0], lap(&mut random), Stop::No).err()).unwrap();
    assert!(e.to_string().contains("periods/") && !e.hint().is_empty(), "{e}");
    std::fs::rename(&aside, &periods).unwrap();
    assert_eq!(folder.periods().unwrap(), before);
}

#[test]
fn a_soak_that_measured_nothing_leaves_nothing() {
    let dir = folder_in_memory();
    let path = dir.path().join("soak");
    create(&path).give_up().unwrap();
    assert!(!path.exists());
    // Killed before its first period.
    drop(create(&path));
    drop(create(&path));
    // A folder that was there stays.
    std::fs::remove_dir_all(&path).unwrap();
    std::fs::create_dir(&path).unwrap();
    create(&path).give_up().unwrap();
    assert!(path.read_dir().unwrap().next().is_none());
}
