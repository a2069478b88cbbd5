//! Memory that the program locks with mlockall. Where a limit counts locked memory, the agent's memory is unlocked again.
//! Otherwise it would use up the program's limit, and the program could not start its threads. In a program without a
//! limit (usually a real-time program) the agent's memory stays locked, too.

use super::maps;
use super::restrictions::{may, need};
use super::sys::syscall6;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// Mappings made from now on are locked and counted.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// The program's mlockall with these flags has succeeded.
#[cold]
pub fn all(flags: c_int) {
    if !may(need::LOCKED | need::FILES) || !is_limited() {
        return;
    }
    COUNTED.store(flags & libc::MCL_FUTURE != 0, Ordering::Relaxed);
    if flags & libc::MCL_CURRENT == 0 {
        return;
    }
    let mut behind = 0;
    maps::each(&mut [0; 4096], |m, path| {
        // An unnamed mapping directly after the agent's library is the library's memory.
        if maps::is_ours(path) || (path.is_empty() && m.start == behind) {
            unlock(m.start, m.end - m.start);
            behind = m.end;
        }
        false
    });
}

/// Called after the agent has mapped memory: unlocks it where a limit counts it.
pub fn mapped(at: usize, len: usize) {
    if COUNTED.load(Ordering::Relaxed) && may(need::LOCKED) {
        unlock(at, len);
    }
}

fn unlock(at: usize, len: usize) {
    // SAFETY: the agent's own mapping, whose contents do not change.
    unsafe { syscall6(libc::SYS_munlock, at, len, 0, 0, 0, 0) };
}

/// True if there is a limit, and it applies to this process.
fn is_limited() -> bool {
    let mut limit = [libc::RLIM_INFINITY; 2];
    // SAFETY: room for a struct rlimit64; no other arguments.
    let (asked, user) = unsafe {
        let to = limit.as_mut_ptr() as usize;
        let asked = syscall6(libc::SYS_prlimit64, 0, libc::RLIMIT_MEMLOCK as usize, 0, to, 0, 0);
        (asked, syscall6(libc::SYS_geteuid, 0, 0, 0, 0, 0, 0))
    };
    asked == 0 && user != 0 && limit[0] != libc::RLIM_INFINITY
}

/// In a forked child: locks are not inherited.
pub fn renew() {
    COUNTED.store(false, Ordering::Relaxed);
}
