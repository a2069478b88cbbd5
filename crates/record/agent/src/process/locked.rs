//! Memory that the program locks by mlockall. Where a limit counts what is locked, ours is not: the limit is the program's, whose
//! threads could not be started otherwise. A program without a limit (a real-time program, as a rule) has ours locked, too.

use super::maps;
use super::restrictions::{may, need};
use super::sys::syscall6;
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, Ordering};

/// What is mapped from now on is locked, and counted.
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
        // What has no name and lies behind our library is its memory.
        if maps::is_ours(path) || (path.is_empty() && m.start == behind) {
            unlock(m.start, m.end - m.start);
            behind = m.end;
        }
        false
    });
}

/// The agent has mapped memory: unlocks it where a limit counts it.
pub fn mapped(at: usize, len: usize) {
    if COUNTED.load(Ordering::Relaxed) && may(need::LOCKED) {
        unlock(at, len);
    }
}

fn unlock(at: usize, len: usize) {
    // SAFETY: a mapping of our own, whose contents stay.
    unsafe { syscall6(libc::SYS_munlock, at, len, 0, 0, 0, 0) };
}

/// True if there is a limit, and the process is none that it does not hold for.
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
