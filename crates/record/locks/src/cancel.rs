//! Threads that may be cancelled at any instruction (PTHREAD_CANCEL_ASYNCHRONOUS). They must not be cancelled while
//! they have changed state that other threads rely on and that only they can change back.

use core::ffi::c_int;

const DEFERRED: c_int = 0;
const ASYNCHRONOUS: c_int = 1;

unsafe extern "C" {
    fn pthread_setcanceltype(kind: c_int, old: *mut c_int) -> c_int;
}

/// The former kind of cancellation, to be restored by [`Kind::put_back`].
#[derive(Clone, Copy, PartialEq, Eq)]
#[must_use]
pub struct Kind(c_int);

impl Kind {
    pub fn is_asynchronous(self) -> bool {
        self.0 == ASYNCHRONOUS
    }

    /// Restores the kind before [`defer`]. A cancellation that arrived since then takes effect in this call, so no
    /// caller's frame may need a destructor.
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
