//! Experiments: what to run in, samples out.
//!
//! Every transfer is one sample, nothing is averaged before it is kept, and a percentile that needs more samples than there
//! are is left out. What is compared takes turns in the same run. Knows no route from another: a route is a name and the
//! trait [`copy::Route`].

pub mod bandwidth;
pub mod beside;
pub mod cells;
pub mod clock;
pub mod counters;
pub mod interference;
pub mod launch;
mod load;
mod moment;
pub mod noise;
pub mod raw;
pub mod routes;
pub mod samples;
mod seat;
pub mod sizes;
pub mod stage;
pub mod statistics;
mod turn;
pub mod worst;

pub use copy::Difference;
