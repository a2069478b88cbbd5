//! From a faulting x86-64 instruction to the store or load that it is.
//!
//! A doorbell page without access rights turns every ring into a SIGSEGV. This crate reads the faulting instruction, returns the value and address
//! of its store or load, carries it out on the saved registers, and decides which sites can be rewritten into a jump so that they never fault again
//! ([`shape`]).
//!
//! It runs inside signal handlers of other people's programs: no allocation, no lock, no panic, little stack. Instructions that it does not know
//! for certain return `None`.
#![no_std]

mod decode;
mod registers;
pub mod shape;
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
pub mod ucontext;

pub use decode::{Access, Extend, Kind, MAX_INSTRUCTION, Mem, Operand, decode};
pub use registers::{Registers, State, advance, effective_address, load_into, store_value, store_value_wide};
