//! Where control sockets are: a folder that only this user can access, with a socket `PID.sock` for each recorded program.
//!
//! The folder is opened once, and the opened folder is checked. From then on only its descriptor is used, so a name that is redirected later has no
//! effect. A process that makes, renames or removes a socket holds the folder's lock. So a socket that refuses connections was left by a killed
//! recorder.

use std::ffi::{CStr, CString, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The folder's name in XDG_RUNTIME_DIR. In /tmp the user's number follows.
const NAME: &str = "doorbell";
const ENDING: &str = ".sock";
/// The lock is held for microseconds, or longer if its recorder is stopped just then. (64 recorders may begin at once.)
const LOCK_WITHIN: Duration = Duration::from_secs(2);
/// Maximum number of leftover sockets that one recorder removes.
const SWEPT: usize = 256;

/// An open folder that passed the checks.
#[derive(Debug)]
pub struct Folder {
    dir: File,
    pub path: PathBuf,
    /// Its owner.
    pub uid: u32,
}

/// True while the folder's lock is held.
pub struct Locked<'a>(&'a Folder);

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        // SAFETY: this folder's own descriptor.
        unsafe { libc::flock(self.0.dir.as_raw_fd(), libc::LOCK_UN) };
    }
}

pub fn own_uid() -> u32 {
    // SAFETY: no arguments.
    unsafe { libc::geteuid() }
}

/// The socket of a program.
pub fn name_of(pid: i32) -> String {
    format!("{pid}{ENDING}")
}

/// The program of a socket; `None` for other files.
pub fn pid_of(name: &OsStr) -> Option<i32> {
    name.to_str()?.strip_suffix(ENDING)?.parse().ok().filter(|pid| *pid > 0)
}

impl Folder {
    /// This user's folder, made if it does not exist.
    ///
    /// # Errors
    /// No place can be used: why the last one cannot.
    pub fn make() -> io::Result<Folder> {
        let uid = own_uid();
        let mut failed = io::Error::from(io::ErrorKind::NotFound);
        for (base, name) in places(uid) {
            match base_is_safe(&base, uid).and_then(|()| Folder::make_in(&base, &name, uid)) {
                Ok(folder) => return Ok(folder),
                Err(e) => failed = e,
            }
        }
        Err(failed)
    }

    fn make_in(base: &Path, name: &str, uid: u32) -> io::Result<Folder> {
        let path = base.join(name);
        let dir = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a NUL-terminated path.
        let made = unsafe { libc::mkdir(dir.as_ptr(), 0o700) };
        if made < 0 {
            let e = io::Error::last_os_error();
            if e.kind() != io::ErrorKind::AlreadyExists {
                return Err(at(&path, e));
            }
        }
        Folder::open(path, uid)
    }

    /// # Errors
    /// The folder does not exist, is a link or no folder, belongs to a user other than `uid`, or is accessible to
    /// others.
    pub fn open(path: PathBuf, uid: u32) -> io::Result<Folder> {
        let flags = libc::O_RDONLY | libc::O_DIRECTORY | libc::O_NOFOLLOW | libc::O_CLOEXEC;
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput)?;
        // SAFETY: a NUL-terminated path.
        let fd = unsafe { libc::open(name.as_ptr(), flags) };
        if fd < 0 {
            let e = io::Error::last_os_error();
            let link = matches!(e.raw_os_error(), Some(libc::ELOOP | libc::ENOTDIR));
            return Err(if link { at(&path, "is a link, or no folder") } else { at(&path, e) });
        }
        // SAFETY: a new descriptor.
        let dir = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let m = dir.metadata()?;
        if m.uid() != uid {
            return Err(at(&path, format!("belongs to user {}, not to user {uid}", m.uid())));
        }
        if m.mode() & 0o077 != 0 {
            return Err(at(&path, format!("has mode {:o}: others can get at it (chmod 700)", m.mode() & 0o7777)));
        }
        Ok(Folder { dir, path, uid })
    }

    /// Folders in which a recorder of this user may have put its socket.
    pub fn of_user(uid: u32) -> Vec<Folder> {
        let mut places: Vec<PathBuf> = places(uid).into_iter().map(|(base, name)| base.join(name)).collect();
        places.insert(1.min(places.len()), PathBuf::from(format!("/run/user/{uid}/{NAME}")));
        places.sort();
        places.dedup();
        places.into_iter().filter_map(|path| Folder::open(path, uid).ok()).collect()
    }

    /// All folders that this user may look into. Root looks into every user's.
    pub fn all() -> Vec<Folder> {
        let own = own_uid();
        let mut all = Folder::of_user(own);
        if own != 0 {
            return all;
        }
        for (base, prefix) in [("/run/user", ""), ("/tmp", "doorbell-")] {
            for entry in std::fs::read_dir(base).into_iter().flatten().flatten() {
                let name = entry.file_name();
                let uid = name.to_str().and_then(|n| n.strip_prefix(prefix)?.parse::<u32>().ok());
                if let Some(uid) = uid.filter(|uid| *uid != own) {
                    all.extend(Folder::of_user(uid));
                }
            }
        }
        all.sort_by(|a, b| a.path.cmp(&b.path));
        all.dedup_by(|a, b| a.path == b.path);
        all
    }

    /// The programs that have a socket here.
    pub fn programs(&self) -> Vec<i32> {
        let names = std::fs::read_dir(self.here("")).into_iter().flatten().flatten();
        let mut pids: Vec<i32> = names.filter_map(|e| pid_of(&e.file_name())).collect();
        pids.sort_unstable();
        pids
    }

    /// A path to a name in this folder, whatever the folder is called by now. It is short enough for a socket's
    /// address.
    pub fn here(&self, name: &str) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{name}", self.dir.as_raw_fd()))
    }

    /// # Errors
    /// Another process holds the lock for longer than `LOCK_WITHIN`.
    pub fn lock(&self) -> io::Result<Locked<'_>> {
        let begun = Instant::now();
        // SAFETY: this folder's own descriptor.
        while unsafe { libc::flock(self.dir.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) } < 0 {
            let e = io::Error::last_os_error();
            if begun.elapsed() > LOCK_WITHIN || e.kind() != io::ErrorKind::WouldBlock {
                return Err(at(&self.path, format!("cannot be locked: {e}")));
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Locked(self))
    }

    /// Connects to a socket of the folder's owner. A link in its place could lead to a service of another user's.
    ///
    /// # Errors
    /// As [`connect`]; or the name is no socket of the owner's.
    pub fn connect(&self, name: &str) -> io::Result<UnixStream> {
        let path = CString::new(name)?;
        // SAFETY: this folder's own descriptor, and a NUL-terminated name.
        let fd = unsafe {
            libc::openat(self.dir.as_raw_fd(), path.as_ptr(), libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a new descriptor.
        let socket = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let m = socket.metadata()?;
        if !m.file_type().is_socket() || m.uid() != self.uid {
            return Err(at(&self.path.join(name), "is no socket of this user's"));
        }
        connect(Path::new(&format!("/proc/self/fd/{}", socket.as_raw_fd())))
    }

    /// True if a process listens at this socket, even a stopped one. A file that is no socket counts as in use.
    pub fn is_live(&self, name: &str, _: &Locked<'_>) -> bool {
        match connect(&self.here(name)) {
            Ok(_) => true,
            Err(e) => !matches!(e.raw_os_error(), Some(libc::ECONNREFUSED | libc::ENOENT)),
        }
    }

    pub fn remove(&self, name: &str) {
        if let Ok(name) = CString::new(name) {
            self.unlink(&name);
        }
    }

    fn unlink(&self, name: &CStr) {
        // SAFETY: this folder's own descriptor, and a NUL-terminated name.
        unsafe { libc::unlinkat(self.dir.as_raw_fd(), name.as_ptr(), 0) };
    }

    /// # Errors
    /// The kernel refused.
    pub fn rename(&self, from: &str, to: &str, _: &Locked<'_>) -> io::Result<()> {
        let fd = self.dir.as_raw_fd();
        let (from, to) = (CString::new(from)?, CString::new(to)?);
        // SAFETY: this folder's own descriptor, and NUL-terminated names.
        match unsafe { libc::renameat(fd, from.as_ptr(), fd, to.as_ptr()) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Device and file number of a name. They stay with the file when it is renamed.
    pub fn file(&self, name: &str) -> Option<(u64, u64)> {
        let m = std::fs::symlink_metadata(self.here(name)).ok()?;
        Some((m.dev(), m.ino()))
    }

    /// Removes sockets that killed recorders left.
    pub fn sweep(&self, locked: &Locked<'_>) {
        for entry in std::fs::read_dir(self.here("")).into_iter().flatten().flatten().take(SWEPT) {
            let name = entry.file_name();
            let Some(name) = name.to_str() else { continue };
            if entry.file_type().is_ok_and(|t| t.is_socket()) && !self.is_live(name, locked) {
                self.remove(name);
            }
        }
    }
}

/// Connects without waiting: a stopped process with a full queue would delay the caller.
///
/// # Errors
/// The kernel refused; `WouldBlock` if the other side takes no more connections for now.
pub fn connect(path: &Path) -> io::Result<UnixStream> {
    let (address, len) = address(path)?;
    // SAFETY: a filled address, and a descriptor that has no other owner.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        let fd = OwnedFd::from_raw_fd(fd);
        match libc::connect(fd.as_raw_fd(), (&raw const address).cast(), len) {
            0 => Ok(UnixStream::from(fd)),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

/// # Errors
/// The path is too long.
pub fn address(path: &Path) -> io::Result<(libc::sockaddr_un, libc::socklen_t)> {
    let bytes = path.as_os_str().as_bytes();
    // SAFETY: zeroed is an address without a name.
    let mut a: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    if bytes.len() >= a.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    a.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (to, from) in a.sun_path.iter_mut().zip(bytes) {
        *to = *from as libc::c_char;
    }
    Ok((a, size_of::<libc::sockaddr_un>() as libc::socklen_t))
}

/// Folders that may contain a user's folder, and its name there. The best is first.
fn places(uid: u32) -> Vec<(PathBuf, String)> {
    let mut places = Vec::new();
    if let Some(base) = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|b| b.is_absolute()) {
        places.push((base, NAME.to_owned()));
    }
    places.push((PathBuf::from("/tmp"), format!("{NAME}-{uid}")));
    places
}

/// XDG_RUNTIME_DIR belongs to its user alone (under sudo it may be another user's). In /tmp the sticky bit protects names from
/// removal by others.
fn base_is_safe(base: &Path, uid: u32) -> io::Result<()> {
    let m = base.metadata().map_err(|e| at(base, e))?;
    let sticky = m.mode() & 0o1000 != 0 && m.uid() == 0;
    let alone = m.uid() == uid && m.mode() & 0o022 == 0;
    if m.is_dir() && (sticky || alone) {
        return Ok(());
    }
    Err(at(
        base,
        format!("belongs to user {} and has mode {:o}: others can change what is in it", m.uid(), m.mode() & 0o7777),
    ))
}

fn at(path: &Path, why: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("{}: {why}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn folder(dir: &tempfile::TempDir) -> Folder {
        Folder::make_in(dir.path(), NAME, own_uid()).unwrap()
    }

    #[test]
    fn a_folder_is_made_for_its_user_alone_and_found_again() {
        let dir = tempfile::tempdir().unwrap();
        let made = folder(&dir);
        assert_eq!(made.path.metadata().unwrap().mode() & 0o7777, 0o700);
        assert_eq!(folder(&dir).path, made.path);
    }

    #[test]
    fn a_link_a_file_another_mode_and_another_owner_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let why = |uid: u32| Folder::make_in(dir.path(), NAME, uid).unwrap_err().to_string();
        std::os::unix::fs::symlink(dir.path(), &path).unwrap();
        assert!(why(own_uid()).contains("is a link"), "{}", why(own_uid()));
        fs::remove_file(&path).unwrap();
        fs::write(&path, "").unwrap();
        assert!(why(own_uid()).contains("no folder"), "{}", why(own_uid()));
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o710)).unwrap();
        assert!(why(own_uid()).contains("mode 710"), "{}", why(own_uid()));
        fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        assert!(why(own_uid() + 1).contains("belongs to user"), "{}", why(own_uid() + 1));
    }

    #[test]
    fn a_base_that_others_can_change_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let safe = || base_is_safe(dir.path(), own_uid()).is_ok();
        assert!(safe());
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        assert!(!safe());
        assert!(base_is_safe(Path::new("/tmp"), own_uid()).is_ok());
    }

    #[test]
    fn only_what_refuses_connections_is_swept_away() {
        let dir = tempfile::tempdir().unwrap();
        let f = folder(&dir);
        drop(UnixListener::bind(f.here("7.sock")).unwrap());
        let _live = UnixListener::bind(f.here("8.sock")).unwrap();
        fs::write(f.here("9.sock"), "no socket").unwrap();
        let locked = f.lock().unwrap();
        assert!(!f.is_live("7.sock", &locked) && f.is_live("8.sock", &locked));
        f.sweep(&locked);
        drop(locked);
        assert_eq!(f.programs(), [8, 9]);
    }

    #[test]
    fn a_lock_that_is_kept_is_not_waited_for_long() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (folder(&dir), folder(&dir));
        let kept = a.lock().unwrap();
        assert!(b.lock().is_err());
        drop(kept);
        assert!(b.lock().is_ok());
    }

    #[test]
    fn names_are_pids() {
        assert_eq!(pid_of(OsStr::new(&name_of(12))), Some(12));
        assert_eq!(["x.sock", "-3.sock", ".12-5", "12"].map(|n| pid_of(OsStr::new(n))), [None; 4]);
    }
}
