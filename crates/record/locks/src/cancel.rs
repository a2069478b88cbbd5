//! Threads that may be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS): not while they have changed something that
//! others go by and that only they can change back.

use core::ffi::c_int;

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// What to give back.
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Kind(c_int);

impl Kind {
    pub fn is_asynchronous(self) -> bool {
        self.0 == ASYNCHRONOUS
    }

    /// As it was before [`defer`]. A cancellation that came meanwhile takes effect in here: nothing in the callers may need a
    /// destructor.
    pub fn put_back(self) {
        if self.is_asynchronous() {
            // SAFETY: the thread's own kind of cancellation.
            unsafe { pthread_setcanceltype(ASYNCHRONOUS, core::ptr::null_mut()) };
        }
    }
}

/// From here on the calling thread is cancelled at cancellation points only.
pub fn defer() -> Kind {
    let mut old = DEFERRED;
    // SAFETY: the thread's own kind of cancellation.
    unsafe { pthread_setcanceltype(DEFERRED, &mut old) };
    Kind(old)
}
