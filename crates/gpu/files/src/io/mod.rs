//! Reads and writes of one file between its blocks and slots of memory, many under way: io_uring, or threads where the kernel refuses
//! it.

mod pool;
mod ring;

use crate::error::{Errno, Error};
use crate::options::Way;
use pool::Pool;
use ring::Ring;
use std::os::fd::RawFd;

/// What moves the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Backend {
    Uring {
        /// Why the buffers are not registered, if they are not.
        unregistered: Option<String>,
    },
    Threads {
        /// Why not io_uring; none where threads were asked for.
        refused: Option<String>,
    },
}

/// Which way the bytes go.
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
    /// In the file.
    pub offset: u64,
    /// In the slot.
    pub within: usize,
    pub bytes: usize,
}

/// One that ended: bytes, or what went wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ended {
    pub slot: usize,
    pub result: Result<usize, Errno>,
}

/// Memory in equal slots, which stays where it is as long as anything is under way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub base: *mut u8,
    pub slot: usize,
    pub slots: usize,
}

// SAFETY: an address; who made it promised that it stays, and each slot is used by one operation at a time.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// Where a request's bytes are.
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
    /// The memory and the descriptor stay until this is dropped; a slot with a request under way is not used by others.
    ///
    /// # Errors
    /// [`Error::Ring`] where io_uring alone was asked for and is refused.
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

    /// Takes a request; the kernel gets it with the next [`Io::turn`] at the latest.
    pub fn push(&mut self, request: Request) {
        match self {
            Io::Ring(ring) => ring.push(request),
            Io::Pool(pool) => pool.push(request),
        }
    }

    /// Hands over what was pushed, and tells `each` what has ended; waits for one at least if `wait`.
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
