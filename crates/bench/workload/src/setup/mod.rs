//! Set-up calls: what a program does before it works, or while others already work. Each `fire` makes one call. What the call took is given back
//! before the next one, untimed; a load that makes these calls gives back as often as it takes. For some calls the opposite is measured: giving
//! back is timed, and taking before it is not.

mod code;
mod graph;
mod memory;
mod pin;
mod stream;

pub(crate) use code::{LAZY, MODULE};
pub(crate) use graph::INSTANTIATE;
pub(crate) use memory::{HOST_ALLOC, HOST_REGISTER, HOST_UNREGISTER, MALLOC};
pub(crate) use pin::{PIN, UNPIN};
pub(crate) use stream::STREAM;

use crate::{Checks, Error, Opened, Subject, Wrong};
use std::time::Duration;

/// A call that takes something.
trait Take {
    /// What one call gives; dropping it gives it back.
    type Held;

    /// Whether [`Take::check`] compares anything.
    const CHECKS: Checks = Checks::Nothing;

    /// Before each call, untimed.
    fn ready(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The call.
    fn take(&mut self) -> Result<Self::Held, Error>;

    /// Gives it back.
    fn give(&mut self, held: Self::Held) -> Result<(), Error> {
        drop(held);
        Ok(())
    }

    /// Checks that the result is usable.
    fn check(&mut self, _held: &Self::Held) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }
}

/// A call whose result needs no check.
struct Calls<F>(F);

impl<H, F: FnMut() -> Result<H, Error>> Take for Calls<F> {
    type Held = H;

    #[inline]
    fn take(&mut self) -> Result<H, Error> {
        (self.0)()
    }
}

/// The call as a subject.
struct Measured<T> {
    call: T,
    about: String,
    /// Giving back is measured, not the call.
    gives: bool,
}

impl<T: Take> Measured<T> {
    fn taking(call: T, about: String) -> Measured<T> {
        Measured { call, about, gives: false }
    }

    fn giving(call: T, about: String) -> Measured<T> {
        Measured { call, about, gives: true }
    }
}

impl<T: Take> Opened for Measured<T> {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn verify(&mut self, _seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.call.ready()?;
        let held = self.call.take()?;
        let wrong = self.call.check(&held)?;
        self.call.give(held)?;
        Ok(wrong)
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        self.call.ready()?;
        Ok(Box::new(Turn { call: &mut self.call, gives: self.gives, held: None, done: false }))
    }
}

struct Turn<'s, T: Take> {
    call: &'s mut T,
    gives: bool,
    held: Option<T::Held>,
    done: bool,
}

impl<T: Take> Subject for Turn<'_, T> {
    fn renew(&mut self) -> Result<(), Error> {
        self.done = false;
        if !self.gives {
            self.rest()?;
            return self.call.ready();
        }
        if self.held.is_none() {
            self.call.ready()?;
            self.held = Some(self.call.take()?);
        }
        Ok(())
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        if self.gives != self.held.is_some() {
            // It was not renewed: its time is not meaningful, but there is no leak either.
            self.renew()?;
        }
        match self.held.take() {
            Some(held) => self.call.give(held)?,
            None => self.held = Some(self.call.take()?),
        }
        self.done = true;
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.done)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.done { Ok(()) } else { Err(Error::Idle) }
    }

    fn checks(&self) -> Checks {
        if self.gives { Checks::Nothing } else { T::CHECKS }
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        // What was given back cannot be compared any more.
        self.held.as_ref().map_or(Ok(None), |held| self.call.check(held))
    }

    fn rest(&mut self) -> Result<(), Error> {
        self.held.take().map_or(Ok(()), |held| self.call.give(held))
    }
}
