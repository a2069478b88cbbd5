//! The engine of all experiments: one stage at a time, whose cells take turns on one measuring thread, beside loads.
//!
//! Every transfer is one sample, and nothing is averaged before it is kept. What is compared takes turns in the same run. It
//! knows no route and no call from another: each is a [`workload::Subject`].

pub mod clock;
pub mod counters;
mod kernel_log;
mod load;
mod moment;
pub mod noise;
pub mod process;
pub mod raw;
mod seat;
pub mod stage;
mod turn;
pub mod working;
