//! The invariant: between `fire` and the end, no allocation and no system call is made, except by CUDA inside its own calls. The stand-in's
//! own allocations do not count.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;

use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use test_support::counting::{Counting, cost, watch_system_calls};
use workload::{Machine, Waiting, Wanted, What, open};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The count of system calls is global to the process.
static ONE: Mutex<()> = Mutex::new(());
const TIMEOUT: Duration = Duration::from_secs(20);

fn is_quiet(machine: &Machine, what: &What, wanted: &Wanted, rounds: u32, watched: bool) {
    let soft = machine.context().is_err();
    let mut opened = open(machine, what, wanted).unwrap();
    let mut subject = opened.prepare(3).unwrap();
    for round in 0..rounds {
        subject.renew().unwrap();
        let mut failed = false;
        let called = subject.waiting() == Waiting::Called;
        let spent = cost(watched, || {
            failed = subject.fire().is_err();
            if called {
                failed |= subject.wait(TIMEOUT).is_err();
            }
            failed |= subject.poll().is_err();
            std::hint::black_box(subject.engine());
        });
        assert_eq!((failed, spent), (false, (0, 0)), "{what:?}, round {round}");
        // Polling a software GPU for long rings its doorbell again, which a strict one traps.
        let spent = cost(watched && !soft, || while !called && !subject.poll().unwrap() {});
        assert_eq!(spent, (0, 0), "{what:?}, round {round}, polled");
    }
    assert_eq!(subject.check().unwrap(), None, "{what:?}");
}

#[test]
fn calls_add_no_allocation_or_system_call() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let machine = Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap();
    let watched = watch_system_calls();
    let _running = fake::run_by_itself();
    fake::ENTERS.set(Some(test_support::counting::stand_in));
    for text in [
        "launch",
        "launch(polled)",
        "graph(3)",
        "graph(3,polled)",
        "stream",
        "malloc",
        "hostalloc",
        "hostalloc(touched)",
        "hostregister",
        "module(2)",
        "module(2,compiled)",
        "lazy(100)",
        "instantiate(3)",
        "hog",
        "lock(mutex)",
        "lock(rwlock-read)",
        "lock(rwlock-write,hold=2us)",
    ] {
        let bytes = if ["malloc", "hostalloc", "hostregister"].iter().any(|n| text.starts_with(n)) { 8192 } else { 0 };
        is_quiet(&machine, &What::Call(text.into()), &Wanted::of(bytes), 20, watched);
    }
    for form in ["cuda", "cuda[sync]", "cuda[polled]", "cuda[graph]", "cuda[graph,polled]", "cuda[batch]"] {
        for random_addresses in [false, true] {
            if random_addresses && form.contains("graph") {
                continue;
            }
            let wanted = Wanted { random_addresses, ..Wanted::of(100) };
            is_quiet(&machine, &What::Route(format!("host->{form}->gpu0")), &wanted, 20, watched);
        }
    }
    fake::ENTERS.set(None);
}

#[test]
fn our_own_routes_are_quiet_as_subjects() {
    let _one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // A polling GPU: the strict one traps doorbells, which makes system calls on this thread.
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Poll)), false).unwrap();
    let watched = watch_system_calls();
    for name in [
        "host->ce0->gpu0",
        "gpu0->ce2[timed]->host",
        "host->inline->gpu0",
        "host->inline[timed]->gpu0",
        "host->ce1[armed]->gpu0",
        "host->bar1->gpu0",
    ] {
        for random_addresses in [false, true] {
            if random_addresses && name.contains("armed") {
                continue;
            }
            let wanted = Wanted { random_addresses, ..Wanted::of(100) };
            is_quiet(&machine, &What::Route(name.into()), &wanted, 100, watched);
        }
    }
}
