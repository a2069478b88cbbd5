//! CUDA graphs: one row for each that was launched more than once.

use crate::operations::Shape;
use serde::Serialize;

/// A graph.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GraphRow {
    /// Submission of the first launch after the upload, as in `--submissions`, and when.
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
    /// What the upload sent; `None` if it is not on the tape.
    pub upload: Option<SentRow>,
    /// What the first launch after it sent.
    pub launch: SentRow,
    /// Why it is not understood.
    pub refused: Option<String>,
    pub recipe: Option<RecipeRow>,
}

/// How much one launch sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct SentRow {
    /// Submissions that are known to belong to it.
    pub submissions: usize,
    pub words: usize,
}

/// What a graph is made of.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecipeRow {
    pub kernels: usize,
    /// The contents of constant banks are on the tape.
    pub has_data: bool,
    /// Words of the upload and of a launch, written down without what repeats.
    pub upload_words: Option<usize>,
    pub relaunch_words: Option<usize>,
    /// References, and how many of them point to memory that is not the graph's.
    pub references: usize,
    pub foreign: usize,
    pub nodes: Vec<NodeRow>,
    pub edges: Vec<EdgeRow>,
    pub groups: Vec<GroupRow>,
    pub counters: Vec<CounterRow>,
}

/// A node, by its index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    pub kind: &'static str,
    pub group: usize,
    /// Address of its QMD, or of what it writes.
    pub address: u64,
    /// Bytes that it writes; `None` for a kernel.
    pub bytes: Option<u64>,
    /// The word that a memset fills with, where that is on the tape.
    pub value: Option<u32>,
    pub shape: Option<Shape>,
    /// The kernel, where it was launched outside of graphs, too: the name of its symbol, and that as C++ writes it.
    pub symbol: Option<String>,
    pub name: Option<String>,
    /// Address and bytes of constant bank 0, and bytes of the parameters in it.
    pub bank: Option<u64>,
    pub bank_bytes: Option<u32>,
    pub parameter_bytes: Option<u32>,
}

/// A node that goes before another.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EdgeRow {
    pub from: usize,
    pub to: usize,
    pub by: &'static str,
    /// What is done to the second one's QMD.
    pub action: Option<&'static str>,
}

/// What one channel does between two waits.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct GroupRow {
    /// Index of its channel among the graph's.
    pub channel: usize,
    pub waits: Vec<&'static str>,
    pub starts: Vec<StartRow>,
    pub nodes: usize,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct StartRow {
    pub node: usize,
    pub action: Option<&'static str>,
}

/// A semaphore that nodes count up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CounterRow {
    pub address: u64,
    /// Nodes that release it.
    pub nodes: Vec<usize>,
    /// What it is higher by after each launch, if two launches are on the tape.
    pub step: Option<u32>,
}
