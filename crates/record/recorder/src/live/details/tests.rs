//! Looks at real processes.

use super::{Details, Relatives};
use std::io::{Read, pipe};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};
use tape::live::{Live, LiveOn, LiveOther, LiveProcess, how, on, state};

/// A child of this test that runs `f` until it is killed.
struct Child(i32);

impl Child {
    /// `f` may only do what a signal handler may, because other threads of this process may have held locks.
    fn new<T>(f: impl FnOnce() -> T) -> Child {
        // SAFETY: the child calls `f`, which is as above, and then waits to be killed.
        unsafe {
            match libc::fork() {
                0 => {
                    libc::alarm(20);
                    let _ = f();
                    loop {
                        libc::pause();
                    }
                }
                pid => Child(pid),
            }
        }
    }

    fn kill(&self, signal: i32) {
        // SAFETY: a child that was not waited for.
        unsafe { libc::kill(self.0, signal) };
    }

    /// A signal that ends or stops it: returns when it has.
    fn kill_and_see(&self, signal: i32) {
        self.kill(signal);
        let what = libc::WEXITED | libc::WSTOPPED | libc::WNOWAIT;
        // SAFETY: zeroed is a siginfo; the child is not reaped.
        unsafe { libc::waitid(libc::P_PID, self.0 as u32, &mut std::mem::zeroed(), what) };
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill(libc::SIGKILL);
        // SAFETY: as above.
        unsafe { libc::waitpid(self.0, std::ptr::null_mut(), 0) };
    }
}

/// Memory that children share with this process.
fn shared<T>() -> *mut T {
    let (rights, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED | libc::MAP_ANONYMOUS);
    // SAFETY: a new mapping, which stays until the test's end.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), 4096, rights, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    at.cast()
}

fn look(pids: &[i32]) -> Live {
    let processes = pids.iter().map(|pid| LiveProcess { pid: *pid, ..LiveProcess::default() }).collect();
    Details::new(true, Relatives::default()).add(Live { processes, ..Live::default() })
}

/// Looks until the first thread of the first process waits as wanted.
fn look_until(pids: &[i32], is_so: impl Fn(&LiveOn) -> bool) -> (Live, LiveOn) {
    let begun = Instant::now();
    loop {
        let live = look(pids);
        if let Some(on) = live.processes[0].threads[0].on.iter().find(|on| is_so(on)) {
            let on = on.clone();
            return (live, on);
        }
        assert!(begun.elapsed() < Duration::from_secs(20), "{live:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn of(on: &LiveOn, child: &Child) -> Option<(String, String)> {
    on.others.iter().find(|o| o.pid == child.0).map(|o: &LiveOther| (o.how.clone(), o.state.clone()))
}

fn is(how: &str, state: &str) -> Option<(String, String)> {
    Some((how.into(), state.into()))
}

macro_rules! system_calls {
    () => {
        if std::fs::read_to_string("/proc/self/syscall").is_err() {
            test_support::skip!("this kernel does not report the system calls of threads");
        }
    };
}

#[test]
fn a_pipe_whose_writer_is_stopped() {
    system_calls!();
    let (reader, writer) = pipe().unwrap();
    let (read, write) = (reader.as_raw_fd(), writer.as_raw_fd());
    // SAFETY: descriptors of the children's own.
    let peer = Child::new(|| unsafe { libc::close(read) });
    // SAFETY: as above.
    let waiter = Child::new(|| unsafe {
        libc::close(write);
        libc::read(read, [0u8; 1].as_mut_ptr().cast(), 1);
    });
    drop((reader, writer));
    // (Stopped earlier, it has both ends.)
    while std::fs::read_link(format!("/proc/{}/fd/{read}", peer.0)).is_ok() {
        std::thread::yield_now();
    }
    peer.kill_and_see(libc::SIGSTOP);
    let is_so = |o: &LiveOn| o.kind == on::PIPE && of(o, &peer) == is(how::WRITE, state::STOPPED);
    let (live, on) = look_until(&[waiter.0, peer.0], is_so);
    assert!(on.name.starts_with("pipe:[") && on.to == "read" && !on.cut, "{on:?}");
    assert_eq!(of(&on, &waiter), is(how::READ, state::SLEEPING));
    // (Children of tests that run at the same time may have the pipe, too.)
    let first = on.others.iter().find(|o| [peer.0, waiter.0].contains(&o.pid));
    assert_eq!(first.map(|o| o.pid), Some(peer.0), "first those that can: {on:?}");
    assert_eq!(
        (live.processes[0].parent, live.processes[1].state.as_str()),
        (std::process::id() as i32, state::STOPPED)
    );
    assert!(!live.processes[0].name.is_empty());
    // The same wait, in another look.
    assert!(look(&[waiter.0]).processes[0].threads[0].on[0].is_same_wait(&on));
}

#[test]
fn a_semaphore_in_shared_memory_whose_peer_was_killed() {
    system_calls!();
    let sem: *mut libc::sem_t = shared();
    // SAFETY: memory of this test, for processes.
    assert_eq!(unsafe { libc::sem_init(sem, 1, 0) }, 0);
    let peer = Child::new(|| {});
    // SAFETY: as above.
    let waiter = Child::new(|| unsafe { libc::sem_wait(sem) });
    peer.kill_and_see(libc::SIGKILL);
    let is_so = |o: &LiveOn| o.kind == on::FUTEX && o.place.is_some();
    let (live, on) = look_until(&[waiter.0, peer.0], is_so);
    assert_eq!((on.value, on.expected, on.barrier, on.address), (Some(0), Some(0), None, Some(sem as u64)));
    assert!(on.place.as_ref().is_some_and(|p| p.inode != 0 && p.offset == 0), "{on:?}");
    // (This process maps it, too. It is not recorded.)
    assert!(on.others.iter().any(|o| o.pid == std::process::id() as i32 && o.how == how::MAPS), "{on:?}");
    let ended = &live.processes[1];
    let end = ended.ended.as_ref().unwrap();
    assert_eq!((end.how.as_str(), end.signal, end.zombie), ("killed by signal 9", Some(9), true));
    assert_eq!(ended.state, state::ENDED);
    let place = live.processes[0].place(sem as u64 + 8).unwrap();
    assert_eq!((place.offset, live.processes[0].place(16)), (8, None));
}

#[test]
fn a_barrier_that_one_rank_never_enters() {
    system_calls!();
    let barrier: *mut libc::pthread_barrier_t = shared();
    // SAFETY: memory of this test; the attributes are set before use.
    unsafe {
        let mut a: libc::pthread_barrierattr_t = std::mem::zeroed();
        libc::pthread_barrierattr_init(&mut a);
        libc::pthread_barrierattr_setpshared(&mut a, libc::PTHREAD_PROCESS_SHARED);
        assert_eq!(libc::pthread_barrier_init(barrier, &a, 3), 0);
    }
    let absent = Child::new(|| {});
    // SAFETY: as above.
    let ranks = [0, 1].map(|_| Child::new(|| unsafe { libc::pthread_barrier_wait(barrier) }));
    let all = [ranks[0].0, ranks[1].0, absent.0];
    // The other one that waits has a thread that waits there, too. That is so whether the processes are recorded or not.
    let tids = |on: &LiveOn, child: &Child| on.others.iter().find(|o| o.pid == child.0).map(|o| o.tids.clone());
    let is_so = |o: &LiveOn| {
        let all_wait = o.barrier.is_some_and(|b| (b.arrived, b.count) == (2, 3));
        all_wait && tids(o, &ranks[1]) == Some(vec![ranks[1].0])
    };
    for pids in [&all[..], &all[..1]] {
        let (_, on) = look_until(pids, is_so);
        assert_eq!(tids(&on, &absent), Some(vec![]), "{on:?}");
    }
}

#[test]
fn a_file_lock_and_who_has_it() {
    system_calls!();
    let file = tempfile::NamedTempFile::new().unwrap();
    let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
    let (mut reader, writer) = pipe().unwrap();
    let fd = writer.as_raw_fd();
    // SAFETY: descriptors of the children's own.
    let holder = Child::new(|| unsafe {
        let file = libc::open(path.as_ptr(), libc::O_RDWR);
        libc::flock(file, libc::LOCK_EX);
        libc::write(fd, b"x".as_ptr().cast(), 1);
    });
    reader.read_exact(&mut [0]).unwrap();
    // SAFETY: as above.
    let waiter = Child::new(|| unsafe {
        libc::flock(libc::open(path.as_ptr(), libc::O_RDWR), libc::LOCK_EX);
    });
    let (_, on) = look_until(&[waiter.0], |o| o.kind == on::FILE_LOCK);
    assert_eq!((on.name.as_str(), on.others.len()), (file.path().to_str().unwrap(), 1), "{on:?}");
    assert_eq!(of(&on, &holder), is(how::HOLDS, state::SLEEPING));
}

/// The locks of fcntl, of which the second kind belongs to no process: who has the file open with it is found.
#[test]
fn locks_of_fcntl() {
    system_calls!();
    for (try_it, wait) in [(libc::F_SETLK, libc::F_SETLKW), (libc::F_OFD_SETLK, libc::F_OFD_SETLKW)] {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
        let (mut reader, writer) = pipe().unwrap();
        let fd = writer.as_raw_fd();
        // SAFETY: zeroed is a flock, and the descriptors are the children's own.
        let lock = |by: i32| unsafe {
            let all = libc::flock { l_type: libc::F_WRLCK as i16, ..std::mem::zeroed() };
            libc::fcntl(libc::open(path.as_ptr(), libc::O_RDWR), by, &all)
        };
        let holder = Child::new(|| {
            lock(try_it);
            // SAFETY: as above.
            unsafe { libc::write(fd, b"x".as_ptr().cast(), 1) }
        });
        reader.read_exact(&mut [0]).unwrap();
        let waiter = Child::new(|| lock(wait));
        let (_, on) = look_until(&[waiter.0], |o| o.kind == on::FILE_LOCK);
        assert_eq!((on.others.len(), of(&on, &holder)), (1, is(how::HOLDS, state::SLEEPING)), "{on:?}");
    }
}

#[test]
fn a_socket_whose_other_end_is_stopped() {
    system_calls!();
    let (a, b) = std::os::unix::net::UnixStream::pair().unwrap();
    let (own, theirs) = (a.as_raw_fd(), b.as_raw_fd());
    // SAFETY: descriptors of the children's own.
    let peer = Child::new(|| unsafe { libc::close(own) });
    // SAFETY: as above.
    let waiter = Child::new(|| unsafe {
        libc::close(theirs);
        let mut one = libc::pollfd { fd: own, events: libc::POLLIN, revents: 0 };
        libc::poll(&mut one, 1, -1)
    });
    drop((a, b));
    peer.kill_and_see(libc::SIGSTOP);
    let (_, on) = look_until(&[waiter.0], |o| of(o, &peer) == is(how::PEER, state::STOPPED));
    assert_eq!((on.kind.as_str(), on.to.as_str(), on.others[0].pid), (on::SOCKET, how::READ, peer.0), "{on:?}");
    assert_eq!(of(&on, &waiter), is(how::BOTH, state::SLEEPING));
}

#[test]
fn a_traced_process_has_its_tracer() {
    let child = Child::new(|| {});
    // SAFETY: no memory; the child is this thread's to trace.
    if unsafe { libc::ptrace(libc::PTRACE_ATTACH, child.0, 0usize, 0usize) } != 0 {
        test_support::skip!("this machine does not let a process trace its child");
    }
    // SAFETY: as above.
    unsafe { libc::waitpid(child.0, std::ptr::null_mut(), libc::__WALL) };
    let p = look(&[child.0]).processes.remove(0);
    let tracer = p.tracer.unwrap();
    assert_eq!(
        (p.state.as_str(), tracer.pid, tracer.how.as_str()),
        (state::TRACED, std::process::id() as i32, how::TRACES)
    );
}

/// A peer that was never recorded, has ended, and was waited for.
#[test]
fn what_a_process_had_is_known_after_its_end() {
    let sem: *mut libc::sem_t = shared();
    let (reader, writer) = pipe().unwrap();
    let pipe = super::super::waits::link(std::process::id() as i32, writer.as_raw_fd());
    let read = reader.as_raw_fd();
    // SAFETY: a descriptor of the child's own.
    let peer = Child::new(|| unsafe { libc::close(read) });
    let pid = peer.0;
    let mut kin = super::super::Kin::default();
    let begun = Instant::now();
    let known = |kin: &super::super::Kin| kin.known().all().into_iter().find(|p| p.pid == pid);
    // (It is read again, after it has closed what it does not use.)
    let has = |p: &LiveProcess| p.pipes.iter().any(|p| p.name == pipe && p.how == how::WRITE);
    while !known(&kin).is_some_and(|p| has(&p)) {
        assert!(kin.ask(pid) && begun.elapsed() < Duration::from_secs(20), "{:?}", known(&kin));
        std::thread::sleep(Duration::from_millis(50));
    }
    drop(peer);
    let p = known(&kin).unwrap();
    assert!(has(&p) && p.place(sem as u64).is_some(), "{p:?}");
    assert_eq!((p.state.as_str(), p.ended.as_ref().map(|e| e.zombie)), (state::ENDED, Some(false)));
    let live = Details::new(true, kin.known()).add(Live::default());
    assert!(live.processes.iter().any(|p| p.pid == pid && p.unrecorded && p.ended.is_some()), "{live:?}");
}

#[test]
fn a_child_that_is_waited_for() {
    system_calls!();
    // SAFETY: a child of the child, which the kernel ends with it.
    let parent = Child::new(|| unsafe {
        if libc::fork() == 0 {
            libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
            libc::alarm(20);
            loop {
                libc::pause();
            }
        }
        libc::waitpid(-1, std::ptr::null_mut(), 0);
    });
    let (_, on) = look_until(&[parent.0], |o| o.kind == on::CHILD && !o.others.is_empty());
    assert_eq!((on.others.len(), on.others[0].how.as_str()), (1, how::CHILD));
}

/// 64 processes of 8 threads at one semaphore, and this process's 256 threads.
#[test]
fn a_look_at_many_threads_is_short() {
    system_calls!();
    let sem: *mut libc::sem_t = shared();
    // SAFETY: memory of this test, for processes.
    assert_eq!(unsafe { libc::sem_init(sem, 1, 0) }, 0);
    // SAFETY: as above.
    let peers: Vec<Child> = (0..64).map(|_| Child::new(|| unsafe { libc::sem_wait(sem) })).collect();
    let barrier = std::sync::Barrier::new(257);
    std::thread::scope(|s| {
        (0..256).for_each(|_| drop(s.spawn(|| barrier.wait())));
        let mut pids = vec![peers[0].0, std::process::id() as i32];
        pids.extend(peers[1..].iter().map(|p| p.0));
        let (live, on) = look_until(&pids, |o| o.place.is_some());
        assert!(live.processes[1].threads.len() > 256);
        assert!(on.others.len() == 64, "{}", on.others.len());
        let took = test_support::measured(|| {
            let begun = Instant::now();
            look(&pids);
            Some(begun.elapsed()).filter(|took| *took < Duration::from_millis(500)).ok_or("too slow".into())
        });
        println!("{took:?} for 320 threads of 65 processes");
        barrier.wait();
    });
}
