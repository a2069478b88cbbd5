//! NVMe drives that QEMU emulates: reads of several queues into host memory and into the peer's BAR, with every byte compared. Only functional: no
//! rates.

use drivers::nvme::Controller;
use pcie::qemu::{Machine, PROGRAM};
use std::time::Duration;
use workload::Error;
use workload::saturate::Burst;
use workload::saturate::source::{Shape, Source, Target};
use workload::saturate::sources::nvme::{Behind, Drive, Drives, Gpu};
use workload::saturate::walk::fill;
use workload::saturate::way::Way;

const PEER: u64 = 4 << 20;
const IMAGE: usize = 4 << 20;
/// These drives move 8 KiB per command: such an I/O consists of two.
const LONG: [(Target, u32, u64); 2] = [(Target::Host, 1, 16 << 10), (Target::Gpu, 4, 16 << 10)];

/// The BAR's memory, which the machine shares.
struct Bar(*mut u8);

impl Bar {
    fn slice(&mut self, at: u64, bytes: usize) -> &mut [u8] {
        assert!(at + bytes as u64 <= PEER);
        // SAFETY: within the peer's memory, which the machine keeps during the test; nothing is in flight.
        unsafe { std::slice::from_raw_parts_mut(self.0.add(at as usize), bytes) }
    }
}

impl Behind for Bar {
    fn write(&mut self, at: u64, bytes: &[u8]) -> Result<(), Error> {
        self.slice(at, bytes.len()).copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(self.slice(at, into.len()));
        Ok(())
    }
}

fn shape_of(target: Target, bytes: u64, batch: u32) -> Shape {
    Shape {
        target,
        armed: false,
        devices: 1,
        queues: 2,
        depth: 8,
        bytes,
        part: bytes << 5,
        batch,
        way: Way::default(),
        seed: 1,
    }
}

#[test]
fn reads_of_two_queues_arrive_in_host_memory_and_in_the_bar() {
    if !test_support::installed(PROGRAM) {
        test_support::skip!("{PROGRAM} is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    let mut bytes = vec![0; IMAGE];
    fill(&mut bytes, 11, 0);
    std::fs::write(&image, bytes).unwrap();
    let drive = format!("file={},if=none,id=d0,format=raw,cache=unsafe", image.display());
    let device = "nvme,id=nvme0,drive=d0,serial=doorbell,logical_block_size=512,physical_block_size=512,mdts=1";
    let machine = Machine::builder().peer_memory(PEER).drive(drive).device(device).start().unwrap();
    let controller = Controller::open(machine.function("nvme0").unwrap()).unwrap();
    let namespace = controller.namespace(1).unwrap();
    let (peer, at) = machine.peer();
    let gpu = Gpu { peer, memory: Box::new(Bar(at.as_ptr())) };
    let mut drives = Drives::new(vec![Drive { controller, namespace }], Some(gpu), Duration::from_secs(20));
    assert!(drives.about().contains("QEMU"));
    for (target, batch, size) in
        [(Target::Host, 1, 512), (Target::Gpu, 1, 4096), (Target::Gpu, 4, 512), LONG[0], LONG[1]]
    {
        // Two laps and more: both images of every block.
        let mut burst = Burst::open(&mut drives, &shape_of(target, size, batch), 1).unwrap();
        burst.run(80, Duration::from_secs(30)).unwrap();
        let checked = burst.check().unwrap();
        assert_eq!((checked.wrong, checked.blocks, burst.submitted()), (0, 64, 160), "{checked:?}");
    }
    let large = Shape { queues: 1, part: 4 << 20, ..shape_of(Target::Host, 512, 1) };
    let why = drives.open(&large).map(drop).unwrap_err().to_string();
    assert!(why.contains("on a namespace of"), "{why}");
}
