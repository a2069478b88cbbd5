//! Tables for people and JSON for programs, of what `decode` found and `measure` measured.
//!
//! Nothing is computed here except how a number is written. Text goes to any [`std::io::Write`], so tests and files see what a terminal sees. A
//! reader that stops reading (a closed pipe) is not an error.

pub mod calls;
pub mod cell;
pub mod channels;
#[cfg(target_arch = "x86_64")]
pub mod checks;
pub mod comparison;
pub mod copies;
pub mod diff;
pub mod driver_calls;
pub mod foreign;
pub mod gpu_times;
pub mod graphs;
pub mod json;
pub mod kernel_times;
pub mod kernels;
pub mod launches;
pub mod locks;
#[cfg(target_arch = "x86_64")]
pub mod lost;
#[cfg(target_arch = "x86_64")]
pub mod now;
pub mod objects;
#[cfg(target_arch = "x86_64")]
mod processes;
pub mod python;
pub mod ranges;
pub mod rank;
#[cfg(target_arch = "x86_64")]
pub mod rows;
pub mod run;
mod saved;
pub mod slow_calls;
pub mod soak;
pub mod submissions;
pub mod summary;
pub mod symbols;
pub mod table;

pub use numbers as number;

/// Why nothing, or not everything, was written.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    #[error(transparent)]
    Insight(#[from] decode::InsightError),
    /// `locks` or `calls`.
    #[error("{path}: {what} were not recorded")]
    NotRecorded { path: std::path::PathBuf, what: &'static str },
    /// The output needs all operations of locks.
    #[error(
        "{path}: {what} needs every operation of locks, and this recording has waits only (`record --locks=waits`)"
    )]
    WaitsOnly { path: std::path::PathBuf, what: &'static str },
    #[error("the output could not be written")]
    Write(#[from] std::io::Error),
}
