//! Streams and events. What goes into a stream lies beside its object: copies in `memory`, launches in `kernel`.

use crate::Result;
use crate::context::Context;
use crate::functions::{RawEvent, RawStream};

/// `CU_STREAM_NON_BLOCKING`: not ordered with the default stream.
const NON_BLOCKING: u32 = 1;
/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;

#[derive(Debug)]
pub struct Stream<'c> {
    pub(crate) context: &'c Context,
    pub(crate) raw: RawStream,
}

// SAFETY: CUDA streams may be used from any thread, by several at a time.
unsafe impl Send for Stream<'_> {}
// SAFETY: as above.
unsafe impl Sync for Stream<'_> {}

impl<'c> Stream<'c> {
    pub fn new(context: &'c Context) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { context.cuda.cuStreamCreate(&mut raw, NON_BLOCKING) }?;
        Ok(Stream { context, raw })
    }

    /// Waits until everything in the stream is done.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives until this is dropped.
        unsafe { self.context.cuda.cuStreamSynchronize(self.raw) }
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // CUDA lets work that is still queued finish.
        // SAFETY: created by `new`.
        let _ = unsafe { self.context.cuda.cuStreamDestroy_v2(self.raw) };
    }
}

/// An event without timing.
#[derive(Debug)]
pub struct Event<'c> {
    context: &'c Context,
    raw: RawEvent,
}

// SAFETY: CUDA events may be used from any thread.
unsafe impl Send for Event<'_> {}
// SAFETY: as above.
unsafe impl Sync for Event<'_> {}

impl<'c> Event<'c> {
    pub fn new(context: &'c Context) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { context.cuda.cuEventCreate(&mut raw, NO_TIMING) }?;
        Ok(Event { context, raw })
    }

    pub fn record(&self, stream: &Stream<'_>) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.cuda.cuEventRecord(self.raw, stream.raw) }
    }

    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the event lives until this is dropped.
        unsafe { self.context.cuda.cuEventSynchronize(self.raw) }
    }
}

impl Drop for Event<'_> {
    fn drop(&mut self) {
        // SAFETY: created by `new`.
        let _ = unsafe { self.context.cuda.cuEventDestroy_v2(self.raw) };
    }
}
