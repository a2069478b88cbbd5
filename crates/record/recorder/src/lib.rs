//! The process beside the program: it owns the rings, drains them to the tape, and notices that the program died.
//!
//! The program only ever touches memory that is already there; every byte to disk goes through here. A `kill -9` of the
//! program loses nothing that was rung (the rings are ours), a full disk stops the recording and not the program, and if
//! this process dies the program goes on unrecorded.
//!
//! From the top: `record` starts the program, `followed` goes round all its processes, `image` drains the rings of one, `output` and `writing` write the
//! chunks, `end` says how the program ended. A flight recorder keeps the newest part in `last` and `kept` (`look` divides events), and `saving` writes
//! files of it.
//! Meanwhile `control` is asked by others what goes on, and `wishes` does what they want.

mod beside;
mod clock;
mod closing;
mod compact;
pub mod control;
pub mod counters;
mod end;
mod ends;
mod faults;
mod followed;
mod gpu_clock;
mod image;
mod kept;
mod kernel_watch;
mod last;
mod look;
mod machine;
mod medians;
mod memory;
mod output;
mod packing;
pub mod part;
mod parts;
mod perf;
mod place;
mod policies;
mod preload;
mod processes;
mod program;
mod record;
mod region;
mod rights;
mod saving;
mod sched;
mod scrubbing;
mod shared_session;
mod signals;
mod steal;
mod switches;
#[cfg(test)]
#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;
mod triggers;
mod usage;
mod wishes;
mod writing;

pub use last::{Last, Span};
pub use machine::{Machine, driver_version, machine};
pub use medians::KERNELS as KERNELS_WITH_MEDIAN;
pub use parts::Rotation;
pub use policies::{PolicyOptions, run_with_policies};
pub use program::{Program, ProgramError};
pub use record::{Capture, Locks, Options, Outcome, PartsWritten, Range, RecordError, Tap, record};
pub use saving::{SavedFile, Saves, Tell};
pub use triggers::{KernelCounts, Trigger, When, Why};
