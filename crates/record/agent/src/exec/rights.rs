//! Whether a program could still open the recorder's files after an exec of this process.
//!
//! They are opened by a path under /proc/RECORDER/fd. The kernel allows that to a process with the recorder's user and
//! capabilities, or with CAP_SYS_PTRACE (ptrace(2), "Ptrace access mode checking"). An exec changes capabilities: a
//! program run by root gets those of its bounding set and its inheritable ones, any other its ambient ones
//! (capabilities(7)). So a process that may open the files now may start a program that may not, and that program's
//! loader would complain.
//!
//! Invariant: as for [`super::target`].

use crate::process::restrictions::{may, need};
use crate::process::sys::syscall6;
use core::sync::atomic::Ordering;
use tape::session::LEAST_ROOM;
use tape::starts::Starts;

const CAP_SYS_PTRACE: u32 = 19;
const SECBIT_NOROOT: isize = 1;

fn prctl(what: i32, a: usize, b: usize) -> isize {
    // SAFETY: these calls only read, and take only numbers.
    unsafe { syscall6(libc::SYS_prctl, what as usize, a, b, 0, 0, 0) }
}

/// This process's inheritable capabilities; 0 if the kernel refuses.
fn inheritable() -> u64 {
    // _LINUX_CAPABILITY_VERSION_3, and this process.
    let head = [0x2008_0522u32, 0];
    let mut data = [0u32; 6];
    // SAFETY: a header and two structs of three words each, as in that version.
    let r = unsafe { syscall6(libc::SYS_capget, head.as_ptr() as usize, data.as_mut_ptr() as usize, 0, 0, 0, 0) };
    if r == 0 { u64::from(data[2]) | u64::from(data[5]) << 32 } else { 0 }
}

/// True if the rights that a program has after its exec are enough to open the recorder's files.
pub fn last_over_exec(starts: &Starts) -> bool {
    if !may(need::SCHEDULING) {
        // A process that may not make these calls cannot have dropped many rights since.
        return true;
    }
    // SAFETY: no arguments.
    let user = unsafe { syscall6(libc::SYS_geteuid, 0, 0, 0, 0, 0, 0) };
    let is_root = user == 0 && prctl(libc::PR_GET_SECUREBITS, 0, 0) & SECBIT_NOROOT == 0;
    let inherited = if is_root { inheritable() } else { 0 };
    let gets = |cap: u32| {
        if is_root {
            inherited >> cap & 1 != 0 || prctl(libc::PR_CAPBSET_READ, cap as usize, 0) == 1
        } else {
            prctl(libc::PR_CAP_AMBIENT, libc::PR_CAP_AMBIENT_IS_SET as usize, cap as usize) == 1
        }
    };
    if gets(CAP_SYS_PTRACE) {
        return true;
    }
    let needed = starts.capabilities.load(Ordering::Relaxed);
    starts.user.load(Ordering::Relaxed) as isize == user && (0..64).filter(|cap| needed >> cap & 1 != 0).all(gets)
}

/// True if the limits that a program has after its exec leave room for the agent.
pub fn has_room() -> bool {
    if !may(need::LOCKED) {
        return true;
    }
    [libc::RLIMIT_DATA, libc::RLIMIT_AS].into_iter().all(|which| {
        let mut limit = [libc::RLIM_INFINITY; 2];
        // SAFETY: room for a struct rlimit64; no other arguments.
        unsafe { syscall6(libc::SYS_prlimit64, 0, which as usize, 0, limit.as_mut_ptr() as usize, 0, 0) };
        limit[0] >= LEAST_ROOM
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs in a child, which may make changes that cannot be undone. Returns the result of `ask` after `then`.
    fn in_child(then: impl FnOnce(), ask: impl FnOnce() -> bool) -> bool {
        // SAFETY: the child only makes system calls, and exits.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                then();
                libc::_exit(i32::from(ask()));
            }
            let mut status = 0;
            assert_eq!(libc::waitpid(child, &mut status, 0), child);
            libc::WEXITSTATUS(status) == 1
        }
    }

    #[test]
    fn rights_that_a_program_loses_at_its_exec_are_not_counted_on() {
        // SAFETY: numbers; no arguments.
        let (s, root): (Starts, bool) = unsafe { (core::mem::zeroed(), libc::geteuid() == 0) };
        // SAFETY: no arguments.
        s.user.store(unsafe { libc::geteuid() }, Ordering::Relaxed);
        s.capabilities.store(if root { 0xff } else { 0 }, Ordering::Relaxed);
        assert!(last_over_exec(&s));
        if !root || prctl(libc::PR_CAPBSET_READ, 8, 0) != 1 {
            test_support::skip_part!("not root with CAP_SETPCAP: no rights to lose");
            return;
        }
        let without = |caps: &[u32]| {
            let give_up = || caps.iter().for_each(|c| assert_eq!(prctl(libc::PR_CAPBSET_DROP, *c as usize, 0), 0));
            in_child(give_up, || last_over_exec(&s))
        };
        // Either is enough: the capability to read any process, or all capabilities of the recorder.
        assert!(without(&[CAP_SYS_PTRACE]) && without(&[3]));
        assert!(!without(&[CAP_SYS_PTRACE, 3]));
        assert!(without(&[CAP_SYS_PTRACE, 12]));
        s.user.fetch_add(1, Ordering::Relaxed);
        assert!(!without(&[CAP_SYS_PTRACE]));
    }

    #[test]
    fn a_limit_below_what_the_agent_takes_is_seen() {
        assert!(has_room());
        let small = libc::rlimit { rlim_cur: LEAST_ROOM - 1, rlim_max: libc::RLIM_INFINITY };
        for which in [libc::RLIMIT_DATA, libc::RLIMIT_AS] {
            // SAFETY: a struct to read.
            let limit = || assert_eq!(unsafe { libc::setrlimit(which, &small) }, 0);
            assert!(!in_child(limit, has_room));
        }
    }
}
