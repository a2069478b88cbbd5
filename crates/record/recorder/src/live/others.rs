//! Other processes that have what a thread waits for: the same pipe, the same file's lock, the same memory.

use super::proc::{numbers, sleep};
use super::readers::{reading, shares};
use super::sockets;
use super::waits::{Want, link, want};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};
use tape::live::{LivePipe, LiveShared, how};

/// Time to look at other processes, and how many are looked at.
pub const WITHIN: Duration = Duration::from_millis(150);
const PROCESSES: usize = 10_000;
/// Descriptors, and threads, of one process that are looked at.
const OF_ONE: usize = 1024;

/// What another process has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It has it open. `how`: one of [`how`].
    Open { link: String, pid: i32, how: &'static str },
    /// A path in which a thread waits is a fifo.
    Fifo { link: String },
    /// It maps the memory, and these of its threads wait for words there.
    Maps { pid: i32, shares: Vec<LiveShared>, words: Vec<(i32, u64)> },
    /// A search is through.
    Through,
}

/// Processes of the users to whom these processes belong: these, and then the others, the newest first.
pub fn candidates(recorded: &[i32]) -> Vec<i32> {
    let user = |pid: i32| fs::metadata(format!("/proc/{pid}")).ok().map(|m| m.uid());
    let users: BTreeSet<u32> = recorded.iter().filter_map(|pid| user(*pid)).collect();
    let others = numbers("/proc", PROCESSES).into_iter().rev().filter(|pid| !recorded.contains(pid));
    recorded.iter().copied().chain(others.filter(|pid| user(*pid).is_some_and(|u| users.contains(&u)))).collect()
}

/// Looks for processes that have these files open: links as /proc names them, each with a process and its descriptor.
pub fn open(recorded: &[i32], wanted: &BTreeMap<String, (i32, i32)>, to: &Sender<Found>) {
    let (begun, mut links) = (Instant::now(), BTreeSet::new());
    let mut peers: BTreeMap<String, &String> = BTreeMap::new();
    for (link, (pid, fd)) in wanted {
        if link.starts_with('/') {
            let is_fifo = || fs::metadata(format!("/proc/{pid}/fd/{fd}")).is_ok_and(|m| m.file_type().is_fifo());
            if !link.starts_with("/dev/") && is_fifo() {
                let _ = to.send(Found::Fifo { link: link.clone() });
            }
        }
        links.insert(link.as_str());
        if let Some(peer) = sockets::inode(link).and_then(|inode| sockets::peer(*pid, inode)) {
            peers.insert(format!("socket:[{peer}]"), link);
        }
    }
    for pid in candidates(recorded) {
        let found = pipes_if(pid, |link| links.contains(link) || peers.contains_key(link));
        for LivePipe { name, how } in found {
            let how =
                [how::READ, how::WRITE, how::BOTH, how::HOLDS].into_iter().find(|h| *h == how).unwrap_or_default();
            let of_peer = peers.get(&name).map(|link| Found::Open { link: (*link).clone(), pid, how: how::PEER });
            let own = links.contains(name.as_str()).then_some(Found::Open { link: name, pid, how });
            if own.into_iter().chain(of_peer).any(|found| to.send(found).is_err()) {
                return;
            }
        }
        if begun.elapsed() > WITHIN {
            return;
        }
    }
    let _ = to.send(Found::Through);
}

/// The files that a process has open and that are wanted, each once.
pub fn pipes_if(pid: i32, is_wanted: impl Fn(&str) -> bool) -> BTreeSet<LivePipe> {
    let mut of: BTreeMap<String, BTreeSet<&str>> = BTreeMap::new();
    for fd in numbers(&format!("/proc/{pid}/fd"), OF_ONE) {
        let link = link(pid, fd);
        if is_wanted(&link)
            && let Some((access, has_lock)) = information(pid, fd)
        {
            let all = of.entry(link).or_default();
            all.insert(access);
            all.extend(has_lock.then_some(how::HOLDS));
        }
    }
    let one = |(name, mut all): (String, BTreeSet<&str>)| {
        if all.contains(how::READ) && all.contains(how::WRITE) {
            all.retain(|how| *how == how::HOLDS);
            all.insert(how::BOTH);
        }
        all.into_iter().map(|how| LivePipe { name: name.clone(), how: how.into() }).collect::<Vec<_>>()
    };
    of.into_iter().flat_map(one).collect()
}

/// How a descriptor can be used, and whether it has a lock of its file.
fn information(pid: i32, fd: i32) -> Option<(&'static str, bool)> {
    let text = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).ok()?;
    let flags = text.lines().find_map(|line| line.strip_prefix("flags:"))?;
    let access = match i32::from_str_radix(flags.trim(), 8).ok()? & libc::O_ACCMODE {
        libc::O_RDONLY => how::READ,
        libc::O_WRONLY => how::WRITE,
        _ => how::BOTH,
    };
    Some((access, text.lines().any(|line| line.starts_with("lock:"))))
}

/// Looks for processes that are not recorded and that map these files.
pub fn mapped(recorded: &[i32], wanted: &BTreeSet<(String, u64)>, to: &Sender<Found>) {
    let begun = Instant::now();
    for pid in candidates(recorded).into_iter().skip(recorded.len()) {
        let mut shares = reading(pid, begun + WITHIN, || shares(pid)).unwrap_or_default();
        shares.retain(|s| wanted.contains(&(s.device.clone(), s.inode)));
        if !shares.is_empty() {
            let tids = numbers(&format!("/proc/{pid}/task"), OF_ONE).into_iter();
            let word = |tid| match want(&sleep(&format!("/proc/{pid}/task/{tid}"))?)? {
                Want::Futex { address, is_private: false, .. } => Some((tid, address)),
                _ => None,
            };
            if to.send(Found::Maps { pid, shares, words: tids.filter_map(word).collect() }).is_err() {
                return;
            }
        }
        if begun.elapsed() > WITHIN {
            return;
        }
    }
    let _ = to.send(Found::Through);
}

/// The processes that have the lock of a file for which a process waits by this descriptor. (0 and less: not known.)
pub fn lock_holders(pid: i32, fd: i32) -> Vec<i32> {
    let information = fs::read_to_string(format!("/proc/{pid}/fdinfo/{fd}")).unwrap_or_default();
    let inode = information.lines().find_map(|line| line.strip_prefix("ino:")).unwrap_or_default().trim();
    holders(&fs::read_to_string("/proc/locks").unwrap_or_default(), pid, inode)
}

/// From the lines of /proc/locks: `1: POSIX  ADVISORY  WRITE 123 fd:01:4567 0 EOF`, where one of a thread that waits has `->` after the number
/// and the number is its holder's.
fn holders(text: &str, waiter: i32, inode: &str) -> Vec<i32> {
    let line = |line: &str| {
        let mut words = line.split_whitespace().peekable();
        let number = words.next()?.to_owned();
        let waits = words.next_if_eq(&"->").is_some();
        while words.next_if_eq(&"->").is_some() {}
        let (pid, file) = (words.nth(3)?.parse::<i32>().ok()?, words.next()?);
        (file.rsplit(':').next() == Some(inode)).then_some((number, waits, pid))
    };
    let lines: Vec<_> = text.lines().filter_map(line).collect();
    let is_waiter = |pid: i32| pid == waiter || pid == -1;
    let numbers: BTreeSet<&String> = lines.iter().filter(|l| l.1 && is_waiter(l.2)).map(|l| &l.0).collect();
    lines.iter().filter(|l| !l.1 && numbers.contains(&l.0)).map(|l| l.2).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holders_of_file_locks_are_those_with_the_number_of_the_waiter() {
        let text = "1: FLOCK  ADVISORY  WRITE 10 fd:01:4567 0 EOF\n\
                    1: -> FLOCK  ADVISORY  WRITE 11 fd:01:4567 0 EOF\n\
                    2: POSIX  ADVISORY  WRITE 12 fd:01:4567 0 9\n\
                    3: OFDLCK ADVISORY  READ -1 00:2a:99 0 EOF\n\
                    3: -> OFDLCK ADVISORY  WRITE -1 00:2a:99 0 EOF\n";
        assert_eq!(holders(text, 11, "4567"), [10]);
        assert_eq!(holders(text, 7, "99"), [-1]);
        assert!(holders(text, 12, "4567").is_empty() && holders("", 1, "").is_empty());
    }

    #[test]
    fn own_pipes_are_found_with_their_direction() {
        let (reader, writer) = std::io::pipe().unwrap();
        let own = std::process::id() as i32;
        let name = |fd: &dyn std::os::fd::AsRawFd| link(own, fd.as_raw_fd());
        let pipe = name(&reader);
        assert!(pipe.starts_with("pipe:[") && pipe == name(&writer));
        let found = || pipes_if(own, |link| link == pipe).into_iter().map(|p| p.how).collect::<Vec<_>>();
        assert_eq!(found(), [how::BOTH]);
        drop(writer);
        assert_eq!(found(), [how::READ]);
    }
}
