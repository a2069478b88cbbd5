//! Synthetic CUDA graphs in the form that CUDA 13.0 writes on an H200 (driver 580.159.04). It makes the words that upload a graph and start
//! it the first time, and the words of each later launch.
//!
//! For tests, and for a libcuda in software. The caller describes the kernels ([`Kernel`]), the steps of a launch in order ([`Step`]) and all
//! addresses ([`Places`]). [`Graph::upload`] and [`Graph::again`] return the words.
//!
//! It imitates what CUDA was seen to do:
//!
//! - The upload writes each kernel's constant bank 0 and QMD inline. It arms QMDs that others start by INVALIDATE_PREFETCH_COPY_SCHEDULE: they have
//!   REQUIRE_SCHEDULING_PCAS, so that does not run them. The head of a chain is first, then the others from the last kernel to the second. Constant
//!   caches are invalidated in front of the first that runs.
//! - A chain of two and more begins with a QMD without blocks, which takes one from the dependence counter of its head; DECREMENT_DEPENDENCE from the
//!   stream takes the other.
//! - Each kernel fetches bank 0 of the next when it has run, which it has as bank 5.
//! - Each group has a counter. Launch `k` sets it to `4k + 1` inline, the last kernel adds 1, and later work waits for `4k + 2`.
//! - Up to 4 KiB are filled by the engine's macro 0, with a LAUNCH_DMA and two arguments of the macro. The order of the arguments and the unit of
//!   the count were not seen, so they are parameters here ([`MacroForm`]).
//! - The launch ends with the tracker of its channel, a semaphore that counts launches.
//!
//! The invariant: the words depend only on the graph, and every address in them is in [`Places`] or in a step.
//!
//! Invalid graphs can be made: tests of code that reads or runs graphs need them too. A graph that cannot be encoded causes a panic.

mod fans;
mod fill;
mod graph;
mod kernel;
mod places;
mod table;

pub use fill::{MOST_BY_MACRO, MacroCount, MacroForm, fill};
pub use graph::{Graph, Step, words};
pub use kernel::{DECREMENT, Kernel, SCHEDULE};
pub use places::Places;
pub use table::Table;

/// The class of the channels that carry such words.
pub const CHANNEL_CLASS: u32 = 0xc86f;
/// The classes of engines on such a channel: compute on [`COMPUTE`], copies on [`COPY`].
pub const ENGINES: [u32; 2] = [0xcbc0, 0xc8b5];
pub use pushbuf::encode::subchannel::{COMPUTE, COPY};
