//! A device's memory and its pins, on the software GPU.

use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::Arc;
use std::time::Duration;
use workload::{Checks, Error, Machine, Subject, Sweep, Waiting, Wanted, What, open};

const TIMEOUT: Duration = Duration::from_secs(20);

fn machine() -> Machine {
    Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap()
}

fn once(subject: &mut dyn Subject) {
    subject.renew().unwrap();
    subject.fire().unwrap();
    subject.wait(TIMEOUT).unwrap();
    assert!(subject.poll().unwrap());
}

/// Each place is further in the memory: bytes that went elsewhere would be found wrong there.
#[test]
fn a_sweep_visits_each_place_of_memory_other_than_the_hosts() {
    let machine = machine();
    let sweep = Some(Sweep { step: 96 << 10, places: 5 });
    for name in [
        "device->dma->gpu0",
        "gpu0->dma->device",
        "device->dma->host",
        "host->dma[sleeps]->device",
        "device->staged->gpu0",
        "host->ce2->gpu0",
    ] {
        for fresh_data in [true, false] {
            let wanted = Wanted { sweep, fresh_data, ..Wanted::of(70_000) };
            let mut opened = open(&machine, &What::Route(name.into()), &wanted).unwrap();
            assert!(opened.about().contains("at 5 places, 98304 bytes apart"), "{}", opened.about());
            assert_eq!(opened.verify(7, TIMEOUT).unwrap(), None, "{name}");
            let mut subject = opened.prepare(11).unwrap();
            assert_eq!(subject.checks(), Checks::BytesAndGuards);
            for round in 0..11 {
                subject.place(round).unwrap();
                for n in 0..2 {
                    once(&mut *subject);
                    assert_eq!(subject.check().unwrap(), None, "{name}, the {n}th of round {round}");
                }
            }
        }
    }
    let wanted = Wanted { sweep, ..Wanted::of(4096) };
    for (name, why) in [("device->dma[buffers=4]->gpu0", "at fixed places"), ("host->ce2[armed]->gpu0", "addresses")] {
        let mut opened = open(&machine, &What::Route(name.into()), &wanted).unwrap();
        match opened.prepare(1).err() {
            Some(Error::Unavailable(unavailable)) => assert!(unavailable.reason.contains(why), "{unavailable}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn a_device_pins_memory_and_moves_bytes_into_it() {
    let machine = machine();
    for call in ["pin", "pin(host)", "unpin", "unpin(host)"] {
        for bytes in [100, 4096, 3 << 20] {
            let mut opened = open(&machine, &What::Call(call.into()), &Wanted::of(bytes)).unwrap();
            assert!(opened.about().contains(&format!("{bytes} bytes of")), "{}", opened.about());
            assert_eq!(opened.verify(7, TIMEOUT).unwrap(), None, "{call}");
            let mut subject = opened.prepare(11).unwrap();
            assert_eq!(subject.waiting(), Waiting::Polled);
            assert!(matches!(subject.wait(TIMEOUT), Err(Error::Idle)), "nothing was done");
            for _ in 0..3 {
                once(&mut *subject);
                assert_eq!(subject.check().unwrap(), None, "{call}, {bytes} bytes");
                subject.rest().unwrap();
            }
        }
    }
}

#[test]
fn frames_are_consumed_one_after_the_other() {
    let machine = machine();
    for call in ["frames", "frames(1)", "frames(2,host)", "frames(host,consume=100us)"] {
        let mut opened = open(&machine, &What::Call(call.into()), &Wanted::of(16 << 10)).unwrap();
        assert!(opened.about().contains("frames of copy engine"), "{}", opened.about());
        assert_eq!(opened.verify(7, TIMEOUT).unwrap(), None, "{call}");
        let mut subject = opened.prepare(11).unwrap();
        assert_eq!((subject.waiting(), subject.checks()), (Waiting::Polled, Checks::Bytes));
        for n in 0..20 {
            let begun = std::time::Instant::now();
            once(&mut *subject);
            assert!(!call.contains("100us") || begun.elapsed() >= Duration::from_micros(100), "{call}");
            assert_eq!(subject.check().unwrap(), None, "{call}, the {n}th");
        }
    }
    let refused = |call: &str, wanted: &Wanted| match open(&machine, &What::Call(call.into()), wanted).err() {
        Some(Error::Unavailable(why)) => why.reason,
        other => panic!("{call}: {other:?}"),
    };
    assert!(refused("frames", &Wanted::of(5000)).contains("whole pages"));
    let random = Wanted { random_addresses: true, ..Wanted::of(4096) };
    assert!(refused("frames", &random).contains("to their buffers in order"));
    assert!(open(&machine, &What::Call("frames(65)".into()), &Wanted::of(4096)).is_err());
}

/// Both calls of a program for host buffers, in both directions and both modes.
#[test]
fn the_calls_of_a_program_for_host_buffers_move_what_they_should() {
    let machine = machine();
    for text in ["transfers", "transfers(pinned)", "transfers(write)", "transfers(pinned,write)"] {
        for fresh_data in [true, false] {
            let wanted = Wanted { fresh_data, ..Wanted::of(70_000) };
            let mut opened = open(&machine, &What::Call(text.into()), &wanted).unwrap();
            let way = if text.contains("pinned") { "straight to GPU 0" } else { "by way of host memory" };
            assert!(opened.about().contains(way), "{}", opened.about());
            assert_eq!(opened.verify(7, TIMEOUT).unwrap(), None, "{text}");
            let mut subject = opened.prepare(11).unwrap();
            assert_eq!((subject.checks(), subject.waiting()), (Checks::Bytes, Waiting::Called));
            assert!(matches!(subject.wait(TIMEOUT), Err(Error::Idle)));
            for _ in 0..3 {
                once(&mut *subject);
                assert_eq!(subject.check().unwrap(), None, "{text}");
            }
        }
    }
    let wanted = Wanted { back_to_back: 2, ..Wanted::of(4096) };
    let refused = open(&machine, &What::Call("transfers".into()), &wanted).err().unwrap().to_string();
    assert!(refused.contains("0.1.0 no longer measures copies back to back"), "{refused}");
}
