//! The rows of a recording, from which the tables, the JSON and the exports are made.
//!
//! Plain data with its JSON names. `decode` and `lock-analysis` fill the rows, `terminal` and `export` write them;
//! `docs/reference/json.md` is generated from the comments here (`tests/documented`). This crate computes no values; [`names`] writes those of
//! rows for people.
//!
//! Invariant: a key keeps its name and meaning within one version of its schema.

pub mod channel;
pub mod clock;
pub mod copy_names;
pub mod cuda_calls;
pub mod diff;
pub mod document;
pub mod driver_calls;
pub mod graphs;
pub mod happened;
pub mod histogram;
pub mod holds;
pub mod kernel_runs;
pub mod kernel_times;
pub mod kernels;
pub mod lines;
pub mod lock_uses;
pub mod locks;
pub mod lost;
pub mod names;
pub mod now;
pub mod now_ranks;
pub mod objects;
pub mod operations;
pub mod place;
pub mod processes;
pub mod python;
pub mod ranges;
pub mod rank;
pub mod slow_calls;
pub mod streams;
pub mod submissions;
pub mod summary;
pub mod symbols;
pub mod top;
mod wide;

pub use clock::Clock;
pub use document::Document;
pub use place::Place;
pub use summary::Summary;
