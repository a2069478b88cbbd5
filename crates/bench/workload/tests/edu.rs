//! Paths A, B and C by a device that masters the bus: QEMU's edu, whose own DMA writes into the software GPU's buffers at their bus
//! addresses in BAR1. These tests do not measure speed.

mod placed;

use doorbell_softgpu::{Mode, SoftDriver};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;
use workload::device::OnBus;
use workload::device::frames::{Ring, Wanted};
use workload::device_copy::Emulated;
use workload::device_copy::emulated::Sizes;
use workload::routes::{names, open};
use workload::spec::{End, Host, Memory};
use workload::{Buffer, Error, Inspect, Machine, Opened, Route, Subject, verify};

const TIMEOUT: Duration = Duration::from_secs(60);
const KIB: u64 = 1 << 10;
const PATHS: [&str; 6] = [
    "device->dma->host",
    "host->dma->device",
    "device->staged->gpu0",
    "gpu0->staged->device",
    "device->dma->gpu0",
    "gpu0->dma->device",
];

macro_rules! needs_qemu {
    () => {
        if !test_support::installed(pcie::qemu::PROGRAM) {
            test_support::skip!("{} is not installed", pcie::qemu::PROGRAM);
        }
    };
}

/// A card and a GPU of one machine.
fn machine() -> (SoftDriver, Machine) {
    let emulated = Emulated::start(Sizes { own: 256 << 20, video: 256 << 20 }).unwrap();
    let driver = SoftDriver::with_video(Mode::Strict, emulated.video.as_fd(), emulated.bus).unwrap();
    (driver, Machine::of_driver(Arc::new(driver), false).unwrap().with_card(emulated.card))
}

fn every_path(machine: &Machine, paths: &[&str], sizes: &[u64]) {
    for name in paths {
        let mut route = open(machine, name, *sizes.iter().max().unwrap()).unwrap();
        for &bytes in sizes {
            assert_eq!(verify(&mut route, bytes, bytes, TIMEOUT).unwrap(), None, "{name}, {bytes} bytes");
        }
    }
}

#[test]
fn the_cards_dma_takes_every_path_byte_for_byte() {
    needs_qemu!();
    let (driver, machine) = machine();
    every_path(&machine, &PATHS, &[1, 5003]);
    every_path(&machine, &["device[offset=3]->dma->gpu0[offset=261]", "host[offset=9]->dma->device"], &[4099]);
    assert_eq!(driver.counters().faults.load(std::sync::atomic::Ordering::Relaxed), 0);
    for listed in names(&machine) {
        let of_device = listed.name.contains("device");
        assert_eq!(listed.about.contains("QEMU's edu at 0000:00:"), of_device, "{}: {}", listed.name, listed.about);
    }
}

#[test]
#[ignore = "ten seconds; run by .ci/run"]
fn the_cards_dma_takes_every_path_at_every_size() {
    needs_qemu!();
    let (_driver, machine) = machine();
    for name in PATHS {
        // The card needs its time for each piece, and there are 4,100 in 8 MiB: back, only C copies that much.
        let most = if name.starts_with("device") || name.contains("dma->device") && name.starts_with("gpu") {
            8 << 20
        } else {
            1 << 20
        };
        let mut route = open(&machine, name, most).unwrap();
        for bytes in [4 * KIB, 64 * KIB, 512 * KIB, 1 << 20, 4 << 20, 8 << 20] {
            if bytes <= most {
                arrives(&mut route, bytes);
            }
        }
    }
}

/// One transfer; every byte of it and its neighbours are compared.
fn arrives(route: &mut Route<'_>, bytes: u64) {
    const BESIDE: usize = 64;
    let sent: Vec<u8> = (0..bytes).map(|at| (at * 31 + (at >> 12) * 7 + bytes) as u8).collect();
    route.ends().write_source(0, &sent).unwrap();
    let mut found = vec![0xee; bytes as usize + 2 * BESIDE];
    route.ends().write_destination(-(BESIDE as i64), &found).unwrap();
    let mut transfer = route.prepare(bytes).unwrap();
    transfer.submit().unwrap();
    transfer.wait(TIMEOUT).unwrap();
    drop(transfer);
    found.fill(0);
    route.ends().read_destination(-(BESIDE as i64), &mut found).unwrap();
    let (front, rest) = found.split_at(BESIDE);
    let (moved, behind) = rest.split_at(bytes as usize);
    assert!(moved == sent, "{}, {bytes} bytes", route.name());
    assert!(front.iter().chain(behind).all(|byte| *byte == 0xee), "{}, {bytes} bytes and more", route.name());
}

/// Buffers in turn, each with its own bytes.
#[test]
#[ignore = "starts a QEMU of its own; run by .ci/run"]
fn what_is_read_goes_to_one_buffer_after_the_other() {
    needs_qemu!();
    let (_driver, machine) = machine();
    for (name, bytes) in [("device->dma[buffers=4]->gpu0", 5000), ("device->dma[buffers=2]->host", 300)] {
        let mut route = open(&machine, name, bytes).unwrap();
        assert_eq!(verify(&mut route, bytes, 3, TIMEOUT).unwrap(), None, "{name}");
    }
    for to in [Memory::Gpu(0), Memory::Host(Host::Pinned)] {
        let wanted = Wanted { bytes: 8 * KIB, buffers: 4, to, consume: Duration::ZERO };
        let mut ring = Ring::new(&machine, workload::device::open(&machine).unwrap(), wanted).unwrap();
        assert!(ring.about().contains("edu"), "{}", ring.about());
        let mut frames = ring.run(5).unwrap();
        for _ in 0..6 {
            frames.fire().unwrap();
            frames.wait(TIMEOUT).unwrap();
            assert_eq!(frames.check().unwrap(), None);
        }
        assert_eq!(frames.taken(), 6);
    }
}

/// Anywhere in the card's memory and in the GPU's.
#[test]
#[ignore = "starts a QEMU of its own; run by .ci/run"]
fn it_does_not_matter_where_the_bytes_are() {
    needs_qemu!();
    let (_driver, machine) = machine();
    let capacity = 32 << 20;
    for (name, bytes) in [("device->dma->gpu0", 4 * KIB), ("gpu0->dma->device", 777), ("device->staged->gpu0", 777)] {
        let mut route = open(&machine, name, capacity).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        placed::in_random_places(transfer.as_mut(), capacity, bytes, 8, name, TIMEOUT);
        for (from, to) in [(capacity - bytes + 1, 0), (0, capacity - bytes + 1)] {
            assert!(matches!(transfer.move_to(from, to), Err(Error::Capacity { .. })), "{name}");
        }
    }
}

#[test]
fn what_the_card_does_not_reach_says_why() {
    needs_qemu!();
    let (_driver, machine) = machine();
    let refused = |name: &str, bytes| match open(&machine, name, bytes).err() {
        Some(Error::Unavailable(why)) => why.reason,
        other => panic!("{name}: {other:?}"),
    };
    assert!(
        refused("device->dma->host[wc]", 64).contains("CUDA") || refused("device->dma->host[wc]", 64).contains("alone")
    );
    assert!(refused("device->dma->gpu0", 512 << 20).contains("own memory, which has"), "more than the card has");
    assert!(refused("device->ce0->gpu0", 64).contains("use dma or staged"));
    let mut device = workload::device::open(&machine).unwrap();
    let any = Buffer::new(&machine, End { memory: Memory::Host(Host::Pinned), offset: 0 }, 64).unwrap();
    assert!(matches!(device.pin(&any), Err(Error::Unavailable(_))), "nobody knows where it is on the bus");
    // Another machine's GPU: its memory is elsewhere on the bus.
    let other = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Strict)), false).unwrap();
    let foreign = Buffer::new(&other, End { memory: Memory::Gpu(0), offset: 0 }, 64).unwrap();
    let said = device.pin(&foreign).unwrap_err().to_string();
    assert!(said.contains("cannot reach GPU 0") && said.ends_with("device->staged->gpu0"), "{said}");
    let own = Buffer::new(&machine, End { memory: Memory::Device, offset: 0 }, 64).unwrap();
    let gpu = Buffer::new(&machine, End { memory: Memory::Gpu(0), offset: 0 }, 32).unwrap();
    let (from, to) = (device.pin(&own).unwrap(), device.pin(&gpu).unwrap());
    assert!(matches!(device.job(from, to, 33).err(), Some(Error::Capacity { capacity: 32, .. })));
    let mut job = device.job(from, to, 16).unwrap();
    assert!(matches!(job.wait(TIMEOUT), Err(Error::Idle)));
    assert!(matches!(job.start(0, 17), Err(Error::Capacity { .. })));
    drop(job);
    device.unpin(to).unwrap();
    assert!(matches!(device.job(from, to, 1).err(), Some(Error::Unpinned)));
    assert!(machine.card().unwrap().is_functional());
    assert!(matches!(own.on_bus().unwrap(), OnBus::Own(_)));
}

/// A program for host buffers on a card that masters the bus, with the card's own addresses.
#[test]
#[ignore = "starts a QEMU of its own; run by .ci/run"]
fn two_lines_of_settings_take_the_direct_path() {
    use workload::device::transfers::{Mode, Settings, Transfers};
    needs_qemu!();
    let (_driver, machine) = machine();
    let sent: Vec<u8> = (0..9000u32).map(|at| (at * 7 + at / 256) as u8).collect();
    for (mode, about) in [(Mode::Host, "by way of host memory"), (Mode::GpuPinned, "straight to GPU 0")] {
        let own = Buffer::of_card(&machine).unwrap();
        own.write(12_345, &sent).unwrap();
        let mut transfers = Transfers::new(&machine, Settings { mode, gpu: 0 }, own).unwrap();
        let frame = transfers.frame(9000).unwrap();
        assert!(transfers.about().starts_with(about), "{}", transfers.about());
        transfers.read(frame, 12_345, 9000).unwrap();
        transfers.upload(frame, 9000).unwrap();
        let mut found = vec![0; 9000];
        transfers.gpu(frame).unwrap().read(0, &mut found).unwrap();
        assert!(found == sent, "{mode:?}");
        transfers.download(frame, 9000).unwrap();
        transfers.write(frame, 1 << 20, 9000).unwrap();
        transfers.own().read(1 << 20, &mut found).unwrap();
        assert!(found == sent, "{mode:?}, back");
    }
}

/// A GPU that is on no bus of the card: the program uses the host instead, and reports why.
#[test]
#[ignore = "starts a QEMU of its own; run by .ci/run"]
fn where_the_card_does_not_reach_the_gpu_the_host_is_the_way() {
    use workload::device::transfers::{Mode, Settings, Transfers};
    needs_qemu!();
    let emulated = Emulated::start(Sizes { own: 16 << 20, video: 1 << 20 }).unwrap();
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(doorbell_softgpu::Mode::Strict)), false)
        .unwrap()
        .with_card(emulated.card);
    let own = Buffer::new(&machine, End { memory: Memory::Device, offset: 0 }, 4096).unwrap();
    own.write(0, &[3; 4096]).unwrap();
    let mut transfers = Transfers::new(&machine, Settings { mode: Mode::GpuPinned, gpu: 0 }, own).unwrap();
    let frame = transfers.frame(4096).unwrap();
    transfers.read(frame, 0, 4096).unwrap();
    transfers.upload(frame, 4096).unwrap();
    let mut found = vec![0; 4096];
    transfers.gpu(frame).unwrap().read(0, &mut found).unwrap();
    assert!(found.iter().all(|byte| *byte == 3));
    assert_eq!(transfers.mode(), Mode::Host);
    assert!(
        transfers.about().contains("no direct path was possible") && transfers.about().contains("cannot reach GPU 0")
    );
}
