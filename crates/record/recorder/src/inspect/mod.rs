//! What is read from outside of a running program: its memory, its mappings, the stacks of its threads.
//!
//! Invariant: no thread of the program is stopped or woken for it, and no signal is sent. What changes while it is read is read again, or left out.

pub mod gil;
pub mod host_function;
pub mod maps;
pub mod memory;
mod sample;
pub mod stacks;
pub mod unwind;

use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

/// What `read` returns. `None` if it takes longer than `patience`: the kernel never answers for a process that hangs in it while it
/// changes its mappings.
pub fn within<T: Send + 'static>(patience: Duration, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = channel();
    let thread = std::thread::Builder::new().name("inspect".into()).spawn(move || tell.send(read()));
    thread.ok().and_then(|_| told.recv_timeout(patience).ok())
}

/// A thread that sleeps: in which system call with which arguments, its stack pointer, and where it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sleep {
    text: String,
    pub sp: u64,
    pub pc: u64,
}

impl Sleep {
    /// `None` if it runs.
    ///
    /// # Errors
    /// Why /proc does not have it.
    pub fn of(pid: i32, tid: i32) -> Result<Option<Sleep>, &'static str> {
        let text = match fs::read_to_string(format!("/proc/{pid}/task/{tid}/syscall")) {
            Ok(text) => text,
            Err(e) if e.kind() == std::io::ErrorKind::PermissionDenied => return Err("/proc may not be read"),
            Err(e) if e.raw_os_error() == Some(libc::ESRCH) => return Err("it has ended"),
            Err(_) => return Err("the kernel does not report system calls of threads, or it has ended"),
        };
        let mut last = text.split_whitespace().rev();
        let mut hex = || u64::from_str_radix(last.next()?.strip_prefix("0x")?, 16).ok();
        let both = hex().zip(hex());
        Ok(both.map(|(pc, sp)| Sleep { text, sp, pc }))
    }
}
