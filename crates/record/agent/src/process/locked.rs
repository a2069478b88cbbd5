//! Memory that the program locks with mlockall. Where a limit counts locked memory, the agent's memory is unlocked again.
//! Otherwise it would use up the program's limit, and the program could not start its threads. In a program without a
//! limit (usually a real-time program) the agent's memory stays locked, too.

use super::maps;
use super::restrictions::{may, need};
use super::sys::{self, syscall6};
use core::ffi::c_int;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Mappings made from now on are locked and counted.
static COUNTED: AtomicBool = AtomicBool::new(false);

/// Addresses and lengths of what [`zeroed`] has mapped; 0 where free.
static ZEROED: [[AtomicUsize; 2]; 5] = [const { [const { AtomicUsize::new(0) }; 2] }; 5];

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
    for [at, len] in &ZEROED {
        let len = len.load(Ordering::Acquire);
        if len != 0 {
            unlock(at.load(Ordering::Relaxed), len);
        }
    }
}

/// New memory for a table that most programs do not need, never unmapped. Tables in the library itself count in every program: Linux
/// refuses mlockall if all that is mapped exceeds the limit (mm/mlock.c).
#[cold]
pub fn zeroed(len: usize) -> Option<usize> {
    let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping.
    let at = unsafe { sys::mmap(sys::AWAY, len, protection, flags, -1, 0) }?;
    let free = |at_now: &AtomicUsize| at_now.compare_exchange(0, at, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if let Some([_, length]) = ZEROED.iter().find(|[at_now, _]| free(at_now)) {
        // ORDERING: whoever reads the length reads the address that was stored before it.
        length.store(len, Ordering::Release);
    }
    mapped(at, len);
    Some(at)
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
