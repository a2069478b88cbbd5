//! Faults between file and GPU: each is an error with the file and the offset, and leaves no half-written file.

mod ground;

use doorbell_softgpu::{Mode, Planted, SoftDriver};
use files::{Buffered, Direction, Done, Errno, Error, Extents, Options, Queue, Source, Target, Way, read, write};
use ground::{filled, machine, random};
use machine::Machine;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

fn options() -> Options {
    Options { block: 8192, depth: 4, verify: true, ..Options::default() }
}

fn read_all(machine: &Machine, source: &Source) -> Result<files::Report, Error> {
    let target = Target::new(machine, source.length()).unwrap();
    let places = Arc::new(Extents::whole(source.length()));
    read(machine, source, (&target, &places), &options(), &AtomicU64::new(0))
}

#[test]
fn what_is_no_file_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let open = |path: &Path| Source::open(path, false).unwrap_err();
    assert!(matches!(open(dir.path()), Error::Kind { what: "a directory", .. }));
    assert!(matches!(open("/dev/zero".as_ref()), Error::Kind { .. }));
    let missing = open(&dir.path().join("no"));
    assert!(matches!(missing, Error::Open { .. }) && missing.to_string().contains("/no: "), "{missing}");
    let pipe = dir.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    assert!(matches!(open(&pipe), Error::Kind { .. }), "opening it would wait for ever");
}

#[test]
fn a_file_that_changes_meanwhile_is_an_error() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = random(&dir, "f", 100_000);
    let source = Source::open(&path, false).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(50_001).unwrap();
    let error = read_all(&machine, &source).unwrap_err();
    let Error::Truncated { end, expected, .. } = error else { panic!("{error}") };
    assert_eq!((end, expected), (50_001, 100_000), "where it ends, and what it had");
    std::fs::write(&path, &data).unwrap();
    let source = Source::open(&path, false).unwrap();
    File::options().append(true).open(&path).unwrap().write_all(b"more").unwrap();
    let error = read_all(&machine, &source).unwrap_err();
    assert!(matches!(error, Error::Changed { what: "it has grown", .. }), "{error}");
    let source = Source::open(&path, false).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    File::options().write(true).open(&path).unwrap().write_all(b"other").unwrap();
    let error = read_all(&machine, &source).unwrap_err();
    assert!(matches!(error, Error::Changed { what: "it was written to", .. }), "{error}");
    // Also when the writer sets the file's time back.
    let source = Source::open(&path, false).unwrap();
    let before = path.metadata().unwrap().modified().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    let mut file = File::options().write(true).open(&path).unwrap();
    file.write_all(b"again").unwrap();
    file.set_modified(before).unwrap();
    let error = read_all(&machine, &source).unwrap_err();
    assert!(matches!(error, Error::Changed { what: "it was written to", .. }), "{error}");
}

#[test]
fn a_file_system_without_o_direct_is_read_through_the_page_cache_and_says_so() {
    // The kernel's virtual files have no pages to read directly.
    let path = Path::new("/sys/kernel/btf/vmlinux");
    if !path.exists() {
        test_support::skip!("no file in /sys to read");
    }
    let machine = machine();
    let source = Source::open(path, false).unwrap();
    assert!(matches!(source.buffered(), Some(Buffered::Refused(why)) if why.contains("O_DIRECT")));
    let report = read_all(&machine, &source).unwrap();
    assert_eq!(report.verified, Some(source.length()));
    assert!(report.buffered.is_some());
}

#[test]
fn a_file_in_memory_is_not_said_to_be_read_directly() {
    let Ok(dir) = tempfile::tempdir_in("/dev/shm") else { test_support::skip!("no /dev/shm") };
    let machine = machine();
    let (path, _) = random(&dir, "f", 50_001);
    let source = Source::open(&path, false).unwrap();
    if !matches!(source.buffered(), Some(Buffered::Refused(why)) if why.contains("tmpfs")) {
        test_support::skip!("/dev/shm is no tmpfs");
    }
    assert_eq!(read_all(&machine, &source).unwrap().verified, Some(50_001));
    let (target, data) = filled(&machine, 30_000);
    let out = dir.path().join("out");
    let report = write(&machine, &out, &target, 30_000, &options(), false, &AtomicU64::new(0)).unwrap();
    assert!(report.buffered.is_some() && std::fs::read(&out).unwrap() == data);
}

#[test]
fn a_read_that_comes_back_short_is_continued() {
    // The kernel generates this text as it is read, at most a page at a time.
    let path = Path::new("/proc/kallsyms");
    let Ok(text) = std::fs::read(path) else { test_support::skip!("no /proc/kallsyms to read") };
    if text.len() < 65_536 {
        test_support::skip!("a short /proc/kallsyms");
    }
    for way in [Way::Auto, Way::Threads] {
        let options = Options { way, depth: 1, block: 65_536, ..options() };
        let source = Source::of_file(File::open(path).unwrap(), path, 65_536).unwrap();
        let mut queue = Queue::bare(&source, Direction::Read, &options).unwrap();
        queue.submit(0, 0, 65_536).unwrap();
        let mut done = [Done::NONE];
        assert_eq!(queue.wait(&mut done).unwrap(), 1);
        assert_eq!(done[0].result, Ok(65_536));
        assert!(queue.counts().short > 0, "{:?}", queue.counts());
        assert!(queue.slot(0, 65_536) == &text[..65_536]);
    }
}

#[test]
fn what_the_kernel_says_of_a_block_is_told_with_its_place() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = random(&dir, "f", 40_000);
    // A descriptor without read permission.
    let file = File::options().write(true).open(&path).unwrap();
    let source = Source::of_file(file, &path, 40_000).unwrap();
    let error = read_all(&machine, &source).unwrap_err();
    assert!(matches!(error, Error::Read { cause: Errno(libc::EBADF), .. }), "{error}");
    // A full device, also without io_uring.
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for way in [Way::Auto, Way::Threads] {
        let options = Options { way, ..options() };
        let source = Source::of_file(full(), "/dev/full".as_ref(), 8192).unwrap();
        let (target, _) = filled(&machine, 4 * 8192);
        let mut queue = Queue::by_slot(&machine, &source, Direction::Write, &target, &options).unwrap();
        queue.submit(1, 8192, 8192).unwrap();
        let mut done = [Done::NONE];
        assert_eq!(queue.wait(&mut done).unwrap(), 1);
        assert_eq!(done[0], Done { slot: 1, offset: 8192, result: Err(Errno(libc::ENOSPC)) });
    }
}

#[test]
fn a_gpu_that_loses_bytes_is_found_and_one_that_dies_is_an_error() {
    let broken = |fault| {
        let driver = SoftDriver::broken(Mode::Strict, fault);
        Machine::of_driver(Arc::new(driver), false).unwrap()
    };
    let dir = tempfile::tempdir().unwrap();
    let (path, data) = random(&dir, "f", 30_000);
    let source = Source::open(&path, false).unwrap();
    let error = read_all(&broken(Planted::ShortCopy), &source).unwrap_err();
    let Error::Differs { offset, bytes, expected, .. } = &error else { panic!("{error}") };
    assert_eq!((*bytes, *expected), (30_000, data[*offset as usize]), "{error}");
    assert_eq!(offset % 8192, 8191, "the last byte of a copy");
    let error = read_all(&broken(Planted::DeadChannel { entry: 3, xid: 31 }), &source).unwrap_err();
    assert!(error.to_string().contains("killed by error 31"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_leaves_nothing_and_old_ones_as_they_were() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    let (target, data) = filled(&machine, 30_000);
    let try_it = |path: &Path, force| write(&machine, path, &target, 30_000, &options(), force, &AtomicU64::new(0));
    let path = dir.path().join("old");
    std::fs::write(&path, "old").unwrap();
    let error = try_it(&path, false).unwrap_err();
    assert!(matches!(error, Error::Output(output::Error::Exists(_))) && error.hint().contains("--force"), "{error}");
    let link = dir.path().join("link");
    symlink(&path, &link).unwrap();
    assert!(matches!(try_it(&link, false), Err(Error::Output(output::Error::Link(_)))));
    assert!(matches!(try_it(dir.path(), true), Err(Error::Output(output::Error::Directory(_)))));
    assert!(matches!(try_it("/dev/full".as_ref(), true), Err(Error::Kind { .. })));
    assert!(try_it(&dir.path().join("no/such"), true).is_err());
    // A channel that dies in the middle.
    let dying = SoftDriver::broken(Mode::Strict, Planted::DeadChannel { entry: 3, xid: 31 });
    let dying = Machine::of_driver(Arc::new(dying), false).unwrap();
    let (dies, _) = filled(&dying, 300_000);
    let error = write(&dying, &path, &dies, 300_000, &options(), true, &AtomicU64::new(0)).unwrap_err();
    assert!(error.to_string().contains("killed"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "old");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2, "the old file and the link");
    try_it(&path, true).unwrap();
    assert!(std::fs::read(&path).unwrap() == data);
}

#[test]
fn sizes_that_cannot_be_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (path, _) = random(&dir, "f", 100);
    let source = Source::open(&path, false).unwrap();
    for (options, what) in [
        (Options { block: 100, ..options() }, "a block of 100"),
        (Options { block: 1 << 30, ..options() }, "a block of"),
        (Options { depth: 0, ..options() }, "a depth of 0"),
        (Options { depth: 129, ..options() }, "a depth of 129"),
        (Options { threads: 0, ..options() }, "0 threads"),
        (Options { block: 64 << 20, depth: 128, ..options() }, "under way"),
    ] {
        let error = Queue::bare(&source, Direction::Read, &options).unwrap_err();
        assert!(error.to_string().contains(what), "{error}");
    }
    let machine = machine();
    let target = Target::new(&machine, 50).unwrap();
    let places = Arc::new(Extents::whole(100));
    let error = read(&machine, &source, (&target, &places), &options(), &AtomicU64::new(0)).unwrap_err();
    assert!(error.to_string().contains("which has 50"), "{error}");
}
