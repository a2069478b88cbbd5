//! Touches memory before a measurement needs it. A virtual machine's host may provide memory only when it is first touched, or again after the host
//! took it back (free page reporting does so after seconds). Then the first touch of a page also costs the host's work, and the first allocation in
//! a measurement pays for it. In one such machine (example `warm`, 1 GiB) the first touch of 4 KiB took 13.9 us, later ones 0.4 to 0.6 us. After a
//! pause of one second it was 1.0 us, after three seconds 12.1 us, after ten 19.3 us. So it is done right before memory is needed.

use crate::files::Files;
use crate::host::memory;
use std::io;
use std::time::{Duration, Instant};

/// The cost of touching.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warmed {
    /// Less than requested if the machine has less.
    pub bytes: usize,
    pub time: Duration,
}

/// At most this percentage of the available memory is touched: the rest is left to other programs.
const MOST: u64 = 75;

/// Allocates so much memory from the kernel, writes to each page of it, and frees it: the kernel then has pages that the host has provided. The
/// kernel usually hands out the most recently freed pages first, but the next allocation is not guaranteed to get these pages.
///
/// # Errors
/// The kernel refuses the memory, or does not report how much there is.
pub fn warm_memory(bytes: usize) -> io::Result<Warmed> {
    let text = Files::of_this_machine().text("/proc/meminfo").map_err(io::Error::other)?;
    let available = memory::kilobytes(&text, "MemAvailable", "/proc/meminfo").map_err(io::Error::other)?;
    let most = usize::try_from(available.saturating_mul(1024) / 100 * MOST).unwrap_or(usize::MAX);
    let begun = Instant::now();
    let region = Region::map(bytes.min(most))?;
    region.touch();
    let bytes = region.bytes;
    drop(region);
    Ok(Warmed { bytes, time: begun.elapsed() })
}

/// Pages that only this code uses.
struct Region {
    at: *mut u8,
    bytes: usize,
}

impl Region {
    /// Whole pages; no mapping for 0 bytes.
    fn map(bytes: usize) -> io::Result<Region> {
        let bytes = bytes & !(page() - 1);
        if bytes == 0 {
            return Ok(Region { at: std::ptr::null_mut(), bytes: 0 });
        }
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping at an address that the kernel chooses; it replaces no other.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, access, flags, -1, 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // A fault for each 2 MiB costs a fraction of one for each 4 KiB. If huge pages are off, this has no effect. SAFETY: advice about this
        // value's own mapping.
        unsafe { libc::madvise(at, bytes, libc::MADV_HUGEPAGE) };
        Ok(Region { at: at.cast(), bytes })
    }

    /// Writes to each page: reads would all use the shared page of zeros.
    fn touch(&self) {
        for offset in (0..self.bytes).step_by(page()) {
            // SAFETY: within the mapping, which is writable and this value's own; volatile, so that the compiler keeps the store.
            unsafe { self.at.add(offset).write_volatile(1) };
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.bytes > 0 {
            // SAFETY: this value's own mapping, without remaining uses.
            unsafe { libc::munmap(self.at.cast(), self.bytes) };
        }
    }
}

fn page() -> usize {
    // SAFETY: takes and returns numbers.
    match unsafe { libc::sysconf(libc::_SC_PAGESIZE) } {
        n if n > 0 && (n as usize).is_power_of_two() => n as usize,
        _ => 4096,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_is_touched() {
        let before = Instant::now();
        let region = Region::map(4 << 20).unwrap();
        region.touch();
        let resident = (0..region.bytes).step_by(page()).all(|at| {
            let mut state = 0u8;
            // SAFETY: one page of this test's own mapping, and one byte for its state.
            unsafe { libc::mincore(region.at.add(at).cast(), page(), &mut state) == 0 && state & 1 == 1 }
        });
        assert!(resident, "after {:?}", before.elapsed());
    }

    #[test]
    fn as_much_as_was_asked_for_and_no_more_than_there_is() {
        assert_eq!(warm_memory(0).unwrap().bytes, 0);
        assert_eq!(warm_memory((3 << 20) + 5).unwrap().bytes, 3 << 20);
    }
}
