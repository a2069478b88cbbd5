//! The kinds of devices.

pub mod engine;
pub mod files;
pub mod nvme;
