//! Work on doorbell channels alongside CUDA's, and CUDA memory that is freed during it. A stand-in for libcuda uses the software GPU's memory,
//! which another client allocates whose driver calls are watched.

#[path = "../../../gpu/machine/tests/fake/mod.rs"]
mod fake;

use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Channel, ChannelOptions, Device, Engine, Entry, Watched, Watching};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use workload::{Checks, Error, Machine, Subject, Wanted, What, Wrong, open};

const TIMEOUT: Duration = Duration::from_secs(20);

fn call(text: &str) -> What {
    What::Call(text.into())
}

fn once(subject: &mut dyn Subject) -> Result<Option<Wrong>, Error> {
    subject.renew()?;
    subject.fire()?;
    subject.wait(TIMEOUT)?;
    subject.check()
}

#[test]
fn concurrent_work_is_right_and_freed_memory_is_refused() {
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    let uuid = theirs.device().uuid();
    let graphics = Channel::new(&theirs, Engine::Graphics, ChannelOptions::default()).unwrap();
    // Small blocks come from one mapping; the driver allocates large ones separately.
    *fake::SOURCE.lock().unwrap() = Some(fake::blocks(&theirs));
    *fake::FREES.lock().unwrap() = Some(Box::new(|base, length| watched.frees(base, length)));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), uuid, Entry::OwnClient).unwrap();
    let group = move || watched.address_space(Arc::new(driver), uuid, Entry::CudasClient);
    let machine = Machine::from(machine::Machine::beside(context, ours).with_group(group));
    let texts = [
        "ce(2)",
        "ce",
        "inline",
        "inline(group=cuda)",
        "bar1",
        "aperture",
        "churn(channels)",
        "churn(pins)",
        "churn(small)",
        "churn",
        "kernels",
        "copies",
    ];
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for (n, text) in texts.into_iter().enumerate() {
            let machine = &machine;
            scope.spawn(move || {
                let mut opened = open(machine, &call(text), &Wanted::of(5000)).unwrap();
                assert!(opened.about().len() > 10, "{text}");
                assert_eq!(opened.verify(n as u64, TIMEOUT).unwrap(), None, "{text}");
                let mut subject = opened.prepare(n as u64 ^ 7).unwrap();
                assert_ne!(subject.checks(), Checks::Nothing, "{text}");
                for unit in 0.. {
                    assert_eq!(once(&mut *subject).unwrap(), None, "{text}, the {unit}th");
                    if unit > 2 && Instant::now() > until {
                        break;
                    }
                }
            });
        }
    });
    // What happens with a driver that reports no frees: the next owner's bytes are compared.
    fake::FREES.lock().unwrap().take();
    let mut opened = open(&machine, &call("churn(small)"), &Wanted::of(0)).unwrap();
    let mut subject = opened.prepare(1).unwrap();
    assert!(matches!(once(&mut *subject), Err(Error::Gone { why: "CUDA has freed" })));
    drop(subject);
    drop(opened);
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
    match open(&machine, &call("ce(60)"), &Wanted::of(0)).err() {
        Some(Error::Unavailable(why)) => assert!(why.reason.contains("no ce60"), "{why}"),
        other => panic!("{other:?}"),
    }
    drop(machine);
    assert_eq!(fake::alive(), [""; 0]);
    drop(fake::SOURCE.lock().unwrap().take());
    drop((graphics, theirs));
}
