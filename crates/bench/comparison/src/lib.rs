//! Whether one run is slower than another, cell by cell, and which of many machines is an outlier. Pure: samples by rounds in, verdicts out.
//!
//! The invariant: no figure is divided by anything, processes are the unit (`statistics`), and an undecided comparison is never equal.

mod difference;
mod family;
mod machines;
mod runs;

pub use difference::{Between, Difference, Missing, SHOW_BETWEEN, Side};
pub use family::{ERROR, holm};
pub use machines::{FEWEST_MACHINES, Machine, Machines, Standing, compare_machines};
pub use runs::{Change, Comparison, Key, Limits, Overall, Request, Row, Run, Verdict, compare};
