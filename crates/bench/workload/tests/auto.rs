//! Route `auto`: for each size the executor that the profile names, on the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use submit::route_choice::{Direction, Facts, Key, Metric, Places, Plan, Profile, Range};
use workload::routes::{names, open};
use workload::{Error, Inspect, Machine, Unavailable, verify};

const TIMEOUT: Duration = Duration::from_secs(10);

/// Ranges by their last sizes.
fn plan(direction: Direction, memory: &str, metric: Metric, ranges: &[(Option<u64>, &str)]) -> Plan {
    let mut from = 1;
    let range = |(to, route): &(Option<u64>, &str)| {
        let range = Range { from, to: *to, route: (*route).into(), by: metric };
        from = to.map_or(0, |to| to + 1);
        range
    };
    let (memory, load) = (memory.into(), Key::IDLE.into());
    let key = Key { direction, memory, places: Places::Same, batch: 1, metric, load };
    Plan { key, ranges: ranges.iter().map(range).collect(), points: Vec::new(), undecided: Vec::new() }
}

fn profile() -> Profile {
    let to = [(Some(100), "host->bar1[flush]->gpu0"), (Some(5000), "host->inline->gpu0"), (None, "host->ce2->gpu0")];
    let from = [(Some(64), "gpu0->bar1->host"), (None, "gpu0->ce3->host")];
    let pageable = [(None, "host[pageable]->bar1[flush]->gpu0")];
    let plans = vec![
        plan(Direction::ToGpu, "pinned", Metric::P50, &to),
        plan(Direction::FromGpu, "pinned", Metric::P50, &from),
        plan(Direction::ToGpu, "pageable", Metric::P50, &pageable),
        plan(Direction::ToGpu, "pinned", Metric::Max, &[(None, "host->ce1->gpu0")]),
    ];
    Profile { functional: true, taken: "now".into(), facts: Facts::default(), plans }
}

fn soft(profile: Profile) -> (SoftDriver, Machine, Arc<AtomicU32>) {
    let driver = SoftDriver::new(Mode::Strict);
    let asked = Arc::new(AtomicU32::new(0));
    let (count, profile) = (Arc::clone(&asked), Arc::new(profile));
    let find = move || {
        count.fetch_add(1, Ordering::Relaxed);
        Ok(Arc::clone(&profile))
    };
    let machine = Machine::of_driver(Arc::new(driver), false).unwrap().with_profile(find);
    (driver, machine, asked)
}

fn reason<T>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Unavailable(unavailable)) => unavailable.reason,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it is there"),
    }
}

#[test]
fn data_are_right_on_both_sides_of_each_border_and_the_named_executor_moves_them() {
    let (driver, machine, asked) = soft(profile());
    let copies = || driver.counters().copies.load(Ordering::Relaxed);
    for (name, last_without_engine) in [("host->auto->gpu0", 5000), ("gpu0->auto->host", 64)] {
        let mut route = open(&machine, name, 64 << 10).unwrap();
        for bytes in [1, 8, 63, 64, 65, 100, 101, 4096, 5000, 5001, 20_000, 64 << 10, 3] {
            let before = copies();
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
            assert_eq!(copies() > before, bytes > last_without_engine, "{name}, {bytes} bytes");
        }
    }
    // The profile was loaded once, by the first route.
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn another_metric_and_other_memory_have_plans_of_their_own() {
    let (driver, machine, _) = soft(profile());
    let copies = || driver.counters().copies.load(Ordering::Relaxed);
    let moved = |name: &str| {
        let before = copies();
        let mut route = open(&machine, name, 4096).unwrap();
        assert_eq!(verify(&mut route, 8, 1, TIMEOUT).unwrap(), None, "{name}");
        copies() > before
    };
    assert!(moved("host->auto[for=max]->gpu0") && !moved("host->auto[for=p99.9]->gpu0"));
    assert!(!moved("host[pageable]->auto->gpu0"));
    assert!(!moved("host[offset=1]->auto->gpu0[offset=4095]"));
}

#[test]
fn a_transfer_goes_where_its_executor_can() {
    let (_, machine, _) = soft(profile());
    let mut route = open(&machine, "host->auto->gpu0", 64 << 10).unwrap();
    let mut transfer = route.prepare(8192).unwrap();
    transfer.move_to(4096, 8192).unwrap();
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
}

#[test]
fn a_transfer_that_changes_its_addresses_goes_the_way_that_is_best_then() {
    let mut moving =
        plan(Direction::ToGpu, "pinned", Metric::P50, &[(Some(64), "host->inline->gpu0"), (None, "host->ce2->gpu0")]);
    moving.key.places = Places::Others;
    let mut all = profile();
    all.plans.push(moving);
    let (driver, machine, _) = soft(all);
    let copies = || driver.counters().copies.load(Ordering::Relaxed);
    let mut route = open(&machine, "host->auto->gpu0", 64 << 10).unwrap();
    // 4 KiB: in the command stream at the same place, and by an engine once it was at another.
    let moves: [(&[(u64, u64)], bool); 4] =
        [(&[], false), (&[(0, 0)], false), (&[(0, 0), (4096, 8192)], true), (&[(4096, 8192), (0, 0)], true)];
    for (n, (moves, by_engine)) in moves.into_iter().enumerate() {
        let data: Vec<u8> = (0..64u32 << 10).map(|i| (i * 7 + n as u32) as u8).collect();
        route.ends().write_source(0, &data).unwrap();
        let before = copies();
        let mut transfer = route.prepare(4096).unwrap();
        moves.iter().for_each(|(source, destination)| transfer.move_to(*source, *destination).unwrap());
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        drop(transfer);
        assert_eq!(copies() > before, by_engine, "{moves:?}");
        let (from, to) = moves.last().map_or((0, 0), |(from, to)| (*from as usize, *to as usize));
        let mut back = vec![0; 64 << 10];
        route.ends().read_destination(0, &mut back).unwrap();
        assert!(back[to..to + 4096] == data[from..from + 4096], "{moves:?}");
    }
}

#[test]
fn without_a_profile_it_is_unavailable_and_the_hint_is_calibrate() {
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap();
    assert!(reason(open(&machine, "host->auto->gpu0", 64)).contains("doorbell calibrate"));
    let listed = names(&machine).into_iter().find(|l| l.name == "host->auto->gpu0").unwrap();
    assert!(listed.unavailable.unwrap().reason.contains("doorbell calibrate"));
    // The reason for a refusal is passed on.
    let stale = machine.with_profile(|| Err(Unavailable::new("the profile is stale: driver was 1 and is 2")));
    assert!(reason(open(&stale, "gpu0->auto->host", 64)).contains("driver was 1"));
}

#[test]
fn what_the_profile_names_wrongly_is_said() {
    let names = |route: &str| {
        let plans = vec![plan(Direction::ToGpu, "pinned", Metric::P50, &[(None, route)])];
        soft(Profile { plans, ..profile() }).1
    };
    for (route, why) in [
        ("host->auto->gpu0", "no single route"),
        ("host->warp->gpu0", "warp"),
        ("host->ce99->gpu0", "no ce99"),
        ("host->cuda->gpu0", "no CUDA"),
    ] {
        let found = reason(open(&names(route), "host->auto->gpu0", 64));
        assert!(found.contains("the profile names") && found.contains(why), "{route}: {found}");
    }
    let machine = names("host->ce2->gpu0");
    assert!(reason(open(&machine, "gpu0->auto->host", 64)).contains("nothing for from-gpu"));
    assert!(reason(open(&machine, "host[pageable]->auto->gpu0", 64)).contains("pageable"));
    assert!(reason(open(&machine, "host->auto[pieces=4]->gpu0", 64)).contains("no plan for batches"));
    assert!(reason(open(&machine, "host->auto[for=max,for=p99.9]->gpu0", 64)).contains("choose one"));
    assert!(open(&machine, "host->auto[fast]->gpu0", 64).is_err());
}
