//! An engine as `copy` has devices: memory is pinned once, jobs between two pinned memories start as often as one likes.
//!
//! The engine is behind a lock that its jobs take for each start and each look. One job at a time is used, so nobody waits there.

use crate::arena::{Arena, Range};
use crate::engine::{Direction, Engine};
use copy::device::{self, Card, CardMemory, Device, GpuTarget, Handle, Job};
use copy::{Buffer, Error, Unavailable};
use pcie::Memory;
use std::any::Any;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Longer than any transfer takes that will ever end.
const PATIENCE: Duration = Duration::from_secs(2);

/// A card: an engine, and what of its memory is taken.
pub struct OnBus<E>(Arc<Shared<E>>);

struct Shared<E> {
    // Before what it needs to end well.
    engine: Mutex<E>,
    arena: Arc<Arena>,
    about: String,
    functional: bool,
    _keep: Box<dyn Any + Send + Sync>,
}

impl<E: Engine> Shared<E> {
    fn engine(&self) -> MutexGuard<'_, E> {
        self.engine.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<E: Engine + 'static> OnBus<E> {
    /// `keep` is dropped behind the engine: the machine that it is emulated by.
    pub fn new(engine: E, keep: impl Any + Send + Sync) -> OnBus<E> {
        let (begin, length) = engine.own();
        let (about, functional) = (engine.about(), engine.function().is_functional());
        let arena = Arena::new(begin, length);
        OnBus(Arc::new(Shared { engine: Mutex::new(engine), arena, about, functional, _keep: Box::new(keep) }))
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
            let length = self.0.arena.length();
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
        let (address, length) = (self.0.arena.begin(), self.0.arena.length());
        Box::new(Own { shared: self.0.clone(), _range: None, address, length })
    }

    fn own(&self) -> u64 {
        self.0.arena.length()
    }

    fn host(&self, bytes: u64) -> Result<Memory, Error> {
        Ok(self.0.engine().function().allocate(bytes)?)
    }

    fn open(&self) -> Result<Box<dyn Device>, Error> {
        Ok(Box::new(Opened { shared: self.0.clone(), pinned: Vec::new(), next: 0 }))
    }
}

/// Memory of the card's own.
struct Own<E> {
    shared: Arc<Shared<E>>,
    /// Nobody else's as long as this is here.
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
        self.shared.engine().read_own(place, into)
    }

    fn write(&self, at: u64, from: &[u8]) -> Result<(), Error> {
        let place = self.place(at, from.len())?;
        self.shared.engine().write_own(place, from)
    }
}

/// What a card does not reach by itself goes by way of the host.
fn by_host(error: pcie::Error, target: &GpuTarget) -> Error {
    match error.into() {
        Error::Unavailable(why) => {
            Unavailable::new(format!("{why}; by way of host memory it goes: device->staged->{}", target.route())).into()
        }
        other => other,
    }
}

/// What a handle stands for.
#[derive(Clone)]
enum Pinned {
    Own(u64),
    Bus {
        memory: Memory,
        at: u64,
        /// Asked before each transfer whether it is still whose it was.
        target: Option<GpuTarget>,
    },
}

struct Opened<E> {
    shared: Arc<Shared<E>>,
    /// With their bytes.
    pinned: Vec<(Handle, Pinned, u64)>,
    next: u64,
}

impl<E: Engine + 'static> Opened<E> {
    fn find(&self, handle: Handle) -> Result<(Pinned, u64), Error> {
        let found = self.pinned.iter().find(|(pinned, ..)| *pinned == handle);
        found.map(|(_, what, bytes)| (what.clone(), *bytes)).ok_or(Error::Unpinned)
    }

    fn job(&mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + '_>, Error> {
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

impl<E: Engine + 'static> Device for Opened<E> {
    fn about(&self) -> String {
        self.shared.about.clone()
    }

    fn pin(&mut self, buffer: &Buffer<'_>) -> Result<Handle, Error> {
        let pinned = match buffer.on_bus()? {
            device::OnBus::Own(address) => Pinned::Own(address),
            device::OnBus::Host(memory, at) => Pinned::Bus { memory, at, target: None },
            device::OnBus::Gpu(target) => {
                let memory = self.shared.engine().function().reach(&target.peer()).map_err(|e| by_host(e, &target))?;
                Pinned::Bus { memory, at: 0, target: Some(target) }
            }
        };
        let handle = Handle::new(self.next);
        self.next += 1;
        self.pinned.push((handle, pinned, buffer.capacity()));
        Ok(handle)
    }

    fn unpin(&mut self, handle: Handle) -> Result<(), Error> {
        let at = self.pinned.iter().position(|(pinned, ..)| *pinned == handle).ok_or(Error::Unpinned)?;
        self.pinned.swap_remove(at);
        Ok(())
    }

    // An engine does not ask whose memory a bus address is.
    fn to_host<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        self.job(from, to, bytes)
    }

    fn from_host<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        self.job(from, to, bytes)
    }

    fn to_gpu<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        self.job(from, to, bytes)
    }

    fn from_gpu<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        self.job(from, to, bytes)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    UnderWay,
    Done,
}

struct Moving<'r, E: Engine> {
    shared: &'r Shared<E>,
    direction: Direction,
    own: u64,
    memory: Memory,
    at: u64,
    target: Option<GpuTarget>,
    /// Bytes of source and destination.
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
        self.shared.engine().start(self.direction, own, &self.memory, at, self.bytes)?;
        self.state = State::UnderWay;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        if self.state == State::UnderWay && self.shared.engine().poll()? {
            self.state = State::Done;
        }
        Ok(self.state == State::Done)
    }

    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.state == State::Idle {
            return Err(Error::Idle);
        }
        let begun = Instant::now();
        while !self.poll()? {
            let after = begun.elapsed();
            if after > timeout {
                return Err(Error::Late { bytes: self.bytes, after });
            }
            std::hint::spin_loop();
        }
        Ok(())
    }
}

impl<E: Engine> Drop for Moving<'_, E> {
    fn drop(&mut self) {
        if self.state == State::UnderWay {
            // The engine keeps the memory of what is not done by then.
            let _ = self.wait(PATIENCE);
        }
    }
}
