//! Equal copies one after another, without the CPU between them: how much a route moves in a second.
//!
//! The GPU's own clock times them together. The CPU's earlier work for them is not included. So CUDA's copies
//! ([`GatedCopies`]) and those on doorbell's channels compare by what the engine moves.

mod channel;
mod gated;

pub use gated::GatedCopies;

use crate::error::Error;
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::registry::{self, parse};
use crate::routes;
use machine::Unavailable;
use std::time::Duration;

/// Copies of one route that run back to back: first [`BackToBack::ready`], then [`BackToBack::go`], then
/// [`BackToBack::finish`]. May be repeated.
pub trait BackToBack {
    /// Prepares `count` copies of `bytes`, after one that warms up.
    ///
    /// # Errors
    /// [`Error::Unavailable`] for a count or size that this route cannot run back to back.
    fn ready(&mut self, bytes: u64, count: u32) -> Result<(), Error>;

    /// Starts the copies.
    ///
    /// # Errors
    /// [`Error::Idle`] if no copies are ready.
    fn go(&mut self) -> Result<(), Error>;

    /// Waits for the last copy. Returns GPU nanoseconds from before the first to the end of the last.
    ///
    /// # Errors
    /// [`Error::Late`] if they did not end in time, or did not run back to back.
    fn finish(&mut self, timeout: Duration) -> Result<f64, Error>;

    /// When the first finished copy began and the last ended, in nanoseconds of the GPU's clock.
    fn span(&self) -> Option<(u64, u64)>;

    /// Its two memories, to be read and written while no copy runs: between [`BackToBack::ready`] and
    /// [`BackToBack::go`], and after [`BackToBack::finish`].
    fn ends(&self) -> &dyn Inspect;
}

/// Opens the copies of a route back to back: those of `cuda` and of `ceN`.
///
/// # Errors
/// As [`crate::open`]; [`Error::Unavailable`] for routes whose copies cannot run without the CPU.
pub fn open<'m>(machine: &'m Machine, name: &str, capacity: u64) -> Result<Box<dyn BackToBack + 'm>, Error> {
    let spec = parse(name)?;
    let opened: Result<Box<dyn BackToBack + 'm>, Error> = match spec.executor.name {
        name if name == routes::cuda::ENTRY.word.name => {
            GatedCopies::new(machine, &spec, capacity).map(|copies| Box::new(copies) as _)
        }
        name if name == routes::ce::ENTRY.word.name => {
            channel::Copies::new(machine, &spec, capacity).map(|copies| Box::new(copies) as _)
        }
        other => Err(Unavailable::new(format!("copies of {other} do not run back to back: cuda and ceN can")).into()),
    };
    opened.map_err(registry::refused)
}
