//! The recorder process: it owns the rings, drains them to the tape, and notices that the program died.
//!
//! The program only touches memory that already exists. Every byte to disk is written here. A `kill -9` of the program
//! loses no doorbell that was rung, because the rings belong to the recorder. A full disk stops the recording and not
//! the program. If the recorder dies, the program continues without a recording.
//!
//! From top to bottom: `record` starts the program, `followed` visits all its processes (`claims` finds them, `lineage` names them), `image` drains the
//! rings of one, `output` and `writing` write chunks, and `end` describes how the program ended.
//!
//! A flight recorder keeps the newest part in `last` and `kept` (`look` divides events). `flight` has how files of it come about. In parallel, `control`
//! takes requests of other processes, and `wishes` carries them out.

mod beside;
mod claims;
mod clock;
mod closing;
mod compact;
pub mod control;
pub mod counters;
mod divided;
mod end;
mod ends;
mod faults;
mod flight;
mod followed;
mod gpu_clock;
mod hangs;
mod image;
mod inspect;
mod kept;
mod kernel_log;
mod kernel_watch;
mod last;
mod lateness;
mod limits;
mod lineage;
mod live;
mod lock_word;
mod looks;
mod machine;
mod medians;
mod memory;
mod orphans;
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
mod signalled;
mod signals;
mod steal;
mod stream_work;
mod switches;
#[cfg(test)]
#[path = "../../../explain/decode/tests/synthetic/mod.rs"]
mod synthetic;
mod triggers;
mod usage;
mod wishes;
mod writing;

pub use inspect::maps;
pub use kernel_log::KernelLog;
pub use last::{Last, Span};
pub use machine::{Machine, driver_version, machine};
pub use medians::KERNELS as KERNELS_WITH_MEDIAN;
pub use memory::memfd;
pub use parts::Rotation;
pub use policies::{PolicyOptions, run_with_policies};
pub use preload::run_alone;
pub use program::{Program, ProgramError};
pub use record::{Capture, Locks, Options, Outcome, PartsWritten, Range, RecordError, Tap, record, same_file};
pub use saving::{SavedFile, Saves, Tell};
pub use triggers::{KernelCounts, Trigger, When, Why};
