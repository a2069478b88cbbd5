//! Tables for people and JSON for programs, of documents: rows of a recording, a run, a comparison.
//!
//! No analysis is called from here, and nothing is computed except how a number is written. Text goes to any [`std::io::Write`], so tests and files see what a terminal sees. A
//! reader that stops reading (a closed pipe) is not an error.

pub mod calls;
pub mod cell;
pub mod channels;
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
pub mod now;
pub mod objects;
mod processes;
pub mod python;
pub mod ranges;
pub mod rank;
pub mod rows;
pub mod run;
mod saved;
pub mod slow_calls;
pub mod soak;
pub mod submissions;
pub mod summary;
pub mod table;

pub use numbers as number;
