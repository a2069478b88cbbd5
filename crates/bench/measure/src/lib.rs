//! The engine of all experiments: one stage at a time, whose cells take turns on one measuring thread, while loads run.
//!
//! Every transfer is one sample, and samples are kept before anything is averaged. Compared subjects take turns in the same run. The engine does
//! not distinguish routes and calls: each is a [`workload::Subject`]. [`calibration`] lets this engine measure where the best route changes.

pub mod calibration;
pub mod clock;
pub mod counters;
mod kernel_log;
mod load;
mod moment;
mod noise;
pub mod process;
mod seat;
pub mod stage;
mod turn;
pub mod working;
