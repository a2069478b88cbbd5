//! A calibration with the engine, on the software GPU: every route is opened, verified and measured.

use doorbell_softgpu::{Mode, SoftDriver};
use measure::calibration::{Calibration, Done, Ended, candidates, run};
use std::sync::Arc;
use std::time::Duration;
use submit::route_choice::{Ask, Direction, Metric, Places};
use workload::Machine;
use workload::spec::Host;

fn machine() -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap()
}

fn asked() -> Calibration {
    Calibration {
        soft: true,
        objective: Metric::P50,
        budget: Duration::from_secs(20),
        beside: None,
        memories: vec![Host::Pinned],
        changing_places: false,
        batches: vec![1, 16],
        sizes: vec![16, 256, 4096],
    }
}

#[test]
fn a_profile_has_a_route_for_every_size_in_both_directions() {
    let machine = machine();
    let mut told = 0;
    let Ended::Done(done) = run(&machine, &asked(), &|| false, &mut |_| told += 1) else { panic!("no profile") };
    let Done { profile, samples, left, .. } = *done;
    assert!(profile.functional && samples > 100 && told >= 2, "{samples} {told}");
    for (direction, source) in [(Direction::ToGpu, "host->"), (Direction::FromGpu, "gpu0->")] {
        for bytes in [1, 300, 1 << 30] {
            let choice = profile.choose(&Ask::of(direction, bytes)).unwrap();
            assert!(choice.route.starts_with(source), "{choice:?}");
        }
    }
    let batch = profile.choose(&Ask { batch: 16, ..Ask::of(Direction::ToGpu, 4096) }).unwrap();
    assert!(batch.route.contains("pieces=16"), "{batch:?}");
    assert!(left.iter().any(|l| l.route == "host->bar1->gpu0" && l.why.contains("arrived")), "{left:?}");
}

#[test]
#[ignore = "3 s; run by .ci/run"]
fn transfers_that_change_their_addresses_have_plans_of_their_own() {
    let asked = Calibration { changing_places: true, batches: vec![1], sizes: vec![16, 4096], ..asked() };
    let Ended::Done(done) = run(&machine(), &asked, &|| false, &mut |_| {}) else { panic!("no profile") };
    for direction in [Direction::ToGpu, Direction::FromGpu] {
        let ask = Ask { places: Places::Others, ..Ask::of(direction, 4096) };
        let plan = done.profile.plan(&ask).unwrap();
        assert!(plan.key.places == Places::Others && !plan.points.is_empty(), "{plan:?}");
        assert_eq!(done.profile.plan(&Ask::of(direction, 4096)).unwrap().key.places, Places::Same);
    }
}

#[test]
fn it_stops_when_it_is_told_to() {
    assert!(matches!(run(&machine(), &asked(), &|| true, &mut |_| {}), Ended::Stopped));
}

#[test]
fn candidates_are_safe_and_stand_in_the_order_of_preference() {
    let (kept, left) = candidates(&machine(), Direction::ToGpu, Host::Pinned, 1);
    let place = |route: &str| kept.iter().position(|k| k == route).unwrap();
    // Engines that run in parallel with kernels, those on the graphics runlist, data in the stream, the CPU's own stores.
    assert!(place("host->ce2->gpu0") < place("host->ce0->gpu0"));
    assert!(place("host->ce0->gpu0") < place("host->inline->gpu0"));
    assert!(place("host->inline->gpu0") < place("host->bar1[flush]->gpu0"));
    for unsafe_ in ["armed", "answered", "pipelined", "folded", "message", "aperture", "bar1->"] {
        assert!(!kept.iter().any(|route| route.contains(unsafe_)), "{unsafe_}: {kept:?}");
    }
    // Each listed route is kept or left out with a reason.
    let whole = |name: &str| name.starts_with("host->") && !name.contains("pieces=") && !name.ends_with("->device");
    for listed in workload::routes::names(&machine()).iter().filter(|l| whole(&l.name)) {
        let reason = left.iter().find(|l| l.route == listed.name).map(|l| &l.why);
        assert!(kept.contains(&listed.name) || reason.is_some_and(|why| !why.is_empty()), "{}", listed.name);
    }
}

#[test]
fn a_route_auto_follows_the_profile_that_was_written_and_no_stale_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("p.toml");
    let Ended::Done(done) = run(&machine(), &asked(), &|| false, &mut |_| {}) else { panic!("no profile") };
    done.profile.save(&path).unwrap();
    let of = |path: std::path::PathBuf| {
        let profile = move || submit::route_choice::at(&path, true, None).map(Arc::new);
        machine().with_profile(move || profile().map_err(|without| workload::Unavailable::new(without.to_string())))
    };
    let followed = of(path.clone());
    for (name, least) in [("host->auto->gpu0", 1), ("gpu0->auto->host", 1), ("host->auto[pieces=16]->gpu0", 16)] {
        let mut route = workload::routes::open(&followed, name, 8192).unwrap();
        for bytes in [least, 255, 256, 257, 4096, 8192] {
            let wrong = workload::verify(&mut route, bytes, bytes, Duration::from_secs(10)).unwrap();
            assert_eq!(wrong, None, "{name}, {bytes} bytes");
        }
    }
    let why = |machine: &Machine| match workload::routes::open(machine, "host->auto->gpu0", 8) {
        Err(e) => e.to_string(),
        Ok(_) => panic!("it opens"),
    };
    let missing = why(&of(folder.path().join("none.toml")));
    assert!(missing.contains("no profile at") && missing.contains("doorbell calibrate"), "{missing}");
    let mut stale = done.profile.clone();
    stale.facts.kernel = "2.4.0".into();
    stale.save(&path).unwrap();
    let stale = why(&of(path));
    assert!(stale.contains("kernel was \"2.4.0\"") && stale.contains("doorbell calibrate"), "{stale}");
}
