//! A recorder's socket. It is made before the program starts, under a name that clients ignore, and renamed to the program's number once that is
//! known.

use super::folder::{self, Folder};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::time::{SystemTime, UNIX_EPOCH};

/// Maximum number of connections in the queue. The kernel makes others wait, or refuses them.
const BACKLOG: i32 = 16;

/// Removed from its folder at the end.
#[derive(Debug)]
pub struct Socket {
    pub listener: UnixListener,
    folder: Folder,
    name: String,
    /// Identifies the file as this recorder's.
    file: Option<(u64, u64)>,
}

impl Socket {
    /// # Errors
    /// No folder can be used, there is no room, or doorbell has another user's rights.
    pub fn make() -> io::Result<Socket> {
        // SAFETY: no arguments.
        if unsafe { libc::getauxval(libc::AT_SECURE) != 0 || libc::getuid() != libc::geteuid() } {
            return Err(io::Error::other("doorbell has another user's rights (set-user-ID)"));
        }
        Socket::make_in(Folder::make()?)
    }

    fn make_in(folder: Folder) -> io::Result<Socket> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |t| t.as_nanos());
        let name = format!(".{}-{now}", std::process::id());
        let failed = |e: io::Error| io::Error::new(e.kind(), format!("{}: {e}", folder.path.display()));
        let locked = folder.lock()?;
        folder.sweep(&locked);
        let listener = listen(&folder, &name).map_err(failed)?;
        drop(locked);
        let file = folder.file(&name);
        Ok(Socket { listener, folder, name, file })
    }

    /// The program runs: from now on the socket is found by its number. A socket that a killed recorder left there is
    /// replaced.
    ///
    /// # Errors
    /// A live recorder has the name (a process in another pid namespace has the same number), or the kernel refused.
    pub fn call(&mut self, pid: i32) -> io::Result<()> {
        let name = folder::name_of(pid);
        let locked = self.folder.lock()?;
        if self.folder.is_live(&name, &locked) && self.folder.file(&name).is_some() {
            return Err(io::Error::other(format!("{}/{name}: another recorder has it", self.folder.path.display())));
        }
        self.folder.rename(&self.name, &name, &locked)?;
        self.name = name;
        Ok(())
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _locked = self.folder.lock();
        if self.file.is_some() && self.folder.file(&self.name) == self.file {
            self.folder.remove(&self.name);
        }
    }
}

/// The socket has the mode 0600 from the moment that its name exists.
fn listen(folder: &Folder, name: &str) -> io::Result<UnixListener> {
    let (address, len) = folder::address(&folder.here(name))?;
    let own = std::fs::Permissions::from_mode(0o600);
    let done = |r: i32| if r < 0 { Err(io::Error::last_os_error()) } else { Ok(()) };
    // SAFETY: a filled address, and a descriptor without another owner.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0);
        done(fd)?;
        let fd = OwnedFd::from_raw_fd(fd);
        // (The kernel creates the name with the mode of the socket, less the umask.)
        done(libc::fchmod(fd.as_raw_fd(), 0o600))?;
        done(libc::bind(fd.as_raw_fd(), (&raw const address).cast(), len))?;
        // (Whatever the umask removed.)
        std::fs::set_permissions(folder.here(name), own)?;
        done(libc::listen(fd.as_raw_fd(), BACKLOG))?;
        Ok(UnixListener::from(fd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    fn folder(dir: &tempfile::TempDir) -> Folder {
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        Folder::open(dir.path().into(), folder::own_uid()).unwrap()
    }

    #[test]
    fn a_socket_is_its_users_alone_and_is_removed_at_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let mut socket = Socket::make_in(folder(&dir)).unwrap();
        assert!(folder(&dir).programs().is_empty());
        socket.call(12).unwrap();
        assert_eq!(folder(&dir).programs(), [12]);
        assert_eq!(std::fs::symlink_metadata(dir.path().join("12.sock")).unwrap().mode() & 0o7777, 0o600);
        drop(socket);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_left_socket_is_replaced_and_a_live_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        drop(UnixListener::bind(dir.path().join("12.sock")).unwrap());
        let mut first = Socket::make_in(folder(&dir)).unwrap();
        // (Left by a recorder that was killed after `make`.)
        drop(UnixListener::bind(dir.path().join("12.sock")).unwrap());
        first.call(12).unwrap();
        let mut second = Socket::make_in(folder(&dir)).unwrap();
        assert!(second.call(12).unwrap_err().to_string().contains("another recorder"));
        drop(second);
        assert_eq!(folder(&dir).programs(), [12], "the first one's");
        assert!(folder::connect(&dir.path().join("12.sock")).is_ok());
    }

    #[test]
    fn what_has_the_name_by_now_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let mut socket = Socket::make_in(folder(&dir)).unwrap();
        socket.call(12).unwrap();
        std::fs::remove_file(dir.path().join("12.sock")).unwrap();
        let _other = UnixListener::bind(dir.path().join("12.sock")).unwrap();
        drop(socket);
        assert_eq!(folder(&dir).programs(), [12]);
    }
}
