//! What is read from outside of a running program: its memory, its mappings, the stacks of its threads.
//!
//! Invariant: no thread of the program is stopped or woken for it. What changes while it is read is read again, or left out.

pub mod gil;
pub mod maps;
pub mod memory;

use std::sync::mpsc::channel;
use std::time::Duration;

/// What `read` returns. `None` if it takes longer than `patience`: the kernel never answers for a process that hangs in it while it
/// changes its mappings.
pub fn within<T: Send + 'static>(patience: Duration, read: impl FnOnce() -> T + Send + 'static) -> Option<T> {
    let (tell, told) = channel();
    let thread = std::thread::Builder::new().name("inspect".into()).spawn(move || tell.send(read()));
    thread.ok().and_then(|_| told.recv_timeout(patience).ok())
}
