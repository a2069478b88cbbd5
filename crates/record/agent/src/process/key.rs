//! A key of thread-specific data for the agent, which the program does not notice: the program's own keys get the same
//! numbers as without the agent.

use super::real;
use core::ffi::c_void;

/// Values of keys below this are stored in the thread itself; for others libc allocates.
const INLINE: usize = 32;

/// The last key whose value is stored in the thread itself. `None` if the program already has it. Called by the
/// constructor: creating a key allocates nothing.
pub fn create(destructor: unsafe extern "C" fn(*mut c_void)) -> Option<libc::pthread_key_t> {
    let mut keys = [0; INLINE];
    let mut n = 0;
    let mut last = None;
    // (libc always returns the lowest free key.)
    for key in &mut keys {
        // SAFETY: the agent's own keys.
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
