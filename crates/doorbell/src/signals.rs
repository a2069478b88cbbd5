//! Signals that must not end doorbell in silence.

use std::sync::atomic::{AtomicBool, Ordering};

/// Past a limit on file sizes (`ulimit -f`) a write is to be an error with a text, not the end of this process. A handler,
/// unlike an ignored signal, is not inherited by the programs that are started.
pub fn survive_file_size_limit() {
    extern "C" fn stay(_: libc::c_int) {}
    // SAFETY: zeroed is a sigaction with no flags and an empty mask; the handler does nothing. A signal that was ignored
    // when doorbell started stays ignored.
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

/// Ctrl-C from now on asks for an end instead of making one; a second one ends the process as ever.
pub fn stop_on_interrupt() -> &'static AtomicBool {
    static STOP: AtomicBool = AtomicBool::new(false);
    extern "C" fn stop(_: libc::c_int) {
        STOP.store(true, Ordering::Relaxed);
    }
    for signal in [libc::SIGINT, libc::SIGTERM] {
        // SAFETY: zeroed is a sigaction with an empty mask; the handler stores one flag. SA_RESETHAND: the next one ends.
        unsafe {
            let mut new: libc::sigaction = std::mem::zeroed();
            new.sa_sigaction = stop as *const () as libc::sighandler_t;
            new.sa_flags = libc::SA_RESTART | libc::SA_RESETHAND;
            libc::sigaction(signal, &new, std::ptr::null_mut());
        }
    }
    &STOP
}
