//! Reads and writes between blocks of one file and slots of memory, with many pending at a time: by io_uring, or by threads where
//! the kernel refuses io_uring.

mod pool;
mod ring;

use crate::error::{Errno, Error};
use crate::options::Way;
use pool::Pool;
use ring::Ring;
use std::os::fd::RawFd;

/// The means to move the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    Uring {
        /// Why the buffers are not registered, if they are not.
        unregistered: Option<String>,
    },
    Threads {
        /// Why io_uring is not used; none where the caller chose threads.
        refused: Option<String>,
    },
}

/// The direction of the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Read,
    Write,
}

/// One read or write of a slot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request {
    pub slot: usize,
    pub operation: Operation,
    /// Offset in the file.
    pub offset: u64,
    /// Offset in the slot.
    pub within: usize,
    pub bytes: usize,
}

/// A request that ended: bytes, or the error.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub slot: usize,
    pub result: Result<usize, Errno>,
}

/// Memory in equal slots, which stays in place as long as any request is pending.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub base: *mut u8,
    pub slot: usize,
    pub slots: usize,
}

// SAFETY: an address. The code that made it promised that the memory stays, and one operation at a time uses each slot.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// The address of a request's bytes.
    fn at(&self, request: &Request) -> *mut u8 {
        debug_assert!(request.slot < self.slots && request.within + request.bytes <= self.slot);
        self.base.wrapping_add(request.slot * self.slot + request.within)
    }
}

pub(crate) enum Io {
    Ring(Box<Ring>),
    Pool(Pool),
}

impl Io {
    /// # Safety
    /// The memory and the descriptor stay until this is dropped. While a slot has a pending request, no other code uses the slot.
    ///
    /// # Errors
    /// [`Error::Ring`] if the caller requires io_uring and the kernel refuses it.
    pub unsafe fn new(fd: RawFd, memory: Memory, way: Way) -> Result<(Io, Backend), Error> {
        let threads = |refused| {
            // SAFETY: the caller's promise.
            let pool = unsafe { Pool::new(fd, memory) };
            (Io::Pool(pool), Backend::Threads { refused })
        };
        if way == Way::Threads {
            return Ok(threads(None));
        }
        // SAFETY: the caller's promise.
        match unsafe { Ring::new(fd, memory) } {
            Ok((ring, unregistered)) => Ok((Io::Ring(Box::new(ring)), Backend::Uring { unregistered })),
            Err(Error::Ring { what, cause }) if way == Way::Auto => Ok(threads(Some(format!("{what}: {cause}")))),
            Err(error) => Err(error),
        }
    }

    /// Accepts a request. The kernel gets it with the next [`Io::turn`] at the latest.
    pub fn push(&mut self, request: Request) {
        match self {
            Io::Ring(ring) => ring.push(request),
            Io::Pool(pool) => pool.push(request),
        }
    }

    /// Submits all pushed requests, and calls `each` for each request that has ended. With `wait`, waits for at least one.
    ///
    /// # Errors
    /// [`Error::Ring`].
    pub fn turn(&mut self, wait: bool, each: impl FnMut(Ended)) -> Result<(), Error> {
        match self {
            Io::Ring(ring) => ring.turn(wait, each),
            Io::Pool(pool) => {
                pool.turn(wait, each);
                Ok(())
            }
        }
    }
}
