//! The card's registers, as `docs/specs/edu.rst` of QEMU has them. Those of the DMA engine take 64 bits in one store: the upper half
//! has no register of its own.

/// Of QEMU's own devices.
pub const VENDOR: u16 = 0x1234;
pub const DEVICE: u16 = 0x11e8;

/// Answers with the complement of what was stored.
pub(crate) const LIVENESS: u64 = 0x04;
pub(crate) const SOURCE: u64 = 0x80;
pub(crate) const DESTINATION: u64 = 0x88;
pub(crate) const COUNT: u64 = 0x90;
pub(crate) const COMMAND: u64 = 0x98;
/// Behind the last.
pub(crate) const END: u64 = 0xa0;

/// Bits of the command: set until the piece is done.
pub(crate) const RUN: u64 = 1 << 0;
/// From the card to the bus.
pub(crate) const FROM_CARD: u64 = 1 << 1;

/// Where the engine finds the card's buffer.
pub(crate) const BUFFER: u64 = 0x4_0000;
/// Bytes of the card's buffer that can be used. It has one more, but QEMU up to 7.2 wants the end of a piece *before* the end of the
/// buffer, and ends itself where it is not.
pub const CAPACITY: u64 = 4095;
/// Of longer transfers: as many whole words as fit.
pub(crate) const PIECE: u64 = 4088;
