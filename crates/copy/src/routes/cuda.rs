//! libcuda's own copies: what every other route is compared with.
//!
//! As tight as CUDA lets a program be: one call submits (`cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync`) on a stream that waits
//! for no other, one call waits (`cuStreamSynchronize`, which knows no time limit). `sync` is the one call that does both
//! (`cuMemcpyHtoD`, `cuMemcpyDtoH`).
//!
//! Done means what CUDA promises. Of `sync` from pageable memory that is less than for all others: the source may be
//! changed, and whatever CUDA is told next sees the bytes, but the last of them may still be on their way.

use super::{Direction, Ends};
use crate::error::{Error, Unavailable};
use crate::machine::Machine;
use crate::registry::{Entry, Opened};
use crate::route::{Route, Transfer};
use crate::spec::{End, Host, Memory, Spec, Word};
use cuda::{Argument, Context, DeviceSlice, Event, Module, PinnedBuffer, Stream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SYNC: &str = "sync";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "cuda", numbered: false, options: &[SYNC] },
    about: |_, _| "libcuda's own copies, on a stream or (sync) by the one call that also waits".into(),
    list,
    check,
    open,
};

fn list(machine: &Machine) -> Vec<String> {
    let gpu = machine.index();
    let mut names = Vec::new();
    for host in ["host", "host[pageable]", "host[registered]"] {
        for cuda in ["cuda", "cuda[sync]"] {
            names.push(format!("{host}->{cuda}->gpu{gpu}"));
            names.push(format!("gpu{gpu}->{cuda}->{host}"));
        }
    }
    names
}

fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    Direction::of(machine, spec)?;
    machine.context().map(|_| ())
}

fn open<'m>(machine: &'m Machine, spec: &Spec, capacity: u64) -> Opened<'m> {
    let direction = Direction::of(machine, spec)?;
    let context = machine.context()?;
    let stream = Stream::new(context)?;
    let ends = Ends::new(machine, spec, capacity)?;
    Ok(Box::new(CudaRoute { stream, ends, context, direction, sync: spec.executor.has(SYNC) }))
}

struct CudaRoute<'m> {
    // Before the memory that its work may name.
    stream: Stream<'m>,
    ends: Ends<'m>,
    context: &'m Context,
    direction: Direction,
    sync: bool,
}

impl Route for CudaRoute<'_> {
    fn name(&self) -> &str {
        &self.ends.name
    }

    fn capacity(&self) -> u64 {
        self.ends.capacity()
    }

    fn prepare(&mut self, bytes: u64) -> Result<Box<dyn Transfer + '_>, Error> {
        self.ends.check(bytes)?;
        let side = side(&self.ends, self.direction, bytes)?;
        if self.sync {
            Ok(Box::new(Sync { context: self.context, side, submitted: false }))
        } else {
            Ok(Box::new(Async { stream: &self.stream, side }))
        }
    }

    fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.ends.fill(data)
    }

    fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_back(into)
    }
}

/// The two memories of a transfer, equally long.
#[derive(Clone, Copy)]
pub(super) struct Side<'r> {
    pub(super) host: *mut u8,
    pub(super) device: DeviceSlice<'r>,
    pub(super) direction: Direction,
}

pub(super) fn side<'r>(ends: &'r Ends<'_>, direction: Direction, bytes: u64) -> Result<Side<'r>, Error> {
    let (host, device) = match direction {
        Direction::ToGpu => (&ends.source, &ends.destination),
        Direction::FromGpu => (&ends.destination, &ends.source),
    };
    let missing = || Unavailable::new("CUDA copies between its own memories");
    let host = host.host_pointer().ok_or_else(missing)?;
    let device = device.device_slice(bytes)?.ok_or_else(missing)?;
    Ok(Side { host, device, direction })
}

struct Async<'r> {
    stream: &'r Stream<'r>,
    side: Side<'r>,
}

impl Side<'_> {
    /// # Safety
    /// The memory stays allocated, and the host's unused, until the stream has been synchronised.
    #[inline]
    unsafe fn enqueue(&self, stream: &Stream<'_>) -> Result<(), Error> {
        let len = self.device.len();
        match self.direction {
            Direction::ToGpu => {
                // SAFETY: the host buffer has the slice's length; the caller keeps it.
                unsafe { stream.upload(self.device, std::slice::from_raw_parts(self.host, len)) }?;
            }
            Direction::FromGpu => {
                // SAFETY: as above.
                unsafe { stream.download(std::slice::from_raw_parts_mut(self.host, len), self.device) }?;
            }
        }
        Ok(())
    }
}

impl Transfer for Async<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        // SAFETY: the transfer borrows the route, which owns the memory and, dropped, waits for the stream.
        unsafe { self.side.enqueue(self.stream) }
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.stream.is_done()?)
    }

    /// CUDA's wait has no time limit: `timeout` is not looked at.
    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.stream.synchronize()?)
    }
}

impl Drop for Async<'_> {
    fn drop(&mut self) {
        // Whoever has waited already pays one more call here, outside of any transfer.
        let _ = self.stream.synchronize();
    }
}

struct Sync<'r> {
    context: &'r Context,
    side: Side<'r>,
    submitted: bool,
}

impl Transfer for Sync<'_> {
    #[inline]
    fn submit(&mut self) -> Result<(), Error> {
        let Side { host, device, direction } = self.side;
        match direction {
            // SAFETY: the host buffer has the slice's length, and the call is done with it when it returns.
            Direction::ToGpu => unsafe { device.upload_now(self.context, host) }?,
            // SAFETY: as above.
            Direction::FromGpu => unsafe { device.download_now(self.context, host) }?,
        }
        self.submitted = true;
        Ok(())
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.submitted)
    }

    #[inline]
    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        if self.submitted { Ok(()) } else { Err(Error::Idle) }
    }
}

/// Copies that are all enqueued behind a kernel that waits for the host, so that they run back to back whatever their
/// submission costs. The GPU's own clock says how long they take: the bandwidth to compare with.
pub struct GatedCopies<'m> {
    stream: Stream<'m>,
    ends: Ends<'m>,
    direction: Direction,
    module: Module<'m>,
    /// Word 0: the gate is open. Word 1: what the kernel saw.
    flag: PinnedBuffer<'m>,
    start: Event<'m>,
    end: Event<'m>,
}

/// More would fill the queue behind the gate, and the call that waits for room there would wait for ever.
const MAX_GATED: u32 = 256;
/// The kernel opens the gate itself after this, so that nothing can hang.
const GATE_LIMIT: Duration = Duration::from_secs(5);
const OPENED: u32 = 1;

/// Waits until the word at `flag` is not zero, `limit` nanoseconds at most, and says in the next word which it was.
/// PTX 7.0 for sm_70: the driver compiles it for whatever GPU there is.
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
    st.volatile.global.u32 [%rd3+4], %r2;
    ret;
}
";

impl<'m> GatedCopies<'m> {
    /// As the route `spec`, which is one of CUDA's without `sync`, between pinned or registered memory and the GPU.
    ///
    /// # Errors
    /// As [`crate::open`]; pageable memory is [`Error::Unavailable`], for its copies do not wait in the stream.
    pub fn new(machine: &'m Machine, spec: &Spec, capacity: u64) -> Result<GatedCopies<'m>, Error> {
        check(machine, spec)?;
        let pageable = |end: End| end.memory == Memory::Host(Host::Pageable);
        if spec.executor.name != ENTRY.word.name || spec.executor.has(SYNC) {
            return Err(Unavailable::new(format!("{} does not wait in a stream of CUDA's", spec.executor)).into());
        }
        if pageable(spec.source) || pageable(spec.destination) {
            return Err(Unavailable::new("copies of pageable memory do not wait in the stream").into());
        }
        let context = machine.context()?;
        Ok(GatedCopies {
            stream: Stream::new(context)?,
            ends: Ends::new(machine, spec, capacity)?,
            direction: Direction::of(machine, spec)?,
            module: Module::from_ptx(context, GATE)?,
            flag: PinnedBuffer::new(context, 8)?,
            start: Event::timed(context)?,
            end: Event::timed(context)?,
        })
    }

    /// Nanoseconds of the GPU for each of `count` copies of `bytes`, 1 to 256 of them, back to back.
    ///
    /// # Errors
    /// [`Error::Late`] where the host took longer than 5 s to enqueue them: then they did not run back to back.
    pub fn run(&mut self, bytes: u64, count: u32) -> Result<f64, Error> {
        self.ends.check(bytes)?;
        if !(1..=MAX_GATED).contains(&count) {
            return Err(Unavailable::new(format!("{count} gated copies: 1 to {MAX_GATED} fit behind the gate")).into());
        }
        let side = side(&self.ends, self.direction, bytes)?;
        let gate = self.module.function("gate")?;
        // One before the gate: what CUDA sets up for the first copy of its kind may wait for the GPU.
        // SAFETY: the ends live as long as self, and the stream is waited for.
        unsafe { side.enqueue(&self.stream) }?;
        self.stream.synchronize()?;
        let [open, seen] = self.flag_words();
        open.store(0, Ordering::Relaxed);
        seen.store(0, Ordering::Relaxed);
        let limit = Argument::U64(GATE_LIMIT.as_nanos() as u64);
        let arguments = [Argument::U64(self.flag.device_address()?), limit];
        // SAFETY: the arguments are the kernel's, and its flag lives until the stream has been synchronised below.
        unsafe { gate.launch([1, 1, 1], [1, 1, 1], 0, &self.stream, &arguments) }?;
        let enqueued = self.enqueue(side, count);
        // Whatever went wrong, nothing may be left behind a shut gate.
        // ORDERING: the copies have been enqueued before the kernel sees the gate open.
        open.store(1, Ordering::Release);
        let waited = self.stream.synchronize();
        enqueued?;
        waited?;
        if seen.load(Ordering::Acquire) != OPENED {
            return Err(Error::Late { bytes, after: GATE_LIMIT });
        }
        Ok(self.end.nanoseconds_since(&self.start)? / f64::from(count))
    }

    fn enqueue(&self, side: Side<'_>, count: u32) -> Result<(), Error> {
        self.start.record(&self.stream)?;
        for _ in 0..count {
            // SAFETY: the ends live as long as self, and `run` waits for the stream.
            unsafe { side.enqueue(&self.stream) }?;
        }
        Ok(self.end.record(&self.stream)?)
    }

    fn flag_words(&self) -> [&AtomicU32; 2] {
        let word = self.flag.as_ptr().cast::<u32>();
        // SAFETY: two aligned words of pinned memory that lives as long as self, touched by atomic accesses alone.
        unsafe { [AtomicU32::from_ptr(word), AtomicU32::from_ptr(word.add(1))] }
    }

    /// Writes the source, as [`Route::fill`].
    pub fn fill(&mut self, data: &[u8]) -> Result<(), Error> {
        self.ends.fill(data)
    }

    /// Reads the destination, as [`Route::read_back`].
    pub fn read_back(&mut self, into: &mut [u8]) -> Result<(), Error> {
        self.ends.read_back(into)
    }
}
