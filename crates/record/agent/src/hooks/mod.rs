//! The names that the program finds instead of libc's, and CUDA's calls.
//!
//! A name asks what goes on in this process, calls the real function ([`crate::process::real`]) and hands what came of it to
//! the back ends: [`crate::driver`], [`crate::trace`], [`crate::policy`], [`crate::signals`].

pub mod cuda;
mod files;
mod loading;
mod locks;
mod memory;
mod nvtx;
mod restrictions;
mod sanitizers;
mod signals;
