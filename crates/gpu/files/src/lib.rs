//! Files to GPU memory and back: file, io_uring, pinned slot, copy engine, GPU memory, many blocks under way at a time.
//!
//! [`Queue`] is the engine of one thread: a ring with one registered file and registered buffers (its slots), and a channel of our
//! own that copies out of the same slots. [`read`] and [`write`] drive queues over a whole file; [`load_safetensors`] places the
//! tensors of a model. [`cufile`] is NVIDIA's library for the same, where it is installed.
//!
//! The invariant: what is said to have arrived has arrived whole. A block counts when its copy's ticket is done; a file that ends
//! early, a drive that fails and a channel that dies are errors with the offset; a written file has its name only when all of it is
//! on the disk. Between [`Queue::submit`] and [`Queue::reap`] nothing is allocated.

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
