//! The thread that serves peers. It reads and writes only what is ready and never waits for a peer. Requests are sent to the thread that empties the rings,
//! which looks for them once a round.
//!
//! Invariant: peers cost a bounded amount of memory and of this thread's time. Other threads spend time only on the requests themselves.

use super::messages::{Answer, LINE, Request};
use std::collections::VecDeque;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// Maximum number of peers at a time. Further peers get a refusal.
pub const PEERS: usize = 8;
/// Maximum number of requests that the recorder has not yet looked at. Each peer has one.
const REQUESTS: usize = PEERS * 2;
/// A peer without requests is disconnected after this time, unless it is attached.
const IDLE: Duration = if cfg!(test) { Duration::from_secs(2) } else { Duration::from_secs(10) };
/// A peer that does not read its answer is disconnected after this time.
const UNREAD: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(5) };
/// After this time without an answer the recorder counts as busy: its disk takes no data.
const UNANSWERED: Duration = if cfg!(test) { Duration::from_secs(1) } else { Duration::from_secs(5) };
const BUSY: &str = "the recorder is busy (does its disk take nothing?); try again";

/// A request for the recorder.
pub struct Ask {
    pub request: Request,
    /// The peer's process.
    pub pid: i32,
    /// The peer's number. No other peer ever gets it.
    pub peer: u64,
    /// `None`: the peer is gone, and the recording that it switched on is to be switched off.
    pub reply: Option<Reply>,
}

/// Requests on their way to the recorder.
pub struct Asks {
    from: Receiver<Ask>,
    waiting: Arc<AtomicUsize>,
}

impl Asks {
    pub fn next(&self) -> Option<Ask> {
        let ask = self.from.try_recv().ok()?;
        if ask.reply.is_some() {
            self.waiting.fetch_sub(1, Ordering::Relaxed);
        }
        Some(ask)
    }
}

/// An answer, and the peer that it is for.
type Answered = (u64, Answer);

/// The way back for an answer. Any thread may send it.
pub struct Reply {
    peer: u64,
    to: Sender<Answered>,
    bell: Arc<Bell>,
}

impl Reply {
    pub fn send(self, answer: Answer) {
        // (The peer may no longer wait for it.)
        let _ = self.to.send((self.peer, answer));
        self.bell.ring();
    }
}

impl Ask {
    pub fn answer(self, answer: Answer) {
        if let Some(reply) = self.reply {
            reply.send(answer);
        }
    }
}

/// Wakes the thread.
pub struct Bell(OwnedFd);

impl Bell {
    /// # Errors
    /// The kernel refused.
    pub fn new() -> io::Result<Arc<Bell>> {
        // SAFETY: no memory, and a descriptor without another owner.
        unsafe {
            match libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) {
                fd if fd < 0 => Err(io::Error::last_os_error()),
                fd => Ok(Arc::new(Bell(OwnedFd::from_raw_fd(fd)))),
            }
        }
    }

    pub fn ring(&self) {
        let one = 1u64.to_ne_bytes();
        // SAFETY: eight bytes. (A full counter wakes the thread as well.)
        unsafe { libc::write(self.0.as_raw_fd(), one.as_ptr().cast(), one.len()) };
    }

    fn quiet(&self) {
        let mut count = [0u8; 8];
        // SAFETY: room for eight bytes.
        unsafe { libc::read(self.0.as_raw_fd(), count.as_mut_ptr().cast(), count.len()) };
    }
}

struct Peer {
    stream: UnixStream,
    number: u64,
    pid: i32,
    read: Vec<u8>,
    /// Bytes that are still to be sent.
    send: VecDeque<u8>,
    /// The time of the last progress.
    since: Instant,
    /// The recorder has a request from this peer; true if it is to attach.
    waits: Option<bool>,
    /// The peer switched recording on.
    attached: bool,
    /// The peer sends no more.
    said_all: bool,
    /// To be disconnected once it has its answer.
    leaves: bool,
}

pub struct Server {
    listener: UnixListener,
    bell: Arc<Bell>,
    asks: Sender<Ask>,
    /// Requests among them that the recorder has not yet looked at.
    waiting: Arc<AtomicUsize>,
    answers: (Sender<Answered>, Receiver<Answered>),
    peers: Vec<Peer>,
    next: u64,
    /// The user that it serves, in addition to root.
    uid: u32,
}

impl Server {
    /// Also returns the recorder's end, which yields the requests.
    pub fn new(listener: UnixListener, bell: Arc<Bell>, uid: u32) -> (Server, Asks) {
        let ((asks, from), waiting) = (channel(), Arc::<AtomicUsize>::default());
        let answers = channel();
        let server =
            Server { listener, bell, asks, waiting: waiting.clone(), answers, peers: Vec::new(), next: 0, uid };
        (server, Asks { from, waiting })
    }

    /// Runs until `ended` returns true. The bell makes it check.
    pub fn run(mut self, ended: impl Fn() -> bool) {
        while !ended() {
            let polled = self.poll();
            self.bell.quiet();
            self.take_answers();
            for i in (0..self.peers.len()).rev() {
                let events = polled.get(i).copied().unwrap_or(0);
                if !self.serve(i, events) {
                    self.forget(i);
                }
            }
            self.accept();
        }
    }

    /// Waits until there is work. Returns the events that each peer's descriptor is ready for.
    fn poll(&self) -> Vec<i16> {
        let entry = |fd, events| libc::pollfd { fd, events, revents: 0 };
        let of_peer = |p: &Peer| {
            let reads = p.is_listened_to() && !p.said_all;
            let writes = !p.send.is_empty();
            let events = if reads { libc::POLLIN } else { 0 } | if writes { libc::POLLOUT } else { 0 };
            entry(p.stream.as_raw_fd(), events)
        };
        let mut fds: Vec<libc::pollfd> = self.peers.iter().map(of_peer).collect();
        fds.push(entry(self.listener.as_raw_fd(), libc::POLLIN));
        fds.push(entry(self.bell.0.as_raw_fd(), libc::POLLIN));
        let now = self.peers.iter().any(|p| p.is_listened_to() && p.has_line()).then_some(Duration::ZERO);
        let left = now.or_else(|| self.peers.iter().filter_map(Peer::left).min());
        // (Rounded up, or it would poll again and again in the last millisecond.)
        let timeout = left.map_or(-1, |d| i32::try_from(d.as_micros().div_ceil(1000)).unwrap_or(i32::MAX));
        // SAFETY: that many entries.
        unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, timeout) };
        fds.iter().map(|f| f.revents).collect()
    }

    fn take_answers(&mut self) {
        while let Ok((number, answer)) = self.answers.1.try_recv() {
            let Some(peer) = self.peers.iter_mut().find(|p| p.number == number && p.waits.is_some()) else {
                continue;
            };
            if peer.waits.take() == Some(true) && answer.ok {
                peer.attached = true;
            }
            peer.answer(&answer);
        }
    }

    /// False if the peer is to be disconnected.
    fn serve(&mut self, i: usize, events: i16) -> bool {
        let Some(peer) = self.peers.get_mut(i) else { return true };
        if events & (libc::POLLERR | libc::POLLNVAL) != 0 || !peer.send_what_fits() {
            return false;
        }
        // (A peer that has closed both ways expects no answer.)
        if events & libc::POLLHUP != 0 && events & libc::POLLIN == 0 {
            return false;
        }
        if peer.left() == Some(Duration::ZERO) {
            if peer.waits.is_none() || peer.leaves {
                return false;
            }
            peer.waits = None;
            peer.leaves = true;
            peer.answer(&Answer::error(BUSY));
        }
        if !peer.leaves && peer.is_listened_to() && (events & libc::POLLIN != 0 || peer.has_line()) {
            match peer.line() {
                Ok(Some(line)) => self.request(i, &line),
                Ok(None) => {}
                Err(why) => peer.refuse(why),
            }
        }
        let Some(peer) = self.peers.get(i) else { return true };
        // An attached peer is done only when it is gone.
        let is_done = peer.leaves || peer.said_all && !peer.has_line();
        !(is_done && peer.is_listened_to())
    }

    fn request(&mut self, i: usize, line: &[u8]) {
        let Some(peer) = self.peers.get_mut(i) else { return };
        let request = match Request::read(line) {
            Ok(request) => request,
            Err(why) => return peer.answer(&Answer::error(why)),
        };
        peer.waits = Some(matches!(request, Request::Attach(_)));
        if request == Request::Pause {
            peer.attached = false;
        }
        let reply = Reply { peer: peer.number, to: self.answers.0.clone(), bell: self.bell.clone() };
        if self.waiting.load(Ordering::Relaxed) >= REQUESTS {
            return reply.send(Answer::error(BUSY));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let _ = self.asks.send(Ask { request, pid: peer.pid, peer: peer.number, reply: Some(reply) });
    }

    /// The peer is gone or disconnected. The recording that it switched on is switched off.
    fn forget(&mut self, i: usize) {
        let peer = self.peers.swap_remove(i);
        // (Its request may still be executed.)
        if peer.attached || peer.waits == Some(true) {
            let _ = self.asks.send(Ask { request: Request::Pause, pid: peer.pid, peer: peer.number, reply: None });
        }
    }

    fn accept(&mut self) {
        // (No more in one go than the maximum of peers, so that peers already connected are served first.)
        for _ in 0..PEERS {
            let stream = match self.listener.accept() {
                Ok((stream, _)) => stream,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                // Without a free descriptor the connection stays in the queue, and poll would return immediately.
                Err(_) => return std::thread::sleep(Duration::from_millis(50)),
            };
            let _ = stream.set_nonblocking(true);
            let (uid, pid) = who(&stream).unwrap_or((u32::MAX, 0));
            self.next += 1;
            let peer = Peer::new(stream, self.next, pid);
            if uid != self.uid && uid != 0 {
                peer.turn_away(&format!("this recording is of user {}: user {uid} may not look at it", self.uid));
            } else if self.peers.len() >= PEERS {
                peer.turn_away(&format!("{PEERS} others are connected; try again"));
            } else {
                self.peers.push(peer);
            }
        }
    }
}

impl Peer {
    fn new(stream: UnixStream, number: u64, pid: i32) -> Peer {
        let (read, send) = Default::default();
        let since = Instant::now();
        Peer { stream, number, pid, read, send, since, waits: None, attached: false, said_all: false, leaves: false }
    }

    /// How long the present state may last. `None`: forever.
    fn left(&self) -> Option<Duration> {
        let most = match (self.send.is_empty(), self.waits) {
            (false, _) => UNREAD,
            (true, Some(_)) => UNANSWERED,
            (true, None) if self.attached => return None,
            (true, None) => IDLE,
        };
        Some(most.saturating_sub(self.since.elapsed()))
    }

    /// The next request may be read.
    fn is_listened_to(&self) -> bool {
        self.waits.is_none() && self.send.is_empty()
    }

    fn has_line(&self) -> bool {
        self.read.contains(&b'\n')
    }

    fn answer(&mut self, answer: &Answer) {
        // (Only numbers and texts: that cannot fail.)
        let line = serde_json::to_string(answer).unwrap_or_default();
        self.send.extend(line.as_bytes());
        self.send.push_back(b'\n');
        self.since = Instant::now();
        self.send_what_fits();
    }

    fn refuse(&mut self, why: &str) {
        self.leaves = true;
        self.answer(&Answer::error(why));
    }

    fn turn_away(mut self, why: &str) {
        self.refuse(why);
    }

    /// False if the peer is gone.
    fn send_what_fits(&mut self) -> bool {
        while !self.send.is_empty() {
            let (bytes, _) = self.send.as_slices();
            // SAFETY: that many bytes. A peer that is gone gives an error, and no signal.
            let n = unsafe {
                let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
                libc::send(self.stream.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags)
            };
            if n < 0 {
                let e = io::Error::last_os_error();
                return matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted);
            }
            self.send.drain(..n as usize);
            self.since = Instant::now();
        }
        true
    }

    /// The next line, if it has arrived. Later lines wait: a peer has one request at a time.
    fn line(&mut self) -> Result<Option<Vec<u8>>, &'static str> {
        if !self.has_line() {
            let mut room = [0; LINE];
            let free = LINE.saturating_sub(self.read.len());
            match self.stream.read(room.get_mut(..free).unwrap_or_default()) {
                Ok(0) => self.said_all = true,
                Ok(n) => self.read.extend_from_slice(&room[..n]),
                Err(e) if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => {}
                Err(_) => self.said_all = true,
            }
        }
        match self.read.iter().position(|b| *b == b'\n') {
            Some(end) => {
                let mut line: Vec<u8> = self.read.drain(..=end).collect();
                line.pop();
                self.since = Instant::now();
                Ok(Some(line))
            }
            None if self.read.len() >= LINE => Err("the line is too long"),
            None => Ok(None),
        }
    }
}

/// A peer's user and process, as they were when it connected.
pub fn who(stream: &UnixStream) -> io::Result<(u32, i32)> {
    let mut of = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for a ucred.
    let r = unsafe {
        let (level, name) = (libc::SOL_SOCKET, libc::SO_PEERCRED);
        libc::getsockopt(stream.as_raw_fd(), level, name, (&raw mut of).cast(), &mut len)
    };
    if r < 0 { Err(io::Error::last_os_error()) } else { Ok((of.uid, of.pid)) }
}

#[cfg(test)]
mod tests;
