//! Threads in /proc: their states and system calls.

use crate::processes::{self, Stat};
use std::fs;
use std::str::FromStr;
use tape::live::{LiveOther, state};

/// What the `stat` file of a process or of one of its threads has, which has this folder in /proc: its state, and the rest if it
/// may be read.
pub fn status(folder: &str) -> (&'static str, Option<Stat>) {
    let text = match fs::read(format!("{folder}/stat")) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH) => {
            return (state::ENDED, None);
        }
        Err(_) => return (state::UNKNOWN, None),
    };
    let state = match processes::state(&text) {
        Some('R') => state::RUNNING,
        Some('S' | 'I') => state::SLEEPING,
        Some('D') => state::UNINTERRUPTIBLE,
        Some('T') => state::STOPPED,
        Some('t') => state::TRACED,
        Some('Z' | 'X' | 'x') => state::ENDED,
        _ => state::UNKNOWN,
    };
    (state, processes::parse_stat(&text))
}

/// The name of a process or thread.
pub fn name(stat: &Stat) -> String {
    String::from_utf8_lossy(&stat.name).into_owned()
}

/// The numbers that a folder of /proc has as names, in rising order; at most so many.
pub fn numbers(folder: &str, at_most: usize) -> Vec<i32> {
    let all = fs::read_dir(folder).into_iter().flatten();
    let mut all: Vec<i32> = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).take(at_most).collect();
    all.sort_unstable();
    all
}

/// The children that a thread has started, also those that have ended and were not waited for.
pub fn children(pid: i32, tid: i32) -> Vec<i32> {
    let text = fs::read_to_string(format!("/proc/{pid}/task/{tid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

/// The process that traces a thread; 0 for none.
pub fn tracer(folder: &str) -> i32 {
    field(folder, "TracerPid:").unwrap_or(0)
}

/// The process of a thread.
pub fn process_of(tid: i32) -> Option<i32> {
    field(&format!("/proc/{tid}"), "Tgid:")
}

/// How often the thread with this folder has gone to sleep by itself.
pub fn sleeps(folder: &str) -> u64 {
    field(folder, "voluntary_ctxt_switches:").unwrap_or(0)
}

fn field<T: FromStr>(folder: &str, name: &str) -> Option<T> {
    let text = fs::read_to_string(format!("{folder}/status")).ok()?;
    text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()
}

/// A process, as one that another waits for.
pub fn other(pid: i32, how: &str, names: bool) -> LiveOther {
    let (state, stat) = status(&format!("/proc/{pid}"));
    let name = stat.filter(|_| names).map_or_else(String::new, |s| name(&s));
    LiveOther { pid, name, state: state.into(), how: how.into(), tids: Vec::new() }
}

/// A thread that does not run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sleep {
    /// The system call that it is in; negative: none.
    pub number: i64,
    pub arguments: [u64; 6],
    /// Its stack pointer, and where in the program it is.
    pub sp: u64,
    pub pc: u64,
}

/// The system call in which the thread with this folder sleeps. `None`: it runs, or /proc may not be read.
pub fn sleep(folder: &str) -> Option<Sleep> {
    parse_sleep(&fs::read_to_string(format!("{folder}/syscall")).ok()?)
}

/// A thread that sleeps or is stopped, also in no system call. `None`: it runs.
///
/// # Errors
/// Why /proc does not have it.
pub fn asleep(pid: i32, tid: i32) -> Result<Option<Sleep>, &'static str> {
    match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
        Ok(text) => Ok(parse(&text)),
        Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => Err("/proc may not be read"),
        Err(e) if e.raw_os_error() == Some(libc::ESRCH) => Err("it has ended"),
        Err(_) => Err("the kernel does not report system calls of threads, or it has ended"),
    }
}

fn parse_sleep(text: &str) -> Option<Sleep> {
    parse(text).filter(|sleep| sleep.number >= 0)
}

/// `202 0x7f.. 0x189 ...`: the number, six arguments, the stack pointer and the place in the program. `-1` has no arguments.
fn parse(text: &str) -> Option<Sleep> {
    let mut words = text.split_whitespace();
    let number = words.next()?.parse().ok()?;
    let mut hex = || u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let mut arguments = [0; 6];
    if number >= 0 {
        for to in &mut arguments {
            *to = hex()?;
        }
    }
    Some(Sleep { number, arguments, sp: hex()?, pc: hex()? })
}

/// The thread that pthread_join waits for, from the arguments of its futex call: the word is the other thread's number until the kernel
/// clears it at the thread's end. Only that wait is shared between processes (not FUTEX_PRIVATE_FLAG) and has the bare number of a
/// thread as its value.
pub fn joined(sleep: &Sleep) -> Option<i32> {
    let [_, operation, value, ..] = sleep.arguments;
    let operation = operation as i32 & !libc::FUTEX_CLOCK_REALTIME;
    let waits = sleep.number == libc::SYS_futex && [libc::FUTEX_WAIT, libc::FUTEX_WAIT_BITSET].contains(&operation);
    i32::try_from(value as u32).ok().filter(|tid| waits && *tid > 0)
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
        let (now, stat) = status("/proc/thread-self");
        assert_eq!((now, stat.map(|s| s.ppid > 0)), (state::RUNNING, Some(true)));
        assert_eq!(status("/proc/999999999"), (state::ENDED, None));
        let joined = |text: &str| joined(&parse_sleep(text).unwrap());
        assert_eq!(joined("202 0x7f00 0x109 0x1f 0x0 0x0 0x0 0x7ffe 0x7f"), Some(31));
        assert_eq!(joined("202 0x7f00 0x189 0x1f 0x0 0x0 0x0 0x7ffe 0x7f"), None, "a private word");
        assert_eq!(joined("0 0x7f00 0x109 0x1f 0x0 0x0 0x0 0x7ffe 0x7f"), None, "a read");
        assert!(["running", "-1 0x0 0x0", "202 0x7f00 0x109", ""].iter().all(|text| parse_sleep(text).is_none()));
        assert_eq!(processes::state(b"12 (a) b) T 1 2"), Some('T'));
        assert_eq!((system_call(libc::SYS_ioctl), system_call(9999)), ("ioctl".into(), "system call 9999".into()));
    }
}
