//! A file that a non-stall interrupt of the GPU makes readable. It could wake a thread without polling, but no submission raises such an interrupt yet.
//!
//! At each interrupt of this kind, by any channel, the kernel driver wakes every listener, and gives neither channel nor number: a woken thread must read
//! the tracker. Source: `event_notification.c` and `nv.c` (`nvidia_poll`) of the open kernel modules, 535.86.05 to 595.45.04. Not tested on hardware; no
//! code uses it.

use crate::device::Device;
use crate::error::Error;
use rm::abi::{EventAlloc, event};
use rm::{class, driver};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// An event object of the device's client, and the file that it makes readable. Both are released on drop.
#[derive(Debug)]
pub struct OsEvent {
    device: Arc<Device>,
    file: RawFd,
    /// The event object; 0 before there is one.
    object: u32,
    registered: bool,
}

impl OsEvent {
    /// Creates one with the kernel driver. Poll it for readability; a poll that finds it readable also resets it.
    ///
    /// # Errors
    /// The driver's error: then threads cannot sleep until an interrupt here.
    pub fn new(device: &Arc<Device>) -> Result<OsEvent, Error> {
        if device.forked() {
            return Err(Error::Forked);
        }
        let file = device.open_node(true)?;
        let mut made = OsEvent { device: device.clone(), file, object: 0, registered: false };
        driver::alloc_os_event(&*device.driver, file, device.client, device.device)?;
        made.registered = true;
        let mut params = EventAlloc {
            parent_client: device.client,
            source: device.subdevice,
            class: class::NV01_EVENT_OS_EVENT,
            notify_index: event::FIFO_EVENT_MTHD | event::NONSTALL_INTR | event::WITHOUT_EVENT_DATA,
            data: file as u64,
        };
        made.object = device.alloc(device.subdevice, class::NV01_EVENT_OS_EVENT, &mut params)?;
        Ok(made)
    }
}

impl AsFd for OsEvent {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: this struct's own file, open as long as self.
        unsafe { BorrowedFd::borrow_raw(self.file) }
    }
}

impl Drop for OsEvent {
    fn drop(&mut self) {
        let device = &self.device;
        if device.forked() {
            return;
        }
        if self.object != 0 {
            device.free(device.subdevice, self.object);
        }
        if self.registered {
            let _ = driver::free_os_event(&*device.driver, self.file, device.client, device.device);
        }
        let _ = device.driver.close(self.file);
    }
}
