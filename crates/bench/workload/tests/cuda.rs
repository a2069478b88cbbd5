//! The calls against a stand-in for libcuda: each does its work, reports when it did not, and leaves no objects or memory. This does not show what
//! a real GPU does.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;

use cuda::Cuda;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use workload::{Checks, Error, Machine, Subject, Waiting, Wanted, What, Wrong, open};

/// The stand-in is global to the process, and so are its faults.
static ONE: Mutex<()> = Mutex::new(());
const TIMEOUT: Duration = Duration::from_secs(20);

fn start() -> (MutexGuard<'static, ()>, Machine) {
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    for mistake in [&fake::SPOIL_COPY, &fake::LOSE_LAUNCH, &fake::OLD, &fake::EAGER] {
        mistake.store(0, Ordering::SeqCst);
    }
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    (guard, Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap())
}

fn call(text: &str) -> What {
    What::Call(text.into())
}

/// Work on doorbell channels.
const OURS: [&str; 6] = ["pin", "unpin", "frames", "transfers", "copy", "ios"];

fn once(subject: &mut dyn Subject) -> Result<Option<Wrong>, Error> {
    subject.renew()?;
    subject.fire()?;
    match subject.waiting() {
        Waiting::Called => subject.wait(TIMEOUT)?,
        Waiting::Polled => {
            while !subject.poll()? {
                std::thread::yield_now();
            }
        }
    }
    subject.check()
}

/// In a separate thread, as loads are.
fn elsewhere(machine: &Machine, what: &What, wanted: &Wanted, times: u32) {
    let work = || {
        let mut opened = open(machine, what, wanted).unwrap();
        assert!(!opened.about().is_empty());
        assert_eq!(opened.verify(3, TIMEOUT).unwrap(), None, "{what:?}");
        let mut subject = opened.prepare(5).unwrap();
        for n in 0..times {
            assert_eq!(once(&mut *subject).unwrap(), None, "{what:?}, the {n}th");
        }
        subject.rest().unwrap();
        assert_eq!(once(&mut *subject).unwrap(), None, "{what:?}, after a rest");
    };
    std::thread::scope(|scope| scope.spawn(work).join().unwrap());
}

#[test]
fn every_call_works_in_any_thread_and_leaks_nothing() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    let with_words = [
        "launch(polled)",
        "launch(7)",
        "launch(3,polled)",
        "graph(3)",
        "graph(1,polled)",
        "graph(5,polled)",
        "hostalloc(touched)",
        "module(3)",
        "module(2,compiled)",
        "module(2,cached)",
        "lazy(2)",
        "lazy(1)",
        "instantiate(7)",
        "launch(2,priority=high)",
        "graph(2,polled,priority=low)",
        "hbm(3,priority=high)",
    ];
    for text in workload::calls().iter().map(|call| call.name).chain(with_words) {
        if OURS.contains(&text) {
            // Without a doorbell channel there are none of these.
            let opened = open(&machine, &call(text), &Wanted::of(0));
            assert!(matches!(opened.err(), Some(Error::Unavailable(_))), "{text}");
            continue;
        }
        // A size where the call takes one.
        let bytes = match text {
            "malloc" | "hostalloc" | "hostalloc(touched)" | "hostregister" | "hostunregister" => 1 << 20,
            // More than is compared, and not a multiple of that.
            "hbm" | "hbm(3,priority=high)" | "triad" => 20_000,
            // Whether such a program or disk exists depends on the machine; these have separate tests.
            "hackbench" | "file" => continue,
            // It waits for events, which this stand-in does not have; softcuda's test covers it.
            "nodes" => continue,
            _ => 0,
        };
        elsewhere(&machine, &call(text), &Wanted::of(bytes), 4);
        assert_eq!(fake::alive(), [""; 0], "{text} left objects behind");
    }
    for route in [
        "host->cuda->gpu0",
        "gpu0->cuda[sync]->host",
        "host[pageable]->cuda->gpu0",
        "host->cuda[polled]->gpu0",
        "gpu0->cuda[graph,polled]->host",
        "host->cuda[graph]->gpu0",
        "gpu0->cuda[batch,polled]->host",
    ] {
        for (fresh_data, random_addresses) in [(true, false), (false, false), (true, true), (false, true)] {
            if random_addresses && route.contains("graph") {
                continue;
            }
            let wanted = Wanted { fresh_data, random_addresses, ..Wanted::of(5000) };
            elsewhere(&machine, &What::Route(route.into()), &wanted, 4);
            assert_eq!(fake::alive(), [""; 0], "{route} left objects behind");
        }
    }
}

#[test]
fn a_launch_that_was_lost_is_found_at_any_later_comparison() {
    let (_one, machine) = start();
    for text in ["launch", "graph(6)"] {
        for lost in [1, 67, 100] {
            let mut opened = open(&machine, &call(text), &Wanted::of(0)).unwrap();
            let mut subject = opened.prepare(9).unwrap();
            assert_eq!(subject.checks(), Checks::Bytes);
            let kernels = if text == "launch" { 1 } else { 6 };
            fake::LOSE_LAUNCH.store(kernels * lost, Ordering::SeqCst);
            for n in 1..=100 {
                let wrong = once(&mut *subject).unwrap();
                assert_eq!(wrong.is_some(), n >= lost, "{text}: the {n}th, {lost} was lost");
            }
        }
    }
    // A polled one never completes.
    let _running = fake::run_by_itself();
    let mut opened = open(&machine, &call("launch(polled)"), &Wanted::of(0)).unwrap();
    let mut subject = opened.prepare(1).unwrap();
    assert_eq!(once(&mut *subject).unwrap(), None);
    fake::LOSE_LAUNCH.store(1, Ordering::SeqCst);
    subject.fire().unwrap();
    assert!(matches!(subject.wait(Duration::from_millis(20)), Err(Error::Late { .. })));
}

#[test]
fn a_polled_end_makes_no_cuda_calls() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    for text in ["launch(polled)", "graph(4,polled)"] {
        let mut opened = open(&machine, &call(text), &Wanted::of(0)).unwrap();
        let mut subject = opened.prepare(1).unwrap();
        assert_eq!(subject.waiting(), Waiting::Polled);
        for _ in 0..20 {
            let before = fake::CALLS.load(Ordering::SeqCst);
            subject.fire().unwrap();
            assert_eq!(fake::CALLS.load(Ordering::SeqCst) - before, 1, "{text}: one call submits");
            subject.wait(TIMEOUT).unwrap();
            assert!(subject.poll().unwrap());
            assert_eq!(fake::CALLS.load(Ordering::SeqCst) - before, 1, "{text}: none waits");
        }
    }
}

/// These need a doorbell channel in CUDA's channel group.
#[test]
fn graphs_of_ours_are_unavailable_with_the_reason() {
    let (_one, machine) = start();
    for text in ["graph(ours)", "graph(1,polled,ours)"] {
        match open(&machine, &call(text), &Wanted::of(0)) {
            Err(Error::Unavailable(why)) => assert!(why.reason.contains("CUDA's client"), "{why}"),
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("{text} opens"),
        }
        assert_eq!(fake::alive(), [""; 0], "{text} left objects behind");
    }
}

#[test]
fn without_cuda_calls_are_unavailable_with_the_reason() {
    use doorbell_softgpu::{Mode, SoftDriver};
    let machine = Machine::of_driver(std::sync::Arc::new(SoftDriver::new(Mode::Poll)), false).unwrap();
    match open(&machine, &call("launch"), &Wanted::of(0)) {
        Err(Error::Unavailable(why)) => assert!(why.reason.contains("no CUDA"), "{why}"),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("it opens"),
    }
    assert!(matches!(open(&machine, &call("lunch"), &Wanted::of(0)).err(), Some(Error::Syntax(_))));
}

/// The number of driver calls in one `fire`, and of objects that are alive after it and after the next `renew`.
fn one_fire(machine: &Machine, text: &str, bytes: u64) -> (u64, usize) {
    let mut opened = open(machine, &call(text), &Wanted::of(bytes)).unwrap();
    let mut subject = opened.prepare(1).unwrap();
    subject.renew().unwrap();
    let (before, alive) = (fake::CALLS.load(Ordering::SeqCst), fake::alive().len());
    subject.fire().unwrap();
    let calls = fake::CALLS.load(Ordering::SeqCst) - before;
    let held = fake::alive().len() - alive;
    subject.wait(TIMEOUT).unwrap();
    subject.renew().unwrap();
    assert_eq!(fake::alive().len(), alive, "{text}: renew gives it back");
    // Nothing leaks without a renewal either.
    subject.fire().unwrap();
    subject.fire().unwrap();
    subject.rest().unwrap();
    assert_eq!(subject.check().unwrap(), None, "{text}: behind a rest");
    (calls, held)
}

#[test]
fn a_set_up_call_is_one_call_and_is_given_back_untimed() {
    let (_one, machine) = start();
    for (text, bytes) in [
        ("stream", 0),
        ("malloc", 4096),
        ("hostalloc", 4096),
        ("hostregister", 8192),
        ("module(2)", 0),
        ("module(2,compiled)", 0),
        ("instantiate(3)", 0),
    ] {
        assert_eq!(one_fire(&machine, text, bytes), (1, 1), "{text}");
    }
    // The kernel is found and launched; it stays with its module.
    assert_eq!(one_fire(&machine, "lazy(9)", 0), (2, 0));
    assert_eq!(one_fire(&machine, "hog", 0), (0, 0));
    assert_eq!(fake::alive(), [""; 0]);
}

#[test]
fn modules_are_compiled_each_time_and_kernels_are_first_launched_once() {
    let (_one, machine) = start();
    let (loads, cached) = (|| fake::LOADS.load(Ordering::SeqCst), || fake::CACHED.load(Ordering::SeqCst));
    let mut opened = open(&machine, &call("module(5)"), &Wanted::of(0)).unwrap();
    let mut subject = opened.prepare(1).unwrap();
    let before = (loads(), cached());
    for _ in 0..10 {
        assert_eq!(once(&mut *subject).unwrap(), None);
    }
    assert_eq!((loads() - before.0, cached() - before.1), (10, 0), "each text is new");
    drop(subject);
    drop(opened);
    // Four first launches a module.
    let mut opened = open(&machine, &call("lazy(4)"), &Wanted::of(0)).unwrap();
    let before = loads();
    let mut subject = opened.prepare(1).unwrap();
    for n in 1..=10 {
        assert_eq!(once(&mut *subject).unwrap(), None);
        assert_eq!(loads() - before, u64::div_ceil(n, 4), "after the {n}th");
    }
    fake::LOSE_LAUNCH.store(1, Ordering::SeqCst);
    assert!(once(&mut *subject).unwrap().is_some());
}

#[test]
fn a_missing_driver_function_is_unavailable_and_the_rest_continues() {
    let (_one, _) = start();
    fake::OLD.store(1, Ordering::SeqCst);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let old = Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap();
    for text in ["lazy", "module(compiled)"] {
        match open(&old, &call(text), &Wanted::of(0)).err() {
            Some(Error::Unavailable(why)) => assert!(why.reason.contains("this CUDA driver has no cu"), "{why}"),
            other => panic!("{text}: {other:?}"),
        }
    }
    elsewhere(&old, &call("module(2)"), &Wanted::of(0), 2);
    fake::OLD.store(0, Ordering::SeqCst);
    fake::EAGER.store(1, Ordering::SeqCst);
    drop(old);
    // SAFETY: as above.
    let machine = Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap();
    match open(&machine, &call("lazy"), &Wanted::of(0)).err() {
        Some(Error::Unavailable(why)) => assert!(why.reason.contains("CUDA_MODULE_LOADING=LAZY"), "{why}"),
        other => panic!("{other:?}"),
    }
    match open(&machine, &call("hostregister"), &Wanted::of(4097)).err() {
        Some(Error::Unavailable(why)) => assert!(why.reason.contains("whole pages"), "{why}"),
        other => panic!("{other:?}"),
    }
}
