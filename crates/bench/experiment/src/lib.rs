//! Experiments as files: a TOML text becomes an [`Experiment`], and each mistake has a line and a hint. Its matrix expands into [`Stage`]s, each
//! with the [`Cell`]s that take turns in it.
//!
//! Pure: it does not depend on routes or GPUs, and does not measure or open anything. The code that opens routes and calls interprets their
//! texts.

mod estimate;
pub mod keys;
pub mod model;
mod processes;
mod read;
pub mod schema;
mod shipped;
pub mod stages;
mod tree;
mod values;
mod variant;
mod write;

pub use estimate::{Estimate, SAMPLE_BYTES, SAMPLE_NS, STAGE_NS, START_NS};
pub use model::{
    Addresses, Arrival, Assert, Axis, Bound, Cell, Class, Compare, Cpus, Data, Device, Experiment, Gpu, Largest,
    LoadSpec, Metric, MustReach, Observe, Process, Record, Repay, Run, Stage, SubjectSpec, Verify, What, WithinBest,
};
pub use processes::{PROCESSES, Processes};
pub use read::{read, read_stored, read_variant, variants};
pub use settings::{Error, Place};
pub use shipped::{Shipped, shipped, shipped_named};
pub use values::time_ns;
pub use variant::Variant;
