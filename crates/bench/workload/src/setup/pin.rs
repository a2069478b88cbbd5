//! A device's pin, the one that the routes `dma` and `staged` make once and use often ([`crate::device::Device::pin`]), and the end of the pin.

use super::{Measured, Take};
use crate::device::{Device, Handle};
use crate::entry::{Call, Entry, PLAIN};
use crate::spec::{End, Host, Memory};
use crate::{Buffer, Difference};
use crate::{Checks, Error, Machine, Wanted, Wrong};
use std::time::Duration;

/// The size where none is given.
const BYTES: u64 = 64 << 20;
/// Pinned host memory, not the GPU's.
const HOST: &str = "host";
/// Bytes that are moved to see whether a pin holds.
const MOVED: u64 = 4096;
const PATIENCE: Duration = Duration::from_secs(2);

pub(crate) const PIN: Entry = Entry {
    name: "pin",
    form: "pin(host)",
    about: "a device's pin of GPU memory, as dma and staged make it; host: of pinned host memory; unpinned before the next, untimed",
    bytes: BYTES,
    words: &[HOST],
    open: |machine, call, wanted| {
        let call = Pins::new(machine, call, wanted)?;
        let about = format!("pins {}; unpinned before the next, untimed", call.of);
        Ok(Box::new(Measured::taking(call, about)))
    },
    ..PLAIN
};

pub(crate) const UNPIN: Entry = Entry {
    name: "unpin",
    form: "unpin(host)",
    about: "the end of a device's pin of GPU memory; host: of pinned host memory; pinned again before the next, untimed",
    bytes: BYTES,
    words: &[HOST],
    open: |machine, call, wanted| {
        let call = Pins::new(machine, call, wanted)?;
        let about = format!("unpins {}", call.of);
        Ok(Box::new(Measured::giving(call, about)))
    },
    ..PLAIN
};

struct Pins<'m> {
    device: Box<dyn Device>,
    /// The device's own memory, pinned for its lifetime.
    own: (Buffer<'m>, Handle),
    memory: Buffer<'m>,
    /// What is pinned, by whom.
    of: String,
    number: u8,
}

impl<'m> Pins<'m> {
    fn new(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Result<Pins<'m>, Error> {
        let bytes = wanted.bytes;
        let mut device = crate::device::open(machine)?;
        let to_host = call.has(HOST);
        let memory = if to_host { Memory::Host(Host::Pinned) } else { Memory::Gpu(machine.index()) };
        let own = Buffer::new(machine, End { memory: Memory::Device, offset: 0 }, MOVED)?;
        let memory = Buffer::for_device(machine, End { memory, offset: 0 }, bytes)?;
        let handle = device.pin(&own)?;
        let kind = if to_host { "pinned host memory" } else { "memory of the GPU" };
        let of = format!("{bytes} bytes of {kind} for {}", device.about());
        Ok(Pins { device, own: (own, handle), memory, of, number: 0 })
    }
}

impl Take for Pins<'_> {
    type Held = Handle;
    const CHECKS: Checks = Checks::Bytes;

    #[inline]
    fn take(&mut self) -> Result<Handle, Error> {
        self.device.pin(&self.memory)
    }

    #[inline]
    fn give(&mut self, held: Handle) -> Result<(), Error> {
        self.device.unpin(held)
    }

    /// The device moves new bytes into it.
    fn check(&mut self, held: &Handle) -> Result<Option<Wrong>, Error> {
        self.number = self.number.wrapping_add(1);
        let bytes = MOVED.min(self.memory.capacity());
        let (sent, mut found) = (vec![self.number | 1; bytes as usize], vec![0; bytes as usize]);
        let (own, from) = &self.own;
        own.write(0, &sent)?;
        self.memory.write(0, &found)?;
        let mut job = self.device.job(*from, *held, bytes)?;
        job.start(0, 0)?;
        job.wait(PATIENCE)?;
        drop(job);
        self.memory.read(0, &mut found)?;
        Ok(Difference::between(&sent, &found, None).map(Wrong::Data))
    }
}
