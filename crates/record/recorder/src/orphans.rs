//! Waiting for children. As process 1 of a container the recorder is also the parent of every orphan there.

use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// True when the child has ended. `wait`: waits for the end, or a signal. The child is not yet reaped, so it keeps its
/// number.
///
/// A child that requested tracing (PTRACE_TRACEME) stops at each signal until its parent lets it continue. It gets the
/// signal as if it were not traced, except the trap of an exec.
pub fn has_ended(pid: i32, wait: bool) -> bool {
    if std::process::id() == 1 {
        reap_all_but(pid, wait);
    }
    // SAFETY: zeroed is a siginfo, the process is this one's child, and ptrace takes only numbers.
    unsafe {
        let mut info: libc::siginfo_t = std::mem::zeroed();
        let flags = libc::WEXITED | libc::WNOWAIT | if wait { 0 } else { libc::WNOHANG };
        match libc::waitid(libc::P_PID, pid as libc::id_t, &mut info, flags) {
            0 if info.si_pid() == pid && [libc::CLD_TRAPPED, libc::CLD_STOPPED].contains(&info.si_code) => {
                let signal = if info.si_status() == libc::SIGTRAP { 0 } else { info.si_status() as usize };
                libc::ptrace(libc::PTRACE_CONT, pid, 0usize, signal);
                false
            }
            0 => info.si_pid() == pid,
            // No such child: other code has waited for it.
            _ => io::Error::last_os_error().raw_os_error() == Some(libc::ECHILD),
        }
    }
}

/// Reaps children that have ended, up to the program itself. `wait`: until it has ended, or a signal arrives.
fn reap_all_but(program: i32, wait: bool) {
    loop {
        // SAFETY: zeroed is a siginfo; the calls write only there.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            let flags = libc::WEXITED | libc::WNOWAIT | if wait { 0 } else { libc::WNOHANG };
            let answered = libc::waitid(libc::P_ALL, 0, &mut info, flags) == 0;
            let pid = info.si_pid();
            if !answered || pid == 0 || pid == program {
                return;
            }
            libc::waitpid(pid, std::ptr::null_mut(), libc::WNOHANG);
        }
    }
}

pub fn reap(pid: i32) -> ExitStatus {
    let mut raw = 0;
    // SAFETY: this process's own child, which has ended.
    while unsafe { libc::waitpid(pid, &mut raw, 0) } < 0
        && io::Error::last_os_error().raw_os_error() == Some(libc::EINTR)
    {}
    ExitStatus::from_raw(raw)
}

/// Waits for the end of this process's child.
pub fn wait_for(pid: i32) -> ExitStatus {
    // (A signal that is passed on ends the wait early.)
    while !has_ended(pid, true) {}
    reap(pid)
}
