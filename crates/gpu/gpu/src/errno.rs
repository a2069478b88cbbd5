//! errno, saved during work between a program's call and its return.

use std::ffi::c_int;

/// errno, restored on drop: the program sees only the driver's value.
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
