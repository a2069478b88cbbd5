//! What an exec is about to start, and whether a library can be preloaded into it.
//!
//! The file is examined with the calls that a dynamic loader makes at its own start (openat, newfstatat, pread64, access,
//! close). So a seccomp filter under which programs can start allows these, too.
//!
//! Invariant: nothing here changes errno, allocates, or writes to memory other than the stack, because it runs in vfork
//! children.

use crate::process::sys;
use core::ffi::{CStr, c_char};
use tape::session::unwatched;

/// How a started program is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A dynamic x86-64 program of glibc: it gets the environment that loads the agent.
    Followed,
    /// As above, but its work is done by processes that are not its children (`srun`).
    Elsewhere,
    /// It loads no library. (The programs that it starts might. But then it would see the agent's variables, and so would
    /// every program that it starts: one for 32 bits or of musl fails with them.)
    Static,
    /// Set-user-ID or set-group-ID: the loader ignores preloads.
    SetId,
    /// With file capabilities: as above.
    Capabilities,
    /// A program for 32 bits: its loader would complain about the library.
    ThirtyTwoBit,
    /// A program for another processor.
    Foreign,
    /// A loader other than glibc's (musl's): it would fail to load the library and end the program.
    OtherLoader,
    /// Its glibc is older than the agent needs, or is not found: its loader would end it.
    Glibc,
    /// The agent's file cannot be opened from here (another namespace, another root directory, a closed recorder).
    Unreachable,
    /// Nor after the exec: see [`super::rights`].
    Rights,
    /// Its memory limits are too small for the agent.
    Limit,
    /// Another recorder, which this process is or belongs to, has prepared it.
    Another,
    /// Its environment already has the maximum length.
    Environment,
    /// Executable, but not readable from here.
    Unreadable,
    /// It cannot be started: the kernel reports the reason.
    Missing,
    /// A shell command that cannot carry the agent's variables.
    Command,
    /// Not a recognisable program. The kernel decides; it gets the environment, because a shell may run it.
    Unknown,
}

impl Target {
    /// True if the program must get the agent's environment.
    pub fn inject(self) -> bool {
        matches!(self, Target::Followed | Target::Elsewhere | Target::Unknown)
    }

    /// This target, if started by this path.
    fn called(self, path: &CStr) -> Target {
        match self {
            Target::Followed if unwatched::elsewhere(path.to_bytes()) => Target::Elsewhere,
            other => other,
        }
    }

    /// Why it is not watched: one of [`unwatched`].
    pub fn unwatched(self) -> Option<u32> {
        Some(match self {
            Target::Followed | Target::Unknown | Target::Missing => return None,
            Target::Elsewhere => unwatched::ELSEWHERE,
            Target::Static => unwatched::STATIC,
            Target::SetId => unwatched::SET_ID,
            Target::Capabilities => unwatched::CAPABILITIES,
            Target::ThirtyTwoBit => unwatched::THIRTY_TWO_BIT,
            Target::Foreign => unwatched::FOREIGN,
            Target::OtherLoader => unwatched::LOADER,
            Target::Glibc => unwatched::GLIBC,
            Target::Another => unwatched::ANOTHER,
            Target::Unreachable => unwatched::PLACE,
            Target::Rights => unwatched::RIGHTS,
            Target::Limit => unwatched::LIMIT,
            Target::Environment => unwatched::ENVIRONMENT,
            Target::Unreadable => unwatched::UNREADABLE,
            Target::Command => unwatched::COMMAND,
        })
    }
}

/// The kernel follows `#!` lines this deep (BINPRM_MAX_RECURSION is 5).
const SCRIPTS: usize = 5;
/// The number of a file's bytes that the kernel examines (BINPRM_BUF_SIZE).
const HEAD: usize = 256;

/// An open file, closed when dropped.
pub struct File(pub i32);

impl File {
    /// `Err`: the target for a program that cannot be opened.
    pub fn open(dir: i32, path: *const c_char) -> Result<File, Target> {
        let flags = (libc::O_RDONLY | libc::O_CLOEXEC) as usize;
        // SAFETY: a NUL-terminated path, or the kernel returns EFAULT.
        let (fd, executable) = unsafe {
            let fd = sys::syscall6(libc::SYS_openat, dir as usize, path as usize, flags, 0, 0, 0);
            let may = || sys::syscall6(libc::SYS_faccessat, dir as usize, path as usize, libc::X_OK as usize, 0, 0, 0);
            (fd, fd < 0 && may() == 0)
        };
        match fd {
            0.. => Ok(File(fd as i32)),
            _ if executable => Err(Target::Unreadable),
            _ => Err(Target::Missing),
        }
    }

    /// Opens a directory, only to look for files in it.
    pub fn directory(dir: i32, path: *const c_char) -> Option<File> {
        let flags = (libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC) as usize;
        // SAFETY: a NUL-terminated path, or the kernel returns EFAULT.
        let fd = unsafe { sys::syscall6(libc::SYS_openat, dir as usize, path as usize, flags, 0, 0, 0) };
        (fd >= 0).then_some(File(fd as i32))
    }

    /// Opens once more what `fd` is open on, if it cannot be read by `fd` (O_PATH).
    fn again(fd: i32) -> Option<Result<File, Target>> {
        let mut byte = 0u8;
        // SAFETY: one byte.
        let n = unsafe { sys::syscall6(libc::SYS_pread64, fd as usize, &raw mut byte as usize, 1, 0, 0, 0) };
        if n != -(libc::EBADF as isize) {
            return None;
        }
        let (mut name, mut room) = (*b"/proc/self/fd/\0\0\0\0\0\0\0\0\0\0\0", [0; 10]);
        let digits = sys::decimal(fd.max(0) as u32, &mut room);
        name.iter_mut().skip(14).zip(digits).for_each(|(to, digit)| *to = *digit);
        Some(File::open(libc::AT_FDCWD, name.as_ptr().cast()))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // SAFETY: the agent's own descriptor.
        unsafe { sys::close(self.0) };
    }
}

/// Bytes at `at`, as many as there are.
pub fn read(fd: i32, at: u64, to: &mut [u8]) -> &[u8] {
    // SAFETY: a buffer with its length.
    let n =
        unsafe { sys::syscall6(libc::SYS_pread64, fd as usize, to.as_mut_ptr() as usize, to.len(), at as usize, 0, 0) };
    to.get(..n.max(0) as usize).unwrap_or(&[])
}

/// The file at `path`, relative to the directory `dir` (AT_FDCWD: the current one).
///
/// # Safety
/// `path` is a string, or a pointer that the kernel cannot read either.
pub unsafe fn of_path(dir: i32, path: *const c_char) -> Target {
    match File::open(dir, path) {
        // SAFETY: a string, which the kernel has read.
        Ok(f) => of_open(dir, f.0).called(unsafe { CStr::from_ptr(path) }),
        Err(what) => what,
    }
}

/// The file that `fd` is open on.
pub fn of_descriptor(fd: i32) -> Target {
    match File::again(fd) {
        None => of_open(libc::AT_FDCWD, fd),
        Some(Ok(f)) => of_open(libc::AT_FDCWD, f.0),
        Some(Err(what)) => what,
    }
}

/// The file that can be read by `fd`, started in the directory `dir`.
fn of_open(dir: i32, fd: i32) -> Target {
    let mut interpreter = [0u8; HEAD];
    let mut next = match look(fd, &mut interpreter) {
        Seen::Is(t) => return t,
        Seen::Script(n) => n,
    };
    for _ in 0..SCRIPTS {
        // The kernel opens it relative to the directory. Its name ends with a NUL: see `look`.
        if next >= HEAD {
            break;
        }
        let f = match File::open(dir, interpreter.as_ptr().cast()) {
            Ok(f) => f,
            Err(what) => return what,
        };
        match look(f.0, &mut interpreter) {
            Seen::Is(t) => return t,
            Seen::Script(n) => next = n,
        }
    }
    Target::Unknown
}

enum Seen {
    Is(Target),
    /// A script. Its interpreter's name, of this many bytes, was written to the buffer, with a NUL after it.
    Script(usize),
}

fn look(fd: i32, interpreter: &mut [u8; HEAD]) -> Seen {
    let mut head = [0u8; HEAD];
    let head = read(fd, 0, &mut head);
    if let Some(line) = head.strip_prefix(b"#!") {
        let line = line.split(|&b| b == b'\n').next().unwrap_or(line).trim_ascii_start();
        let name = line.split(|b| matches!(b, b' ' | b'\t' | 0)).next().unwrap_or(line);
        let Some(to) = interpreter.get_mut(..name.len()).filter(|_| !name.is_empty()) else {
            return Seen::Is(Target::Unknown);
        };
        to.copy_from_slice(name);
        if let Some(end) = interpreter.get_mut(name.len()) {
            *end = 0;
        }
        return Seen::Script(name.len());
    }
    let target = elf(fd, head);
    Seen::Is(privileges(fd).filter(|_| target.inject()).unwrap_or(target))
}

/// ELF header and program headers (System V ABI, chapters 4 and 5).
fn elf(fd: i32, head: &[u8]) -> Target {
    let u16_at = |at: usize| head.get(at..at + 2).map_or(0, |b| u16::from_le_bytes([b[0], b[1]]));
    if !head.starts_with(b"\x7fELF") {
        return Target::Unknown;
    }
    // EI_CLASS 2 is 64-bit, EI_DATA 1 little-endian, e_machine 62 EM_X86_64.
    if head.get(4) == Some(&1) {
        return Target::ThirtyTwoBit;
    }
    if head.get(4) != Some(&2) || head.get(5) != Some(&1) || u16_at(18) != 62 {
        return Target::Foreign;
    }
    let table = head.get(32..40).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let (size, n) = (u16_at(54), u16_at(56));
    let word = |b: &[u8], at: usize| b.get(at..at + 8).and_then(|b| b.try_into().ok()).map_or(0, u64::from_le_bytes);
    let mut dynamic = false;
    for i in 0..n.min(128) {
        let mut header = [0u8; 56];
        let header = read(fd, table.saturating_add(u64::from(i) * u64::from(size)), &mut header);
        match header.get(..4) {
            // PT_INTERP: the place of the loader's name (p_offset, p_filesz).
            Some([3, 0, 0, 0]) => {
                let mut name = [0u8; HEAD];
                let want = (word(header, 32) as usize).min(HEAD);
                read(fd, word(header, 8), name.get_mut(..want).unwrap_or(&mut []));
                let Ok(name) = CStr::from_bytes_until_nul(&name) else { return Target::OtherLoader };
                return match name.to_bytes().ends_with(b"/ld-linux-x86-64.so.2") {
                    true => super::glibc::target_of(name),
                    false => Target::OtherLoader,
                };
            }
            // PT_DYNAMIC without an interpreter: static-pie, or the loader itself.
            Some([2, 0, 0, 0]) => dynamic = true,
            Some(_) => {}
            None => break,
        }
    }
    if dynamic && is_loader(fd) { Target::Followed } else { Target::Static }
}

/// The dynamic loader started as a program (`ld-linux-x86-64.so.2 ./app`) preloads as for any program.
fn is_loader(fd: i32) -> bool {
    let mut path = [0u8; 256];
    let n = sys::fd_path(fd, &mut path);
    let path = path.get(..n).unwrap_or(&[]);
    let name = path.rsplit(|&b| b == b'/').next().unwrap_or(path);
    name.starts_with(b"ld-linux-x86-64.so") || (name.starts_with(b"ld-2.") && name.ends_with(b".so"))
}

/// If starting it would change the process's user, group or capabilities, the loader takes no preload from a path.
fn privileges(fd: i32) -> Option<Target> {
    // SAFETY: plain integers; all zero is one.
    let mut s: libc::stat = unsafe { core::mem::zeroed() };
    // SAFETY: an empty path names the descriptor; the struct outlives the call.
    let known = unsafe {
        sys::syscall6(
            libc::SYS_newfstatat,
            fd as usize,
            c"".as_ptr() as usize,
            &raw mut s as usize,
            libc::AT_EMPTY_PATH as usize,
            0,
            0,
        )
    } == 0;
    // SAFETY: no arguments.
    let (user, group) = unsafe {
        (sys::syscall6(libc::SYS_geteuid, 0, 0, 0, 0, 0, 0), sys::syscall6(libc::SYS_getegid, 0, 0, 0, 0, 0, 0))
    };
    let capabilities = || {
        // SAFETY: a NUL-terminated name; asks for the size only.
        unsafe {
            sys::syscall6(libc::SYS_fgetxattr, fd as usize, c"security.capability".as_ptr() as usize, 0, 0, 0, 0) > 0
        }
    };
    let set_id = (s.st_mode & 0o4000 != 0 && s.st_uid as isize != user)
        || (s.st_mode & 0o2010 == 0o2010 && s.st_gid as isize != group);
    match () {
        () if known && set_id => Some(Target::SetId),
        () if user != 0 && capabilities() => Some(Target::Capabilities),
        () => None,
    }
}

/// Whether a file can be read from here.
pub fn is_readable(path: &CStr) -> bool {
    // SAFETY: a NUL-terminated path.
    unsafe { sys::syscall6(libc::SYS_access, path.as_ptr() as usize, libc::R_OK as usize, 0, 0, 0, 0) == 0 }
}

/// Longest path that a search tries. It is on the stack of the thread that execs, maybe in a signal handler.
const PATH: usize = 1024;

/// The first match of execvp's search in the directory `at`: an executable file of that name.
///
/// # Safety
/// `name` is null or a string; `path` the value of PATH.
pub unsafe fn in_path(at: i32, name: *const c_char, path: &[u8]) -> Target {
    if name.is_null() {
        return Target::Missing;
    }
    // SAFETY: the caller's.
    let n = unsafe { CStr::from_ptr(name) }.to_bytes();
    if n.is_empty() {
        return Target::Missing;
    }
    if n.contains(&b'/') {
        // SAFETY: the caller's.
        return unsafe { of_path(at, name) };
    }
    for dir in path.split(|&b| b == b':') {
        let mut file = [0u8; PATH];
        // An empty element is the current directory.
        let slash = usize::from(!dir.is_empty());
        let len = dir.len() + slash + n.len();
        if len >= PATH {
            continue;
        }
        file[..dir.len()].copy_from_slice(dir);
        if slash == 1 {
            file[dir.len()] = b'/';
        }
        file[dir.len() + slash..len].copy_from_slice(n);
        let file = file.as_ptr();
        // SAFETY: a NUL-terminated path.
        let may = unsafe {
            match at {
                libc::AT_FDCWD => sys::syscall6(libc::SYS_access, file as usize, libc::X_OK as usize, 0, 0, 0, 0),
                at => sys::syscall6(libc::SYS_faccessat, at as usize, file as usize, libc::X_OK as usize, 0, 0, 0),
            }
        };
        if may != 0 {
            continue;
        }
        let f = match File::open(at, file.cast()) {
            Ok(f) => f,
            Err(what) => return what,
        };
        // A directory is executable too; reading it fails.
        let mut one = [0u8; 1];
        if read(f.0, 0, &mut one).is_empty() {
            continue;
        }
        // SAFETY: a NUL-terminated path.
        return of_open(at, f.0).called(unsafe { CStr::from_ptr(file.cast()) });
    }
    Target::Missing
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::ffi::CString;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;

    fn path(p: &std::path::Path) -> Target {
        let p = CString::new(p.as_os_str().as_bytes()).expect("a path");
        // SAFETY: a string.
        unsafe { of_path(libc::AT_FDCWD, p.as_ptr()) }
    }

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut f = tempfile::NamedTempFile::new().expect("a file");
        f.write_all(bytes).expect("it is written");
        f
    }

    #[test]
    fn programs_of_this_machine() {
        assert_eq!(path(std::path::Path::new("/bin/sh")), Target::Followed);
        assert_eq!(path(&std::env::current_exe().expect("a name")), Target::Followed);
        assert_eq!(path(std::path::Path::new("/lib64/ld-linux-x86-64.so.2")), Target::Followed);
        assert_eq!(path(std::path::Path::new("/nowhere")), Target::Missing);
        // SAFETY: the kernel reports that these are not strings.
        assert_eq!([0, 8].map(|at| unsafe { of_path(libc::AT_FDCWD, at as *const c_char) }), [Target::Missing; 2]);
    }

    #[test]
    fn scripts_are_what_their_interpreter_is() {
        assert_eq!(path(file(b"#!/bin/sh\n").path()), Target::Followed);
        assert_eq!(path(file(b"#! /bin/sh -e\n").path()), Target::Followed);
        assert_eq!(path(file(b"#!/nowhere\n").path()), Target::Missing);
        assert_eq!(path(file(b"#!").path()), Target::Unknown);
        assert_eq!(path(file(b"echo\n").path()), Target::Unknown);
        let inner = file(b"#!/bin/sh\n");
        let outer = file(format!("#!{}\n", inner.path().display()).as_bytes());
        assert_eq!(path(outer.path()), Target::Followed);
    }

    #[test]
    fn what_has_its_work_done_elsewhere_is_known_by_its_name() {
        let dir = tempfile::tempdir().expect("a directory");
        for (name, is) in [
            ("srun", Target::Elsewhere),
            ("ssh", Target::Elsewhere),
            ("kubectl", Target::Elsewhere),
            ("ssh-agent", Target::Followed),
        ] {
            let to = dir.path().join(name);
            std::os::unix::fs::symlink("/bin/sh", &to).expect("a link");
            assert_eq!(path(&to), is, "{name}");
            let name = CString::new(name).expect("a name");
            // SAFETY: a string.
            assert_eq!(unsafe { in_path(libc::AT_FDCWD, name.as_ptr(), dir.path().as_os_str().as_bytes()) }, is);
        }
        assert!(Target::Elsewhere.inject() && !Target::Static.inject());
    }

    #[test]
    fn a_script_that_names_itself_ends() {
        let mut f = tempfile::NamedTempFile::new().expect("a file");
        let line = format!("#!{}\n", f.path().display());
        f.write_all(line.as_bytes()).expect("it is written");
        assert_eq!(path(f.path()), Target::Unknown);
    }

    /// An ELF head with one program header of this kind, and an interpreter.
    fn elf_of(class: u8, machine: u16, kind: u8, interpreter: &[u8]) -> Vec<u8> {
        let mut b = vec![0u8; 64 + 56];
        b[..4].copy_from_slice(b"\x7fELF");
        (b[4], b[5]) = (class, 1);
        b[18..20].copy_from_slice(&machine.to_le_bytes());
        b[32] = 64;
        (b[54], b[56]) = (56, 1);
        b[64] = kind;
        b[64 + 8] = 120;
        b[64 + 32] = interpreter.len() as u8;
        b.extend_from_slice(interpreter);
        b
    }

    #[test]
    fn what_cannot_be_loaded_into_is_told_apart() {
        let glibc = b"/lib64/ld-linux-x86-64.so.2\0";
        assert_eq!(path(file(&elf_of(2, 62, 3, glibc)).path()), Target::Followed);
        assert_eq!(path(file(&elf_of(2, 62, 3, b"/lib/ld-musl-x86_64.so.1\0")).path()), Target::OtherLoader);
        assert_eq!(path(file(&elf_of(2, 62, 1, b"")).path()), Target::Static);
        assert_eq!(path(file(&elf_of(1, 3, 3, b"/lib/ld-linux.so.2\0")).path()), Target::ThirtyTwoBit);
        assert_eq!(path(file(&elf_of(2, 183, 3, b"/lib/ld-linux-aarch64.so.1\0")).path()), Target::Foreign);
    }

    #[test]
    fn no_head_of_a_file_is_trouble() {
        let good = elf_of(2, 62, 3, b"/lib64/ld-linux-x86-64.so.2\0");
        for cut in 0..good.len() {
            let _ = path(file(&good[..cut]).path());
        }
        let mut seed = 1u64;
        for _ in 0..300 {
            let mut b = good.clone();
            for _ in 0..8 {
                seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                let at = (seed >> 33) as usize % b.len();
                b[at] = (seed >> 25) as u8;
            }
            let _ = path(file(&b).path());
        }
    }

    #[test]
    fn a_descriptor_stays_open() {
        let f = std::fs::File::open("/bin/sh").expect("a shell");
        assert_eq!(of_descriptor(f.as_raw_fd()), Target::Followed);
        assert!(f.metadata().is_ok());
    }

    #[test]
    fn the_path_is_searched_as_execvp_does() {
        // SAFETY: strings.
        let find = |name: &CStr, path: &[u8]| unsafe { in_path(libc::AT_FDCWD, name.as_ptr(), path) };
        assert_eq!(find(c"sh", b"/nowhere:/bin:/usr/bin"), Target::Followed);
        assert_eq!(find(c"sh", b"/nowhere"), Target::Missing);
        assert_eq!(find(c"/bin/sh", b""), Target::Followed);
        assert_eq!(find(c"", b"/bin"), Target::Missing);
        // A directory of that name is skipped.
        let dir = tempfile::tempdir().expect("a directory");
        std::fs::create_dir(dir.path().join("sh")).expect("a directory");
        let both = [dir.path().as_os_str().as_bytes(), b":/bin"].concat();
        assert_eq!(find(c"sh", &both), Target::Followed);
    }

    proptest! {
        #[test]
        fn a_damaged_program_is_told_apart_or_unknown(
            at in proptest::collection::vec((0..147usize, any::<u8>()), 1..12), cut in 0..200usize,
        ) {
            let mut bytes = elf_of(2, 62, 3, b"/lib64/ld-linux-x86-64.so.2\0");
            for (at, value) in at {
                bytes[at] = value;
            }
            bytes.truncate(cut.max(1));
            let t = path(file(&bytes).path());
            // Nothing else is followed: the preload would fail in it.
            prop_assert!(t != Target::Followed || bytes.windows(21).any(|w| w == b"/ld-linux-x86-64.so.2"));
            prop_assert!(bytes.starts_with(b"\x7fELF") || t == Target::Unknown);
        }

        #[test]
        fn any_script_ends(line in proptest::collection::vec(any::<u8>(), 0..600)) {
            let t = path(file(&[b"#!", &line[..]].concat()).path());
            prop_assert!(matches!(t, Target::Unknown | Target::Static | Target::Followed | Target::Missing));
        }
    }
}
