//! Drivers in user space for PCI devices that move bytes themselves, over [`pcie::Function`]: drives ([`nvme`]), FPGA cards ([`xdma`]), and QEMU's
//! card with a DMA engine ([`edu`]).
//!
//! The invariant of each: every address in a command or a descriptor comes from a [`pcie::Memory`], which stays until the device no longer uses it.

pub mod edu;
pub mod nvme;
pub mod xdma;
