//! Calls that a sandbox refuses: a seccomp filter makes system calls fail, for one thread and those that it starts.

mod ground;

use files::{Backend, Direction, Done, Errno, Error, Extents, Options, Queue, Source, Target, Way, read};
use ground::{machine, random};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// Runs `work` on a thread where the kernel refuses calls with that number (and, if given, that second argument).
fn refusing<T: Send>(call: i64, second: Option<u32>, errno: i32, work: impl FnOnce() -> T + Send) -> T {
    let filter = move || {
        let at = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
        let load = |offset| at(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset);
        let equal = |k, jf| at(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, jf, k);
        let answer = |k| at(libc::BPF_RET | libc::BPF_K, 0, 0, k);
        // Fields of struct seccomp_data: the call's number, and the low half of its second argument.
        let mut program = match second {
            Some(second) => vec![load(0), equal(call as u32, 3), load(24), equal(second, 1)],
            None => vec![load(0), equal(call as u32, 1)],
        };
        program.push(answer(libc::SECCOMP_RET_ERRNO | errno as u32));
        program.push(answer(libc::SECCOMP_RET_ALLOW));
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // SAFETY: the program outlives the calls. The filter applies to this thread, which ends after the work.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter), 0);
        }
    };
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            filter();
            work()
        });
        thread.join().unwrap()
    })
}

fn options() -> Options {
    Options { block: 8192, depth: 4, verify: true, ..Options::default() }
}

#[test]
fn without_io_uring_threads_read_and_it_is_said_why() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = random(&dir, "f", 100_001);
    let source = Source::open(&path, false).unwrap();
    let target = Target::new(&machine, 100_001).unwrap();
    let places = Arc::new(Extents::whole(100_001));
    refusing(libc::SYS_io_uring_setup, None, libc::EPERM, || {
        let report = read(&machine, &source, (&target, &places), &options(), &AtomicU64::new(0)).unwrap();
        assert_eq!(report.verified, Some(100_001));
        let Backend::Threads { refused: Some(why) } = &report.backend else { panic!("{report:?}") };
        assert!(why.contains("Operation not permitted"), "{why}");
        let alone = Options { way: Way::Uring, ..options() };
        let error = Queue::bare(&source, Direction::Read, &alone).unwrap_err();
        assert!(matches!(error, Error::Ring { .. }) && error.hint().contains("--via threads"), "{error}");
    });
}

#[test]
fn buffers_that_cannot_be_registered_are_used_all_the_same() {
    const BUFFERS: u32 = 0; // IORING_REGISTER_BUFFERS
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = random(&dir, "f", 100_001);
    let source = Source::open(&path, false).unwrap();
    let target = Target::new(&machine, 100_001).unwrap();
    let places = Arc::new(Extents::whole(100_001));
    refusing(libc::SYS_io_uring_register, Some(BUFFERS), libc::ENOMEM, || {
        let report = read(&machine, &source, (&target, &places), &options(), &AtomicU64::new(0)).unwrap();
        assert_eq!(report.verified, Some(100_001));
        let Backend::Uring { unregistered: Some(why) } = &report.backend else { panic!("{report:?}") };
        assert!(why.contains("ulimit -l"), "{why}");
    });
}

#[test]
fn a_read_that_is_interrupted_is_made_again_but_not_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = random(&dir, "f", 8192);
    let source = Source::open(&path, false).unwrap();
    let options = Options { way: Way::Threads, depth: 1, ..options() };
    refusing(libc::SYS_pread64, None, libc::EINTR, || {
        let mut queue = Queue::bare(&source, Direction::Read, &options).unwrap();
        queue.submit(0, 0, 8192).unwrap();
        let mut done = [Done::NONE];
        assert_eq!(queue.wait(&mut done).unwrap(), 1);
        assert_eq!(done[0].result, Err(Errno(libc::EINTR)));
        assert!(queue.counts().again > 100, "{:?}", queue.counts());
    });
}
