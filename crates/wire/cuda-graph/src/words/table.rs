//! The driver's kernels that start others by a table: CUDA uses them where more than two kernels follow one, and where kernels of several streams
//! join.

/// A table, which the upload writes ahead of all else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    pub at: u64,
    /// Each is a kernel, and the rows that follow it.
    pub rows: Vec<(usize, Vec<usize>)>,
    pub words: Vec<u32>,
}
