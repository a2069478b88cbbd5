//! A device's frames, as a camera sends them: each goes to one of several buffers in turn and is consumed there, while the next one
//! is already on its way to the next buffer. With a single buffer the next frame has to wait until the last one is consumed.
//!
//! Every page of a frame begins with a number of that frame and page, which the consumer compares: a frame that was lost, or of which
//! pages are missing or those of another, is an error. The device is one frame ahead of the consumer at most.

use super::consumer::{Consumer, Consuming, PAGE};
use super::{Device, Handle, Job};
use crate::buffer::Buffer;
use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::spec::{End, Memory};
use crate::verify::{Difference, random};
use std::time::{Duration, Instant};

/// A ring of more is no ring of frames.
pub const MOST_BUFFERS: u64 = 64;

/// Frames of so many bytes, the buffers that they go to, and who consumes them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whole pages of 4096.
    pub bytes: u64,
    pub buffers: u64,
    /// Where the buffers are: in the host's memory or a GPU's.
    pub to: Memory,
    /// For how long each frame is consumed: by a kernel where it is the GPU's and there is CUDA, else by the CPU.
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
    /// Frames that lie in the device's memory, and are sent over and over. None that a buffer held before is the next to come there.
    kept: u64,
}

impl<'m> Ring<'m> {
    /// # Errors
    /// [`Error::Unavailable`] for frames that are no whole pages or buffers that are none, and what the memory says.
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

    /// Who sends and who consumes, in one line.
    pub fn about(&self) -> String {
        let Wanted { buffers, consume, .. } = self.wanted;
        let buffers = if buffers == 1 { "one buffer".into() } else { format!("{buffers} buffers in turn") };
        format!(
            "frames of {} to {buffers}, each consumed for {consume:?} by {}",
            self.device.about(),
            self.consumer.name()
        )
    }

    /// Fills the device's memory with frames, and readies their way. `seed` is that of their bytes.
    ///
    /// # Errors
    /// What the device and the memory say.
    pub fn run(&mut self, seed: u64) -> Result<Frames<'_>, Error> {
        let Ring { device, consumer, source, destination, handles: [from, to], wanted, kept } = self;
        for slot in 0..*kept {
            source.write((slot * wanted.bytes) as i64, &content(seed, slot, wanted.bytes))?;
        }
        destination.write(0, &vec![0; (wanted.bytes * wanted.buffers) as usize])?;
        let job = match destination.gpu() {
            Some(_) => device.to_gpu(*from, *to, wanted.bytes)?,
            None => device.to_host(*from, *to, wanted.bytes)?,
        };
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

/// What the first page of a frame begins with; the next page with one more.
fn number(seed: u64, slot: u64) -> u64 {
    let mut word = [0; 8];
    random(&mut word, seed ^ slot.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    u64::from_le_bytes(word)
}

/// The bytes of a frame.
fn content(seed: u64, slot: u64, bytes: u64) -> Vec<u8> {
    let mut all = vec![0; bytes as usize];
    let number = number(seed, slot);
    random(&mut all, !number);
    for (page, bytes) in (0u64..).zip(all.chunks_mut(PAGE as usize)) {
        bytes[..8].copy_from_slice(&number.wrapping_add(page).to_le_bytes());
    }
    all
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    /// The next frame to be taken is on its way.
    Arriving,
    Consuming,
    Done,
}

/// Frames on their way. One at a time is asked for: [`Frames::ask`], then [`Frames::poll`] until it is true or [`Frames::wait`].
pub struct Frames<'r> {
    job: Box<dyn Job + 'r>,
    consuming: Consuming<'r>,
    destination: &'r Buffer<'r>,
    wanted: Wanted,
    kept: u64,
    seed: u64,
    /// Frames that the device was told to send, and those that were consumed.
    sent: u64,
    taken: u64,
    state: State,
}

impl Frames<'_> {
    /// Asks for the next frame; it may be there already.
    ///
    /// # Errors
    /// What the device says.
    #[inline]
    pub fn ask(&mut self) -> Result<(), Error> {
        if matches!(self.state, State::Arriving | State::Consuming) {
            self.wait(PATIENCE)?;
        }
        if self.sent == self.taken {
            self.send()?;
        }
        self.state = State::Arriving;
        Ok(())
    }

    #[inline]
    fn send(&mut self) -> Result<(), Error> {
        let Wanted { bytes, buffers, .. } = self.wanted;
        self.job.start(self.sent % self.kept * bytes, self.sent % buffers * bytes)?;
        self.sent += 1;
        Ok(())
    }

    /// Whether the frame that was asked for is consumed.
    ///
    /// # Errors
    /// [`Error::Frame`] for a frame that is not what was sent, and what the device and CUDA say.
    #[inline]
    pub fn poll(&mut self) -> Result<bool, Error> {
        match self.state {
            State::Idle => Ok(false),
            State::Done => Ok(true),
            State::Arriving => {
                if self.job.poll()? {
                    // Another buffer is free: the next frame goes there while this one is consumed.
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

    /// Until it is.
    ///
    /// # Errors
    /// As [`Frames::poll`]; [`Error::Late`] after `timeout`, [`Error::Idle`] where none was asked for.
    pub fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        if self.state == State::Idle {
            return Err(Error::Idle);
        }
        let begun = Instant::now();
        while !self.poll()? {
            let after = begun.elapsed();
            if after > timeout {
                return Err(Error::Late { bytes: self.wanted.bytes, after });
            }
            std::hint::spin_loop();
        }
        Ok(())
    }

    /// How many frames were consumed.
    pub fn taken(&self) -> u64 {
        self.taken
    }

    /// Compares every byte of the frame that was consumed last. It stays where it is until the next one is asked for.
    ///
    /// # Errors
    /// What the memory says. A difference is no error, but the answer.
    pub fn check(&self) -> Result<Option<Difference>, Error> {
        let Some(last) = self.taken.checked_sub(1) else { return Ok(None) };
        let Wanted { bytes, buffers, .. } = self.wanted;
        let mut found = vec![0; bytes as usize];
        self.destination.read((last % buffers * bytes) as i64, &mut found)?;
        Ok(Difference::between(&content(self.seed, last % self.kept, bytes), &found, None))
    }
}

/// Longer than any frame takes that will ever come.
const PATIENCE: Duration = Duration::from_secs(2);
