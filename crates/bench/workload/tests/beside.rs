//! Copies on doorbell channels alongside CUDA's, in many threads. A stand-in for libcuda uses the software GPU's memory,
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

fn once(subject: &mut dyn Subject) -> Result<Option<Wrong>, Error> {
    subject.renew()?;
    subject.fire()?;
    subject.wait(TIMEOUT)?;
    subject.check()
}

#[test]
fn concurrent_copies_are_right() {
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    let uuid = theirs.device().uuid();
    let graphics = Channel::new(&theirs, Engine::Graphics, ChannelOptions::default()).unwrap();
    *fake::SOURCE.lock().unwrap() = Some(fake::blocks(&theirs));
    *fake::FREES.lock().unwrap() = Some(Box::new(|base, length| watched.frees(base, length)));
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    let cuda = unsafe { Cuda::from_symbols(fake::find) }.unwrap();
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), uuid, Entry::OwnClient).unwrap();
    let group = move || watched.address_space(Arc::new(driver), uuid, Entry::CudasClient);
    let machine = Machine::from(machine::Machine::beside(context, ours).with_group(group));
    let routes = [
        "host->ce2->gpu0",
        "gpu0->ce2[pipelined]->host",
        "host->ce0[folded]->gpu0",
        "host->inline->gpu0",
        "host->inline[group=cuda]->gpu0",
        "host->bar1[flush]->gpu0",
        "gpu0->bar1->host",
        "host->aperture->gpu0",
        "host->cuda->gpu0",
        "gpu0->cuda[sync]->host",
    ];
    let until = Instant::now() + Duration::from_secs(2);
    std::thread::scope(|scope| {
        for (n, name) in routes.into_iter().enumerate() {
            let machine = &machine;
            scope.spawn(move || {
                let mut opened = open(machine, &What::Route(name.into()), &Wanted::of(5000)).unwrap();
                assert!(opened.about().len() > 10, "{name}");
                assert_eq!(opened.verify(n as u64, TIMEOUT).unwrap(), None, "{name}");
                let mut subject = opened.prepare(n as u64 ^ 7).unwrap();
                assert_ne!(subject.checks(), Checks::Nothing, "{name}");
                for unit in 0.. {
                    assert_eq!(once(&mut *subject).unwrap(), None, "{name}, the {unit}th");
                    if unit > 2 && Instant::now() > until {
                        break;
                    }
                }
            });
        }
    });
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
    drop(machine);
    assert_eq!(fake::alive(), [""; 0]);
    drop(fake::SOURCE.lock().unwrap().take());
    drop((graphics, theirs));
}
