//! The routes whose bytes a kernel carries, on CUDA's memory that is the software GPU's. The kernels are functions here. So these
//! tests cover the exchange with them, their grids, rests, limits and errors. `doorbell bench` compares bytes on a real GPU.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;
mod moved;

use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use fake::kernels;
use gpu::{AddressSpace, Device, Entry, Watched, Watching};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use workload::routes::open;
use workload::{Error, Machine, Unavailable, verify};

const TIMEOUT: Duration = Duration::from_secs(10);
/// The process has one stand-in.
static ONE: Mutex<()> = Mutex::new(());

struct Rig {
    machine: Machine,
    _theirs: Arc<AddressSpace>,
    _one: MutexGuard<'static, ()>,
}

fn rig() -> Rig {
    let one = ONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let zero = [&fake::ANSWER_LIMIT, &fake::ANSWER_DEAF, &kernels::IDLE, &kernels::LAUNCHES, &fake::OLD];
    zero.iter().for_each(|counter| counter.store(0, Ordering::SeqCst));
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    *fake::SOURCE.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(fake::blocks(&theirs));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), Entry::OwnClient).unwrap();
    Rig { machine: machine::Machine::beside(context, ours).into(), _theirs: theirs, _one: one }
}

fn refused(machine: &Machine, name: &str) -> String {
    match open(machine, name, 4096) {
        Ok(_) => panic!("{name} opens"),
        Err(Error::Unavailable(Unavailable { reason })) => reason,
        Err(other) => panic!("{name}: {other}"),
    }
}

#[test]
fn kernels_move_every_size_from_and_to_every_place() {
    let rig = rig();
    let _running = fake::run_by_itself();
    for name in [
        "host->sm->gpu0",
        "host[offset=13]->sm[polled]->gpu0[offset=5]",
        "gpu0[offset=8]->sm[polled,blocks=4]->host[offset=4]",
        "gpu0[offset=3]->sm[polled]->gpu0[offset=60]",
        "host->resident->gpu0[offset=7]",
        "gpu0[offset=2]->resident[sm]->host[offset=33]",
        "gpu0->resident[blocks=3]->gpu0",
    ] {
        let mut route = open(&rig.machine, name, 70_001).unwrap();
        for bytes in [1, 4, 15, 16, 17, 31, 56, 4095, 4097, 70_001] {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
        drop(route);
        assert_eq!((fake::alive(), kernels::RUNS.load(Ordering::SeqCst)), (Vec::new(), 0), "{name} left something");
    }
}

#[test]
fn transfers_of_kernels_move_to_other_places() {
    let rig = rig();
    let _running = fake::run_by_itself();
    for name in ["host->sm[polled]->gpu0", "host->resident->gpu0"] {
        let mut route = open(&rig.machine, name, 1000).unwrap();
        let mut transfer = route.prepare(100).unwrap();
        moved::to_other_places(transfer.as_mut(), name);
    }
}

#[test]
fn what_the_launched_kernels_cannot_do_they_say() {
    let rig = rig();
    for (name, why) in [
        ("host[pageable]->sm->gpu0", "pageable"),
        ("host->resident[blocks=17]->gpu0", "1 to 16"),
        ("host->resident[sm,blocks=2]->gpu0", "`sm` is one"),
        ("host->sm->host", "the kernel runs on gpu0"),
        ("host->sm->gpu1", "the kernel runs on gpu0"),
        ("gpu0->sm->gpu1", "gpu1 is not open"),
        ("host->sm[blocks=1+2]->gpu0", "one number of blocks"),
        ("host->sm[blocks=0]->gpu0", "one number of blocks"),
        ("gpu0->resident->host[pageable]", "pageable"),
    ] {
        let said = refused(&rig.machine, name);
        assert!(said.contains(why), "{name}: {said}");
    }
    // The stream's work is not done, so the kernel reports no end.
    let running = fake::run_by_itself();
    let mut route = open(&rig.machine, "host->sm[polled]->gpu0", 4096).unwrap();
    drop(running);
    let mut transfer = route.prepare(4096).unwrap();
    assert!(matches!(transfer.wait(TIMEOUT), Err(Error::Idle)) && !transfer.poll().unwrap());
    transfer.submit().unwrap();
    assert!(!transfer.poll().unwrap());
    assert!(matches!(transfer.wait(Duration::from_millis(5)), Err(Error::Late { bytes: 4096, .. })));
}

#[test]
fn kernels_touch_no_memory_that_they_do_not_reach() {
    let Rig { machine, _theirs, _one } = rig();
    let _running = fake::run_by_itself();
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let machine = machine.with_peer(Machine::of_cuda(&cuda).unwrap());
    for route in ["gpu0->sm->gpu1", "gpu1->resident->gpu0"] {
        let said = refused(&machine, route);
        assert!(said.contains("kernels of gpu0 do not reach the memory of gpu1"), "{said}");
    }
    // The same for an executor that is given memory which its route does not name.
    let end = |text: &str| workload::routes::parse(&format!("{text}->cuda->host")).unwrap().source;
    let near = workload::Buffer::new(&machine, end("gpu0"), 64).unwrap();
    let far = workload::Buffer::new(&machine, end("gpu1"), 64).unwrap();
    for route in ["gpu0->sm->gpu0", "host->resident->gpu0"] {
        let mut executor = workload::routes::executor(&machine, route).unwrap();
        assert!(executor.prepare(workload::Ends::new(&near, &near), 64).is_ok(), "{route}");
        for (from, to) in [(&near, &far), (&far, &near)] {
            let said = executor.prepare(workload::Ends::new(from, to), 64).err().unwrap().to_string();
            assert!(said.contains("do not reach the memory of gpu1"), "{route}: {said}");
        }
    }
    fake::PEERS.store(1, Ordering::SeqCst);
    let mut route = open(&machine, "gpu0[offset=3]->sm[polled]->gpu1", 4097).unwrap();
    assert_eq!(verify(&mut route, 4097, 1, TIMEOUT).unwrap(), None);
    drop(route);
    fake::PEERS.store(0, Ordering::SeqCst);
}

/// Launches, and running kernels.
fn counts() -> (u64, u64) {
    (kernels::LAUNCHES.load(Ordering::SeqCst), kernels::RUNS.load(Ordering::SeqCst))
}

#[test]
fn resident_kernels_run_from_prepare_to_rest_or_drop() {
    let rig = rig();
    let mut route = open(&rig.machine, "host->resident->gpu0", 4096).unwrap();
    assert_eq!(counts(), (1, 0), "tried out when it is opened");
    let mut transfer = route.prepare(4096).unwrap();
    assert!(matches!(transfer.wait(TIMEOUT), Err(Error::Idle)) && !transfer.poll().unwrap());
    for _ in 0..50 {
        transfer.submit().unwrap();
        transfer.wait(TIMEOUT).unwrap();
        assert!(transfer.poll().unwrap());
    }
    assert_eq!(counts(), (2, 1), "one launch for all");
    transfer.rest().unwrap();
    transfer.rest().unwrap();
    assert_eq!(counts(), (2, 0));
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
    assert_eq!(counts(), (3, 1), "woken by the next submission");
    drop(transfer);
    assert_eq!(counts(), (3, 0));
    drop(route);
    assert_eq!(fake::alive(), [""; 0]);
}

#[test]
fn resident_kernels_that_ended_by_themselves_are_launched_again() {
    let rig = rig();
    let mut route = open(&rig.machine, "host->resident->gpu0", 4096).unwrap();
    fake::ANSWER_LIMIT.store(1, Ordering::SeqCst);
    let mut transfer = route.prepare(4096).unwrap();
    while kernels::RUNS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    // They end between the submission and the wait: the wait sends the command to new ones.
    transfer.submit().unwrap();
    while kernels::RUNS.load(Ordering::SeqCst) > 0 {
        std::thread::yield_now();
    }
    fake::ANSWER_LIMIT.store(0, Ordering::SeqCst);
    transfer.wait(TIMEOUT).unwrap();
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
    assert!(transfer.poll().unwrap());
}

#[test]
fn a_command_that_nobody_answers_is_late() {
    let rig = rig();
    let mut route = open(&rig.machine, "host->resident->gpu0", 4096).unwrap();
    let mut transfer = route.prepare(64).unwrap();
    fake::ANSWER_DEAF.store(1, Ordering::SeqCst);
    transfer.submit().unwrap();
    let late = transfer.wait(Duration::from_millis(30));
    assert!(!transfer.poll().unwrap());
    fake::ANSWER_DEAF.store(0, Ordering::SeqCst);
    assert!(matches!(late, Err(Error::Late { bytes: 64, .. })), "{late:?}");
    transfer.wait(TIMEOUT).unwrap();
}

/// Changes a setting while a route is opened.
fn with(setting: &AtomicU64, value: u64, machine: &Machine, name: &str) -> String {
    let before = setting.swap(value, Ordering::SeqCst);
    let said = refused(machine, name);
    setting.store(before, Ordering::SeqCst);
    assert_eq!((fake::alive(), kernels::RUNS.load(Ordering::SeqCst)), (Vec::new(), 0), "{name}");
    said
}

#[test]
fn resident_kernels_are_tried_out_when_the_route_is_opened() {
    let rig = rig();
    fake::ANSWER_LIMIT.store(1_000_000, Ordering::SeqCst);
    let said = with(&fake::ANSWER_DEAF, 1, &rig.machine, "host->resident->gpu0");
    assert!(said.contains("did not answer what was stored through BAR1"), "{said}");
    fake::ANSWER_LIMIT.store(0, Ordering::SeqCst);
    let said = with(&kernels::IDLE, 1, &rig.machine, "host->resident->gpu0");
    assert!(said.contains("had not copied"), "{said}");
}
