//! Transfers that a device makes by itself: `device->dma->host` (path A of the GPU Direct test), `device->dma->gpu0` (path C), and back.
//!
//! `dma[buffers=4]`: transfers from the device use that many buffers in turn, like a camera's frames. All buffers are in the destination, one after another. A
//! write for a later comparison is made to all of them, and a read is from the buffer of the last transfer.
//!
//! `dma[sleeps]`: the CPU sleeps until the device is done, as it would until a device's interrupt, and other threads can use it. It wakes shortly before the
//! transfer would be done if it took as long as the last one, and then polls at intervals.

use crate::buffer::{Buffer, PAGEABLE};
use crate::device::{Device, Handle, Job};
use crate::ends::Ends;
use crate::error::Error;
use crate::executor::{Executor, Transfer};
use crate::inspect::{GUARD, HostEnd, Inspect};
use crate::machine::Machine;
use crate::routes::entry::Entry;
use crate::spec::{self, Host, Memory, Spec, Word};
use machine::Unavailable;
use std::time::{Duration, Instant};

const BUFFERS: &str = "buffers=";
pub(super) const SLEEPS: &str = "sleeps";
/// Maximum buffers of a ring.
const MOST: u32 = 64;
const PAGE: u64 = 0x1000;
/// Buffers that stay pinned. If there are more, the oldest is unpinned, and pinned again when it is next used.
const KEPT: usize = 64;

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "dma", numbered: false, options: &[BUFFERS, SLEEPS] },
    about: |machine, spec| {
        let rotates = if spec.executor.numbers(BUFFERS).is_some() { ", to several buffers in turn" } else { "" };
        let sleeps = if spec.executor.has(SLEEPS) { ", for which the CPU sleeps" } else { "" };
        format!("a device's own DMA{rotates}{sleeps}; {}", crate::device::about(machine))
    },
    list: |machine| {
        let gpu = machine.index();
        vec![
            "device->dma->host".into(),
            "host->dma->device".into(),
            format!("device->dma->gpu{gpu}"),
            format!("device->dma[buffers=4]->gpu{gpu}"),
            format!("gpu{gpu}->dma->device"),
        ]
    },
    check,
    open: |machine, spec| {
        let (buffers, sleeps) = (buffers(&spec.executor)?, spec.executor.has(SLEEPS));
        Ok(Box::new(Dma::new(machine, buffers, sleeps)?))
    },
};

fn buffers(executor: &spec::Executor) -> Result<u64, Unavailable> {
    match executor.numbers(BUFFERS) {
        None => Ok(1),
        Some(&[count]) if (1..=MOST).contains(&count) => Ok(count.into()),
        Some(_) => Err(Unavailable::new(format!("buffers=N: 1 to {MOST} take turns"))),
    }
}

/// Checks that one end is the device's, and that the device reaches the other.
pub(super) fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let ends = [spec.source.memory, spec.destination.memory];
    if ends.iter().filter(|memory| **memory == Memory::Device).count() != 1 {
        return Err(Unavailable::new("one end is the device's: device->dma->gpu0, host->dma->device"));
    }
    for memory in ends {
        match memory {
            Memory::Host(Host::Pageable) => return Err(Unavailable::new(PAGEABLE)),
            Memory::Gpu(n) => drop(machine.gpu(n)?),
            Memory::Host(_) | Memory::Device => {}
        }
    }
    if buffers(&spec.executor)? > 1 && spec.destination.memory == Memory::Device {
        return Err(Unavailable::new("buffers= take turns for what is read from the device"));
    }
    match machine.card() {
        Some(_) => Ok(()),
        None => machine.device_seat().space().map(drop),
    }
}

/// A device as an executor.
pub(super) struct Dma {
    device: Box<dyn Device>,
    /// Pinned memory, by buffer.
    pinned: Vec<(u64, Handle)>,
    buffers: u64,
    sleeps: bool,
}

/// Bytes from one buffer to the next in a destination for transfers of up to `bytes`.
fn stride(bytes: u64) -> u64 {
    (bytes + 2 * GUARD).next_multiple_of(PAGE)
}

impl Dma {
    pub(super) fn new(machine: &Machine, buffers: u64, sleeps: bool) -> Result<Dma, Error> {
        Ok(Dma { device: crate::device::open(machine)?, pinned: Vec::new(), buffers, sleeps })
    }

    /// Pins a buffer, which stays pinned for later transfers.
    fn pin(&mut self, buffer: &Buffer<'_>) -> Result<Handle, Error> {
        if let Some((_, handle)) = self.pinned.iter().find(|(id, _)| *id == buffer.id()) {
            return Ok(*handle);
        }
        if self.pinned.len() == KEPT {
            let (_, oldest) = self.pinned.remove(0);
            self.device.unpin(oldest)?;
        }
        let handle = self.device.pin(buffer)?;
        self.pinned.push((buffer.id(), handle));
        Ok(handle)
    }
}

impl Executor for Dma {
    fn room(&self, capacity: u64) -> Result<u64, Error> {
        let none = || Unavailable::new(format!("{} buffers of {capacity} bytes", self.buffers));
        match self.buffers {
            1 => Ok(capacity),
            // The first guard belongs to the buffer itself.
            n if capacity <= u64::MAX / 2 => Ok(stride(capacity).checked_mul(n).ok_or_else(none)?),
            _ => Err(none().into()),
        }
    }

    fn reach(&mut self, from: &Buffer<'_>, to: &Buffer<'_>) -> Result<(), Error> {
        self.pin(from)?;
        self.pin(to).map(drop)
    }

    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        let Ends { source, destination, .. } = ends;
        ends.check(bytes)?;
        let (from, to) = (self.pin(source)?, self.pin(destination)?);
        let count = self.buffers;
        let stride = if count > 1 { stride(bytes) } else { 0 };
        destination.holds((count - 1) * stride, bytes)?;
        if source.is_device() == destination.is_device() {
            return Err(Unavailable::new("one end is the device's").into());
        }
        let job = self.device.job(from, to, bytes)?;
        let frames = Frames { ends, stride, count, last: 0 };
        let sleep = self.sleeps.then(Sleep::default);
        Ok(Box::new(Moves { job, frames, at: [0, 0], next: 0, bytes, sleep }))
    }
}

/// The two memories. The destination may have several buffers.
struct Frames<'r> {
    ends: Ends<'r>,
    stride: u64,
    count: u64,
    /// The buffer of the last transfer.
    last: u64,
}

impl Inspect for Frames<'_> {
    fn host_end(&self) -> HostEnd {
        self.ends.host_end()
    }

    fn write_source(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        self.ends.write_source(at, data)
    }

    fn write_destination(&self, at: i64, data: &[u8]) -> Result<(), Error> {
        (0..self.count).try_for_each(|n| self.ends.write_destination(at + (n * self.stride) as i64, data))
    }

    fn read_destination(&self, at: i64, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_destination(at + (self.last * self.stride) as i64, into)
    }
}

struct Moves<'r> {
    job: Box<dyn Job + 'r>,
    frames: Frames<'r>,
    /// Offsets in source and destination.
    at: [u64; 2],
    /// The buffer for the next transfer.
    next: u64,
    bytes: u64,
    /// Set if the wait sleeps instead of polling.
    sleep: Option<Sleep>,
}

/// How the CPU sleeps until a transfer is done.
#[derive(Clone, Copy, Debug, Default)]
struct Sleep {
    started: Option<Instant>,
    /// How long to sleep before the first poll.
    nap: Duration,
}

impl Sleep {
    /// Time between two polls: this, or that part of the elapsed time.
    const STEP: Duration = Duration::from_micros(5);
    const PART: u32 = 32;
    /// If the first poll found the transfer done, the next sleep is shorter by this part. Otherwise it is longer by at most this part, so that one delayed
    /// transfer does not delay later ones.
    const SOONER: u32 = 8;
    const LATER: u32 = 4;

    /// Sleeps and polls until it is done.
    fn until(&mut self, timeout: Duration, mut is_done: impl FnMut() -> Result<bool, Error>) -> Result<bool, Error> {
        let started = self.started.unwrap_or_else(Instant::now);
        let _exact = Exact::begin();
        let mut nap = self.nap.min(timeout).saturating_sub(started.elapsed());
        let mut under_way = None;
        loop {
            if !nap.is_zero() {
                std::thread::sleep(nap);
            }
            let gone = started.elapsed();
            if is_done()? {
                // The next transfer likely takes at least as long as this one was seen to be unfinished.
                self.nap = match under_way {
                    None => self.nap - self.nap / Sleep::SOONER,
                    Some(gone) if self.nap.is_zero() => gone,
                    Some(gone) => gone.min(self.nap + self.nap / Sleep::LATER),
                };
                return Ok(true);
            }
            if gone > timeout {
                return Ok(false);
            }
            under_way = Some(gone);
            nap = Sleep::STEP.max(gone / Sleep::PART);
        }
    }
}

/// While this lives, the thread's sleeps end as exactly as the kernel can, instead of up to 50 us late (PR_SET_TIMERSLACK).
struct Exact {
    was: libc::c_ulong,
}

impl Exact {
    fn begin() -> Exact {
        // SAFETY: it only reads a setting of the calling thread.
        let was = unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        let exact = Exact { was: libc::c_ulong::try_from(was).unwrap_or(0) };
        exact.set(1);
        exact
    }

    /// 0 restores the thread's initial value.
    fn set(&self, ns: libc::c_ulong) {
        // SAFETY: it changes how late the calling thread's timers may be; it accesses no memory.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, ns) };
    }
}

impl Drop for Exact {
    fn drop(&mut self) {
        self.set(self.was);
    }
}

impl Transfer for Moves<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        let [from, to] = self.at;
        if let Some(sleep) = &mut self.sleep {
            sleep.started = Some(Instant::now());
        }
        self.job.start(from, to + self.next * self.frames.stride)?;
        self.frames.last = self.next;
        self.next = if self.next + 1 == self.frames.count { 0 } else { self.next + 1 };
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        self.job.poll()
    }

    fn is_polled(&self) -> bool {
        self.sleep.is_none()
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let done = match &mut self.sleep {
            Some(sleep) if sleep.started.is_some() => sleep.until(timeout, || self.job.poll())?,
            _ => false,
        };
        // If it is late, the job's error has its size and how late it is.
        if done { Ok(()) } else { self.job.wait(if self.sleep.is_some() { Duration::ZERO } else { timeout }) }
    }

    fn move_to(&mut self, source: u64, destination: u64) -> Result<(), Error> {
        if self.frames.count > 1 {
            return Err(Unavailable::new("its buffers are at fixed places of the destination").into());
        }
        self.frames.ends.hold([source, destination], self.bytes)?;
        self.at = [source, destination];
        Ok(())
    }

    #[inline]
    fn released_gpu_ns(&self) -> Option<u64> {
        self.job.released_gpu_ns()
    }

    fn ends(&self) -> Option<&dyn Inspect> {
        Some(&self.frames)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CPU time of the calling thread.
    fn cpu() -> Duration {
        let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: the clock belongs to the thread, and the place is a timespec.
        unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
        Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
    }

    const TAKES: Duration = Duration::from_millis(20);

    #[test]
    fn the_cpu_sleeps_until_it_is_done_and_leaves_the_thread_as_it_was() {
        test_support::measured(sleeps_and_learns);
    }

    fn sleeps_and_learns() -> Result<(), String> {
        // SAFETY: it only reads the setting of this thread.
        let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
        // SAFETY: as above.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 77_000) };
        let mut sleep = Sleep::default();
        let mut transfer = |takes: Duration| {
            let (begun, before) = (Instant::now(), cpu());
            sleep.started = Some(begun);
            let mut looks = 0;
            let is_done = || {
                looks += 1;
                assert_eq!(slack(), 1, "timers are exact meanwhile");
                Ok(begun.elapsed() >= takes)
            };
            assert!(sleep.until(TAKES * 500, is_done).unwrap());
            assert!(begun.elapsed() >= takes && cpu() - before < TAKES / 2, "{:?}", cpu() - before);
            assert_eq!(slack(), 77_000);
            (looks, begun.elapsed())
        };
        let looks: Vec<u32> = (0..5).map(|_| transfer(TAKES).0).collect();
        if !looks[1..].iter().any(|later| *later < looks[0] / 2) {
            return Err(format!("it knows by then how long one takes: {looks:?}"));
        }
        transfer(TAKES * 5);
        let behind: Vec<Duration> = (0..4).map(|_| transfer(TAKES).1).collect();
        if !behind.iter().any(|time| *time < TAKES * 2) {
            return Err(format!("one that was held up: {behind:?}"));
        }
        // It also learns that later ones are done sooner.
        let times: Vec<Duration> = (0..20).map(|_| transfer(TAKES / 8).1).collect();
        if !times[15..].iter().any(|time| *time < TAKES / 2) {
            return Err(format!("it learns: {times:?}"));
        }
        Ok(())
    }

    #[test]
    fn what_is_late_or_fails_is_not_done() {
        let mut sleep = Sleep { started: Some(Instant::now()), ..Sleep::default() };
        assert!(!sleep.until(TAKES / 10, || Ok(false)).unwrap(), "late");
        assert!(sleep.until(TAKES, || Err(Error::Idle)).is_err());
    }
}
