//! Files to GPU memory and back, with many blocks pending at a time: file, io_uring, pinned slot, copy engine, GPU memory.
//!
//! [`Queue`] is the engine of one thread: a ring with one registered file and registered buffers (its slots), and a separate
//! channel that copies out of the same slots. The functions [`read`] and [`write`] run queues over a whole file. The function
//! [`load_safetensors`] places the tensors of a model. [`cufile`] does the same with NVIDIA's library, where it is installed.
//!
//! The invariant: bytes that are reported as arrived have all arrived. A block counts when its copy's ticket is done. A file that
//! ends early, a drive that fails and a channel that dies are errors with the offset. A written file gets its name only when all
//! of it is on the disk. No allocation happens between [`Queue::submit`] and [`Queue::reap`].

pub mod cufile;
mod error;
mod extents;
mod io;
mod memory;
mod options;
mod queue;
mod source;
mod tensors;
mod verify;
mod whole;

pub use error::{Errno, Error};
pub use extents::{Extent, Extents, PIECES};
pub use io::Backend;
pub use memory::Target;
pub use options::{Options, Way};
pub use queue::{Counts, Direction, Done, Queue};
pub use source::{Buffered, Source};
pub use tensors::{ALIGNMENT, Loaded, Model, Shard, Tensor, load, load_safetensors, plan_safetensors};
pub use verify::verify;
pub use whole::{Report, bare, read, write};
