//! The client's side: finds a program's socket, and sends one request after the other.

use super::folder::{self, Folder};
use super::messages::{Answer, Request, Status};
use super::server::who;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A recorder answers within milliseconds. One that is stopped does not.
const PATIENCE: Duration = Duration::from_secs(8);
/// Maximum bytes of an answer. (To `now`, about a program with thousands of threads, it has one or two MiB.)
const LONGEST: usize = 8 << 20;
/// Other users' recorders that root asks: at most so many of each, and no longer than this.
const MOST_OF_ANOTHER: usize = 64;
const PATIENCE_WITH_ANOTHER: Duration = Duration::from_secs(1);
/// The time for other peers that connect at the same moment.
const CONNECTS_WITHIN: Duration = Duration::from_secs(2);

/// Why a recorder could not be asked. Each text is a complete message.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    #[error("process {0} is not recorded by doorbell, or by another user's")]
    NotRecorded(i32),
    #[error("process {pid} belongs to user {uid}: only that user and root can look at its recording")]
    AnotherUser { pid: i32, uid: u32 },
    #[error("there is no process {0}")]
    NoProcess(i32),
    #[error("the recorder of process {pid} does not answer: is it stopped?")]
    Silent { pid: i32 },
    #[error("the recorder of process {pid} is gone: its program has ended, or it was killed")]
    Gone { pid: i32 },
    #[error("the recorder of process {pid}: {why}")]
    Refused { pid: i32, why: String },
    #[error("the socket of process {pid}: {cause}")]
    Io { pid: i32, cause: io::Error },
    #[error("the socket of process {pid} belongs to a process of user {uid}: it is not asked")]
    Impostor { pid: i32, uid: u32 },
}

/// A recorder that answers.
#[derive(Debug)]
pub struct Client {
    /// The program that the recorder started.
    pub pid: i32,
    /// The recorder's user.
    pub uid: u32,
    stream: BufReader<UnixStream>,
    patience: Duration,
}

impl Client {
    /// The recorder of process `pid`, which is the program that was started or one of its processes.
    ///
    /// # Errors
    /// There is no recorder, or this user may not ask it.
    pub fn of(pid: i32) -> Result<Client, ClientError> {
        let owner =
            std::fs::metadata(format!("/proc/{pid}")).map(|m| m.uid()).map_err(|_| ClientError::NoProcess(pid))?;
        let own = folder::own_uid();
        // (A recorder that runs as root may have started a program that belongs to another user by now.)
        let mut folders = Folder::of_user(own);
        if own == 0 && owner != 0 {
            folders.extend(Folder::of_user(owner));
        }
        let mut failed = None;
        for f in folders.iter().filter(|f| f.programs().contains(&pid)) {
            match Client::at(f, pid) {
                Ok(client) => return Ok(client),
                Err(e) => failed = Some(e),
            }
        }
        for mut client in folders.iter().flat_map(in_folder) {
            if client.status().is_ok_and(|s| s.processes.contains(&pid)) {
                return Ok(client);
            }
        }
        Err(match failed {
            Some(e) => e,
            None if own != 0 && owner != own => ClientError::AnotherUser { pid, uid: owner },
            None => ClientError::NotRecorded(pid),
        })
    }

    /// Every recorder that this user may ask.
    pub fn all() -> Vec<Client> {
        Place::all().iter().filter_map(|place| place.connect().ok()).collect()
    }

    fn at(f: &Folder, pid: i32) -> Result<Client, ClientError> {
        let io = |cause: io::Error| match cause.kind() {
            io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound => ClientError::Gone { pid },
            io::ErrorKind::WouldBlock => ClientError::Silent { pid },
            _ => ClientError::Io { pid, cause },
        };
        let begun = Instant::now();
        let stream = loop {
            match f.connect(&folder::name_of(pid)) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && begun.elapsed() < CONNECTS_WITHIN => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other.map_err(io)?,
            }
        };
        let (uid, _) = who(&stream).map_err(io)?;
        if uid != f.uid {
            return Err(ClientError::Impostor { pid, uid });
        }
        stream.set_nonblocking(false).map_err(io)?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io)?;
        stream.set_write_timeout(Some(PATIENCE)).map_err(io)?;
        let patience = if uid == folder::own_uid() { PATIENCE } else { PATIENCE_WITH_ANOTHER };
        Ok(Client { pid, uid, stream: BufReader::new(stream), patience })
    }

    /// Waits no longer than this for an answer.
    pub fn within(&mut self, patience: Duration) {
        self.patience = self.patience.min(patience);
    }

    /// # Errors
    /// The recorder is gone, does not answer, or refuses.
    pub fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let pid = self.pid;
        let io = |cause: io::Error| match cause.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => ClientError::Silent { pid },
            io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => ClientError::Gone { pid },
            _ => ClientError::Io { pid, cause },
        };
        // (A recorder that turns a peer away has sent the reason and closed.)
        let sent = self.stream.get_mut().write_all(request.line().as_bytes());
        let line = self.line();
        if line.is_err() {
            sent.map_err(io)?;
        }
        let line = line.map_err(io)?;
        if line.is_empty() {
            return Err(ClientError::Gone { pid });
        }
        let answer: Answer = serde_json::from_slice(&line).map_err(|e| ClientError::Io { pid, cause: e.into() })?;
        match answer {
            Answer { ok: true, .. } => Ok(answer),
            Answer { error, .. } => Err(ClientError::Refused { pid, why: error.unwrap_or_else(|| "refused".into()) }),
        }
    }

    /// The next line. The other side may be hostile: it gets neither more time nor more memory than a recorder needs.
    fn line(&mut self) -> io::Result<Vec<u8>> {
        let (begun, mut line) = (Instant::now(), Vec::new());
        loop {
            let left = self.patience.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Err(io::ErrorKind::TimedOut.into());
            }
            self.stream.get_ref().set_read_timeout(Some(left))?;
            let some = self.stream.fill_buf()?;
            let end = some.iter().position(|b| *b == b'\n');
            let n = end.map_or(some.len(), |end| end + 1);
            line.extend_from_slice(&some[..n]);
            self.stream.consume(n);
            if end.is_some() || n == 0 {
                return Ok(line);
            }
            if line.len() > LONGEST {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its answer is too long"));
            }
        }
    }

    /// # Errors
    /// As [`Client::ask`].
    pub fn status(&mut self) -> Result<Status, ClientError> {
        Ok(self.ask(&Request::Status)?.status.unwrap_or_default())
    }

    /// True if the recorder is gone. It leaves without a message.
    pub fn is_gone(&self) -> bool {
        use std::os::fd::AsRawFd;
        let mut fd = libc::pollfd { fd: self.stream.get_ref().as_raw_fd(), events: 0, revents: 0 };
        // SAFETY: one entry.
        unsafe { libc::poll(&mut fd, 1, 0) };
        fd.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }
}

/// A recorder's socket, or one that a killed recorder left.
#[derive(Clone, Debug)]
pub struct Place {
    /// The program that the recorder started.
    pub pid: i32,
    folder: Arc<Folder>,
}

impl Place {
    /// Those of all recorders that this user may ask.
    pub fn all() -> Vec<Place> {
        let of = |f: Folder| {
            let folder = Arc::new(f);
            programs(&folder).map(|pid| Place { pid, folder: folder.clone() }).collect::<Vec<_>>()
        };
        Folder::all().into_iter().flat_map(of).collect()
    }

    /// # Errors
    /// The recorder is gone, does not answer, or is another user's.
    pub fn connect(&self) -> Result<Client, ClientError> {
        Client::at(&self.folder, self.pid)
    }
}

fn programs(f: &Folder) -> impl Iterator<Item = i32> + use<> {
    let most = if f.uid == folder::own_uid() { usize::MAX } else { MOST_OF_ANOTHER };
    f.programs().into_iter().take(most)
}

fn in_folder(f: &Folder) -> Vec<Client> {
    programs(f).filter_map(|pid| Client::at(f, pid).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    fn folder() -> (tempfile::TempDir, Folder) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700)).unwrap();
        let folder = Folder::open(dir.path().to_owned(), folder::own_uid()).unwrap();
        (dir, folder)
    }

    /// Another user's socket need not be a recorder's.
    #[test]
    fn an_answer_that_never_ends_or_hardly_comes_is_given_up() {
        let (_dir, f) = folder();
        let listener = UnixListener::bind(f.here("7.sock")).unwrap();
        std::thread::spawn(move || {
            for (piece, pause) in [(1 << 20, Duration::ZERO), (1, Duration::from_millis(20))] {
                let (mut peer, _) = listener.accept().unwrap();
                while peer.write_all(&vec![b' '; piece]).is_ok() {
                    std::thread::sleep(pause);
                }
            }
        });
        let mut endless = Client::at(&f, 7).unwrap();
        let e = endless.ask(&Request::Status).unwrap_err();
        assert!(e.to_string().contains("too long"), "{e}");
        drop(endless);
        let mut slow = Client::at(&f, 7).unwrap();
        slow.patience = Duration::from_millis(200);
        assert!(matches!(slow.ask(&Request::Status), Err(ClientError::Silent { .. })));
    }

    #[test]
    fn a_link_is_not_followed_to_a_socket() {
        let (_dir, f) = folder();
        let (other, private) = folder();
        let listener = UnixListener::bind(private.here("root.sock")).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::os::unix::fs::symlink(other.path().join("root.sock"), f.here("7.sock")).unwrap();
        let e = Client::at(&f, 7).unwrap_err();
        assert!(e.to_string().contains("no socket of this user's"), "{e}");
        assert!(listener.accept().is_err(), "something has connected");
    }
}
