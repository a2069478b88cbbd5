//! Faults in the program that may belong to the agent: the cause of each, and the function that answers it.
//!
//! Modules that answer faults register themselves. This module does not depend on what they guard.

use crate::process::thread;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use trap::Registers;
use trap::ucontext::Context;

/// What the CPU stopped for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An access that the mapping at `address` does not allow.
    Access { address: u64 },
    /// A breakpoint instruction at `at`.
    Breakpoint { at: u64 },
    /// An access to a non-canonical address, or another protection fault without an address.
    Protection,
}

/// Returns true if the fault belonged to this module and the program continues.
pub type Answer = fn(Fault, &mut Context) -> bool;

const ANSWERS: usize = 4;
static REGISTERED: [AtomicPtr<()>; ANSWERS] = [const { AtomicPtr::new(core::ptr::null_mut()) }; ANSWERS];

/// Number of mapping changes by the functions that answer: an access that faulted may be allowed by now.
static CHANGES: AtomicU32 = AtomicU32::new(0);

/// Faults are passed to `answer` from now on. May be called again with the same function. False if the table is full.
pub fn register(answer: Answer) -> bool {
    let new = answer as *mut ();
    REGISTERED.iter().any(|at| {
        let was = at.compare_exchange(core::ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
        was.is_ok() || was == Err(new)
    })
}

/// An access that was forbidden is now allowed.
pub fn allowed() {
    CHANGES.fetch_add(1, Ordering::AcqRel);
}

/// Calls the registered functions. `forced`: the kernel, not a `kill`, made the signal. True if the program continues.
pub fn answered(signal: i32, forced: bool, c: &mut Context) -> bool {
    let fault = match signal {
        libc::SIGTRAP => Fault::Breakpoint { at: c.rip().wrapping_sub(1) },
        libc::SIGSEGV if forced => match c.fault_address() {
            Some(address) => Fault::Access { address },
            None => Fault::Protection,
        },
        _ => return false,
    };
    let ours = REGISTERED.iter().any(|at| {
        let at = at.load(Ordering::Acquire);
        // SAFETY: only functions of this type are registered.
        !at.is_null() && unsafe { core::mem::transmute::<*mut (), Answer>(at) }(fault, c)
    });
    ours || (matches!(fault, Fault::Access { .. }) && may_be_over())
}

/// True if a mapping has changed since this thread's last unanswered fault. The access is then made again, and a second
/// fault counts.
fn may_be_over() -> bool {
    let (known, now) = (&thread::here().changes, CHANGES.load(Ordering::Acquire));
    known.replace(now) != now
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_access_that_may_be_allowed_by_now_is_made_again_once() {
        may_be_over();
        assert!(!may_be_over());
        allowed();
        allowed();
        assert!(may_be_over());
        assert!(!may_be_over());
    }
}
