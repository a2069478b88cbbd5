//! Equal copies in a row as one subject: what the engine moves in a second, by the GPU's own clock. The CPU does no work between them.

use crate::entry::Result as Open;
use crate::{Checks, Engine, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong};
use copy::{BackToBack, Checked, HostEnd};
use std::time::Duration;

/// Longer than any copies take that ever complete.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) fn open<'m>(machine: &'m Machine, name: &str, about: String, wanted: &Wanted) -> Open<'m> {
    if wanted.random_addresses || wanted.sweep.is_some() {
        return Err(Unavailable::new("copies back to back are all between the same two places").into());
    }
    let copies = copy::back_to_back::open(machine, name, wanted.bytes)?;
    let Wanted { bytes, fresh_data: fresh, back_to_back: count, .. } = *wanted;
    Ok(Box::new(OpenCopies { copies, about, bytes, count, fresh }))
}

struct OpenCopies<'m> {
    copies: Box<dyn BackToBack + 'm>,
    about: String,
    bytes: u64,
    count: u32,
    fresh: bool,
}

impl Opened for OpenCopies<'_> {
    fn about(&self) -> String {
        format!("{}; {} back to back", self.about, self.count)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let checked = Checked::new(self.copies.ends(), self.bytes, seed)?;
        let (bytes, count, fresh) = (self.bytes, self.count, self.fresh);
        Ok(Box::new(Running { copies: self.copies.as_mut(), checked, bytes, count, fresh, is: Is::Done }))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Is {
    Ready,
    UnderWay,
    Done,
}

struct Running<'s> {
    copies: &'s mut dyn BackToBack,
    checked: Checked,
    bytes: u64,
    count: u32,
    fresh: bool,
    is: Is,
}

impl Running<'_> {
    fn finish(&mut self, timeout: Duration) -> Result<(), Error> {
        self.copies.finish(timeout)?;
        self.is = Is::Done;
        Ok(())
    }
}

impl Subject for Running<'_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    /// Prepares them after one that warms up. The bytes change after that one, so it does not move the bytes that are compared.
    fn renew(&mut self) -> Result<(), Error> {
        if self.is == Is::UnderWay {
            self.finish(PATIENCE)?;
        }
        self.copies.ready(self.bytes, self.count)?;
        self.is = Is::Ready;
        let ends = self.copies.ends();
        if self.fresh || ends.host_end() == HostEnd::Destination { self.checked.renew(ends) } else { Ok(()) }
    }

    fn fire(&mut self) -> Result<(), Error> {
        if self.is != Is::Ready {
            // It was not renewed: it works, but its time is not meaningful.
            self.renew()?;
        }
        self.copies.go()?;
        self.is = Is::UnderWay;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        if self.is == Is::UnderWay {
            match self.finish(Duration::ZERO) {
                Err(Error::Late { .. }) => return Ok(false),
                other => other?,
            }
        }
        Ok(self.is == Is::Done)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        match self.is {
            Is::UnderWay => self.finish(timeout),
            Is::Done => Ok(()),
            Is::Ready => Err(Error::Idle),
        }
    }

    fn engine(&self) -> Option<Engine> {
        let (started, ended) = self.copies.span()?;
        Some(Engine { started: Some(started), ended })
    }

    fn checks(&self) -> Checks {
        Checks::BytesAndGuards
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let wrong = self.checked.check(self.copies.ends())?;
        if wrong.is_none() && !self.fresh {
            self.checked.clear(self.copies.ends())?;
        }
        Ok(wrong)
    }
}
