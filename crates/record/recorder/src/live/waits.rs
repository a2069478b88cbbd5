//! What a thread waits for, from the arguments of the system call in which it sleeps.

use super::proc::Sleep;
use std::fs;
use tape::live::{how, on};

/// `to`: what the thread wants to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Want {
    File {
        fd: i32,
        to: &'static str,
    },
    FileLock {
        fd: i32,
    },
    Ioctl {
        fd: i32,
        request: u64,
    },
    /// Any of the descriptors in an array in memory.
    Poll {
        address: u64,
        count: usize,
    },
    Futex {
        address: u64,
        expected: Option<u32>,
        is_private: bool,
    },
    /// -1: any child.
    Child {
        pid: i32,
    },
    /// Nothing with a name: one of [`on`].
    Kind(&'static str),
}

/// A number of descriptors that poll is seldom called with.
pub const POLLED: usize = 8;

/// FUTEX_LOCK_PI2 of Linux 5.14.
const FUTEX_LOCK_PI2: i32 = 13;

/// `None` for system calls that are not looked at.
pub fn want(sleep: &Sleep) -> Option<Want> {
    let [a, b, c, ..] = sleep.arguments;
    let fd = a as i32;
    Some(match sleep.number {
        libc::SYS_read | libc::SYS_readv | libc::SYS_pread64 | libc::SYS_recvfrom | libc::SYS_recvmsg => {
            Want::File { fd, to: how::READ }
        }
        libc::SYS_accept | libc::SYS_accept4 => Want::File { fd, to: how::READ },
        libc::SYS_write | libc::SYS_writev | libc::SYS_pwrite64 | libc::SYS_sendto | libc::SYS_sendmsg => {
            Want::File { fd, to: how::WRITE }
        }
        libc::SYS_connect | libc::SYS_fsync | libc::SYS_fdatasync => Want::File { fd, to: how::WRITE },
        libc::SYS_flock => Want::FileLock { fd },
        libc::SYS_fcntl if [libc::F_SETLKW, libc::F_OFD_SETLKW].contains(&(b as i32)) => Want::FileLock { fd },
        libc::SYS_ioctl => Want::Ioctl { fd, request: b & 0xffff_ffff },
        libc::SYS_poll | libc::SYS_ppoll if b == 0 => Want::Kind(on::TIME),
        libc::SYS_poll | libc::SYS_ppoll if b as usize <= POLLED => Want::Poll { address: a, count: b as usize },
        libc::SYS_poll | libc::SYS_ppoll | libc::SYS_select | libc::SYS_pselect6 => Want::Kind(on::EVENTS),
        libc::SYS_epoll_wait | libc::SYS_epoll_pwait | libc::SYS_epoll_pwait2 => Want::Kind(on::EVENTS),
        libc::SYS_futex => {
            let is_private = b as i32 & libc::FUTEX_PRIVATE_FLAG != 0;
            let expected = match b as i32 & !(libc::FUTEX_PRIVATE_FLAG | libc::FUTEX_CLOCK_REALTIME) {
                libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET | libc::FUTEX_WAIT_REQUEUE_PI => Some(c as u32),
                libc::FUTEX_LOCK_PI | FUTEX_LOCK_PI2 => None,
                _ => return None,
            };
            Want::Futex { address: a, expected, is_private }
        }
        libc::SYS_wait4 => Want::Child { pid: if fd > 0 { fd } else { -1 } },
        libc::SYS_waitid if a == u64::from(libc::P_PID) => Want::Child { pid: b as i32 },
        libc::SYS_waitid => Want::Child { pid: -1 },
        libc::SYS_pause | libc::SYS_rt_sigsuspend | libc::SYS_rt_sigtimedwait => Want::Kind(on::SIGNAL),
        libc::SYS_nanosleep | libc::SYS_clock_nanosleep => Want::Kind(on::TIME),
        _ => return None,
    })
}

/// What a descriptor refers to, as /proc names it: a path, `pipe:[123]`. Empty if it may not be read.
pub fn link(pid: i32, fd: i32) -> String {
    let link = fs::read_link(format!("/proc/{pid}/fd/{fd}"));
    link.map(|path| path.to_string_lossy().into_owned()).unwrap_or_default()
}

/// One of [`on`], by the name of what a descriptor refers to. (A fifo is seen as such by [`crate::live::others`].)
pub fn kind(link: &str) -> &'static str {
    match link {
        _ if link.starts_with("pipe:[") => on::PIPE,
        _ if link.starts_with("socket:[") => on::SOCKET,
        _ if link.starts_with("/dev/") && !link.starts_with("/dev/shm/") => on::DEVICE,
        _ if link.starts_with('/') => on::FILE,
        _ => on::DESCRIPTOR,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: i64, arguments: &[u64]) -> Option<Want> {
        let mut all = [0; 6];
        all.iter_mut().zip(arguments).for_each(|(to, from)| *to = *from);
        want(&Sleep { number, arguments: all, ..Sleep::default() })
    }

    #[test]
    fn system_calls_have_what_they_wait_for_in_their_arguments() {
        assert_eq!(of(libc::SYS_read, &[3]), Some(Want::File { fd: 3, to: how::READ }));
        assert_eq!(of(libc::SYS_fcntl, &[3, libc::F_SETLKW as u64]), Some(Want::FileLock { fd: 3 }));
        assert_eq!(of(libc::SYS_fcntl, &[3, libc::F_GETFL as u64]), None);
        let futex = |is_private| Some(Want::Futex { address: 0x7f00, expected: Some(2), is_private });
        assert_eq!(of(libc::SYS_futex, &[0x7f00, 0x80, 2]), futex(true));
        assert_eq!(of(libc::SYS_futex, &[0x7f00, 0x109, 2]), futex(false));
        let inherits = Want::Futex { address: 0x7f00, expected: None, is_private: true };
        assert_eq!(of(libc::SYS_futex, &[0x7f00, 0x86, 2]), Some(inherits));
        assert_eq!(of(libc::SYS_futex, &[0x7f00, 1, 2]), None, "it wakes others");
        assert_eq!(of(libc::SYS_wait4, &[u64::MAX]), Some(Want::Child { pid: -1 }));
        assert_eq!(of(libc::SYS_waitid, &[1, 77]), Some(Want::Child { pid: 77 }));
        assert_eq!(of(libc::SYS_poll, &[0x7f00, 1000, 5]), Some(Want::Kind(on::EVENTS)));
    }

    #[test]
    fn links_have_kinds() {
        let all = ["pipe:[1]", "socket:[2]", "/dev/nvidia0", "/dev/shm/a", "anon_inode:[eventfd]"];
        assert_eq!(all.map(kind), [on::PIPE, on::SOCKET, on::DEVICE, on::FILE, on::DESCRIPTOR]);
    }
}
