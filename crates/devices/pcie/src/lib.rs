//! PCI functions driven from user space: BARs, and memory that the function's own DMA may reach.
//!
//! A driver gets a [`Function`] and needs no other knowledge of the machine. `sysfs` opens functions of a host without an IOMMU, `vfio` those
//! behind an IOMMU, `qemu` those of a QEMU without a guest, and `model` those that a test implements. The invariant: a bus address that a driver
//! may write into a descriptor comes from a [`Memory`], and stays valid as long as that [`Memory`] lives.

mod address;
mod bar;
pub mod bars;
pub mod bind;
mod confidential;
mod error;
#[cfg(test)]
mod fixture;
mod function;
mod identity;
pub mod list;
mod mapped;
mod memory;
pub mod model;
mod open;
pub mod peers;
pub mod qemu;
mod restorer;
pub mod sysfs;
mod tree;
pub mod vfio;

pub use address::{Address, NoAddress};
pub use bar::{Bar, Registers};
pub use error::Error;
pub use function::{Function, Identity};
pub use mapped::memory_file;
pub use memory::{Memory, Pages, Peer, Place, Run};
pub use open::{open, unguarded};
pub use tree::Tree;
