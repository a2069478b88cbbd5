//! Many commands in flight on a drive that the kernel gave us: a random mix from four threads against a reference, a reset, a removal.

use super::binding::until;
use crate::devices::{contents, pattern};
use crate::report::{self, Outcome, ensure};
use nvme::{Controller, Depth, Done, Lost, Options, Outcome as Ended, Overwrite, Piece, Queue, Word};
use pcie::{Address, Function, Memory};
use std::error::Error;
use std::fs;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
const SLOTS: u16 = 128;
/// Each slot has a part of the drive, and as much memory.
const PART: u64 = 16 << 10;
/// Where the threads' parts begin.
pub const BASE: u64 = 16 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

/// What the mix has left on the drive from `BASE` on.
pub type Reference = Vec<u8>;

/// Four queues of 128, each with a thread of its own, `turns` commands in each slot: reads, which are compared, and writes.
pub fn mix(drive: Box<dyn Function>, turns: u64) -> Result<Reference, Box<dyn Error>> {
    let controller = Controller::open(drive, Options::default())?;
    let namespace = controller.namespace(1)?;
    let mut first = controller.queue(&Depth { slots: 1, deadline: PATIENCE, ..Depth::default() })?;
    let word = Word { device: Some(controller.identity().address.to_string()), destroy: vec![] };
    let leave = Overwrite::ask(&controller, &mut first, &namespace, &word)?;
    drop(first);
    let depth = Depth { slots: SLOTS, most_bytes: PART, deadline: PATIENCE };
    let lanes = (0..THREADS).map(|number| {
        let memory = controller.allocate(PART * u64::from(SLOTS))?;
        Ok((number as u64, controller.queue(&depth)?, memory))
    });
    let lanes = lanes.collect::<Result<Vec<_>, nvme::Error>>()?;
    let leave = &leave;
    let results: Vec<Result<Vec<u8>, Failure>> = std::thread::scope(|scope| {
        let start = |(number, queue, memory)| scope.spawn(move || lane(number, queue, &memory, leave, turns));
        let threads: Vec<_> = lanes.into_iter().map(start).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let mut reference = Vec::new();
    for part in results {
        reference.extend(part.map_err(|why| why.to_string())?);
    }
    Ok(reference)
}

/// What a slot is at.
#[derive(Clone, Copy, Default)]
struct Turn {
    left: u64,
    /// The command's first byte in the slot's part, how many, and whether it writes.
    at: usize,
    bytes: usize,
    writes: bool,
}

fn lane(number: u64, mut queue: Queue, memory: &Memory, leave: &Overwrite, turns: u64) -> Result<Vec<u8>, Failure> {
    let (namespace, part) = (leave.namespace(), PART as usize);
    let block = namespace.block_bytes();
    let mut reference = vec![0; part * usize::from(SLOTS)];
    let mut slots = vec![Turn { left: turns, ..Turn::default() }; usize::from(SLOTS)];
    let mut random = number + 1;
    let mut draw = |below: u64| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    let mut next = |queue: &mut Queue, slot: u16, turn: &mut Turn, reference: &mut [u8]| -> Result<(), Failure> {
        let blocks = PART / block;
        let first = draw(blocks);
        let count = 1 + draw(blocks - first);
        let (at, bytes) = (first * block, count * block);
        *turn = Turn { left: turn.left - 1, at: at as usize, bytes: bytes as usize, writes: draw(2) == 0 };
        let own = u64::from(slot) * PART;
        let place = (BASE + number * PART * u64::from(SLOTS) + own + at) / block;
        queue.prepare(slot, &[Piece::new(memory, own + at, bytes)])?;
        if turn.writes {
            let sent = pattern(number << 32 | u64::from(slot) << 16 | turn.left, turn.bytes);
            memory.store(own + at, &sent)?;
            reference[own as usize + turn.at..][..turn.bytes].copy_from_slice(&sent);
            queue.submit(slot, &leave.write(place, count)?)?;
        } else {
            memory.store(own + at, &vec![0xee; turn.bytes])?;
            queue.submit(slot, &namespace.read(place, count)?)?;
        }
        Ok(())
    };
    for slot in 0..SLOTS {
        next(&mut queue, slot, &mut slots[usize::from(slot)], &mut reference)?;
    }
    let (mut done, mut quiet) = ([Done::NONE; 64], Instant::now());
    while queue.in_flight() > 0 {
        let count = queue.reap(&mut done)?;
        for one in &done[..count] {
            let turn = &mut slots[usize::from(one.slot)];
            let from = usize::from(one.slot) * part + turn.at;
            if !one.is_success() {
                return Err(format!("{one:?}").into());
            }
            let mut found = vec![0; turn.bytes];
            memory.load(from as u64, &mut found)?;
            if !turn.writes && found != reference[from..from + turn.bytes] {
                return Err(format!("thread {number}, slot {}: other bytes at {from:#x}", one.slot).into());
            }
            if turn.left > 0 {
                next(&mut queue, one.slot, turn, &mut reference)?;
            }
        }
        match count {
            0 if quiet.elapsed() > PATIENCE => return Err(format!("{} commands do not end", queue.in_flight()).into()),
            0 => std::thread::yield_now(),
            _ => quiet = Instant::now(),
        }
    }
    Ok(reference)
}

/// 64 reads of 16 KiB, just submitted.
fn in_flight(controller: &Controller) -> Result<(Queue, Memory), Box<dyn Error>> {
    let namespace = controller.namespace(1)?;
    let mut queue = controller.queue(&Depth { slots: 64, most_bytes: PART, deadline: PATIENCE })?;
    let memory = controller.allocate(64 * PART)?;
    let blocks = PART / namespace.block_bytes();
    let mut commands = Vec::new();
    for slot in 0..64 {
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

/// The controller is reset while it reads: each command ends once, read or lost, and nothing is written behind the reset.
pub fn reset(drive: Box<dyn Function>) -> Outcome {
    let mut controller = Controller::open(drive, Options::default())?;
    let (mut queue, memory) = in_flight(&controller)?;
    controller.reset()?;
    memory.store(0, &vec![0xa5; 64 * PART as usize])?;
    let all = all_ended(&mut queue)?;
    ensure(all.len() == 64, || format!("{} commands ended", all.len()))?;
    let right = |done: &Done| done.is_success() || done.outcome == Ended::Lost(Lost::Stopped);
    ensure(all.iter().all(right), || format!("{all:?}"))?;
    let (mut again, _) = in_flight(&controller)?;
    ensure(all_ended(&mut again)?.iter().all(Done::is_success), || "reads fail after the reset".into())?;
    let after = contents(&memory, 0, 64 * PART as usize)?;
    ensure(after.iter().all(|byte| *byte == 0xa5), || "memory was written after the reset".into())
}

/// The drive is pulled out while it reads: the harness sees the line, and QEMU and the kernel do the rest. The driver says that it is gone, each
/// command ends once, and nothing hangs.
pub fn pulled_out(at: Address, drive: Box<dyn Function>) -> Outcome {
    let controller = Controller::open(drive, Options::default())?;
    let (mut queue, _memory) = in_flight(&controller)?;
    report::line("pull d2");
    until("the driver notices", || controller.check().is_err())?;
    let why = controller.check().err().ok_or("it is back")?;
    ensure(why.is_gone() && why.to_string().contains("is gone"), || why.to_string())?;
    let all = all_ended(&mut queue)?;
    let right = |done: &Done| done.is_success() || done.outcome == Ended::Lost(Lost::Gone);
    ensure(all.len() == 64 && all.iter().all(right), || format!("{all:?}"))?;
    ensure(controller.namespace(1).is_err(), || "a drive that is gone was asked".into())?;
    drop((queue, controller));
    ensure(!fs::exists(format!("/sys/bus/pci/devices/{at}"))?, || "it is there still".into())
}

/// Somebody takes the drive from the kernel while it reads, as `echo 1 > remove` does. It stands in its slot still, so its commands end; through
/// vfio the kernel waits for that. Nothing hangs, and it comes back with a scan.
pub fn removal(at: Address, drive: Box<dyn Function>) -> Outcome {
    let controller = Controller::open(drive, Options::default())?;
    let (mut queue, memory) = in_flight(&controller)?;
    let folder = format!("/sys/bus/pci/devices/{at}");
    let remove = format!("{folder}/remove");
    let other = std::thread::spawn(move || fs::write(remove, "1"));
    let all = all_ended(&mut queue)?;
    ensure(all.len() == 64 && all.iter().all(Done::is_success), || format!("{all:?}"))?;
    drop((queue, controller, memory));
    other.join().map_err(|_| "the thread panicked")??;
    ensure(!fs::exists(&folder)?, || "it is there still".into())?;
    Ok(fs::write("/sys/bus/pci/rescan", "1")?)
}
