//! Which ranges of CUDA's memory can be pinned, and why others cannot. The stand-in for libcuda has the heap, or the software GPU's memory.

mod fake;

use cuda::Cuda;
use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Device, Entry, Watched, Watching};
use machine::{Error, Machine, PinError, Unavailable, pin};
use std::sync::{Arc, Mutex, MutexGuard};

/// The process has one stand-in.
static ONE: Mutex<()> = Mutex::new(());

fn cuda() -> (MutexGuard<'static, ()>, Cuda) {
    let one = poison::ignore(ONE.lock());
    *poison::ignore(fake::SOURCE.lock()) = None;
    // SAFETY: the stand-in's functions have the signatures of the real ones.
    (one, unsafe { Cuda::from_symbols(fake::find) }.unwrap())
}

fn pin_error(machine: &Machine, pointer: u64, length: u64) -> PinError {
    match pin(machine, pointer, length) {
        Err(Error::Pin(error)) => error,
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("{length} bytes at {pointer:#x} were pinned"),
    }
}

#[test]
fn what_cannot_be_pinned_says_why_and_what_to_do() {
    let (_one, cuda) = cuda();
    let why = Unavailable::new("no address space");
    let machine = Machine::new(Err(why.clone()), Ok(cuda.device(0).unwrap().primary_context().unwrap()));
    assert_eq!(pin_error(&machine, 0, 8), PinError::Null);
    let device = fake::plant(fake::Kind::Device { ordinal: 0 }, 4096);
    assert_eq!(pin_error(&machine, device, 0), PinError::Empty { pointer: device });
    let past = PinError::PastEnd { pointer: device + 4000, length: 97, left: 96 };
    assert_eq!(pin_error(&machine, device + 4000, 97), past);
    assert!(past.to_string().contains("96 bytes at most"));
    assert!(matches!(pin_error(&machine, device, u64::MAX), PinError::PastEnd { left: 4096, .. }));
    let host = fake::plant(fake::Kind::Pinned, 4096);
    assert!(matches!(pin_error(&machine, host + 1, 4096), PinError::PastEnd { left: 4095, .. }));
    let managed = fake::plant(fake::Kind::Managed, 4096);
    assert_eq!(pin_error(&machine, managed, 8), PinError::Managed { pointer: managed });
    let other = fake::plant(fake::Kind::Device { ordinal: 3 }, 4096);
    assert_eq!(pin_error(&machine, other, 8), PinError::OtherGpu { pointer: other, found: 3, wanted: 0 });
    let pageable = Box::new(7u64);
    let pointer = std::ptr::from_ref(&*pageable) as u64;
    assert_eq!(pin_error(&machine, pointer, 8), PinError::Pageable { pointer });
    // An address with no mapping, like CUDA's freed memory: the page at 0 is never mapped.
    assert_eq!(pin_error(&machine, 16, 8), PinError::Freed { pointer: 16 });
    // A valid range gets as far as the address space, which this machine does not have.
    for (pointer, length) in [(device, 4096), (device + 4095, 1), (host, 4096)] {
        assert!(matches!(pin(&machine, pointer, length), Err(Error::Unavailable(found)) if found == why));
    }
    [device, host, managed, other].into_iter().for_each(fake::take_back);
}

#[test]
fn pins_end_where_the_allocation_ends_and_not_where_its_pages_do() {
    let (_one, cuda) = cuda();
    let driver = SoftDriver::new(Mode::Strict);
    let watched: &'static Watched = Box::leak(Box::default());
    let theirs = AddressSpace::new(&Device::open(Arc::new(Watching(driver, watched)), 0).unwrap()).unwrap();
    let from = theirs.clone();
    *poison::ignore(fake::SOURCE.lock()) = Some(Box::new(move |kind, _, bytes| {
        let memory = match kind {
            fake::Kind::Device { .. } => from.alloc_video(bytes as u64),
            _ => from.alloc_host(bytes as u64),
        };
        let memory = memory.unwrap();
        (memory.va(), Box::new(memory) as fake::Keep)
    }));
    let context = cuda.device(0).unwrap().primary_context().unwrap();
    let ours = watched.address_space(Arc::new(driver), theirs.device().uuid(), Entry::OwnClient).unwrap();
    let machine = Machine::beside(context, ours);
    for kind in [fake::Kind::Device { ordinal: 0 }, fake::Kind::Pinned] {
        let memory = fake::plant(kind, 5000);
        let pinned = pin(&machine, memory + 10, 4990).unwrap();
        assert_eq!((pinned.va(), pinned.length()), (memory + 10, 4990));
        let space = machine.space().unwrap();
        assert!(space.contains(memory + 10, 4990) && !space.contains(memory + 10, 4991) && !space.contains(memory, 11));
        let past = pin(&machine, memory + 10, 4991).unwrap_err();
        assert!(matches!(past, Error::Pin(PinError::PastEnd { left: 4990, .. })), "{past}");
        fake::take_back(memory);
        assert!(!space.contains(memory + 10, 4990), "freed under the pin");
        let freed = pin(&machine, memory, 1).unwrap_err();
        assert!(matches!(freed, Error::Pin(PinError::Freed { .. })), "{freed}");
    }
}
