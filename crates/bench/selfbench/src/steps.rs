//! Instructions of a thread between two passes of one place, counted by single steps (ptrace). The count is the same on each machine, and the CPU needs no
//! counters.

use anyhow::{Context, bail};
use std::collections::VecDeque;
use std::io;

/// Maximum number of instructions without a pass: a thread that exceeds it is not in the loop.
const PATIENCE: u64 = 2_000_000;

/// A thread that is stepped. It continues when this is dropped.
struct Stepped(libc::pid_t);

impl Stepped {
    fn begin(thread: libc::pid_t) -> io::Result<Stepped> {
        request(libc::PTRACE_SEIZE, thread, 0, 0)?;
        let stepped = Stepped(thread);
        request(libc::PTRACE_INTERRUPT, thread, 0, 0)?;
        stepped.stops()?;
        Ok(stepped)
    }

    /// Waits for the thread to stop; returns the signal.
    fn stops(&self) -> io::Result<i32> {
        let mut status = 0;
        // SAFETY: writes the status.
        if unsafe { libc::waitpid(self.0, &mut status, libc::__WALL) } != self.0 {
            return Err(io::Error::last_os_error());
        }
        match libc::WIFSTOPPED(status) {
            true => Ok(libc::WSTOPSIG(status)),
            false => Err(io::Error::other("the thread has ended")),
        }
    }

    /// One instruction. Returns the address of the next.
    fn step(&self) -> io::Result<u64> {
        let mut signal = 0;
        loop {
            request(libc::PTRACE_SINGLESTEP, self.0, 0, signal)?;
            match self.stops()? {
                libc::SIGTRAP => return self.at(),
                // The program's own signal.
                other => signal = other as usize,
            }
        }
    }

    fn at(&self) -> io::Result<u64> {
        const RIP: usize = std::mem::offset_of!(libc::user_regs_struct, rip);
        // SAFETY: errno belongs to this thread, and the request reads a word of a stopped thread. (The word may be -1.)
        let (word, error) = unsafe {
            *libc::__errno_location() = 0;
            (libc::ptrace(libc::PTRACE_PEEKUSER, self.0, RIP, 0), *libc::__errno_location())
        };
        if error == 0 { Ok(word as u64) } else { Err(io::Error::from_raw_os_error(error)) }
    }
}

impl Drop for Stepped {
    fn drop(&mut self) {
        let _ = request(libc::PTRACE_DETACH, self.0, 0, 0);
    }
}

fn request(what: libc::c_uint, thread: libc::pid_t, address: usize, data: usize) -> io::Result<()> {
    // SAFETY: requests that neither read nor write memory of this process.
    match unsafe { libc::ptrace(what, thread, address, data) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The median number of instructions of `thread` from one pass of `place` to the next. A repeated string instruction counts once.
///
/// # Errors
/// The thread may not be traced, or does not pass.
pub fn between_passes(thread: libc::pid_t, place: u64, passes: usize) -> anyhow::Result<u64> {
    let stepped = Stepped::begin(thread).context("single steps (ptrace)")?;
    let (mut counts, mut n, mut before) = (VecDeque::new(), 0u64, 0);
    while counts.len() <= passes {
        let at = stepped.step().context("a single step (ptrace)")?;
        if at != before {
            n += 1;
        }
        before = at;
        if at == place {
            counts.push_back(std::mem::take(&mut n));
        } else if n > PATIENCE {
            bail!("the loop did not come round in {PATIENCE} instructions");
        }
    }
    // The first count began at an arbitrary place.
    counts.pop_front();
    counts.make_contiguous().sort_unstable();
    Ok(counts[counts.len() / 2])
}
