//! Routes as subjects: random bytes, changed before each transfer, and compared whole with the guards at both ends. Each transfer has the same
//! place or another ([`crate::Places`]), or with a sweep that of its turn, to see whether the address matters.
//!
//! In a sweep each memory except the host's is long enough for all places; at the host's end transfers always begin at the same place. At each
//! place bytes and guards are written again.

use crate::entry::Result as Open;
use crate::routes;
use crate::spec::{End, Memory};
use crate::{
    Buffer, Checked, Checks, Engine, Error, HostEnd, Inspect, Machine, Opened, Places, Route, Subject, Transfer,
    Unavailable, Waiting, Wanted, Wrong, verify,
};
use std::time::Duration;

pub(crate) fn open<'m>(machine: &'m Machine, name: &str, wanted: &Wanted) -> Open<'m> {
    let about = routes::about(machine, name)?;
    let Some(sweep) = wanted.sweep else {
        let capacity = if wanted.random_addresses { Places::room(wanted.bytes) } else { wanted.bytes };
        return Ok(of_route(routes::open(machine, name, capacity)?, about, wanted));
    };
    let spec = routes::parse(name)?;
    let executor = routes::executor(machine, name)?;
    let room = executor.room(wanted.bytes)?;
    let last = sweep.step.checked_mul(sweep.places.saturating_sub(1));
    let long = last.and_then(|last| last.checked_add(room)).ok_or(Error::Memory { bytes: u64::MAX })?;
    let several = [spec.source, spec.destination].map(|end| !matches!(end.memory, Memory::Host(_)));
    let memory = |end: End, several| Buffer::new(machine, end, if several { long } else { room });
    let (source, destination) = (memory(spec.source, several[0])?, memory(spec.destination, several[1])?);
    let about = format!("{about}; at {} places, {} bytes apart", sweep.places, sweep.step);
    Ok(Box::new(OpenRoute {
        several,
        ..OpenRoute::new(Route::new(name, source, executor, destination)?, about, wanted)
    }))
}

/// A route that the caller has opened, as a subject. With random addresses its transfers move within its capacity.
pub fn of_route<'m>(route: Route<'m>, about: String, wanted: &Wanted) -> Box<dyn Opened + 'm> {
    Box::new(OpenRoute::new(route, about, wanted))
}

struct OpenRoute<'m> {
    route: Route<'m>,
    about: String,
    wanted: Wanted,
    /// In a sweep: whether the source has several places, and whether the destination has.
    several: [bool; 2],
}

impl<'m> OpenRoute<'m> {
    fn new(route: Route<'m>, about: String, wanted: &Wanted) -> OpenRoute<'m> {
        OpenRoute { route, about, wanted: wanted.clone(), several: [false; 2] }
    }

    fn subject(&mut self, seed: u64) -> Result<Moving<'_>, Error> {
        let Wanted { bytes, random_addresses, sweep, .. } = self.wanted;
        let capacity = self.route.capacity();
        let mut transfer = self.route.prepare(bytes)?;
        if random_addresses || sweep.is_some() {
            transfer.move_to(0, 0)?;
        }
        let ends = ends(transfer.as_ref())?;
        let data = if random_addresses {
            Data::Anywhere(Places::new(ends, capacity, bytes, seed)?)
        } else {
            Data::Here(Checked::new(ends, bytes, seed)?)
        };
        Ok(Moving { transfer, data, seed, wanted: &self.wanted, several: self.several })
    }
}

impl Opened for OpenRoute<'_> {
    fn about(&self) -> String {
        self.about.clone()
    }

    /// In a sweep, at the first place and at the last one.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let Wanted { bytes, random_addresses, sweep, .. } = self.wanted;
        let wrong = verify(&mut self.route, bytes, seed, timeout)?;
        if wrong.is_some() || !random_addresses && sweep.is_none() {
            return Ok(wrong);
        }
        let mut subject = self.subject(seed)?;
        let last = sweep.map_or(0, |sweep| u32::try_from(sweep.places.saturating_sub(1)).unwrap_or(u32::MAX));
        subject.place(last)?;
        crate::once(&mut subject, timeout)
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
    seed: u64,
    wanted: &'r Wanted,
    several: [bool; 2],
}

impl Subject for Moving<'_> {
    fn waiting(&self) -> Waiting {
        if self.transfer.is_polled() { Waiting::Polled } else { Waiting::Called }
    }

    fn place(&mut self, round: u32) -> Result<(), Error> {
        let Some(sweep) = self.wanted.sweep else { return Ok(()) };
        let place = u64::from(round) % sweep.places.max(1) * sweep.step;
        let at = self.several.map(|several| if several { place } else { 0 });
        self.seed = self.seed.wrapping_add(1);
        self.transfer.move_to(at[0], at[1])?;
        self.data = Data::Here(Checked::at(ends(self.transfer.as_ref())?, at, self.wanted.bytes, self.seed)?);
        Ok(())
    }

    fn renew(&mut self) -> Result<(), Error> {
        let (ends, fresh) = (ends(self.transfer.as_ref())?, self.wanted.fresh_data);
        match &mut self.data {
            // At the destination the bytes change in any case, so the source's bytes may stay.
            Data::Here(checked) if fresh || ends.host_end() == HostEnd::Destination => checked.renew(ends),
            Data::Here(_) => Ok(()),
            Data::Anywhere(places) => {
                let (source, destination) = places.renew(ends, fresh)?;
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
        let ends = ends(self.transfer.as_ref())?;
        match &mut self.data {
            Data::Anywhere(places) => places.check(ends),
            Data::Here(checked) => {
                let wrong = checked.check(ends)?;
                if wrong.is_none() && !self.wanted.fresh_data {
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

fn ends(transfer: &dyn Transfer) -> Result<&dyn Inspect, Error> {
    Ok(transfer.ends().ok_or_else(|| Unavailable::new("its memories cannot be read"))?)
}
