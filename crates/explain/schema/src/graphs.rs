//! CUDA graphs: one row for each that was launched more than once.

use crate::operations::Shape;
use serde::Serialize;

/// A graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphRow {
    /// Submission and time of the first launch after the upload, numbered as in `--submissions`.
    pub submission: u64,
    pub seconds: Option<f64>,
    pub process: u32,
    pub pid: i32,
    pub tid: i32,
    pub slot: u32,
    pub generation: u32,
    /// Submission that uploads it; `None` if that is not on the tape.
    pub uploaded_by: Option<u64>,
    pub launches: u64,
    /// The words that the upload sent; `None` if they are not on the tape.
    pub upload: Option<SentRow>,
    /// The words that the first launch after it sent.
    pub launch: SentRow,
    /// Why it is not understood, if so.
    pub refused: Option<String>,
    pub recipe: Option<RecipeRow>,
}

/// The amount that one launch sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SentRow {
    /// Submissions that are known to belong to it.
    pub submissions: usize,
    /// Words of all of them.
    pub words: usize,
}

/// The parts of a graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecipeRow {
    /// Kernels of a launch.
    pub kernels: usize,
    /// The contents of constant banks are on the tape.
    pub has_data: bool,
    /// Words of the upload and of a launch, stored without repetitions.
    pub upload_words: Option<usize>,
    /// Words of a launch after it.
    pub relaunch_words: Option<usize>,
    /// References, and how many of them point to memory that is not the graph's.
    pub references: usize,
    /// Those of them that point to memory that is not the graph's own.
    pub foreign: usize,
    pub nodes: Vec<NodeRow>,
    pub edges: Vec<EdgeRow>,
    pub groups: Vec<GroupRow>,
    pub counters: Vec<CounterRow>,
}

/// A node, by its index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    /// `kernel`, `order` (a QMD without blocks), `memset`, `memcpy` or `write` (bytes in the stream).
    pub kind: &'static str,
    /// Index of its group.
    pub group: usize,
    /// Address of its QMD, or of the memory that it writes.
    pub address: u64,
    /// Bytes that it writes; `None` for a kernel.
    pub bytes: Option<u64>,
    /// The word that a memset fills with, if it is on the tape.
    pub value: Option<u32>,
    pub shape: Option<Shape>,
    /// The kernel, if it was launched outside of graphs, too: the name of its symbol, and the name in C++ syntax.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// Address and size of constant bank 0, and size of the parameters in it, in bytes.
    pub bank: Option<u64>,
    pub bank_bytes: Option<u32>,
    /// Bytes that the upload writes behind the bank's header.
    pub parameter_bytes: Option<u32>,
}

/// A node that precedes another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgeRow {
    pub from: usize,
    pub to: usize,
    /// `dependent` (a pointer of the QMD), `counter`, `tracker` (of another channel) or `stream`.
    pub by: &'static str,
    /// The action on the second node's QMD.
    pub action: Option<&'static str>,
}

/// The work of one channel between two waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupRow {
    /// Index of its channel among the graph's.
    pub channel: usize,
    /// `launch_before`, `counter` or `tracker`.
    pub waits: Vec<&'static str>,
    pub starts: Vec<StartRow>,
    /// Nodes that run in the group.
    pub nodes: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StartRow {
    pub node: usize,
    /// The PCAS action; `null` for a node without QMD.
    pub action: Option<&'static str>,
}

/// A semaphore that nodes count up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterRow {
    pub address: u64,
    /// Nodes that release it.
    pub nodes: Vec<usize>,
    /// How much each launch adds to it, if two launches are on the tape.
    pub step: Option<u32>,
}
