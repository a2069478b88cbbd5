//! Routes whose transfers begin at another place of their memories in each turn, to see whether the address matters.
//!
//! Each memory except the host's is long enough for all places; at the host's end transfers always begin at the same place. At each place bytes and
//! guards are written again and compared as usual.

use crate::entry::Result as Open;
use crate::spec::{End, Memory};
use crate::{Buffer, Checked, HostEnd, Inspect, Route, Transfer};
use crate::{Checks, Engine, Error, Machine, Opened, Subject, Sweep, Unavailable, Waiting, Wanted, Wrong};
use std::time::Duration;

pub(crate) fn open<'m>(machine: &'m Machine, name: &str, about: String, wanted: &Wanted, sweep: Sweep) -> Open<'m> {
    let spec = crate::routes::parse(name)?;
    let executor = crate::routes::executor(machine, name)?;
    let room = executor.room(wanted.bytes)?;
    let last = sweep.step.checked_mul(sweep.places.saturating_sub(1));
    let long = last.and_then(|last| last.checked_add(room)).ok_or(Error::Memory { bytes: u64::MAX })?;
    let memory = |end: End| Buffer::new(machine, end, if is_host(end) { room } else { long });
    let (source, destination) = (memory(spec.source)?, memory(spec.destination)?);
    let route = Route::new(name, source, executor, destination)?;
    let moves = [!is_host(spec.source), !is_host(spec.destination)];
    Ok(Box::new(OpenSweep { route, about, bytes: wanted.bytes, fresh: wanted.fresh_data, sweep, moves }))
}

fn is_host(end: End) -> bool {
    matches!(end.memory, Memory::Host(_))
}

struct OpenSweep<'m> {
    route: Route<'m>,
    about: String,
    bytes: u64,
    fresh: bool,
    sweep: Sweep,
    /// Whether the source has several places, and whether the destination has.
    moves: [bool; 2],
}

impl OpenSweep<'_> {
    fn subject(&mut self, seed: u64) -> Result<Swept<'_>, Error> {
        let OpenSweep { bytes, fresh, sweep, moves, .. } = *self;
        let mut transfer = self.route.prepare(bytes)?;
        let at = [0, 0];
        let checked = written(transfer.as_mut(), at, bytes, seed)?;
        Ok(Swept { transfer, checked, at, moves, bytes, fresh, sweep, seed })
    }
}

/// Moves to a place and fills it.
fn written(
    transfer: &mut dyn Transfer,
    [source, destination]: [u64; 2],
    bytes: u64,
    seed: u64,
) -> Result<Checked, Error> {
    transfer.move_to(source, destination)?;
    Checked::new(&At::of(transfer, [source, destination])?, bytes, seed)
}

impl Opened for OpenSweep<'_> {
    fn about(&self) -> String {
        format!("{}; at {} places, {} bytes apart", self.about, self.sweep.places, self.sweep.step)
    }

    /// At the first place and at the last one.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let wrong = crate::verify(&mut self.route, self.bytes, seed, timeout)?;
        if wrong.is_some() {
            return Ok(wrong);
        }
        let last = u32::try_from(self.sweep.places.saturating_sub(1)).unwrap_or(u32::MAX);
        let mut subject = self.subject(seed)?;
        subject.place(last)?;
        crate::once(&mut subject, timeout)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

struct Swept<'r> {
    transfer: Box<dyn Transfer + 'r>,
    checked: Checked,
    /// Where in source and destination.
    at: [u64; 2],
    moves: [bool; 2],
    bytes: u64,
    fresh: bool,
    sweep: Sweep,
    seed: u64,
}

impl Subject for Swept<'_> {
    fn waiting(&self) -> Waiting {
        if self.transfer.is_polled() { Waiting::Polled } else { Waiting::Called }
    }

    fn place(&mut self, round: u32) -> Result<(), Error> {
        let place = u64::from(round) % self.sweep.places.max(1) * self.sweep.step;
        self.at = self.moves.map(|moves| if moves { place } else { 0 });
        self.seed = self.seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
        self.checked = written(self.transfer.as_mut(), self.at, self.bytes, self.seed)?;
        Ok(())
    }

    fn renew(&mut self) -> Result<(), Error> {
        let ends = At::of(self.transfer.as_ref(), self.at)?;
        if self.fresh || ends.host_end() == HostEnd::Destination { self.checked.renew(&ends) } else { Ok(()) }
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
        Engine::of(self.transfer.as_ref())
    }

    fn checks(&self) -> Checks {
        Checks::BytesAndGuards
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let ends = At::of(self.transfer.as_ref(), self.at)?;
        let wrong = self.checked.check(&ends)?;
        if wrong.is_none() && !self.fresh {
            self.checked.clear(&ends)?;
        }
        Ok(wrong)
    }

    fn rest(&mut self) -> Result<(), Error> {
        self.transfer.rest()
    }
}

/// The two memories, as seen from a place of each.
struct At<'e> {
    ends: &'e dyn Inspect,
    at: [i64; 2],
}

impl<'e> At<'e> {
    fn of(transfer: &'e dyn Transfer, at: [u64; 2]) -> Result<At<'e>, Error> {
        let ends = transfer.ends().ok_or_else(|| Unavailable::new("its memories cannot be read"))?;
        Ok(At { ends, at: at.map(|at| at as i64) })
    }
}

impl Inspect for At<'_> {
    fn footprint(&self, bytes: u64) -> u64 {
        self.ends.footprint(bytes)
    }

    fn host_end(&self) -> HostEnd {
        self.ends.host_end()
    }

    fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.ends.write_source(self.at[0] + at, data)
    }

    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.ends.write_destination(self.at[1] + at, data)
    }

    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_destination(self.at[1] + at, into)
    }
}
