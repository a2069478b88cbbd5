//! `doorbell bench`: how long transfers take, every one of them a sample.

pub mod child;
mod experiment;
pub mod machine;

pub use experiment::{Args, read_named, surroundings};
