//! Set-up calls: what a program does before it works, or while others work already. Each `fire` makes one call. What the call
//! took is given back before the next one, untimed; a load that makes these calls gives back as often as it takes.

mod code;
mod graph;
mod memory;
mod stream;

pub(crate) use code::{LAZY, MODULE};
pub(crate) use graph::INSTANTIATE;
pub(crate) use memory::{HOST_ALLOC, HOST_REGISTER, MALLOC};
pub(crate) use stream::STREAM;

use crate::{Checks, Error, Opened, Subject, Waiting, Wrong};
use std::time::Duration;

/// A call that takes something.
trait Take {
    /// What one call gives; it is given back when it is dropped.
    type Held;

    /// Whether [`Take::check`] compares anything.
    const CHECKS: Checks = Checks::Nothing;

    fn about(&self) -> String;

    /// Before each call, untimed.
    fn ready(&mut self) -> Result<(), Error> {
        Ok(())
    }

    /// The call.
    fn take(&mut self) -> Result<Self::Held, Error>;

    /// Whether what it gave is usable.
    fn check(&mut self, _held: &Self::Held) -> Result<Option<Wrong>, Error> {
        Ok(None)
    }
}

struct Taking<T>(T);

impl<T: Take> Opened for Taking<T> {
    fn about(&self) -> String {
        self.0.about()
    }

    fn verify(&mut self, _seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.0.ready()?;
        let held = self.0.take()?;
        self.0.check(&held)
    }

    fn prepare(&mut self, _seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        self.0.ready()?;
        Ok(Box::new(Taken { call: &mut self.0, held: None }))
    }
}

struct Taken<'s, T: Take> {
    call: &'s mut T,
    held: Option<T::Held>,
}

impl<T: Take> Subject for Taken<'_, T> {
    /// The call has done its work when it returns.
    fn waiting(&self) -> Waiting {
        Waiting::Polled
    }

    fn renew(&mut self) -> Result<(), Error> {
        self.held = None;
        self.call.ready()
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        if self.held.is_some() {
            // Nobody has renewed it: not a way to time it, but no leak either.
            self.renew()?;
        }
        self.held = Some(self.call.take()?);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.held.is_some())
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.held.is_some() { Ok(()) } else { Err(Error::Idle) }
    }

    fn checks(&self) -> Checks {
        T::CHECKS
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        // What was given back cannot be looked at any more.
        self.held.as_ref().map_or(Ok(None), |held| self.call.check(held))
    }

    fn rest(&mut self) -> Result<(), Error> {
        self.held = None;
        Ok(())
    }
}
