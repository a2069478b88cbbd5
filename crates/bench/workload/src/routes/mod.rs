//! One file for each executor. Each defines its name and how it is opened ([`Entry`]), and the registry lists it.
//!
//! To add one:
//! 1. A file here that implements [`Executor`](crate::Executor) for every direction that it serves, and returns the reason for each other direction.
//! 2. Its `mod` line below, and a line in the registry (`registry.rs`).
//! 3. Its name in the lists of `tests/routes/main.rs`, and of `tests/quiet_routes.rs` if it is doorbell's own. One that needs kernels is tested in `tests/kernels.rs`.
//! 4. Its place in the order of preference (`gpu/submit/src/route_choice/decide.rs`), and a line in `docs/reference/routes.md`.
//! 5. `doorbell bench` compares its bytes on a real GPU, before it measures.
//!
//! [`Entry`]: entry::Entry

pub(crate) mod aperture;
pub(crate) mod auto;
pub(crate) mod bar1;
pub(crate) mod batch;
mod call;
pub(crate) mod ce;
pub(crate) mod channel;
pub(crate) mod cuda;
pub(crate) mod cudart;
pub(crate) mod dma;
pub(crate) mod entry;
pub(crate) mod inline;
pub(crate) mod polling;
mod ptx;
mod registry;
pub(crate) mod sm;
pub(crate) mod split;
pub(crate) mod staged;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod waiting;

pub use entry::{Found, Opened};
pub use registry::{Listed, about, executor, names, open, parse};
