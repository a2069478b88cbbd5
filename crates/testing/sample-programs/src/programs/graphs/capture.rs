//! What a shape needs to make its graphs: streams, kernels and memory. Each call that puts work into a stream also adds the effect of the work
//! to the model.

use super::kernels::Code;
use super::memory::{Memory, Model, Place, Space};
use crate::Result;
use cuda::{Address, Context, Event, Function, Graph, GraphExec, Launch, Module, Node, Plane, Stream};
use fastrand::Rng;
use std::cell::{Cell, OnceCell, RefCell};

/// What a node does, on the CPU.
pub(super) type Act = Box<dyn FnMut(&mut Model)>;

/// The most streams that a shape uses.
pub(super) const STREAMS: usize = 41;
/// The first bytes of a log, for those who copy it: number and first entries.
pub(super) const HEAD: usize = 256;
/// Threads of a block, for kernels that do not choose.
const BLOCK: u32 = 128;
/// The most blocks of a copy.
const BLOCKS: u32 = 64;

/// A graph, ready for launches.
pub(super) struct Part<'c> {
    /// Before the graph, whose nodes can be named while it lives.
    pub exec: GraphExec<'c>,
    pub graph: Graph<'c>,
    pub acts: Vec<Act>,
    /// Places in host memory that get other bytes at each launch.
    pub inputs: Vec<Place>,
    pub kernels: u64,
}

pub(super) struct Maker<'c> {
    // Declared before the memory and the code that graphs in flight may use.
    streams: [OnceCell<Stream<'c>>; STREAMS],
    events: RefCell<Vec<Event<'c>>>,
    modules: [OnceCell<Module<'c>>; Code::COUNT],
    pub memory: Memory<'c>,
    context: &'c Context,
    /// The number of remaining launches of each graph.
    pub launches: usize,
    random: RefCell<Rng>,
    acts: RefCell<Vec<Act>>,
    inputs: RefCell<Vec<Place>>,
    kernels: Cell<u64>,
}

impl<'c> Maker<'c> {
    pub fn new(context: &'c Context, launches: usize, device: usize) -> Result<Maker<'c>> {
        Ok(Maker {
            streams: [const { OnceCell::new() }; STREAMS],
            events: RefCell::default(),
            modules: [const { OnceCell::new() }; Code::COUNT],
            memory: Memory::new(context, device)?,
            context,
            launches,
            random: RefCell::new(Rng::with_seed(0)),
            acts: RefCell::default(),
            inputs: RefCell::default(),
            kernels: Cell::new(0),
        })
    }

    /// For the next shape.
    pub fn begin(&self, random: Rng) {
        *self.random.borrow_mut() = random;
        self.memory.clear();
        self.events.borrow_mut().clear();
        self.acts.borrow_mut().clear();
        self.inputs.borrow_mut().clear();
        self.kernels.set(0);
    }

    /// The contents of the memory before the first launch.
    pub fn start(&self) -> Result<Model> {
        let model = self.memory.start(&mut self.random.borrow_mut())?;
        // After this, what was written from pageable memory has arrived; the streams do not wait for it.
        self.context.synchronize_default_stream()?;
        Ok(model)
    }

    pub fn value(&self) -> u32 {
        self.random.borrow_mut().u32(..)
    }

    pub fn stream(&self, number: usize) -> cuda::Result<&Stream<'c>> {
        let cell = &self.streams[number];
        if cell.get().is_none() {
            let _ = cell.set(Stream::new(self.context)?);
        }
        Ok(cell.get_or_init(|| unreachable!("set above")))
    }

    pub fn event(&self) -> cuda::Result<Event<'c>> {
        Event::new(self.context)
    }

    pub fn function(&self, code: Code, name: &str) -> cuda::Result<Function<'_>> {
        let cell = &self.modules[code as usize];
        if cell.get().is_none() {
            let _ = cell.set(code.load(self.context)?);
        }
        cell.get_or_init(|| unreachable!("set above")).function(name)
    }

    /// Loads kernels and makes streams, as many: neither can be done while a stream is captured.
    pub fn need(&self, kernels: &[(Code, &str)], streams: usize) -> Result<()> {
        kernels.iter().try_for_each(|(code, name)| self.function(*code, name).map(drop))?;
        (0..streams).try_for_each(|number| self.stream(number).map(drop))?;
        Ok(())
    }

    pub fn take(&self, bytes: usize) -> Result<Place> {
        self.memory.take(Space::Device, bytes)
    }

    /// A log for this many entries of each launch, at least [`HEAD`].
    pub fn take_log(&self, each: usize) -> Result<Place> {
        self.memory.take_log((4 * (1 + each * self.launches)).max(HEAD))
    }

    /// A graph of the work that `submit` puts into streams. It begins and ends on stream 0.
    pub fn capture(&self, submit: impl FnOnce() -> cuda::Result<()>) -> Result<Part<'c>> {
        self.capture_with(submit, |graph| graph.instantiate())
    }

    pub fn capture_with(
        &self,
        submit: impl FnOnce() -> cuda::Result<()>,
        instantiate: impl FnOnce(&Graph<'c>) -> cuda::Result<GraphExec<'c>>,
    ) -> Result<Part<'c>> {
        let graph = self.graph(submit)?;
        let exec = instantiate(&graph)?;
        Ok(self.part_of(graph, exec))
    }

    /// A part for a complete graph.
    pub fn part(&self, graph: Graph<'c>) -> Result<Part<'c>> {
        let exec = graph.instantiate()?;
        Ok(self.part_of(graph, exec))
    }

    fn part_of(&self, graph: Graph<'c>, exec: GraphExec<'c>) -> Part<'c> {
        Part { exec, graph, acts: self.acts.take(), inputs: self.inputs.take(), kernels: self.kernels.take() }
    }

    /// Removes the model's last act: a kernel that is captured and never runs.
    pub fn never(&self) {
        self.acts.borrow_mut().pop();
        self.kernels.set(self.kernels.get() - 1);
    }

    /// A place in host memory that gets other bytes at each launch that is waited for.
    pub fn input(&self, place: Place) {
        self.inputs.borrow_mut().push(place);
    }

    /// Writes these bytes. No graph may run at that time.
    pub fn renew(&self, part: &Part<'_>, model: &mut Model) {
        part.inputs.iter().for_each(|place| self.memory.renew(*place, &mut self.random.borrow_mut(), model));
    }

    /// A graph that is incomplete, or becomes a part of another; its acts are kept for that.
    pub fn graph(&self, submit: impl FnOnce() -> cuda::Result<()>) -> Result<Graph<'c>> {
        Ok(Graph::capture(self.stream(0)?, submit)?)
    }

    pub fn then(&self, act: impl FnMut(&mut Model) + 'static) {
        self.acts.borrow_mut().push(Box::new(act));
    }

    /// `later` continues after what `earlier` has now.
    pub fn after(&self, later: usize, earlier: usize) -> cuda::Result<()> {
        let event = self.event()?;
        event.record(self.stream(earlier)?)?;
        self.stream(later)?.wait_for(&event)?;
        self.events.borrow_mut().push(event);
        Ok(())
    }

    pub fn kernel(
        &self,
        (code, name): (Code, &str),
        launch: &Launch,
        on: usize,
        parameters: &[&[u8]],
        act: impl FnMut(&mut Model) + 'static,
    ) -> cuda::Result<()> {
        let function = self.function(code, name)?;
        // SAFETY: the shapes pass each kernel what it declares; memory and code outlive graphs and streams.
        unsafe { function.launch_as(launch, self.stream(on)?, parameters) }?;
        self.kernels.set(self.kernels.get() + 1);
        self.then(act);
        Ok(())
    }

    fn bytes_of(&self, place: Place) -> [u8; 8] {
        self.memory.address(place).to_le_bytes()
    }

    /// A kernel that writes the next entry of a log.
    pub fn log(&self, on: usize, log: Place, value: u32) -> cuda::Result<()> {
        self.log_as((Code::Plain, "log"), &Launch::new([1; 3], [1; 3]), on, log, value)
    }

    /// Gives the kernel `log` at a node another entry to write.
    pub fn set_entry(&self, exec: &GraphExec<'_>, node: Node, log: Place, value: u32) -> cuda::Result<()> {
        let (function, launch) = (self.function(Code::Plain, "log")?, Launch::new([1; 3], [1; 3]));
        // SAFETY: the parameters of `log`; the shapes pass a node of the graph from which this was made, which lives.
        unsafe { exec.set_kernel(node, &function, &launch, &[&self.bytes_of(log), &value.to_le_bytes()]) }
    }

    pub fn log_as(&self, kernel: (Code, &str), launch: &Launch, on: usize, log: Place, value: u32) -> cuda::Result<()> {
        let parameters: [&[u8]; 2] = [&self.bytes_of(log), &value.to_le_bytes()];
        self.kernel(kernel, launch, on, &parameters, move |model| model.log(log, value))
    }

    /// A kernel that copies whole words. Both places are equally long.
    pub fn copy(&self, on: usize, to: Place, from: Place) -> cuda::Result<()> {
        let words = from.bytes as u32 / 4;
        let launch = Launch::new([words.div_ceil(BLOCK).clamp(1, BLOCKS), 1, 1], [BLOCK, 1, 1]);
        let bytes = (4 * words).to_le_bytes();
        let parameters: [&[u8]; 3] = [&self.bytes_of(to), &self.bytes_of(from), &bytes];
        self.kernel((Code::Plain, "copy"), &launch, on, &parameters, move |model| model.copy(to, from))
    }

    /// A kernel that takes an address first.
    pub fn at(
        &self,
        kernel: (Code, &str),
        launch: &Launch,
        place: Place,
        others: &[&[u8]],
        act: impl FnMut(&mut Model) + 'static,
    ) -> cuda::Result<()> {
        let address = self.bytes_of(place);
        let parameters: Vec<&[u8]> = std::iter::once(&address[..]).chain(others.iter().copied()).collect();
        self.kernel(kernel, launch, 0, &parameters, act)
    }

    /// Fills a place of the GPU's with values of `width` bytes.
    pub fn fill(&self, place: Place, width: usize, value: u32) -> cuda::Result<()> {
        let (stream, to) = (self.stream(0)?, self.memory.slice(place)?);
        match width {
            1 => stream.fill8(to, value as u8)?,
            2 => stream.fill16(to, value as u16)?,
            _ => stream.fill32(to, value)?,
        }
        self.then(move |model| repeat(model.bytes(place), width, value));
        Ok(())
    }

    pub fn fill_rows(&self, place: Place, rows: Plane, width: usize, value: u32) -> cuda::Result<()> {
        let (stream, to) = (self.stream(0)?, self.memory.slice(place)?);
        match width {
            1 => stream.fill_rows8(to, rows, value as u8)?,
            _ => stream.fill_rows32(to, rows, value)?,
        }
        self.then(move |model| {
            let all = model.bytes(place).chunks_mut(rows.pitch).take(rows.height);
            all.for_each(|row| repeat(&mut row[..rows.width], width, value));
        });
        Ok(())
    }

    /// A copy by CUDA; one of the two places is in GPU memory.
    pub fn memcpy(&self, to: Place, from: Place) -> cuda::Result<()> {
        let stream = self.stream(0)?;
        let (at, of) = (self.memory.address(to) as *mut u8, self.memory.address(from) as *const u8);
        match (to.space, from.space) {
            (Space::Device, Space::Device) => stream.copy(self.memory.slice(to)?, self.memory.slice(from)?)?,
            // SAFETY: this many bytes of memory that outlives graphs and streams, and that the CPU does not access while they run.
            (Space::Device, _) => unsafe {
                stream.upload(self.memory.slice(to)?, std::slice::from_raw_parts(of, from.bytes))?;
            },
            // SAFETY: as above.
            _ => unsafe {
                stream.download(std::slice::from_raw_parts_mut(at, to.bytes), self.memory.slice(from)?)?;
            },
        }
        self.then(move |model| model.copy(to, from));
        Ok(())
    }

    pub fn memcpy_rows(&self, to: Place, from: Place, rows: Plane) -> cuda::Result<()> {
        let of = |place: Place| match place.space {
            Space::Device => Address::Device(self.memory.address(place)),
            _ => Address::Host(self.memory.address(place)),
        };
        // SAFETY: places of `pitch` times `height` bytes, as in `memcpy`.
        unsafe { self.stream(0)?.copy_rows(of(to), of(from), rows) }?;
        self.then(move |model| {
            for row in 0..rows.height {
                let at = row * rows.pitch;
                model.copy(to.part(at, rows.width), from.part(at, rows.width));
            }
        });
        Ok(())
    }
}

fn repeat(bytes: &mut [u8], width: usize, value: u32) {
    let value = value.to_le_bytes();
    bytes.chunks_mut(width).for_each(|to| to.copy_from_slice(&value[..to.len()]));
}
