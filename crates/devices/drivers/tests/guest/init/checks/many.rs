//! A random mix of reads and writes from four threads on a drive of the kernel, against a reference.

use crate::devices::pattern;
use crate::report::ensure;
use drivers::nvme::{self, Controller, Depth, Done, Overwrite, Piece, Queue, Word};
use pcie::{Function, Memory};
use std::error::Error;
use std::time::{Duration, Instant};

const THREADS: usize = 4;
const SLOTS: u16 = 128;
/// Each slot has a part of the drive, and as much memory: a command has up to 16 pages.
const PART: u64 = 64 << 10;
/// Where the threads' parts begin.
pub const BASE: u64 = 16 << 20;
/// How much each format gets: 1 GiB together, which takes an emulated processor half a minute.
pub const MIXED: u64 = 512 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

type Failure = Box<dyn Error + Send + Sync>;

/// What the mix has left on the drive from `BASE` on.
pub type Reference = Vec<u8>;

/// Four queues of 128, each with a separate thread: reads, which are compared, and writes, until `bytes` were moved.
pub fn mix(drive: Box<dyn Function>, bytes: u64) -> Result<Reference, Box<dyn Error>> {
    let controller = Controller::open(drive)?;
    let namespace = controller.namespace(1)?;
    let mut first = controller.queue(&Depth { slots: 1, deadline: PATIENCE, ..Depth::default() })?;
    let word = Word { destroy: vec!["unknown".into()], ..Word::of(controller.identity().address.to_string()) };
    let leave = Overwrite::ask(&controller, &mut first, &namespace, &word)?;
    drop(first);
    let depth = Depth { slots: SLOTS, most_bytes: PART, deadline: PATIENCE };
    let lanes = (0..THREADS as u64).map(|number| {
        let memory = controller.allocate(PART * u64::from(SLOTS))?;
        Ok((controller.queue(&depth)?, Lane::new(number, memory, &leave, bytes / THREADS as u64)))
    });
    let lanes = lanes.collect::<Result<Vec<_>, nvme::Error>>()?;
    let results: Vec<Result<Lane<'_>, Failure>> = std::thread::scope(|scope| {
        let threads: Vec<_> = lanes.into_iter().map(|(queue, lane)| scope.spawn(move || lane.run(queue))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| Err("a thread panicked".into()))).collect()
    });
    let (mut reference, mut moved) = (Vec::new(), 0);
    for lane in results {
        let lane = lane.map_err(|why| why.to_string())?;
        ensure(lane.reads > 0 && lane.writes > 0, || format!("{} reads and {} writes", lane.reads, lane.writes))?;
        moved += lane.moved;
        reference.extend(lane.reference);
    }
    ensure(moved >= bytes, || format!("{moved} of {bytes} B were moved"))?;
    Ok(reference)
}

/// The command of a slot: its first byte in the slot's part, how many, and whether it writes.
#[derive(Clone, Copy, Default)]
struct Command {
    at: usize,
    bytes: usize,
    writes: bool,
}

/// What one thread does.
struct Lane<'a> {
    number: u64,
    memory: Memory,
    leave: &'a Overwrite,
    /// The contents of its part of the drive.
    reference: Vec<u8>,
    slots: Vec<Command>,
    /// Writes are pieces of this from random places on: an emulated processor makes no new bytes for each.
    noise: Vec<u8>,
    random: u64,
    wanted: u64,
    moved: u64,
    reads: u64,
    writes: u64,
}

impl Lane<'_> {
    fn new(number: u64, memory: Memory, leave: &Overwrite, wanted: u64) -> Lane<'_> {
        let reference = vec![0; (PART * u64::from(SLOTS)) as usize];
        let slots = vec![Command::default(); usize::from(SLOTS)];
        let noise = pattern(number + 70, 256 << 10);
        Lane {
            number,
            memory,
            leave,
            reference,
            slots,
            noise,
            random: number + 1,
            wanted,
            moved: 0,
            reads: 0,
            writes: 0,
        }
    }

    fn draw(&mut self, below: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    fn start(&mut self, queue: &mut Queue, slot: u16) -> Result<(), Failure> {
        let namespace = self.leave.namespace();
        let block = namespace.block_bytes();
        let blocks = PART / block;
        let first = self.draw(blocks);
        let count = 1 + self.draw(blocks - first);
        let own = u64::from(slot) * PART;
        let (at, bytes) = (own + first * block, count * block);
        let writes = self.draw(2) == 0;
        let (from, length) = (at as usize, bytes as usize);
        self.slots[usize::from(slot)] = Command { at: from, bytes: length, writes };
        self.moved += bytes;
        let place = (BASE + self.number * PART * u64::from(SLOTS) + at) / block;
        queue.prepare(slot, &[Piece::new(&self.memory, at, bytes)])?;
        if writes {
            self.writes += 1;
            let noise = self.draw((self.noise.len() - length) as u64) as usize;
            let sent = &self.noise[noise..noise + length];
            self.memory.store(at, sent)?;
            self.reference[from..from + length].copy_from_slice(sent);
            queue.submit(slot, &self.leave.write(place, count)?)?;
        } else {
            self.reads += 1;
            // Other bytes, which stay unless the drive overwrites them.
            self.memory.store(at, &self.noise[..length])?;
            queue.submit(slot, &namespace.read(place, count)?)?;
        }
        Ok(())
    }

    fn run(mut self, mut queue: Queue) -> Result<Self, Failure> {
        for slot in 0..SLOTS {
            self.start(&mut queue, slot)?;
        }
        let mut found = vec![0; PART as usize];
        let (mut done, mut quiet) = ([Done::NONE; 64], Instant::now());
        while queue.in_flight() > 0 {
            let count = queue.reap(&mut done)?;
            for one in &done[..count] {
                if !one.is_success() {
                    return Err(format!("{one:?}").into());
                }
                let Command { at, bytes, writes } = self.slots[usize::from(one.slot)];
                if !writes {
                    self.memory.load(at as u64, &mut found[..bytes])?;
                    if found[..bytes] != self.reference[at..at + bytes] {
                        return Err(format!("thread {}, slot {}: other bytes at {at:#x}", self.number, one.slot).into());
                    }
                }
                if self.moved < self.wanted {
                    self.start(&mut queue, one.slot)?;
                }
            }
            match count {
                0 if quiet.elapsed() > PATIENCE => {
                    return Err(format!("no command ends: {queue:?}").into());
                }
                0 => std::thread::yield_now(),
                _ => quiet = Instant::now(),
            }
        }
        Ok(self)
    }
}
