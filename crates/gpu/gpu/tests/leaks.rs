//! Channels made and freed in a loop do not leak. The only test of its process: it counts the process's files and mappings.

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Aperture, Bar1Map, Channel, ChannelOptions, Device, Engine, Pushbuffer, Semaphores};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

fn files() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// Mappings of the software GPU's memory; the heap's mappings vary.
fn mappings() -> usize {
    std::fs::read_to_string("/proc/self/maps").unwrap().lines().filter(|line| line.contains("softgpu-")).count()
}

#[test]
fn channels_come_and_go_and_nothing_is_left() {
    let driver = SoftDriver::new(Mode::Strict);
    let empty = (files(), mappings());
    // An attempt that fails leaves no file open.
    assert!(Device::open(Arc::new(driver), 1).is_err());
    assert_eq!((files(), mappings()), empty);
    let device = Device::open(Arc::new(driver), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let semaphores = Semaphores::new(&space).unwrap();
    let ring = || Channel::new(&space, Engine::Copy(0), ChannelOptions::default()).unwrap().gpfifo_va();
    assert_eq!(ring(), 0x2_0060_0000, "where CUDA has its rings");
    let life = || {
        for engine in [Engine::Copy(4), Engine::Graphics] {
            let mut channel = Channel::new(&space, engine, ChannelOptions::default()).unwrap();
            let done = semaphores.alloc().unwrap();
            let mut pushbuffer = Pushbuffer::new(&space, 64).unwrap();
            pushbuffer.host_release(&done, 1).unwrap();
            channel.submit(&pushbuffer.validate(&channel).unwrap()).unwrap();
            done.wait(1, Duration::from_secs(10)).unwrap();
        }
    };
    let touch = || {
        let memory = space.alloc_video(0x4000).unwrap();
        let map = Bar1Map::of(&memory, 0x10, 0x2000).unwrap();
        let mut aperture = Aperture::with_window(&memory, 0x1000).unwrap();
        aperture.write(0, &[7; 0x4000]).unwrap();
        assert_eq!(map.load32(0).unwrap(), 0x0707_0707);
    };
    life();
    touch();
    let standing = driver.machine.bar1_mappings();
    let before = (files(), mappings());
    let first = space.alloc_host(0x1000).unwrap().va();
    for _ in 0..300 {
        life();
        touch();
        assert_eq!(space.alloc_host(0x1000).unwrap().va(), first, "addresses are used again");
    }
    assert_eq!((files(), mappings()), before);
    assert_eq!(driver.machine.bar1_mappings(), standing);
    assert_eq!(driver.counters().channels_created.load(Ordering::Relaxed), 603);
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
    drop((semaphores, space, device));
    let after = (files(), mappings());
    // A usermode page's memory stays with the machine: one file, mapped once.
    assert_eq!(after, (empty.0 + 1, empty.1 + 1));
}
