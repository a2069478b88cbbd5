//! Graphs other than chains of kernels: one kernel that many others wait for (`wide`), and chains of copies or memsets, each with its own bytes.
//!
//! CUDA launches them. What each node leaves is compared: counts of kernels, bytes of copies and memsets.

use crate::Difference;
use crate::entry::{Call, Entry, Number, PLAIN, Result as Open};
use crate::launch::{COUNT, PTX};
use crate::{Checks, Error, Machine, Opened, Subject, Unavailable, Waiting, Wanted, Wrong};
use cuda::{Argument, Context, DeviceBuffer, Event, Graph, GraphExec, Module, PinnedBuffer, Stream};
use std::time::Duration;

const WIDE: &str = "wide";
const TO_GPU: &str = "to-gpu";
const FROM_GPU: &str = "from-gpu";
const MEMSETS: &str = "memsets";

pub(crate) const NODES: Entry = Entry {
    name: "nodes",
    form: "nodes(NODES,wide or to-gpu or from-gpu or memsets)",
    about: "cuGraphLaunch and cuStreamSynchronize of a graph. wide: a kernel, this many kernels that wait for it, and one that waits for all these; else a \
            chain of copies or memsets of the given size each",
    bytes: 4096,
    number: Some(Number { of: "nodes", default: 10, least: 1, most: 2_000 }),
    words: &[WIDE, TO_GPU, FROM_GPU, MEMSETS],
    one_word: true,
    open,
    ..PLAIN
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Shape {
    Wide,
    ToGpu,
    FromGpu,
    Memsets,
}

/// Bytes of a word that a kernel counts up.
const WORD: usize = 4;
/// Streams from which a wide graph is captured: more streams do not make it wider.
const MOST_STREAMS: usize = 64;
/// All memory of a graph.
const MOST_BYTES: u64 = 1 << 30;

fn open<'m>(machine: &'m Machine, call: &Call, wanted: &Wanted) -> Open<'m> {
    let shape = match call.words.first() {
        Some(&TO_GPU) => Shape::ToGpu,
        Some(&FROM_GPU) => Shape::FromGpu,
        Some(&MEMSETS) => Shape::Memsets,
        _ => Shape::Wide,
    };
    let context = machine.context()?;
    let count = call.number as usize;
    let each = if shape == Shape::Wide { WORD } else { wanted.bytes as usize };
    if shape == Shape::Memsets && !each.is_multiple_of(WORD) {
        return Err(Unavailable::new(format!("a memset of {each} bytes: it fills whole words of 4 bytes")).into());
    }
    // The first and the last kernel of a wide graph have separate words.
    let bytes = each as u64 * (count as u64 + 2);
    if bytes > MOST_BYTES {
        return Err(Unavailable::new(format!("{count} nodes of {each} bytes need more than 1 GiB")).into());
    }
    let device = DeviceBuffer::new(context, bytes as usize)?;
    let host = PinnedBuffer::new(context, bytes as usize)?;
    let streams = if shape == Shape::Wide { 1 + count.min(MOST_STREAMS) } else { 1 };
    let mut nodes = Nodes {
        exec: None,
        streams: (0..streams).map(|_| Stream::new(context)).collect::<Result<_, _>>()?,
        module: Module::from_ptx(context, PTX)?,
        device,
        host,
        context,
        shape,
        count,
        each,
    };
    let graph = nodes.graph()?;
    nodes.exec = Some(graph.instantiate()?);
    Ok(Box::new(nodes))
}

struct Nodes<'m> {
    // Before all that its nodes name.
    exec: Option<GraphExec<'m>>,
    streams: Vec<Stream<'m>>,
    module: Module<'m>,
    device: DeviceBuffer<'m>,
    host: PinnedBuffer<'m>,
    context: &'m Context,
    shape: Shape,
    count: usize,
    each: usize,
}

impl<'m> Nodes<'m> {
    fn graph(&mut self) -> Result<Graph<'m>, Error> {
        Ok(match self.shape {
            Shape::Wide => self.wide()?,
            _ => self.chain()?,
        })
    }

    /// Each node uses its own part of both memories.
    fn chain(&mut self) -> cuda::Result<Graph<'m>> {
        let Nodes { shape, count, each, .. } = *self;
        let (stream, device, host) = (&self.streams[0], &self.device, &mut self.host);
        Graph::capture(stream, || {
            (0..count).try_for_each(|n| {
                let at = n * each;
                let part = device.slice(at, each)?;
                match shape {
                    // SAFETY: pinned memory that outlives the graph; the CPU accesses it only between launches.
                    Shape::ToGpu => unsafe { stream.upload(part, &host.bytes()[at..at + each]) },
                    // SAFETY: as above.
                    Shape::FromGpu => unsafe { stream.download(&mut host.bytes_mut()[at..at + each], part) },
                    _ => stream.fill32(part, word(n)),
                }
            })
        })
    }

    /// One kernel, then all others on alternating streams, then one that waits for each of them.
    fn wide(&self) -> cuda::Result<Graph<'m>> {
        let kernel = self.module.function(COUNT)?;
        let launch = |n: usize, stream: &Stream<'_>| {
            let word = [Argument::U64(self.device.address() + (n * WORD) as u64)];
            // SAFETY: the kernel's argument is a word of memory that outlives the graph.
            unsafe { kernel.launch([1; 3], [1; 3], 0, stream, &word) }
        };
        let (main, others) = self.streams.split_first().ok_or(cuda::Error::Missing { call: "a stream" })?;
        let events: Vec<Event<'_>> =
            (0..=others.len()).map(|_| Event::new(self.context)).collect::<cuda::Result<_>>()?;
        Graph::capture(main, || {
            launch(0, main)?;
            events[0].record(main)?;
            others.iter().try_for_each(|stream| stream.wait_for(&events[0]))?;
            (0..self.count).try_for_each(|n| launch(n + 1, &others[n % others.len()]))?;
            for (stream, event) in others.iter().zip(&events[1..]) {
                event.record(stream)?;
                main.wait_for(event)?;
            }
            launch(self.count + 1, main)
        })
    }

    /// Writes the initial values for the next launch, and returns what the destination holds after this many launches.
    fn begin(&mut self, seed: u64) -> Result<Vec<u8>, Error> {
        let used = self.used();
        let mut random = fastrand::Rng::with_seed(seed);
        let mut bytes = vec![0; used];
        random.fill(&mut bytes);
        let mut other = vec![0; used];
        match self.shape {
            Shape::Wide => {
                bytes.fill(0);
                self.device.write(&bytes)?;
            }
            Shape::ToGpu => {
                self.host.bytes_mut()[..used].copy_from_slice(&bytes);
                self.device.write(&other)?;
            }
            Shape::FromGpu => {
                self.device.write(&bytes)?;
                self.host.bytes_mut()[..used].fill(0);
            }
            Shape::Memsets => {
                self.device.write(&bytes)?;
                other.chunks_mut(self.each).enumerate().for_each(|(n, part)| fill(part, word(n)));
                bytes = other;
            }
        }
        // After this, what was written from pageable memory has arrived.
        self.context.synchronize_default_stream()?;
        Ok(bytes)
    }

    /// Bytes of each memory that nodes use.
    fn used(&self) -> usize {
        self.each * (self.count + if self.shape == Shape::Wide { 2 } else { 0 })
    }
}

/// What a memset of the n-th node writes.
fn word(n: usize) -> u32 {
    0x5eed_0000 + n as u32
}

fn fill(bytes: &mut [u8], word: u32) {
    bytes.chunks_mut(WORD).for_each(|to| to.copy_from_slice(&word.to_le_bytes()[..to.len()]));
}

impl Opened for Nodes<'_> {
    fn about(&self) -> String {
        let Nodes { count, each, .. } = self;
        match self.shape {
            Shape::Wide => {
                format!("a graph of a kernel, {count} kernels that wait for it, and one that waits for all these")
            }
            Shape::ToGpu => format!("a graph of a chain of {count} copies of {each} bytes to the GPU"),
            Shape::FromGpu => format!("a graph of a chain of {count} copies of {each} bytes from the GPU"),
            Shape::Memsets => format!("a graph of a chain of {count} memsets of {each} bytes"),
        }
    }

    fn prepare(&mut self, seed: u64) -> Result<Box<dyn Subject + '_>, Error> {
        let expected = self.begin(seed)?;
        Ok(Box::new(Launched { nodes: self, expected, launches: 0 }))
    }
}

struct Launched<'r, 'm> {
    nodes: &'r mut Nodes<'m>,
    /// What the destination should hold; for kernels, what it held at the start.
    expected: Vec<u8>,
    launches: u32,
}

impl Subject for Launched<'_, '_> {
    fn waiting(&self) -> Waiting {
        Waiting::Called
    }

    #[inline]
    fn fire(&mut self) -> Result<(), Error> {
        if let Some(exec) = &self.nodes.exec {
            // SAFETY: its nodes name memory that this borrows, and the stream is waited for when this is dropped.
            unsafe { exec.launch(&self.nodes.streams[0]) }?;
        }
        self.launches = self.launches.wrapping_add(1);
        Ok(())
    }

    #[inline]
    fn poll(&mut self) -> Result<bool, Error> {
        Ok(self.nodes.streams[0].is_done()?)
    }

    #[inline]
    fn wait(&mut self, _: Duration) -> Result<(), Error> {
        Ok(self.nodes.streams[0].synchronize()?)
    }

    fn checks(&self) -> Checks {
        Checks::Bytes
    }

    fn check(&mut self) -> Result<Option<Wrong>, Error> {
        let used = self.nodes.used();
        let mut found = vec![0; used];
        match self.nodes.shape {
            Shape::FromGpu => found.copy_from_slice(&self.nodes.host.bytes()[..used]),
            _ => self.nodes.device.read(&mut found)?,
        }
        if self.nodes.shape == Shape::Wide {
            fill(&mut self.expected, self.launches);
        }
        Ok(Difference::between(&self.expected, &found, None).map(Wrong::Data))
    }
}

impl Drop for Launched<'_, '_> {
    fn drop(&mut self) {
        let _ = self.nodes.streams[0].synchronize();
    }
}
