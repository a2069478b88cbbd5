//! The other ends of sockets on this machine.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Socket inodes by their links: `socket:[123]`.
pub fn inode(link: &str) -> Option<u32> {
    link.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}

/// The socket at the other end of a process's socket, if that is on this machine. (A Unix socket of another network namespace is not
/// found.)
pub fn peer(pid: i32, inode: u32) -> Option<u32> {
    of_unix(inode).ok().flatten().or_else(|| {
        let of = |table: &str| of_tcp(&fs::read_to_string(format!("/proc/{pid}/net/{table}")).ok()?, inode);
        of("tcp").or_else(|| of("tcp6"))
    })
}

/// From the lines of /proc/net/tcp: number, own address, address of the other end, ..., the inode as the tenth.
fn of_tcp(table: &str, inode: u32) -> Option<u32> {
    let lines = table.lines().filter_map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let own = words.get(9)?.parse::<u32>().ok().filter(|n| *n != 0)?;
        Some((*words.get(1)?, *words.get(2)?, own))
    });
    let (from, to, _) = lines.clone().find(|line| line.2 == inode)?;
    lines.filter(|line| (line.0, line.1) == (to, from) && line.2 != inode).map(|line| line.2).next()
}

/// From the kernel, by NETLINK_SOCK_DIAG (sock_diag(7)).
fn of_unix(inode: u32) -> io::Result<Option<u32>> {
    /// `struct nlmsghdr` and `struct unix_diag_req`.
    #[repr(C)]
    struct Request {
        len: u32,
        kind: u16,
        flags: u16,
        number: u32,
        port: u32,
        family: u8,
        protocol: u8,
        pad: u16,
        states: u32,
        inode: u32,
        show: u32,
        cookie: [u32; 2],
    }
    const SIZE: usize = 40;
    const _: () = assert!(size_of::<Request>() == SIZE);
    /// SOCK_DIAG_BY_FAMILY, UDIAG_SHOW_PEER, and the attribute UNIX_DIAG_PEER.
    const BY_FAMILY: u16 = 20;
    const SHOW_PEER: u32 = 4;
    const PEER: u16 = 2;
    let request = Request {
        len: SIZE as u32,
        kind: BY_FAMILY,
        flags: libc::NLM_F_REQUEST as u16,
        number: 1,
        port: 0,
        family: libc::AF_UNIX as u8,
        protocol: 0,
        pad: 0,
        states: u32::MAX,
        inode,
        show: SHOW_PEER,
        cookie: [u32::MAX; 2],
    };
    let mut answer = [0u8; 1024];
    let checked = |r: isize| if r < 0 { Err(io::Error::last_os_error()) } else { Ok(r as usize) };
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: no memory.
    let fd = checked(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) } as isize)?;
    // SAFETY: a new descriptor without another owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as i32) };
    // SAFETY: the kernel reads the request, and writes no further than the answer's length. (It answers in the call.)
    let n = unsafe {
        checked(libc::send(fd.as_raw_fd(), (&raw const request).cast(), SIZE, 0))?;
        checked(libc::recv(fd.as_raw_fd(), answer.as_mut_ptr().cast(), answer.len(), 0))?
    };
    // (0: the other end is closed.)
    Ok(attribute(answer.get(..n).unwrap_or_default(), BY_FAMILY, PEER).filter(|peer| *peer != 0))
}

/// A number among the attributes of an answer: `struct nlmsghdr`, `struct unix_diag_msg`, both of 16 bytes, and the attributes, each of
/// a length, a kind and a value, padded to 4 bytes.
fn attribute(answer: &[u8], message: u16, kind: u16) -> Option<u32> {
    let half = |at: usize| Some(u16::from_ne_bytes(answer.get(at..at + 2)?.try_into().ok()?));
    let mut at = 32;
    while half(4)? == message {
        let (len, of) = (usize::from(half(at)?), half(at + 2)?);
        if of == kind {
            return Some(u32::from_ne_bytes(answer.get(at + 4..at + 8)?.try_into().ok()?));
        }
        at += len.next_multiple_of(4).max(4);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::waits::link;
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;

    #[test]
    fn sockets_of_this_process_have_each_other_as_peers() {
        let own = std::process::id() as i32;
        let of = |fd: &dyn AsRawFd| inode(&link(own, fd.as_raw_fd())).unwrap();
        let (a, b) = UnixStream::pair().unwrap();
        match of_unix(of(&a)) {
            Ok(found) => assert_eq!((found, peer(own, of(&b))), (Some(of(&b)), Some(of(&a)))),
            Err(e) => test_support::skip!("this kernel does not tell about Unix sockets: {e}"),
        }
        drop(b);
        assert_eq!(of_unix(of(&a)).unwrap(), None);
        let Ok(listener) = TcpListener::bind("127.0.0.1:0") else { return };
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let server = listener.accept().unwrap().0;
        assert_eq!((peer(own, of(&client)), peer(own, of(&server))), (Some(of(&server)), Some(of(&client))));
        assert_eq!(peer(own, of(&listener)), None);
    }

    #[test]
    fn answers_of_any_kind_are_read_within_their_bounds() {
        let mut answer = [0u8; 48];
        (answer[4], answer[32], answer[34]) = (20, 5, 1);
        (answer[40], answer[42], answer[44]) = (8, 2, 77);
        assert_eq!(attribute(&answer, 20, 2), Some(77));
        assert!((0..48).all(|n| attribute(&answer[..n], 20, 2).is_none()));
        answer[32] = 0;
        assert_eq!(attribute(&answer, 20, 3), None);
        answer[4] = 2;
        assert_eq!(attribute(&answer, 20, 2), None, "an error");
    }
}
