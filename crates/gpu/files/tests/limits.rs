//! A limit on file sizes. It holds for the whole process, so this test has its own process.

mod ground;

use files::{Error, Options, write};
use ground::{filled, machine};
use std::sync::atomic::AtomicU64;

#[test]
fn a_limit_on_file_sizes_is_an_error_and_leaves_no_file() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (target, _) = filled(&machine, 3 << 20);
    // SAFETY: an ignored signal, and a limit of this process.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
        let limit = libc::rlimit { rlim_cur: 1 << 20, rlim_max: libc::RLIM_INFINITY };
        assert_eq!(libc::setrlimit(libc::RLIMIT_FSIZE, &limit), 0);
    }
    let path = dir.path().join("out");
    let options = Options { block: 65_536, depth: 2, ..Options::default() };
    let error = write(&machine, &path, &target, 3 << 20, &options, false, &AtomicU64::new(0)).unwrap_err();
    assert!(matches!(error, Error::Output(output::Error::Write { .. })), "{error}");
    assert!(error.to_string().contains("File too large") && error.hint().contains("ulimit -f"), "{error}");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}
