//! CUDA's own routes against a stand-in for libcuda. This does not show what a real GPU does.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;
mod moved;

use cuda::Cuda;
use cuda::runtime::Runtime;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use workload::routes::{names, open, parse};
use workload::{Checked, Error, Inspect, Machine, Wrong, verify};

/// The process has one stand-in, whose faults are global too.
static ONE: Mutex<()> = Mutex::new(());
const TIMEOUT: Duration = Duration::from_secs(10);
const CAPACITY: u64 = 100_000;

fn start() -> (MutexGuard<'static, ()>, Machine) {
    let guard = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    fake::SPOIL_COPY.store(0, Ordering::SeqCst);
    fake::RUNTIME_STARTS.store(0, Ordering::SeqCst);
    fake::OLD.store(0, Ordering::SeqCst);
    fake::NO_WRITES.store(0, Ordering::SeqCst);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    // SAFETY: as above.
    let runtime = unsafe { Runtime::from_symbols(fake::find_runtime) }.unwrap();
    fake::DEVICES.store(1, Ordering::SeqCst);
    fake::PEERS.store(0, Ordering::SeqCst);
    (guard, Machine::of_cuda(&cuda).unwrap().with_runtime(runtime))
}

/// Another machine over the same stand-in.
fn again() -> Machine {
    // SAFETY: as above.
    Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap()
}

fn every_route() -> Vec<String> {
    let mut all = Vec::new();
    for host in ["host", "host[pageable]", "host[registered]", "host[offset=13]", "host[pageable,offset=4095]"] {
        for cuda in ["cuda", "cuda[sync]", "cudart", "cudart[sync]"] {
            all.push(format!("{host}->{cuda}->gpu0"));
            all.push(format!("gpu0[offset=7]->{cuda}->{host}"));
        }
    }
    for cuda in FORMS {
        all.push(format!("host[offset=13]->{cuda}->gpu0"));
        all.push(format!("gpu0[offset=7]->{cuda}->host"));
    }
    all
}

/// Forms for pinned memory only.
const FORMS: [&str; 6] = [
    "cuda[polled]",
    "cuda[graph]",
    "cuda[graph,polled]",
    "cuda[graph,polled=write]",
    "cuda[batch]",
    "cuda[batch,polled]",
];

fn reason(error: Error) -> String {
    match error {
        Error::Unavailable(unavailable) => unavailable.reason,
        other => panic!("{other}"),
    }
}

fn opening(machine: &Machine, name: &str) -> String {
    match open(machine, name, CAPACITY) {
        Ok(_) => panic!("{name} opens"),
        Err(error) => reason(error),
    }
}

#[test]
fn every_route_moves_every_size_and_leaves_nothing() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    for name in every_route() {
        let mut route = open(&machine, &name, CAPACITY).unwrap();
        assert_eq!((route.name(), route.capacity()), (name.as_str(), CAPACITY));
        for bytes in [1, 2, 3, 4, 5, 7, 8, 9, 63, 64, 4095, 4096, 4097, 65_537, CAPACITY - 1, CAPACITY] {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
        drop(route);
        assert_eq!(fake::alive(), [""; 0], "{name} left objects behind");
    }
}

#[test]
fn host_memory_of_every_kind_is_moved_or_says_why() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    let combined = fake::WRITE_COMBINED.load(Ordering::SeqCst);
    for (kind, missing) in [("wc", None), ("huge", Some("huge pages")), ("node=0", Some("NUMA node 0"))] {
        for name in [format!("host[{kind}]->cuda->gpu0"), format!("gpu0->cuda[sync]->host[{kind},offset=3]")] {
            match (open(&machine, &name, 70_001), missing) {
                (Ok(mut route), _) => assert_eq!(verify(&mut route, 70_001, 5, TIMEOUT).unwrap(), None, "{name}"),
                (Err(error), Some(missing)) => assert!(reason(error).contains(missing), "{name}"),
                (Err(error), None) => panic!("{name}: {error}"),
            }
            assert_eq!(fake::alive(), [""; 0], "{name}");
        }
    }
    assert_eq!(fake::WRITE_COMBINED.load(Ordering::SeqCst) - combined, 2);
    assert!(opening(&machine, "host[node=999]->cuda->gpu0").contains("no NUMA node 999"));
}

/// The other GPU is opened when a route first names it, the route's memory is on it, and the thread's context does not
/// change.
#[test]
fn cuda_copies_from_gpu_to_gpu() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    assert!(opening(&machine, "gpu0->cuda->gpu1").contains("gpu1 is not open: CUDA has 1 GPU"));
    drop(machine);
    let machine = again();
    fake::DEVICES.store(2, Ordering::SeqCst);
    fake::PEERS.store(1, Ordering::SeqCst);
    let enabled = || fake::PEERS_ENABLED.load(Ordering::SeqCst);
    let before_all = enabled();
    let copies = || fake::PEER_COPIES.load(Ordering::SeqCst);
    for (name, peer) in [
        ("gpu0->cuda->gpu0[offset=8192]", false),
        ("gpu0[offset=3]->cuda->gpu1", true),
        ("gpu1->cuda->gpu0", true),
        ("host->cuda->gpu0", false),
        ("gpu1->cuda->gpu1", false),
    ] {
        let mut route = open(&machine, name, CAPACITY).unwrap();
        let before = copies();
        for bytes in [1, 7, 4096, CAPACITY] {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
        assert_eq!(copies() - before, if peer { 8 } else { 0 }, "{name}");
        for n in 0..2 {
            let there = fake::alive().iter().filter(|kind| **kind == format!("Device {{ ordinal: {n} }}")).count();
            assert_eq!(there, name.matches(&format!("gpu{n}")).count(), "{name}: memory of GPU {n}");
        }
        drop(route);
        assert_eq!(fake::alive(), [""; 0], "{name} left objects behind");
    }
    assert_eq!(enabled() - before_all, 2, "opened once, each reaches the other");
    assert!(opening(&machine, "gpu0->cuda->gpu2").contains("gpu2 is not open: CUDA has 2 GPUs"));
}

#[test]
fn a_batch_of_scattered_pieces_is_one_call() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    for name in
        ["host->cuda[batch,pieces=256]->gpu0", "gpu0[offset=3]->cuda[batch,polled,pieces=7]->host[pageable,offset=5]"]
    {
        let capacity = 200_000;
        let mut route = open(&machine, name, capacity).unwrap();
        for bytes in [256, 257, 511, 20_011, capacity] {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
        let mut transfer = route.prepare(9000).unwrap();
        let mut places = workload::Places::new(transfer.ends().unwrap(), capacity, 9000, 5).unwrap();
        for n in 0..20 {
            let (from, to) = places.renew(transfer.ends().unwrap(), true).unwrap();
            transfer.move_to(from, to).unwrap();
            let before = fake::CALLS.load(Ordering::SeqCst);
            transfer.submit().unwrap();
            let calls = fake::CALLS.load(Ordering::SeqCst) - before;
            assert_eq!(calls, 1 + u64::from(name.contains("polled")), "{name}");
            places.made();
            transfer.wait(TIMEOUT).unwrap();
            assert_eq!(places.check(transfer.ends().unwrap()).unwrap(), None, "{name}, the {n}th");
        }
    }
    assert!(opening(&machine, "host->cuda[pieces=2]->gpu0").contains("beside batch"));
    assert!(opening(&machine, "host->cuda[batch,pieces=5000]->gpu0").contains("1 to 4096"));
}

#[test]
fn one_call_submits_and_one_waits() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    for (name, submitting, waiting) in [
        ("host->cuda[polled]->gpu0", 2, 0),
        ("host->cuda[graph]->gpu0", 1, 1),
        ("gpu0->cuda[graph,polled]->host", 1, 0),
        ("host->cuda[graph,polled=write]->gpu0", 1, 0),
        ("host->cuda[batch]->gpu0", 1, 1),
        ("gpu0->cuda[batch,polled]->host", 2, 0),
        ("host->cuda->gpu0", 1, 1),
        ("gpu0->cuda->host", 1, 1),
        ("host->cuda[sync]->gpu0", 1, 0),
        ("host->cudart->gpu0", 1, 1),
        ("gpu0->cudart->host", 1, 1),
        ("gpu0->cudart[sync]->host", 1, 0),
    ] {
        let mut route = open(&machine, name, 4096).unwrap();
        let mut transfer = route.prepare(4096).unwrap();
        let calls = || fake::CALLS.load(Ordering::SeqCst);
        for _ in 0..10 {
            let before = calls();
            transfer.submit().unwrap();
            let submitted = calls();
            transfer.wait(TIMEOUT).unwrap();
            assert_eq!((submitted - before, calls() - submitted), (submitting, waiting), "{name}");
            assert_eq!(transfer.is_polled(), waiting == 0, "{name}");
        }
    }
}

#[test]
fn a_stream_that_works_is_not_done() {
    let (_one, machine) = start();
    for cuda in ["cuda", "cudart"] {
        let mut route = open(&machine, &format!("host->{cuda}->gpu0"), 4096).unwrap();
        route.ends().write_source(0, &[7; 4096]).unwrap();
        let mut transfer = route.prepare(4096).unwrap();
        transfer.submit().unwrap();
        assert!(!transfer.poll().unwrap());
        assert!(transfer.poll().unwrap());
        drop(transfer);
        let mut sync = open(&machine, &format!("host->{cuda}[sync]->gpu0"), 4096).unwrap();
        let mut transfer = sync.prepare(1).unwrap();
        assert!(!transfer.poll().unwrap());
        assert!(matches!(transfer.wait(TIMEOUT), Err(Error::Idle)));
        transfer.submit().unwrap();
        assert!(transfer.poll().unwrap());
    }
}

#[test]
fn a_runtime_that_is_missing_or_does_not_start_is_unavailable() {
    let (_one, machine) = start();
    fake::RUNTIME_STARTS.store(35, Ordering::SeqCst);
    let why = opening(&machine, "host->cudart->gpu0");
    assert!(why.contains("does not start") && why.contains("cudaSetDevice: cudaErrorOfTheStandIn (35)"), "{why}");
    assert_eq!(fake::alive(), [""; 0]);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let without = Machine::of_cuda(&cuda).unwrap();
    assert!(opening(&without, "host->cudart->gpu0").contains("runtime was not asked for"));
}

#[test]
fn a_wrong_bit_is_found_with_its_place() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    for name in every_route() {
        let mut route = open(&machine, &name, CAPACITY).unwrap();
        // The first three copies fill the GPU's memory and its guards.
        fake::SPOIL_COPY.store(4, Ordering::SeqCst);
        let found = verify(&mut route, 5000, 3, TIMEOUT).unwrap().expect(&name);
        let Wrong::Data(found) = found else { panic!("{name}: {found}") };
        assert_eq!((found.first, found.differing, found.expected ^ found.found), (4999, 1, 0x10), "{name}");
    }
}

#[test]
fn sizes_that_do_not_fit_are_refused() {
    let (_one, machine) = start();
    let mut route = open(&machine, "host->cuda->gpu0", 100).unwrap();
    assert!(reason(route.prepare(0).err().unwrap()).contains("0 bytes"));
    for bytes in [101, u64::MAX] {
        assert!(matches!(route.prepare(bytes).err(), Some(Error::Capacity { capacity: 100, .. })));
        assert!(matches!(verify(&mut route, bytes, 1, TIMEOUT), Err(Error::Capacity { .. })));
    }
    drop(route);
    for capacity in [0, 1 << 50, u64::MAX] {
        let error = open(&machine, "host[offset=1]->cuda->gpu0", capacity).err().unwrap();
        assert!(reason(error).contains("1 byte to 16 GiB"));
    }
}

#[test]
fn what_does_not_exist_says_why() {
    let (_one, machine) = start();
    assert!(opening(&machine, "host->cuda->host").contains("a GPU at one of its ends"));
    assert!(opening(&machine, "gpu0->cuda[sync]->gpu0").contains("one form: cuda"));
    assert!(opening(&machine, "gpu0->cudart->gpu0").contains("the host at one of its ends"));
    assert!(opening(&machine, "host->cuda->gpu1").contains("gpu1 is not open"));
    let error = open(&machine, "host->cudo->gpu0", 1).err().unwrap();
    assert!(matches!(&error, Error::Syntax(_)) && error.to_string().contains("executors are "), "{error}");
    let listed = names(&machine);
    // Huge pages and NUMA nodes depend on the machine.
    let is_cudas = |listed: &&workload::routes::Listed| {
        listed.name.contains("->cuda") && !["huge", "gpu1"].iter().any(|other| listed.name.contains(other))
    };
    assert!(
        listed.iter().filter(is_cudas).all(|listed| listed.unavailable.is_none() || listed.name.contains("node=0"))
    );
    for listed in listed {
        assert_eq!(parse(&listed.name).unwrap().to_string(), listed.name);
    }
}

/// The bytes that the CPU sees when the word has its value.
#[test]
fn the_bytes_are_there_when_the_word_is() {
    let (_one, machine) = start();
    let running = fake::run_by_itself();
    for form in FORMS.iter().filter(|form| form.contains("polled")) {
        let mut route = open(&machine, &format!("gpu0->{form}->host"), 4096).unwrap();
        let mut transfer = route.prepare(4096).unwrap();
        let mut checked = Checked::new(transfer.ends().unwrap(), 4096, 3).unwrap();
        assert!(!transfer.poll().unwrap() && matches!(transfer.wait(TIMEOUT), Err(Error::Idle)), "{form}");
        for n in 0..300 {
            checked.renew(transfer.ends().unwrap()).unwrap();
            // Sometimes several copies are in flight.
            for _ in 0..=n % 3 {
                transfer.submit().unwrap();
            }
            while !transfer.poll().unwrap() {}
            assert_eq!(checked.check(transfer.ends().unwrap()).unwrap(), None, "{form}, the {n}th");
        }
    }
    // A copy that never ends: the poll gives up, and the bytes have not arrived.
    drop(running);
    for form in FORMS.iter().filter(|form| form.contains("polled")) {
        let mut route = open(&machine, &format!("gpu0->{form}->host"), 4096).unwrap();
        let mut transfer = route.prepare(4096).unwrap();
        transfer.submit().unwrap();
        assert!(!transfer.poll().unwrap(), "{form}");
        assert!(matches!(transfer.wait(Duration::from_millis(5)), Err(Error::Late { bytes: 4096, .. })), "{form}");
    }
}

#[test]
fn forms_that_contradict_each_other_or_that_a_driver_lacks_say_so() {
    let (_one, machine) = start();
    for (form, why) in [
        ("sync,graph", "choose one"),
        ("batch,graph", "choose one"),
        ("sync,polled", "nothing to poll"),
        ("polled=write", "for graph"),
        ("batch,polled=write", "for graph"),
        ("graph,polled,polled=write", "one word"),
    ] {
        let said = opening(&machine, &format!("host->cuda[{form}]->gpu0"));
        assert!(said.contains(why), "{form}: {said}");
    }
    fake::OLD.store(1, Ordering::SeqCst);
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let old = Machine::of_cuda(&unsafe { Cuda::from_symbols(fake::find) }.unwrap()).unwrap();
    fake::OLD.store(0, Ordering::SeqCst);
    for (form, call) in [
        ("batch", "cuMemcpyBatchAsync"),
        ("polled", "cuStreamWriteValue32"),
        ("graph,polled=write", "cuStreamWriteValue32"),
    ] {
        let said = opening(&old, &format!("host->cuda[{form}]->gpu0"));
        assert!(said.contains("this CUDA driver has no") && said.contains(call), "{form}: {said}");
    }
    // A driver that has the function and refuses to run it.
    fake::NO_WRITES.store(801, Ordering::SeqCst);
    for form in ["polled", "batch,polled"] {
        let said = opening(&machine, &format!("host->cuda[{form}]->gpu0"));
        assert!(said.contains("cuStreamWriteValue32_v2: "), "{form}: {said}");
    }
    fake::NO_WRITES.store(900, Ordering::SeqCst);
    let mut route = open(&machine, "host->cuda[graph,polled=write]->gpu0", 64).unwrap();
    assert!(reason(route.prepare(64).err().unwrap()).contains("(900)"));
    drop(route);
    assert!(open(&machine, "host->cuda[polled]->gpu0", 64).is_ok());
    fake::NO_WRITES.store(0, Ordering::SeqCst);
    // Forms that need no new function still work.
    let _running = fake::run_by_itself();
    for form in ["cuda", "cuda[graph]", "cuda[graph,polled]"] {
        let mut route = open(&old, &format!("host->{form}->gpu0"), 64).unwrap();
        assert_eq!(verify(&mut route, 64, 1, TIMEOUT).unwrap(), None, "{form}");
    }
}

#[test]
fn transfers_move_to_other_places_of_their_buffers() {
    let (_one, machine) = start();
    let _running = fake::run_by_itself();
    for name in every_route() {
        let mut route = open(&machine, &name, 1000).unwrap();
        let mut transfer = route.prepare(100).unwrap();
        let moved = transfer.move_to(0, 0);
        if name.contains("graph") {
            assert!(reason(moved.unwrap_err()).contains("addresses that it was made with"), "{name}");
            continue;
        }
        moved::to_other_places(transfer.as_mut(), &name);
    }
}
