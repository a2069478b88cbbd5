//! [`Machine`] over the `gpu` crate. Real hardware is refused: it belongs to somebody, and libcuda drives it.

use super::{Channel, Engine, Flag, Machine, Memory, Work};
use crate::{Error, Result};
use gpu::{AddressSpace, Bar, ChannelOptions, Device, Pushbuffer, Semaphore, Semaphores, Site, Validated};
use pushbuf::qmd::{Layout, Qmd};
use rm::driver::Driver;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Words of a pushbuffer: 4 KiB of inline data or a QMD, and their methods.
const ROOM: usize = 2048;
/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);
/// QMDs that a channel writes in turn, 256-byte aligned as their addresses have to be.
const QMDS: u64 = 16;
const QMD_STRIDE: u64 = 512;
/// RELEASE0_STRUCTURE_SIZE SEMAPHORE_ONE_WORD, QMD V03.
const ONE_WORD: u32 = 1;

pub(super) struct Opened {
    space: Arc<AddressSpace>,
    flags: Semaphores,
    /// Channels made so far.
    made: AtomicU32,
}

pub(super) fn open(driver: Arc<dyn Driver>) -> Result<Opened> {
    let device = Device::open(driver, 0).map_err(|error| Error::Unavailable { reason: error.to_string() })?;
    let space = AddressSpace::new(&device)?;
    let flags = Semaphores::new(&space)?;
    Ok(Opened { space, flags, made: AtomicU32::new(0) })
}

impl Opened {
    fn semaphore(&self) -> Result<Semaphore> {
        self.flags.alloc().ok_or(Error::Unavailable { reason: "all semaphores are in use".into() })
    }
}

impl Memory for Arc<gpu::Memory> {
    fn address(&self) -> u64 {
        self.va()
    }

    fn write(&self, bytes: &[u8]) {
        gpu::Memory::write(self, 0, bytes);
    }

    fn read(&self, bytes: &mut [u8]) {
        gpu::Memory::read(self, 0, bytes);
    }
}

impl Flag for Semaphore {
    fn set(&self, value: u32) {
        Semaphore::set(self, value);
    }
}

impl Machine for Opened {
    type Memory = Arc<gpu::Memory>;
    type Flag = Semaphore;
    type Channel = Ring;

    fn name(&self) -> String {
        format!("the software GPU, driver {}", self.space.device().driver_version())
    }

    fn host_memory(&self, bytes: usize) -> Result<Self::Memory> {
        Ok(self.space.alloc_host(bytes as u64)?)
    }

    fn video_memory(&self, bytes: usize) -> Result<Self::Memory> {
        Ok(self.space.alloc_video(bytes as u64)?)
    }

    fn flag(&self) -> Result<Semaphore> {
        self.semaphore()
    }

    /// Channels take turns with the two usermode mappings, the two shapes of doorbell store, and the copy engines.
    fn channel(&self, engine: Engine, entries: u32) -> Result<Ring> {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let (bar, site) =
            if n.is_multiple_of(2) { (Bar::Bar0, Site::Libcuda) } else { (Bar::Bar1, Site::Displacement) };
        let options = ChannelOptions { entries, bar, site, ..ChannelOptions::default() };
        let on = match engine {
            Engine::Copy => gpu::Engine::Copy(2 + n % 4),
            Engine::Graphics => gpu::Engine::Graphics,
        };
        let mut channel = gpu::Channel::new(&self.space, on, options)?;
        let done = self.semaphore()?;
        let mut release = Pushbuffer::new(&self.space, ROOM)?;
        match engine {
            Engine::Copy => release.copy_release(&done, 1)?,
            Engine::Graphics => release.host_release(&done, 1)?,
        };
        let release = release.validate(&channel)?;
        let qmds = match engine {
            Engine::Copy => None,
            Engine::Graphics => Some(self.space.alloc_host(QMDS * QMD_STRIDE)?),
        };
        if let Some(qmds) = &qmds {
            let all = (0..QMDS).map(|n| qmds.va() + n * QMD_STRIDE);
            // SAFETY: only `qmd`'s results are ever written there: they run no code, and release words of the sample's own.
            unsafe { channel.grant_launches(all) };
        }
        Ok(Ring { channel, done, release: Some(release), retired: VecDeque::new(), qmds, launches: 0 })
    }
}

/// A channel and the pushbuffers that it has used.
pub(super) struct Ring {
    channel: gpu::Channel,
    done: Semaphore,
    /// Releases `done`; `None` only while it is being submitted.
    release: Option<Validated>,
    retired: VecDeque<Validated>,
    qmds: Option<Arc<gpu::Memory>>,
    launches: u64,
}

impl Ring {
    /// The pushbuffer retired longest ago, if the channel no longer uses it, or a new one.
    fn pushbuffer(&mut self) -> Result<Pushbuffer> {
        if let Some(oldest) = self.retired.pop_front() {
            match oldest.reuse() {
                Ok(pushbuffer) => return Ok(pushbuffer),
                Err(in_flight) => self.retired.push_front(in_flight),
            }
        }
        Ok(Pushbuffer::new(self.channel.space(), ROOM)?)
    }

    /// Writes the QMD by inline data and launches it, as CUDA does.
    fn launch(&mut self, pushbuffer: &mut Pushbuffer, work: &Work<'_>) -> Result<()> {
        let (&Work::Launch { grid, block, shared, release, payload }, Some(qmds)) = (work, &self.qmds) else {
            return Err(Error::Unavailable { reason: "a launch needs a graphics channel".into() });
        };
        let va = qmds.va() + self.launches % QMDS * QMD_STRIDE;
        self.launches += 1;
        let bytes = qmd(grid, block, shared, release, payload)
            .map_err(|error| Error::Unavailable { reason: format!("no QMD for this launch: {error}") })?;
        pushbuffer.inline(va, &bytes)?.launch(va)?;
        Ok(())
    }

    fn killed(&self) -> Result<()> {
        self.channel.error().map_or(Ok(()), |code| Err(gpu::Error::ChannelKilled(code).into()))
    }
}

/// A V03 QMD of this many threads that run no code and release one word.
fn qmd(
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    release: u64,
    payload: u32,
) -> std::result::Result<Vec<u8>, String> {
    let layout = Layout::of(3, 0).ok_or("QMD version 3.0 is not known")?;
    let mut qmd = Qmd::new(layout);
    let fields = [
        ("CTA_RASTER_WIDTH", grid[0]),
        ("CTA_RASTER_HEIGHT", grid[1]),
        ("CTA_RASTER_DEPTH", grid[2]),
        ("CTA_THREAD_DIMENSION0", block[0]),
        ("CTA_THREAD_DIMENSION1", block[1]),
        ("CTA_THREAD_DIMENSION2", block[2]),
        ("SHARED_MEMORY_SIZE", shared),
        ("REGISTER_COUNT_V", 16),
        ("RELEASE0_ENABLE", 1),
        ("RELEASE0_STRUCTURE_SIZE", ONE_WORD),
        ("RELEASE0_ADDRESS_LOWER", release as u32),
        ("RELEASE0_ADDRESS_UPPER", (release >> 32) as u32),
        ("RELEASE0_PAYLOAD_LOWER", payload),
    ];
    for (name, value) in fields {
        qmd.set(name, value.into()).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(qmd.words().iter().flat_map(|word| word.to_le_bytes()).collect())
}

impl Channel for Ring {
    type Flag = Semaphore;
    type Prepared = Validated;

    fn prepare(&mut self, work: &[Work<'_>]) -> Result<Validated> {
        let mut pushbuffer = self.pushbuffer()?;
        for work in work {
            match *work {
                Work::Copy { to, from, bytes } => pushbuffer.copy(to, from, bytes).map(drop)?,
                Work::Fill { to, word, words } => pushbuffer.fill(to, word, words).map(drop)?,
                Work::Inline { to, bytes } => pushbuffer.inline(to, bytes).map(drop)?,
                Work::Launch { .. } => self.launch(&mut pushbuffer, work)?,
            }
        }
        Ok(pushbuffer.validate(&self.channel)?)
    }

    fn prepare_acquire(&mut self, flag: &Semaphore, value: u32) -> Result<Validated> {
        let mut pushbuffer = self.pushbuffer()?;
        pushbuffer.host_acquire(flag, value)?;
        Ok(pushbuffer.validate(&self.channel)?)
    }

    fn submit(&mut self, prepared: &mut Validated) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.channel.submit(prepared) {
                Err(gpu::Error::RingFull(_)) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_micros(20));
                }
                result => return Ok(result.map(drop)?),
            }
        }
    }

    fn retire(&mut self, prepared: Validated) {
        self.retired.push_back(prepared);
    }

    fn wait(&mut self) -> Result<()> {
        let Some(mut release) = self.release.take() else { return Ok(()) };
        self.done.set(0);
        let submitted = self.submit(&mut release);
        self.release = Some(release);
        submitted?;
        let start = Instant::now();
        loop {
            match self.done.wait(1, Duration::from_millis(100)) {
                Err(gpu::Error::Timeout { .. }) if start.elapsed() < PATIENCE => self.killed()?,
                result => return Ok(result?),
            }
        }
    }
}
