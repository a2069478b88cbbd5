//! cuFile with a stand-in for the library: both of its modes, and errors.

mod ground;

use files::cufile::{Counters, CuFile, Error, Mode};
use files::{Direction, Source};
use ground::random;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use tempfile::TempDir;

/// Host memory takes the place of GPU memory: the library copies to any address.
const LIBRARY: &str = r#"
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
typedef struct { int err, cu; } status;
typedef struct { int type; union { int fd; void *p; } handle; const void *ops; } descr;
static char mode[32];
static int is(const char *what) { return strcmp(mode, what) == 0; }
static const void *registered;
static long total;
status cuFileDriverOpen(void) {
  memset(mode, 0, sizeof mode);
  int f = open(DIR "/mode", O_RDONLY);
  if (read(f, mode, sizeof mode - 1) < 0) abort();
  close(f); total = 0;
  return (status){ is("no-driver") ? 5001 : 0, 0 };
}
status cuFileDriverGetProperties(void *p) {
  unsigned int *w = p; w[0] = 2; w[1] = 17; w[7] = 2; return (status){0, 0};
}
status cuFileHandleRegister(void **h, descr *d) {
  if (is("no-handle")) return (status){5018, 0};
  if (d->type != 1 || d->ops) return (status){5022, 0};
  *h = (void *)(long)(d->handle.fd + 1);
  return (status){0, 0};
}
void cuFileHandleDeregister(void *h) { (void)h; }
status cuFileBufRegister(const void *p, size_t n, int flags) {
  (void)n; (void)flags; if (is("no-buffer")) return (status){5011, 201};
  registered = p; return (status){0, 0};
}
status cuFileBufDeregister(const void *p) { (void)p; registered = 0; return (status){0, 0}; }
/* One at a time: the last one written is the largest. */
static void account(const char *what, size_t n) {
  static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&one);
  long now = total += (long)n;
  char text[128];
  snprintf(text, sizeof text, "Reads : n=1 ok=1 err=0 readMiB=%ld io_state_err=0\nWrites : n=1 writeMiB=%ld\n", now >> 20, now >> 20);
  int f = open(DIR "/stats", O_WRONLY | O_CREAT, 0600);
  if (pwrite(f, text, strlen(text) + 1, 0) < 0) abort();
  close(f); (void)what;
  pthread_mutex_unlock(&one);
}
ssize_t cuFileRead(void *h, void *base, size_t n, off_t at, off_t to) {
  int fd = (int)(long)h - 1;
  if (base != registered) return -5024;
  if (is("io-error")) { errno = EIO; return -1; }
  if (is("own-error")) return -5011;
  if (is("short") && n > 4096) n = 4096;
  if (is("compat")) return pread(fd, (char *)base + to, n, at);
  struct stat s; fstat(fd, &s);
  if (at >= s.st_size) return 0;
  if (at + (off_t)n > s.st_size) n = s.st_size - at;
  char *m = mmap(0, s.st_size, PROT_READ, MAP_SHARED, fd, 0);
  memcpy((char *)base + to, m + at, n); munmap(m, s.st_size);
  account("read", n);
  return n;
}
ssize_t cuFileWrite(void *h, const void *base, size_t n, off_t at, off_t from) {
  return pwrite((int)(long)h - 1, (const char *)base + from, n, at);
}
"#;

/// The kernel counts for the whole process, so only one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// A folder with the library, for one test.
struct Ground {
    dir: TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Ground {
    fn new() -> Ground {
        let alone = poison::ignore(ALONE.lock());
        let dir = tempfile::tempdir().unwrap();
        let source = dir.path().join("c.c");
        std::fs::write(&source, LIBRARY).unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-o"]).arg(dir.path().join("c.so")).arg(&source);
        cc.arg(format!("-DDIR=\"{}\"", dir.path().display()));
        assert!(cc.status().unwrap().success());
        Ground { dir, _alone: alone }
    }

    /// The library in that mode, with a separate file for its module's counters.
    fn library(&self, mode: &str) -> Result<CuFile, Error> {
        let at = |name: &str| self.dir.path().join(name);
        std::fs::write(at("mode"), mode).unwrap();
        std::fs::write(at("stats"), "Reads : n=0 readMiB=0\nWrites : n=0 writeMiB=0\n").unwrap();
        let counters = Counters { nvidia_fs: at("stats"), ..Counters::default() };
        CuFile::open_at(&[at("c.so").to_str().unwrap()], counters)
    }
}

fn skip() -> bool {
    !test_support::installed("cc")
}

struct Read {
    memory: Vec<u8>,
    result: Result<files::cufile::Report, Error>,
    progress: u64,
}

fn read(library: &CuFile, path: &Path, bytes: u64, require_direct: bool) -> Read {
    let source = Source::open(path, true).unwrap();
    let mut memory = vec![0u8; bytes as usize];
    let progress = AtomicU64::new(0);
    let va = memory.as_mut_ptr() as u64;
    // SAFETY: the vector's bytes, which no other code uses.
    let result =
        unsafe { library.transfer(&source, Direction::Read, (va, bytes), (65_536, 3), require_direct, &progress) };
    Read { memory, result, progress: progress.load(Ordering::Relaxed) }
}

const BYTES: usize = (3 << 20) + 4097;

fn file(dir: &TempDir) -> (PathBuf, Vec<u8>) {
    random(dir, "f", BYTES)
}

#[test]
fn compatibility_mode_is_measured_and_refused_where_direct_is_required() {
    if skip() {
        test_support::skip!("no C compiler");
    }
    let ground = Ground::new();
    let dir = &ground.dir;
    let (path, data) = file(dir);
    let library = ground.library("compat").unwrap();
    assert_eq!(library.says(), Some((true, (2, 17))));
    let read_it = read(&library, &path, BYTES as u64, false);
    let report = read_it.result.unwrap();
    assert!(read_it.memory == data);
    assert_eq!((report.measured.mode, read_it.progress), (Mode::Compatibility, BYTES as u64));
    assert!(report.measured.through_host.unwrap() >= BYTES as u64);
    let refused = read(&library, &path, BYTES as u64, true).result.unwrap_err();
    assert!(
        matches!(refused, Error::NotDirect { mode: Mode::Compatibility, .. }) && refused.is_impossible(),
        "{refused}"
    );
}

#[test]
fn direct_mode_is_measured_and_without_its_counters_it_is_doubted() {
    if skip() {
        test_support::skip!("no C compiler");
    }
    let ground = Ground::new();
    let dir = &ground.dir;
    let (path, data) = file(dir);
    let library = ground.library("gds").unwrap();
    let read_it = read(&library, &path, BYTES as u64, true);
    let measured = read_it.result.unwrap().measured;
    assert!(read_it.memory == data);
    assert!(measured.mode == Mode::Direct, "{measured:?}");
    std::fs::remove_file(dir.path().join("stats")).unwrap();
    let nowhere = Counters { nvidia_fs: dir.path().join("none"), ..Counters::default() };
    let so = dir.path().join("c.so");
    let library = CuFile::open_at(&[so.to_str().unwrap()], nowhere).unwrap();
    assert_eq!(read(&library, &path, BYTES as u64, false).result.unwrap().measured.mode, Mode::Unknown);
    assert!(matches!(
        read(&library, &path, BYTES as u64, true).result,
        Err(Error::NotDirect { mode: Mode::Unknown, .. })
    ));
}

#[test]
fn short_transfers_are_continued_and_errors_have_file_offset_and_name() {
    if skip() {
        test_support::skip!("no C compiler");
    }
    let ground = Ground::new();
    let dir = &ground.dir;
    let (path, data) = file(dir);
    let read_it = read(&ground.library("short").unwrap(), &path, BYTES as u64, false);
    read_it.result.unwrap();
    assert!(read_it.memory == data);
    let text = |mode, bytes| read(&ground.library(mode).unwrap(), &path, bytes, false).result.unwrap_err().to_string();
    let found = text("io-error", BYTES as u64);
    assert!(found.contains("Input/output error") && found.contains(path.to_str().unwrap()), "{found}");
    assert!(text("own-error", BYTES as u64).contains("CUDA_DRIVER_ERROR (5011)"));
    let found = text("compat", BYTES as u64 + 10);
    assert!(found.contains(&format!("the file ends at {BYTES}")), "{found}");
    for (mode, what) in [("no-handle", "INVALID_FILE_TYPE"), ("no-buffer", "CUDA's error 201")] {
        let found = text(mode, BYTES as u64);
        assert!(found.contains(what), "{found}");
    }
    assert!(ground.library("no-driver").unwrap_err().to_string().contains("DRIVER_NOT_INITIALIZED"));
    let missing = CuFile::open_at(&["/no/libcufile.so"], Counters::default()).unwrap_err();
    assert!(matches!(missing, Error::Missing(_)) && missing.is_impossible());
}

#[test]
fn what_is_written_arrives() {
    if skip() {
        test_support::skip!("no C compiler");
    }
    let ground = Ground::new();
    let dir = &ground.dir;
    let (path, _) = random(dir, "w", 0);
    let data = ground::bytes(100_000);
    let library = ground.library("compat").unwrap();
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    let source = Source::of_file(file, &path, 100_000).unwrap();
    // SAFETY: the vector's bytes.
    let report = unsafe {
        let memory = (data.as_ptr() as u64, data.len() as u64);
        library.transfer(&source, Direction::Write, memory, (4096, 2), false, &AtomicU64::new(0))
    };
    assert_eq!(report.unwrap().measured.mode, Mode::Compatibility);
    assert!(std::fs::read(&path).unwrap() == data);
}
