//! What the program forbids itself: system calls (seccomp) and reading the time stamp counter (PR_SET_TSC).
//!
//! A filter may end the process for a call that the program itself would never make. So the agent evaluates a filter
//! before it is installed, for each call that the agent may make later. It then makes no call that the filter does not
//! allow: threads continue without a ring, and their events are counted as lost.
//!
//! Invariant: [`may`] is a load; nothing here makes a system call.

use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// System calls that the agent may need after the start: bits.
pub mod need {
    /// Mapping memory: a thread's ring.
    pub const MEMORY: u32 = 1;
    /// Opening and reading files of /proc, and the recorder's memory.
    pub const FILES: u32 = 2;
    /// Reading and setting policies and priorities; a thread's name.
    pub const SCHEDULING: u32 = 4;
    pub const SLEEP: u32 = 8;
    pub const FUTEX: u32 = 16;
    /// Reading numbers of threads and processes: at the start only.
    pub const NUMBERS: u32 = 32;
    /// What recording and following need.
    pub const ALL: u32 = 63;
    /// Where the program locks its memory, the agent's memory is unlocked again. Only that needs it.
    pub const LOCKED: u32 = 64;
    /// Reading memory that another thread may unmap: the build ids of files. Without it they are not recorded.
    pub const PEEK: u32 = 128;
    /// Reserving a part of the recorder's file, where its file system may have no room.
    pub const RESERVE: u32 = 256;
    /// The NUMA node of a thread's new pages. Without it no pinned memory is made.
    pub const NODE: u32 = 512;
    /// A socket to doorbell's compiler. Without it code is compiled by the program's own call.
    pub const SOCKET: u32 = 1024;
    pub const EVERYTHING: u32 = ALL | LOCKED | PEEK | RESERVE | NODE | SOCKET;
}

/// The system calls of each need.
const CALLS: [(u32, &[i64]); 11] = [
    (need::MEMORY, &[libc::SYS_mmap, libc::SYS_munmap, libc::SYS_mremap, libc::SYS_madvise, libc::SYS_mprotect]),
    (need::FILES, &[libc::SYS_openat, libc::SYS_read, libc::SYS_readlink, libc::SYS_close]),
    (
        need::SCHEDULING,
        &[
            libc::SYS_sched_getscheduler,
            libc::SYS_sched_getparam,
            libc::SYS_sched_getattr,
            libc::SYS_sched_setattr,
            libc::SYS_sched_getaffinity,
            libc::SYS_getpriority,
            libc::SYS_prctl,
        ],
    ),
    (need::SLEEP, &[libc::SYS_nanosleep]),
    (need::FUTEX, &[libc::SYS_futex]),
    (need::NUMBERS, &[libc::SYS_gettid, libc::SYS_getpid, libc::SYS_newfstatat]),
    (need::LOCKED, &[libc::SYS_munlock, libc::SYS_prlimit64, libc::SYS_geteuid]),
    (need::PEEK, &[libc::SYS_process_vm_readv]),
    (need::RESERVE, &[libc::SYS_fallocate]),
    (need::NODE, &[libc::SYS_get_mempolicy, libc::SYS_getcpu]),
    (need::SOCKET, &[libc::SYS_socket, libc::SYS_connect, libc::SYS_sendto, libc::SYS_recvfrom, libc::SYS_close]),
];

static FORBIDDEN: AtomicU32 = AtomicU32::new(0);
static NO_TSC: AtomicBool = AtomicBool::new(false);

/// True if the agent may make the calls of all these [`need`]s.
#[inline]
pub fn may(needs: u32) -> bool {
    FORBIDDEN.load(Ordering::Relaxed) & needs == 0
}

/// A filter that forbids these [`need`]s is about to be installed. Returns what was forbidden before.
pub fn forbid(needs: u32) -> u32 {
    FORBIDDEN.fetch_or(needs, Ordering::Relaxed)
}

/// The filter was not installed.
pub fn put_back(before: u32) {
    FORBIDDEN.store(before, Ordering::Relaxed);
}

/// True after a thread of the program was forbidden to read the time stamp counter.
#[inline(always)]
pub fn no_tsc() -> bool {
    NO_TSC.load(Ordering::Relaxed)
}

pub fn forbid_tsc() {
    NO_TSC.store(true, Ordering::Relaxed);
    locks::deadline::ask_the_kernel_for_the_time();
}

/// The [`need`]s for which a filter (`struct sock_filter`s) does not allow every call.
pub fn forbidden_by(filter: &[libc::sock_filter]) -> u32 {
    let allows = |call: i64| {
        // (Filters look at the family of a socket.)
        let arguments = if call == libc::SYS_socket { SOCKET } else { [0; 2] };
        let action = evaluate(filter, call as u32, arguments).map(|answer| answer & libc::SECCOMP_RET_ACTION_FULL);
        matches!(action, Some(libc::SECCOMP_RET_ALLOW | libc::SECCOMP_RET_LOG))
    };
    CALLS.iter().filter(|(_, calls)| !calls.iter().all(|&c| allows(c))).fold(0, |all, (bit, _)| all | bit)
}

/// Family and kind of the socket that the agent makes.
pub const SOCKET: [u32; 2] = [libc::AF_UNIX as u32, (libc::SOCK_STREAM | libc::SOCK_CLOEXEC) as u32];

/// The filter's answer to a call with these first arguments; the others are 0. `None`: the kernel would reject the filter.
fn evaluate(filter: &[libc::sock_filter], call: u32, [first, second]: [u32; 2]) -> Option<u32> {
    /// AUDIT_ARCH_X86_64
    const ARCH: u32 = 0xc000_003e;
    /// `struct seccomp_data`: number, architecture, instruction pointer, six arguments.
    const BYTES: u32 = 64;
    let data = |at: u32| match at {
        0 => Some(call),
        4 => Some(ARCH),
        16 => Some(first),
        24 => Some(second),
        8..BYTES if at.is_multiple_of(4) => Some(0),
        _ => None,
    };
    let (mut a, mut x, mut memory) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    // (Jumps go forward only, so this ends.)
    loop {
        let i = filter.get(at)?;
        at += 1;
        let k = i.k;
        let source = if i.code & 8 != 0 { x } else { k };
        match i.code & 7 {
            // BPF_LD and BPF_LDX: an absolute word of the data, its length, a constant, a word of the memory.
            0 | 1 => {
                let value = match i.code & 0xe0 {
                    0x20 if i.code & 7 == 0 => data(k)?,
                    0x80 => BYTES,
                    0x00 => k,
                    0x60 => *memory.get(k as usize)?,
                    _ => return None,
                };
                if i.code & 7 == 0 { a = value } else { x = value }
            }
            // BPF_ST, BPF_STX
            2 => *memory.get_mut(k as usize)? = a,
            3 => *memory.get_mut(k as usize)? = x,
            // BPF_ALU
            4 => {
                a = match i.code & 0xf0 {
                    0x00 => a.wrapping_add(source),
                    0x10 => a.wrapping_sub(source),
                    0x20 => a.wrapping_mul(source),
                    0x30 => a.checked_div(source)?,
                    0x40 => a | source,
                    0x50 => a & source,
                    0x60 => a.checked_shl(source).unwrap_or(0),
                    0x70 => a.checked_shr(source).unwrap_or(0),
                    0x80 => a.wrapping_neg(),
                    0xa0 => a ^ source,
                    _ => return None,
                }
            }
            // BPF_JMP
            5 => {
                let holds = match i.code & 0xf0 {
                    0x00 => {
                        at = at.checked_add(k as usize)?;
                        continue;
                    }
                    0x10 => a == source,
                    0x20 => a > source,
                    0x30 => a >= source,
                    0x40 => a & source != 0,
                    _ => return None,
                };
                at += usize::from(if holds { i.jt } else { i.jf });
            }
            // BPF_RET: a constant or the accumulator.
            6 => return Some(if i.code & 0x18 == 0x10 { a } else { k }),
            // BPF_MISC: BPF_TAX, BPF_TXA
            _ if i.code & 0xf8 == 0 => x = a,
            _ => a = x,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOAD: u16 = 0x20;
    const EQUAL: u16 = 0x15;
    const AT_LEAST: u16 = 0x35;
    const ANSWER: u16 = 0x06;

    fn rule(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
        libc::sock_filter { code, jt, jf, k }
    }

    /// A filter with one answer for one call, and another for all others.
    fn one(call: i64, then: u32, otherwise: u32) -> [libc::sock_filter; 4] {
        let is = rule(EQUAL, 0, 1, call as u32);
        [rule(LOAD, 0, 0, 0), is, rule(ANSWER, 0, 0, then), rule(ANSWER, 0, 0, otherwise)]
    }

    #[test]
    fn a_filter_forbids_what_it_does_not_allow() {
        let (allow, kill) = (libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_KILL_PROCESS);
        assert_eq!(forbidden_by(&one(libc::SYS_getcwd, kill, allow)), 0);
        assert_eq!(forbidden_by(&one(libc::SYS_socket, kill, allow)), need::SOCKET);
        // Sockets of one family: the first argument is looked at, too.
        let family = |of: i32| {
            let other = rule(EQUAL, 0, 3, libc::SYS_socket as u32);
            let is = rule(EQUAL, 0, 1, of as u32);
            [rule(LOAD, 0, 0, 0), other, rule(LOAD, 0, 0, 16), is, rule(ANSWER, 0, 0, kill), rule(ANSWER, 0, 0, allow)]
        };
        assert_eq!(forbidden_by(&family(libc::AF_UNIX)), need::SOCKET);
        assert_eq!(forbidden_by(&family(libc::AF_INET)), 0);
        assert_eq!(forbidden_by(&one(libc::SYS_gettid, kill, allow)), need::NUMBERS);
        assert_eq!(forbidden_by(&one(libc::SYS_mremap, kill, allow)), need::MEMORY);
        assert_eq!(forbidden_by(&one(libc::SYS_futex, libc::SECCOMP_RET_ERRNO | 1, allow)), need::FUTEX);
        assert_eq!(forbidden_by(&one(libc::SYS_futex, allow, kill)), need::EVERYTHING & !need::FUTEX);
        // As libseccomp writes it: the architecture, calls of x32, an accumulator in memory and back.
        let long = [
            rule(LOAD, 0, 0, 4),
            rule(EQUAL, 0, 6, 0xc000_003e),
            rule(LOAD, 0, 0, 0),
            rule(0x02, 0, 0, 3),
            rule(0x60, 0, 0, 3),
            rule(AT_LEAST, 2, 0, 0x4000_0000),
            rule(EQUAL, 1, 0, libc::SYS_nanosleep as u32),
            rule(ANSWER, 0, 0, allow),
            rule(ANSWER, 0, 0, kill),
        ];
        assert_eq!(forbidden_by(&long), need::SLEEP);
    }

    #[test]
    fn a_filter_without_an_answer_forbids_everything() {
        assert_eq!(forbidden_by(&[]), need::EVERYTHING);
        let beyond = [rule(LOAD, 0, 0, 64), rule(ANSWER, 0, 0, libc::SECCOMP_RET_ALLOW)];
        assert_eq!(forbidden_by(&beyond), need::EVERYTHING);
        assert_eq!(forbidden_by(&[rule(0x05, 0, 0, u32::MAX)]), need::EVERYTHING);
    }
}
