//! Graphs: the nodes that a stream has captured, and their instantiation in CUDA's words.

use crate::channel::GraphicsChannel;
use crate::code;
use crate::fills;
use crate::memory::{Soft, find, soft};
use crate::node::Node;
use crate::status::{INVALID_VALUE, NOT_SUPPORTED, OUT_OF_MEMORY};
use crate::wait::has_come;
use cuda_graph::words::{DECREMENT, Kernel, MOST_BY_MACRO, Places, SCHEDULE, Step};
use gpu::{Error, Memory};
use pushbuf::qmd::PcasAction;
use std::ffi::c_int;
use std::sync::{Arc, Mutex};

const START: PcasAction = PcasAction::InvalidatePrefetchCopySchedule;
/// The counters of an executable graph are at the start of its host memory; its tracker follows.
const TRACKER: u64 = 0x10_0000;
/// After the tracker: the target of releases without a waiter.
const OTHERS: u64 = 0x100;
/// Bytes of one counter.
const COUNTER: u64 = 8;
/// The object that programs know as `CUgraph`. A node's handle is its address: the number of nodes never grows.
pub(crate) struct Graph {
    nodes: Mutex<Box<[Node]>>,
}

/// The object that programs know as `CUgraphExec`.
pub(crate) struct Exec {
    words: cuda_graph::words::Graph,
    /// Each has a counter.
    groups: usize,
    /// Counters and the tracker.
    host: Arc<Memory>,
    #[allow(dead_code, reason = "kept alive: QMDs and constant banks")]
    video: Arc<Memory>,
    launches: Mutex<u32>,
}

impl Graph {
    pub fn new(nodes: Vec<Node>) -> Graph {
        Graph { nodes: Mutex::new(nodes.into()) }
    }

    /// Reads its nodes, or changes them.
    pub fn nodes<T>(&self, look: impl FnOnce(&mut [Node]) -> T) -> T {
        let mut nodes = poison::ignore(self.nodes.lock());
        look(&mut nodes)
    }

    pub fn instantiate(&self) -> Result<Exec, c_int> {
        let nodes = self.nodes(|nodes| nodes.to_vec());
        let Soft { space, code, .. } = soft().ok_or(OUT_OF_MEMORY)?;
        let mut words = Writing { code: code.va(), ..Writing::default() };
        for run in nodes.chunk_by(|a, b| a.kernel().is_some() && b.kernel().is_some()) {
            match run.iter().map(Node::kernel).collect::<Option<Vec<_>>>() {
                Some(kernels) => words.kernels(&kernels)?,
                None => run.iter().try_for_each(|node| words.transfer(node))?,
            }
        }
        let (mut words, groups) = words.finish();
        let kernels = words.kernels.len() as u64;
        if groups as u64 * COUNTER > TRACKER {
            return Err(OUT_OF_MEMORY);
        }
        let qmds = (Places::QMD_BYTES * kernels).next_multiple_of(0x1000);
        let memory = |memory: Result<_, Error>| memory.map_err(|_| OUT_OF_MEMORY);
        let host = memory(space.alloc_host(TRACKER + 0x1000))?;
        let video = memory(space.alloc_video(qmds + Places::BANK_BYTES * kernels + 0x1000))?;
        words.at = Places {
            qmds: video.va(),
            banks: video.va() + qmds,
            shared_banks: None,
            counters: host.va(),
            trackers: host.va() + TRACKER,
            code: code.va(),
        };
        if !GraphicsChannel::has_room_for(&words.upload()) {
            return Err(OUT_OF_MEMORY);
        }
        Ok(Exec { words, groups, host, video, launches: Mutex::new(0) })
    }
}

impl Exec {
    /// Submits a launch, the first with the upload. The returned function waits until the launch is complete.
    pub fn submit(self: Arc<Exec>) -> Option<impl FnOnce() + Send> {
        let Soft { channel, .. } = soft()?;
        let mut launches = poison::ignore(self.launches.lock());
        let number = *launches;
        let mut words = if number == 0 { self.words.upload() } else { self.words.again(number.into()) };
        if number == 0 && std::env::var_os("DOORBELL_SOFTCUDA_RELEASES").is_some() {
            use_releases(&mut words, self.host.va() + TRACKER + OTHERS);
        }
        let submitted = channel.submit(&words).ok()?;
        *launches += 1;
        drop(launches);
        let (counter, tracker) = cuda_graph::words::Graph::done(number.into());
        Some(move || {
            submitted.wait(|| {
                let counted = |group: usize| has_come(self.host.word(COUNTER * group as u64), counter);
                has_come(self.host.word(TRACKER), tracker) && (0..self.groups).all(counted)
            });
        })
    }
}

/// Has all kernels use the two releases that CUDA leaves free, as a profiler might: `DOORBELL_SOFTCUDA_RELEASES`.
fn use_releases(words: &mut [u32], to: u64) {
    let mut kernels = Vec::new();
    pushbuf::qmd::end_time::find(
        words.len(),
        |i| words[i],
        |found| {
            if let pushbuf::qmd::end_time::Found::Kernel(qmd) = found {
                kernels.push(qmd.at);
            }
        },
    );
    for at in kernels {
        // RELEASE_ENABLE of releases 1 and 2, and their addresses.
        for (enable, bit, address) in [(10, 16, 24), (11, 0, 28)] {
            words[at + enable] |= 1 << bit;
            (words[at + address], words[at + address + 1]) = (to as u32, (to >> 32) as u32);
        }
    }
}

/// A graph's words while they are written.
#[derive(Default)]
struct Writing {
    graph: cuda_graph::words::Graph,
    code: u64,
    groups: usize,
    /// The counter of the kernels before, if no step has waited for it.
    running: Option<usize>,
}

impl Writing {
    /// Successive kernels, as a group with a separate counter.
    fn kernels(&mut self, kernels: &[&crate::kernels::Launch]) -> Result<(), c_int> {
        let (first, counter) = (self.graph.kernels.len(), self.groups);
        let is_chain = kernels.len() > 1;
        let (all, launch) = (&mut self.graph.kernels, &mut self.graph.launch);
        if is_chain {
            all.push(Kernel::order(&[(first + 1, DECREMENT)]));
            launch.push(Step::Start(first, START));
        }
        launch.push(Step::Set(counter));
        launch.push(if is_chain {
            Step::Start(first + 1, PcasAction::DecrementDependence)
        } else {
            Step::Start(first, START)
        });
        for (n, kernel) in kernels.iter().enumerate() {
            let operation = kernel.kernel.operation.ok_or(NOT_SUPPORTED)?;
            let (next, is_last) = (all.len() + 1, n + 1 == kernels.len());
            all.push(Kernel {
                grid: kernel.grid,
                block: kernel.block,
                code: Some(code::address(self.code, operation)),
                parameters: kernel.arguments.clone(),
                then: if is_last { Vec::new() } else { vec![(next, SCHEDULE)] },
                waits_for: if is_chain && n == 0 { 2 } else { 0 },
                releases: is_last.then_some(counter),
                ..Kernel::default()
            });
        }
        self.groups += 1;
        self.running = Some(counter);
        Ok(())
    }

    /// By the copy engine, or the macro of the compute engine.
    fn transfer(&mut self, node: &Node) -> Result<(), c_int> {
        let length = |bytes: usize| u32::try_from(bytes).map_err(|_| INVALID_VALUE);
        let step = match *node {
            Node::Kernel(_) => return Err(NOT_SUPPORTED),
            Node::Fill { .. } => {
                let (at, value, bytes) = node.filled().ok_or(NOT_SUPPORTED)?;
                let bytes = length(bytes)?;
                match bytes {
                    1..=MOST_BY_MACRO => Step::MacroMemset { at, bytes, arguments: fills::arguments(value, bytes) },
                    // (Only whole words: one byte more would be a second transfer.)
                    _ if bytes % 4 == 0 => Step::Memset { at, value, bytes },
                    _ => return Err(NOT_SUPPORTED),
                }
            }
            // (CUDA lets the CPU copy memory that it does not know.)
            Node::Copy { to, from, .. } if [to, from].iter().any(|at| find(*at, |_, _| ()).is_none()) => {
                return Err(NOT_SUPPORTED);
            }
            Node::Copy { to, from, bytes } => Step::Memcpy { from, to, bytes: length(bytes)? },
        };
        if let Some(counter) = self.running.take() {
            self.graph.launch.push(Step::Wait(counter, 2));
        }
        self.graph.launch.push(step);
        Ok(())
    }

    /// The graph, and how many groups of kernels it has. Its launch begins when the last group of the launch before is done.
    fn finish(mut self) -> (cuda_graph::words::Graph, usize) {
        if let Some(last) = self.groups.checked_sub(1) {
            self.graph.launch.insert(0, Step::Wait(last, -2));
        }
        (self.graph, self.groups)
    }
}
