//! Measures where the best route changes on this machine, and writes a profile.
//!
//! [`search`] decides what to measure next, and is pure: it sees only samples. It tries all routes at two sizes, then the best of each kind at a
//! coarse ladder of sizes. Then it bisects between sizes whose best routes differ, and spends the rest of its budget on close routes. [`measure`]
//! lets the engine of experiments take the samples: compared routes take turns in the same rounds, in one stage. There is no other sampling loop
//! here.

pub mod candidates;
pub mod measure;
pub mod own;
mod point;
pub mod search;

pub use candidates::{Left, candidates};
pub use measure::{Beside, Calibration, Done, Ended, Progress, run};
pub use search::{Answer, Request, Search, Settings, Sweep};
