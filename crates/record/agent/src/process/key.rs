//! A key of thread-specific data for the agent, which the program does not notice: its own keys have the numbers that they have
//! without us.

use super::real;
use core::ffi::c_void;

/// Keys below have their values in the thread itself; for others libc allocates.
const INLINE: usize = 32;

/// The last key whose value lies in the thread itself. `None` if the program has it already. From the constructor: creating a
/// key allocates nothing.
pub fn create(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<libc::pthread_key_t> {
    let mut keys = [0; INLINE];
    let mut n = 0;
    let mut last = None;
    // (Keys are given out from the lowest that is free.)
    for key in &mut keys {
        // SAFETY: keys of our own.
        if unsafe { real::pthread_key_create(key, destructor as *const c_void) } != 0 {
            break;
        }
        n += 1;
        if *key as usize >= INLINE - 1 {
            last = Some(*key).filter(|k| (*k as usize) < INLINE);
            break;
        }
    }
    for key in keys.iter().take(n).filter(|k| Some(**k) != last) {
        // SAFETY: created just now.
        unsafe { libc::pthread_key_delete(*key) };
    }
    last
}
