//! A copy engine in place of a device: its memory is GPU memory of its GPU. With two GPUs, copies to the first cross a bus, as
//! a device's would. With one GPU they stay within it, and show that the path works, not how fast a device is.

use super::{Device, Handle, Job};
use crate::buffer::Buffer;
use crate::error::Error;
use crate::machine::Machine;
use crate::routes::channel;
use gpu::{Channel, ChannelOptions, CopyMode, Engine, Prepared, Region, Ticket};
use machine::{Pinned, Unavailable};
use std::time::Duration;

/// The maximum that the validator lets one copy move.
const MAX_BYTES: u64 = 1 << 30;

pub struct EngineDevice {
    channel: Channel,
    number: u32,
    gpu: u32,
    /// Memory that it may name. CUDA's memory must stay pinned here.
    pinned: Vec<(Handle, Region, Option<Pinned>)>,
    next: u64,
}

impl EngineDevice {
    /// On the machine's second GPU, else on its first.
    ///
    /// # Errors
    /// If no separate channel can be opened.
    pub fn new(machine: &Machine) -> Result<EngineDevice, Error> {
        let seat = machine.device_seat();
        let is_another = seat.index() != machine.index();
        let number = if is_another { seat.engine_between_gpus() } else { seat.copy_engine() };
        let channel = Channel::new(seat.space()?, Engine::Copy(number), ChannelOptions::default())?;
        Ok(EngineDevice { channel, number, gpu: seat.index(), pinned: Vec::new(), next: 0 })
    }

    fn region(&self, handle: Handle) -> Result<&Region, Error> {
        let found = self.pinned.iter().find(|(pinned, ..)| *pinned == handle);
        found.map(|(_, region, _)| region).ok_or(Error::Unpinned)
    }
}

impl Device for EngineDevice {
    fn about(&self) -> String {
        format!("copy engine {} of GPU {} in the place of a device", self.number, self.gpu)
    }

    fn pin(&mut self, memory: &Buffer<'_>) -> Result<Handle, Error> {
        let (region, pin) = memory.pin(self.channel.space())?;
        let handle = Handle(self.next);
        self.next += 1;
        self.pinned.push((handle, region, pin));
        Ok(handle)
    }

    fn unpin(&mut self, handle: Handle) -> Result<(), Error> {
        let at = self.pinned.iter().position(|(pinned, ..)| *pinned == handle).ok_or(Error::Unpinned)?;
        self.pinned.swap_remove(at);
        Ok(())
    }

    // The kind of memory makes no difference for an engine.
    fn job<'r>(&'r mut self, from: Handle, to: Handle, bytes: u64) -> Result<Box<dyn Job + 'r>, Error> {
        let (from, to) = (self.region(from)?.clone(), self.region(to)?.clone());
        let capacity = from.length().min(to.length());
        if bytes > capacity {
            return Err(Error::Capacity { bytes, capacity });
        }
        if !(1..=MAX_BYTES).contains(&bytes) {
            return Err(Unavailable::new(format!("{bytes} bytes by the device: 1 byte to 1 GiB are possible")).into());
        }
        let prepared = Prepared::copy(&mut self.channel, &to, &from, bytes as u32, CopyMode::Plain)?;
        Ok(Box::new(Copy { channel: &mut self.channel, prepared, from: from.va(), to: to.va(), last: None }))
    }
}

struct Copy<'r> {
    channel: &'r mut Channel,
    prepared: Prepared,
    from: u64,
    to: u64,
    last: Option<Ticket>,
}

impl Job for Copy<'_> {
    #[inline]
    fn start(&mut self, from: u64, to: u64) -> Result<(), Error> {
        let (from, to) = (self.from.wrapping_add(from), self.to.wrapping_add(to));
        self.last = Some(self.prepared.submit_at(self.channel, to, from)?);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        channel::poll(self.channel, self.last)
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        channel::wait(self.channel, self.last, self.prepared.bytes(), timeout)
    }

    #[inline]
    fn released_gpu_ns(&self) -> Option<u64> {
        self.last.map(|_| self.channel.timestamp())
    }
}

impl Drop for Copy<'_> {
    fn drop(&mut self) {
        channel::settle(self.channel, self.last);
    }
}
