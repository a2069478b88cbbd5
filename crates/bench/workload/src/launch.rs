//! Launches: kernels of one thread (`launch`), and a graph of a chain of them (`graph`), by CUDA or from a separate channel (`ours`).
//!
//! Each kernel adds 1 to a word in GPU memory, so one comparison shows that every launch since the start ran exactly once. `polled`: the last
//! kernel also writes the new number to pinned memory, and the CPU polls it there. The wait makes no CUDA call.

mod ours;

use crate::entry::{Call, Entry, Number, PLAIN, Result as Open, Value};
use crate::library::{C, Caller, Launched, PYTHON};
use crate::routes::polling;
use crate::spec::{End, Memory};
use crate::{Buffer, Difference};
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Waiting, Wrong};
use cuda::{Argument, Context, Function, Graph, GraphExec, Module, PinnedBuffer, Priority, Stream};
use ours::Ours;
use ours::learning;
pub(crate) use ours::{learnt, refused};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const POLLED: &str = "polled";
const OURS: &str = "ours";
/// The priority of a call's stream, if the call uses CUDA's.
pub(crate) const PRIORITY: Value = Value::Choice("priority", &["high", "low"]);

/// A stream of the requested priority; without one it has CUDA's default, which is the lowest.
pub(crate) fn stream<'c>(context: &'c Context, call: &Call) -> cuda::Result<Stream<'c>> {
    match call.given(PRIORITY.key()) {
        None => Stream::new(context),
        Some("high") => Stream::with_priority(context, Priority::Highest),
        Some(_) => Stream::with_priority(context, Priority::Lowest),
    }
}

pub(crate) const LAUNCH: Entry = Entry {
    name: "launch",
    form: "launch(KERNELS,polled,priority=high|low)",
    about: "cuLaunchKernel of this many kernels of one thread and cuStreamSynchronize; polled: the last kernel's word in host memory is polled; \
            priority: the stream's",
    number: Some(Number { of: "kernels", default: 1, least: 1, most: 10_000 }),
    words: &[POLLED],
    values: &[PRIORITY],
    open: |machine, call, _| open(machine, call, By::Launches),
    ..PLAIN
};

pub(crate) const GRAPH: Entry = Entry {
    name: "graph",
    form: "graph(KERNELS,polled,ours,c,priority=high|low,python=doorbell|cuda)",
    about: "cuGraphLaunch of a chain of kernels of one thread and cuStreamSynchronize; ours: launched from a separate channel, without CUDA; \
            polled: the last kernel's word is polled; c: launched by doorbell_graph_launch of libdoorbell; python: launched and waited for from Python, by doorbell or by \
            CUDA; priority: the stream's",
    number: Some(Number { of: "kernels", default: 20, least: 1, most: 10_000 }),
    words: &[POLLED, OURS, C],
    values: &[PRIORITY, PYTHON],
    open: |machine, call, _| open(machine, call, by(call)?),
    ..PLAIN
};

/// Who launches the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum By {
    /// CUDA, kernel by kernel.
    Launches,
    /// CUDA, as a graph.
    Cuda,
    /// We, as a graph.
    Us,
    /// libdoorbell, or Python, as a graph.
    Program(Caller),
}

fn by(call: &Call) -> Result<By, Error> {
    let refused = |why: &str| Err(Unavailable::new(why).into());
    match (Caller::of(call)?, call.has(OURS)) {
        (Some(_), true) => refused("ours, c and python= each choose who launches: give one"),
        (Some(caller), false) => Ok(By::Program(caller)),
        (None, true) => Ok(By::Us),
        (None, false) => Ok(By::Cuda),
    }
}

/// The word that is counted in, bytes.
const BYTES: usize = 4;
/// Time limit for the end of a launch that has reported that it ran.
const OVER: Duration = Duration::from_secs(5);

/// The kernel that counts up the word that it is given.
pub(crate) const COUNT: &str = "count";
/// PTX 7.0 for sm_70: the driver compiles it for the installed GPU.
pub(crate) const PTX: &str = r"
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

fn open<'m>(machine: &'m Machine, call: &Call, by: By) -> Open<'m> {
    if matches!(by, By::Us | By::Program(Caller::C | Caller::Python)) && call.given(PRIORITY.key()).is_some() {
        return Err(Unavailable::new("a doorbell channel has no stream priority".to_owned()).into());
    }
    let stream = stream(machine.context()?, call)?;
    let mut launches = Launches::within(machine, stream, call.number, call.has(POLLED))?;
    match by {
        By::Launches => {}
        By::Cuda => launches.by = Held::Cuda(launches.graph()?.instantiate()?),
        By::Us => {
            let (graph, chain) = (launches.graph()?, &launches.chain);
            launches.by = Held::Us(Box::new(Ours::learn(machine, &graph, &chain.stream)?));
        }
        By::Program(caller) => {
            let (graph, chain) = (launches.graph()?, &launches.chain);
            let _alone = learning();
            let told = chain.polled.then(|| (chain.told.as_ptr(), chain.kernels));
            launches.by = Held::Program(Box::new(Launched::new(machine, caller, &graph, &chain.stream, told)?));
        }
    }
    Ok(Box::new(launches))
}

/// A chain of kernels that count up one word, and who launches it.
pub(crate) struct Launches<'m> {
    // Declared before the code and the memory that it names.
    by: Held<'m>,
    chain: Chain<'m>,
    /// The value of the word when all launches are complete.
    count: u32,
}

enum Held<'m> {
    Launches,
    Cuda(GraphExec<'m>),
    Us(Box<Ours>),
    Program(Box<Launched<'m>>),
}

/// Everything needed to launch the kernels.
struct Chain<'m> {
    stream: Stream<'m>,
    module: Module<'m>,
    /// The counted word, which the CPU reads directly if it can.
    cell: Buffer<'m>,
    told: PinnedBuffer<'m>,
    polled: bool,
    /// Of one launch.
    kernels: u32,
}

/// Kernels and their launch arguments.
struct Kernels<'r> {
    counts: Function<'r>,
    /// The last of the chain.
    last: Function<'r>,
    arguments: [Argument; 2],
    taken: usize,
    number: u32,
}

impl Kernels<'_> {
    #[inline]
    fn launch(&self, stream: &Stream<'_>) -> cuda::Result<()> {
        for _ in 1..self.number {
            // SAFETY: the arguments are the kernel's; the memories live as long as the stream, which is waited for before they are freed.
            unsafe { self.counts.launch([1; 3], [1; 3], 0, stream, &self.arguments[..1]) }?;
        }
        // SAFETY: as above.
        unsafe { self.last.launch([1; 3], [1; 3], 0, stream, &self.arguments[..self.taken]) }
    }
}

impl<'m> Chain<'m> {
    fn kernels(&self) -> Result<Kernels<'_>, Error> {
        let arguments = [Argument::U64(self.cell.va()), Argument::U64(self.told.device_address()?)];
        Ok(Kernels {
            counts: self.module.function("count")?,
            last: self.module.function(if self.polled { "count_and_tell" } else { "count" })?,
            arguments,
            taken: if self.polled { 2 } else { 1 },
            number: self.kernels,
        })
    }

    fn compare(&self, count: u32) -> Result<Option<Wrong>, Error> {
        let mut found = [0; BYTES];
        self.cell.read(0, &mut found)?;
        Ok(Difference::between(&count.to_le_bytes(), &found, None).map(Wrong::Data))
    }

    fn start(&self, count: u32) -> Result<(), Error> {
        self.cell.write(0, &count.to_le_bytes())
    }
}

impl<'m> Launches<'m> {
    /// `polled`: the last kernel of the chain notifies the CPU.
    pub(crate) fn new(machine: &'m Machine, kernels: u32, polled: bool) -> Result<Launches<'m>, Error> {
        Launches::within(machine, Stream::new(machine.context()?)?, kernels, polled)
    }

    fn within(machine: &'m Machine, stream: Stream<'m>, kernels: u32, polled: bool) -> Result<Launches<'m>, Error> {
        let context = machine.context()?;
        let end = End { memory: Memory::Gpu(machine.index()), offset: 0 };
        let mut cell = Buffer::new(machine, end, BYTES as u64)?;
        cell.read_directly();
        let chain = Chain {
            stream,
            module: Module::from_ptx(context, PTX)?,
            cell,
            told: PinnedBuffer::new(context, BYTES)?,
            polled,
            kernels,
        };
        chain.start(0)?;
        Ok(Launches { by: Held::Launches, chain, count: 0 })
    }

    /// The chain, as a graph.
    pub(crate) fn graph(&self) -> Result<Graph<'m>, Error> {
        let kernels = self.chain.kernels()?;
        Ok(Graph::capture(&self.chain.stream, || kernels.launch(&self.chain.stream))?)
    }

    /// Launches a graph of the chain once, and compares the count.
    pub(crate) fn count_one(&mut self, exec: &GraphExec<'_>) -> Result<Option<Wrong>, Error> {
        // SAFETY: its kernels name memory of self, and the stream is waited for in the next line.
        unsafe { exec.launch(&self.chain.stream) }?;
        self.chain.stream.synchronize()?;
        self.count = self.count.wrapping_add(self.chain.kernels);
        self.chain.compare(self.count)
    }
}

impl Opened for Launches<'_> {
    fn about(&self) -> String {
        let kernels = match self.chain.kernels {
            1 => "one kernel of one thread, which counts up a word".into(),
            kernels => format!("{kernels} kernels of one thread, each of which counts up a word"),
        };
        match &self.by {
            Held::Launches => kernels,
            Held::Cuda(_) => format!("a graph of {kernels}"),
            Held::Us(_) => format!("a graph of {kernels}, launched from a separate channel"),
            Held::Program(program) => format!("a graph of {kernels}; {}", program.about),
        }
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let start = seed as u32;
        let chain = &self.chain;
        chain.start(start)?;
        // SAFETY: an aligned word of pinned memory that lives as long as self; all accesses are atomic.
        let told = unsafe { AtomicU32::from_ptr(chain.told.as_ptr().cast()) };
        told.store(start, Ordering::Release);
        let (kernels, told) = (chain.kernels()?, chain.polled.then_some(told));
        Ok(Box::new(Counted { by: &mut self.by, kernels, chain, told, count: start }))
    }
}

struct Counted<'r, 'm> {
    by: &'r mut Held<'m>,
    kernels: Kernels<'r>,
    chain: &'r Chain<'m>,
    /// The last kernel's word in host memory, if it writes one.
    told: Option<&'r AtomicU32>,
    /// The value of the word when all launches are complete.
    count: u32,
}

impl Subject for Counted<'_, '_> {
    fn waiting(&self) -> Waiting {
        match (self.told, &self.by) {
            // Python looks itself.
            (_, Held::Program(program)) if program.is_python() => Waiting::Called,
            (None, Held::Launches | Held::Cuda(_) | Held::Program(_)) => Waiting::Called,
            _ => Waiting::Polled,
        }
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        match &mut self.by {
            Held::Launches => self.kernels.launch(&self.chain.stream)?,
            // SAFETY: its kernels name memory that this borrows, and the stream is waited for when this is dropped.
            Held::Cuda(exec) => unsafe { exec.launch(&self.chain.stream) }?,
            Held::Us(ours) => ours.launch()?,
            Held::Program(program) => program.launch()?,
        }
        self.count = self.count.wrapping_add(self.chain.kernels);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        match (self.told, &self.by) {
            // ORDERING: what the kernel wrote before the word is visible with it.
            (Some(word), _) => Ok(word.load(Ordering::Acquire) == self.count),
            (None, Held::Us(ours)) => Ok(ours.done()),
            (None, Held::Program(program)) => program.is_done(),
            (None, _) => Ok(self.chain.stream.is_done()?),
        }
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        match (self.told, &self.by) {
            (_, Held::Program(program)) if program.is_python() => program.wait(timeout),
            (Some(word), _) => polling::wait(timeout, BYTES as u64, || word.load(Ordering::Acquire) == self.count),
            (None, Held::Us(ours)) => ours.wait(timeout),
            (None, Held::Program(program)) => program.wait(timeout),
            (None, _) => Ok(self.chain.stream.synchronize()?),
        }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        // The last kernel's word may arrive before the launch is complete.
        match &self.by {
            Held::Us(ours) => ours.wait(OVER)?,
            Held::Program(program) => program.wait(OVER)?,
            Held::Launches | Held::Cuda(_) => {}
        }
        self.chain.compare(self.count)
    }
}

impl Drop for Counted<'_, '_> {
    fn drop(&mut self) {
        let _ = match &self.by {
            Held::Us(ours) => ours.wait(OVER),
            Held::Program(program) => program.wait(OVER),
            _ => self.chain.stream.synchronize().map_err(Error::from),
        };
    }
}
