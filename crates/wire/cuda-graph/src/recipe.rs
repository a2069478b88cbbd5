//! A graph as learnt: its parts, and the address of each.

use crate::read::Channel;
use crate::step::{Memset, Placed};
use pushbuf::ops::{Copy, Fill};
use pushbuf::qmd::{DependentAction, PcasAction, Qmd};

/// Index into [`Recipe::nodes`], [`Recipe::blocks`], [`Recipe::banks`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub usize);
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockId(pub usize);
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BankId(pub usize);

/// A graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    pub channels: Vec<Channel>,
    /// Those that the streams of a launch start, in their order, then those that these start.
    pub nodes: Vec<Node>,
    pub edges: Vec<Edge>,
    pub groups: Vec<Group>,
    pub counters: Vec<Counter>,
    pub banks: Vec<Bank>,
    /// All memory that belongs to the graph, by address. None overlap.
    pub blocks: Vec<Block>,
    /// The first launch, which writes banks and QMDs.
    pub upload: Vec<Placed>,
    /// A launch after it.
    pub relaunch: Vec<Placed>,
    /// What moves from one launch to the next, in the order of `relaunch`; each with the index of its step.
    pub payloads: Vec<(usize, Payload)>,
    /// `Some` if the stream was kept busy while CUDA wrote `relaunch`, so that no wait is missing; holds the semaphores that the stream's earlier
    /// work released.
    pub held: Option<Vec<u64>>,
}

/// One piece of the graph's own memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    pub memory: Memory,
    pub address: u64,
    pub bytes: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Memory {
    Qmd(NodeId),
    Bank(BankId),
    /// Index into [`Recipe::counters`].
    Counter(usize),
    /// A semaphore that the launch releases for the channel's stream.
    Tracker,
}

impl Memory {
    pub fn name(self) -> &'static str {
        match self {
            Memory::Qmd(_) => "QMD",
            Memory::Bank(_) => "constant bank",
            Memory::Counter(_) => "counter",
            Memory::Tracker => "tracker",
        }
    }

    /// The alignment that the hardware requires: QMD pointers are shifted by 8, bank addresses by 6; semaphores of 16 bytes are aligned to 16.
    pub fn alignment(self) -> u64 {
        match self {
            Memory::Qmd(_) => 256,
            Memory::Bank(_) => 64,
            Memory::Counter(_) => 4,
            Memory::Tracker => 16,
        }
    }
}

/// One operation of a launch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    pub group: usize,
    pub work: Work,
}

// (A kernel holds its QMD. There is one node for each, and few of other kinds.)
#[allow(clippy::large_enum_variant)]
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Work {
    Kernel(Kernel),
    /// A QMD without blocks: it only starts others, or prefetches data for them.
    Order(Kernel),
    /// A macro of the engine, in the stream.
    Memset(Memset),
    /// The copy engine.
    Fill(Fill),
    Copy(Copy),
    /// Bytes that come in the stream at each launch.
    Write {
        address: u64,
        bytes: u32,
    },
}

impl Work {
    pub fn name(&self) -> &'static str {
        match self {
            Work::Kernel(_) => "kernel",
            Work::Order(_) => "order",
            Work::Memset(_) | Work::Fill(_) => "memset",
            Work::Copy(_) => "memcpy",
            Work::Write { .. } => "write",
        }
    }

    /// The QMD, of a kernel or of one that only orders.
    pub fn kernel(&self) -> Option<&Kernel> {
        match self {
            Work::Kernel(k) | Work::Order(k) => Some(k),
            _ => None,
        }
    }
}

impl Work {
    pub(crate) fn kernel_mut(&mut self) -> Option<&mut Kernel> {
        match self {
            Work::Kernel(k) | Work::Order(k) => Some(k),
            _ => None,
        }
    }
}

/// What a QMD starts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kernel {
    /// The address of the QMD.
    pub address: u64,
    /// The QMD as the upload writes it, without the fields that let kernels overlap (programmatic dependent launch): it starts when its
    /// predecessors are done.
    pub qmd: Qmd,
    /// Constant bank 0. `None` for a QMD without blocks.
    pub bank: Option<BankId>,
}

/// Constant bank 0 of a kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Bank {
    pub address: u64,
    pub bytes: u32,
    /// What the upload writes: offset and bytes of each piece, by offset.
    pub written: Vec<(u32, u32)>,
    /// The first bytes, as far as they are written without a gap. `None` where a recording left them out (`--no-data`).
    pub contents: Option<Vec<u8>>,
}

impl Bank {
    /// Bytes before the parameters: seen of driver 580.159.04 on Hopper.
    pub const HEADER: u32 = 0x210;

    /// The offset of the parameters within the bank, and how many bytes of them are written.
    pub fn parameters(&self) -> (u32, u32) {
        let end = self.written.iter().map(|(at, bytes)| at.saturating_add(*bytes)).max().unwrap_or(0);
        (Bank::HEADER, end.saturating_sub(Bank::HEADER))
    }

    /// The parameters' bytes, if they are known.
    pub fn parameter_bytes(&self) -> Option<&[u8]> {
        self.contents.as_deref()?.get(Bank::HEADER as usize..)
    }
}

/// An edge: one node must finish before another starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    pub from: NodeId,
    pub to: NodeId,
    pub how: How,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum How {
    /// Dependent `slot` of the first one's QMD.
    Dependent { slot: u32, action: DependentAction, prefetch: bool },
    /// The group of the second one acquires a counter that the first one releases.
    Counter(usize),
    /// The channel of the second node acquires a semaphore that the first node's channel releases after it.
    Tracker,
    /// The first node precedes the second in one channel's stream, within a group.
    Stream,
}

/// The steps of one channel's stream between two waits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    pub channel: usize,
    /// Steps of [`Recipe::relaunch`].
    pub steps: std::ops::Range<usize>,
    /// Semaphores that the host acquires first: the index of the step, and the reason for the wait.
    pub acquires: Vec<(usize, Wait)>,
    /// Counters that are set: index of the step and of the counter.
    pub sets: Vec<(usize, usize)>,
    /// In the order of the stream.
    pub starts: Vec<Start>,
    /// Nodes that run in this group, started by the stream or by one another.
    pub nodes: Vec<NodeId>,
    /// Releases of the channel's stream, by step.
    pub reports: Vec<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Wait {
    /// For the previous launch: the graph must not be started while it runs.
    LaunchBefore(usize),
    /// For work that was in the stream before the launch.
    Before,
    /// For a counter that an earlier group of the launch has set.
    Counter(usize),
    /// For a semaphore that another channel releases in this launch; the step that does.
    Tracker(usize),
}

/// A PCAS of the stream, or a copy, fill or write in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    pub node: NodeId,
    /// `None` for steps without a QMD.
    pub action: Option<PcasAction>,
}

/// A semaphore that the nodes at a group's end count up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Counter {
    pub address: u64,
    /// Nodes that release it, each with the index of its release and the amount that it adds.
    pub released: Vec<(NodeId, u32, u64)>,
}

/// A number that changes from launch to launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload {
    /// In the launch that was given first.
    pub first: u32,
    /// What is added for each launch; `None` if only one launch after the upload was given.
    pub step: Option<u32>,
}

/// Which of a recipe's launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Form {
    Upload,
    Relaunch,
}

impl Recipe {
    /// The graph's own block that holds an address, and the offset in it.
    pub fn block_at(&self, address: u64) -> Option<(BlockId, u64)> {
        let i = self.blocks.partition_point(|b| b.address <= address).checked_sub(1)?;
        let block = self.blocks.get(i)?;
        let offset = address - block.address;
        (offset < block.bytes).then_some((BlockId(i), offset))
    }

    pub fn block(&self, id: BlockId) -> Option<&Block> {
        self.blocks.get(id.0)
    }

    /// How many kernels a launch runs.
    pub fn kernels(&self) -> usize {
        self.nodes.iter().filter(|n| matches!(n.work, Work::Kernel(_))).count()
    }

    /// The steps of one of its launches.
    pub fn steps(&self, form: Form) -> &[Placed] {
        match form {
            Form::Upload => &self.upload,
            Form::Relaunch => &self.relaunch,
        }
    }

    /// Whether all constant banks' contents are known, so that the upload can be written again.
    pub fn has_data(&self) -> bool {
        self.banks.iter().all(|b| b.contents.is_some())
    }
}
