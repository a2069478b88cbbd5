//! The card's registers, as `docs/specs/edu.rst` of QEMU has them. Registers of the DMA engine take 64 bits in one store: there is no separate
//! register for the upper half.

/// The vendor id of QEMU's own devices.
pub const VENDOR: u16 = 0x1234;
pub const DEVICE: u16 = 0x11e8;

/// Returns the complement of the stored value.
pub(crate) const LIVENESS: u64 = 0x04;
pub(crate) const SOURCE: u64 = 0x80;
pub(crate) const DESTINATION: u64 = 0x88;
pub(crate) const COUNT: u64 = 0x90;
pub(crate) const COMMAND: u64 = 0x98;
/// End of the registers.
pub(crate) const END: u64 = 0xa0;

/// Bits of the command: set until the piece is done.
pub(crate) const RUN: u64 = 1 << 0;
/// From the card to the bus.
pub(crate) const FROM_CARD: u64 = 1 << 1;

/// Address of the card's buffer, as its engine sees it.
pub(crate) const BUFFER: u64 = 0x4_0000;
/// Length of the pieces of longer transfers: as many whole words as the buffer of 4096 bytes takes. QEMU up to 7.2 requires a piece to end *before* the
/// end of the buffer, and aborts otherwise.
pub(crate) const PIECE: u64 = 4088;
