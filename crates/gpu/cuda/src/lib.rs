//! libcuda and libcudart, opened at run time: thin typed wrappers around the functions that doorbell calls.
//!
//! No part links against CUDA, so the same program starts on a machine without it and returns [`Unavailable`] with the
//! reason. The callers decide which calls to make, and when.
//!
//! A context must be current on the thread that uses its streams, buffers and modules ([`Context::make_current`]).
//! Otherwise CUDA returns `CUDA_ERROR_INVALID_CONTEXT`.

mod capture;
mod context;
mod error;
mod fills;
mod functions;
mod graph;
mod kernel;
mod launch;
mod library;
mod memory;
mod node;
mod pointer;
pub mod runtime;
mod small_copies;
mod staging;
mod stream;
mod words;

pub use context::{Attribute, Context, Device};
pub use error::{Error, Unavailable};
pub use fills::Fills;
pub use functions::Cuda;
pub use graph::{Graph, GraphExec};
pub use kernel::{Argument, Compiled, Function, Module};
pub use launch::Launch;
pub use memory::{Address, DeviceBuffer, DeviceSlice, PinnedBuffer, Plane, Registration};
pub use node::{Body, Inner, Node};
pub use pointer::{MemoryType, Pointer};
pub use small_copies::SmallCopies;
pub use staging::{Staged, Staging};
pub use stream::{Event, Order, Priority, Stream};
pub use words::{KeepCurrent, Words};

pub type Result<T> = std::result::Result<T, Error>;
