//! A libcuda in software, as a library that programs find under the name `libcuda.so.1`.
//!
//! Its memory is from the kernel driver's files, which must be the software GPU's (preloaded; real hardware is refused), so a watcher of
//! libcuda's driver calls sees its memory. Streams are threads, which do their work in order. Its kernels are Rust: a module has those of
//! [`kernels`], whatever its text contains.
//!
//! Graphs are captured from streams. The software GPU runs them: they are uploaded and launched by words in CUDA's own
//! form (`cuda_graph::words`) through a graphics channel, and their kernels are the software GPU's stand-ins.
//!
//! The invariant: a stream never passes a word that it waits for, nor a graph that is not complete.

#[macro_use]
mod status;
mod calls;
mod channel;
mod code;
mod context;
mod copy3d;
mod event;
mod fills;
mod graph;
mod graph_calls;
mod green;
mod injection;
mod jit;
mod kernels;
mod library;
mod lock;
mod memory;
mod node;
mod stream;
mod virtual_memory;
mod wait;
