//! CUDA calls by the line of Python that makes them.

use serde::Serialize;

/// The Python part of a recording.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Python {
    /// Python's frames were requested.
    pub recorded: bool,
    /// The interpreters that made calls.
    pub interpreters: Vec<InterpreterRow>,
    /// By line, the longest total time first.
    pub lines: Vec<LineRow>,
    /// Calls by threads that ran no Python code, or made while Python was not read.
    pub without: u64,
    /// Calls whose stack is not in the recording.
    pub lost: u64,
    /// Calls of lines beyond the limit, which are counted together.
    pub others: u64,
}

/// An interpreter of a process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct InterpreterRow {
    /// Index of the process image.
    pub process: u32,
    pub pid: i32,
    /// As `sys.version` begins, for example `3.11.2`.
    pub version: String,
    /// Its frames were read.
    pub read: bool,
    /// Its state, in words.
    pub why: &'static str,
}

/// The innermost line of the user's code that made calls; a library's line if there is no other.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LineRow {
    #[serde(flatten)]
    pub at: FrameRow,
    /// Calls from there.
    pub calls: u64,
    /// Calls that returned an error (`not ready` is none).
    pub failed: u64,
    /// Launches of kernels and of graphs among the calls.
    pub launches: u64,
    /// Bytes that they copied, set or allocated.
    pub bytes: u64,
    pub ns: u64,
    pub mean_ns: u64,
    pub p50_ns: u64,
    pub p99_ns: u64,
    pub max_ns: u64,
    /// When the longest began, s.
    pub max_at: f64,
    /// The functions, the most frequent first.
    pub functions: Vec<FunctionRow>,
    /// Number of different stacks that lead there.
    pub stacks: u64,
    /// The most frequent of them, the innermost frame first.
    pub stack: Vec<FrameRow>,
    /// That stack has more frames further out.
    pub deeper: bool,
}

/// The line of the user's code that did this most often.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MainLine {
    #[serde(flatten)]
    pub at: FrameRow,
    /// How many times it did.
    pub times: u64,
    /// Number of other lines that did it.
    pub others: u64,
}

/// How often a line called a CUDA function.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FunctionRow {
    pub name: String,
    pub calls: u64,
}

/// A line of Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize)]
pub struct FrameRow {
    pub file: String,
    /// Absent if it is not known.
    pub line: Option<u32>,
    /// Its qualified name; with Python before 3.11 its plain name.
    pub function: String,
}

impl FrameRow {
    /// `train.py:12`
    pub fn place(&self) -> String {
        let line = self.line.map_or("?".into(), |line| line.to_string());
        format!("{}:{line}", self.file)
    }
}
