//! A CPU that only one thread of this process uses.
//!
//! The kernel puts a thread that is woken near the one that woke it, often on the same CPU. If that thread then stays in the kernel for milliseconds, as
//! one that pins memory does, the thread that woke it waits. A CPU on which no other thread of the process may run prevents that.

use crate::placement::{affinity, affinity_of, cpus};
use std::io;
use std::sync::Mutex;

/// The threads that have a CPU to themselves.
struct Threads {
    /// The CPUs of the process when the first such thread started.
    all: Vec<usize>,
    /// Kernel thread ids, and their CPUs.
    have: Vec<(i32, usize)>,
}

static THREADS: Mutex<Threads> = Mutex::new(Threads { all: Vec::new(), have: Vec::new() });

impl Threads {
    /// The CPUs for all other threads.
    fn left(&self) -> Vec<usize> {
        self.all.iter().copied().filter(|cpu| !self.have.iter().any(|(_, taken)| taken == cpu)).collect()
    }

    fn spared(&self) -> Vec<i32> {
        self.have.iter().map(|(thread, _)| *thread).collect()
    }
}

/// The calling thread has its CPU to itself until this is dropped.
#[derive(Debug)]
pub struct Alone {
    thread: i32,
}

/// A thread that is started while the others are moved may come from one that was not moved yet.
const PASSES: usize = 3;

impl Alone {
    /// Takes all other threads of this process off `cpu`, the ones that they start later included. The calling thread itself is not moved. Also returns
    /// how many threads could not be moved.
    ///
    /// # Errors
    /// The process may not run there, or has no other CPU, or another thread has that CPU.
    pub fn take(cpu: usize) -> io::Result<(Alone, usize)> {
        let mut threads = poison::ignore(THREADS.lock());
        if threads.have.is_empty() {
            threads.all = affinity()?;
        }
        let left = threads.left();
        if !left.contains(&cpu) {
            return Err(io::Error::other("the process may not run there, or another thread has that CPU"));
        }
        if left.len() == 1 {
            return Err(io::Error::other("the process has no other CPU for its other threads"));
        }
        // SAFETY: only reads the calling thread's id.
        let thread = unsafe { libc::syscall(libc::SYS_gettid) } as i32;
        threads.have.push((thread, cpu));
        let alone = Alone { thread };
        let (left, spared) = (threads.left(), threads.spared());
        drop(threads);
        let mut stayed = 0;
        for _ in 0..PASSES {
            stayed = cpus::clear(&left, &spared)?.1;
        }
        Ok((alone, stayed))
    }
}

impl Drop for Alone {
    /// The other threads may run there again. A thread whose CPUs were changed in the meantime is left as it is.
    fn drop(&mut self) {
        let mut threads = poison::ignore(THREADS.lock());
        let before = threads.left();
        threads.have.retain(|(thread, _)| *thread != self.thread);
        let (left, spared) = (threads.left(), threads.spared());
        for thread in cpus::threads().unwrap_or_default() {
            if !spared.contains(&thread) && affinity_of(thread).is_ok_and(|has| has == before) {
                let _ = cpus::confine(thread, &left);
            }
        }
    }
}
