//! Recordings for other programs: one walk makes the rows, a writer for each format writes them.
//!
//! A writer gets one row at a time and keeps none: memory does not grow with the recording. (With ranges and times of the GPU's work, those times are kept,
//! to a limit.)

mod about;
mod jsonl;
mod kineto;
mod lanes;
mod parquet;
mod perfetto;
mod rows;

pub use about::About;
pub use jsonl::jsonl;
pub use kineto::kineto;
pub use parquet::parquet;
pub use perfetto::perfetto;
pub use rows::each as each_row;

use schema::lines::Line;

/// Why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Insight(#[from] decode::InsightError),
    #[error(transparent)]
    Write(#[from] std::io::Error),
}

/// Takes the rows: a format, or a picture.
pub trait Writer {
    /// Whether rows of submissions have their decoded commands, and rows of symbols follow at the end: those need a look into each mapped file.
    fn wants_details(&self) -> bool {
        true
    }

    /// Whether rows of ranges have the GPU's work in them: that takes another walk.
    fn wants_range_work(&self) -> bool {
        true
    }

    /// Takes the next row.
    fn row(&mut self, row: &Line<'_>) -> Result<(), ExportError>;
}
