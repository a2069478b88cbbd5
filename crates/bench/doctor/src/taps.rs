//! The tap's strategies: each is tried on doorbell's own memory.

use crate::Check;
use std::io;

pub fn checks() -> Vec<Check> {
    vec![trap(), patch()]
}

/// Bytes of the page that the trials use.
const PAGE: usize = 4096;

/// A store to a page without access rights must reach a SIGSEGV handler that has its address. In a child process, because a handler that fails ends
/// it.
fn trap() -> Check {
    let name = "tap: trap";
    match in_child(trap_in_child) {
        Ok(0) => Check::yes(name, "a store to a page without access rights reached a SIGSEGV handler").required(),
        Ok(code) => Check::no(name, "does not work", &format!("the trial ended with {code}")).required(),
        Err(e) => Check::no(name, "could not be tried", &e.to_string()).required(),
    }
}

static TRAP_PAGE: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);

extern "C" fn on_segv(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo to an SA_SIGINFO handler; _exit is safe in one.
    unsafe {
        let at = (*info).si_addr() as usize;
        let page = TRAP_PAGE.load(std::sync::atomic::Ordering::Relaxed);
        libc::_exit(if at == page + 0x90 { 0 } else { 3 });
    }
}

fn trap_in_child() -> i32 {
    // SAFETY: a fresh private page, a handler of the right signature, and one store that must fault.
    unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let p = libc::mmap(std::ptr::null_mut(), PAGE, libc::PROT_NONE, flags, -1, 0);
        if p == libc::MAP_FAILED {
            return 1;
        }
        TRAP_PAGE.store(p as usize, std::sync::atomic::Ordering::Relaxed);
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = on_segv as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        if libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut()) != 0 {
            return 2;
        }
        p.cast::<u8>().add(0x90).cast::<u32>().write_volatile(1);
    }
    // The store did not fault.
    4
}

/// Rewriting a site needs: private code pages that may become writable, and a barrier that makes every thread see new code.
fn patch() -> Check {
    let name = "tap: patch";
    let why = match in_child(patch_in_child) {
        Ok(0) => {
            let detail = "a private code page was rewritten; membarrier SYNC_CORE registered; a page moved with mremap";
            return Check::yes(name, detail);
        }
        Ok(1) => "membarrier has no PRIVATE_EXPEDITED_SYNC_CORE here".into(),
        Ok(2) => "membarrier PRIVATE_EXPEDITED_SYNC_CORE was refused".into(),
        Ok(3) => "doorbell's own executable could not be mapped".into(),
        Ok(4) => "mprotect refused a page that is writable and executable (SELinux execmod?)".into(),
        Ok(5) => "mremap refused to move a page over another".into(),
        Ok(code) => format!("the trial ended with {code}"),
        Err(e) => return Check::no(name, "could not be tried", &e.to_string()),
    };
    Check::no(name, "sites continue to trap", &why)
}

fn patch_in_child() -> i32 {
    // linux/membarrier.h
    const CMD_QUERY: i32 = 0;
    const CMD_SYNC_CORE: i32 = 1 << 5;
    const CMD_REGISTER_SYNC_CORE: i32 = 1 << 6;
    // SAFETY: membarrier takes no memory; the pages are new mappings without other users.
    unsafe {
        let membarrier = |cmd: i32| libc::syscall(libc::SYS_membarrier, cmd, 0, 0);
        let offered = membarrier(CMD_QUERY);
        let needed = (CMD_SYNC_CORE | CMD_REGISTER_SYNC_CORE) as i64;
        if offered < 0 || offered & needed != needed {
            return 1;
        }
        if membarrier(CMD_REGISTER_SYNC_CORE) != 0 || membarrier(CMD_SYNC_CORE) != 0 {
            return 2;
        }
        let Ok(exe) = std::fs::File::open("/proc/self/exe") else { return 3 };
        let fd = std::os::fd::AsRawFd::as_raw_fd(&exe);
        let rx = libc::PROT_READ | libc::PROT_EXEC;
        let code = libc::mmap(std::ptr::null_mut(), PAGE, rx, libc::MAP_PRIVATE, fd, 0);
        if code == libc::MAP_FAILED {
            return 3;
        }
        if libc::mprotect(code, PAGE, rx | libc::PROT_WRITE) != 0 {
            return 4;
        }
        let byte = code.cast::<u8>();
        byte.write_volatile(!byte.read_volatile());
        if libc::mprotect(code, PAGE, rx) != 0 {
            return 4;
        }
        let rw = libc::PROT_READ | libc::PROT_WRITE;
        let anon = |prot| libc::mmap(std::ptr::null_mut(), PAGE, prot, libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1, 0);
        let (from, to) = (anon(rw), anon(libc::PROT_NONE));
        if from == libc::MAP_FAILED || to == libc::MAP_FAILED {
            return 5;
        }
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        if libc::mremap(from, PAGE, PAGE, flags, to) != to {
            return 5;
        }
        0
    }
}

/// Runs `f` in a child and returns its exit status; a child that a signal ends is an error.
fn in_child(f: fn() -> i32) -> io::Result<i32> {
    // SAFETY: doctor has one thread, so the child may continue as a whole program; it leaves by _exit.
    unsafe {
        let pid = libc::fork();
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => libc::_exit(f()),
            _ => {
                let mut status = 0;
                while libc::waitpid(pid, &mut status, 0) < 0 {
                    let e = io::Error::last_os_error();
                    if e.kind() != io::ErrorKind::Interrupted {
                        return Err(e);
                    }
                }
                if libc::WIFEXITED(status) {
                    Ok(libc::WEXITSTATUS(status))
                } else {
                    Err(io::Error::other(format!("killed by signal {}", libc::WTERMSIG(status))))
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_reports_its_status_and_its_death() {
        assert_eq!(in_child(|| 7).unwrap(), 7);
        // SAFETY: ends the child.
        let e = in_child(|| unsafe { libc::raise(libc::SIGKILL) }).unwrap_err();
        assert_eq!(e.to_string(), "killed by signal 9");
    }
}
