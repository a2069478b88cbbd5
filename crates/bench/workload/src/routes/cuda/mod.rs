//! libcuda's own copies, with which every other route is compared.
//!
//! As fast as CUDA allows. `cuda`: one call submits (`cuMemcpyHtoDAsync`, `cuMemcpyDtoHAsync`) on a stream that waits for no
//! other, and one call waits (`cuStreamSynchronize`, which has no time limit). `sync` is a single call that does both
//! (`cuMemcpyHtoD`, `cuMemcpyDtoH`). `graph` is CUDA's own prepared form: a graph of one copy, instantiated once, launched
//! (`cuGraphLaunch`) and waited for on its stream. `batch` is `cuMemcpyBatchAsync` with one copy (since CUDA 12.8), or with a
//! number of scattered pieces (`batch,pieces=256`), the same as those of doorbell's `batch`.
//!
//! `polled`: a word in pinned memory is written after the copy, and the CPU polls it; no CUDA call waits. For `cuda` and `batch`
//! a second call writes it (`cuStreamWriteValue32`, with its fence). In a graph it is a second node: `polled` a copy of one word
//! from the GPU, `polled=write` the same stream write, captured.
//!
//! Done means what CUDA promises. For `sync` from pageable memory that is less than for the others: the source may be changed,
//! and all later CUDA work sees the bytes, but the last of them may still be on their way.

mod stream;

use self::stream::{End, How, InStream, Pieces};
use super::batch::{self, PIECES};
use super::call::Call;
use crate::ends::{Direction, Ends, between_gpus, both_ways, seat};
use crate::error::Error;
use crate::executor::{self, Transfer};
use crate::machine::Machine;
use crate::routes::entry::{Entry, Found};
use crate::spec::{Executor, Memory, Spec, Word};
use cuda::{Context, DeviceBuffer, DeviceSlice, Graph, GraphExec, PinnedBuffer, Stream};
use machine::Unavailable;

const SYNC: &str = "sync";
const GRAPH: &str = "graph";
const BATCH: &str = "batch";
const POLLED: &str = "polled";
const POLLED_WRITE: &str = "polled=write";

pub(crate) const ENTRY: Entry = Entry {
    word: Word { name: "cuda", numbered: false, options: &[SYNC, GRAPH, BATCH, PIECES, POLLED, POLLED_WRITE] },
    about,
    list,
    check,
    open,
};

fn about(_: &Machine, spec: &Spec) -> String {
    let executor = &spec.executor;
    let form = match Form::of(executor) {
        Form::Async => "libcuda's own copies on a stream",
        Form::Sync => "libcuda's own copies, by the one call that also waits",
        Form::Graph => "a graph of one copy, libcuda's own prepared form",
        Form::Batch if executor.numbers(PIECES).is_some() => "libcuda's own copies, as one batch of scattered pieces",
        Form::Batch => "libcuda's own copies, as batches of one",
    };
    let end = match (Form::of(executor), Mark::of(executor)) {
        (Form::Sync, _) => "",
        (_, None) => "; cuStreamSynchronize waits",
        (_, Some(Mark::Copy)) => "; the CPU waits for a word that a second copy in the graph writes",
        (_, Some(Mark::Write)) => "; the CPU waits for a word that the stream writes behind it",
    };
    format!("{form}{end}")
}

fn list(machine: &Machine) -> Vec<String> {
    let mut names = Vec::new();
    for host in ["host", "host[pageable]", "host[registered]"] {
        let forms = ["cuda", "cuda[sync]"];
        let of_pinned = ["cuda[polled]", "cuda[graph]", "cuda[graph,polled]", "cuda[batch]", "cuda[batch,polled]"];
        for cuda in forms.iter().chain(of_pinned.iter().filter(|_| host == "host")) {
            names.extend(both_ways(machine, host, cuda));
        }
    }
    names.extend(between_gpus(machine, "cuda"));
    names.extend(both_ways(machine, "host", "cuda[batch,pieces=256]"));
    for host in ["host[wc]", "host[huge]", "host[node=0]"] {
        names.extend(both_ways(machine, host, "cuda"));
    }
    names
}

/// The CUDA call for a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Async,
    Sync,
    Graph,
    Batch,
}

impl Form {
    fn of(executor: &Executor) -> Form {
        match [SYNC, GRAPH, BATCH].map(|option| executor.has(option)) {
            [true, _, _] => Form::Sync,
            [_, true, _] => Form::Graph,
            [_, _, true] => Form::Batch,
            _ => Form::Async,
        }
    }
}

/// Writes the polled word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mark {
    /// A copy of one word from the GPU, as a graph node.
    Copy,
    /// A write by the stream.
    Write,
}

impl Mark {
    fn of(executor: &Executor) -> Option<Mark> {
        match (executor.has(POLLED), executor.has(POLLED_WRITE), executor.has(GRAPH)) {
            (true, _, true) => Some(Mark::Copy),
            (true, _, false) | (_, true, _) => Some(Mark::Write),
            _ => None,
        }
    }
}

pub(crate) fn check(machine: &Machine, spec: &Spec) -> Result<(), Unavailable> {
    let executor = &spec.executor;
    if [SYNC, GRAPH, BATCH].iter().filter(|option| executor.has(option)).count() > 1 {
        return Err(Unavailable::new("sync, graph and batch are three ways to tell CUDA: choose one"));
    }
    if executor.has(SYNC) && Mark::of(executor).is_some() {
        return Err(Unavailable::new("sync has waited when it returns: there is nothing to poll"));
    }
    if executor.has(POLLED_WRITE) && !executor.has(GRAPH) {
        return Err(Unavailable::new("the stream writes the word in any case: polled=write is for graph"));
    }
    if executor.has(POLLED) && executor.has(POLLED_WRITE) {
        return Err(Unavailable::new("there is one word behind the copy: choose polled or polled=write"));
    }
    if executor.numbers(PIECES).is_some() && !executor.has(BATCH) {
        return Err(Unavailable::new("pieces are those of a batch: write them beside batch"));
    }
    batch::count(executor)?;
    if let (Memory::Gpu(_), Memory::Gpu(to)) = (spec.source.memory, spec.destination.memory) {
        if *executor != (Executor { options: Vec::new(), numbers: Vec::new(), ..executor.clone() }) {
            return Err(Unavailable::new("from GPU to GPU CUDA's copies have one form: cuda"));
        }
        machine.gpu(to)?.context()?;
        return seat(machine, spec)?.context().map(drop);
    }
    Direction::of(machine, spec)?;
    machine.context().map(|_| ())
}

fn open<'m>(machine: &'m Machine, spec: &Spec) -> Found<'m> {
    let context = machine.context()?;
    let (form, mark) = (Form::of(&spec.executor), Mark::of(&spec.executor));
    let stream = Stream::new(context)?;
    if form == Form::Batch {
        stream.can_copy_batches()?;
    }
    if mark == Some(Mark::Write) {
        stream.can_write_words()?;
    }
    let word = mark.map(|mark| Polled::new(context, mark)).transpose()?;
    if let (Some(word), Form::Async | Form::Batch) = (&word, form) {
        // Some drivers have the function and refuse to run it.
        word.put(&stream)?;
        stream.synchronize()?;
    }
    let pieces = spec.executor.numbers(PIECES).map(|_| batch::count(&spec.executor)).transpose()?;
    Ok(Box::new(Copies { stream, word, context, form, pieces }))
}

/// The word that is written after a copy.
struct Polled<'m> {
    mark: Mark,
    /// In host memory, on a separate line.
    word: PinnedBuffer<'m>,
    /// The source of a graph's copy to the word.
    from: DeviceBuffer<'m>,
}

/// The value that a graph writes. The CPU clears the word first.
const THERE: u32 = 1;

impl<'m> Polled<'m> {
    fn new(context: &'m Context, mark: Mark) -> Result<Polled<'m>, Error> {
        let word = PinnedBuffer::new(context, 64)?;
        let from = DeviceBuffer::new(context, 4)?;
        from.write(&THERE.to_le_bytes())?;
        // From pageable memory the call may return before the bytes have arrived.
        context.synchronize_default_stream()?;
        Ok(Polled { mark, word, from })
    }

    /// Puts the write into the stream, or into the graph while it is captured from the stream.
    fn put(&self, stream: &Stream<'_>) -> cuda::Result<()> {
        match self.mark {
            Mark::Copy => {
                // SAFETY: the buffer has that many bytes, and lives until the stream has been waited for.
                let word = unsafe { std::slice::from_raw_parts_mut(self.word.as_ptr(), 4) };
                // SAFETY: as above; the CPU reads the word only by atomic loads.
                unsafe { stream.download(word, self.from.slice(0, 4)?) }
            }
            // SAFETY: as above.
            Mark::Write => unsafe { stream.write_word(self.word.device_address()?, THERE) },
        }
    }
}

struct Copies<'m> {
    // Before the word that its work may name.
    stream: Stream<'m>,
    word: Option<Polled<'m>>,
    context: &'m Context,
    form: Form,
    /// Number of pieces in a batch, if not one copy.
    pieces: Option<u32>,
}

impl<'m> Copies<'m> {
    /// The copy, and after it the write of the word.
    fn graph(&self, side: Side<'_>) -> Result<GraphExec<'m>, Error> {
        let graph = Graph::capture(&self.stream, || {
            // SAFETY: the route keeps the memories until its stream has been waited for.
            unsafe { side.enqueue(&self.stream) }?;
            self.word.as_ref().map_or(Ok(()), |word| word.put(&self.stream))
        })?;
        Ok(graph.instantiate()?)
    }
}

impl executor::Executor for Copies<'_> {
    fn prepare<'r>(&'r mut self, ends: Ends<'r>, bytes: u64) -> Result<Box<dyn Transfer + 'r>, Error> {
        ends.check(bytes)?;
        if ends.source.gpu().is_some() && ends.destination.gpu().is_some() {
            return Ok(Box::new(peer(&self.stream, ends, bytes)?));
        }
        let side = side(ends, bytes)?;
        let how = match self.form {
            Form::Sync => {
                let context = self.context;
                let call = move |Side { host, device, direction }: &mut Side<'_>| match direction {
                    // SAFETY: the host buffer has the slice's length, and the call no longer uses it when it returns.
                    Direction::ToGpu => Ok(unsafe { device.upload_now(context, *host) }?),
                    // SAFETY: as above.
                    Direction::FromGpu => Ok(unsafe { device.download_now(context, *host) }?),
                };
                return Ok(Box::new(Call::new(ends, bytes, move |ends, at| side_at(*ends, bytes, at), call)?));
            }
            Form::Async => How::Copy,
            Form::Batch => How::Batch(match self.pieces {
                None => Pieces::new(side, &[(0, bytes)]),
                Some(count) => Pieces::new(side, &batch::pieces(bytes, count)?),
            }),
            Form::Graph => How::Graph(self.graph(side)?),
        };
        let end = match &self.word {
            None => End::Asked,
            Some(polled) => End::told(&polled.word)?,
        };
        Ok(Box::new(InStream::new(&self.stream, side, ends, how, end)))
    }
}

/// From GPU to GPU: `cuMemcpyPeerAsync` between two, `cuMemcpyDtoDAsync` within one.
fn peer<'r>(stream: &'r Stream<'r>, ends: Ends<'r>, bytes: u64) -> Result<impl Transfer + 'r, Error> {
    let slices = move |ends: &Ends<'r>, [source, destination]: [u64; 2]| {
        let missing = || Unavailable::new(NOT_CUDAS);
        let to = ends.destination.device_slice(destination, bytes)?.ok_or_else(missing)?;
        Ok([to, ends.source.device_slice(source, bytes)?.ok_or_else(missing)?])
    };
    let call = move |[to, from]: &mut [DeviceSlice<'r>; 2]| {
        if ends.destination.gpu() == ends.source.gpu() {
            return Ok(stream.copy(*to, *from)?);
        }
        let (at, of) = (ends.destination.machine().context()?, ends.source.machine().context()?);
        Ok(stream.copy_peer((*to, at), (*from, of))?)
    };
    Ok(Call::new(ends, bytes, slices, call)?.within(stream))
}

const NOT_CUDAS: &str = "CUDA copies between its own memories";

/// The two memories of a transfer, equally long.
#[derive(Clone, Copy)]
pub(crate) struct Side<'r> {
    pub(crate) host: *mut u8,
    pub(crate) device: DeviceSlice<'r>,
    pub(crate) direction: Direction,
}

pub(crate) fn side(ends: Ends<'_>, bytes: u64) -> Result<Side<'_>, Error> {
    side_at(ends, bytes, [0, 0])
}

/// As [`side`], with other places of source and destination.
pub(crate) fn side_at<'r>(ends: Ends<'r>, bytes: u64, [source, destination]: [u64; 2]) -> Result<Side<'r>, Error> {
    ends.hold([source, destination], bytes)?;
    let direction = ends.direction()?;
    let (host, device) = direction.sides([ends.source, ends.destination]);
    let (host_at, device_at) = direction.sides([source, destination]);
    let missing = || Unavailable::new(NOT_CUDAS);
    let host = host.host_pointer().ok_or_else(missing)?;
    let device = device.device_slice(device_at, bytes)?.ok_or_else(missing)?;
    Ok(Side { host: host.wrapping_add(host_at as usize), device, direction })
}

impl Side<'_> {
    /// # Safety
    /// The memory stays allocated, and the host memory unused, until the stream has been synchronised.
    #[inline]
    pub(crate) unsafe fn enqueue(&self, stream: &Stream<'_>) -> cuda::Result<()> {
        let len = self.device.len();
        match self.direction {
            // SAFETY: the host buffer has the slice's length; the caller keeps it.
            Direction::ToGpu => unsafe { stream.upload(self.device, std::slice::from_raw_parts(self.host, len)) },
            Direction::FromGpu => {
                // SAFETY: as above.
                unsafe { stream.download(std::slice::from_raw_parts_mut(self.host, len), self.device) }
            }
        }
    }
}
