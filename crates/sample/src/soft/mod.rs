//! The samples without libcuda: channels of the kernel driver's own interface, which a real GPU answers or the software
//! one.
//!
//! What they need of a GPU is [`Machine`]: memory, channels, and a few kinds of work. There are no kernels, so `launches`
//! and `graphs` have no variant here.

mod programs;
#[cfg(test)]
mod stand_in;

use crate::{Error, Options, Report, Result};

/// One piece of work for a channel. Addresses are the GPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    /// By the copy engine.
    Copy { to: u64, from: u64, bytes: u32 },
    /// By the copy engine, from a constant.
    Fill { to: u64, word: u32, words: u32 },
    /// Bytes that travel in the pushbuffer.
    Inline { to: u64, bytes: &'a [u8] },
    /// Waits until the word at `at` is `value`.
    Acquire { at: u64, value: u32 },
}

/// Memory that CPU and GPU both see.
pub(crate) trait Memory: Send + Sync {
    /// The GPU's address.
    fn address(&self) -> u64;
    fn len(&self) -> usize;
    /// Copies `bytes` to `offset`.
    fn write(&self, offset: usize, bytes: &[u8]) -> Result<()>;
    fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// One word, as one store that the GPU sees.
    fn set(&self, offset: usize, value: u32) -> Result<()>;
}

/// A channel with a ring of its own. What is submitted runs in order.
pub(crate) trait Channel: Send {
    /// One GPFIFO entry and one doorbell. Waits while the ring is full.
    fn submit(&mut self, work: &[Work<'_>]) -> Result<()>;
    /// Waits until everything that was submitted is done.
    fn wait(&mut self) -> Result<()>;
}

/// A GPU without libcuda.
pub(crate) trait Machine: Sync {
    type Memory: Memory;
    type Channel: Channel;
    fn name(&self) -> String;
    fn host_memory(&self, bytes: usize) -> Result<Self::Memory>;
    fn video_memory(&self, bytes: usize) -> Result<Self::Memory>;
    /// A channel whose work may name any memory of this machine.
    fn channel(&self) -> Result<Self::Channel>;
}

pub(crate) fn run(name: &'static str, _options: &Options) -> Result<Report> {
    Err(Error::Unavailable { reason: format!("{name} has no variant without libcuda yet") })
}

/// Runs the variant of the sample `name` on `machine`.
#[cfg_attr(not(test), allow(dead_code))]
pub(crate) fn run_on(machine: &impl Machine, name: &'static str, options: &Options) -> Result<Report> {
    crate::repeat(name, options, || {
        let mut report = Report::new(name, machine.name(), options.seed);
        match name {
            "copies" => programs::copies(machine, &programs::SIZES, options, &mut report)?,
            "threads" => programs::threads(machine, options, &mut report)?,
            "spin" => programs::spin(machine, options, &mut report)?,
            "channels" => programs::channels(machine, options, &mut report)?,
            "storm" => programs::storm(machine, options, &mut report)?,
            "bench" => programs::bench(machine, options, &mut report)?,
            _ => return Err(Error::Unavailable { reason: format!("{name} needs kernels, and there are none here") }),
        }
        Ok(report)
    })
}
