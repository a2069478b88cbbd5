//! Failures on QEMU's controller: each returns a clear error, overwrites no memory afterwards, and does not hang.

mod support;

use drivers::nvme::{
    self, Controller, Depth, Done, Error, Lost, Outcome, Overwrite, Piece, SlotError, Unfit, Unusable, Word,
};
use pcie::qemu::Machine;
use std::time::{Duration, Instant};
use support::{Image, known, loaded, machine, one, open, queue, read, reap_all};

const SECOND: Duration = Duration::from_secs(1);

/// The first command passes, the next ones wait until the throttle is taken away: longer than any test.
fn throttled(image: &Image) -> String {
    format!("{},throttling.bps-total=1", image.drive())
}

fn unthrottle(machine: &Machine) {
    machine.monitor("block_set_io_throttle d0 0 0 0 0 0 0").unwrap();
}

#[test]
fn injected_errors_are_told_by_name() {
    needs_qemu!();
    let image = Image::new(1 << 20, 1);
    let drive = format!(
        "if=none,id=d0,driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={},\
         file.inject-error.0.event=none,file.inject-error.0.iotype=read,file.inject-error.0.sector=64,\
         file.inject-error.0.errno=5,file.inject-error.1.event=none,file.inject-error.1.iotype=write,\
         file.inject-error.1.sector=128,file.inject-error.1.errno=5",
        image.path.display()
    );
    let machine = machine(drive, 512, "").start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = queue(&controller, 2);
    let memory = controller.allocate(8192).unwrap();
    queue.prepare(0, &[Piece::new(&memory, 0, 512)]).unwrap();
    let failed = queue.complete(0, &namespace.read(64, 1).unwrap()).unwrap_err();
    assert!(failed.to_string().starts_with("Read: Unrecovered Read Error (media 81h"), "{failed}");
    assert!(failed.to_string().contains("SMART"), "{failed}");
    // For a stretch the error names the blocks.
    let stretch = nvme::transfer::Stretch { block: 60, bytes: 4096, memory: &memory, offset: 0 };
    let failed = nvme::transfer::read(&mut queue, &namespace, &stretch).unwrap_err().to_string();
    assert!(failed.starts_with("Read of blocks 60 to 67: Unrecovered Read Error"), "{failed}");
    // Its neighbours are readable, before and after.
    for block in [63, 65] {
        read(&mut queue, &namespace, block, &memory, 0, 512);
        assert_eq!(loaded(&memory, 0, 512), known(1, block * 512, 512));
    }
    // The same among other commands in flight: each has its own bytes and the right outcome, and the bytes between are unchanged.
    memory.store(0, &[0xee; 8192]).unwrap();
    let mut eight = support::queue(&controller, 8);
    let commands: Vec<_> = (0..8).map(|slot| (slot, namespace.read(60 + u64::from(slot), 1).unwrap())).collect();
    for slot in 0..8 {
        eight.prepare(slot, &[Piece::new(&memory, u64::from(slot) * 1024, 512)]).unwrap();
    }
    eight.submit_batch(&commands).unwrap();
    for done in reap_all(&mut eight) {
        let (slot, block) = (u64::from(done.slot), 60 + u64::from(done.slot));
        assert_eq!(done.is_success(), block != 64, "{done:?}");
        if done.is_success() {
            assert_eq!(loaded(&memory, slot * 1024, 512), known(1, block * 512, 512));
        }
        assert_eq!(loaded(&memory, slot * 1024 + 512, 512), [0xee; 512]);
    }
    let word = Word { destroy: vec!["unknown".into()], ..Word::of("qemu") };
    let refused = Overwrite::ask(&controller, &mut queue, &namespace, &word).unwrap_err();
    assert!(matches!(refused, Error::Failed { .. }), "what cannot be looked at is not written to: {refused}");
}

#[test]
fn a_write_that_fails_is_told_by_name() {
    needs_qemu!();
    let image = Image::new(1 << 20, 1);
    let drive = format!(
        "if=none,id=d0,driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={},\
         file.inject-error.0.event=none,file.inject-error.0.iotype=write,file.inject-error.0.sector=128,\
         file.inject-error.0.errno=5",
        image.path.display()
    );
    let machine = machine(drive, 512, "").start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = queue(&controller, 2);
    let memory = controller.allocate(4096).unwrap();
    let word = Word { destroy: vec!["unknown".into()], ..Word::of("qemu") };
    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &word).unwrap();
    queue.prepare(0, &[Piece::new(&memory, 0, 512)]).unwrap();
    let failed = queue.complete(0, &leave.write(128, 1).unwrap()).unwrap_err();
    assert!(failed.to_string().starts_with("Write: Write Fault (media 80h"), "{failed}");
    queue.complete(0, &leave.write(127, 1).unwrap()).unwrap();
    drop((queue, controller));
    let mut expected = known(1, 0, 1 << 20);
    expected[127 * 512..128 * 512].fill(0);
    assert!(image.bytes() == expected);
}

#[test]
fn a_late_command_is_aborted_and_then_the_controller_stopped() {
    needs_qemu!();
    let image = Image::new(1 << 20, 1);
    let machine = machine(throttled(&image), 512, "").start().unwrap();
    let mut controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut first = controller.queue(&Depth { slots: 4, deadline: SECOND, ..Depth::default() }).unwrap();
    let mut second = queue(&controller, 4);
    let memory = controller.allocate(64 << 10).unwrap();
    read(&mut first, &namespace, 0, &memory, 0, 4096);
    first.prepare(1, &[Piece::new(&memory, 8192, 4096)]).unwrap();
    second.prepare(2, &[Piece::new(&memory, 16384, 4096)]).unwrap();
    first.submit(1, &namespace.read(8, 8).unwrap()).unwrap();
    second.submit(2, &namespace.read(8, 8).unwrap()).unwrap();
    let begin = Instant::now();
    assert_eq!(first.expire(begin).unwrap(), nvme::Expiry::default());
    assert_eq!(first.expire(begin + SECOND / 2).unwrap().aborted, 0);
    assert_eq!(first.reap(&mut [Done::NONE]).unwrap(), 0);
    assert!(first.prepare(1, &[Piece::new(&memory, 0, 512)]).is_err(), "the slot is in flight");
    // QEMU 7.2 reports that it did not abort it.
    let aborted = first.expire(begin + SECOND).unwrap();
    assert_eq!((aborted.aborted, aborted.stopped), (1, false));
    assert!(!first.expire(begin + SECOND * 3 / 2).unwrap().stopped);
    assert!(first.expire(begin + SECOND * 2).unwrap().stopped);

    // Both queues' commands are lost, and write no more data.
    memory.store(0, &[0x5a; 64 << 10]).unwrap();
    let lost = |slot| vec![Done { slot, outcome: Outcome::Lost(Lost::Stopped) }];
    assert_eq!((reap_all(&mut first), reap_all(&mut second)), (lost(1), lost(2)));
    assert!(matches!(first.submit(1, &namespace.read(8, 8).unwrap()), Err(Error::Stopped { queue: 1 })));
    unthrottle(&machine);
    controller.reset().unwrap();
    assert!(matches!(second.submit(2, &namespace.read(8, 8).unwrap()), Err(Error::Stopped { queue: 2 })));
    assert!(loaded(&memory, 0, 64 << 10).iter().all(|byte| *byte == 0x5a), "nothing was written after the stop");
    let mut third = queue(&controller, 4);
    assert_eq!(third.number(), 3, "numbers of queues that still have an owner are not used again");
    read(&mut third, &namespace, 8, &memory, 0, 4096);
    assert_eq!(loaded(&memory, 0, 4096), known(1, 4096, 4096));
}

#[test]
fn a_reset_in_flight_loses_all_commands_and_writes_nothing_later() {
    needs_qemu!();
    let image = Image::new(2 << 20, 1);
    let machine = machine(throttled(&image), 4096, "").start().unwrap();
    let mut controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut waiting = queue(&controller, 32);
    let memory = controller.allocate(32 * 4096).unwrap();
    for slot in 0..32 {
        waiting.prepare(slot, &[Piece::new(&memory, u64::from(slot) * 4096, 4096)]).unwrap();
    }
    let commands: Vec<_> = (0..32).map(|slot| (slot, namespace.read(slot.into(), 1).unwrap())).collect();
    waiting.submit_batch(&commands).unwrap();
    let first = support::wait(&mut waiting).unwrap();
    assert!(first.is_success());
    controller.reset().unwrap();
    memory.store(0, &[0xa5; 32 * 4096]).unwrap();
    let all = reap_all(&mut waiting);
    assert_eq!(all.len(), 31);
    assert!(all.iter().all(|done| done.outcome == Outcome::Lost(Lost::Stopped)));
    unthrottle(&machine);
    let other = controller.allocate(4096).unwrap();
    let mut next = queue(&controller, 32);
    read(&mut next, &namespace, 40, &other, 0, 4096);
    assert_eq!(loaded(&other, 0, 4096), known(1, 40 * 4096, 4096));
    assert!(loaded(&memory, 0, 32 * 4096).iter().all(|byte| *byte == 0xa5));
}

/// A machine whose controller can be pulled out.
fn in_a_slot(image: &Image) -> Machine {
    let builder = machine(image.drive(), 512, ",bus=port0");
    builder.args(["-device", "pcie-root-port,id=port0,chassis=1,slot=1"]).start().unwrap()
}

#[test]
fn a_device_pulled_out_is_gone_at_once() {
    needs_qemu!();
    let image = Image::new(1 << 20, 1);
    let machine = in_a_slot(&image);
    let mut controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = queue(&controller, 4);
    let memory = controller.allocate(8192).unwrap();
    read(&mut queue, &namespace, 0, &memory, 0, 4096);
    queue.prepare(1, &[Piece::new(&memory, 4096, 4096)]).unwrap();
    machine.pull("nvme0").unwrap();
    // The driver has not noticed yet: its command will get no answer.
    queue.submit(1, &namespace.read(0, 8).unwrap()).unwrap();
    assert_eq!(queue.reap(&mut [Done::NONE]).unwrap(), 0, "nobody has noticed");
    let gone = queue.expire(Instant::now()).unwrap_err();
    assert!(gone.is_gone() && gone.to_string().contains("is gone"), "{gone}");
    assert_eq!(reap_all(&mut queue), [Done { slot: 1, outcome: Outcome::Lost(Lost::Gone) }]);
    assert!(queue.submit(1, &namespace.read(0, 8).unwrap()).unwrap_err().is_gone());
    assert!(controller.check().unwrap_err().is_gone());
    assert!(controller.reset().unwrap_err().is_gone());
    assert!(controller.queue(&Depth::default()).err().unwrap().is_gone());
}

#[test]
fn admin_commands_notice_a_device_that_is_gone() {
    needs_qemu!();
    let image = Image::new(1 << 20, 1);
    let machine = in_a_slot(&image);
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = queue(&controller, 4);
    let memory = controller.allocate(4096).unwrap();
    queue.prepare(0, &[Piece::new(&memory, 0, 512)]).unwrap();
    machine.pull("nvme0").unwrap();
    assert!(controller.format(1).unwrap_err().is_gone());
    assert!(one(&mut queue, 0, &namespace.read(0, 1).unwrap()).unwrap_err().is_gone());
}

#[test]
fn wrong_uses_are_refused_before_the_device_hears_of_them() {
    needs_qemu!();
    let image = Image::new(1 << 20, 1);
    // 4 KiB << 1 at most in one command, and a function of another kind.
    let more = ",mdts=1,max_ioqpairs=2";
    let machine = machine(image.drive(), 512, more);
    let machine = machine.device("edu,id=other").start().unwrap();
    let wrong = Controller::open(machine.function("other").unwrap()).err().unwrap();
    assert!(wrong.to_string().contains("its class is"), "{wrong}");
    let controller = open(&machine);
    assert_eq!((controller.largest_transfer(), controller.queues()), (8192, 2));
    let namespace = controller.namespace(1).unwrap();
    let missing = controller.namespace(2).unwrap_err();
    assert!(matches!(&missing, Error::NoNamespace { number: 2, active } if *active == [1]), "{missing}");
    let mut first = queue(&controller, 4);
    let second = queue(&controller, 4);
    let none = controller.queue(&Depth::default()).err().unwrap();
    assert!(none.to_string().contains("all 2 that the controller grants"), "{none}");
    drop(second);
    let second = queue(&controller, 4);
    assert_eq!(second.number(), 2);
    for slots in [0, 2048, u16::MAX] {
        assert!(controller.queue(&Depth { slots, ..Depth::default() }).is_err());
    }

    let memory = controller.allocate(64 << 10).unwrap();
    let long = first.prepare(0, &[Piece::new(&memory, 0, 8192 + 512)]).unwrap_err();
    assert!(matches!(long, Error::Data(Unfit::TooLong { most: 8192, .. })), "{long}");
    let io = namespace.read(0, 2).unwrap();
    let slot = |result: Result<(), Error>| match result.unwrap_err() {
        Error::Slot { why, .. } => why,
        other => panic!("{other}"),
    };
    assert_eq!(slot(first.submit(0, &io)), SlotError::OtherSize { prepared: 0, moved: 1024 });
    first.prepare(0, &[Piece::new(&memory, 0, 512)]).unwrap();
    assert_eq!(slot(first.submit(0, &io)), SlotError::OtherSize { prepared: 512, moved: 1024 });
    assert_eq!(slot(first.submit(4, &io)), SlotError::None(4));
    // A batch is started as a whole, or not at all.
    first.prepare(1, &[Piece::new(&memory, 0, 1024)]).unwrap();
    assert_eq!(slot(first.submit_batch(&[(1, io), (1, io)])), SlotError::InFlight);
    assert_eq!(first.in_flight(), 0);
    first.submit(1, &io).unwrap();
    assert!(reap_all(&mut first)[0].is_success());
}

#[test]
fn formats_with_metadata_are_refused_and_several_namespaces_are_apart() {
    needs_qemu!();
    let images = [Image::new(1 << 20, 1), Image::new(2 << 20, 2), Image::new(1 << 20, 3)];
    let mut builder = Machine::builder().device("nvme,id=nvme0,serial=x");
    for ((image, number), how) in images.iter().zip([1, 3, 7]).zip([
        "logical_block_size=512,physical_block_size=512",
        "logical_block_size=4096,physical_block_size=4096",
        "logical_block_size=512,physical_block_size=512,ms=8",
    ]) {
        let drive = image.drive().replace("id=d0", &format!("id=d{number}"));
        builder = builder.drive(drive).device(format!("nvme-ns,drive=d{number},bus=nvme0,nsid={number},{how}"));
    }
    let machine = builder.start().unwrap();
    let controller = open(&machine);
    assert_eq!(controller.active().unwrap(), [1, 3, 7]);
    let refused = controller.namespace(7).unwrap_err();
    let metadata = Unusable::Metadata { bytes: 8, inline: false };
    assert!(matches!(&refused, Error::Namespace { number: 7, why } if *why == metadata), "{refused}");
    assert_eq!(controller.format(7).unwrap().metadata_bytes, 8);
    let (small, large) = (controller.namespace(1).unwrap(), controller.namespace(3).unwrap());
    assert_eq!((small.block_bytes(), large.block_bytes(), large.bytes()), (512, 4096, 2 << 20));
    let mut queue = queue(&controller, 2);
    let memory = controller.allocate(8192).unwrap();
    read(&mut queue, &small, 8, &memory, 0, 4096);
    read(&mut queue, &large, 8, &memory, 4096, 4096);
    assert_eq!(loaded(&memory, 0, 4096), known(1, 4096, 4096));
    assert_eq!(loaded(&memory, 4096, 4096), known(2, 8 * 4096, 4096));
    let drive = "driver=null-co,size=1M,read-zeroes=on,if=none,id=d0".to_string();
    let elsewhere = support::machine(drive, 512, "").start().unwrap();
    let other = open(&elsewhere);
    let foreign = other.namespace(1).unwrap().read(0, 16).unwrap();
    assert!(matches!(queue.submit(0, &foreign), Err(Error::Slot { why: SlotError::OtherController, .. })));
}

#[test]
fn a_failed_mix_names_the_blocks_and_the_work_done() {
    needs_qemu!();
    let image = Image::empty(1 << 20);
    let drive = format!(
        "if=none,id=d0,driver=raw,file.driver=blkdebug,file.image.driver=file,file.image.filename={},\
         file.inject-error.0.event=none,file.inject-error.0.iotype=write,file.inject-error.0.sector=40,\
         file.inject-error.0.errno=5",
        image.path.display()
    );
    let machine = machine(drive, 512, "").start().unwrap();
    let controller = open(&machine);
    let namespace = controller.namespace(1).unwrap();
    let mut queue = support::queue(&controller, 1);
    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &Word::of("qemu")).unwrap();
    let memory = controller.allocate(8 * 4096).unwrap();
    // Two threads; one never reaches block 40, and stops when the other fails.
    let mix = nvme::Mix { queues: 2, slots: 4, largest: 4096, span: 64 << 10, bytes: 1 << 30, seed: 3 };
    let broken = nvme::verify(&controller, &namespace, Some(&leave), &memory, &mix, &|| false).unwrap_err();
    let nvme::Broken { error: Error::FailedAt { command: "Write", first, last, .. }, before } = &*broken else {
        panic!("{broken}")
    };
    assert!(*first <= 40 && 40 <= *last && last - first < 8, "{broken}");
    assert!(broken.to_string().starts_with(&format!("Write of blocks {first} to {last}: Write Fault")), "{broken}");
    assert!(
        before.writes > 0 && before.bytes_read + before.bytes_written < mix.bytes && before.wrong == 0,
        "{before:?}"
    );
}
