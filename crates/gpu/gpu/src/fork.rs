//! Whether this process is a fork's child: its copies of the handles belong to the parent, and it must not use them.
//!
//! The check is one load from a page that the kernel zeroes in every child (MADV_WIPEONFORK, Linux 4.14), without a
//! system call.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

const PAGE: usize = 4096;

static MARK: OnceLock<&'static AtomicU32> = OnceLock::new();

/// The number of this process, for [`forked`]. Without the kernel's help a fork is not detected.
pub fn watch() -> u32 {
    let mark = MARK.get_or_init(|| {
        let (prot, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new mapping, never unmapped, and zero, which is a valid AtomicU32.
        unsafe {
            let page = libc::mmap(std::ptr::null_mut(), PAGE, prot, flags, -1, 0);
            if page == libc::MAP_FAILED || libc::madvise(page, PAGE, libc::MADV_WIPEONFORK) != 0 {
                return Box::leak(Box::new(AtomicU32::new(0)));
            }
            &*page.cast()
        }
    });
    let process = std::process::id();
    mark.store(process, Ordering::Relaxed);
    process
}

/// True if `opener`, from [`watch`], is not this process.
#[inline]
pub fn forked(opener: u32) -> bool {
    MARK.get().is_some_and(|mark| mark.load(Ordering::Relaxed) != opener)
}
