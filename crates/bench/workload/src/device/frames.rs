//! A device's frames, as a camera sends them. Frames use several buffers in turn. One is consumed while the next is already on
//! its way to the next buffer. With a single buffer the next frame must wait until the last one is consumed.
//!
//! Every page of a frame begins with a number for that frame and page, which the consumer compares. A lost frame is an error, and
//! so is one with missing pages or pages of another frame. The device is at most one frame ahead of the consumer.

use super::consumer::{Consumer, Consuming, PAGE};
use super::{Device, Handle, Job};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::machine::Machine;
use crate::routes::polling;
use crate::spec::{End, Memory};
use crate::{Checks, Difference, Opened, Subject, Wrong};
use fastrand::Rng;
use machine::Unavailable;
use std::time::Duration;

/// Maximum buffers of a ring.
pub const MOST_BUFFERS: u64 = 64;

/// The size of frames, their buffers, and how long each is consumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whole pages of 4096.
    pub bytes: u64,
    pub buffers: u64,
    /// Where the buffers are: in host memory or a GPU's memory.
    pub to: Memory,
    /// How long each frame is consumed: by a kernel if the buffers are on the GPU and there is CUDA, else by the CPU.
    pub consume: Duration,
}

/// The device, its frames and the buffers for them.
pub struct Ring<'m> {
    // Before the memories that its work may name.
    device: Box<dyn Device + 'm>,
    consumer: Consumer<'m>,
    source: Buffer<'m>,
    destination: Buffer<'m>,
    handles: [Handle; 2],
    wanted: Wanted,
    /// Frames in the device's memory, which are sent in turn. A buffer never gets the same frame twice in a row.
    kept: u64,
}

impl<'m> Ring<'m> {
    /// # Errors
    /// [`Error::Unavailable`] for frames that are not whole pages or a wrong number of buffers, or the memory's error.
    pub fn new(machine: &'m Machine, mut device: Box<dyn Device + 'm>, wanted: Wanted) -> Result<Ring<'m>, Error> {
        let Wanted { bytes, buffers, to, .. } = wanted;
        if bytes == 0 || !bytes.is_multiple_of(PAGE) {
            return Err(
                Unavailable::new(format!("a frame of {bytes} bytes: whole pages of {PAGE} are possible")).into()
            );
        }
        if !(1..=MOST_BUFFERS).contains(&buffers) {
            return Err(Unavailable::new(format!("{buffers} buffers: 1 to {MOST_BUFFERS} take turns")).into());
        }
        let kept = 2 * buffers + 1;
        let room = |count: u64| bytes.checked_mul(count).ok_or(Error::Memory { bytes: u64::MAX });
        let source = Buffer::new(machine, End { memory: Memory::Device, offset: 0 }, room(kept)?)?;
        let destination = Buffer::for_device(machine, End { memory: to, offset: 0 }, room(buffers)?)?;
        let handles = [device.pin(&source)?, device.pin(&destination)?];
        let consumer = Consumer::new(machine, &destination)?;
        Ok(Ring { device, consumer, source, destination, handles, wanted, kept })
    }

    /// Fills the device's memory with frames, and prepares their transfers. `seed` determines their bytes.
    ///
    /// # Errors
    /// The device's or the memory's error.
    pub fn run(&mut self, seed: u64) -> Result<Frames<'_>, Error> {
        let Ring { device, consumer, source, destination, handles: [from, to], wanted, kept } = self;
        for slot in 0..*kept {
            source.write((slot * wanted.bytes) as i64, &content(seed, slot, wanted.bytes))?;
        }
        destination.write(0, &vec![0; (wanted.bytes * wanted.buffers) as usize])?;
        let job = device.job(*from, *to, wanted.bytes)?;
        let consuming = consumer.start(destination, wanted.bytes / PAGE, wanted.consume)?;
        Ok(Frames {
            job,
            consuming,
            destination,
            wanted: *wanted,
            kept: *kept,
            seed,
            sent: 0,
            taken: 0,
            state: State::Idle,
        })
    }
}

impl Opened for Ring<'_> {
    /// The device and the consumer.
    fn about(&self) -> String {
        let Wanted { buffers, consume, .. } = self.wanted;
        let buffers = if buffers == 1 { "one buffer".into() } else { format!("{buffers} buffers in turn") };
        let (device, consumer) = (self.device.about(), self.consumer.name());
        format!("frames of {device} to {buffers}, each consumed for {consume:?} by {consumer}")
    }

    /// Each buffer has two.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let buffers = self.wanted.buffers;
        let mut frames = self.run(seed)?;
        for _ in 0..2 * buffers {
            let wrong = crate::once(&mut frames, timeout)?;
            if wrong.is_some() {
                return Ok(wrong);
            }
        }
        Ok(None)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.run(seed)?))
    }
}

/// The first word of a frame's first page. Each next page has one more.
fn number(seed: u64, slot: u64) -> u64 {
    Rng::with_seed(seed ^ slot.wrapping_mul(0x9e37_79b9_7f4a_7c15)).u64(..)
}

/// The bytes of a frame.
fn content(seed: u64, slot: u64, bytes: u64) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    let number = number(seed, slot);
    Rng::with_seed(!number).fill(&mut all);
    for (page, bytes) in (0u64..).zip(all.chunks_mut(PAGE as usize)) {
        bytes[..8].copy_from_slice(&number.wrapping_add(page).to_le_bytes());
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The next frame is arriving.
    Arriving,
    Consuming,
    Done,
}

/// Frames in transfer, requested one at a time.
pub struct Frames<'r> {
    job: Box<dyn Job + 'r>,
    consuming: Consuming<'r>,
    destination: &'r Buffer<'r>,
    wanted: Wanted,
    kept: u64,
    seed: u64,
    /// Frames that the device started to send, and frames that were consumed.
    sent: u64,
    taken: u64,
    state: State,
}

impl Frames<'_> {
    #[inline]
    fn send(&mut self) -> Result<(), Error> {
        let Wanted { bytes, buffers, .. } = self.wanted;
        self.job.start(self.sent % self.kept * bytes, self.sent % buffers * bytes)?;
        self.sent += 1;
        Ok(())
    }

    /// How many frames were consumed.
    pub fn taken(&self) -> u64 {
        self.taken
    }
}

impl Subject for Frames<'_> {
    /// Requests the next frame, which may have arrived already.
    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        if matches!(self.state, State::Arriving | State::Consuming) {
            self.wait(PATIENCE)?;
        }
        if self.sent == self.taken {
            self.send()?;
        }
        self.state = State::Arriving;
        Ok(())
    }

    /// Whether the requested frame is consumed. [`Error::Frame`] for a frame that differs from the sent bytes.
    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        match self.state {
            State::Idle => Ok(false),
            State::Done => Ok(true),
            State::Arriving => {
                if self.job.poll()? {
                    // Another buffer is free: the next frame is sent there while this one is consumed.
                    if self.wanted.buffers > 1 {
                        self.send()?;
                    }
                    let at = self.taken % self.wanted.buffers * self.wanted.bytes;
                    self.consuming.begin(at, number(self.seed, self.taken % self.kept))?;
                    self.state = State::Consuming;
                }
                Ok(false)
            }
            State::Consuming => {
                let Some(wrong) = self.consuming.end()? else { return Ok(false) };
                if wrong > 0 {
                    let (frame, pages) = (self.taken, self.wanted.bytes / PAGE);
                    return Err(Error::Frame { frame, wrong, pages });
                }
                self.taken += 1;
                self.state = State::Done;
                Ok(true)
            }
        }
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.state == State::Idle {
            return Err(Error::Idle);
        }
        polling::ended(timeout, self.wanted.bytes, || self.poll())
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    /// Compares every byte of the last consumed frame. It stays where it is until the next one is requested.
    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Some(last) = self.taken.checked_sub(1) else { return Ok(None) };
        let Wanted { bytes, buffers, .. } = self.wanted;
        let mut found = vec![0; bytes as usize];
        self.destination.read((last % buffers * bytes) as i64, &mut found)?;
        let sent = content(self.seed, last % self.kept, bytes);
        Ok(Difference::between(&sent, &found, None).map(Wrong::Data))
    }
}

/// Longer than any frame can take.
const PATIENCE: Duration = Duration::from_secs(2);
