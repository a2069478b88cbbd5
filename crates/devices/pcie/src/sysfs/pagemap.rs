//! Physical addresses of this process's memory (Documentation/admin-guide/mm/pagemap.rst): 8 bytes for each page, with the frame's
//! number in bits 0 to 54 and "present" in bit 63.

use crate::error::Error;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

const PAGE: u64 = 4096;
const PRESENT: u64 = 1 << 63;
const FRAME: u64 = (1 << 55) - 1;

/// The physical address of the page at `at`.
pub(super) fn physical(at: usize) -> Result<u64, Error> {
    let failed = |why| Error::system("read /proc/self/pagemap, which has physical addresses", why);
    let file = File::open("/proc/self/pagemap").map_err(failed)?;
    let mut entry = [0; 8];
    file.read_exact_at(&mut entry, at as u64 / PAGE * 8).map_err(failed)?;
    frame(u64::from_le_bytes(entry)).map_err(failed)
}

fn frame(entry: u64) -> io::Result<u64> {
    match (entry & PRESENT != 0, entry & FRAME) {
        (false, _) => Err(io::Error::other("the page is not in memory")),
        // The kernel returns zeros to processes without the permission.
        (true, 0) => {
            Err(io::Error::other("the kernel hides them: this needs CAP_SYS_ADMIN (root, outside of a container)"))
        }
        (true, frame) => Ok(frame * PAGE),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_frames_are_no_addresses() {
        assert_eq!(frame(PRESENT | 0x1234).unwrap(), 0x1234 << 12);
        assert_eq!(frame(PRESENT | 1 << 61 | 0x1234).unwrap(), 0x1234 << 12);
        assert!(frame(PRESENT).unwrap_err().to_string().contains("CAP_SYS_ADMIN"));
        assert!(frame(0x1234).is_err());
    }
}
