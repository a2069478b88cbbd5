//! Devices on the bus in the place of `copy`'s device ([`copy::Machine::with_card`]): paths to the host (A), through the host to a GPU
//! (B) and straight to a GPU (C), by the device's own DMA.
//!
//! A [`Engine`] is what a driver of a device can do, and [`OnBus`] makes a card of it. The invariant: what an engine is told lies in memory
//! that is kept until the engine is done with it, also where who started it gives up before.

mod arena;
pub mod emulated;
mod engine;
mod on_bus;
pub mod xdma;

pub use emulated::Emulated;
pub use engine::{Direction, Engine};
pub use on_bus::OnBus;
