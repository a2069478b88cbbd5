//! A libcuda in software, as a library that programs find under the name `libcuda.so.1`.
//!
//! Its memory comes from the kernel driver's files, behind which the software GPU has to stand (preloaded; real
//! hardware is refused), so that whoever watches libcuda's driver calls sees what it has. Streams are threads, which do
//! their work in order. Its kernels are Rust: a module has those of [`kernels`], whatever its text says.
//!
//! Graphs are captured from streams. The software GPU runs them: they are uploaded and launched by words in CUDA's own
//! form (crate `graph-words`) through a graphics channel, and their kernels are the software GPU's stand-ins.
//!
//! The invariant: a stream never goes past a word that it waits for, nor past a graph that is not done.

#[macro_use]
mod status;
mod calls;
mod channel;
mod code;
mod copy3d;
mod event;
mod fills;
mod graph;
mod graph_calls;
mod injection;
mod kernels;
mod memory;
mod node;
mod stream;
mod wait;
