//! What the kernel grants the loop's thread. Refused requests are named.

use crate::memory::Memory;
use crate::options::{Class, Scheduling};
use environment::placement::alone::Alone;
use environment::placement::{Placement, Wish};

const STACK: usize = 64 << 10;

/// What the thread has as long as this lives.
pub(crate) struct Taken {
    _placement: Placement,
    _alone: Option<Alone>,
}

/// Requests the wishes for the calling thread. Also returns the refused ones.
pub(crate) fn take(wished: &Scheduling, memory: &Memory) -> (Taken, Vec<String>) {
    let mut refused = Vec::new();
    // Before the thread is on its CPU: the process's CPUs are read from this thread.
    let alone = wished.cpu.filter(|_| wished.alone).and_then(|cpu| match Alone::take(cpu) {
        Ok((alone, stayed)) => {
            if stayed != 0 {
                refused.push(format!("{stayed} threads of the process could not be taken off CPU {cpu}"));
            }
            Some(alone)
        }
        Err(error) => {
            refused.push(format!("CPU {cpu} alone was refused: {error}"));
            None
        }
    });
    let fifo = if let Class::Fifo(priority) = wished.class { Some(priority) } else { None };
    let given = Placement::take(Wish { cpu: wished.cpu, fifo });
    if given.cpu != wished.cpu || given.fifo != fifo {
        // (A note may also explain SCHED_FIFO.)
        refused.extend(given.notes.iter().filter(|note| note.contains("was refused")).cloned());
    }
    if let Class::Deadline { runtime, deadline, period } = wished.class
        && let Err(error) = environment::placement::deadline::enter(runtime, deadline, period)
    {
        refused.push(format!(
            "SCHED_DEADLINE was refused: {error} (needs CAP_SYS_NICE, a thread that may run on all CPUs, and as much of their time)"
        ));
    }
    if wished.lock_memory {
        if let Err(error) = memory.lock() {
            refused.push(format!("the loop's memory was not locked: {error} (`ulimit -l`)"));
        }
        touch_stack();
    }
    // SAFETY: sets a number of this thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64) };
    (Taken { _placement: given, _alone: alone }, refused)
}

/// Maps the stack's pages before the first frame.
#[inline(never)]
fn touch_stack() {
    let mut stack = [0u8; STACK];
    for byte in stack.iter_mut().step_by(4096) {
        // SAFETY: writes a byte of the array.
        unsafe { std::ptr::write_volatile(byte, 1) };
    }
    std::hint::black_box(&stack);
}

/// Signals that the thread's own instructions may raise. If they were blocked, they would end the program, and an agent that records
/// doorbells may need them.
const FAULTS: [i32; 6] = [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS];

/// Blocks all signals, except the thread's own faults, in a thread that is started within `start`.
pub(crate) fn without_signals<T>(start: impl FnOnce() -> T) -> T {
    // SAFETY: sets of signals are plain bits; the calls read and write these two.
    unsafe {
        let (mut all, mut before) = (std::mem::zeroed(), std::mem::zeroed());
        libc::sigfillset(&raw mut all);
        for fault in FAULTS {
            libc::sigdelset(&raw mut all, fault);
        }
        let blocked = libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before) == 0;
        let started = start();
        if blocked {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut());
        }
        started
    }
}
