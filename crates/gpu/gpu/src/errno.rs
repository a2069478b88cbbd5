//! errno, kept over what is done between a program's call and its return.

use std::ffi::c_int;

/// errno, put back when dropped: who calls the driver sees only what the driver left.
pub(crate) struct Errno(c_int);

impl Errno {
    pub fn keep() -> Errno {
        // SAFETY: this thread's errno.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}
