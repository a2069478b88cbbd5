//! The futex system call with typed results. Private futexes only: process-shared locks do not use this module.
//!
//! A woken waiter always reads the word again: the kernel may wake it spuriously, and so may a thread that unlocked an
//! earlier word at the same address.

use core::sync::atomic::AtomicU32;

use crate::deadline::{Clock, Deadline};

pub const TID_MASK: u32 = 0x3fff_ffff;
/// Set by the kernel in the word of a PI futex: unlock through the kernel.
pub const WAITERS: u32 = 0x8000_0000;
/// Set by the kernel in the word of a PI futex: its last owner ended without unlocking.
pub const OWNER_DIED: u32 = 0x4000_0000;
pub const MATCH_ANY: u32 = u32::MAX;

/// Linux 5.14: as FUTEX_LOCK_PI, but its clock is CLOCK_MONOTONIC unless FUTEX_CLOCK_REALTIME is set.
const LOCK_PI2: i32 = 13;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    Woken,
    /// The word did not hold the expected value.
    Changed,
    Interrupted,
    TimedOut,
    InvalidDeadline,
    /// Any other error of the kernel; no wait took place.
    Failed(i32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PiError {
    /// The owner is about to end: try again.
    Again,
    TimedOut,
    /// The caller owns it, or waiting would close a cycle.
    Deadlock,
    /// The word names a thread that does not exist.
    NoOwner,
    /// From `unlock_pi`, the caller is not the owner. From `lock_pi`, the word names a kernel thread.
    NotPermitted,
    Interrupted,
    /// The kernel lacks the operation.
    NotSupported,
    InvalidDeadline,
    /// The word contradicts the kernel's state of it, or another error (its number).
    Failed(i32),
}

/// Returns the kernel's result, errors negated, and keeps `errno`.
fn call(word: *const AtomicU32, operation: i32, value: u32, deadline: Option<&libc::timespec>, bitset: u32) -> i32 {
    let deadline = deadline.map_or(core::ptr::null(), core::ptr::from_ref);
    // SAFETY: errno is the thread's own. The kernel checks `word` itself: an address that is no longer mapped is an error
    // code. `deadline` is null or a live timespec; uaddr2 is not used by these operations.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let operation = operation | libc::FUTEX_PRIVATE_FLAG;
        let null = core::ptr::null::<u32>();
        let result = libc::syscall(libc::SYS_futex, word, operation, value, deadline, null, bitset);
        let result = if result < 0 { -*errno } else { result as i32 };
        *errno = saved;
        result
    }
}

pub fn wait(word: &AtomicU32, expected: u32, deadline: Option<&Deadline>) -> Wait {
    wait_bitset(word, expected, deadline, MATCH_ANY)
}

pub fn wait_bitset(word: &AtomicU32, expected: u32, deadline: Option<&Deadline>, bitset: u32) -> Wait {
    let mut operation = libc::FUTEX_WAIT_BITSET;
    if let Some(deadline) = deadline {
        if !deadline.is_valid() {
            return Wait::InvalidDeadline;
        }
        // The kernel calls a time before 1970 invalid; to a lock it is a time that has passed.
        if deadline.at.tv_sec < 0 {
            return Wait::TimedOut;
        }
        if deadline.clock == Clock::Realtime {
            operation |= libc::FUTEX_CLOCK_REALTIME;
        }
    }
    match -call(word, operation, expected, deadline.map(|deadline| &deadline.at), bitset) {
        0 => Wait::Woken,
        libc::EAGAIN => Wait::Changed,
        libc::EINTR => Wait::Interrupted,
        libc::ETIMEDOUT => Wait::TimedOut,
        error => Wait::Failed(error),
    }
}

/// Wakes at most `count`; returns how many were woken. The word is not read and may be gone.
pub fn wake(word: *const AtomicU32, count: u32) -> u32 {
    wake_bitset(word, count, MATCH_ANY)
}

pub fn wake_bitset(word: *const AtomicU32, count: u32, bitset: u32) -> u32 {
    let count = count.min(i32::MAX as u32);
    call(word, libc::FUTEX_WAKE_BITSET, count, None, bitset).max(0) as u32
}

fn typed(result: i32) -> Result<(), PiError> {
    Err(match -result {
        error if error <= 0 => return Ok(()),
        libc::EAGAIN => PiError::Again,
        libc::ETIMEDOUT => PiError::TimedOut,
        libc::EDEADLK => PiError::Deadlock,
        libc::ESRCH => PiError::NoOwner,
        libc::EPERM => PiError::NotPermitted,
        libc::EINTR => PiError::Interrupted,
        libc::ENOSYS => PiError::NotSupported,
        error => PiError::Failed(error),
    })
}

fn check(deadline: Option<&Deadline>) -> Result<(), PiError> {
    match deadline {
        Some(deadline) if !deadline.is_valid() => Err(PiError::InvalidDeadline),
        Some(deadline) if deadline.at.tv_sec < 0 => Err(PiError::TimedOut),
        _ => Ok(()),
    }
}

/// FUTEX_LOCK_PI, which takes only CLOCK_REALTIME: a monotonic deadline is an `InvalidDeadline`.
pub fn lock_pi(word: &AtomicU32, deadline: Option<&Deadline>) -> Result<(), PiError> {
    check(deadline)?;
    if deadline.is_some_and(|deadline| deadline.clock != Clock::Realtime) {
        return Err(PiError::InvalidDeadline);
    }
    typed(call(word, libc::FUTEX_LOCK_PI, 0, deadline.map(|deadline| &deadline.at), 0))
}

/// FUTEX_LOCK_PI2: either clock; `NotSupported` before Linux 5.14.
pub fn lock_pi2(word: &AtomicU32, deadline: Option<&Deadline>) -> Result<(), PiError> {
    check(deadline)?;
    let realtime = deadline.is_some_and(|deadline| deadline.clock == Clock::Realtime);
    let operation = LOCK_PI2 | if realtime { libc::FUTEX_CLOCK_REALTIME } else { 0 };
    typed(call(word, operation, 0, deadline.map(|deadline| &deadline.at), 0))
}

pub fn unlock_pi(word: &AtomicU32) -> Result<(), PiError> {
    typed(call(word, libc::FUTEX_UNLOCK_PI, 0, None, 0))
}
