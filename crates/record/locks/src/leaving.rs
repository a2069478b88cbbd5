//! Threads that leave a wait and do not return to it: by `siglongjmp` out of a signal handler (undefined in POSIX, but
//! glibc's locks tolerate it), or because they are cancelled or end.
//!
//! libc keeps a list of routines for the frames of a thread (`_pthread_cleanup_push` in pthread.h). It runs those of
//! the frames that a jump or the thread's end leaves. A jump that stays within a handler leaves no frame of this module.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

/// `struct _pthread_cleanup_buffer` (pthread.h): four words.
type Buffer = [usize; 4];

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Buffer, routine: extern "C" fn(*mut c_void), with: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

/// Runs `f`. If the thread leaves `f` without returning from it, `left` is called with `what`: in a signal handler, or
/// while the thread ends.
#[inline(never)]
pub fn run<T, R>(what: *const T, left: extern "C" fn(*mut c_void), f: impl FnOnce() -> R) -> R {
    let mut buffer = MaybeUninit::<Buffer>::uninit();
    // SAFETY: the buffer does not move until it is popped, or until libc runs its routine when this frame is left.
    unsafe {
        _pthread_cleanup_push(buffer.as_mut_ptr(), left, what.cast_mut().cast());
        let result = f();
        _pthread_cleanup_pop(buffer.as_mut_ptr(), 0);
        result
    }
}
