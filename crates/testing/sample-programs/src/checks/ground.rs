//! The ground under every check: how the GPU is opened, and an address space with the few things that checks need.

use super::ledger::Ledger;
use gpu::{
    AddressSpace, Channel, ChannelOptions, CopyEngine, Device, DeviceOptions, Engine, Error, Memory, Pushbuffer,
    Semaphore, Semaphores,
};
use rm::driver::Driver;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How the GPU is reached, and how much a check may ask of it.
#[derive(Clone)]
pub struct Ground {
    pub driver: Arc<dyn Driver>,
    /// The GPU's number in the driver's list.
    pub index: usize,
    /// Real hardware may be opened.
    pub allow_real: bool,
    /// The longest wait for anything that must happen.
    pub patience: Duration,
    /// Seed of all random data.
    pub seed: u64,
}

impl Ground {
    /// The software GPU only: real hardware is refused.
    pub fn soft(driver: Arc<dyn Driver>) -> Ground {
        Ground { driver, index: 0, allow_real: false, patience: Duration::from_secs(20), seed: 1 }
    }

    /// A GPU of this machine.
    pub fn real(driver: Arc<dyn Driver>, index: usize) -> Ground {
        Ground { driver, index, allow_real: true, patience: Duration::from_secs(5), seed: 1 }
    }

    pub fn device_of(&self, driver: Arc<dyn Driver>, index: usize) -> Result<Arc<Device>, Error> {
        DeviceOptions::default().allow_real(self.allow_real).open(driver, index)
    }

    /// The device, an address space and a page of semaphores.
    pub fn open(&self) -> Result<Rig, Stop> {
        let ledger = Arc::new(Ledger::new(self.driver.clone()));
        let device = self.device_of(ledger.clone(), self.index)?;
        let space = AddressSpace::new(&device)?;
        let semaphores = Semaphores::new(&space)?;
        // Those that run by themselves first: a graphics engine's are in step with other programs' kernels.
        let (mut copy_engines, graphics): (Vec<_>, Vec<_>) =
            device.engines().map_err(Error::from)?.into_iter().partition(CopyEngine::is_asynchronous);
        copy_engines.extend(graphics);
        Ok(Rig { ground: self.clone(), semaphores, space, device, copy_engines, ledger })
    }
}

/// Why a check did not pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    Failed(String),
    /// Not possible here: no judgement.
    Skipped(String),
}

impl From<Error> for Stop {
    fn from(error: Error) -> Stop {
        Stop::Failed(error.to_string())
    }
}

/// Fails with a text unless it is true.
pub(crate) fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), Stop> {
    if holds { Ok(()) } else { Err(Stop::Failed(otherwise())) }
}

/// Fails with a text if there is one.
pub(crate) fn fail_if_some(wrong: Option<String>, what: impl FnOnce() -> String) -> Result<(), Stop> {
    match wrong {
        None => Ok(()),
        Some(wrong) => Err(Stop::Failed(format!("{}: {wrong}", what()))),
    }
}

/// An open device and a separate address space.
pub struct Rig {
    pub ground: Ground,
    pub semaphores: Semaphores,
    pub space: Arc<AddressSpace>,
    pub device: Arc<Device>,
    /// Asynchronous engines first.
    pub copy_engines: Vec<CopyEngine>,
    pub ledger: Arc<Ledger>,
}

impl Rig {
    pub fn is_soft(&self) -> bool {
        self.device.is_soft()
    }

    /// The first asynchronous copy engine.
    pub fn copy_engine(&self) -> Result<Engine, Stop> {
        let first = self.copy_engines.first().filter(|engine| engine.is_asynchronous());
        first
            .map(|engine| Engine::Copy(engine.number))
            .ok_or_else(|| Stop::Skipped("no asynchronous copy engine".into()))
    }

    pub fn semaphore(&self) -> Result<Semaphore, Stop> {
        self.semaphores.alloc().ok_or_else(|| Stop::Failed("no semaphore is free, of 256".into()))
    }

    pub fn channel(&self, engine: Engine) -> Result<Channel, Stop> {
        Ok(Channel::new(&self.space, engine, ChannelOptions::default())?)
    }

    /// A channel whose ring has this many entries.
    pub fn small_channel(&self, engine: Engine, entries: u32) -> Result<Channel, Stop> {
        Ok(Channel::new(&self.space, engine, ChannelOptions { entries, ..Default::default() })?)
    }

    pub fn memory(&self, video: bool, length: u64) -> Result<Arc<Memory>, Stop> {
        Ok(if video { self.space.alloc_video(length) } else { self.space.alloc_host(length) }?)
    }

    /// Writes a pushbuffer of at most `words` words, validates and submits it.
    pub fn submit(
        &self,
        channel: &mut Channel,
        words: usize,
        write: impl FnOnce(&mut Pushbuffer) -> Result<(), Error>,
    ) -> Result<(), Stop> {
        let mut pushbuffer = Pushbuffer::new(&self.space, words)?;
        write(&mut pushbuffer)?;
        let validated = pushbuffer.validate(channel)?;
        self.patiently(channel, |channel| channel.submit(&validated)).map(drop)
    }

    /// Tries again while the ring is full, up to the time limit.
    pub fn patiently<T>(
        &self,
        channel: &mut Channel,
        mut attempt: impl FnMut(&mut Channel) -> Result<T, Error>,
    ) -> Result<T, Stop> {
        let start = Instant::now();
        loop {
            match attempt(channel) {
                Err(Error::RingFull(_)) if start.elapsed() < self.ground.patience => std::thread::yield_now(),
                other => return Ok(other?),
            }
        }
    }

    /// Waits for a semaphore; if the channel dies before it is released, its error is returned.
    pub fn wait(&self, channel: &Channel, semaphore: &Semaphore, value: u32) -> Result<(), Stop> {
        let start = Instant::now();
        loop {
            let left = self.ground.patience.saturating_sub(start.elapsed());
            match semaphore.wait(value, left.min(Duration::from_millis(20))) {
                Ok(()) => return Ok(()),
                Err(Error::Timeout { wanted, found, .. }) => {
                    self.alive(channel)?;
                    if left.is_zero() {
                        return Err(Error::Timeout { wanted, found, after: start.elapsed() }.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Fails with the error that killed the channel, if one did.
    pub fn alive(&self, channel: &Channel) -> Result<(), Stop> {
        match channel.error() {
            None => Ok(()),
            Some(code) => Err(Error::ChannelKilled(code).into()),
        }
    }

    /// Reads a part of a memory by the CPU.
    pub fn read(&self, memory: &Memory, offset: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        memory.read(offset, &mut bytes);
        bytes
    }
}
