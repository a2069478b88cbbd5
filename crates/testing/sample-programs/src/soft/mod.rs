//! The samples without libcuda: channels of the kernel driver's own interface, answered by the software GPU.
//!
//! The programs use a GPU through [`Machine`]: memory, flags, channels, and a few kinds of work. Nothing runs kernels here: a launch is a QMD whose
//! release semaphore shows that it was read. `graphs` has no variant.

mod device;
mod programs;
#[cfg(test)]
mod stand_in;
mod starve;

use crate::{Error, Options, Report, Result};
use rm::driver::Driver;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Copies and fills.
    Copy,
    /// Inline data and launches.
    Graphics,
}

/// One piece of work for a channel. Addresses are the GPU's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Work<'a> {
    Copy {
        to: u64,
        from: u64,
        bytes: u32,
    },
    Fill {
        to: u64,
        word: u32,
        words: u32,
    },
    /// Bytes that travel in the pushbuffer.
    Inline {
        to: u64,
        bytes: &'a [u8],
    },
    /// A QMD; its release writes the word `payload` to `release`.
    Launch {
        grid: [u32; 3],
        block: [u32; 3],
        shared: u32,
        release: u64,
        payload: u32,
    },
}

/// Memory that CPU and GPU both see.
pub(crate) trait Memory: Send + Sync {
    /// The GPU's address.
    fn address(&self) -> u64;
    /// Copies `bytes` to the start.
    fn write(&self, bytes: &[u8]);
    /// Copies from the start.
    fn read(&self, bytes: &mut [u8]);
}

/// A word that the CPU sets and a channel waits for. It starts as 0.
pub(crate) trait Flag: Send + Sync {
    fn set(&self, value: u32);
}

/// A channel with its own ring. Submissions run in order.
pub(crate) trait Channel: Send {
    type Flag: Flag;
    /// Work that can be submitted again and again.
    type Prepared: Send;

    fn prepare(&mut self, work: &[Work<'_>]) -> Result<Self::Prepared>;
    /// Makes the channel wait until the flag holds `value`.
    fn prepare_acquire(&mut self, flag: &Self::Flag, value: u32) -> Result<Self::Prepared>;
    /// One GPFIFO entry and one doorbell. Waits while the ring is full.
    fn submit(&mut self, prepared: &mut Self::Prepared) -> Result<()>;
    /// Takes back work that will not be submitted again.
    fn retire(&mut self, prepared: Self::Prepared);
    /// Waits until everything that was submitted is done.
    fn wait(&mut self) -> Result<()>;

    /// Work that is submitted once.
    fn run(&mut self, work: &[Work<'_>]) -> Result<()> {
        let mut prepared = self.prepare(work)?;
        self.submit(&mut prepared)?;
        self.retire(prepared);
        Ok(())
    }
}

/// A GPU without libcuda.
pub(crate) trait Machine: Sync {
    type Memory: Memory;
    type Flag: Flag;
    type Channel: Channel<Flag = Self::Flag>;
    fn name(&self) -> String;
    fn host_memory(&self, bytes: usize) -> Result<Self::Memory>;
    fn video_memory(&self, bytes: usize) -> Result<Self::Memory>;
    fn flag(&self) -> Result<Self::Flag>;
    /// A channel whose ring has this many entries, and whose work may name any memory of this machine.
    fn channel(&self, engine: Engine, entries: u32) -> Result<Self::Channel>;
}

pub(crate) fn run(driver: Arc<dyn Driver>, name: &'static str, options: &Options) -> Result<Report> {
    run_on(&device::open(driver)?, name, options)
}

/// The samples that use no GPU at all.
pub(crate) fn without_a_gpu(name: &'static str, options: &Options) -> Result<Report> {
    let mut report = Report::new(name, "a rwlock that stands in for CUDA's".into(), options.seed);
    starve::run(options, &mut report)?;
    Ok(report)
}

fn run_on(machine: &impl Machine, name: &'static str, options: &Options) -> Result<Report> {
    crate::repeat(name, options, || {
        let mut report = Report::new(name, machine.name(), options.seed);
        match name {
            "copies" => programs::copies(machine, &programs::SIZES, options, &mut report)?,
            "launches" => programs::launches(machine, options, &mut report)?,
            "threads" => programs::threads(machine, options, &mut report)?,
            "spin" => programs::spin(machine, options, &mut report)?,
            "channels" => programs::channels(machine, options, &mut report)?,
            "storm" => programs::storm(machine, options, &mut report)?,
            "bench" => programs::bench(machine, options, &mut report)?,
            _ => return Err(Error::Unavailable { reason: format!("{name} needs libcuda") }),
        }
        Ok(report)
    })
}
