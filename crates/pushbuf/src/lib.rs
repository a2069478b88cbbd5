//! The words of NVIDIA's command stream, both ways: bytes in, values out, and back.
//!
//! Every other crate that writes or reads commands does it through here, so that encoder and decoder come from one set of class tables.
//! The invariant: no input panics, nothing is dropped silently (what is not understood comes out raw), and neither `encode` nor `decode` allocates.
#![cfg_attr(not(test), no_std)]

extern crate alloc;

pub mod class;
pub mod decode;
pub mod encode;
pub mod gpfifo;
pub mod header;
pub mod ops;
pub mod qmd;
pub mod semaphore;
pub mod text;
pub mod userd;
