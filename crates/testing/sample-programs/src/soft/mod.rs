//! The samples without libcuda: channels of the kernel driver's own interface, answered by the software GPU. Real hardware is refused: it belongs to
//! somebody, and libcuda drives it.
//!
//! Nothing runs kernels here: a launch is a QMD whose release semaphore shows that it was read.

pub(crate) mod programs;
pub(crate) mod starve;

use crate::{Error, Result};
use gpu::{
    AddressSpace, Bar, ChannelOptions, Device, Engine, Memory, Pushbuffer, Semaphore, Semaphores, Site, Validated,
};
use pushbuf::qmd::{Layout, Qmd};
use rm::driver::Driver;
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

/// A GPU without libcuda.
pub(crate) struct Machine {
    space: Arc<AddressSpace>,
    flags: Semaphores,
    /// Channels made so far.
    made: AtomicU32,
}

impl Machine {
    pub(crate) fn open(driver: Arc<dyn Driver>) -> Result<Machine> {
        let device = Device::open(driver, 0).map_err(|error| Error::Unavailable { reason: error.to_string() })?;
        let space = AddressSpace::new(&device)?;
        let flags = Semaphores::new(&space)?;
        Ok(Machine { space, flags, made: AtomicU32::new(0) })
    }

    pub(crate) fn name(&self) -> String {
        format!("the software GPU, driver {}", self.space.device().driver_version())
    }

    fn host_memory(&self, bytes: usize) -> Result<Arc<Memory>> {
        Ok(self.space.alloc_host(bytes as u64)?)
    }

    fn video_memory(&self, bytes: usize) -> Result<Arc<Memory>> {
        Ok(self.space.alloc_video(bytes as u64)?)
    }

    /// A word that the CPU sets and a channel waits for. It starts as 0.
    fn flag(&self) -> Result<Semaphore> {
        self.flags.alloc().ok_or(Error::Unavailable { reason: "all semaphores are in use".into() })
    }

    /// A copy engine's channel. Channels take turns with the copy engines.
    fn copies(&self, entries: u32) -> Result<Ring> {
        let n = self.made.load(Ordering::Relaxed);
        self.channel(Engine::Copy(2 + n % 4), entries)
    }

    /// A channel for inline data and launches.
    fn graphics(&self, entries: u32) -> Result<Ring> {
        self.channel(Engine::Graphics, entries)
    }

    /// Channels take turns with the two usermode mappings and the two shapes of doorbell store.
    fn channel(&self, engine: Engine, entries: u32) -> Result<Ring> {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        let (bar, site) =
            if n.is_multiple_of(2) { (Bar::Bar0, Site::Libcuda) } else { (Bar::Bar1, Site::Displacement) };
        let options = ChannelOptions { entries, bar, site, ..ChannelOptions::default() };
        let mut channel = gpu::Channel::new(&self.space, engine, options)?;
        let done = self.flag()?;
        let mut release = Pushbuffer::new(&self.space, ROOM)?;
        let qmds = match engine {
            Engine::Graphics => {
                release.host_release(&done, 1)?;
                let qmds = self.space.alloc_host(QMDS * QMD_STRIDE)?;
                let all = (0..QMDS).map(|n| qmds.va() + n * QMD_STRIDE);
                // SAFETY: only `qmd`'s results are ever written there: they run no code, and release words of the sample's own.
                unsafe { channel.grant_launches(all) };
                Some(qmds)
            }
            _ => {
                release.copy_release(&done, 1)?;
                None
            }
        };
        let release = release.validate(&channel)?;
        Ok(Ring { channel, done, release, qmds, launches: 0 })
    }
}

/// A channel with its own ring. Submissions run in order.
struct Ring {
    channel: gpu::Channel,
    done: Semaphore,
    /// Releases `done`.
    release: Validated,
    qmds: Option<Arc<Memory>>,
    launches: u64,
}

impl Ring {
    /// Work that can be submitted again and again.
    fn prepare(
        &self,
        work: impl FnOnce(&mut Pushbuffer) -> std::result::Result<&mut Pushbuffer, gpu::Error>,
    ) -> Result<Validated> {
        let mut pushbuffer = Pushbuffer::new(self.channel.space(), ROOM)?;
        work(&mut pushbuffer)?;
        Ok(pushbuffer.validate(&self.channel)?)
    }

    /// One GPFIFO entry and one doorbell. Waits while the ring is full.
    fn submit(&mut self, prepared: &Validated) -> Result<()> {
        submit(&mut self.channel, prepared)
    }

    /// Work that is submitted once.
    fn run(
        &mut self,
        work: impl FnOnce(&mut Pushbuffer) -> std::result::Result<&mut Pushbuffer, gpu::Error>,
    ) -> Result<()> {
        let prepared = self.prepare(work)?;
        self.submit(&prepared)
    }

    /// Writes a QMD by inline data and launches it, as CUDA does. Its release writes the word `payload` to `release`.
    fn launch(&mut self, (grid, block, shared): Shape, release: u64, payload: u32) -> Result<()> {
        let Some(qmds) = &self.qmds else {
            return Err(Error::Unavailable { reason: "a launch needs a graphics channel".into() });
        };
        let va = qmds.va() + self.launches % QMDS * QMD_STRIDE;
        self.launches += 1;
        let bytes = qmd(grid, block, shared, release, payload)
            .map_err(|error| Error::Unavailable { reason: format!("no QMD for this launch: {error}") })?;
        self.run(|pushbuffer| pushbuffer.inline(va, &bytes)?.launch(va))
    }

    /// Waits until everything that was submitted is done.
    fn wait(&mut self) -> Result<()> {
        self.done.set(0);
        submit(&mut self.channel, &self.release)?;
        let start = Instant::now();
        loop {
            match self.done.wait(1, Duration::from_millis(100)) {
                Err(gpu::Error::Timeout { .. }) if start.elapsed() < PATIENCE => {
                    self.channel.error().map_or(Ok(()), |code| Err(gpu::Error::ChannelKilled(code)))?;
                }
                result => return Ok(result?),
            }
        }
    }
}

fn submit(channel: &mut gpu::Channel, prepared: &Validated) -> Result<()> {
    let start = Instant::now();
    loop {
        match channel.submit(prepared) {
            Err(gpu::Error::RingFull(_)) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_micros(20));
            }
            result => return Ok(result.map(drop)?),
        }
    }
}

/// Grid, block and bytes of shared memory of a launch.
type Shape = ([u32; 3], [u32; 3], u32);

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
