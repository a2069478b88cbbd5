//! Whether one run is slower than another, cell by cell, and which of many machines is an outlier. Pure: samples by rounds in,
//! verdicts out.
//!
//! The invariant: rounds are compared with rounds at the same speed of the host, and intervals and error rates are those of
//! rounds, never of samples. A host that flips between two speeds slows all samples of a round, and a run may have more slow
//! rounds than another for no reason of its own.

mod difference;
mod family;
mod machines;
mod runs;
mod speeds;

pub use difference::{Difference, Matched, Missing, Side};
pub use family::{ERROR, holm};
pub use machines::{FEWEST_MACHINES, Machine, Machines, Standing, compare_machines};
pub use runs::{Cell, Change, Comparison, Key, Request, Row, Run, Verdict, compare};
pub use speeds::{LEAST_APART, MOST_APART, Speeds};
