//! The memory of a loop: header, inputs and results in one mapping.
//!
//! Its shape is also stored here, not only in the header: a producer cannot move an address by a write there. The kernel empties the mapping in a fork's
//! child (MADV_WIPEONFORK). So the child sees no loop, and the next write by the parent copies no page.

use crate::error::Error;
use crate::layout::{Header, INPUT_HEAD, InputHead, MAGIC, RESULT_HEAD, ResultHead, VERSION};
use crate::sys::Event;
use std::io;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

const PAGE: usize = 4096;
/// Maximum number of bytes of all slots together.
const MOST: usize = 1 << 32;

pub(crate) struct Memory {
    base: NonNull<u8>,
    pub total: usize,
    pub slots: u64,
    pub results: u64,
    pub input_bytes: usize,
    pub result_bytes: usize,
    input_at: usize,
    input_stride: usize,
    result_at: usize,
    result_stride: usize,
    pub event: Event,
    /// The kernel empties it in children.
    wiped: bool,
    opener: u32,
    /// Whether a producer, or a consumer, exists.
    pub produced: AtomicBool,
    pub consumed: AtomicBool,
    /// The error that ended the loop.
    pub why: OnceLock<String>,
}

// SAFETY: the header and the heads are atomics. They determine which side reads or writes the bytes of a slot (`source`, `sink`).
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    pub fn new((slots, input_bytes): (u32, u64), (results, result_bytes): (u32, u64)) -> Result<Memory, Error> {
        let whole = |bytes: u64| usize::try_from(bytes).ok().filter(|bytes| *bytes <= MOST);
        let large = || Error::Argument("the slots of a loop have at most 4 GiB together");
        let [input_bytes, result_bytes] =
            [whole(input_bytes).ok_or_else(large)?, whole(result_bytes).ok_or_else(large)?];
        let input_stride = (INPUT_HEAD + input_bytes).next_multiple_of(128);
        let result_stride = (RESULT_HEAD + result_bytes).next_multiple_of(128);
        let input_at = size_of::<Header>().next_multiple_of(PAGE);
        let result_at = (input_at + input_stride * slots as usize).next_multiple_of(PAGE);
        let total = (result_at + result_stride * results as usize).next_multiple_of(PAGE);
        if total > MOST {
            return Err(large());
        }
        let event = Event::new().map_err(|error| Error::System("no eventfd for the results", error))?;
        let (prot, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE);
        // SAFETY: a new mapping, which `Drop` ends.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), total, prot, flags, -1, 0) };
        let base = match NonNull::new(base.cast::<u8>()) {
            Some(base) if base.as_ptr().cast() != libc::MAP_FAILED => base,
            _ => return Err(Error::System("no memory for the slots", io::Error::last_os_error())),
        };
        // SAFETY: advises on the mapping that was just made.
        let wiped = unsafe { libc::madvise(base.as_ptr().cast(), total, libc::MADV_WIPEONFORK) == 0 };
        let memory = Memory {
            base,
            total,
            slots: slots.into(),
            results: results.into(),
            input_bytes,
            result_bytes,
            input_at,
            input_stride,
            result_at,
            result_stride,
            event,
            wiped,
            opener: std::process::id(),
            produced: AtomicBool::new(false),
            consumed: AtomicBool::new(false),
            why: OnceLock::new(),
        };
        let shape = &memory.header().shape;
        for (to, value) in [(&shape.slots, slots), (&shape.results, results), (&shape.version, VERSION)] {
            to.store(value, Ordering::Relaxed);
        }
        shape.header_bytes.store(size_of::<Header>() as u32, Ordering::Relaxed);
        for (to, value) in [
            (&shape.total_bytes, total),
            (&shape.input_at, input_at),
            (&shape.input_stride, input_stride),
            (&shape.input_bytes, input_bytes),
            (&shape.result_at, result_at),
            (&shape.result_stride, result_stride),
            (&shape.result_bytes, result_bytes),
        ] {
            to.store(value as u64, Ordering::Relaxed);
        }
        shape.magic.store(MAGIC, Ordering::SeqCst);
        Ok(memory)
    }

    pub fn base(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    pub fn header(&self) -> &Header {
        // SAFETY: at the start of the mapping, aligned to a page. Zeros are valid, and all of it is atomics.
        unsafe { self.base.cast().as_ref() }
    }

    /// Head and bytes of an input.
    #[inline]
    pub fn input(&self, number: u64) -> (&InputHead, NonNull<u8>) {
        let at = self.input_at + (number % self.slots) as usize * self.input_stride;
        // SAFETY: within the mapping. The stride keeps the alignment, and the head is atomics.
        unsafe { (self.base.add(at).cast().as_ref(), self.base.add(at + INPUT_HEAD)) }
    }

    /// Head and bytes of a result.
    #[inline]
    pub fn result(&self, number: u64) -> (&ResultHead, NonNull<u8>) {
        let at = self.result_at + (number % self.results) as usize * self.result_stride;
        // SAFETY: as above.
        unsafe { (self.base.add(at).cast().as_ref(), self.base.add(at + RESULT_HEAD)) }
    }

    /// Locks it in RAM.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: locks the mapping.
        match unsafe { libc::mlock(self.base.as_ptr().cast(), self.total) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Whether this is a fork's child.
    #[inline]
    pub fn forked(&self) -> bool {
        if self.wiped {
            self.header().shape.magic.load(Ordering::Relaxed) != MAGIC
        } else {
            std::process::id() != self.opener
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: the mapping of `new`; no address of it is in use any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.total) };
    }
}
