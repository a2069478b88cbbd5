//! CUDA's copies back to back, after a kernel that waits for the host.

use super::BackToBack;
use crate::ends::{Direction, Pair};
use crate::error::Error;
use crate::inspect::Inspect;
use crate::machine::Machine;
use crate::routes::cuda::{self as route, Side, side};
use crate::spec::{End, Host, Memory, Spec};
use cuda::{Argument, Event, Module, PinnedBuffer, Stream};
use machine::Unavailable;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Copies that are all enqueued after a kernel that waits for the host. They run back to back even if their submission is slow.
/// The GPU's own clock times them: the bandwidth to compare with.
pub struct GatedCopies<'m> {
    stream: Stream<'m>,
    pair: Pair<'m>,
    module: Module<'m>,
    /// Word 0: the gate is open. Word 1: what the kernel saw. Words 2 and 3: the time of that, by the GPU's clock.
    flag: PinnedBuffer<'m>,
    start: Event<'m>,
    end: Event<'m>,
    /// Bytes of each copy after the gate, if there are any.
    enqueued: Option<u64>,
    span: Option<(u64, u64)>,
}

/// More copies would fill the queue after the gate. The call that waits for room there would then never return.
const MAX_GATED: u32 = 256;
/// The kernel opens the gate itself after this, so that the program cannot hang.
const GATE_LIMIT: Duration = Duration::from_secs(5);
const OPENED: u32 = 1;

/// Waits at most `limit` nanoseconds until the word at `flag` is not zero. Writes the outcome to the next word, and the time
/// after that. PTX 7.0 for sm_70: the driver compiles it for the GPU of the machine.
const GATE: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry gate(.param .u64 gate_flag, .param .u64 gate_limit)
{
    .reg .pred %p<3>;
    .reg .b32 %r<3>;
    .reg .b64 %rd<7>;
    ld.param.u64 %rd1, [gate_flag];
    ld.param.u64 %rd2, [gate_limit];
    cvta.to.global.u64 %rd3, %rd1;
    mov.u64 %rd4, %globaltimer;
    mov.u32 %r2, 2;
GATE_AGAIN:
    ld.volatile.global.u32 %r1, [%rd3];
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra GATE_OPEN;
    mov.u64 %rd5, %globaltimer;
    sub.u64 %rd6, %rd5, %rd4;
    setp.lt.u64 %p2, %rd6, %rd2;
    @%p2 bra GATE_AGAIN;
    bra GATE_DONE;
GATE_OPEN:
    mov.u32 %r2, 1;
GATE_DONE:
    mov.u64 %rd5, %globaltimer;
    st.volatile.global.u64 [%rd3+8], %rd5;
    st.volatile.global.u32 [%rd3+4], %r2;
    ret;
}
";

impl<'m> GatedCopies<'m> {
    /// As the route `spec`, which is `cuda` without options, between the GPU and pinned or registered memory.
    ///
    /// # Errors
    /// As [`crate::open`]. Pageable memory is [`Error::Unavailable`], because its copies do not wait in the stream.
    pub fn new(machine: &'m Machine, spec: &Spec, capacity: u64) -> Result<GatedCopies<'m>, Error> {
        route::check(machine, spec)?;
        let pageable = |end: End| end.memory == Memory::Host(Host::Pageable);
        if spec.executor.name != route::ENTRY.word.name || !spec.executor.options.is_empty() {
            return Err(Unavailable::new(format!("{} does not wait in a stream of CUDA's", spec.executor)).into());
        }
        if pageable(spec.source) || pageable(spec.destination) {
            return Err(Unavailable::new("copies of pageable memory do not wait in the stream").into());
        }
        // The route must be between the host and the GPU.
        Direction::of(machine, spec)?;
        let context = machine.context()?;
        Ok(GatedCopies {
            stream: Stream::new(context)?,
            pair: Pair::new(machine, spec, capacity)?,
            module: Module::from_ptx(context, GATE)?,
            flag: PinnedBuffer::new(context, 16)?,
            start: Event::timed(context)?,
            end: Event::timed(context)?,
            enqueued: None,
            span: None,
        })
    }

    fn enqueue(&self, side: Side<'_>, count: u32) -> Result<(), Error> {
        self.start.record(&self.stream)?;
        for _ in 0..count {
            // SAFETY: the ends live as long as self, which waits for the stream before it is dropped.
            unsafe { side.enqueue(&self.stream) }?;
        }
        Ok(self.end.record(&self.stream)?)
    }

    fn flag_words(&self) -> [&AtomicU32; 2] {
        let word = self.flag.as_ptr().cast::<u32>();
        // SAFETY: two aligned words of pinned memory that lives as long as self, touched only by atomic accesses.
        unsafe { [AtomicU32::from_ptr(word), AtomicU32::from_ptr(word.add(1))] }
    }

    fn open_gate(&self) {
        let [open, _] = self.flag_words();
        // ORDERING: the copies have been enqueued before the kernel sees the gate open.
        open.store(1, Ordering::Release);
    }

    /// Opens the gate and waits for all work after it.
    fn clear(&mut self) -> Result<(), Error> {
        self.enqueued = None;
        self.open_gate();
        Ok(self.stream.synchronize()?)
    }
}

impl BackToBack for GatedCopies<'_> {
    fn ready(&mut self, bytes: u64, count: u32) -> Result<(), Error> {
        self.pair.ends().check(bytes)?;
        self.span = None;
        if !(1..=MAX_GATED).contains(&count) {
            return Err(Unavailable::new(format!("{count} gated copies: 1 to {MAX_GATED} fit behind the gate")).into());
        }
        if self.enqueued.is_some() {
            self.clear()?;
        }
        let side = side(self.pair.ends(), bytes)?;
        let gate = self.module.function("gate")?;
        // One copy before the gate: CUDA's setup for the first copy of its kind may wait for the GPU.
        // SAFETY: the ends live as long as self, and the stream is waited for.
        unsafe { side.enqueue(&self.stream) }?;
        self.stream.synchronize()?;
        for word in self.flag_words() {
            word.store(0, Ordering::Relaxed);
        }
        let limit = Argument::U64(GATE_LIMIT.as_nanos() as u64);
        let arguments = [Argument::U64(self.flag.device_address()?), limit];
        // SAFETY: the arguments are the kernel's, and its flag lives until the stream has been synchronised: in `finish`, or at
        // the latest when self is dropped.
        unsafe { gate.launch([1, 1, 1], [1, 1, 1], 0, &self.stream, &arguments) }?;
        let enqueued = self.enqueue(side, count);
        if enqueued.is_err() {
            // No work may stay after a shut gate. The first error is the one that gives the reason.
            let _ = self.clear();
        } else {
            self.enqueued = Some(bytes);
        }
        enqueued
    }

    fn go(&mut self) -> Result<(), Error> {
        if self.enqueued.is_none() {
            return Err(Error::Idle);
        }
        self.open_gate();
        Ok(())
    }

    /// CUDA's wait has no time limit, so `timeout` is ignored.
    fn finish(&mut self, _timeout: Duration) -> Result<f64, Error> {
        let bytes = self.enqueued.ok_or(Error::Idle)?;
        self.clear()?;
        let [_, seen] = self.flag_words();
        if seen.load(Ordering::Acquire) != OPENED {
            return Err(Error::Late { bytes, after: GATE_LIMIT });
        }
        let taken = self.end.nanoseconds_since(&self.start)?;
        // SAFETY: within the buffer, aligned; the kernel has written it and ended.
        let opened = unsafe { self.flag.as_ptr().add(8).cast::<u64>().read_volatile() };
        self.span = Some((opened, opened + taken.round() as u64));
        Ok(taken)
    }

    /// The start is when the gate opened. The length is the time between the events around the copies.
    fn span(&self) -> Option<(u64, u64)> {
        self.span
    }

    fn ends(&self) -> &dyn Inspect {
        &self.pair
    }
}

impl Drop for GatedCopies<'_> {
    fn drop(&mut self) {
        if self.enqueued.is_some() {
            let _ = self.clear();
        }
    }
}
