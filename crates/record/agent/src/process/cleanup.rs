//! What is to be done if a thread is cancelled in a call: `pthread_cleanup_push` and `pthread_cleanup_pop` as functions.

use core::ffi::{c_int, c_void};
use core::mem::MaybeUninit;

/// `struct _pthread_cleanup_buffer` (pthread.h): four words. libc runs it when the frame that it lies in is unwound.
type Buffer = [usize; 4];

unsafe extern "C" {
    fn _pthread_cleanup_push(buffer: *mut Buffer, routine: extern "C" fn(*mut c_void), with: *mut c_void);
    fn _pthread_cleanup_pop(buffer: *mut Buffer, execute: c_int);
}

/// When `after` is to run.
#[derive(Clone, Copy)]
pub enum If {
    Cancelled = 0,
    CancelledOrDone = 1,
}

/// Calls `f`, and `after` with `with` if the thread is cancelled meanwhile, or in any case. Nothing in `f` may need a destructor.
#[inline(never)]
pub fn with<R>(after: extern "C" fn(*mut c_void), with: *mut c_void, when: If, f: impl FnOnce() -> R) -> R {
    let mut buffer = MaybeUninit::<Buffer>::uninit();
    // SAFETY: the buffer stays where it is until it is popped, or libc runs its routine when this frame is left.
    unsafe {
        _pthread_cleanup_push(buffer.as_mut_ptr(), after, with);
        let r = f();
        _pthread_cleanup_pop(buffer.as_mut_ptr(), when as c_int);
        r
    }
}
