//! Streams and events. The work for streams is elsewhere: copies in `memory`, launches in `kernel`.

use crate::Result;
use crate::context::Context;
use crate::error::Error;
use crate::functions::{RawEvent, RawStream};
use std::ffi::c_void;

/// How a stream relates to the default stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u32)]
pub enum Order {
    /// `CU_STREAM_DEFAULT`: its work and the default stream's work wait for each other.
    WithDefault = 0,
    /// `CU_STREAM_NON_BLOCKING`.
    #[default]
    Independent = 1,
}

/// Which of two streams' waiting blocks a multiprocessor takes first. Running blocks are not interrupted, and copies have no
/// priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Priority {
    Lowest,
    Highest,
}

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: u32 = 2;
/// `CU_EVENT_RECORD_EXTERNAL`, `CU_EVENT_WAIT_EXTERNAL`.
const EXTERNAL: u32 = 1;

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
    /// Independent of the default stream.
    pub fn new(context: &'c Context) -> Result<Self> {
        Stream::with_order(context, Order::Independent)
    }

    pub fn with_order(context: &'c Context, order: Order) -> Result<Self> {
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { context.cuda.cuStreamCreate(&mut raw, order as u32) }?;
        Ok(Stream { context, raw })
    }

    /// Independent of the default stream, with a priority if this GPU has several.
    ///
    /// # Errors
    /// A driver without priorities, or CUDA's error.
    pub fn with_priority(context: &'c Context, priority: Priority) -> Result<Self> {
        let (mut lowest, mut highest) = (0, 0);
        // SAFETY: writes two numbers; the context is current, as for all calls here.
        unsafe { context.cuda.cuCtxGetStreamPriorityRange(&mut lowest, &mut highest) }?;
        let number = match priority {
            Priority::Lowest => lowest,
            Priority::Highest => highest,
        };
        let mut raw = std::ptr::null_mut();
        // SAFETY: writes one handle.
        unsafe { context.cuda.cuStreamCreateWithPriority(&mut raw, Order::Independent as u32, number) }?;
        Ok(Stream { context, raw })
    }

    /// The stream's context.
    pub fn context(&self) -> &'c Context {
        self.context
    }

    /// The driver API's handle (`CUstream`).
    pub fn handle(&self) -> *mut std::ffi::c_void {
        self.raw
    }

    /// Waits until everything in the stream is done.
    pub fn synchronize(&self) -> Result<()> {
        // SAFETY: the stream lives until this is dropped.
        unsafe { self.context.cuda.cuStreamSynchronize(self.raw) }
    }

    /// Writes one word after everything in the stream is done, with a fence for all observers (`cuStreamWriteValue32`).
    ///
    /// # Safety
    /// `at` is an aligned word that the GPU reaches at this address. It stays allocated until it has been written.
    #[inline]
    pub unsafe fn write_word(&self, at: u64, value: u32) -> Result<()> {
        // SAFETY: the caller keeps the word.
        unsafe { self.context.cuda.cuStreamWriteValue32_v2(self.raw, at, value, 0) }
    }

    /// Work that is put into this stream later waits for the event. In a capture, this stream joins it.
    pub fn wait_for(&self, event: &Event<'_>) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.cuda.cuStreamWaitEvent(self.raw, event.raw, 0) }
    }

    /// As [`Stream::wait_for`], for an event that is recorded outside of the capture. Makes a separate node.
    pub fn wait_for_outside(&self, event: &Event<'_>) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.cuda.cuStreamWaitEvent(self.raw, event.raw, EXTERNAL) }
    }

    /// Calls a function on a CUDA thread when everything before it in the stream is done.
    ///
    /// # Safety
    /// `data` is valid for the function until all calls have been made: one each time the stream reaches this point. The function
    /// makes no CUDA call.
    pub unsafe fn call_host(&self, function: extern "C" fn(*mut c_void), data: *mut c_void) -> Result<()> {
        // SAFETY: the caller's promise.
        unsafe { self.context.cuda.cuLaunchHostFunc(self.raw, function, data) }
    }

    /// Whether the driver has the call for [`Stream::write_word`].
    ///
    /// # Errors
    /// The missing function.
    pub fn can_write_words(&self) -> Result<()> {
        const CALL: &str = "cuStreamWriteValue32_v2";
        if self.context.cuda.has(CALL) { Ok(()) } else { Err(Error::Missing { call: CALL }) }
    }

    /// True when everything in the stream is done.
    #[inline]
    pub fn is_done(&self) -> Result<bool> {
        self.context.cuda.stream_is_done(self.raw)
    }
}

impl Drop for Stream<'_> {
    fn drop(&mut self) {
        // CUDA lets work that is still queued finish.
        // SAFETY: created by `new`.
        let _ = unsafe { self.context.cuda.cuStreamDestroy_v2(self.raw) };
    }
}

/// A point in a stream.
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
    /// Without a timestamp.
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

    /// In a capture: a node that records the event. Other streams can wait for it while the graph runs.
    pub fn record_for_outside(&self, stream: &Stream<'_>) -> Result<()> {
        // SAFETY: both live.
        unsafe { self.context.cuda.cuEventRecordWithFlags(self.raw, stream.raw, EXTERNAL) }
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
