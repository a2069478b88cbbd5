//! What the driver reports about itself and its card before there is a client.

use super::{Machine, bar1};
use crate::MARKER;
use rm::abi::{CardInfo, CheckVersion, Plain};

/// RM's id of the one GPU.
pub const GPU_ID: u32 = 0x100;
/// GPU-... as the driver prints it: recognisable, and no real card's.
pub const UUID: [u8; 16] = *b"doorbell-softgpu";
/// Bus address of the registers.
pub const REGISTERS: u64 = 0xf000_0000;
/// H100 SXM5 80 GB.
const DEVICE_ID: u16 = 0x2330;

impl Machine {
    /// CARD_INFO: an array of the length in the request.
    ///
    /// # Safety
    /// `arg` points to `size` bytes.
    pub(super) unsafe fn card_info(&self, arg: *mut u8, size: usize) -> i32 {
        const ONE: usize = size_of::<CardInfo>();
        if size < ONE || !size.is_multiple_of(ONE) {
            return libc::EINVAL;
        }
        let mut card = CardInfo::zeroed();
        card.valid = 1;
        card.bus = 1;
        card.vendor_id = 0x10de;
        card.device_id = DEVICE_ID;
        card.gpu_id = GPU_ID;
        card.reg_address = REGISTERS;
        card.reg_size = 16 << 20;
        (card.fb_address, card.fb_size) = match &self.video {
            Some(pool) => (pool.bus(), pool.length()),
            None => (bar1::ADDRESS, bar1::SIZE),
        };
        card.dev_name[..MARKER.len()].copy_from_slice(MARKER);
        // SAFETY: `size` bytes, of which the first struct is written and the rest cleared.
        unsafe {
            arg.write_bytes(0, size);
            arg.cast::<CardInfo>().write_unaligned(card);
        }
        0
    }
}

/// CHECK_VERSION_STR: queries are answered, another version is not recognised.
pub(super) fn check_version(version: &str, call: &mut CheckVersion) -> i32 {
    let same = call.text() == Some(version);
    let recognized = call.cmd == CheckVersion::QUERY || call.cmd == CheckVersion::RELAXED || same;
    call.version = [0; 64];
    call.version[..version.len()].copy_from_slice(version.as_bytes());
    call.reply = if recognized { CheckVersion::RECOGNIZED } else { CheckVersion::UNRECOGNIZED };
    if recognized { 0 } else { libc::EINVAL }
}
