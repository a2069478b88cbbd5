//! What an experiment can measure, or run beside a measurement: copies by any route, launches, graphs, and the set-up calls
//! of CUDA. [`open`] opens one by its text, [`Opened::prepare`] readies it, [`Subject::fire`] starts it.
//!
//! The invariant: between `fire` and the end nothing here allocates, locks or makes a system call that the measured route or
//! call does not make itself. Nothing here is timed; that is `measure`'s.

mod back_to_back;
mod catalogue;
mod chain;
mod entry;
mod frames;
mod hbm;
mod launch;
mod library;
mod lock;
mod nodes;
mod nothing;
mod outside;
mod route;
mod setup;
mod swept;
mod text;
mod transfers;
mod work;

use std::time::Duration;

pub use catalogue::{Listed, calls, check, open};
pub use copy::spec::SyntaxError;
pub use copy::{Error, Machine, Unavailable, Wrong};
pub use experiment::What;
pub use route::of_route;

/// What is opened: buffers, channels and modules exist.
pub trait Opened {
    /// What it is, in one line.
    fn about(&self) -> String;

    /// How many of these may be ready at once.
    fn at_once(&self) -> u32 {
        u32::MAX
    }

    /// Moves random bytes and compares them, guards included. Calls that move nothing do their work once.
    ///
    /// # Errors
    /// What the route or CUDA says. Wrong bytes are no error, but the answer.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        once(self.prepare(seed)?.as_mut(), timeout)
    }

    /// Readies it; `seed` is that of its random data.
    ///
    /// # Errors
    /// What the route or CUDA says.
    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error>;
}

/// Does it once, and compares what it left.
fn once(subject: &mut dyn Subject, timeout: Duration) -> Result<Option<Wrong>, Error> {
    subject.renew()?;
    subject.fire()?;
    subject.wait(timeout)?;
    subject.check()
}

/// How the end of one is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// By [`Subject::poll`]: memory is read, and nothing else happens.
    Polled,
    /// By [`Subject::wait`]: a call of CUDA's, which may sleep, spin or take locks.
    Called,
}

/// What one `fire` was, for those who count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Did {
    pub times: u64,
    /// That it moved, where it is no route.
    pub bytes: u64,
    /// Of the longest one, where one `fire` is no one of them.
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
    /// Of the last transfer; `None` where it does not say when it ended.
    #[inline]
    fn of(transfer: &dyn copy::Transfer) -> Option<Engine> {
        Some(Engine { started: transfer.started_gpu_ns(), ended: transfer.released_gpu_ns()? })
    }
}

/// What is ready to be done, as often as one likes. One at a time: `fire`, then `poll` until it is true or `wait`.
pub trait Subject {
    fn waiting(&self) -> Waiting;

    /// Before a turn, untimed: where it is swept, its transfers begin at the place of this round from now on.
    ///
    /// # Errors
    /// What the memory or CUDA says.
    fn place(&mut self, _round: u32) -> Result<(), Error> {
        Ok(())
    }

    /// Before a timed `fire`, untimed: changes the bytes that are moved, moves on to the next address, gives back what the
    /// last call took.
    ///
    /// # Errors
    /// What the memory or CUDA says.
    fn renew(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// Starts it. What only submits comes back at once; a call that does its work before it returns is done then.
    ///
    /// # Errors
    /// What the route or CUDA says.
    fn fire(&mut self) -> Result<(), Error>;

    /// Whether what was fired last is done.
    ///
    /// # Errors
    /// What the route or CUDA says.
    fn poll(&mut self) -> Result<bool, Error>;

    /// Until it is done.
    ///
    /// # Errors
    /// [`Error::Late`] after `timeout`, where it is looked at; CUDA's own waits have no limit.
    fn wait(&mut self, timeout: Duration) -> Result<(), Error>;

    /// What the last one was, once it is done.
    fn did(&mut self) -> Did {
        Did::ONCE
    }

    /// When the engine did it; `None` where no engine of ours says.
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
    /// What the memory or CUDA says. Wrong bytes are no error, but the answer.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }

    /// Behind its turn: lets go of what it keeps busy on the GPU. The next `fire` readies it again.
    ///
    /// # Errors
    /// What the route says.
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

/// Places in memory that is not the host's.
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
    /// Places that [`Subject::place`] goes to.
    pub sweep: Option<Sweep>,
    /// So many copies back to back are one; 1: each by itself.
    pub back_to_back: u32,
}

impl Wanted {
    pub fn of(bytes: u64) -> Wanted {
        Wanted { bytes, fresh_data: true, random_addresses: false, sweep: None, back_to_back: 1 }
    }
}
