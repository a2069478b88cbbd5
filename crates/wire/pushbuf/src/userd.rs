//! USERD: the 512 bytes through which the CPU tells the host how far a channel's GPFIFO is filled, and the host reports how far it has read.
//!
//! Byte offsets, the same from class 0xC36F to 0xCA6F. The host writes GP_GET back only from time to time, and not on every setup: use a semaphore
//! to detect finished work.

/// Bytes of one channel's USERD, which is also its alignment.
pub const SIZE: usize = 512;

pub const PUT: usize = 0x40;
pub const GET: usize = 0x44;
pub const REFERENCE: usize = 0x48;
pub const PUT_HI: usize = 0x4c;
pub const TOP_LEVEL_GET: usize = 0x58;
pub const TOP_LEVEL_GET_HI: usize = 0x5c;
pub const GET_HI: usize = 0x60;
/// Index of the next GPFIFO entry that the host reads.
pub const GP_GET: usize = 0x88;
/// Index after the last GPFIFO entry that the CPU has written.
pub const GP_PUT: usize = 0x8c;
