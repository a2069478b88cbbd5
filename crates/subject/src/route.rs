//! Routes as subjects: random bytes, changed before each transfer, compared whole with the guards at both ends.

use crate::catalogue::Result as Open;
use crate::{Checks, Engine, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong};
use copy::{Checked, Route, Transfer};
use std::time::Duration;

pub(crate) fn open<'m>(machine: &'m Machine, name: &str, wanted: &Wanted) -> Open<'m> {
    let about = copy::about(machine, name)?;
    if wanted.back_to_back > 1 {
        return Err(Unavailable::new("copies back to back are not built yet").into());
    }
    if wanted.random_addresses {
        return Err(Unavailable::new("another place for each transfer is not built yet").into());
    }
    let route = copy::open(machine, name, wanted.bytes)?;
    Ok(Box::new(OpenRoute { route, about, bytes: wanted.bytes, fresh: wanted.fresh_data }))
}

struct OpenRoute<'m> {
    route: Box<dyn Route + 'm>,
    about: String,
    bytes: u64,
    fresh: bool,
}

impl Opened for OpenRoute<'_> {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        copy::verify(self.route.as_mut(), self.bytes, seed, timeout)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let (bytes, fresh) = (self.bytes, self.fresh);
        let transfer = self.route.prepare(bytes)?;
        let ends = transfer.ends().ok_or_else(|| Unavailable::new("its memories cannot be looked at"))?;
        let checked = Checked::new(ends, bytes, seed)?;
        Ok(Box::new(Moving { transfer, checked, fresh }))
    }
}

struct Moving<'r> {
    transfer: Box<dyn Transfer + 'r>,
    checked: Checked,
    fresh: bool,
}

impl Subject for Moving<'_> {
    fn waiting(&self) -> Waiting {
        if self.transfer.is_polled() { Waiting::Polled } else { Waiting::Called }
    }

    fn renew(&mut self) -> Result<(), Error> {
        match self.transfer.ends() {
            Some(ends) if self.fresh => self.checked.renew(ends),
            _ => Ok(()),
        }
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        self.transfer.submit()
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        self.transfer.poll()
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.transfer.wait(timeout)
    }

    #[inline]
    fn engine(&self) -> Option<Engine> {
        Some(Engine { started: None, ended: self.transfer.released_gpu_ns()? })
    }

    fn checks(&self) -> Checks {
        Checks::BytesAndGuards
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Some(ends) = self.transfer.ends() else { return Ok(None) };
        let wrong = self.checked.check(ends)?;
        if wrong.is_none() && !self.fresh {
            // What stays the same has to be moved again before the next comparison, or that compares what this one saw.
            self.checked.clear(ends)?;
        }
        Ok(wrong)
    }

    fn rest(&mut self) -> Result<(), Error> {
        self.transfer.rest()
    }
}
