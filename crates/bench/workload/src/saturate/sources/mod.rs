//! The kinds of devices.

pub mod engine;
pub mod nvme;
