//! What CUDA's launches suffer from other threads' copies and launches, and from who holds their locks: the experiments of
//! "Autonomy Today: Many Delay-Prone Black Boxes" (ECRTS 2024) on one GPU, beside copies of our own that take no lock.
//!
//! A cell is what runs beside one real-time thread, which alternates CUDA calls with our copies. The time of a
//! call of CUDA's is that of the call alone: it is asynchronous, so what is in it is libcuda's code, its locks, and the
//! scheduler, which the kernel's counters tell apart. What comes after the call until the work is done is kept beside it.
//!
//! The invariant: cells know nothing of lock policies. Those are the process's, and a process runs cells under one.

pub mod cell;
pub mod comparison;
mod crowd;
pub mod measure;
mod plan;
mod routes;
pub mod series;

pub use cell::{Cell, Set};
pub use comparison::{Against, Comparison, Effect, Row, STOCK, Tail};
pub use crowd::Loaded;
pub use measure::{Outcome, run};
pub use plan::Plan;
pub use series::{Parts, Series, Slow, Times, What};
