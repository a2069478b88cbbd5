//! What can go wrong with the card, by name.

use pcie::Address;
use std::time::Duration;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Pcie(#[from] pcie::Error),
    #[error(
        "{address} is {vendor:04x}:{device:04x}, not QEMU's edu (1234:11e8); name the function that `lspci -d 1234:11e8` shows"
    )]
    NotEdu { address: Address, vendor: u16, device: u16 },
    #[error(
        "its liveness register answers {answer:#x}, which is not the complement of the question: no edu, or its BAR is elsewhere"
    )]
    Deaf { answer: u32 },
    #[error(
        "its source register kept {kept:#x} of a 64-bit store: stores arrive in halves here, which the card does not take"
    )]
    Halves { kept: u64 },
    #[error("a transfer is in progress; poll it or wait for it before the next one")]
    Busy,
    #[error("no transfer was started; start one first")]
    Idle,
    #[error("0 bytes are no transfer")]
    Empty,
    #[error(
        "the card cannot address {bus:#x}: its mask is {mask:#x}, and it would access another address; start QEMU with \
         `edu,dma_mask=0xffffffffffffffff`"
    )]
    Mask { bus: u64, mask: u64 },
    #[error(
        "{done} of {bytes} bytes are moved after {after:?}; its DMA takes 100 ms of QEMU's virtual clock, which stops while QEMU is paused (-S)"
    )]
    Late { done: u64, bytes: u64, after: Duration },
}
