//! What an experiment can measure, or run as a load: copies by any route, launches, graphs, and CUDA's set-up calls. [`open`] opens one by its
//! text, [`Opened::prepare`] prepares it, [`Subject::fire`] starts it.
//!
//! A route is written `source -> executor -> destination` ([`spec`]): `host->ce0->gpu0`, `host[pageable]->cuda->gpu0`. An [`Executor`] moves bytes
//! between any two memories ([`Buffer`]), a [`Route`] is an executor with its own two memories, and a [`Transfer`] is one prepared movement.
//! [`routes`] lists and opens them. A [`Machine`] has the means. What does not exist is [`Unavailable`], with the reason.
//! [`device_copy`] moves bytes by a card's own DMA, [`saturate`] keeps many I/Os in progress.
//!
//! The invariant: between `fire` and the end, this crate adds no allocation, lock or system call to those of the measured route or call. doorbell's
//! own routes make none (except `aperture`, which moves a mapping; a card on the bus takes a lock that is never contended). Nothing is timed here;
//! crate `measure` does that.

mod buffer;
mod catalogue;
mod chain;
pub mod device;
pub mod device_copy;
mod ends;
mod entry;
mod error;
mod executor;
mod frames;
mod hbm;
mod inspect;
mod ios;
mod launch;
mod library;
mod lock;
mod machine;
mod nodes;
mod nothing;
mod outside;
mod pages;
mod places;
mod route;
pub mod routes;
pub mod saturate;
mod setup;
pub mod spec;
mod text;
mod transfers;
mod verify;

use std::time::Duration;

pub use crate::machine::Machine;
pub use ::machine::{Unavailable, Where};
pub use buffer::Buffer;
pub use catalogue::{calls, check, open};
pub use ends::Ends;
pub use entry::Entry;
pub use error::Error;
pub use executor::{Executor, Route, Transfer};
pub use experiment::What;
pub use inspect::{GUARD, HostEnd, Inspect};
pub use places::Places;
pub use route::of_route;
pub use spec::{Spec, SyntaxError};
pub use verify::{Checked, Difference, Wrong, verify};

/// An opened subject: its buffers, channels and modules exist.
pub trait Opened {
    /// What it is, in one line.
    fn about(&self) -> String;

    /// Moves random bytes and compares them, guards included. Calls that move no bytes do their work once.
    ///
    /// # Errors
    /// Errors of the route or of CUDA. Wrong bytes are not an error but the result.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        once(self.prepare(seed)?.as_mut(), timeout)
    }

    /// Prepares it; `seed` is the seed of its random data.
    ///
    /// # Errors
    /// Errors of the route or of CUDA.
    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error>;
}

/// Does it once, and compares the result.
fn once(subject: &mut dyn Subject, timeout: Duration) -> Result<Option<Wrong>, Error> {
    subject.renew()?;
    subject.fire()?;
    subject.wait(timeout)?;
    subject.check()
}

/// How a caller waits for the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// By [`Subject::poll`]: it only reads memory.
    Polled,
    /// By [`Subject::wait`]: a CUDA call, which may sleep, spin or take locks.
    Called,
}

/// What one `fire` did, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Did {
    pub times: u64,
    /// Bytes moved, if it is not a route.
    pub bytes: u64,
    /// The longest time of one unit, if one `fire` does several.
    pub longest_ns: Option<u64>,
}

impl Did {
    pub const ONCE: Did = Did { times: 1, bytes: 0, longest_ns: None };
}

/// When the engine worked, in nanoseconds of the GPU's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Engine {
    pub started: Option<u64>,
    pub ended: u64,
}

impl Engine {
    /// The times of the last transfer; `None` if it does not report when it ended.
    #[inline]
    fn of(transfer: &dyn crate::Transfer) -> Option<Engine> {
        Some(Engine { started: transfer.started_gpu_ns(), ended: transfer.released_gpu_ns()? })
    }
}

/// A prepared subject, which can be done any number of times. One at a time: `fire`, then `poll` until it is true, or `wait`.
///
/// By default, one whose `fire` returns when all its work is complete.
pub trait Subject {
    fn waiting(&self) -> Waiting {
        Waiting::Polled
    }

    /// Before a turn, untimed: if places are swept, its transfers begin at the place of this round from now on.
    ///
    /// # Errors
    /// Errors of the memory or of CUDA.
    fn place(&mut self, _round: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Before a timed `fire`, untimed: changes the bytes that are moved, moves on to the next address, gives back what the last call took.
    ///
    /// # Errors
    /// Errors of the memory or of CUDA.
    fn renew(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Starts it. A subject that only submits returns at once; a call that does its work before it returns is complete then.
    ///
    /// # Errors
    /// Errors of the route or of CUDA.
    fn fire(&mut self) -> Result<(), Error>;

    /// Whether the last `fire` is complete.
    ///
    /// # Errors
    /// Errors of the route or of CUDA.
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(true)
    }

    /// Until it is done.
    ///
    /// # Errors
    /// [`Error::Late`] after `timeout`, if the end is polled; CUDA's own waits have no limit.
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(())
    }

    /// What the last one did, once it is complete.
    fn did(&mut self) -> Did {
        Did::ONCE
    }

    /// When the engine did it; `None` if no engine reports it.
    fn engine(&self) -> Option<Engine> {
        None
    }

    /// Whether [`Subject::check`] compares bytes, and bytes around them.
    fn checks(&self) -> Checks {
        Checks::Nothing
    }

    /// Compares what the last one left, whole.
    ///
    /// # Errors
    /// Errors of the memory or of CUDA. Wrong bytes are not an error but the result.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }

    /// After its turn: releases the work that it keeps on the GPU. The next `fire` prepares it again.
    ///
    /// # Errors
    /// Errors of the route.
    fn rest(&mut self) -> Result<(), Error> {
        Ok(())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checks {
    Nothing,
    Bytes,
    BytesAndGuards,
}

/// Places in memory other than the host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sweep {
    /// Bytes from one to the next.
    pub step: u64,
    pub places: u64,
}

/// How one is to be opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    pub bytes: u64,
    /// Bytes change before each transfer.
    pub fresh_data: bool,
    /// Another place within the buffers for each transfer.
    pub random_addresses: bool,
    /// The places that [`Subject::place`] uses.
    pub sweep: Option<Sweep>,
    /// More than 1: an experiment of before, of copies back to back, which [`open`] refuses.
    pub back_to_back: u32,
}

impl Wanted {
    pub fn of(bytes: u64) -> Wanted {
        Wanted { bytes, fresh_data: true, random_addresses: false, sweep: None, back_to_back: 1 }
    }
}
