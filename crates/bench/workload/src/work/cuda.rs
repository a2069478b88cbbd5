//! CUDA's part: kernels, fills, copies and graphs on separate streams, each compared with the same arithmetic on the CPU.

use super::{any_size, size};
use crate::entry::{Call, Entry, Result as Open};
use crate::{Checks, Error, Machine, Opened, Subject, Waiting, Wanted, Wrong};
use copy::Difference;
use cuda::{Context, DeviceBuffer, Function, Graph, GraphExec, Module, PinnedBuffer, Stream, step};
use std::time::Duration;

pub(crate) const KERNELS: Entry = Entry {
    name: "kernels",
    form: "kernels",
    about: "up to 32 launches of a kernel that computes, compared with the same arithmetic on the CPU",
    bytes: ROOM,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: open_kernels,
};

pub(crate) const MEMSET: Entry = Entry {
    name: "memset",
    form: "memset",
    about: "up to 8 cuMemsetAsync of any size, compared with the same on the CPU",
    bytes: ROOM,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: open_memsets,
};

pub(crate) const COPIES: Entry = Entry {
    name: "copies",
    form: "copies",
    about: "copies of random bytes of any size up to the GPU, across and down again by CUDA, compared",
    bytes: super::BYTES,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: open_copies,
};

pub(crate) const GRAPHS: Entry = Entry {
    name: "graphs",
    form: "graphs",
    about: "a graph of kernels, a copy and a fill, captured each time and launched up to 8 times, compared with the same arithmetic on the CPU",
    bytes: ROOM,
    number: None,
    words: &[],
    one_word: false,
    values: &[],
    open: open_graphs,
};

/// Bytes of the buffers for kernels and fills if no size is given.
const ROOM: u64 = 64 << 10;
/// Bytes of a buffer: whole words, and two halves of equal size.
fn room(wanted: &Wanted) -> Result<usize, Error> {
    let bytes = if wanted.bytes == 0 { ROOM } else { wanted.bytes };
    usize::try_from(bytes.next_multiple_of(8)).map_err(|_| Error::Memory { bytes })
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|w| w.to_le_bytes()).collect()
}

/// Compares what the stream leaves in `device`, through pinned memory, with `expected`.
fn compare(
    stream: &Stream<'_>,
    device: &DeviceBuffer<'_>,
    pinned: &mut PinnedBuffer<'_>,
    expected: &[u8],
) -> Result<Option<Wrong>, Error> {
    let into = &mut pinned.bytes_mut()[..expected.len()];
    // SAFETY: the buffer stays, unused, until the stream is synchronised in the next line.
    unsafe { stream.download(into, device.slice(0, expected.len())?) }?;
    stream.synchronize()?;
    Ok(Difference::between(expected, &pinned.bytes()[..expected.len()], None).map(Wrong::Data))
}

/// A stream, GPU memory, and pinned memory to read it.
struct Rig<'m> {
    // Before the memory that its work names.
    stream: Stream<'m>,
    first: DeviceBuffer<'m>,
    second: DeviceBuffer<'m>,
    up: PinnedBuffer<'m>,
    down: PinnedBuffer<'m>,
    context: &'m Context,
}

impl<'m> Rig<'m> {
    fn new(context: &'m Context, bytes: usize) -> Result<Rig<'m>, Error> {
        Ok(Rig {
            stream: Stream::new(context)?,
            first: DeviceBuffer::new(context, bytes)?,
            second: DeviceBuffer::new(context, bytes)?,
            up: PinnedBuffer::new(context, bytes)?,
            down: PinnedBuffer::new(context, bytes)?,
            context,
        })
    }

    /// Random words in the first buffer, and the same on the CPU.
    fn filled(&self, random: &mut fastrand::Rng) -> Result<Vec<u32>, Error> {
        let model: Vec<u32> = (0..self.first.len() / 4).map(|_| random.u32(..)).collect();
        self.first.write(&bytes_of(&model))?;
        // After this, what was written from pageable memory has arrived.
        self.context.synchronize_default_stream()?;
        Ok(model)
    }
}

impl Drop for Rig<'_> {
    fn drop(&mut self) {
        let _ = self.stream.synchronize();
    }
}

/// The work that is submitted to a rig's stream, and the bytes that it must leave.
trait Submits {
    /// Chooses the values of the next submission; the CPU does the same arithmetic.
    fn renew(&mut self) -> Result<(), Error>;
    fn fire(&mut self) -> Result<(), Error>;
    fn stream(&self) -> &Stream<'_>;
    fn check(&mut self) -> Result<Option<Wrong>, Error>;
}

/// Such a submission as a subject: each is submitted only once.
struct InStream<S: Submits> {
    submits: S,
    ready: bool,
}

impl<S: Submits> InStream<S> {
    fn new(submits: S) -> InStream<S> {
        InStream { submits, ready: false }
    }

    fn one(&mut self) -> Result<Option<Wrong>, Error> {
        self.fire()?;
        self.submits.stream().synchronize()?;
        self.check()
    }
}

impl<S: Submits> Subject for InStream<S> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    fn renew(&mut self) -> Result<(), Error> {
        if !self.ready {
            self.submits.renew()?;
            self.ready = true;
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        self.renew()?;
        self.ready = false;
        self.submits.fire()
    }

    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.submits.stream().is_done()?)
    }

    fn wait(&mut self, _timeout: Duration) -> Result<(), Error> {
        Ok(self.submits.stream().synchronize()?)
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        self.submits.check()
    }
}

impl<S: Submits> Drop for InStream<S> {
    fn drop(&mut self) {
        let _ = self.submits.stream().synchronize();
    }
}

fn open_kernels<'m>(machine: &'m Machine, _: &Call, wanted: &Wanted) -> Open<'m> {
    let context = machine.context()?;
    Ok(Box::new(Kernels { rig: Rig::new(context, room(wanted)?)?, module: Module::from_ptx(context, step::PTX)? }))
}

struct Kernels<'m> {
    rig: Rig<'m>,
    module: Module<'m>,
}

impl<'m> Kernels<'m> {
    fn subject(&mut self, seed: u64) -> Result<InStream<KernelTurn<'_, 'm>>, Error> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (model, function) = (self.rig.filled(&mut random)?, self.module.function(step::NAME)?);
        Ok(InStream::new(KernelTurn { rig: &mut self.rig, function, model, values: Vec::with_capacity(32), random }))
    }
}

impl Opened for Kernels<'_> {
    fn about(&self) -> String {
        KERNELS.about.into()
    }

    fn verify(&mut self, seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.subject(seed)?.one()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

struct KernelTurn<'s, 'm> {
    rig: &'s mut Rig<'m>,
    function: Function<'s>,
    model: Vec<u32>,
    values: Vec<u32>,
    random: fastrand::Rng,
}

impl Submits for KernelTurn<'_, '_> {
    fn renew(&mut self) -> Result<(), Error> {
        self.values.clear();
        for _ in 0..self.random.u32(1..=32) {
            let value = self.random.u32(..);
            self.values.push(value);
            step::on_cpu(&mut self.model, value);
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        let Rig { first, stream, .. } = &*self.rig;
        Ok(self.values.iter().try_for_each(|value| step::launch(&self.function, first, *value, stream))?)
    }

    fn stream(&self) -> &Stream<'_> {
        &self.rig.stream
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Rig { first, stream, down, .. } = &mut *self.rig;
        compare(stream, first, down, &bytes_of(&self.model))
    }
}

fn open_memsets<'m>(machine: &'m Machine, _: &Call, wanted: &Wanted) -> Open<'m> {
    Ok(Box::new(Memsets { rig: Rig::new(machine.context()?, room(wanted)?)? }))
}

struct Memsets<'m> {
    rig: Rig<'m>,
}

impl<'m> Memsets<'m> {
    fn subject(&mut self, seed: u64) -> Result<InStream<MemsetTurn<'_, 'm>>, Error> {
        let mut random = fastrand::Rng::with_seed(seed);
        let model = bytes_of(&self.rig.filled(&mut random)?);
        Ok(InStream::new(MemsetTurn { rig: &mut self.rig, model, fills: Vec::with_capacity(8), random }))
    }
}

impl Opened for Memsets<'_> {
    fn about(&self) -> String {
        MEMSET.about.into()
    }

    fn verify(&mut self, seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.subject(seed)?.one()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

/// Bytes, or words, of one value.
#[derive(Clone, Copy)]
enum Fill {
    Bytes { at: usize, bytes: usize, value: u8 },
    Words { at: usize, words: usize, value: u32 },
}

struct MemsetTurn<'s, 'm> {
    rig: &'s mut Rig<'m>,
    model: Vec<u8>,
    fills: Vec<Fill>,
    random: fastrand::Rng,
}

impl Submits for MemsetTurn<'_, '_> {
    fn renew(&mut self) -> Result<(), Error> {
        self.fills.clear();
        let room = self.model.len();
        for _ in 0..self.random.u32(1..=8) {
            let bytes = any_size(&mut self.random, room as u64) as usize;
            let at = self.random.usize(0..=room - bytes);
            let fill = if self.random.bool() {
                let value = self.random.u8(..);
                self.model[at..at + bytes].fill(value);
                Fill::Bytes { at, bytes, value }
            } else {
                let (at, value) = (at / 4 * 4, self.random.u32(..));
                let words = bytes.div_ceil(4).min((room - at) / 4);
                self.model[at..at + 4 * words].copy_from_slice(&value.to_le_bytes().repeat(words));
                Fill::Words { at, words, value }
            };
            self.fills.push(fill);
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        let Rig { first, stream, .. } = &*self.rig;
        for fill in &self.fills {
            match *fill {
                Fill::Bytes { at, bytes, value } => stream.fill8(first.slice(at, bytes)?, value)?,
                Fill::Words { at, words, value } => stream.fill32(first.slice(at, 4 * words)?, value)?,
            }
        }
        Ok(())
    }

    fn stream(&self) -> &Stream<'_> {
        &self.rig.stream
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Rig { first, stream, down, .. } = &mut *self.rig;
        compare(stream, first, down, &self.model)
    }
}

fn open_copies<'m>(machine: &'m Machine, _: &Call, wanted: &Wanted) -> Open<'m> {
    let room = usize::try_from(size(wanted)).map_err(|_| Error::Memory { bytes: wanted.bytes })?;
    Ok(Box::new(Copies { rig: Rig::new(machine.context()?, room)?, room }))
}

struct Copies<'m> {
    rig: Rig<'m>,
    room: usize,
}

impl<'m> Copies<'m> {
    fn subject(&mut self, seed: u64) -> InStream<CopyTurn<'_, 'm>> {
        let random = fastrand::Rng::with_seed(seed);
        InStream::new(CopyTurn { rig: &mut self.rig, room: self.room, bytes: 0, random })
    }
}

impl Opened for Copies<'_> {
    fn about(&self) -> String {
        format!("{} (up to {} bytes)", COPIES.about, self.room)
    }

    fn verify(&mut self, seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.subject(seed).one()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)))
    }
}

struct CopyTurn<'s, 'm> {
    rig: &'s mut Rig<'m>,
    room: usize,
    bytes: usize,
    random: fastrand::Rng,
}

impl Submits for CopyTurn<'_, '_> {
    fn renew(&mut self) -> Result<(), Error> {
        self.bytes = any_size(&mut self.random, self.room as u64) as usize;
        self.random.fill(&mut self.rig.up.bytes_mut()[..self.bytes]);
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        let (bytes, Rig { stream, first, second, up, down, .. }) = (self.bytes, &mut *self.rig);
        // SAFETY: the buffer stays, unchanged, until the stream has been waited for: before the next renewal, or the drop.
        unsafe { stream.upload(first.slice(0, bytes)?, &up.bytes()[..bytes]) }?;
        stream.copy(second.slice(0, bytes)?, first.slice(0, bytes)?)?;
        // SAFETY: as above, and unused.
        Ok(unsafe { stream.download(&mut down.bytes_mut()[..bytes], second.slice(0, bytes)?) }?)
    }

    fn stream(&self) -> &Stream<'_> {
        &self.rig.stream
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let (sent, found) = (&self.rig.up.bytes()[..self.bytes], &self.rig.down.bytes()[..self.bytes]);
        Ok(Difference::between(sent, found, None).map(Wrong::Data))
    }
}

fn open_graphs<'m>(machine: &'m Machine, _: &Call, wanted: &Wanted) -> Open<'m> {
    let context = machine.context()?;
    Ok(Box::new(Graphs { rig: Rig::new(context, room(wanted)?)?, module: Module::from_ptx(context, step::PTX)? }))
}

struct Graphs<'m> {
    rig: Rig<'m>,
    module: Module<'m>,
}

impl<'m> Graphs<'m> {
    fn subject(&mut self, seed: u64) -> Result<InStream<GraphTurn<'_, 'm>>, Error> {
        let mut random = fastrand::Rng::with_seed(seed);
        let (model, function) = (self.rig.filled(&mut random)?, self.module.function(step::NAME)?);
        let exec = None;
        Ok(InStream::new(GraphTurn { exec, rig: &mut self.rig, function, model, byte: 0, launches: 0, random }))
    }
}

impl Opened for Graphs<'_> {
    fn about(&self) -> String {
        GRAPHS.about.into()
    }

    fn verify(&mut self, seed: u64, _timeout: Duration) -> Result<Option<Wrong>, Error> {
        self.subject(seed)?.one()
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        Ok(Box::new(self.subject(seed)?))
    }
}

/// A graph copies to one half of the second buffer, and fills the other.
struct GraphTurn<'s, 'm> {
    exec: Option<GraphExec<'m>>,
    rig: &'s mut Rig<'m>,
    function: Function<'s>,
    model: Vec<u32>,
    byte: u8,
    launches: u32,
    random: fastrand::Rng,
}

impl Submits for GraphTurn<'_, '_> {
    /// A new graph.
    fn renew(&mut self) -> Result<(), Error> {
        let values: Vec<u32> = (0..self.random.usize(1..=8)).map(|_| self.random.u32(..)).collect();
        let (function, byte, Rig { stream, first, second, .. }) = (&self.function, self.random.u8(..), &*self.rig);
        let half = first.len() / 2;
        // The earlier submission is complete, as renewing requires.
        stream.synchronize()?;
        let graph = Graph::capture(stream, || {
            values.iter().try_for_each(|value| step::launch(function, first, *value, stream))?;
            stream.copy(second.slice(0, half)?, first.slice(0, half)?)?;
            stream.fill8(second.slice(half, half)?, byte)
        })?;
        self.exec = Some(graph.instantiate()?);
        (self.byte, self.launches) = (byte, self.random.u32(1..=8));
        for _ in 0..self.launches {
            values.iter().for_each(|value| step::on_cpu(&mut self.model, *value));
        }
        Ok(())
    }

    fn fire(&mut self) -> Result<(), Error> {
        let Some(exec) = &self.exec else { return Err(Error::Idle) };
        for _ in 0..self.launches {
            // SAFETY: its buffers are the rig's, which this borrows and which waits for its stream.
            unsafe { exec.launch(&self.rig.stream) }?;
        }
        Ok(())
    }

    fn stream(&self) -> &Stream<'_> {
        &self.rig.stream
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let Rig { stream, first, second, down, .. } = &mut *self.rig;
        let cells = bytes_of(&self.model);
        if let Some(wrong) = compare(stream, first, down, &cells)? {
            return Ok(Some(wrong));
        }
        compare(stream, second, down, &[&cells[..cells.len() / 2], &vec![self.byte; cells.len() / 2]].concat())
    }
}
