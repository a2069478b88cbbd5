//! One io_uring: a registered file, and registered buffers where the kernel takes them.

use super::{Ended, Memory, Operation, Request};
use crate::error::{Errno, Error};
use io_uring::{IoUring, opcode, types};
use std::io;
use std::os::fd::RawFd;

pub(crate) struct Ring {
    ring: IoUring,
    memory: Memory,
    registered: bool,
    /// The kernel assumes that the first thread that uses the ring is the only one, so the ring is enabled then.
    enabled: bool,
}

/// The only registered file.
const FILE: types::Fixed = types::Fixed(0);

impl Ring {
    /// Also returns why the buffers are not registered, if they are not.
    ///
    /// # Safety
    /// As [`super::Io::new`].
    pub unsafe fn new(fd: RawFd, memory: Memory) -> Result<(Ring, Option<String>), Error> {
        let entries = memory.slots.next_power_of_two() as u32;
        let failed = |what| move |cause| Error::Ring { what, cause };
        // One thread submits and reaps, so the kernel does its work when that thread enters it (Linux 6.1).
        let quiet = || IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_r_disabled().build(entries);
        let (ring, enabled) = match quiet() {
            Ok(ring) => (ring, false),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                (IoUring::new(entries).map_err(failed("no ring"))?, true)
            }
            Err(e) => return Err(failed("no ring")(e)),
        };
        ring.submitter().register_files(&[fd]).map_err(failed("the file cannot be registered"))?;
        let buffers: Vec<libc::iovec> = (0..memory.slots)
            .map(|slot| libc::iovec {
                iov_base: memory.base.wrapping_add(slot * memory.slot).cast(),
                iov_len: memory.slot,
            })
            .collect();
        // SAFETY: the caller keeps the memory as long as the ring.
        let registered = unsafe { ring.submitter().register_buffers(&buffers) };
        let unregistered = registered.err().map(|e| why_unregistered(&e));
        Ok((Ring { ring, memory, registered: unregistered.is_none(), enabled }, unregistered))
    }

    pub fn push(&mut self, request: Request) {
        let at = self.memory.at(&request);
        let (bytes, index) = (request.bytes as u32, request.slot as u16);
        let entry = match (request.operation, self.registered) {
            (Operation::Read, true) => opcode::ReadFixed::new(FILE, at, bytes, index).offset(request.offset).build(),
            (Operation::Write, true) => opcode::WriteFixed::new(FILE, at, bytes, index).offset(request.offset).build(),
            (Operation::Read, false) => opcode::Read::new(FILE, at, bytes).offset(request.offset).build(),
            (Operation::Write, false) => opcode::Write::new(FILE, at, bytes).offset(request.offset).build(),
        };
        // SAFETY: the bytes are within the slot, whose memory stays until the request has ended.
        let pushed = unsafe { self.ring.submission().push(&entry.user_data(request.slot as u64)) };
        // Each slot has at most one request, and the ring has as many entries as slots.
        debug_assert!(pushed.is_ok());
    }

    pub fn turn(&mut self, wait: bool, mut each: impl FnMut(Ended)) -> Result<(), Error> {
        if !self.enabled {
            let enabled = self.ring.submitter().register_enable_rings();
            enabled.map_err(|cause| Error::Ring { what: "it cannot be enabled", cause })?;
            self.enabled = true;
        }
        let ready = !self.ring.completion().is_empty();
        if !ready || !self.ring.submission().is_empty() {
            let entered = match wait && !ready {
                true => self.ring.submit_and_wait(1),
                // Also requests completions: the kernel finishes requests only when this thread enters it.
                false => self.ask(),
            };
            match entered {
                Ok(_) => {}
                // The next turn submits the rest.
                Err(e) if matches!(e.raw_os_error(), Some(libc::EINTR | libc::EAGAIN | libc::EBUSY)) => {}
                Err(cause) => return Err(Error::Ring { what: "the kernel refuses requests", cause }),
            }
        }
        for entry in self.ring.completion() {
            let result = entry.result();
            let result = if result < 0 { Err(Errno(-result)) } else { Ok(result as usize) };
            each(Ended { slot: entry.user_data() as usize, result });
        }
        Ok(())
    }

    /// Submits all pushed requests and collects ended ones, without waiting.
    fn ask(&mut self) -> io::Result<usize> {
        const GETEVENTS: u32 = 1;
        let pushed = self.ring.submission().len() as u32;
        // SAFETY: only numbers as arguments.
        unsafe { self.ring.submitter().enter::<libc::sigset_t>(pushed, 0, GETEVENTS, None) }
    }
}

fn why_unregistered(e: &io::Error) -> String {
    match e.raw_os_error() {
        Some(libc::ENOMEM) => "the limit of locked memory is too low (`ulimit -l`)".into(),
        Some(libc::EOPNOTSUPP | libc::EFAULT) => {
            "this kernel cannot register memory of a driver's (Linux 6.5 can)".into()
        }
        _ => e.to_string(),
    }
}
