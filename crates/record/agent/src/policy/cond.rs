//! Waits for conditions: during the wait the mutex is outside its policy, and returns to it afterwards, also when the
//! thread is cancelled in the wait.

use super::state::on;
use super::{boost, mark, mutex};
use crate::process::real::Mutex;
use core::ffi::{c_int, c_void};
use locks::leaving;

extern "C" fn converted_again(m: *mut c_void) {
    // SAFETY: the mutex of the wait, which the thread has again.
    unsafe { mutex::after_converted_wait(m.cast()) };
}

extern "C" fn boosted_again(m: *mut c_void) {
    if let Some(me) = on()
        // SAFETY: as above. (A thread that left the wait by a jump has not got it.)
        && unsafe { mark::owner(m.cast()) } == me.tid.raw()
    {
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
    let r = leaving::run(m, after, f);
    after(m.cast());
    r
}
