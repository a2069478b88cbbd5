//! A device's frames ([`crate::device::frames`]): each is sent to one of several buffers in turn, and is consumed there for a stated time. One
//! sample is one frame, from the call that requests it until it is consumed, so the rate of samples is the frame rate.
//!
//! With several buffers the device is one frame ahead. A frame that arrives during a comparison, which is not timed, makes the next sample too
//! short; the untimed frames after each comparison absorb that.

use crate::device::frames::{self, Frames, MOST_BUFFERS, Ring};
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open, Value};
use crate::spec::{Host, Memory};
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Wanted, Wrong};
use std::time::Duration;

const CONSUME: &str = "consume";
/// Into the host's memory, not the GPU's.
const HOST: &str = "host";

pub(crate) const FRAMES: Entry = Entry {
    name: "frames",
    form: "frames(BUFFERS,host,consume=50us)",
    about: "a frame of a device to one of its buffers in turn, in GPU memory or host memory, where it is consumed: every page's number \
            is compared; with another buffer the next frame is in flight meanwhile",
    bytes: 1 << 20,
    number: Some(Number { of: "buffers", default: 4, least: 1, most: MOST_BUFFERS as u32 }),
    words: &[HOST],
    values: &[Value::Time(CONSUME)],
    open,
    ..PLAIN
};

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    if wanted.random_addresses || wanted.sweep.is_some() {
        return Err(Unavailable::new("frames go to their buffers in order").into());
    }
    let to = if call.has(HOST) { Memory::Host(Host::Pinned) } else { Memory::Gpu(machine.index()) };
    let consume = Duration::from_nanos(call.time_ns(CONSUME).unwrap_or(0));
    let wanted = frames::Wanted { bytes: wanted.bytes, buffers: call.number.into(), to, consume };
    let device = crate::device::open(machine)?;
    Ok(Box::new(OpenFrames { ring: Ring::new(machine, device, wanted)?, buffers: call.number }))
}

struct OpenFrames<'m> {
    ring: Ring<'m>,
    buffers: u32,
}

impl Opened for OpenFrames<'_> {
    fn about(&self) -> String {
        self.ring.about()
    }

    /// Each buffer has two.
    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let mut frames = self.ring.run(seed)?;
        for _ in 0..2 * self.buffers {
            frames.ask()?;
            frames.wait(timeout)?;
            if let Some(difference) = frames.check()? {
                return Ok(Some(Wrong::Data(difference)));
            }
        }
        Ok(None)
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(Consumed(self.ring.run(seed)?)))
    }
}

struct Consumed<'r>(Frames<'r>);

impl Subject for Consumed<'_> {
    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        self.0.ask()
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        self.0.poll()
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        self.0.wait(timeout)
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        Ok(self.0.check()?.map(Wrong::Data))
    }
}
