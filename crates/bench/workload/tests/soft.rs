//! doorbell's routes as subjects, on the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::time::Duration;
use workload::{Checks, Error, Machine, Subject, Waiting, Wanted, What, open};

const TIMEOUT: Duration = Duration::from_secs(20);

fn machine() -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap()
}

fn route(name: &str) -> What {
    What::Route(name.into())
}

fn once(subject: &mut dyn Subject) {
    subject.renew().unwrap();
    subject.fire().unwrap();
    subject.wait(TIMEOUT).unwrap();
    assert!(subject.poll().unwrap());
}

#[test]
fn every_kind_of_route_moves_fresh_bytes_and_is_polled() {
    let machine = machine();
    for (name, timed) in [
        ("host->ce2->gpu0", true),
        ("gpu0->ce0[pipelined]->host", true),
        ("host->ce1[release=word]->gpu0", false),
        ("host->inline->gpu0", false),
        ("host->inline[armed,release=engine]->gpu0", true),
        ("gpu0->ce2[armed]->host", true),
        ("host->bar1->gpu0", false),
        ("gpu0->bar1->host", false),
        ("host->aperture->gpu0", false),
    ] {
        for bytes in [8, 4097] {
            let mut opened = open(&machine, &route(name), &Wanted::of(bytes)).unwrap();
            assert!(!opened.about().is_empty());
            assert_eq!(opened.verify(7, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
            let mut subject = opened.prepare(11).unwrap();
            assert_eq!((subject.waiting(), subject.checks()), (Waiting::Polled, Checks::BytesAndGuards), "{name}");
            for _ in 0..5 {
                once(&mut *subject);
                assert_eq!(subject.check().unwrap(), None, "{name}, {bytes} bytes");
                assert_eq!(subject.engine().is_some(), timed, "{name}");
            }
            subject.rest().unwrap();
            once(&mut *subject);
            assert_eq!(subject.check().unwrap(), None, "{name}, {bytes} bytes, after a rest");
        }
    }
}

#[test]
fn threads_use_routes_of_their_own_on_one_machine() {
    let machine = machine();
    std::thread::scope(|scope| {
        for name in ["host->ce0->gpu0", "host->ce1->gpu0", "gpu0->ce2->host"] {
            let machine = &machine;
            scope.spawn(move || {
                let mut opened = open(machine, &route(name), &Wanted::of(3000)).unwrap();
                let mut subject = opened.prepare(1).unwrap();
                for _ in 0..50 {
                    once(&mut *subject);
                }
                assert_eq!(subject.check().unwrap(), None, "{name}");
            });
        }
    });
}

#[test]
fn transfers_use_other_places_and_an_engine_reports_its_start() {
    let machine = machine();
    for (name, fresh_data) in [
        ("host->ce2[timed]->gpu0", true),
        ("gpu0->ce0[timed]->host", false),
        ("host->inline[timed]->gpu0", false),
        ("host->bar1->gpu0", true),
    ] {
        let wanted = Wanted { random_addresses: true, fresh_data, ..Wanted::of(3000) };
        let mut opened = open(&machine, &route(name), &wanted).unwrap();
        assert_eq!(opened.verify(7, TIMEOUT).unwrap(), None, "{name}");
        let mut subject = opened.prepare(11).unwrap();
        assert_eq!(subject.checks(), Checks::BytesAndGuards);
        for n in 0..50 {
            once(&mut *subject);
            assert_eq!(subject.check().unwrap(), None, "{name}, the {n}th");
            if let Some(engine) = subject.engine() {
                assert!(engine.started.unwrap() <= engine.ended, "{name}: {engine:?}");
            } else {
                assert!(!name.contains("timed"));
            }
        }
    }
    let wanted = Wanted { random_addresses: true, ..Wanted::of(64) };
    let mut armed = open(&machine, &route("host->ce2[armed]->gpu0"), &wanted).unwrap();
    match armed.prepare(1).err() {
        Some(Error::Unavailable(why)) => assert!(why.reason.contains("with its addresses"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_call_of_nothing_takes_its_time() {
    let machine = machine();
    let mut opened = open(&machine, &What::Call("nothing(after=20ms)".into()), &Wanted::of(0)).unwrap();
    assert!(opened.verify(1, TIMEOUT).unwrap().is_none());
    let mut subject = opened.prepare(1).unwrap();
    for _ in 0..2 {
        let begun = std::time::Instant::now();
        subject.fire().unwrap();
        assert!(!subject.poll().unwrap());
        subject.wait(TIMEOUT).unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20) && subject.poll().unwrap());
    }
    assert_eq!(subject.waiting(), Waiting::Polled);
}
