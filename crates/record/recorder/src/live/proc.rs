//! Threads in /proc: their states and system calls.

use crate::processes;
use std::fs;
use tape::live::state;

/// The state of a process or of one of its threads, which has this folder in /proc.
pub fn status(folder: &str) -> &'static str {
    let text = match fs::read(format!("{folder}/stat")) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            return state::ENDED;
        }
        Err(_) => return state::UNKNOWN,
    };
    match processes::state(&text) {
        Some('R') => state::RUNNING,
        Some('S' | 'I') => state::SLEEPING,
        Some('D') => state::UNINTERRUPTIBLE,
        Some('T') => state::STOPPED,
        Some('t') => state::TRACED,
        Some('Z' | 'X' | 'x') => state::ENDED,
        _ => state::UNKNOWN,
    }
}

/// The thread that pthread_join waits for, from the arguments of its futex call: the word is the other thread's number until the kernel
/// clears it at the thread's end. Only that wait is shared between processes (not FUTEX_PRIVATE_FLAG) and has the bare number of a
/// thread as its value.
pub fn joined<'a>(mut arguments: impl Iterator<Item = &'a str>) -> Option<i32> {
    let hex = |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok();
    let (operation, value) = (hex(arguments.nth(1)?)? as i32, hex(arguments.next()?)? as u32);
    let waits = [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&(operation & !libc::FUTEX_CLOCK_REALTIME));
    i32::try_from(value).ok().filter(|tid| waits && *tid > 0)
}

/// Names of the system calls in which threads of programs sleep.
pub fn system_call(number: i64) -> String {
    const NAMES: [(i64, &str); 48] = [
        (libc::SYS_accept, "accept"),
        (libc::SYS_accept4, "accept4"),
        (libc::SYS_clock_nanosleep, "clock_nanosleep"),
        (libc::SYS_close, "close"),
        (libc::SYS_connect, "connect"),
        (libc::SYS_epoll_pwait, "epoll_pwait"),
        (libc::SYS_epoll_wait, "epoll_wait"),
        (libc::SYS_execve, "execve"),
        (libc::SYS_exit_group, "exit_group"),
        (libc::SYS_fallocate, "fallocate"),
        (libc::SYS_fcntl, "fcntl"),
        (libc::SYS_fdatasync, "fdatasync"),
        (libc::SYS_flock, "flock"),
        (libc::SYS_fsync, "fsync"),
        (libc::SYS_futex, "futex"),
        (libc::SYS_io_getevents, "io_getevents"),
        (libc::SYS_io_uring_enter, "io_uring_enter"),
        (libc::SYS_ioctl, "ioctl"),
        (libc::SYS_madvise, "madvise"),
        (libc::SYS_mmap, "mmap"),
        (libc::SYS_mprotect, "mprotect"),
        (libc::SYS_mq_timedreceive, "mq_timedreceive"),
        (libc::SYS_msgrcv, "msgrcv"),
        (libc::SYS_munmap, "munmap"),
        (libc::SYS_nanosleep, "nanosleep"),
        (libc::SYS_open, "open"),
        (libc::SYS_openat, "openat"),
        (libc::SYS_pause, "pause"),
        (libc::SYS_poll, "poll"),
        (libc::SYS_ppoll, "ppoll"),
        (libc::SYS_pread64, "pread64"),
        (libc::SYS_pselect6, "pselect6"),
        (libc::SYS_pwrite64, "pwrite64"),
        (libc::SYS_read, "read"),
        (libc::SYS_readv, "readv"),
        (libc::SYS_recvfrom, "recvfrom"),
        (libc::SYS_recvmsg, "recvmsg"),
        (libc::SYS_rt_sigsuspend, "rt_sigsuspend"),
        (libc::SYS_rt_sigtimedwait, "rt_sigtimedwait"),
        (libc::SYS_select, "select"),
        (libc::SYS_semop, "semop"),
        (libc::SYS_semtimedop, "semtimedop"),
        (libc::SYS_sendmsg, "sendmsg"),
        (libc::SYS_sendto, "sendto"),
        (libc::SYS_wait4, "wait4"),
        (libc::SYS_waitid, "waitid"),
        (libc::SYS_write, "write"),
        (libc::SYS_writev, "writev"),
    ];
    let name = NAMES.iter().find(|(n, _)| *n == number);
    name.map_or_else(|| format!("system call {number}"), |(_, name)| (*name).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_those_of_proc() {
        assert_eq!(status("/proc/thread-self"), state::RUNNING);
        assert_eq!(status("/proc/999999999"), state::ENDED);
        assert_eq!(joined("0x7f00 0x109 0x1f 0x0".split(' ')), Some(31));
        assert_eq!(joined("0x7f00 0x189 0x1f 0x0".split(' ')), None, "a private word");
        assert_eq!(joined("0x7f00 0x109".split(' ')), None);
        assert_eq!(processes::state(b"12 (a) b) T 1 2"), Some('T'));
        assert_eq!((system_call(libc::SYS_ioctl), system_call(9999)), ("ioctl".into(), "system call 9999".into()));
    }
}
