//! A file that a non-stall interrupt of the GPU makes readable: what would wake a thread without looking. No submission raises one yet.
//!
//! The kernel driver wakes every listener at each interrupt of this kind, whoever's work it was, and says neither channel nor number: who is woken looks at the tracker.
//! Source: `event_notification.c` and `nv.c` (`nvidia_poll`) of the open kernel modules, 535.86.05 to 595.45.04. Not seen on hardware; nothing uses it.

use crate::device::Device;
use crate::error::Error;
use rm::abi::{EventAlloc, event};
use rm::{class, driver};
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

/// An event object of the device's client, and the file that it makes readable. Both go with this.
#[derive(Debug)]
pub struct OsEvent {
    device: Arc<Device>,
    file: RawFd,
    /// The event object; 0 before there is one.
    object: u32,
    registered: bool,
}

impl OsEvent {
    /// Asks the kernel driver for one. Poll it for readability; a poll that has found it readable sets it back.
    ///
    /// # Errors
    /// What the driver refuses: then nobody can sleep until an interrupt here.
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
        // SAFETY: our own file, open as long as self.
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
