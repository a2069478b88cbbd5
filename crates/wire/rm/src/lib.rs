//! The kernel driver's ABI, and the facts that its calls reveal.
//!
//! [`abi`] holds numbers and layouts by driver version; [`class`], [`status`] and [`control`] hold their names. [`call`] turns a recorded ioctl
//! into a value, and [`fact`] gives its meaning for objects and memory. With `std` there are the `driver`, through libc's exported functions, and
//! the `graph` of objects that a program's calls, issued or read from a tape, have made. Nothing here depends on CUDA, on the contents of channels,
//! or on files.
#![cfg_attr(not(any(feature = "std", test)), no_std)]

pub mod abi;
pub mod call;
pub mod check;
pub mod class;
pub mod control;
#[cfg(feature = "std")]
pub mod driver;
pub mod fact;
#[cfg(feature = "std")]
pub mod graph;
pub mod place;
pub mod status;
