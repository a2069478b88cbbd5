//! One file an executor. Each says what it is called and how it is opened ([`Entry`]), and the registry lists it.
//!
//! [`Entry`]: crate::entry::Entry

mod answered;
pub(crate) mod aperture;
pub(crate) mod auto;
pub(crate) mod bar1;
pub(crate) mod batch;
pub(crate) mod ce;
pub(crate) mod channel;
pub(crate) mod cuda;
pub(crate) mod cudart;
pub(crate) mod dma;
pub(crate) mod inline;
#[cfg(test)]
mod interpreter;
mod launched;
mod long;
pub(crate) mod message;
mod polling;
mod ptx;
pub(crate) mod resident;
pub(crate) mod sm;
pub(crate) mod split;
pub(crate) mod staged;
pub(crate) mod zerocopy;
