//! Launches: one kernel of one thread (`launch`), and a graph of a chain of them (`graph`).
//!
//! Each kernel adds 1 to a word in memory of the GPU, so one comparison says that every launch since the start ran exactly
//! once. `polled`: the last kernel also writes the new number to pinned memory, and the CPU waits by looking there; nothing
//! of CUDA's is called for it.

use crate::entry::{Call, Entry, Number, Result as Open};
use crate::{Checks, Error, Machine, Opened, Subject, Waiting, Wrong};
use copy::{Difference, View};
use cuda::{Argument, Context, DeviceBuffer, Function, Graph, GraphExec, Module, PinnedBuffer, Stream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

const POLLED: &str = "polled";

pub(crate) const LAUNCH: Entry = Entry {
    name: "launch",
    form: "launch(polled)",
    about: "cuLaunchKernel of one thread and cuStreamSynchronize; polled: the kernel's own word in host memory is waited for",
    bytes: 0,
    number: None,
    words: &[POLLED],
    one_word: false,
    values: &[],
    open: |machine, call, _| open(machine, call, None),
};

pub(crate) const GRAPH: Entry = Entry {
    name: "graph",
    form: "graph(KERNELS,polled)",
    about: "cuGraphLaunch of a chain of kernels of one thread and cuStreamSynchronize; polled: the last one's own word",
    bytes: 0,
    number: Some(Number { of: "kernels", default: 20, least: 1, most: 10_000 }),
    words: &[POLLED],
    one_word: false,
    values: &[],
    open: |machine, call, _| open(machine, call, Some(call.number)),
};

/// The word that is counted in, bytes.
const BYTES: usize = 4;

/// PTX 7.0 for sm_70: the driver compiles it for whatever GPU there is.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry count(.param .u64 count_cell)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [count_cell];
    cvta.to.global.u64 %rd2, %rd1;
    ld.volatile.global.u32 %r1, [%rd2];
    add.u32 %r2, %r1, 1;
    st.volatile.global.u32 [%rd2], %r2;
    ret;
}
.visible .entry count_and_tell(.param .u64 tell_cell, .param .u64 tell_word)
{
    .reg .b32 %r<3>;
    .reg .b64 %rd<5>;
    ld.param.u64 %rd1, [tell_cell];
    ld.param.u64 %rd3, [tell_word];
    cvta.to.global.u64 %rd2, %rd1;
    cvta.to.global.u64 %rd4, %rd3;
    ld.volatile.global.u32 %r1, [%rd2];
    add.u32 %r2, %r1, 1;
    st.volatile.global.u32 [%rd2], %r2;
    membar.sys;
    st.volatile.global.u32 [%rd4], %r2;
    ret;
}
";

fn open<'m>(machine: &'m Machine, call: &Call, graph: Option<u32>) -> Open<'m> {
    let mut launches = Launches::new(machine, graph.unwrap_or(1), call.has(POLLED))?;
    if graph.is_some() {
        launches.exec = Some(launches.graph()?.instantiate()?);
    }
    Ok(Box::new(launches))
}

/// A chain of kernels that count in one word, and all that it takes to launch them.
pub(crate) struct Launches<'m> {
    // Before the code and the memory that it names.
    exec: Option<GraphExec<'m>>,
    stream: Stream<'m>,
    module: Module<'m>,
    /// Of the word that is counted in, where the CPU can read it by itself. Before the memory.
    view: Option<View>,
    cell: DeviceBuffer<'m>,
    told: PinnedBuffer<'m>,
    context: &'m Context,
    polled: bool,
    /// Of one launch.
    kernels: u32,
    /// What the word is when all that was launched is done.
    count: u32,
}

/// A kernel and what it is launched with.
struct Kernel<'r> {
    function: Function<'r>,
    arguments: [Argument; 2],
    taken: usize,
}

impl Kernel<'_> {
    #[inline]
    fn launch(&self, stream: &Stream<'_>) -> cuda::Result<()> {
        // SAFETY: the arguments are the kernel's; the memories live as long as the stream, which is waited for before they go.
        unsafe { self.function.launch([1; 3], [1; 3], 0, stream, &self.arguments[..self.taken]) }
    }
}

impl<'m> Launches<'m> {
    /// `polled`: the last of the chain tells the CPU.
    pub(crate) fn new(machine: &'m Machine, kernels: u32, polled: bool) -> Result<Launches<'m>, Error> {
        let context = machine.context()?;
        let cell = DeviceBuffer::new(context, BYTES)?;
        let mut launches = Launches {
            exec: None,
            stream: Stream::new(context)?,
            module: Module::from_ptx(context, PTX)?,
            view: View::of(machine, cell.address(), BYTES as u64).ok(),
            cell,
            told: PinnedBuffer::new(context, BYTES)?,
            context,
            polled,
            kernels,
            count: 0,
        };
        launches.start(0)?;
        Ok(launches)
    }

    fn kernel(&self, tells: bool) -> Result<Kernel<'_>, Error> {
        let function = self.module.function(if tells { "count_and_tell" } else { "count" })?;
        let arguments = [Argument::U64(self.cell.address()), Argument::U64(self.told.device_address()?)];
        Ok(Kernel { function, arguments, taken: if tells { 2 } else { 1 } })
    }

    /// The chain, as a graph.
    pub(crate) fn graph(&self) -> Result<Graph<'m>, Error> {
        let (counts, last) = (self.kernel(false)?, self.kernel(self.polled)?);
        Ok(Graph::capture(&self.stream, || {
            (1..self.kernels).try_for_each(|_| counts.launch(&self.stream))?;
            last.launch(&self.stream)
        })?)
    }

    pub(crate) fn kernels(&self) -> u32 {
        self.kernels
    }

    /// Launches a graph of the chain once, and compares the count.
    pub(crate) fn count_one(&mut self, exec: &GraphExec<'_>) -> Result<Option<Wrong>, Error> {
        // SAFETY: its kernels name memory of self, and the stream is waited for in the next line.
        unsafe { exec.launch(&self.stream) }?;
        self.stream.synchronize()?;
        self.count = self.count.wrapping_add(self.kernels);
        self.compare(self.count)
    }

    fn compare(&self, count: u32) -> Result<Option<Wrong>, Error> {
        let mut found = [0; BYTES];
        match &self.view {
            Some(view) => view.read(0, &mut found)?,
            None => self.cell.read(&mut found)?,
        }
        Ok(Difference::between(&count.to_le_bytes(), &found, None).map(Wrong::Data))
    }

    fn start(&mut self, count: u32) -> Result<(), Error> {
        self.count = count;
        self.cell.write(&count.to_le_bytes())?;
        // What was written from pageable memory has arrived then.
        Ok(self.context.synchronize_default_stream()?)
    }

    fn subject(&mut self, seed: u64) -> Result<Counted<'_>, Error> {
        let start = seed as u32;
        self.start(start)?;
        let kernel = self.kernel(self.polled)?;
        // SAFETY: an aligned word of pinned memory that lives as long as self; it is touched by atomic accesses alone.
        let told = unsafe { AtomicU32::from_ptr(self.told.as_ptr().cast()) };
        told.store(start, Ordering::Release);
        let end = if self.polled { End::Told(told) } else { End::Asked };
        Ok(Counted { exec: self.exec.as_ref(), kernel, stream: &self.stream, of: self, end, count: start })
    }
}

impl Opened for Launches<'_> {
    fn about(&self) -> String {
        match (&self.exec, self.kernels) {
            (None, _) => "a kernel of one thread, which counts".into(),
            (Some(_), kernels) => format!("a graph of {kernels} kernels of one thread, each of which counts"),
        }
    }

    fn verify(&mut self, seed: u64, timeout: Duration) -> Result<Option<Wrong>, Error> {
        let mut subject = self.subject(seed)?;
        subject.fire()?;
        subject.wait(timeout)?;
        subject.check()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

/// How the end is known.
#[derive(Clone, Copy)]
enum End<'r> {
    /// CUDA is asked.
    Asked,
    /// The last kernel's word in host memory.
    Told(&'r AtomicU32),
}

struct Counted<'r> {
    exec: Option<&'r GraphExec<'r>>,
    kernel: Kernel<'r>,
    stream: &'r Stream<'r>,
    of: &'r Launches<'r>,
    end: End<'r>,
    /// What the word is when all that was launched is done.
    count: u32,
}

impl Subject for Counted<'_> {
    fn waiting(&self) -> Waiting {
        match self.end {
            End::Asked => Waiting::Called,
            End::Told(_) => Waiting::Polled,
        }
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        match self.exec {
            // SAFETY: its kernels name memory that this borrows, and the stream is waited for when this goes.
            Some(exec) => unsafe { exec.launch(self.stream) }?,
            None => self.kernel.launch(self.stream)?,
        }
        self.count = self.count.wrapping_add(self.of.kernels);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        match self.end {
            End::Asked => Ok(self.stream.is_done()?),
            // ORDERING: what the kernel wrote before is visible with it.
            End::Told(word) => Ok(word.load(Ordering::Acquire) == self.count),
        }
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        let End::Told(word) = self.end else { return Ok(self.stream.synchronize()?) };
        spin(timeout, || word.load(Ordering::Acquire) == self.count)
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        self.of.compare(self.count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// Looks until it is done; the clock is read now and then.
#[inline]
pub(crate) fn spin(timeout: Duration, mut is_done: impl FnMut() -> bool) -> Result<(), Error> {
    const LOOKS: u32 = 256;
    for _ in 0..LOOKS {
        if is_done() {
            return Ok(());
        }
    }
    let start = Instant::now();
    loop {
        for _ in 0..LOOKS {
            if is_done() {
                return Ok(());
            }
            std::hint::spin_loop();
        }
        let after = start.elapsed();
        if after > timeout {
            return Err(Error::Late { bytes: BYTES as u64, after });
        }
    }
}
