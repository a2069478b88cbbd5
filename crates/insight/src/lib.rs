//! From tape to tables: what the facts of a recording mean.
//!
//! [`Recording`] opens a tape, [`walk`] goes through it once, in order and with bounded memory, and [`Summary`] is the
//! tally of such a walk. The driver calls rebuild the objects that the program made, the submissions go through their
//! channel's decoder. Nothing is formatted here.
//!
//! Invariant: no tape makes this panic, whatever its bytes; what is damaged or missing is counted and named.

pub mod channels;
pub mod locks;
pub mod merge;
mod order;
mod place;
pub mod qmds;
mod recording;
pub mod rows;
pub mod summary;
pub mod tally;
pub mod walk;

pub use place::Place;
pub use recording::{InsightError, Recording};
pub use summary::Summary;
