//! NVMe drives that QEMU emulates: reads of several queues into host memory and into the peer's BAR, with every byte compared. Only functional: no
//! rates.

use drivers::nvme::{Controller, Word};
use measure::clock::Clock;
use pcie::qemu::{Machine, PROGRAM};
use saturate::Error;
use saturate::cell::{Cell, run};
use saturate::link::Access;
use saturate::source::{Flow, Operation, Shape, Source, Target};
use saturate::sources::nvme::{Behind, Drive, Drives, Gpu};
use saturate::walk::fill;
use saturate::way::Way;
use saturate::wire::Uncounted;
use saturate::worker::Limits;
use std::time::Duration;

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

fn shape_of(flow: Flow, bytes: u64, batch: u32) -> Shape {
    Shape { flow, devices: 1, queues: 2, depth: 8, bytes, part: bytes << 5, batch, way: Way::default(), seed: 1 }
}

fn cell(shape: Shape) -> Cell {
    Cell {
        shape,
        threads: 1,
        cpus: Vec::new(),
        duration: Duration::from_millis(10),
        // Two laps: both images of every block.
        limits: Limits { warm_ios: 80, patience: Duration::from_secs(30) },
        every: Duration::from_millis(10),
    }
}

#[test]
fn writes_arrive_on_the_drive_with_leave_and_nowhere_else() {
    if !test_support::installed(PROGRAM) {
        test_support::skip!("{PROGRAM} is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let image = dir.path().join("image");
    std::fs::write(&image, vec![0x5a; IMAGE]).unwrap();
    let drive = format!("file={},if=none,id=d0,format=raw,cache=unsafe", image.display());
    let device = "nvme,id=nvme0,drive=d0,serial=doorbell,logical_block_size=512,physical_block_size=512,mdts=1";
    let machine = Machine::builder().machine("q35").peer_memory(PEER).drive(drive).device(device).start().unwrap();
    let controller = Controller::open(machine.function("nvme0").unwrap()).unwrap();
    let namespace = controller.namespace(1).unwrap();
    let mut drive = Drive { controller, namespace, leave: None };
    drive.ask(&Word { destroy: vec!["unknown".into()], ..Word::of("qemu") }).unwrap();
    let (peer, at) = machine.peer();
    let gpu = Gpu { peer, memory: Box::new(Bar(at.as_ptr())) };
    let mut drives = Drives::new(vec![drive], Some(gpu), Duration::from_secs(20));
    let mut written = 0;
    for (target, batch, size) in
        [(Target::Host, 1, 512), (Target::Gpu, 1, 4096), (Target::Gpu, 4, 512), LONG[0], LONG[1]]
    {
        let flow = Flow { operation: Operation::Write, ..Flow::to(target) };
        assert_eq!(drives.traffic(flow).map(|traffic| traffic.access), (target == Target::Gpu).then_some(Access::Read));
        let shape = shape_of(flow, size, batch);
        let outcome = run(&mut drives, &cell(shape), &Clock::monotonic_raw(), &mut Uncounted).unwrap();
        // Both images of 32 blocks of two queues: each had two and a half laps.
        let found = (outcome.checked.wrong, outcome.refused(), outcome.checked.blocks);
        assert_eq!(found, (0, 0, 128), "{:?}", outcome.checked);
        written = written.max(2 * 2 * shape.part as usize);
    }
    drop(drives);
    drop(machine);
    // In the image file: other bytes where the I/Os wrote, and the earlier ones after that.
    let bytes = std::fs::read(&image).unwrap();
    assert!(bytes[..written].chunks(512).all(|block| block != [0x5a; 512]));
    assert!(bytes[written..].iter().all(|byte| *byte == 0x5a));
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
    let machine = Machine::builder().machine("q35").peer_memory(PEER).drive(drive).device(device).start().unwrap();
    let controller = Controller::open(machine.function("nvme0").unwrap()).unwrap();
    let namespace = controller.namespace(1).unwrap();
    let (peer, at) = machine.peer();
    let gpu = Gpu { peer, memory: Box::new(Bar(at.as_ptr())) };
    let mut drive = Drive { controller, namespace, leave: None };
    // The rule of `doorbell nvme write`: no permission, a permission for another drive, a drive with data on it.
    let word = |device: Option<&str>| Word { device: device.map(Into::into), ..Word::of("qemu") };
    for (said, why) in [(None, "you have not confirmed"), (Some("0000:04:00.0"), "your word is for 0000:04:00.0")] {
        let refused = drive.ask(&word(said)).unwrap_err().to_string();
        assert!(refused.contains(why) && refused.contains("--i-mean-to-overwrite qemu"), "{refused}");
    }
    let mut drives = Drives::new(vec![drive], Some(gpu), Duration::from_secs(20));
    assert!(drives.is_functional() && drives.about().contains("QEMU"));
    assert!(drives.traffic(Flow::to(Target::Host)).is_none(), "it does not cross the GPU's link");
    for (target, batch, size) in
        [(Target::Host, 1, 512), (Target::Gpu, 1, 4096), (Target::Gpu, 4, 512), LONG[0], LONG[1]]
    {
        let cell = cell(shape_of(Flow::to(target), size, batch));
        let outcome = run(&mut drives, &cell, &Clock::monotonic_raw(), &mut Uncounted).unwrap();
        assert_eq!(
            (outcome.checked.wrong, outcome.refused(), outcome.checked.blocks),
            (0, 0, 64),
            "{:?}",
            outcome.checked
        );
        assert!(outcome.submitted >= 160);
    }
    // Nothing is written without leave.
    let to_drive = |target| Flow { operation: Operation::Write, ..Flow::to(target) };
    let refused = shape_of(to_drive(Target::Host), 512, 1);
    assert!(drives.open(&refused).map(drop).unwrap_err().to_string().contains("no option allows"));
    let shape = Shape {
        flow: Flow::to(Target::Host),
        devices: 1,
        queues: 1,
        depth: 8,
        bytes: 512,
        part: 4 << 20,
        batch: 1,
        way: Way::default(),
        seed: 1,
    };
    let why = drives.open(&shape).map(drop).unwrap_err().to_string();
    assert!(why.contains("on a namespace of"), "{why}");
}
