//! Devices on the bus as `workload`'s device ([`crate::Machine::with_card`]): paths to the host (A), through the host to a GPU (B) and straight
//! to a GPU (C), by the device's own DMA.
//!
//! An [`Engine`] is a device driver's interface, and [`OnBus`] makes a card of it. The invariant: memory that an engine was given is kept
//! until the engine is done with it, even if the caller gives up earlier.

mod arena;
pub mod emulated;
mod engine;
mod on_bus;
pub mod xdma;

pub use emulated::Emulated;
pub use engine::{Direction, Engine};
pub use on_bus::OnBus;
