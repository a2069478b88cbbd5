//! Failures while commands are in flight, on a drive of the kernel: each gives a clear error, without a hang or a later write.

use super::binding::until;
use super::drivers;
use crate::devices::{self, contents, pattern};
use crate::report::{self, Outcome, ensure};
use ::drivers::nvme::{Controller, Depth, Done, Lost, Outcome as Ended, Overwrite, Piece, Queue, Word};
use pcie::{Address, Function, Memory};
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

const SLOTS: u16 = 64;
const PART: u64 = 16 << 10;
const PATIENCE: Duration = Duration::from_secs(30);

/// QEMU lets one command through and holds the others back, as long as this lives.
pub struct Held;

impl Held {
    /// Drives of the harness have names.
    const DRIVE: &str = "d0";

    pub fn begin() -> Result<Held, Box<dyn Error>> {
        report::qemu(&format!("block_set_io_throttle {} 1 0 0 0 0 0", Held::DRIVE))?;
        Ok(Held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // If this fails the next check reports it: its reads do not end.
        let _ = report::qemu(&format!("block_set_io_throttle {} 0 0 0 0 0 0", Held::DRIVE));
    }
}

/// 64 reads of 16 KiB, just submitted.
fn in_flight(controller: &Controller) -> Result<(Queue, Memory), Box<dyn Error>> {
    let namespace = controller.namespace(1)?;
    let mut queue = controller.queue(&Depth { slots: SLOTS, most_bytes: PART, deadline: PATIENCE })?;
    let memory = controller.allocate(u64::from(SLOTS) * PART)?;
    let blocks = PART / namespace.block_bytes();
    let mut commands = Vec::new();
    for slot in 0..SLOTS {
        queue.prepare(slot, &[Piece::new(&memory, u64::from(slot) * PART, PART)])?;
        commands.push((slot, namespace.read(u64::from(slot) * blocks, blocks)?));
    }
    queue.submit_batch(&commands)?;
    Ok((queue, memory))
}

fn all_ended(queue: &mut Queue) -> Result<Vec<Done>, Box<dyn Error>> {
    let (mut all, mut done) = (Vec::new(), [Done::NONE; 64]);
    let started = Instant::now();
    while queue.in_flight() > 0 {
        let count = queue.reap(&mut done)?;
        all.extend_from_slice(&done[..count]);
        ensure(started.elapsed() < PATIENCE, || format!("{} commands do not end", queue.in_flight()))?;
    }
    Ok(all)
}

/// Each command ended once: read, or lost for this reason.
fn each_ended(queue: &mut Queue, why: Lost) -> Result<usize, Box<dyn Error>> {
    let mut all = all_ended(queue)?;
    let lost = all.iter().filter(|done| done.outcome == Ended::Lost(why)).count();
    all.sort_by_key(|done| done.slot);
    let slots = all.iter().map(|done| done.slot).eq(0..SLOTS);
    let right = all.iter().filter(|done| done.is_success()).count() + lost == all.len();
    ensure(slots && right, || format!("{all:?}"))?;
    Ok(lost)
}

/// The drive reads what was written (`drivers::blocks`), and nothing else in memory changes.
fn works(controller: &Controller) -> Outcome {
    let (at, sent) = drivers::written();
    let namespace = controller.namespace(1)?;
    let mut queue = controller.queue(&Depth { slots: 1, deadline: PATIENCE, ..Depth::default() })?;
    let memory = controller.allocate(sent.len() as u64)?;
    queue.prepare(0, &[Piece::new(&memory, 0, sent.len() as u64)])?;
    let block = namespace.block_bytes();
    queue.complete(0, &namespace.read(at / block, sent.len() as u64 / block)?)?;
    ensure(contents(&memory, 0, sent.len())? == sent, || "it reads other bytes than were written".into())
}

fn is_untouched(memory: &Memory, byte: u8) -> Outcome {
    let found = contents(memory, 0, memory.length() as usize)?;
    ensure(found.iter().all(|found| *found == byte), || "memory was written after the controller had stopped".into())
}

fn fill(memory: &Memory, byte: u8) -> Outcome {
    Ok(memory.store(0, &vec![byte; memory.length() as usize])?)
}

/// The controller is reset while it reads: each command ends once, read or lost, and no write follows the reset.
pub fn reset(drive: Box<dyn Function>) -> Outcome {
    let mut controller = Controller::open(drive)?;
    let held = Held::begin()?;
    let (mut queue, memory) = in_flight(&controller)?;
    controller.reset()?;
    fill(&memory, 0xa5)?;
    drop(held);
    let lost = each_ended(&mut queue, Lost::Stopped)?;
    ensure(lost > 0, || "no command was in flight at the reset".into())?;
    works(&controller)?;
    is_untouched(&memory, 0xa5)
}

/// The function is reset while it reads, through the kernel's file instead of by the driver. The driver reports that its controller is not ready,
/// and works again after it has reset it.
pub fn reset_by_another(at: Address, drive: Box<dyn Function>) -> Outcome {
    let mut controller = Controller::open(drive)?;
    let held = Held::begin()?;
    let (mut queue, memory) = in_flight(&controller)?;
    let folder = format!("/sys/bus/pci/devices/{at}");
    fs::write(format!("{folder}/reset_method"), "flr")?;
    fs::write(format!("{folder}/reset"), "1")?;
    fs::write(format!("{folder}/reset_method"), "default")?;
    fill(&memory, 0x3c)?;
    drop(held);
    for why in [controller.check().err(), queue.expire(Instant::now()).err()] {
        let why = why.ok_or("the driver has not noticed")?;
        ensure(!why.is_gone() && why.to_string().contains("not ready"), || why.to_string())?;
    }
    controller.reset()?;
    let lost = each_ended(&mut queue, Lost::Stopped)?;
    ensure(lost > 0, || "no command was in flight at the reset".into())?;
    works(&controller)?;
    is_untouched(&memory, 0x3c)
}

/// Commands that do not end within the time limit: they are aborted first, then the controller is stopped. Commands of other queues are lost, too,
/// and none writes later.
pub fn late(drive: Box<dyn Function>) -> Outcome {
    const DEADLINE: Duration = Duration::from_secs(1);
    let mut controller = Controller::open(drive)?;
    let namespace = controller.namespace(1)?;
    let mut first = controller.queue(&Depth { slots: 2, deadline: DEADLINE, ..Depth::default() })?;
    let memory = controller.allocate(4096)?;
    let held = Held::begin()?;
    // The command that QEMU lets through.
    first.prepare(0, &[Piece::new(&memory, 0, 4096)])?;
    first.complete(0, &namespace.read(0, 4096 / namespace.block_bytes())?)?;
    first.submit(0, &namespace.read(0, 4096 / namespace.block_bytes())?)?;
    let (mut second, others) = in_flight(&controller)?;
    let begin = Instant::now();
    let mut aborted = 0;
    loop {
        let now = first.expire(Instant::now())?;
        aborted += now.aborted;
        if now.stopped {
            break;
        }
        ensure(begin.elapsed() < PATIENCE, || "a late command is not given up".into())?;
        std::thread::sleep(Duration::from_millis(10));
    }
    let took = begin.elapsed();
    ensure(aborted == 1 && took >= 2 * DEADLINE, || format!("{aborted} aborted, stopped after {took:?}"))?;
    fill(&memory, 0x77)?;
    fill(&others, 0x77)?;
    let lost = all_ended(&mut first)?;
    ensure(lost == [Done { slot: 0, outcome: Ended::Lost(Lost::Stopped) }], || format!("{lost:?}"))?;
    let lost = each_ended(&mut second, Lost::Stopped)?;
    ensure(lost == usize::from(SLOTS), || format!("{lost} are lost"))?;
    let refused = second.submit(0, &namespace.read(0, PART / namespace.block_bytes())?).err();
    ensure(refused.is_some_and(|why| why.to_string().contains("is closed")), || "it takes commands".into())?;
    drop(held);
    controller.reset()?;
    works(&controller)?;
    is_untouched(&memory, 0x77)?;
    is_untouched(&others, 0x77)
}

/// Blocks that QEMU's blkdebug lets fail: the first on reading, the second on writing.
const UNREADABLE: u64 = 8 << 20;
const UNWRITABLE: u64 = 9 << 20;

/// A block that cannot be read, and one that cannot be written, among others in flight: each is reported with its place, and the others are
/// complete. Returns what the drive holds around the second block afterwards.
pub fn failing(drive: Box<dyn Function>) -> Result<(u64, Vec<u8>), Box<dyn Error>> {
    const BLOCK: u64 = 512;
    let controller = Controller::open(drive)?;
    let namespace = controller.namespace(1)?;
    let mut queue = controller.queue(&Depth { slots: 8, deadline: PATIENCE, ..Depth::default() })?;
    let word = Word { destroy: vec!["unknown".into()], ..Word::of(controller.identity().address.to_string()) };
    let leave = Overwrite::ask(&controller, &mut queue, &namespace, &word)?;
    let memory = controller.allocate(8 * 2 * BLOCK)?;
    let mut expected = vec![0; 8 * BLOCK as usize];
    for (failing, is_write, text) in [
        (UNWRITABLE, true, "Write: Write Fault (media 80h"),
        (UNREADABLE, false, "Read: Unrecovered Read Error (media 81h"),
    ] {
        fill(&memory, 0xee)?;
        let begin = failing / BLOCK - 4;
        let mut commands = Vec::new();
        for slot in 0..8 {
            queue.prepare(slot, &[Piece::new(&memory, u64::from(slot) * 2 * BLOCK, BLOCK)])?;
            let block = begin + u64::from(slot);
            let sent = pattern(block, BLOCK as usize);
            if is_write {
                memory.store(u64::from(slot) * 2 * BLOCK, &sent)?;
            }
            if is_write && slot != 4 {
                expected[usize::from(slot) * BLOCK as usize..][..BLOCK as usize].copy_from_slice(&sent);
            }
            commands.push((slot, if is_write { leave.write(block, 1)? } else { namespace.read(block, 1)? }));
        }
        queue.submit_batch(&commands)?;
        let all = all_ended(&mut queue)?;
        let wrong = all.iter().find(|done| done.is_success() == (done.slot == 4));
        ensure(all.len() == 8 && wrong.is_none(), || format!("{all:?}"))?;
        let why = queue.complete(4, &commands[4].1).err().map(|why| why.to_string()).unwrap_or_default();
        ensure(why.starts_with(text), || format!("told as {why:?}"))?;
        for slot in 0..8 {
            let found = contents(&memory, slot * 2 * BLOCK, 2 * BLOCK as usize)?;
            let read = is_write || slot == 4 || found[..BLOCK as usize].iter().all(|byte| *byte == 0);
            ensure(read, || format!("slot {slot} has other bytes"))?;
            ensure(found[BLOCK as usize..].iter().all(|byte| *byte == 0xee), || format!("beside slot {slot}"))?;
        }
    }
    queue.complete(0, &namespace.flush())?;
    Ok((UNWRITABLE - 4 * BLOCK, expected))
}

/// The drive is pulled out while it reads, by QEMU and the kernel. The driver reports that it is gone, each command ends once, without a hang.
pub fn pulled_out(at: Address, drive: Box<dyn Function>) -> Outcome {
    let controller = Controller::open(drive)?;
    let (mut queue, _memory) = in_flight(&controller)?;
    report::qemu("device_del d2")?;
    until("the driver notices", || controller.check().is_err())?;
    let why = controller.check().err().ok_or("it is back")?;
    ensure(why.is_gone() && why.to_string().contains("is gone"), || why.to_string())?;
    each_ended(&mut queue, Lost::Gone)?;
    ensure(controller.namespace(1).is_err(), || "a drive that is gone was asked".into())?;
    drop((queue, controller));
    ensure(!fs::exists(format!("/sys/bus/pci/devices/{at}"))?, || "it is there still".into())
}

/// The drive is removed from the kernel while it reads, as by `echo 1 > remove`. It is still in its slot, so its commands end; with vfio the kernel
/// waits for that. Nothing hangs, and a rescan finds it again.
pub fn removal(at: Address, drive: Box<dyn Function>) -> Outcome {
    let controller = Controller::open(drive)?;
    let (mut queue, memory) = in_flight(&controller)?;
    let folder = format!("/sys/bus/pci/devices/{at}");
    let remove = format!("{folder}/remove");
    let other = std::thread::spawn(move || fs::write(remove, "1"));
    let all = all_ended(&mut queue)?;
    ensure(all.len() == usize::from(SLOTS) && all.iter().all(Done::is_success), || format!("{all:?}"))?;
    drop((queue, controller, memory));
    other.join().map_err(|_| "the thread panicked")??;
    ensure(!fs::exists(&folder)?, || "it is there still".into())?;
    Ok(fs::write("/sys/bus/pci/rescan", "1")?)
}

/// As [`pulled_out`], through vfio: the kernel requests the removal, and waits. The commands end, and the drive is removed as soon as it is closed.
pub fn asked_for(at: Address, drive: Box<dyn Function>) -> Outcome {
    let controller = Controller::open(drive)?;
    let (mut queue, memory) = in_flight(&controller)?;
    report::qemu("device_del d2")?;
    let all = all_ended(&mut queue)?;
    ensure(all.len() == usize::from(SLOTS) && all.iter().all(Done::is_success), || format!("{all:?}"))?;
    until("the kernel requests the removal", || !controller.is_present())?;
    let folder = format!("/sys/bus/pci/devices/{at}");
    ensure(fs::exists(&folder)?, || "it was taken out while it was open".into())?;
    drop((queue, controller, memory));
    until("it is taken out", || !fs::exists(&folder).unwrap_or(true))
}

/// The drive disappears at once, and the kernel is not notified: its slot loses power while it reads. The kernel must be notified afterwards.
pub fn vanished(at: Address, drive: Box<dyn Function>) -> Outcome {
    let controller = Controller::open(drive)?;
    let namespace = controller.namespace(1)?;
    let slot = devices::slot(at).ok_or("it is in no slot")?;
    let (mut queue, memory) = in_flight(&controller)?;
    devices::power(slot, false)?;
    until("the driver notices", || controller.check().is_err())?;
    let why = controller.check().err().ok_or("it is back")?;
    ensure(why.is_gone() && why.to_string().contains("is gone"), || why.to_string())?;
    fill(&memory, 0x99)?;
    each_ended(&mut queue, Lost::Gone)?;
    let refused = queue.submit(0, &namespace.read(0, PART / namespace.block_bytes())?).err();
    ensure(refused.is_some_and(|why| why.is_gone()), || "it takes commands".into())?;
    is_untouched(&memory, 0x99)?;
    let folder = format!("/sys/bus/pci/devices/{at}");
    // Another card is put into the slot. While the slot is empty the kernel waits. When vfio closes the function, the kernel tries every method to
    // reset the missing card, for a minute each.
    devices::power(slot, true)?;
    report::qemu("device_add edu,bus=rp1")?;
    drop((queue, controller, memory));
    fs::write(format!("{folder}/remove"), "1")?;
    ensure(!fs::exists(folder)?, || "it is there still".into())
}
