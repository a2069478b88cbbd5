//! Measures where the best route changes on this machine, and makes a profile of it.
//!
//! [`search`] decides what to measure next, and is pure: it sees only samples. All routes are looked at at two sizes, the best
//! of each kind at a coarse ladder of sizes; then it bisects between sizes whose best routes differ, and spends what is left
//! of its budget where routes are close. [`measure`] has the engine of experiments take the samples: what is compared takes
//! turns in the same rounds, in one stage. There is no other sampling loop here.

pub mod candidates;
pub mod measure;
pub mod own;
mod point;
pub mod search;

pub use candidates::{Left, candidates};
pub use measure::{Beside, Calibration, Done, Ended, Progress, run};
pub use search::{Answer, Request, Search, Settings, Sweep};
