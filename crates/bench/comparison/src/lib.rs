//! Whether one run is slower than another, cell by cell, and which of many machines is an outlier. Pure: samples by rounds in, verdicts out.
//!
//! The invariant: all rounds of both runs count, and intervals and error rates are those of repeats and rounds, never of samples (`statistics`). If
//! one run had more rounds of one speed, those rounds never decide a verdict; they turn each verdict except `slower` into `unclear`.

mod conditions;
mod difference;
mod family;
mod machines;
mod runs;
mod speeds;

pub use conditions::Conditions;
pub use difference::{Difference, Missing, Side};
pub use family::{ERROR, holm};
pub use machines::{FEWEST_MACHINES, Machine, Machines, Standing, compare_machines};
pub use runs::{Cell, Change, Comparison, Key, Request, Row, Run, Verdict, compare};
pub use speeds::{LEAST_APART, Speeds};
