//! Memory of CUDA's that goes away under our own transfers, and a channel in CUDA's group: a stand-in for libcuda whose memory
//! is the software GPU's, allocated by another client whose driver calls are watched.

#[path = "../../copy/tests/fake/mod.rs"]
mod fake;

use copy::Machine;
use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device, Entry, Watched, Watching};
use lab::beside::{self, Account, End, Plan};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[test]
fn what_goes_away_in_flight_is_waited_for_and_then_refused() {
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    let uuid = theirs.device().uuid();
    // Small blocks come out of one mapping, large ones are the driver's.
    *fake::SOURCE.lock().unwrap() = Some(fake::blocks(&theirs));
    *fake::FREES.lock().unwrap() = Some(Box::new(|base, length| watched.frees(base, length)));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), uuid, Entry::OwnClient).unwrap();
    let group = move || watched.address_space(Arc::new(driver), uuid, Entry::CudasClient);
    let machine = Arc::new(Machine::beside(context, ours).with_group(group));
    let plan = Plan { duration: Duration::from_secs(4), patience: Duration::from_secs(20), capacity: 5000, seed: 3 };
    let names = [
        "ce2 (asynchronous)",
        "inline",
        "bar1",
        "channels made and gone",
        "memory freed in flight",
        "small blocks freed",
    ];
    let jobs = beside::jobs(&machine, &plan).into_iter().filter(|job| names.contains(&job.name.as_str())).collect();
    let outcome = beside::run(jobs, &plan, |_| {}, || {});
    let account = |name: &str| -> &Account { outcome.accounts.iter().find(|a| a.name == name).unwrap() };
    for name in names {
        let account = account(name);
        assert!(account.end == End::Done && account.rounds > 0, "{account:?}");
    }
    // Each allocation is refused once it is no longer pinned, and before that already where CUDA has freed it.
    let freed = account("memory freed in flight");
    assert!(freed.stale >= freed.rounds, "{freed:?}");
    let small = account("small blocks freed");
    assert!(small.stale >= small.rounds, "{small:?}");
    assert!(!small.notes.iter().any(|n| n.contains(", 0 given out again")), "{small:?}");
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
    drop(machine);
    assert_eq!(fake::alive(), [""; 0]);
    drop((fake::SOURCE.lock().unwrap().take(), fake::FREES.lock().unwrap().take()));
    drop(theirs);
}
