//! Signals that must not end doorbell without a message.

use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Beyond a limit on file sizes (`ulimit -f`), a write must fail with an error text, and not end this process. A handler,
/// unlike an ignored signal, is not inherited by the programs that are started.
pub fn survive_file_size_limit() {
    extern "C" fn stay(_: libc::c_int) {}
    // SAFETY: a zeroed sigaction has no flags and an empty mask, and the handler is empty. A signal that was ignored when
    // doorbell started stays ignored.
    unsafe {
        let mut old: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGXFSZ, std::ptr::null(), &mut old) == 0 && old.sa_sigaction == libc::SIG_DFL {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = stay as *const () as libc::sighandler_t;
            new.sa_flags = libc::SA_RESTART;
            libc::sigaction(libc::SIGXFSZ, &new, std::ptr::null_mut());
        }
    }
}

/// While it lives, signals that would end this process wait.
pub struct Held(libc::sigset_t);

impl Held {
    pub fn new() -> Held {
        // SAFETY: zeroed is a set; the calls write only the sets that they are given.
        unsafe {
            let (mut set, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
                libc::sigaddset(&mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            Held(before)
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        // SAFETY: the mask of before.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &self.0, std::ptr::null_mut()) };
    }
}

/// A signal that ends this process before the recorder handles signals removes this file, which is still empty.
pub fn end_without(file: &Path) {
    static FILE: OnceLock<CString> = OnceLock::new();
    extern "C" fn remove(signal: libc::c_int) {
        // SAFETY: calls that a handler may make; the path ends with a NUL and is never freed.
        unsafe {
            if let Some(file) = FILE.get() {
                let mut m: libc::stat = std::mem::zeroed();
                let is_empty = libc::lstat(file.as_ptr(), &mut m) == 0 && m.st_size == 0;
                if is_empty && m.st_mode & libc::S_IFMT == libc::S_IFREG {
                    libc::unlink(file.as_ptr());
                }
            }
            libc::signal(signal, libc::SIG_DFL);
            libc::raise(signal);
        }
    }
    let Ok(path) = CString::new(file.as_os_str().as_bytes()) else { return };
    let _ = FILE.set(path);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        // SAFETY: the call only reads the disposition.
        let is_default = unsafe {
            let mut d: libc::sigaction = std::mem::zeroed();
            libc::sigaction(signal, std::ptr::null(), &mut d) == 0 && d.sa_sigaction == libc::SIG_DFL
        };
        if is_default {
            on(signal, remove as *const () as libc::sighandler_t);
        }
    }
}

static HEARD: AtomicU32 = AtomicU32::new(0);

/// Whether there was one since [`count_interrupts`].
pub fn is_interrupted() -> bool {
    HEARD.load(Ordering::Relaxed) > 0
}

/// From now on Ctrl-C and SIGTERM are only counted; the third one ends this process as usual.
pub fn count_interrupts() -> &'static AtomicU32 {
    static FIRST_NS: AtomicU64 = AtomicU64::new(0);
    extern "C" fn heard(_: libc::c_int) {
        let now = monotonic_ns();
        // `timeout` sends its signal twice, to its child and to the process group. The two count as one.
        let first = FIRST_NS.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).err();
        if first.is_some_and(|first| now.saturating_sub(first) < TOGETHER_NS) {
            return;
        }
        if HEARD.fetch_add(1, Ordering::Relaxed) == 1 {
            ENDING.iter().for_each(|signal| on(*signal, libc::SIG_DFL));
        }
    }
    ENDING.iter().for_each(|signal| on(*signal, heard as *const () as libc::sighandler_t));
    &HEARD
}

const ENDING: [libc::c_int; 2] = [libc::SIGINT, libc::SIGTERM];
/// Signals within this time of the first one count as the same signal.
const TOGETHER_NS: u64 = 300_000_000;

fn on(signal: libc::c_int, action: libc::sighandler_t) {
    // SAFETY: a zeroed sigaction has an empty mask. The action is the default, or a handler that makes only calls that a
    // handler may make.
    unsafe {
        let mut new: libc::sigaction = std::mem::zeroed();
        new.sa_sigaction = action;
        new.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &new, std::ptr::null_mut());
    }
}

/// Never 0.
fn monotonic_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the call writes the time there. A signal handler may make this call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut now) };
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64).max(1)
}
