//! The functions that the program finds instead of libc's, and CUDA's calls.
//!
//! Each function checks what is active in this process, calls the real function ([`crate::process::real`]) and passes the
//! result to the back ends: [`crate::driver`], [`crate::trace`], [`crate::policy`], [`crate::signals`].

pub mod cuda;
mod files;
mod loading;
mod locks;
mod memory;
mod nvtx;
mod restrictions;
mod sanitizers;
mod signals;
