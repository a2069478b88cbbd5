//! Waits for conditions: the mutex leaves its policy with the wait and comes back to it, also when the thread is
//! cancelled in it.

use super::state::on;
use super::{boost, mutex};
use crate::process::real::Mutex;
use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

/// `struct _pthread_cleanup_buffer` (pthread.h): four words. libc runs it when the frame that it lies in is unwound.
type Buffer = [usize; 4];

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Buffer, routine: extern "C" fn(*mut c_void), with: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

extern "C" fn converted_again(m: *mut c_void) {
    // SAFETY: the mutex of the wait, which the thread has again.
    unsafe { mutex::after_converted_wait(m.cast()) };
}

extern "C" fn boosted_again(m: *mut c_void) {
    if let Some(me) = on() {
        boost::has_again(me, m as usize);
    }
}

/// Waits with `f`.
///
/// # Safety
/// `m` is the mutex that `f` releases and takes again.
#[inline(always)]
pub unsafe fn wait(m: Mutex, site: usize, f: impl FnOnce() -> c_int) -> c_int {
    let Some(me) = on() else { return f() };
    // SAFETY: the caller's.
    let after = match unsafe { mutex::before_wait(me, m, site) } {
        mutex::Waits::Plain => return f(),
        mutex::Waits::Converted => converted_again,
        mutex::Waits::Boosted => boosted_again,
    };
    with_cleanup(after, m, f)
}

#[inline(never)]
fn with_cleanup(after: extern "C" fn(*mut c_void), m: Mutex, f: impl FnOnce() -> c_int) -> c_int {
    let mut buffer = MaybeUninit::<Buffer>::uninit();
    // SAFETY: the buffer stays where it is until it is popped, or libc runs its routine when this frame is left.
    unsafe {
        _pthread_cleanup_push(buffer.as_mut_ptr(), after, m.cast());
        let r = f();
        _pthread_cleanup_pop(buffer.as_mut_ptr(), 1);
        r
    }
}
