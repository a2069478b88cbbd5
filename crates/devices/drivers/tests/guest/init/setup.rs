//! From a bare kernel to a machine on which drivers may be tested: file systems, modules.

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;

/// Mounts the kernel's file systems and loads the modules of the initial file system, in the order of their names. Returns the kernel's command
/// line.
pub fn machine() -> Result<String, String> {
    for (kind, at) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev"), ("tmpfs", "/tmp")] {
        mount(kind, at).map_err(|why| format!("mount {at}: {why}"))?;
    }
    // Not fatal: kernels without it show no lockdown.
    let _ = mount("securityfs", "/sys/kernel/security");
    let mut modules: Vec<_> = fs::read_dir("/modules")
        .map_err(|why| format!("/modules: {why}"))?
        .flatten()
        .map(|entry| entry.path())
        .collect();
    modules.sort();
    for module in modules {
        load(&module).map_err(|why| format!("load {}: {why}", module.display()))?;
    }
    fs::read_to_string("/proc/cmdline").map_err(|why| format!("/proc/cmdline: {why}"))
}

fn mount(kind: &str, at: &str) -> io::Result<()> {
    fs::create_dir_all(at)?;
    let (kind, at) = (CString::new(kind)?, CString::new(at)?);
    // SAFETY: texts that end with a zero byte; these file systems take no data.
    match unsafe { libc::mount(kind.as_ptr(), at.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn load(module: &Path) -> io::Result<()> {
    let file = File::open(module)?;
    // SAFETY: an open file and an empty text of parameters.
    match unsafe { libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), c"".as_ptr(), 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Does not return.
pub fn power_off() -> ! {
    // SAFETY: neither call accesses memory of this process.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
    loop {
        std::thread::park();
    }
}
