//! The data file of a run: one small JSON file from which every figure of the run can be computed again.
//!
//! It holds the experiment, the machine, and for each cell the samples of each round as a histogram. Pages with tables keep it next to them
//! (`docs/reference/data-files.md`).
//!
//! The invariant: figures come from the same code as those of `run.json` ([`statistics`]), with the same rounds and repeats. Where
//! all values are stored, they are equal; otherwise each value is within [`series::ERROR`] of the sample's.

mod cell;
mod file;
mod model;
mod rows;
pub mod series;
mod take;

pub use cell::{Measured, Value};
pub use file::{Error, crc32, read_text, to_bytes};
pub use model::{COMMANDS, Cell, Digest, Load, Origin, SamplesFile, Stage};
pub use rows::Rows;
pub use series::Series;
pub use take::{of_folder, samples_folder};
