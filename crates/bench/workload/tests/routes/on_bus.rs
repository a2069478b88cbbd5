//! GPU memory as another device on the bus finds it.

use super::{KIB, TIMEOUT, reason, soft};
use workload::device::OnBus;
use workload::routes::open;
use workload::spec::{End, Host, Memory};
use workload::{Buffer, verify};

fn buffer<'m>(machine: &'m workload::Machine, memory: Memory) -> Buffer<'m> {
    Buffer::new(machine, End { memory, offset: 48 }, 64 * KIB).unwrap()
}

#[test]
fn a_gpus_memory_keeps_its_bus_address_as_long_as_a_target_of_it() {
    let (driver, machine) = soft();
    let gpu = buffer(&machine, Memory::Gpu(0));
    let target = gpu.gpu_target().unwrap();
    let peer = target.peer();
    assert_eq!((peer.what.as_str(), peer.length, peer.device), ("GPU 0", 64 * KIB, None));
    driver.machine.bus_write(peer.bus + 64 * KIB - 5, b"there").unwrap();
    let mut found = [0; 5];
    gpu.read((64 * KIB - 5) as i64, &mut found).unwrap();
    assert_eq!(&found, b"there");
    drop((gpu, target));
    assert!(driver.machine.bus_read(peer.bus, &mut found).is_some(), "a transfer may still come to it");
    let at = peer.bus;
    drop(peer);
    assert!(driver.machine.bus_read(at, &mut found).is_none());
}

#[test]
fn memory_whose_place_on_the_bus_is_unknown_is_no_target() {
    let (_driver, machine) = soft();
    let host = buffer(&machine, Memory::Host(Host::Pinned));
    assert!(reason(host.on_bus().err().unwrap()).contains("not known"));
    assert!(reason(host.gpu_target().unwrap_err()).contains("only pinned memory of the GPU"));
    assert!(matches!(buffer(&machine, Memory::Gpu(0)).on_bus().unwrap(), OnBus::Gpu(_)));
    // Without a card the engine takes the device's place, and any host memory works.
    let mut route = open(&machine, "host->dma->device", 4 * KIB).unwrap();
    assert_eq!(verify(&mut route, 4 * KIB, 1, TIMEOUT).unwrap(), None);
}
