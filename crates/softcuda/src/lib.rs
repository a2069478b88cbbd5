//! A libcuda in software, as a library that programs find under the name `libcuda.so.1`.
//!
//! Its memory comes from the kernel driver's files, behind which the software GPU has to stand (preloaded; real hardware is
//! refused), so that whoever watches libcuda's driver calls sees what it has. Streams are threads, which do their work in order. Its kernels are
//! Rust: a module has those of [`kernels`], whatever its text says.
//!
//! The invariant: a stream never goes past a word that it waits for.

mod calls;
mod kernels;
mod memory;
mod stream;
