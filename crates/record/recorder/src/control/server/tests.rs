use super::*;
use crate::control::folder::own_uid;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;
use std::thread::JoinHandle;

/// A server that notes its requests and answers them with `ok`, unless they are held back.
struct Serving {
    dir: tempfile::TempDir,
    bell: Arc<Bell>,
    ended: Arc<AtomicBool>,
    held_back: Arc<AtomicBool>,
    seen: Arc<Mutex<Vec<(Request, bool)>>>,
    threads: Vec<JoinHandle<()>>,
}

impl Serving {
    fn new(uid: u32) -> Serving {
        let dir = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(dir.path().join("s")).unwrap();
        listener.set_nonblocking(true).unwrap();
        let bell = Bell::new().unwrap();
        let (server, asks) = Server::new(listener, bell.clone(), uid);
        let (ended, held_back, seen) = (Arc::default(), Arc::default(), Arc::<Mutex<Vec<_>>>::default());
        let mut s = Serving { dir, bell, ended, held_back, seen, threads: Vec::new() };
        let (over, recorder_over) = (s.ended.clone(), s.ended.clone());
        let (held_back, seen) = (s.held_back.clone(), s.seen.clone());
        let recorder = std::thread::spawn(move || {
            while !recorder_over.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
                if held_back.load(Ordering::Acquire) {
                    continue;
                }
                while let Some(ask) = asks.next() {
                    seen.lock().unwrap().push((ask.request.clone(), ask.reply.is_some()));
                    ask.answer(Answer::ok());
                }
            }
        });
        let serving = std::thread::spawn(move || server.run(|| over.load(Ordering::Acquire)));
        s.threads = vec![recorder, serving];
        s
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    fn connect(&self) -> UnixStream {
        let s = UnixStream::connect(self.path()).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        s
    }

    fn ask(&self, line: &[u8]) -> Vec<Answer> {
        let mut s = self.connect();
        // (A peer that is refused may be disconnected before it has sent a request.)
        let sent = s.write_all(line).and_then(|()| s.shutdown(std::net::Shutdown::Write));
        let answers = answers(s);
        assert!(sent.is_ok() || answers.len() == 1, "{sent:?} {answers:?}");
        answers
    }

    fn seen(&self) -> Vec<(Request, bool)> {
        std::mem::take(&mut *self.seen.lock().unwrap())
    }

    /// Waits until this was seen.
    fn sees(&self, what: (Request, bool)) {
        let begun = Instant::now();
        while !self.seen.lock().unwrap().contains(&what) {
            assert!(begun.elapsed() < Duration::from_secs(20), "{what:?} in {:?}", self.seen());
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Release);
        self.bell.ring();
        self.threads.drain(..).for_each(|t| t.join().unwrap());
    }
}

fn answers(s: UnixStream) -> Vec<Answer> {
    // (A peer that is disconnected with an unread request finds its connection reset after the answer.)
    let lines = BufReader::new(s).lines().map_while(Result::ok);
    lines.map(|line| serde_json::from_str(&line).unwrap()).collect()
}

#[test]
fn each_line_has_one_answer_and_what_follows_waits() {
    let s = Serving::new(own_uid());
    let got = s.ask(b"status\nwhat\nresume\n\npause\r\nsave it all");
    // (The last line has no end.)
    assert_eq!(got.iter().map(|a| a.ok).collect::<Vec<_>>(), [true, false, true, false, true]);
    let requests: Vec<Request> = s.seen().into_iter().map(|(r, _)| r).collect();
    assert_eq!(requests, [Request::Status, Request::Resume, Request::Pause]);
}

#[test]
fn garbage_and_lines_without_an_end_are_refused() {
    let s = Serving::new(own_uid());
    let got = s.ask(b"\xff\xfe\0\n{}\n");
    assert_eq!(got.len(), 2);
    assert!(got.iter().all(|a| !a.ok && a.error.is_some()));
    let got = s.ask(&vec![b'x'; LINE * 3]);
    assert_eq!(got.len(), 1, "and then it is sent away");
    assert!(got[0].error.as_ref().unwrap().contains("too long"));
    assert!(s.seen().is_empty());
    assert!(s.ask(b"status\n")[0].ok);
}

#[test]
fn a_hundred_peers_at_once_are_answered_or_told_to_come_again() {
    let s = Serving::new(own_uid());
    let (answered, busy) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|t| {
        for _ in 0..100 {
            t.spawn(|| match s.ask(b"status\n").as_slice() {
                [Answer { ok: true, .. }] => drop(answered.fetch_add(1, Ordering::Relaxed)),
                [Answer { error: Some(why), .. }] if why.contains("try again") => {
                    busy.fetch_add(1, Ordering::Relaxed);
                }
                other => panic!("{other:?}"),
            });
        }
    });
    let (answered, busy) = (answered.into_inner(), busy.into_inner());
    assert!(answered >= PEERS && answered + busy == 100, "{answered} {busy}");
}

#[test]
fn peers_that_say_nothing_take_no_place_for_long() {
    let s = Serving::new(own_uid());
    let silent: Vec<UnixStream> = (0..PEERS).map(|_| s.connect()).collect();
    while s.ask(b"status\n").first().is_some_and(|a| a.ok) {
        // (The server had not yet accepted all of them.)
        std::thread::sleep(Duration::from_millis(5));
    }
    let begun = Instant::now();
    silent.into_iter().for_each(|peer| assert!(answers(peer).is_empty()));
    assert!(begun.elapsed() < IDLE * 5);
    assert!(s.ask(b"status\n")[0].ok);
}

#[test]
fn a_peer_that_never_reads_is_sent_away_and_holds_nobody_up() {
    let s = Serving::new(own_uid());
    let mut greedy = s.connect();
    greedy.set_nonblocking(true).unwrap();
    let begun = Instant::now();
    let mut worst = Duration::ZERO;
    // Sends requests until the other side closes.
    let requests = b"nonsense\n".repeat(1000);
    loop {
        match greedy.write(&requests) {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                let asked = Instant::now();
                assert!(s.ask(b"status\n")[0].ok);
                worst = worst.max(asked.elapsed());
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(_) => break,
            Ok(_) => {}
        }
        assert!(begun.elapsed() < Duration::from_secs(60));
    }
    assert!(worst < UNREAD * 5, "{worst:?}");
}

#[test]
fn what_a_peer_has_switched_on_is_switched_off_when_it_is_gone() {
    let s = Serving::new(own_uid());
    let mut peer = s.connect();
    peer.write_all(b"attach calls\n").unwrap();
    let mut line = String::new();
    BufReader::new(peer.try_clone().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with(r#"{"ok":true"#), "{line}");
    // An attached peer may stay silent for as long as it likes.
    std::thread::sleep(IDLE + Duration::from_millis(500));
    assert_eq!(s.seen().len(), 1);
    drop(peer);
    s.sees((Request::Pause, false));
    // Also when it does not wait for the answer.
    s.held_back.store(true, Ordering::Release);
    s.connect().write_all(b"attach\n").unwrap();
    std::thread::sleep(Duration::from_millis(50));
    s.held_back.store(false, Ordering::Release);
    s.sees((Request::Attach(0), true));
    s.sees((Request::Pause, false));
}

#[test]
fn a_recorder_that_does_not_look_is_busy() {
    let s = Serving::new(own_uid());
    s.held_back.store(true, Ordering::Release);
    let got = s.ask(b"status\n");
    assert!(got.len() == 1 && got[0].error.as_ref().unwrap().contains("busy"), "{got:?}");
    s.held_back.store(false, Ordering::Release);
    assert!(s.ask(b"status\n")[0].ok, "and the late answer went to nobody else");
}

/// Connects as another user, whom file modes allow to. Returns the bytes that he receives.
fn as_user(path: &std::path::Path, uid: u32) -> Vec<u8> {
    let (address, len) = crate::control::folder::address(path).unwrap();
    let (from, to) = UnixStream::pair().unwrap();
    let (from_fd, to_fd) = (from.as_raw_fd(), to.as_raw_fd());
    // SAFETY: between fork and _exit only calls that a signal handler may make.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            let mut room = [0u8; 512];
            if libc::setgid(uid) == 0 && libc::setuid(uid) == 0 {
                let fd = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
                if libc::connect(fd, (&raw const address).cast(), len) == 0 {
                    libc::send(fd, b"status\n".as_ptr().cast(), 7, libc::MSG_NOSIGNAL);
                    let n = libc::recv(fd, room.as_mut_ptr().cast(), room.len(), libc::MSG_WAITALL);
                    libc::send(to_fd, room.as_ptr().cast(), n.max(0) as usize, libc::MSG_NOSIGNAL);
                }
            }
            libc::close(from_fd);
            libc::_exit(0);
        }
        assert!(child > 0);
        libc::waitpid(child, std::ptr::null_mut(), 0);
    }
    drop(to);
    let mut got = Vec::new();
    let mut from = from;
    from.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
    let _ = from.read_to_end(&mut got);
    got
}

#[test]
fn another_user_is_refused_even_where_the_files_let_him_in() {
    if own_uid() != 0 {
        test_support::skip!("only root can become another user");
    }
    let s = Serving::new(own_uid());
    let open = |mode| std::fs::set_permissions(s.dir.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    open(0o755);
    std::fs::set_permissions(s.path(), std::fs::Permissions::from_mode(0o666)).unwrap();
    let said = String::from_utf8(as_user(&s.path(), 65534)).unwrap();
    assert!(said.contains("user 65534 may not look"), "{said}");
    assert!(s.seen().is_empty());
    // With a folder's modes as doorbell sets them, he cannot connect.
    open(0o700);
    assert_eq!(as_user(&s.path(), 65534), b"");
    // Root may connect to another user's.
    let s = Serving::new(65534);
    assert!(s.ask(b"status\n")[0].ok);
}
