//! Facts about a process from /proc, and how it ended.

use crate::limits;
use crate::record::RecordError;
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;
use tape::file::Rank;

/// A process's identity, as far as it can be found out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Identity {
    pub ppid: i32,
    pub exe: String,
    pub args: Vec<String>,
    pub rank: Option<Rank>,
}

impl Identity {
    /// Reads the identity. A process that has already ended has none.
    pub fn of(pid: i32) -> Identity {
        let exe = fs::read_link(format!("/proc/{pid}/exe")).map(|p| p.into_os_string().into_vec());
        let bytes = |what: &str| fs::read(format!("/proc/{pid}/{what}")).unwrap_or_default();
        let i = Identity::from([exe.unwrap_or_default(), bytes("cmdline"), bytes("environ")]);
        Identity { ppid: stat(pid).map_or(0, |s| s.ppid), ..i }
    }

    /// Fills unknown fields from `other`.
    pub fn or(self, other: Identity) -> Identity {
        let Identity { ppid, exe, args, rank } = self;
        Identity {
            ppid: if ppid == 0 { other.ppid } else { ppid },
            exe: if exe.is_empty() { other.exe } else { exe },
            args: if args.is_empty() { other.args } else { args },
            rank: rank.or(other.rank),
        }
    }
}

/// From the path, arguments and environment, in /proc's form.
impl From<[Vec<u8>; 3]> for Identity {
    fn from([exe, args, environ]: [Vec<u8>; 3]) -> Identity {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let list = args.strip_suffix(b"\0").unwrap_or(&args);
        let known = list.iter().any(|b| *b != 0);
        let args = if known { list.split(|b| *b == 0).map(text).collect() } else { Vec::new() };
        Identity { ppid: 0, exe: text(&exe), args, rank: rank(&environ) }
    }
}

/// A process's part in a job, from its environment. The innermost launcher is looked for first (torchrun under `srun`
/// is more exact than Slurm).
pub fn rank(environ: &[u8]) -> Option<Rank> {
    let value = |name: &str| {
        let find = |e: &[u8]| {
            let v = e.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
            std::str::from_utf8(v).ok()?.parse::<u32>().ok()
        };
        environ.split(|b| *b == 0).find_map(find)
    };
    let names = [
        ("torchrun", "RANK", "LOCAL_RANK", "WORLD_SIZE"),
        ("openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("pmi", "PMI_RANK", "MPI_LOCALRANKID", "PMI_SIZE"),
        ("slurm", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NTASKS"),
    ];
    names.iter().find_map(|(launcher, rank, local, size)| {
        let (rank, world_size) = (value(rank)?, value(size));
        // A RANK alone could mean anything.
        let torchrun = *launcher == "torchrun";
        if torchrun && world_size.is_none() {
            return None;
        }
        Some(Rank { rank, local_rank: value(local), world_size, launcher: (*launcher).into() })
    })
}

/// The fields of `/proc/PID/stat` that are used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stat {
    pub name: Vec<u8>,
    pub zombie: bool,
    pub ppid: i32,
    /// As wait gives it; 0 until the process has ended, and if this process may not see it.
    pub status: i32,
    /// Minor page faults of the children that it has waited for: more than 0 for each.
    pub child_faults: u64,
    /// Address of its stack; 0 after it has ended, and if this process may not see it. A new program has another one.
    pub start_stack: u64,
}

pub fn stat(pid: i32) -> Option<Stat> {
    parse_stat(&fs::read(format!("/proc/{pid}/stat")).ok()?)
}

/// `pid (name) state ppid ... exit_code`, where the name may hold anything (proc_pid_stat(5)).
pub fn parse_stat(text: &[u8]) -> Option<Stat> {
    let (begin, end) = (text.iter().position(|b| *b == b'(')?, text.iter().rposition(|b| *b == b')')?);
    let (name, after) = (text.get(begin + 1..end)?.to_vec(), text.get(end + 1..)?);
    let fields: Vec<&str> = std::str::from_utf8(after).ok()?.split_whitespace().collect();
    // The state is field 3, the exit code field 52.
    let number = |i: usize| fields.get(i - 3)?.parse().ok();
    let count = |i: usize| fields.get(i - 3).and_then(|n| n.parse().ok()).unwrap_or(0);
    let (zombie, ppid, status) = (*fields.first()? == "Z", number(4)?, number(52).unwrap_or(0));
    Some(Stat { name, zombie, ppid, status, child_faults: count(11), start_stack: count(28) })
}

/// The letter of the state in the text of a `stat` file.
pub fn state(text: &[u8]) -> Option<char> {
    let end = text.iter().rposition(|b| *b == b')')?;
    text.get(end + 2).map(|b| char::from(*b))
}

/// Process ids of a process's parents, up to `until` or the first process.
pub fn parents(pid: i32, until: i32) -> Vec<i32> {
    let mut out = Vec::new();
    let mut at = pid;
    // (Bounded, in case numbers go round during the search.)
    while at > 1 && at != until && out.len() < 1000 {
        let Some(s) = stat(at) else { break };
        at = s.ppid;
        out.push(at);
    }
    out
}

/// Whether a process has a handler for a signal.
pub fn handles(pid: i32, signal: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
    caught.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok()).is_some_and(|bits| bits >> (signal - 1) & 1 == 1)
}

/// A process's name; empty if it is gone.
pub fn name(pid: i32) -> String {
    let text = fs::read(format!("/proc/{pid}/comm")).unwrap_or_default();
    String::from_utf8_lossy(text.strip_suffix(b"\n").unwrap_or(&text)).into_owned()
}

/// Processes that were started with this variable in their environment. (A process that overwrites the memory of its
/// environment is not found.)
pub fn all_with(name: &str, value: &str) -> Vec<i32> {
    let wanted = format!("{name}={value}");
    // A process that ends between the listing and the look at it may have forked a process after the end of the list.
    for _ in 0..MOST_LOOKS {
        let (found, ended) = look(wanted.as_bytes());
        if !found.is_empty() || !ended {
            return found;
        }
    }
    Vec::new()
}

/// For machines where processes end all the time, also those of others.
const MOST_LOOKS: u32 = 4;

/// Listed processes that have the variable in their environment, and whether one had ended when it was looked at.
fn look(wanted: &[u8]) -> (Vec<i32>, bool) {
    let Ok(all) = fs::read_dir("/proc") else { return (Vec::new(), false) };
    let pids: Vec<i32> = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
    let (mut ended, ours) = (false, std::process::id() as i32);
    let mut has = |pid: &i32| match fs::read(format!("/proc/{pid}/environ")) {
        // The kernel's own threads have an empty one, too. (The end of this process's own child was known before.)
        Ok(environ) if environ.is_empty() => {
            ended |= stat(*pid).is_none_or(|s| s.zombie && s.ppid != ours);
            false
        }
        Ok(environ) => environ.split(|b| *b == 0).any(|e| e == wanted),
        Err(e) => {
            ended |= e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(libc::ESRCH);
            false
        }
    };
    let found = pids.into_iter().filter(|pid| *pid != ours && has(pid)).collect();
    (found, ended)
}

/// The process that has this number in its own pid namespace, which is not the recorder's. `namespace`: the file number of that
/// namespace, 0 if unknown. Of several processes, the one that has mapped its region, which begins at `begins` in the session's
/// file. `None`: not found.
pub fn inside(number: i32, namespace: u64, begins: Option<usize>) -> Option<i32> {
    let all = fs::read_dir("/proc").ok()?;
    let mut pids: Vec<i32> = all.filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok()).collect();
    // The latest first, because it may end soon.
    pids.sort_unstable_by(|a, b| b.cmp(a));
    let has_number = |pid: &i32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let last = numbers.unwrap_or_default().split_whitespace().skip(1).last();
        last.and_then(|n| n.parse().ok()) == Some(number)
    };
    let lies_in = |pid: &i32| fs::metadata(format!("/proc/{pid}/ns/pid")).is_ok_and(|m| m.ino() == namespace);
    if namespace != 0
        && let Some(pid) = pids.iter().find(|pid| lies_in(pid) && has_number(pid))
    {
        return Some(*pid);
    }
    pids.retain(has_number);
    if let [pid] = pids[..] {
        return Some(pid);
    }
    // (The process maps it right after its claim.)
    let mark = format!("{:08x} ", begins?);
    let is_region = |line: &str| line.contains("doorbell-region") && line.contains(&mark);
    let has =
        |pid: &&i32| fs::read_to_string(format!("/proc/{pid}/maps")).is_ok_and(|maps| maps.lines().any(is_region));
    for _ in 0..LOOKS_FOR_MAPPING {
        let found: Vec<i32> = pids.iter().filter(has).copied().collect();
        if let [pid] = found[..] {
            return Some(pid);
        }
        if pids.is_empty() || found.len() > 1 {
            return None;
        }
        std::thread::sleep(Duration::from_micros(100));
    }
    None
}

/// How many times a region that is not yet mapped is looked for.
const LOOKS_FOR_MAPPING: u32 = 20;

/// This process's own number in /proc, and /proc's device number. `None`: it is not mounted, or does not have this
/// process.
pub fn own() -> Option<(i32, u64)> {
    let number = fs::read_link("/proc/self").ok()?.to_str()?.parse().ok()?;
    Some((number, fs::metadata("/proc").ok()?.dev()))
}

/// # Errors
/// /proc is not mounted, or belongs to another namespace: processes cannot be found there. Or the limit of the program's memory is too low.
pub fn can_be_followed() -> Result<(), RecordError> {
    let inside = std::process::id() as i32;
    match own() {
        None => Err(RecordError::NoProc),
        Some((outside, _)) if outside != inside => Err(RecordError::OtherProc { outside, inside }),
        Some(_) => limits::without_room().map_or(Ok(()), |limit| Err(RecordError::NoRoom { limit })),
    }
}

/// True if the process has a thread of that number, or if that is unknown: only /proc's denial counts.
pub fn has_thread(pid: i32, tid: i32) -> bool {
    match fs::symlink_metadata(format!("/proc/{pid}/task/{tid}")) {
        Err(e) => e.kind() != io::ErrorKind::NotFound,
        Ok(_) => true,
    }
}

/// A process, by a handle that never refers to another one.
pub struct Handle {
    pid: i32,
    fd: Option<OwnedFd>,
}

impl Handle {
    pub fn open(pid: i32) -> Handle {
        // SAFETY: no memory. The returned descriptor has no other owner.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) } as i32;
        // SAFETY: as above.
        Handle { pid, fd: (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) }) }
    }

    /// It has ended. Without a pidfd (it ended before the call, or there is no free descriptor) /proc answers. The end of a process
    /// that was not found is never seen.
    pub fn has_ended(&self) -> bool {
        match &self.fd {
            Some(_) => self.polled() & libc::POLLIN != 0,
            None => self.pid > 0 && stat(self.pid).is_none_or(|s| s.zombie),
        }
    }

    /// It existed when the handle was opened. (False also if there was no free descriptor.)
    pub fn was_there(&self) -> bool {
        self.fd.is_some()
    }

    /// True if both are known to be different processes. (Since Linux 6.9 a pidfd has its process's file number; before,
    /// all have the same. A number is rarely used again so soon.)
    pub fn is_another_than(&self, other: &Handle) -> bool {
        let file = |h: &Handle| {
            // SAFETY: zeroed is a stat to write to, and the descriptor is this handle's own.
            unsafe {
                let mut s: libc::stat = std::mem::zeroed();
                (libc::fstat(h.fd.as_ref()?.as_raw_fd(), &mut s) == 0).then_some((s.st_dev, s.st_ino))
            }
        };
        self.pid != other.pid || matches!((file(self), file(other)), (Some(a), Some(b)) if a != b)
    }

    /// Its parent has waited for it: its status is now known, or never will be.
    fn is_reaped(&self) -> bool {
        match &self.fd {
            Some(_) => self.polled() & libc::POLLHUP != 0,
            None => self.pid > 0 && stat(self.pid).is_none(),
        }
    }

    fn polled(&self) -> libc::c_short {
        let Some(fd) = &self.fd else { return 0 };
        let mut p = libc::pollfd { fd: fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one pollfd.
        unsafe { libc::poll(&mut p, 1, 0) };
        p.revents
    }

    /// How it ended, as wait gives it: for a zombie from /proc, for a reaped process from its pidfd (Linux 6.15).
    /// `None`: not known.
    pub fn status(&self) -> Option<i32> {
        self.remains().map(|s| s.status).or_else(|| self.exit_information())
    }

    /// The facts in /proc of a process that has ended, until its parent waits for it.
    pub fn remains(&self) -> Option<Stat> {
        if self.is_reaped() {
            return None;
        }
        stat(self.pid).filter(|s| s.zombie)
    }

    fn exit_information(&self) -> Option<i32> {
        /// `struct pidfd_info`, version 0 (linux/pidfd.h).
        #[repr(C)]
        #[derive(Default)]
        struct Info {
            mask: u64,
            cgroup: u64,
            pid: u32,
            tgid: u32,
            ppid: u32,
            ids: [u32; 8],
            exit_code: i32,
        }
        const _: () = assert!(size_of::<Info>() == 64);
        /// PIDFD_GET_INFO, _IOWR(0xFF, 11, struct pidfd_info), and PIDFD_INFO_EXIT.
        const GET_INFO: libc::c_ulong = 3 << 30 | 64 << 16 | 0xff << 8 | 11;
        const EXIT: u64 = 1 << 3;
        let mut info = Info { mask: EXIT, ..Info::default() };
        // SAFETY: the kernel writes at most 64 bytes, the size in the request's number.
        let r = unsafe { libc::ioctl(self.fd.as_ref()?.as_raw_fd(), GET_INFO, &raw mut info) };
        (r == 0 && info.mask & EXIT != 0).then_some(info.exit_code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;
    use std::time::Instant;

    #[test]
    fn ranks_are_those_of_the_launcher_that_started_it() {
        let of = |vars: &[&str]| rank(vars.join("\0").as_bytes());
        let r = |rank, local_rank, world_size, launcher: &str| {
            Some(Rank { rank, local_rank, world_size, launcher: launcher.into() })
        };
        assert_eq!(of(&["A=1", "RANK=3", "LOCAL_RANK=1", "WORLD_SIZE=8"]), r(3, Some(1), Some(8), "torchrun"));
        assert_eq!(of(&["SLURM_PROCID=2", "SLURM_NTASKS=4"]), r(2, None, Some(4), "slurm"));
        let both = ["SLURM_PROCID=0", "SLURM_NTASKS=1", "RANK=3", "WORLD_SIZE=8"];
        assert_eq!(of(&both), r(3, None, Some(8), "torchrun"));
        let ompi = ["OMPI_COMM_WORLD_RANK=5", "OMPI_COMM_WORLD_SIZE=6", "OMPI_COMM_WORLD_LOCAL_RANK=0"];
        assert_eq!(of(&ompi), r(5, Some(0), Some(6), "openmpi"));
        assert_eq!(of(&["PMI_RANK=1", "PMI_SIZE=2", "MPI_LOCALRANKID=1"]), r(1, Some(1), Some(2), "pmi"));
        for none in [&["RANK=high", "WORLD_SIZE=2"][..], &["RANK=3"], &["XRANK=1", "WORLD_SIZE=2"], &[], &["RANK"]] {
            assert_eq!(of(none), None, "{none:?}");
        }
        assert_eq!(rank(b"\xff=\xfe\0RANK=\xff\0WORLD_SIZE=1"), None);
    }

    #[test]
    fn names_may_hold_anything() {
        let fields: String = (5..52).map(|n| format!("{n} ")).collect();
        for name in ["sh", ") Z 1 (", "a b", ")", ""] {
            let s = parse_stat(format!("42 ({name}) S 41 {fields}256\n").as_bytes());
            let name = name.as_bytes().to_vec();
            let (child_faults, start_stack) = (11, 28);
            assert_eq!(s, Some(Stat { name, zombie: false, ppid: 41, status: 256, child_faults, start_stack }));
        }
        for bad in ["", "42", "42 (x", "42 (x)", "42 (x) S", "42 (x) S y"] {
            assert_eq!(parse_stat(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn we_know_who_we_are() {
        let me = std::process::id() as i32;
        let i = Identity::of(me);
        assert_eq!(i.args, std::env::args().collect::<Vec<_>>());
        assert_eq!(i.exe, std::env::current_exe().unwrap().to_str().unwrap());
        // SAFETY: no arguments.
        assert_eq!((i.ppid, parents(me, 0)[0]), unsafe { (libc::getppid(), libc::getppid()) });
        // SAFETY: no arguments.
        assert!(has_thread(me, unsafe { libc::syscall(libc::SYS_gettid) as i32 }) && !has_thread(me, i32::MAX));
        let nobody = Identity::of(i32::MAX);
        assert_eq!(nobody, Identity::default());
        assert_eq!(nobody.or(i.clone()), i);
        assert_eq!(i.clone().or(Identity { ppid: 1, exe: "x".into(), ..Identity::default() }), i);
    }

    /// Processes that are not this process's children: a shell starts them and waits for them.
    #[test]
    fn how_it_ended_is_known_of_others_children_too() {
        for (text, wanted) in [("exit 7", 7 << 8), ("kill -9 $$", 9)] {
            // (A background process of a shell has no standard input.)
            let script = format!("exec 3<&0; sh -c 'echo $$; read x <&3; {text}' & wait $!; read y");
            let mut shell = Command::new("/bin/sh")
                .args(["-c", &script])
                .stdin(std::process::Stdio::piped())
                .stdout(std::process::Stdio::piped())
                .spawn()
                .unwrap();
            let mut line = String::new();
            io::BufRead::read_line(&mut io::BufReader::new(shell.stdout.take().unwrap()), &mut line).unwrap();
            let h = Handle::open(line.trim().parse().unwrap());
            assert!(!h.has_ended());
            io::Write::write_all(shell.stdin.as_mut().unwrap(), b"\n").unwrap();
            let begun = Instant::now();
            while !h.has_ended() || !h.is_reaped() {
                assert!(begun.elapsed() < Duration::from_secs(20));
                std::thread::sleep(Duration::from_millis(1));
            }
            match h.status() {
                Some(status) => assert_eq!(status, wanted),
                None => test_support::skip_part!(
                    "this kernel does not say how a process that was waited for ended (Linux 6.15 does)"
                ),
            }
            drop(shell.stdin.take());
            shell.wait().unwrap();
        }
        // A handle distinguishes its process from others, whatever their numbers.
        let (a, b, c) = (Handle::open(1), Handle::open(1), Handle::open(std::process::id() as i32));
        assert!(!a.is_another_than(&b) && a.is_another_than(&c));
        // A zombie: a child of this process.
        let mut child = Command::new("/bin/sh").args(["-c", "exit 3"]).spawn().unwrap();
        let h = Handle::open(child.id() as i32);
        while !h.has_ended() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(h.status(), Some(3 << 8));
        child.wait().unwrap();
    }
}
