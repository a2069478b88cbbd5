//! The driver's objects of a channel, and the addresses of its context buffers.

use crate::device::Device;
use crate::error::Error;
use crate::space::AddressSpace;
use crate::tracker::Stop;
use rm::abi::uvm;
use rm::driver;
use std::sync::{Arc, Mutex};

/// GPU addresses for the context buffers of a graphics channel, well above the memory.
const CONTEXTS: u64 = 0x40_0000_0000;
pub(super) const CONTEXT_WINDOW: u64 = 64 << 20;

/// RM objects of a channel in the making. Unless it is finished, they are freed, the last one first.
#[derive(Debug)]
pub(super) struct Making {
    pub device: Arc<Device>,
    made: Vec<(u32, u32)>,
}

impl Making {
    pub fn new(device: &Arc<Device>) -> Making {
        Making { device: device.clone(), made: Vec::new() }
    }

    pub fn alloc<T: rm::abi::Plain>(&mut self, parent: u32, class: u32, params: &mut T) -> Result<u32, Error> {
        let handle = self.device.alloc(parent, class, params)?;
        self.made.push((parent, handle));
        Ok(handle)
    }

    pub fn alloc_shaped<T: rm::abi::Plain>(
        &mut self,
        parent: u32,
        class: u32,
        shape: &rm::abi::Shape<T>,
        params: &mut T,
    ) -> Result<u32, Error> {
        let handle = self.device.alloc_shaped(parent, class, shape, params)?;
        self.made.push((parent, handle));
        Ok(handle)
    }

    /// An engine's object on a channel. It is freed with the channel, which must be stopped first.
    pub fn alloc_engine(&self, channel: u32, class: u32, params: &mut [u8]) -> Result<(), Error> {
        let device = &self.device;
        driver::alloc_bytes(&*device.driver, device.ctl, device.client, channel, 0, class, params)?;
        Ok(())
    }

    /// All objects are made, and the channel is registered with UVM.
    pub fn finish(mut self, channel: u32) -> Arc<Objects> {
        let made = Mutex::new(std::mem::take(&mut self.made));
        Arc::new(Objects { device: self.device.clone(), channel, made })
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        for (parent, object) in self.made.drain(..).rev() {
            self.device.free(parent, object);
        }
    }
}

/// RM objects of a channel.
#[derive(Debug)]
pub(super) struct Objects {
    device: Arc<Device>,
    channel: u32,
    made: Mutex<Vec<(u32, u32)>>,
}

impl Stop for Objects {
    /// Unregisters the channel from UVM and frees its objects, the last one first; only once. Afterwards the GPU no
    /// longer uses it.
    fn stop(&self) {
        let device = &self.device;
        let mut made = poison::ignore(self.made.lock());
        if made.is_empty() || device.forked() {
            return;
        }
        let (uuid, client, channel) = (device.uuid, device.client, self.channel);
        let mut call = uvm::UnregisterChannel { uuid, client, channel, status: 0 };
        // SAFETY: the struct belongs to this request. If it fails, the registration ends with the channel.
        let _ =
            unsafe { driver::uvm_call(&*device.driver, &device.abi, device.uvm, uvm::UNREGISTER_CHANNEL, &mut call) };
        for (parent, object) in made.drain(..).rev() {
            device.free(parent, object);
        }
    }
}

/// A reserved range of addresses without memory.
#[derive(Debug)]
pub(super) struct Contexts {
    space: Arc<AddressSpace>,
    pub at: u64,
}

impl Contexts {
    /// Also reserved on the CPU: CUDA looks in the kernel's memory map for free addresses.
    pub fn reserve(space: &Arc<AddressSpace>) -> Result<Contexts, Error> {
        let mut above = CONTEXTS;
        loop {
            let at = space.reserve(CONTEXT_WINDOW, above)?;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED_NOREPLACE;
            // SAFETY: NOREPLACE: existing mappings are not touched.
            let got = unsafe { libc::mmap(at as *mut _, CONTEXT_WINDOW as usize, libc::PROT_NONE, flags, -1, 0) };
            if got as u64 == at {
                return Ok(Contexts { space: space.clone(), at });
            }
            if got != libc::MAP_FAILED {
                // SAFETY: the mapping that was just made, at another address.
                unsafe { libc::munmap(got, CONTEXT_WINDOW as usize) };
            }
            above = at + CONTEXT_WINDOW;
            space.unreserve(at);
        }
    }
}

impl Drop for Contexts {
    fn drop(&mut self) {
        // SAFETY: this struct's own reservation, which is empty.
        unsafe { libc::munmap(self.at as *mut _, CONTEXT_WINDOW as usize) };
        self.space.unreserve(self.at);
    }
}
