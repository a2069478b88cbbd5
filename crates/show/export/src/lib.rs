//! Recordings for other programs: one walk makes the rows, a writer for each format writes them.
//!
//! A writer gets a row at a time and keeps none of them: memory does not grow with the recording.

mod jsonl;
mod rows;

pub use jsonl::jsonl;

use schema::lines::Line;

/// Why nothing, or not all, was written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Insight(#[from] decode::InsightError),
    #[error("the output could not be written")]
    Write(#[from] std::io::Error),
}

/// A format.
trait Writer {
    /// Takes the next row.
    fn row(&mut self, row: &Line<'_>) -> Result<(), ExportError>;
}
