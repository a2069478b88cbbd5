//! A session next to the libcuda in software, and chains on it: 64 bytes in, their first word plus 1 out.

#![allow(dead_code, reason = "each test file uses some of it")]

#[path = "../../../../testing/softcuda/tests/program/mod.rs"]
pub mod program;

use cuda::Argument::{U32, U64};
use cuda::{Context, Cuda, Module, Stream, Words};
use frame_loop::{LoopOptions, Pace, Part};
use std::sync::Arc;
use std::time::{Duration, Instant};
use submit::{Buffer, ChainHow, ChainStep, Follow, Graph, InOrder, Kind, Options, Session, Way};

pub const LIMIT: Duration = Duration::from_secs(20);
pub const BYTES: u64 = 64;

pub struct Rig {
    pub session: Arc<Session>,
    pub context: &'static Context,
    pub module: &'static Module<'static>,
    pub stream: &'static Stream<'static>,
}

pub struct Chain {
    pub graph: Graph,
    pub input: Part,
    pub output: Part,
}

pub fn rig() -> Rig {
    Session::watch().unwrap();
    let context: &'static Context =
        Box::leak(Box::new(Cuda::load().unwrap().device(0).unwrap().primary_context().unwrap()));
    context.make_current().unwrap();
    let session = Arc::new(Session::new());
    session.open(&options()).unwrap();
    let module = Box::leak(Box::new(Module::from_ptx(context, ".version 8.0\n").unwrap()));
    let stream = Box::leak(Box::new(Stream::new(context).unwrap()));
    Rig { session, context, module, stream }
}

pub fn options() -> Options {
    Options { kind: Kind::Cuda, lanes: 1, profile: Follow::Nothing, ..Options::default() }
}

impl Rig {
    /// A graph that copies 64 bytes and adds 1 to the first word of the copy.
    pub fn graph(&self, from: u64, to: u64) -> Graph {
        let [copy, add] = ["copy", "add1"].map(|name| self.module.function(name).unwrap());
        let captured = cuda::Graph::capture(self.stream, || {
            // SAFETY: the arguments are the kernels', and the memory outlives the session's launches.
            unsafe {
                copy.launch([1; 3], [1; 3], 0, self.stream, &[U64(to), U64(from), U32(BYTES as u32)])?;
                add.launch([1; 3], [1; 3], 0, self.stream, &[U64(to)])
            }
        });
        let exec = captured.unwrap().instantiate().unwrap();
        // SAFETY: module and memory stay until the session is closed.
        unsafe { self.session.prepare_graph(exec.handle(), self.stream.handle()) }.unwrap()
    }

    pub fn chain(&self) -> Chain {
        let video = self.session.allocate(8192, true).unwrap();
        self.chain_in(video)
    }

    pub fn chain_in(&self, video: Buffer) -> Chain {
        self.chain_by(video, Way::Inline, false)
    }

    /// `by`: how the bytes reach the GPU. `beside`: whether copies have a separate channel.
    pub fn chain_by(&self, video: Buffer, by: Way, beside: bool) -> Chain {
        let host = self.session.allocate(8192, false).unwrap();
        let (gpu, _) = self.session.place(video).unwrap();
        let graph = self.graph(gpu, gpu + 4096);
        let copy = |to, from, by| ChainStep::Copy { to, from, bytes: BYTES, by };
        let steps =
            [copy((video, 0), (host, 0), Some(by)), ChainStep::Launch(graph), copy((host, 4096), (video, 4096), None)];
        let chain = self.session.prepare_chain(&steps, ChainHow { beside, ..ChainHow::default() }).unwrap();
        let part = |at| Part { buffer: host, at, bytes: BYTES };
        Chain { graph: chain, input: part(0), output: part(4096) }
    }

    /// A graph that a gate may hold back.
    pub fn held(&self) -> Graph {
        let video = self.session.allocate(8192, true).unwrap();
        let (at, _) = self.session.place(video).unwrap();
        self.graph(at, at + 4096)
    }

    /// From now on no launch begins until the returned gate is opened. `held` was made by [`Rig::held`] before.
    pub fn close_gate(&self, held: Graph) -> Gate {
        let words: &'static Words = Box::leak(Box::new(Words::new(self.context, 1).unwrap()));
        // SAFETY: the words outlive the stream's use of them.
        unsafe { words.hold_until(self.stream.handle(), 0, 1) }.unwrap();
        loop {
            // SAFETY: the stream lives.
            let behind = InOrder::after_stream(unsafe { submit::Stream::from_raw(self.stream.handle()) });
            match self.session.launch_in(held, &behind) {
                Ok(_) => return Gate(words),
                Err(submit::Error::Busy) => {}
                Err(error) => panic!("{error}"),
            }
        }
    }
}

pub struct Gate(&'static Words);

impl Gate {
    pub fn open(self) {
        self.0.word(0).store(1, std::sync::atomic::Ordering::SeqCst);
    }
}

impl Chain {
    pub fn options(&self, pace: Pace) -> LoopOptions {
        LoopOptions {
            input: Some(self.input),
            output: Some(self.output),
            limit: LIMIT,
            ..LoopOptions::new(self.graph, pace)
        }
    }
}

/// An input in which every word is its number.
pub fn input(number: u32) -> [u8; BYTES as usize] {
    let mut bytes = [0; BYTES as usize];
    bytes.chunks_exact_mut(4).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
    bytes
}

/// Whether these are the chain's output bytes for input `number`.
pub fn is_right(bytes: &[u8], number: u32) -> bool {
    bytes[..4] == (number.wrapping_add(1)).to_le_bytes() && bytes[4..] == input(number)[4..]
}

pub fn until(what: &str, mut is: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is() {
        assert!(start.elapsed() < LIMIT, "{what}");
        std::thread::sleep(Duration::from_micros(200));
    }
}
