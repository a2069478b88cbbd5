//! What takes turns under load, and what runs beside one another: on the software GPU and on a stand-in for libcuda, both
//! whole and broken. Nothing of their speed is shown here.

#[path = "../../sample/tests/fake/mod.rs"]
#[allow(dead_code)]
mod fake;

use copy::Machine;
use cuda::Cuda;
use doorbell_softgpu::{Mode, Planted, SoftDriver};
use lab::beside::{self, End, Job, Trouble};
use lab::clock::Clock;
use lab::interference::{self, Ended, Load};
use lab::launch;
use lab::worst::{self, Cause, Contender, Kind, Missing, Phase, Plan};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

/// The stand-in for libcuda is one for the process.
static ONE: Mutex<()> = Mutex::new(());

fn one() -> MutexGuard<'static, ()> {
    ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn soft(driver: SoftDriver) -> Machine {
    Machine::of_driver(Arc::new(driver), false).unwrap()
}

fn stand_in() -> Machine {
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap()
}

fn plan(milliseconds: u64) -> Plan {
    Plan {
        duration: Duration::from_millis(milliseconds),
        turn: Duration::from_millis(1),
        most: 20,
        seed: 5,
        timeout: Duration::from_millis(700),
    }
}

fn contender<'m>(machine: &'m Machine, name: &str, bytes: u64) -> Contender<'m> {
    let route = match name {
        launch::NAME => launch::open(machine),
        name => copy::open(machine, name, bytes),
    };
    let kind = if name.contains("cuda") || name == launch::NAME { Kind::Cuda } else { Kind::Own };
    Contender {
        name: name.into(),
        about: String::new(),
        kind,
        bytes,
        rests: false,
        route: route.map_err(Missing::from),
    }
}

fn load(route: &str, threads: usize) -> Load {
    Load {
        route: route.into(),
        threads,
        bytes: 3000,
        cpus: Vec::new(),
        nice: 0,
        seed: 9,
        timeout: Duration::from_secs(5),
    }
}

/// A phase under load.
fn loaded(machine: &Machine, names: &[(&str, u64)], load: &Load) -> (Phase, Ended, u64) {
    let clock = Clock::new();
    let mut contenders: Vec<_> = names.iter().map(|(name, bytes)| contender(machine, name, *bytes)).collect();
    worst::verified(&mut contenders, 1, plan(1).timeout);
    let gpu_clock = machine.space().ok().map(|space| space.device().clock());
    let correlate = gpu_clock.map(|clock| move || clock.correlate());
    let correlate = correlate.as_ref().map(|c| c as &dyn Fn() -> gpu::Correlation);
    let ((phase, transfers), ended) = interference::under(machine, load, |running| {
        let mark = running.mark();
        let phase = worst::run(&plan(300), &mut contenders, &clock, correlate, |_| {});
        (phase, running.since(&mark).transfers)
    });
    (phase, ended, transfers)
}

#[test]
fn parts_of_our_own_transfers_add_up_under_a_load_that_is_counted() {
    let _one = one();
    let machine = soft(SoftDriver::new(Mode::Strict));
    let names = [
        ("host->ce2->gpu0", 8),
        ("gpu0->ce3->host", 4096),
        ("host->inline[release=engine]->gpu0", 8),
        ("host->inline->gpu0", 8),
        ("host->bar1->gpu0", 8),
    ];
    let (phase, ended, transfers) = loaded(&machine, &names, &load("host->ce0->gpu0", 2));
    assert!(transfers > 0 && ended.failed.is_empty(), "{ended:?}");
    assert_eq!((ended.threads, ended.right), (2, 2));
    assert!(ended.least > 0 && ended.least <= ended.most);
    assert_eq!(phase.rows.len(), names.len());
    let with_tsc = lab::clock::tsc_is_invariant();
    for row in &phase.rows {
        assert_eq!(row.missing, None, "{}", row.name);
        let m = row.measured.as_ref().unwrap();
        assert_eq!((m.worst[0].total_ns, m.total.count > 0), (m.total.max, true));
        assert!(m.worst.len() as u64 == m.total.count.min(100));
        assert!(m.worst.windows(2).all(|w| w[0].total_ns >= w[1].total_ns));
        for w in &m.worst {
            assert!(w.split.switches.is_none() && w.split.longest_gap_ns.is_some());
            if row.name.contains("bar1") || row.name.contains("inline->") {
                assert!(w.split.engine_ns.is_none() && w.split.unknown.len() == 1);
            } else if with_tsc {
                let (engine, seen) = (w.split.engine_ns.unwrap(), w.split.seen_ns.unwrap());
                let sum = w.submit_ns as i64 + engine + seen;
                assert!((sum - w.total_ns as i64).abs() <= 3, "{}: {w:?}", row.name);
                // The engine's time lies within the sample, as far as the clocks' comparison is right.
                let error = w.split.clock_error_ns.unwrap() as i64 + 1000;
                assert!(seen >= -error && engine + w.submit_ns as i64 >= -error, "{}: {w:?}", row.name);
            }
        }
    }
}

#[test]
fn cudas_calls_are_split_by_what_the_kernel_counts() {
    let _one = one();
    let machine = stand_in();
    let names = [("host->cuda->gpu0", 8), ("host->cuda->gpu0", 4096), ("launch", 4)];
    let (phase, ended, transfers) = loaded(&machine, &names, &load("host->cuda->gpu0", 2));
    assert!(transfers > 0 && ended.right == 2, "{ended:?}");
    for row in &phase.rows {
        assert_eq!(row.missing, None, "{}", row.name);
        for w in &row.measured.as_ref().unwrap().worst {
            let (slept, _) = w.split.switches.unwrap();
            assert!(w.split.on_cpu_ns.is_some() && w.split.engine_ns.is_none() && !w.split.unknown.is_empty());
            assert!(slept > 0 || w.split.asleep_ns == Some(0), "{w:?}");
            assert!(!matches!(w.split.cause(w.submit_ns, w.total_ns), Cause::Engine | Cause::Submission));
        }
    }
}

#[test]
fn a_load_of_nothing_and_one_that_cannot_be() {
    let _one = one();
    let machine = soft(SoftDriver::new(Mode::Strict));
    let (measured, ended) = interference::under(&machine, &load("host->ce0->gpu0", 0), |running| {
        let mark = running.mark();
        running.since(&mark).transfers
    });
    assert_eq!((measured, ended), (0, Ended::default()));
    let (_, ended) = interference::under(&machine, &load("host->cuda->gpu0", 3), |_| ());
    assert_eq!(ended.threads, 0);
    assert!(matches!(ended.failed.as_slice(), [(reason, 3)] if reason.contains("no CUDA")), "{ended:?}");
}

#[test]
fn several_loads_are_counted_each_for_itself() {
    let _one = one();
    let machine = stand_in();
    let launches = Load { bytes: launch::BYTES, ..load(launch::NAME, 1) };
    let (transfers, ended) =
        interference::under_all(&machine, &[launches, load("host->cuda->gpu0", 2)], &|_| {}, |all| {
            let marks: Vec<_> = all.iter().map(|running| running.mark()).collect();
            std::thread::sleep(Duration::from_millis(150));
            all.iter().zip(&marks).map(|(running, mark)| running.since(mark).transfers).collect::<Vec<_>>()
        });
    assert!(transfers.len() == 2 && transfers.iter().all(|n| *n > 0), "{transfers:?}");
    assert_eq!(ended.iter().map(|e| (e.threads, e.right, e.failed.len())).collect::<Vec<_>>(), [(1, 1, 0), (2, 2, 0)]);
}

#[test]
fn broken_transfers_are_no_samples() {
    let _one = one();
    let reason = |fault, names: &[(&str, u64)]| {
        let machine = soft(SoftDriver::broken(Mode::Strict, fault));
        let (phase, ended, _) = loaded(&machine, names, &load("host->ce0->gpu0", 1));
        let missing = phase.rows[0].missing.clone();
        (missing, ended.failed)
    };
    let (missing, failed) = reason(Planted::ShortCopy, &[("host->ce2->gpu0", 8)]);
    assert!(matches!(&missing, Some(Missing::Failed(r)) if r.contains("offset 7")), "{missing:?}");
    assert!(failed[0].0.contains("wrong data: 1 of 3000 bytes differs"), "{failed:?}");
    let (missing, _) = reason(Planted::DeadChannel { entry: 60, xid: 31 }, &[("host->ce2->gpu0", 8)]);
    assert!(matches!(&missing, Some(Missing::Failed(r)) if r.contains("error 31")), "{missing:?}");
    // A machine whose load would never come to an end is not asked for one.
    let machine = soft(SoftDriver::broken(Mode::Strict, Planted::LostRelease { from: 2 }));
    let mut contenders = vec![contender(&machine, "host->ce2->gpu0", 8)];
    worst::verified(&mut contenders, 1, Duration::from_millis(100));
    let missing = contenders[0].route.as_ref().err();
    assert!(matches!(missing, Some(Missing::Failed(r)) if r.contains("not there within")), "{missing:?}");
}

fn beside_plan(milliseconds: u64) -> beside::Plan {
    beside::Plan {
        duration: Duration::from_millis(milliseconds),
        patience: Duration::from_secs(5),
        capacity: 9000,
        seed: 2,
    }
}

fn named(machine: &Arc<Machine>, plan: &beside::Plan, names: &[&str]) -> Vec<Job> {
    beside::jobs(machine, plan).into_iter().filter(|job| names.iter().any(|name| job.name.starts_with(name))).collect()
}

fn end_of<'o>(outcome: &'o beside::Outcome, name: &str) -> &'o End {
    &outcome.accounts.iter().find(|a| a.name.starts_with(name)).unwrap_or_else(|| panic!("{name}: {outcome:?}")).end
}

#[test]
fn every_kind_of_channel_runs_beside_the_others() {
    let _one = one();
    let driver = SoftDriver::new(Mode::Strict);
    let machine = Arc::new(soft(driver));
    let plan = beside_plan(700);
    let outcome = beside::run(beside::jobs(&machine, &plan), &plan, |_| {}, || {});
    assert_eq!(outcome.wrong(), 0, "{outcome:?}");
    for name in ["ce0 (graphics)", "ce2 (asynchronous)", "inline", "bar1", "aperture", "channels made and gone"] {
        let account = outcome.accounts.iter().find(|a| a.name == name).unwrap();
        assert!(account.end == End::Done && account.rounds > 0 && account.bytes > 0, "{account:?}");
    }
    for name in ["cuda kernels", "inline in CUDA's group", "memory freed in flight"] {
        assert!(matches!(end_of(&outcome, name), End::Trouble(Trouble::Unavailable(_))), "{name}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
    assert!(Arc::into_inner(machine).is_some(), "a worker still holds the machine");
}

#[test]
fn planted_faults_are_seen_by_those_they_strike_and_by_no_other() {
    let _one = one();
    let run = |fault, names: &[&str], patience| {
        let machine = Arc::new(soft(SoftDriver::broken(Mode::Strict, fault)));
        let plan = beside::Plan { patience, ..beside_plan(2_000) };
        let jobs = named(&machine, &plan, names);
        let outcome = beside::run(jobs, &plan, |_| {}, || {});
        // Memory goes only when what is in flight has ended: who gives it back waits with those whose work is lost.
        if !outcome.hangs() {
            assert_eq!(end_of(&outcome, "bar1"), &End::Done, "{fault:?}: {outcome:?}");
        }
        outcome
    };
    let (patient, all) = (Duration::from_secs(10), ["ce1", "inline", "bar1"]);
    let faults = [Planted::ShortCopy, Planted::LongCopy, Planted::DeadChannel { entry: 30, xid: 13 }];
    // Each has a GPU of its own.
    let [short, long, dead] = std::thread::scope(|scope| {
        faults.map(|fault| scope.spawn(move || run(fault, &all, patient))).map(|run| run.join().unwrap())
    });
    assert!(matches!(end_of(&short, "ce1"), End::Trouble(Trouble::Data(d)) if d.contains("differs")), "{short:?}");
    assert!(matches!(end_of(&long, "ce1"), End::Trouble(Trouble::Data(_))), "{long:?}");
    for name in ["ce1", "inline"] {
        assert!(matches!(end_of(&dead, name), End::Trouble(Trouble::Error(e)) if e.contains("error 13")), "{dead:?}");
    }
    // Its channels have answered by then.
    let lost = run(Planted::LostRelease { from: 30 }, &["ce1", "bar1"], Duration::from_millis(600));
    assert!(lost.hangs() && end_of(&lost, "ce1") == &End::Hangs, "{lost:?}");
}

#[test]
fn cudas_work_is_compared() {
    let _one = one();
    let machine = Arc::new(stand_in());
    let plan = beside_plan(500);
    let kinds = ["cuda kernels 1", "cuda memsets 1", "cuda copies 1", "cuda graphs 1"];
    let outcome = beside::run(named(&machine, &plan, &kinds), &plan, |_| {}, || {});
    assert_eq!(outcome.accounts.len(), 4);
    assert!(outcome.accounts.iter().all(|a| a.end == End::Done && a.rounds > 0), "{outcome:?}");

    for (name, fault) in [("cuda kernels 1", &fake::LOSE_LAUNCH), ("cuda graphs 1", &fake::LOSE_LAUNCH)] {
        fault.store(40, Ordering::SeqCst);
        let outcome = beside::run(named(&machine, &plan, &[name]), &beside_plan(20_000), |_| {}, || {});
        let end = end_of(&outcome, name);
        assert!(matches!(end, End::Trouble(Trouble::Data(d)) if d.contains("differ")), "{name}: {end:?}");
    }
    fake::SPOIL_COPY.store(40, Ordering::SeqCst);
    let outcome = beside::run(named(&machine, &plan, &["cuda copies 1"]), &beside_plan(20_000), |_| {}, || {});
    let end = end_of(&outcome, "cuda copies 1");
    assert!(matches!(end, End::Trouble(Trouble::Data(d)) if d.contains("1 of ")), "{end:?}");
    drop(machine);
    assert_eq!(fake::alive(), [""; 0]);
}
