//! From tape to tables: what the events of a recording mean.
//!
//! [`Recording`] opens a tape. [`walk`] reads it once, in order and with bounded memory. [`summary()`] counts what such
//! a walk finds. The driver calls rebuild the objects that the program made; each submission is decoded by its channel's
//! decoder. The results are rows of crate `schema`. This crate formats no
//! text but that of commands.
//!
//! Invariant: no tape makes this panic, whatever its bytes. Damaged or missing parts are counted and named.

pub mod ahead;
mod awaited;
mod channels;
mod checkpoint;
mod checkpoints;
mod clock_error;
pub mod complete;
pub mod driver_call_counts;
mod driver_calls;
mod during;
mod event_time;
pub mod events;
mod filter;
pub mod gaps;
mod gathering;
mod gpu_times;
pub mod graphs;
pub mod histogram;
mod inline_writes;
mod kernel;
pub mod kernel_times;
pub mod kernels;
mod largest;
mod legs;
pub mod lists;
pub mod merge;
mod opened;
mod order;
mod pauses;
mod place;
pub mod present;
mod processes;
pub mod python;
pub mod python_frames;
pub mod qmds;
pub mod ranges;
mod recording;
pub mod rows;
mod span;
mod state;
mod stored;
pub mod streams;
mod summary;
pub mod tally;
pub mod walk;

pub use awaited::{Awaited, awaited};
pub use clock_error::clock_error_ns;
pub use driver_calls::driver_call;
pub use during::During;
pub use inline_writes::LaunchWrites;
pub use kernel::{Codes, Kernel};
pub use largest::Largest;
pub use opened::{RangeNames, during};
pub use recording::{Image, InsightError, Recording, Source};
pub use stored::{store_summary, store_summary_and_places, store_summary_unless};
pub use summary::{summary, summary_of_walk};
