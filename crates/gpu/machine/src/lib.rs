//! A GPU with CUDA's context and doorbell's channels in its address space ([`Machine`]), and CUDA's memory for those channels ([`pin`]).
//!
//! `gpu` needs no libcuda, and `cuda` no channel; this crate has both. The invariant: a pin names exactly the range that CUDA has allocated, no
//! byte more, and ends when the memory is freed. What this machine lacks is [`Unavailable`], with the reason.

mod error;
mod machine;
mod pin;

pub use error::{Error, PinError, Unavailable};
pub use machine::{Machine, Where};
pub use pin::{Pinned, pin, pin_in};
