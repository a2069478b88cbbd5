//! The folder of one run: what was asked (`experiment.toml`), the parts that are finished (`parts/`), their samples
//! (`samples/`, Parquet) and what they say together (`run.json`).
//!
//! The invariant: every file appears whole or not at all, so a run that was killed at any moment leaves only whole parts, and
//! goes on behind them.

pub mod commands;
pub mod delay;
mod error;
pub mod folder;
pub mod json;
mod lock;
pub mod part;
pub mod run;
pub mod samples;
pub mod versioned;

pub use error::Error;
pub use folder::{Folder, clear, is_free, remove_folder};
pub use lock::Lock;
pub use part::{Compared, Explained, Loaded, Noise, Part, PartCell, Sample, Status, Tally};
pub use run::{Context, Interrupted, Run};
pub use samples::Samples;
