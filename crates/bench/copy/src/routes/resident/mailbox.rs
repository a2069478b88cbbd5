//! The CPU's commands to resident kernels, and their answers.
//!
//! A command is source, destination, bytes and a number, in the first half of one line of 64 bytes in GPU memory. The CPU
//! stores the line through BAR1 as one write. The kernels read the half in two loads of 16 bytes. There is no guarantee that both
//! see the same write, so each 16 bytes end with the number: a kernel that finds two different numbers reads again. 16 aligned
//! bytes arrive together because of the GPU (they are in one sector of 32 bytes) and the CPU (no store of a line is split below
//! 16). Messages rely on that too.
//!
//! Answers are in one line of pinned memory, with a word for each cluster. The lines after it show why the kernels ended, and
//! where they run.

use super::ptx::{ENDED, PLACES, STOP};
use crate::error::Error;
use crate::machine::Machine;
use cuda::{DeviceBuffer, PinnedBuffer};
use gpu::Bar1Map;
use gpu::stores::{self, Line};
use machine::Pinned;
use std::sync::atomic::{AtomicU32, Ordering};

/// Bytes of GPU memory: the line, and after it room for `try_out`.
pub(super) const MAILBOX_BYTES: usize = 4096;
/// Bytes of pinned memory: two lines and a word for each block.
pub(super) const HOST_BYTES: usize = 4096;
/// Clusters that have a word in the line of answers.
pub(super) const MOST_CLUSTERS: u32 = 16;
/// Blocks that have a word in the table of places.
pub(super) const MOST_BLOCKS: u32 = ((HOST_BYTES - PLACES) / 4) as u32;

/// Both directions of the exchange with one launch of kernels.
pub(super) struct Mailbox<'m> {
    // Maps and pins are dropped before the memory that they name.
    map: Bar1Map,
    _pinned: Pinned,
    memory: DeviceBuffer<'m>,
    host: PinnedBuffer<'m>,
    clusters: u32,
    blocks: u32,
}

/// One transfer, with the GPU's addresses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) from: u64,
    pub(super) to: u64,
    pub(super) bytes: u64,
}

/// The line that carries a command.
fn line(command: &Command, number: u32) -> Line {
    let Command { from, to, bytes } = *command;
    let words = [
        from as u32,
        (from >> 32) as u32,
        to as u32,
        number,
        (to >> 32) as u32,
        bytes as u32,
        (bytes >> 32) as u32,
        number,
    ];
    let mut line = Line([0; stores::LINE]);
    for (place, word) in line.0.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    line
}

impl<'m> Mailbox<'m> {
    pub(super) fn new(machine: &'m Machine, clusters: u32, blocks: u32) -> Result<Mailbox<'m>, Error> {
        let context = machine.context()?;
        let memory = DeviceBuffer::new(context, MAILBOX_BYTES)?;
        let pinned = machine::pin(machine, memory.address(), MAILBOX_BYTES as u64)?;
        let map = Bar1Map::of_pin(pinned.pin(), 0, MAILBOX_BYTES as u64)?;
        let host = PinnedBuffer::new(context, HOST_BYTES)?;
        Ok(Mailbox { map, _pinned: pinned, memory, host, clusters, blocks })
    }

    /// Address of the line, and of the memory after it.
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Where the kernels answer, as the GPU sees it.
    pub(super) fn host_address(&self) -> Result<u64, Error> {
        Ok(self.host.device_address()?)
    }

    /// The map of the line and the memory after it.
    pub(super) fn map(&self) -> &Bar1Map {
        &self.map
    }

    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: an aligned word of pinned memory of `HOST_BYTES` (the callers' offsets are within it) that lives as long as
        // self, and that the CPU touches only by atomic accesses.
        unsafe { AtomicU32::from_ptr(self.host.as_ptr().add(at).cast()) }
    }

    /// Sends a command, which is on its way when this returns.
    #[inline]
    pub(super) fn send(&self, command: &Command, number: u32) -> Result<(), Error> {
        // ORDERING: the line's store bypasses the caches and could overtake earlier writes to the source.
        stores::sfence();
        Ok(self.map.store_line(0, &line(command, number))?)
    }

    /// Ends the kernels, also those that have not seen it yet.
    pub(super) fn stop(&self) -> Result<(), Error> {
        self.send(&Command::default(), STOP)
    }

    /// Before a launch, while no kernel runs: sets the line and all answers to `number`. No kernel has ended then, and no block
    /// has reported where it runs.
    pub(super) fn reset(&self, number: u32) -> Result<(), Error> {
        for cluster in 0..self.clusters as usize {
            self.word(4 * cluster).store(number, Ordering::Relaxed);
            self.word(ENDED + 4 * cluster).store(0, Ordering::Relaxed);
        }
        for block in 0..self.blocks as usize {
            self.word(PLACES + 4 * block).store(0, Ordering::Relaxed);
        }
        self.send(&Command::default(), number)?;
        // A load returns after the stores have arrived, so the kernels do not find older contents.
        self.map.load32(0)?;
        Ok(())
    }

    /// Whether every cluster has executed the command with this number.
    #[inline]
    pub(super) fn is_answered(&self, number: u32) -> bool {
        // ORDERING: each kernel's copied bytes are before its fence, and the fence is before its answer.
        (0..self.clusters as usize).all(|cluster| self.word(4 * cluster).load(Ordering::Acquire) == number)
    }

    /// How many clusters have executed it.
    pub(super) fn answers(&self, number: u32) -> usize {
        (0..self.clusters as usize).filter(|cluster| self.word(4 * cluster).load(Ordering::Acquire) == number).count()
    }

    /// Whether some cluster has ended.
    #[inline]
    pub(super) fn has_ended(&self) -> bool {
        (0..self.clusters as usize).any(|cluster| self.ended(cluster) != 0)
    }

    /// Why a cluster has ended; 0 while it runs.
    pub(super) fn ended(&self, cluster: usize) -> u32 {
        self.word(ENDED + 4 * cluster).load(Ordering::Acquire)
    }

    /// The multiprocessors of each cluster's blocks, in the order of the blocks; `None` before all of them have reported.
    pub(super) fn places(&self) -> Option<Vec<Vec<u32>>> {
        let size = (self.blocks / self.clusters.max(1)).max(1) as usize;
        let places: Option<Vec<u32>> = (0..self.blocks as usize)
            .map(|block| self.word(PLACES + 4 * block).load(Ordering::Acquire).checked_sub(1))
            .collect();
        Some(places?.chunks(size).map(<[u32]>::to_vec).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_halves_of_a_command_carry_its_number() {
        let command = Command { from: 0x1122_3344_5566_7788, to: 0x99aa_bbcc_ddee_ff00, bytes: 0x0000_0102_0304_0506 };
        let line = line(&command, 7).0;
        let word = |n: usize| u32::from_le_bytes(line[4 * n..][..4].try_into().unwrap());
        assert_eq!([0, 1, 2, 3].map(word), [0x5566_7788, 0x1122_3344, 0xddee_ff00, 7]);
        assert_eq!([4, 5, 6, 7].map(word), [0x99aa_bbcc, 0x0304_0506, 0x0102, 7]);
        assert_eq!(line[32..], [0; 32]);
    }
}
