//! What differs, and why: whether one run is slower than another, cell by cell, and which of many machines, or of a job's ranks, is an outlier. `load` and
//! `between` read files, [`attribution`] recordings; all else is pure: samples or totals in, verdicts out.
//!
//! The invariant: no figure is divided by anything, processes are the unit (`statistics`), and an undecided comparison is never equal.

pub mod attribution;
mod between;
mod difference;
mod error;
mod family;
mod folders;
mod load;
mod machines;
pub mod ranks;
mod runs;

pub use between::keep;
pub use difference::{Between, Difference, Missing, SHOW_BETWEEN, Side};
pub use error::Error;
pub use family::{ERROR, holm};
pub use folders::{FAIL_ABOVE, Heading, JUDGED, compare_nodes, compare_runs};
pub use load::{Loaded, names};
pub use machines::{FEWEST_MACHINES, Machine, Machines, Standing, compare_machines};
pub use runs::{Cell, Change, Comparison, Key, Limits, Overall, Request, Row, Verdict, compare};
