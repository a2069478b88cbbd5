//! Routes as subjects: random bytes, changed before each transfer, and compared whole with the guards at both ends. Each transfer has the same
//! place or another ([`crate::Places`]).

use crate::entry::Result as Open;
use crate::{Checked, HostEnd, Places, Route, Transfer};
use crate::{Checks, Engine, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong, swept};
use std::time::Duration;

pub(crate) fn open<'m>(machine: &'m Machine, name: &str, wanted: &Wanted) -> Open<'m> {
    let about = crate::routes::about(machine, name)?;
    if let Some(sweep) = wanted.sweep {
        return swept::open(machine, name, about, wanted, sweep);
    }
    let capacity = if wanted.random_addresses { Places::room(wanted.bytes) } else { wanted.bytes };
    Ok(of_route(crate::routes::open(machine, name, capacity)?, about, wanted))
}

/// A route that the caller has opened, as a subject. With random addresses its transfers move within its capacity.
pub fn of_route<'m>(route: Route<'m>, about: String, wanted: &Wanted) -> Box<dyn Opened + 'm> {
    let Wanted { bytes, fresh_data: fresh, random_addresses: moves, .. } = *wanted;
    Box::new(OpenRoute { route, about, bytes, fresh, moves })
}

struct OpenRoute<'m> {
    route: Route<'m>,
    about: String,
    bytes: u64,
    fresh: bool,
    moves: bool,
}

impl OpenRoute<'_> {
    fn subject(&mut self, seed: u64) -> Result<Moving<'_>, Error> {
        let Self { bytes, fresh, moves, .. } = *self;
        let capacity = self.route.capacity();
        let mut transfer = self.route.prepare(bytes)?;
        if moves {
            transfer.move_to(0, 0)?;
        }
        let ends = transfer.ends().ok_or_else(|| Unavailable::new("its memories cannot be read"))?;
        let data = if moves {
            Data::Anywhere(Places::new(ends, capacity, bytes, seed)?)
        } else {
            Data::Here(Checked::new(ends, bytes, seed)?)
        };
        Ok(Moving { transfer, data, fresh })
    }
}

impl Opened for OpenRoute<'_> {
    fn about(&self) -> String {
        self.about.clone()
    }

    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let wrong = crate::verify(&mut self.route, self.bytes, seed, timeout)?;
        if wrong.is_some() || !self.moves {
            return Ok(wrong);
        }
        crate::once(&mut self.subject(seed)?, timeout)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

/// What the memories hold.
enum Data {
    Here(Checked),
    Anywhere(Places),
}

struct Moving<'r> {
    transfer: Box<dyn Transfer + 'r>,
    data: Data,
    fresh: bool,
}

impl Subject for Moving<'_> {
    fn waiting(&self) -> Waiting {
        if self.transfer.is_polled() { Waiting::Polled } else { Waiting::Called }
    }

    fn renew(&mut self) -> Result<(), Error> {
        let Some(ends) = self.transfer.ends() else { return Ok(()) };
        match &mut self.data {
            // At the destination the bytes change in any case, so the source's bytes may stay.
            Data::Here(checked) if self.fresh || ends.host_end() == HostEnd::Destination => checked.renew(ends),
            Data::Here(_) => Ok(()),
            Data::Anywhere(places) => {
                let (source, destination) = places.renew(ends, self.fresh)?;
                self.transfer.move_to(source, destination)
            }
        }
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        self.transfer.submit()?;
        if let Data::Anywhere(places) = &mut self.data {
            places.made();
        }
        Ok(())
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
        Engine::of(self.transfer.as_ref())
    }

    fn checks(&self) -> Checks {
        Checks::BytesAndGuards
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Some(ends) = self.transfer.ends() else { return Ok(None) };
        match &mut self.data {
            Data::Anywhere(places) => places.check(ends),
            Data::Here(checked) => {
                let wrong = checked.check(ends)?;
                if wrong.is_none() && !self.fresh {
                    // Unchanged bytes have to be moved again before the next comparison, which would otherwise see the earlier ones.
                    checked.clear(ends)?;
                }
                Ok(wrong)
            }
        }
    }

    fn rest(&mut self) -> Result<(), Error> {
        self.transfer.rest()
    }
}
