//! A frame: bytes are copied from pinned host memory to the GPU, a kernel copies them there, and they are copied back to pinned memory. With
//! several kernels in a row, the frame demands of the CPU what the inference of a model does.
//!
//! With CUDA it is one graph with two memcpy nodes, CUDA's form with the fewest calls and waits; or three calls in a stream. With doorbell (`ours`)
//! it is a chain of crate `launch`, with one doorbell. `beside`: the copies are on a copy engine's own channel, with two doorbells. `by-kernels`:
//! kernels copy between pinned memory and the GPU, so that a graph has kernels alone, whoever launches it. `nodes`: CUDA's graph itself, including
//! memcpy nodes, launched by doorbell.

use crate::Difference;
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open};
use crate::launch::{PRIORITY, learnt, refused, stream};
use crate::routes::polling;
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong};
use cuda::{Argument, Context, DeviceBuffer, Graph, GraphExec, Module, PinnedBuffer, Stream};
use gpu::{Channel, ChannelOptions, Engine, Pin, Ticket};
use launch::{Chain, ChainBeside, ChainOptions, INLINE_MOST, Step, Stored, Transfer, Way};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const OURS: &str = "ours";
const STREAM: &str = "stream";
const POLLED: &str = "polled";
const BESIDE: &str = "beside";
const BY_KERNELS: &str = "by-kernels";
const NODES: &str = "nodes";
const STORES: &str = "stores";
/// If polled, the last copy also brings back a number: this many bytes, after the data.
const NUMBER: usize = 4;
/// Threads of a block: few, so that many multiprocessors load from host memory.
const THREADS: u32 = 64;
/// Time limit for the work in flight.
const OVER: Duration = Duration::from_secs(5);

pub(crate) const CHAIN: Entry = Entry {
    name: "chain",
    form: "chain(KERNELS,ours,stream,polled,beside,by-kernels,nodes,stores,priority=high|low)",
    about: "bytes to the GPU, a kernel (or this many) that copies them there, bytes back: one cuGraphLaunch of a graph with two memcpy nodes and cuStreamSynchronize; \
            polled: another memcpy node brings back a number, which is polled; stream: three calls; ours: a chain of doorbell's own with one doorbell \
            (beside: copies on a separate channel, two doorbells); by-kernels: one kernel copies there, one back, and the graph \
            has no memcpy nodes, launched by CUDA or by doorbell; nodes: CUDA's graph with its memcpy nodes, launched by doorbell; stores: the CPU stores the \
            bytes into the GPU's memory before the launch; priority: that of CUDA's stream",
    bytes: 4096,
    number: Some(Number { of: "kernels", default: 1, least: 1, most: 1000 }),
    words: &[OURS, STREAM, POLLED, BESIDE, BY_KERNELS, NODES, STORES],
    values: &[PRIORITY],
    open,
    ..PLAIN
};

/// PTX 7.0 for sm_70: each thread copies 16 bytes, or 4 if the bytes are no multiple of 16. Loads go through the multiprocessor's cache, so a
/// missing invalidation is found.
const PTX: &str = r"
.version 7.0
.target sm_70
.address_size 64
.visible .entry copy(.param .u64 copy_to, .param .u64 copy_from, .param .u32 copy_bytes)
{
    .reg .pred %p;
    .reg .b32 %r<8>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [copy_to];
    ld.param.u64 %rd2, [copy_from];
    ld.param.u32 %r1, [copy_bytes];
    cvta.to.global.u64 %rd3, %rd1;
    cvta.to.global.u64 %rd4, %rd2;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r5, %r2, %r3, %r4;
    and.b32 %r6, %r1, 15;
    setp.ne.u32 %p, %r6, 0;
    @%p bra WORDS;
    shl.b32 %r6, %r5, 4;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra DONE;
    cvt.u64.u32 %rd5, %r6;
    add.u64 %rd6, %rd3, %rd5;
    add.u64 %rd7, %rd4, %rd5;
    ld.global.v4.u32 {%r2, %r3, %r4, %r7}, [%rd7];
    st.global.v4.u32 [%rd6], {%r2, %r3, %r4, %r7};
    bra DONE;
WORDS:
    shl.b32 %r6, %r5, 2;
    setp.ge.u32 %p, %r6, %r1;
    @%p bra DONE;
    cvt.u64.u32 %rd5, %r6;
    add.u64 %rd6, %rd3, %rd5;
    add.u64 %rd7, %rd4, %rd5;
    ld.global.u32 %r7, [%rd7];
    st.global.u32 [%rd6], %r7;
DONE:
    ret;
}
";

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    if wanted.random_addresses || wanted.sweep.is_some() {
        return Err(Unavailable::new("a chain has one place for its bytes").into());
    }
    let ours = call.has(OURS);
    let is_of_us = call.has(BESIDE) || call.has(STORES);
    if !ours && (is_of_us || call.has(NODES)) || ours && (call.has(STREAM) || call.has(POLLED)) {
        let why = "`stream` and `polled` are for CUDA; beside, nodes and stores are for `ours`";
        return Err(Unavailable::new(why).into());
    }
    if call.has(NODES) && (is_of_us || call.has(BY_KERNELS)) {
        return Err(Unavailable::new("nodes: the graph determines how its copies are made").into());
    }
    if call.has(BY_KERNELS) && (call.has(POLLED) || is_of_us) {
        return Err(
            Unavailable::new("by-kernels: there is no copy for which another way or polling could be chosen").into()
        );
    }
    if ours && call.given(PRIORITY.key()).is_some() {
        return Err(Unavailable::new("a doorbell channel has no stream priority").into());
    }
    let mut frames = Frames::new(machine, wanted, call)?;
    if call.has(STREAM) {
        return Ok(Box::new(frames));
    }
    frames.by = if ours {
        by_doorbell(machine, &frames.parts, call)?
    } else {
        By::Graph(Graph::capture(&frames.parts.stream, || frames.parts.submit())?.instantiate()?)
    };
    Ok(Box::new(frames))
}

struct Frames<'m> {
    // Before the memory that it names.
    by: By<'m>,
    parts: Parts<'m>,
    fresh_data: bool,
}

enum By<'m> {
    Calls,
    Graph(GraphExec<'m>),
    /// CUDA's own graph, launched by doorbell.
    Learnt(Box<Ours<launch::Graph>>),
    Chain(Box<Ours<Chain>>),
    /// A chain with its copies on a separate channel; the CPU may store the bytes for the GPU.
    Beside(Box<Ours<(ChainBeside, Channel)>>),
}

/// Memory, and what works on it.
struct Parts<'m> {
    stream: Stream<'m>,
    module: Module<'m>,
    first: DeviceBuffer<'m>,
    second: DeviceBuffer<'m>,
    up: PinnedBuffer<'m>,
    down: PinnedBuffer<'m>,
    told: PinnedBuffer<'m>,
    bytes: usize,
    polled: bool,
    /// Kernels also copy to the GPU and back.
    by_kernels: bool,
    /// In a row; each does the same.
    kernels: u32,
}

impl<'m> Frames<'m> {
    fn new(machine: &'m Machine, wanted: &Wanted, call: &Call) -> Result<Frames<'m>, Error> {
        let context: &Context = machine.context()?;
        let bytes = wanted.bytes.next_multiple_of(4);
        let bytes = u32::try_from(bytes).map_err(|_| Error::Memory { bytes })? as usize;
        let parts = Parts {
            stream: stream(context, call)?,
            module: Module::from_ptx(context, PTX)?,
            first: DeviceBuffer::new(context, bytes + NUMBER)?,
            second: DeviceBuffer::new(context, bytes + NUMBER)?,
            up: PinnedBuffer::new(context, bytes + NUMBER)?,
            down: PinnedBuffer::new(context, bytes)?,
            told: PinnedBuffer::new(context, NUMBER)?,
            bytes,
            polled: call.has(POLLED),
            by_kernels: call.has(BY_KERNELS),
            kernels: call.number,
        };
        // This loads the module now, because none may be loaded while a graph is learnt.
        parts.submit()?;
        parts.stream.synchronize()?;
        Ok(Frames { by: By::Calls, parts, fresh_data: wanted.fresh_data })
    }
}

impl Parts<'_> {
    /// Bytes that go to the GPU.
    fn sent(&self) -> usize {
        self.bytes + if self.polled { NUMBER } else { 0 }
    }

    fn launch(&self) -> cuda::Result<()> {
        (0..self.kernels).try_for_each(|_| self.copy_by_kernel(self.second.address(), self.first.address()))
    }

    fn copy_by_kernel(&self, to: u64, from: u64) -> cuda::Result<()> {
        let sent = self.sent() as u32;
        let arguments = [Argument::U64(to), Argument::U64(from), Argument::U32(sent)];
        let threads = sent / if sent.is_multiple_of(16) { 16 } else { 4 };
        let (blocks, kernel) = (threads.div_ceil(THREADS), self.module.function("copy")?);
        // SAFETY: the arguments are the kernel's, and each address has this many bytes. The memories live as long as the stream, which is waited
        // for before they are freed.
        unsafe { kernel.launch([blocks, 1, 1], [THREADS, 1, 1], 0, &self.stream, &arguments) }
    }

    /// All of it, into the stream.
    #[inline]
    fn submit(&self) -> cuda::Result<()> {
        if self.by_kernels {
            self.copy_by_kernel(self.first.address(), self.up.device_address()?)?;
            self.launch()?;
            return self.copy_by_kernel(self.down.device_address()?, self.second.address());
        }
        let sent = self.sent();
        // SAFETY: pinned memory of this many bytes. CUDA writes and reads it during the stream's work, and the CPU accesses it after that work;
        // only the polled word is read during the work, atomically.
        let (up, down, told) = unsafe {
            (
                std::slice::from_raw_parts(self.up.as_ptr(), sent),
                std::slice::from_raw_parts_mut(self.down.as_ptr(), self.bytes),
                std::slice::from_raw_parts_mut(self.told.as_ptr(), NUMBER),
            )
        };
        // SAFETY: as above.
        unsafe { self.stream.upload(self.first.slice(0, sent)?, up) }?;
        self.launch()?;
        // SAFETY: as above.
        unsafe { self.stream.download(down, self.second.slice(0, self.bytes)?) }?;
        if self.polled {
            // SAFETY: as above.
            unsafe { self.stream.download(told, self.second.slice(self.bytes, NUMBER)?) }?;
        }
        Ok(())
    }

    /// The last number that was returned.
    fn told(&self) -> &AtomicU32 {
        // SAFETY: an aligned word of pinned memory that lives as long as self; the CPU accesses it only atomically.
        unsafe { AtomicU32::from_ptr(self.told.as_ptr().cast()) }
    }

    /// The graph of what this submits.
    fn learn(
        &self,
        machine: &Machine,
        submit: impl FnOnce() -> cuda::Result<()>,
    ) -> Result<(launch::Graph, Channel), Error> {
        let graph = Graph::capture(&self.stream, submit)?;
        learnt(machine, &graph, &self.stream)
    }

    /// Pins of the first, second, up and down memory, for doorbell's channels.
    fn pins(&self, machine: &Machine) -> Result<[Arc<Pin>; 4], Error> {
        let space = machine.group_space()?;
        let pin = |address| Ok::<_, Error>(Arc::new(space.pin(address, self.bytes as u64)?));
        let [up, down] = [self.up.device_address()?, self.down.device_address()?];
        Ok([pin(self.first.address())?, pin(self.second.address())?, pin(up)?, pin(down)?])
    }
}

/// What doorbell launches.
struct Ours<P> {
    // Declared before the channel, which waits for its submissions. A chain has the channel of its copies here, after itself.
    program: P,
    channel: Channel,
    last: Option<Ticket>,
    _pins: [Arc<Pin>; 4],
}

fn by_doorbell<'m>(machine: &Machine, parts: &Parts<'_>, call: &Call) -> Result<By<'m>, Error> {
    let last = None;
    if call.has(BY_KERNELS) || call.has(NODES) {
        let (program, channel) = parts.learn(machine, || parts.submit())?;
        return Ok(By::Learnt(Box::new(Ours { program, channel, last, _pins: parts.pins(machine)? })));
    }
    // The graph of the kernels between the copies.
    let (graph, mut channel) = parts.learn(machine, || parts.launch())?;
    let pins = parts.pins(machine)?;
    let steps = steps(parts, &pins, &graph, call);
    if !call.has(BESIDE) && !call.has(STORES) {
        // SAFETY: `Frames` owns module and memory and drops this first; CUDA's pinned memory has the same address for the CPU and the GPU.
        let program = unsafe { Chain::prepare(&mut channel, &steps, ChainOptions::default()) }.map_err(refused)?;
        return Ok(By::Chain(Box::new(Ours { program, channel, last, _pins: pins })));
    }
    let none = || Unavailable::new("this GPU has no copy engine of its own");
    let engine = Engine::Copy(machine.asynchronous_engines().first().ok_or_else(none)?.number);
    let mut copies = Channel::new(machine.group_space()?, engine, ChannelOptions::default())?;
    let options = ChainOptions { stored: vec![Stored::Pin(pins[0].clone())], ..ChainOptions::default() };
    // SAFETY: as above.
    let chain = unsafe { ChainBeside::prepare(&mut channel, &mut copies, &steps, options) }.map_err(refused)?;
    Ok(By::Beside(Box::new(Ours { program: (chain, copies), channel, last, _pins: pins })))
}

/// The steps of a chain: bytes to the GPU, the kernel, bytes back.
fn steps<'g>(parts: &Parts<'_>, pins: &[Arc<Pin>; 4], graph: &'g launch::Graph, call: &Call) -> [Step<'g>; 3] {
    let [first, second, up, down] = pins.each_ref().map(|pin| pin.region().clone());
    let bytes = parts.bytes as u64;
    let by = Some(match () {
        () if call.has(STORES) => Way::Stores,
        () if bytes <= INLINE_MOST => Way::Inline,
        () => Way::CopyEngine,
    });
    [
        Step::Copy(Transfer { to: first, from: up, bytes, by }),
        Step::Launch(graph),
        Step::Copy(Transfer { to: down, from: second, bytes, by: None }),
    ]
}

impl Opened for Frames<'_> {
    fn about(&self) -> String {
        let bytes = self.parts.bytes;
        let kernels = match self.parts.kernels {
            1 => "a kernel that copies them".to_owned(),
            kernels => format!("{kernels} kernels that copy them"),
        };
        let what = format!("{bytes} bytes to the GPU, {kernels}, {bytes} bytes back");
        match &self.by {
            By::Calls => format!("{what}, by three calls in a stream"),
            By::Graph(_) if self.parts.by_kernels => format!("{what}, as one CUDA graph whose kernels copy"),
            By::Graph(_) => format!("{what}, as one CUDA graph with memcpy nodes"),
            By::Learnt(_) if self.parts.by_kernels => format!("{what}, as one launch by doorbell whose kernels copy"),
            By::Learnt(_) => format!("{what}, as one CUDA graph with memcpy nodes, launched by doorbell"),
            By::Chain(ours) => {
                let inline = ours.program.ways().first() == Some(&Some(Way::Inline));
                let way = if inline { "inline" } else { "by the copy engine" };
                format!("{what}, as one chain of doorbell's; the bytes go there {way}")
            }
            By::Beside(ours) if ours.program.0.ways().first() == Some(&Some(Way::Stores)) => {
                format!(
                    "{what}: the CPU stores the bytes, doorbell launches, a copy engine's own channel brings them back"
                )
            }
            By::Beside(_) => format!("{what}, as one chain of doorbell's with its copies on a separate channel"),
        }
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let number = self.parts.told().load(Ordering::Acquire);
        Ok(Box::new(Framed { random: fastrand::Rng::with_seed(seed), number, renewed: false, frames: self }))
    }
}

struct Framed<'f, 'm> {
    frames: &'f mut Frames<'m>,
    random: fastrand::Rng,
    /// The number of the last one.
    number: u32,
    renewed: bool,
}

impl Framed<'_, '_> {
    #[inline]
    fn done(&mut self) -> Result<bool, Error> {
        let Frames { by, parts, .. } = &mut *self.frames;
        Ok(match by {
            By::Learnt(ours) => ours.last.is_none_or(|ticket| ours.channel.done(ticket)),
            By::Chain(ours) => ours.last.is_none_or(|ticket| ours.channel.done(ticket)),
            By::Beside(ours) => ours.last.is_none_or(|ticket| ours.program.1.done(ticket)),
            // ORDERING: the number was copied after the bytes.
            _ if parts.polled => parts.told().load(Ordering::Acquire) == self.number,
            _ => parts.stream.is_done()?,
        })
    }
}

impl Subject for Framed<'_, '_> {
    fn waiting(&self) -> Waiting {
        match &self.frames.by {
            By::Calls | By::Graph(_) if !self.frames.parts.polled => Waiting::Called,
            _ => Waiting::Polled,
        }
    }

    fn renew(&mut self) -> Result<(), Error> {
        if self.frames.fresh_data || !self.renewed {
            let sent = self.frames.parts.bytes;
            self.random.fill(&mut self.frames.parts.up.bytes_mut()[..sent]);
            self.renewed = true;
        }
        Ok(())
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        let Frames { by, parts, .. } = &mut *self.frames;
        if parts.polled {
            self.number = self.number.wrapping_add(1);
            let bytes = parts.bytes;
            parts.up.bytes_mut()[bytes..].copy_from_slice(&self.number.to_le_bytes());
        }
        match by {
            By::Calls => parts.submit()?,
            // SAFETY: it names memory of the parts, and the stream is waited for before they are freed.
            By::Graph(exec) => unsafe { exec.launch(&parts.stream) }?,
            By::Learnt(ours) => ours.last = Some(ours.program.launch(&mut ours.channel)?),
            By::Chain(ours) => ours.last = Some(ours.program.launch(&mut ours.channel)?),
            By::Beside(ours) => {
                let (chain, copies) = &mut ours.program;
                ours.last = Some(chain.launch(&mut ours.channel, copies)?);
            }
        }
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        self.done()
    }

    #[inline]
    fn wait(&mut self, timeout: Duration) -> Result<(), Error> {
        match &self.frames.by {
            By::Learnt(ours) => Ok(ours.last.map_or(Ok(()), |ticket| ours.channel.wait(ticket, timeout))?),
            By::Chain(ours) => Ok(ours.last.map_or(Ok(()), |ticket| ours.channel.wait(ticket, timeout))?),
            By::Beside(ours) => Ok(ours.last.map_or(Ok(()), |ticket| ours.program.1.wait(ticket, timeout))?),
            _ if self.frames.parts.polled => {
                let (told, number) = (self.frames.parts.told(), self.number);
                polling::wait(timeout, self.frames.parts.bytes as u64, || told.load(Ordering::Acquire) == number)
            }
            _ => Ok(self.frames.parts.stream.synchronize()?),
        }
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        self.wait(OVER)?;
        let parts = &self.frames.parts;
        let sent = &parts.up.bytes()[..parts.bytes];
        Ok(Difference::between(sent, &parts.down.bytes()[..parts.bytes], None).map(Wrong::Data))
    }
}

impl Drop for Framed<'_, '_> {
    fn drop(&mut self) {
        let _ = self.wait(OVER);
    }
}

impl Drop for Frames<'_> {
    fn drop(&mut self) {
        // Before the memory that is read and written is freed.
        let _ = self.parts.stream.synchronize();
    }
}
