//! Longer stretches of blocks: cut into commands, as many of them in flight as the queue has slots.

use crate::nvme::data::Piece;
use crate::nvme::error::{Error, Unfit};
use crate::nvme::namespace::{Io, Namespace};
use crate::nvme::overwrite::Overwrite;
use crate::nvme::queue::{Done, Lost, Outcome, Queue};
use crate::nvme::registers::PAGE;
use pcie::Memory;

/// A range of blocks, and the memory for their bytes.
#[derive(Clone, Copy)]
pub struct Stretch<'a> {
    pub block: u64,
    pub bytes: u64,
    pub memory: &'a Memory,
    pub offset: u64,
}

/// Reads blocks into memory, and returns how many commands it took. The queue has no other command in flight.
///
/// # Errors
/// The error of the first command that failed. No command is in flight then, unless the queue is closed.
pub fn read(queue: &mut Queue, namespace: &Namespace, stretch: &Stretch<'_>) -> Result<u64, Error> {
    run(queue, namespace.block_bytes(), stretch, |block, blocks| namespace.read(block, blocks))
}

/// Writes blocks from memory, and has the device put them on the medium.
///
/// # Errors
/// As [`read`].
pub fn write(queue: &mut Queue, leave: &Overwrite, stretch: &Stretch<'_>) -> Result<u64, Error> {
    let commands = run(queue, leave.namespace().block_bytes(), stretch, |block, blocks| leave.write(block, blocks))?;
    queue.complete(0, &leave.namespace().flush())?;
    Ok(commands)
}

fn run(
    queue: &mut Queue,
    block_bytes: u64,
    stretch: &Stretch<'_>,
    io: impl Fn(u64, u64) -> Result<Io, Error>,
) -> Result<u64, Error> {
    let Stretch { block, bytes, memory, offset } = *stretch;
    if bytes == 0 || !bytes.is_multiple_of(block_bytes) {
        return Err(Error::Bytes { bytes, block_bytes });
    }
    memory.holds(offset, bytes)?;
    let most = queue.most_bytes().min(block_bytes << 16);
    // Whole pages, if a command has room for them: then the next command's data has the same alignment.
    let unit = PAGE.max(block_bytes);
    let step = if most >= unit { most / unit * unit } else { most / block_bytes * block_bytes };
    if step == 0 {
        return Err(Unfit::TooLong { bytes: block_bytes, most }.into());
    }
    let mut started = 0;
    let mut commands = 0;
    let mut command = "";
    let mut first_error = None;
    // For each slot: the first block of its command, and the last.
    let mut places = vec![(0, 0); usize::from(queue.slots())];
    let mut free: Vec<u16> = (0..queue.slots()).rev().collect();
    let mut done = [Done::NONE; 32];
    loop {
        while let Some(slot) = free.last().copied().filter(|_| started < bytes && first_error.is_none()) {
            let part = step.min(bytes - started);
            let first = block + started / block_bytes;
            places[usize::from(slot)] = (first, first + part / block_bytes - 1);
            let begun = io(first, part / block_bytes).and_then(|io| {
                command = io.name();
                queue.prepare(slot, &[Piece::new(memory, offset + started, part)])?;
                queue.submit(slot, &io)
            });
            match begun {
                Ok(()) => drop(free.pop()),
                Err(error) => first_error = Some(error),
            }
            started += part;
            commands += 1;
        }
        if queue.in_flight() == 0 {
            return first_error.map_or(Ok(commands), Err);
        }
        let count = queue.wait(&mut done)?;
        for one in &done[..count] {
            free.push(one.slot);
            let failed = match one.outcome {
                Outcome::Status(status) if status.is_success() => continue,
                Outcome::Status(status) => {
                    let (first, last) = places[usize::from(one.slot)];
                    Error::FailedAt { command, first, last, status }
                }
                Outcome::Lost(Lost::Gone) => queue.gone(),
                Outcome::Lost(Lost::Stopped) => Error::Stopped { queue: queue.number() },
            };
            first_error.get_or_insert(failed);
        }
    }
}
