//! The kernel's request to release a function: someone removes it, or its driver, and waits until it is closed.

use super::abi;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// An event that the kernel signals with its request.
pub(super) struct Removal {
    event: File,
    asked: AtomicBool,
}

/// `vfio_irq_set`, followed by one event.
#[repr(C)]
struct Set {
    head: [u32; 5],
    event: i32,
}

impl Removal {
    /// None where the kernel has no such request for this function.
    pub(super) fn of(device: &File) -> Option<Removal> {
        // SAFETY: makes a file.
        let made = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if made < 0 {
            return None;
        }
        // SAFETY: made just now, without another owner.
        let event = unsafe { File::from_raw_fd(made) };
        let flags = abi::VFIO_IRQ_SET_DATA_EVENTFD | abi::VFIO_IRQ_SET_ACTION_TRIGGER;
        // argsz, flags, index, start, count
        let head = [size_of::<Set>() as u32, flags, abi::VFIO_PCI_REQ_IRQ_INDEX, 0, 1];
        let mut set = Set { head, event: event.as_raw_fd() };
        // SAFETY: the call's own struct, followed by as many numbers as it gives.
        unsafe { abi::with(device, abi::DEVICE_SET_IRQS, &raw mut set) }.ok()?;
        Some(Removal { event, asked: AtomicBool::new(false) })
    }

    pub(super) fn is_asked(&self) -> bool {
        let mut count = [0; 8];
        let is_new = !matches!((&self.event).read(&mut count), Err(why) if why.kind() == io::ErrorKind::WouldBlock);
        // ORDERING: a flag that stays set; it orders no other memory.
        self.asked.fetch_or(is_new, Ordering::Relaxed) || is_new
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_struct_is_the_kernels_with_one_event() {
        assert_eq!(size_of::<Set>(), 24);
        assert_eq!(std::mem::offset_of!(Set, event), 20);
    }

    #[test]
    fn a_request_stays() {
        // SAFETY: makes a file.
        let event = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK)) };
        let removal = Removal { event, asked: AtomicBool::new(false) };
        assert!(!removal.is_asked());
        io::Write::write_all(&mut &removal.event, &1u64.to_ne_bytes()).unwrap();
        assert!(removal.is_asked() && removal.is_asked());
    }
}
