//! Runs. The folder of one has the experiment (`experiment.toml`), the finished parts (`parts/`), their samples (`samples/`, Parquet) and their
//! summary (`run.json`). [`runner`] starts the processes that write the parts, [`soak`] leads one process for hours, and [`data_file`] is a run that is
//! small enough for a repository.
//!
//! The invariant: every file is complete or absent, so a run that was killed at any moment leaves only complete parts, and continues after them.

mod child;
pub mod commands;
pub mod data_file;
pub mod delay;
mod error;
pub mod folder;
pub mod json;
mod lock;
pub mod part;
pub mod run;
pub mod runner;
pub mod samples;
pub mod soak;
pub mod versioned;

pub use error::Error;
pub use folder::{Folder, PLOTS, clear, is_free, remove_folder};
pub use lock::Lock;
pub use part::{Compared, Explained, Loaded, Noise, Part, PartCell, Sample, Status, Tally};
pub use run::{Context, Interrupted, Run};
pub use samples::Samples;
