//! Paths A, B and C by the XDMA driver: a card that was written from the product guide, on the bus of the software GPU's memory.

mod placed;

use doorbell_softgpu::{Mode, SoftDriver};
use drivers::xdma::model::Card;
use pcie::Pages;
use pcie::model::{self, ModelBus, Plugged};
use std::fs::File;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;
use workload::device::frames::{Ring, Wanted};
use workload::device_copy::OnBus;
use workload::device_copy::xdma::XdmaCard;
use workload::routes::open;
use workload::spec::Memory;
use workload::{Machine, Subject, verify};

const TIMEOUT: Duration = Duration::from_secs(60);
const KIB: u64 = 1 << 10;
const VIDEO: u64 = 256 << 20;
const OWN: (u64, u64) = (0x1000_0000, 128 << 20);
const PATHS: [&str; 6] = [
    "device->dma->host",
    "host->dma->device",
    "device->staged->gpu0",
    "gpu0->staged->device",
    "device->dma->gpu0",
    "gpu0->dma->device",
];

struct Rig {
    machine: Machine,
    card: Plugged<Card>,
    bus: ModelBus,
    driver: SoftDriver,
}

fn rig(pages: Pages) -> Rig {
    // SAFETY: a name that ends in NUL, and a new descriptor that only this call has.
    let file = unsafe { OwnedFd::from_raw_fd(libc::memfd_create(c"video".as_ptr(), libc::MFD_CLOEXEC)) };
    let file: OwnedFd = File::from(file).into();
    File::from(file.try_clone().unwrap()).set_len(VIDEO).unwrap();
    let bus = ModelBus::new(pages);
    let (peer, _) = bus.peer_of(&file, VIDEO).unwrap();
    let driver = SoftDriver::with_video(Mode::Strict, file.as_fd(), peer.bus).unwrap();
    let (function, card) = model::plug(Card::new(OWN.0, OWN.1), &bus);
    let on_bus = OnBus::new(XdmaCard::new(function, OWN).unwrap(), peer);
    let machine = Machine::of_driver(Arc::new(driver), false).unwrap().with_card(Arc::new(on_bus));
    Rig { machine, card, bus, driver }
}

impl Rig {
    fn is_right(&self) {
        self.card.with(|card| assert_eq!(card.violations, Vec::<String>::new()));
        assert_eq!(self.bus.wild(), []);
        assert_eq!(self.driver.counters().faults.load(std::sync::atomic::Ordering::Relaxed), 0);
    }

    fn takes_every_path(&self, sizes: &[u64]) {
        for name in PATHS {
            let mut route = open(&self.machine, name, *sizes.iter().max().unwrap()).unwrap();
            for &bytes in sizes {
                assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
            }
        }
        self.is_right();
    }
}

#[test]
fn every_path_moves_what_it_should() {
    for pages in [Pages::Together, Pages::Scattered] {
        rig(pages).takes_every_path(&[1, 4 * KIB, 5003, 64 * KIB]);
    }
    let rig = rig(Pages::Together);
    let about = workload::routes::about(&rig.machine, "device->dma->gpu0").unwrap();
    assert!(about.contains("the XDMA card at ffff:00:00.0 is the device, emulated"), "{about}");
    assert!(rig.machine.card().unwrap().is_functional());
}

#[test]
#[ignore = "the whole table of a GPU Direct test, seconds; run by .ci/run"]
fn every_path_moves_every_size() {
    for pages in [Pages::Together, Pages::Scattered] {
        rig(pages).takes_every_path(&[4 * KIB, 64 * KIB, 512 * KIB, 1 << 20, 4 << 20, 8 << 20]);
    }
}

#[test]
fn buffers_take_turns_and_any_place_will_do() {
    let rig = rig(Pages::Together);
    let mut route = open(&rig.machine, "device->dma[buffers=4]->gpu0", 70_000).unwrap();
    assert_eq!(verify(&mut route, 70_000, 3, TIMEOUT).unwrap(), None);
    drop(route);
    let wanted = Wanted { bytes: 64 * KIB, buffers: 4, to: Memory::Gpu(0), consume: Duration::ZERO };
    let mut ring = Ring::new(&rig.machine, workload::device::open(&rig.machine).unwrap(), wanted).unwrap();
    let mut frames = ring.run(5).unwrap();
    for _ in 0..12 {
        frames.fire().unwrap();
        frames.wait(TIMEOUT).unwrap();
        assert_eq!(frames.check().unwrap(), None);
    }
    drop(frames);
    drop(ring);
    let (capacity, bytes) = (16 << 20, 4099);
    let mut route = open(&rig.machine, "device->dma->gpu0", capacity).unwrap();
    let mut transfer = route.prepare(bytes).unwrap();
    placed::in_random_places(transfer.as_mut(), capacity, bytes, 40, "device->dma->gpu0", TIMEOUT);
    drop(transfer);
    drop(route);
    rig.is_right();
}

/// A card has one engine: a pending frame, another user's transfers, and comparisons of the card's memory take turns.
#[test]
fn those_who_share_a_card_take_turns() {
    let rig = rig(Pages::Together);
    let wanted = Wanted { bytes: 16 * KIB, buffers: 4, to: Memory::Gpu(0), consume: Duration::ZERO };
    let mut ring = Ring::new(&rig.machine, workload::device::open(&rig.machine).unwrap(), wanted).unwrap();
    let mut frames = ring.run(5).unwrap();
    let mut route = open(&rig.machine, "device->dma->gpu0", 5000).unwrap();
    for n in 0..6 {
        frames.fire().unwrap();
        frames.wait(TIMEOUT).unwrap();
        // By now the next frame is pending.
        assert_eq!(verify(&mut route, 5000, n, TIMEOUT).unwrap(), None);
        assert_eq!(frames.check().unwrap(), None);
    }
    rig.is_right();
}

/// A job that waits for another job's transfer continues when that transfer fails; the other job gets the error.
#[test]
fn a_transfer_that_fails_is_told_to_its_own_job() {
    use workload::spec::End;
    let rig = rig(Pages::Together);
    let buffer = |memory| workload::Buffer::new(&rig.machine, End { memory, offset: 0 }, 4 * KIB).unwrap();
    let (own, gpu) = (buffer(Memory::Device), buffer(Memory::Gpu(0)));
    let mut devices = [workload::device::open(&rig.machine).unwrap(), workload::device::open(&rig.machine).unwrap()];
    let handles = devices.each_mut().map(|device| (device.pin(&own).unwrap(), device.pin(&gpu).unwrap()));
    let [one, two] = &mut devices;
    let mut first = one.job(handles[0].0, handles[0].1, 4 * KIB).unwrap();
    let mut second = two.job(handles[1].0, handles[1].1, 4 * KIB).unwrap();
    let fetched = rig.card.with(|card| card.fetched);
    rig.card.with(|card| card.faults.descriptor_error = Some(fetched as u32));
    first.start(0, 0).unwrap();
    second.start(0, 0).unwrap();
    second.wait(TIMEOUT).unwrap();
    let error = first.wait(TIMEOUT).unwrap_err().to_string();
    assert!(error.contains("completer abort while a descriptor was read"), "{error}");
    assert!(matches!(first.wait(TIMEOUT), Err(workload::Error::Idle)));
    first.start(0, 0).unwrap();
    first.wait(TIMEOUT).unwrap();
}

/// The GPU's memory is freed while the card still copies: the bus address stays valid until the card is done.
#[test]
fn a_target_outlives_its_buffer() {
    use workload::Buffer;
    use workload::spec::End;
    let rig = rig(Pages::Together);
    let buffer = |memory| Buffer::new(&rig.machine, End { memory, offset: 0 }, 4 * KIB).unwrap();
    let (own, gpu) = (buffer(Memory::Device), buffer(Memory::Gpu(0)));
    own.write(0, &[7; 4096]).unwrap();
    let mut device = workload::device::open(&rig.machine).unwrap();
    let (from, to) = (device.pin(&own).unwrap(), device.pin(&gpu).unwrap());
    let standing = rig.driver.machine.bar1_mappings().0;
    let mut job = device.job(from, to, 4 * KIB).unwrap();
    rig.card.with(|card| card.faults.stalled = true);
    job.start(0, 0).unwrap();
    drop(gpu);
    assert_eq!(rig.driver.machine.bar1_mappings().0, standing, "the card may still come to it");
    rig.card.with(|card| card.go_on(&rig.bus));
    job.wait(TIMEOUT).unwrap();
    drop(job);
    device.unpin(to).unwrap();
    assert_eq!(rig.driver.machine.bar1_mappings().0, standing - 2, "the card's map, and the CPU's own");
    rig.is_right();
}
