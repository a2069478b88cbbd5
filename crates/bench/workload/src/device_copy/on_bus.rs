//! An engine as one of `workload`'s devices: memory is pinned once, and jobs between two pinned memories may start any number of times.
//!
//! A card has one engine, shared by all that opened it. A job first waits until the transfer before it has ended, so at most one transfer is
//! pending.

use crate::device::{self, Card, CardMemory, Device, GpuTarget, Handle, Job};
use crate::device_copy::arena::{Arena, Range};
use crate::device_copy::engine::{Direction, Engine};
use crate::routes::polling;
use crate::{Buffer, Error, Unavailable};
use pcie::Memory;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// Longer than any transfer that ends at all: for a card, and for an emulated one.
const PATIENCE: Duration = Duration::from_secs(2);
const LONG_PATIENCE: Duration = Duration::from_secs(120);

/// A card: an engine, and the allocated ranges of its memory.
pub struct OnBus<E>(Arc<Shared<E>>);

struct Shared<E> {
    // Dropped before the objects that it needs to end well.
    turn: Mutex<Turn<E>>,
    arena: Arc<Arena>,
    about: String,
    functional: bool,
    _keep: Box<dyn Any + Send + Sync>,
}

/// The engine, and the state of its transfers.
struct Turn<E> {
    engine: E,
    /// Number of transfers that were started, which is also the number of the last one.
    started: u64,
    /// The last transfer may still be running.
    under_way: bool,
    /// Transfers that failed while other jobs waited for them, with the errors for their own jobs.
    failed: Vec<(u64, Error)>,
}

impl<E: Engine> Shared<E> {
    fn turn(&self) -> MutexGuard<'_, Turn<E>> {
        poison::ignore(self.turn.lock())
    }

    fn patience(&self) -> Duration {
        if self.functional { LONG_PATIENCE } else { PATIENCE }
    }

    /// The engine, when no transfer is running.
    fn idle(&self) -> Result<MutexGuard<'_, Turn<E>>, Error> {
        let begun = Instant::now();
        let mut turn = self.turn();
        while turn.under_way {
            match turn.engine.poll() {
                Ok(done) => turn.under_way = !done,
                Err(error) => {
                    let number = turn.started;
                    turn.under_way = false;
                    turn.failed.push((number, error));
                }
            }
            let after = begun.elapsed();
            if turn.under_way && after > self.patience() {
                return Err(Error::Late { bytes: 0, after });
            }
        }
        Ok(turn)
    }
}

impl<E: Engine> Turn<E> {
    /// Whether the transfer with this number is done.
    fn is_done(&mut self, number: u64) -> Result<bool, Error> {
        if let Some(at) = self.failed.iter().position(|(failed, _)| *failed == number) {
            return Err(self.failed.swap_remove(at).1);
        }
        if number == self.started && self.under_way {
            // A failed transfer is over.
            self.under_way = false;
            self.under_way = !self.engine.poll()?;
        }
        Ok(number != self.started || !self.under_way)
    }
}

impl<E: Engine + 'static> OnBus<E> {
    /// `keep` is dropped after the engine: for example the machine that emulates it.
    pub fn new(engine: E, keep: impl Any + Send + Sync) -> OnBus<E> {
        let (begin, length) = engine.own();
        let (about, functional) = (engine.about(), engine.function().is_functional());
        let arena = Arena::new(begin, length);
        let turn = Mutex::new(Turn { engine, started: 0, under_way: false, failed: Vec::new() });
        OnBus(Arc::new(Shared { turn, arena, about, functional, _keep: Box::new(keep) }))
    }
}

impl<E: Engine + 'static> Card for OnBus<E> {
    fn about(&self) -> String {
        self.0.about.clone()
    }

    fn is_functional(&self) -> bool {
        self.0.functional
    }

    fn memory(&self, bytes: u64) -> Result<Box<dyn CardMemory>, Error> {
        let none = || {
            let length = self.0.arena.length;
            Unavailable::new(format!(
                "{bytes} bytes of {}'s own memory, which has {length}, not all of them free; take smaller ranges of addresses",
                self.0.about
            ))
        };
        let range = self.0.arena.take(bytes).ok_or_else(none)?;
        let (address, length) = (range.address, range.length);
        Ok(Box::new(Own { shared: self.0.clone(), _range: Some(range), address, length }))
    }

    fn whole(&self) -> Box<dyn CardMemory> {
        let (address, length) = (self.0.arena.begin, self.0.arena.length);
        Box::new(Own { shared: self.0.clone(), _range: None, address, length })
    }

    fn own(&self) -> u64 {
        self.0.arena.length
    }

    fn host(&self, bytes: u64) -> Result<Memory, Error> {
        Ok(self.0.turn().engine.function().allocate(bytes)?)
    }

    fn open(&self) -> Result<Box<dyn Device>, Error> {
        Ok(Box::new(Opened { shared: self.0.clone(), pinned: Vec::new(), next: 0 }))
    }
}

/// The card's own memory.
struct Own<E> {
    shared: Arc<Shared<E>>,
    /// Allocated as long as this exists.
    _range: Option<Range>,
    address: u64,
    length: u64,
}

impl<E> Own<E> {
    fn place(&self, at: u64, bytes: usize) -> Result<u64, Error> {
        let end = at.checked_add(bytes as u64).filter(|end| *end <= self.length);
        end.ok_or(Error::Capacity { bytes: bytes as u64, capacity: self.length })?;
        Ok(self.address + at)
    }
}

impl<E: Engine> CardMemory for Own<E> {
    fn address(&self) -> u64 {
        self.address
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), Error> {
        let place = self.place(at, into.len())?;
        self.shared.idle()?.engine.read_own(place, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        let place = self.place(at, from.len())?;
        self.shared.idle()?.engine.write_own(place, from)
    }
}

/// Memory that a card does not reach itself is reached through the host.
fn by_host(error: pcie::Error, target: &GpuTarget) -> Error {
    match error.into() {
        Error::Unavailable(why) => {
            Unavailable::new(format!("{why}; by way of host memory it goes: device->staged->{}", target.route())).into()
        }
        other => other,
    }
}

/// The object that a handle names.
#[derive(Clone)]
enum Pinned {
    Own(u64),
    Bus {
        memory: Memory,
        at: u64,
        /// Asked before each transfer whether the memory still has the same owner.
        target: Option<GpuTarget>,
    },
}

struct Opened<E> {
    shared: Arc<Shared<E>>,
    /// With their lengths in bytes.
    pinned: Vec<(Handle, Pinned, u64)>,
    next: u64,
}

impl<E: Engine + 'static> Opened<E> {
    fn find(&self, handle: Handle) -> Result<(Pinned, u64), Error> {
        let found = self.pinned.iter().find(|(pinned, ..)| *pinned == handle);
        found.map(|(_, what, bytes)| (what.clone(), *bytes)).ok_or(Error::Unpinned)
    }
}

impl<E: Engine + 'static> Device for Opened<E> {
    fn about(&self) -> String {
        self.shared.about.clone()
    }

    fn pin(&mut self, buffer: &Buffer<'_>) -> Result<Handle, Error> {
        let pinned = match buffer.on_bus()? {
            device::OnBus::Own(address) => Pinned::Own(address),
            device::OnBus::Host(memory, at) => Pinned::Bus { memory, at, target: None },
            device::OnBus::Gpu(target) => {
                let memory =
                    self.shared.turn().engine.function().reach(&target.peer()).map_err(|e| by_host(e, &target))?;
                Pinned::Bus { memory, at: 0, target: Some(target) }
            }
        };
        let handle = Handle(self.next);
        self.next += 1;
        self.pinned.push((handle, pinned, buffer.capacity()));
        Ok(handle)
    }

    fn unpin(&mut self, handle: Handle) -> Result<(), Error> {
        let at = self.pinned.iter().position(|(pinned, ..)| *pinned == handle).ok_or(Error::Unpinned)?;
        self.pinned.swap_remove(at);
        Ok(())
    }

    // An engine does not check who owns the memory at a bus address.
    fn job<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        let ((from, room_from), (to, room_to)) = (self.find(from)?, self.find(to)?);
        let capacity = room_from.min(room_to);
        if bytes > capacity || bytes == 0 {
            return Err(Error::Capacity { bytes, capacity });
        }
        let (direction, own, bus) = match (from, to) {
            (Pinned::Own(own), bus @ Pinned::Bus { .. }) => (Direction::FromCard, own, bus),
            (bus @ Pinned::Bus { .. }, Pinned::Own(own)) => (Direction::ToCard, own, bus),
            _ => return Err(Unavailable::new("one end is the card's own memory, and the other is not").into()),
        };
        let Pinned::Bus { memory, at, target } = bus else { return Err(Error::Unpinned) };
        let rooms = [room_from, room_to];
        Ok(Box::new(Moving {
            shared: &self.shared,
            direction,
            own,
            memory,
            at,
            target,
            rooms,
            bytes,
            state: State::Idle,
        }))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// With its number.
    UnderWay(u64),
    Done,
}

struct Moving<'r, E: Engine> {
    shared: &'r Shared<E>,
    direction: Direction,
    own: u64,
    memory: Memory,
    at: u64,
    target: Option<GpuTarget>,
    /// Lengths of source and destination in bytes.
    rooms: [u64; 2],
    bytes: u64,
    state: State,
}

impl<E: Engine> Job for Moving<'_, E> {
    fn start(&mut self, from: u64, to: u64) -> Result<(), Error> {
        for (at, capacity) in [from, to].into_iter().zip(self.rooms) {
            if at.checked_add(self.bytes).is_none_or(|end| end > capacity) {
                return Err(Error::Capacity { bytes: at.saturating_add(self.bytes), capacity });
            }
        }
        if let Some(target) = &self.target {
            target.check()?;
        }
        let (own, at) = match self.direction {
            Direction::FromCard => (self.own + from, self.at + to),
            Direction::ToCard => (self.own + to, self.at + from),
        };
        let mut turn = self.shared.idle()?;
        turn.engine.start(self.direction, own, &self.memory, at, self.bytes)?;
        turn.started += 1;
        turn.under_way = true;
        self.state = State::UnderWay(turn.started);
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        if let State::UnderWay(number) = self.state {
            match self.shared.turn().is_done(number) {
                Ok(false) => return Ok(false),
                Ok(true) => self.state = State::Done,
                Err(error) => {
                    self.state = State::Idle;
                    return Err(error);
                }
            }
        }
        Ok(self.state == State::Done)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.state == State::Idle {
            return Err(Error::Idle);
        }
        polling::ended(timeout, self.bytes, || self.poll())
    }
}

impl<E: Engine> Drop for Moving<'_, E> {
    fn drop(&mut self) {
        if let State::UnderWay(_) = self.state {
            // The engine keeps the memory of transfers that are not done by then.
            let _ = self.wait(self.shared.patience());
        }
    }
}
