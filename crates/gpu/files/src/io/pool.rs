//! pread and pwrite on threads, for kernels that refuse io_uring (seccomp, kernel.io_uring_disabled).

use super::{Ended, Memory, Operation, Request};
use crate::error::Errno;
use std::collections::VecDeque;
use std::os::fd::RawFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;

/// More threads than this read no faster.
const THREADS: usize = 16;

pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    state: Mutex<State>,
    asked: Condvar,
    ended: Condvar,
    fd: RawFd,
    memory: Memory,
}

struct State {
    asked: VecDeque<Request>,
    ended: VecDeque<Ended>,
    closed: bool,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        poison::ignore(self.state.lock())
    }

    fn work(&self) {
        loop {
            let mut state = self.state();
            let request = loop {
                match state.asked.pop_front() {
                    Some(request) => break request,
                    None if state.closed => return,
                    None => state = poison::ignore(self.asked.wait(state)),
                }
            };
            drop(state);
            let ended = Ended { slot: request.slot, result: self.transfer(&request) };
            self.state().ended.push_back(ended);
            self.ended.notify_one();
        }
    }

    fn transfer(&self, request: &Request) -> Result<usize, Errno> {
        let (at, offset) = (self.memory.at(request), request.offset as libc::off64_t);
        // SAFETY: the bytes are within the slot, which belongs to this request until it has ended.
        let done = unsafe {
            match request.operation {
                Operation::Read => libc::pread64(self.fd, at.cast(), request.bytes, offset),
                Operation::Write => libc::pwrite64(self.fd, at.cast(), request.bytes, offset),
            }
        };
        usize::try_from(done).map_err(|_| Errno(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
    }
}

impl Pool {
    /// # Safety
    /// As [`super::Io::new`].
    pub unsafe fn new(fd: RawFd, memory: Memory) -> Pool {
        let room = || VecDeque::with_capacity(memory.slots);
        let state = State { asked: room(), ended: VecDeque::with_capacity(memory.slots), closed: false };
        let shared = Arc::new(Shared { state: state.into(), asked: Condvar::new(), ended: Condvar::new(), fd, memory });
        let thread = |_| {
            let shared = shared.clone();
            std::thread::spawn(move || shared.work())
        };
        let threads = (0..memory.slots.min(THREADS)).map(thread).collect();
        Pool { shared, threads }
    }

    pub fn push(&mut self, request: Request) {
        self.shared.state().asked.push_back(request);
        self.shared.asked.notify_one();
    }

    pub fn turn(&mut self, wait: bool, mut each: impl FnMut(Ended)) {
        let mut state = self.shared.state();
        while wait && state.ended.is_empty() {
            state = poison::ignore(self.shared.ended.wait(state));
        }
        while let Some(ended) = state.ended.pop_front() {
            each(ended);
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.asked.notify_all();
        for thread in self.threads.drain(..) {
            // The thread does not panic, because it only makes system calls.
            let _ = thread.join();
        }
    }
}
