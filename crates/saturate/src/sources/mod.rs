//! The kinds of devices.

pub mod engine;
