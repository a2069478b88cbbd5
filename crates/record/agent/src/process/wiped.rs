//! The one page that fork wipes in the child: what is active in this process, and the words of the agent's locks.
//!
//! After a fork the child finds every word here 0. Nothing is recorded, no policy is in force, and every lock is free,
//! also one that another thread of the parent held.
//!
//! Invariant: nothing begins before [`prepare`] has succeeded.

use super::sys;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

/// What may be active: bits.
pub mod live {
    /// Events are written.
    pub const RECORDING: u32 = 1;
    /// Lock operations are recorded.
    pub const LOCKS: u32 = 2;
    /// CUDA calls are recorded.
    pub const CALLS: u32 = 4;
    /// Locks follow policies.
    pub const POLICIES: u32 = 8;
    /// The process has found no region so far.
    pub const TURNED_AWAY: u32 = 16;
    /// CUDA calls pass through the guard.
    pub const GUARD: u32 = 32;
    /// The process cannot map a region, and does not try again.
    pub const UNREACHABLE: u32 = 64;
    /// CUDA calls are recorded with the Python frames that make them.
    pub const PYTHON: u32 = 128;
    /// NVTX ranges are recorded.
    pub const NVTX: u32 = 256;
    /// The GPU stores the end times of kernels.
    pub const GPU_TIMES: u32 = 512;
    /// For locks, only waits are recorded, with the holder that was waited for.
    pub const WAITS: u32 = 1024;
    /// CUDA calls are answered by [`crate::fix`].
    pub const FIXES: u32 = 2048;
}

/// The agent's own locks ([`super::own_lock`]): which lock has which word.
pub mod word {
    pub const ATTACH: usize = 0;
    pub const MODEL: usize = 1;
    pub const CHANNELS: usize = 2;
    pub const SITES: usize = 3;
    pub const CODE: usize = 4;
    pub const LIBRARIES: usize = 5;
    pub const SIGNALS: usize = 6;
    pub const SHELLS: usize = 7;
    pub const PYTHON: usize = 8;
    pub const PINS: usize = 9;
}

const WORDS: usize = 16;
const PAGE: usize = 4096;

#[repr(C, align(4096))]
struct Page {
    live: AtomicU32,
    /// The process that owns this memory; 0 in a forked child until it calls [`place`].
    pid: AtomicI32,
    locks: Locks,
}

/// Away from the words above, which every thread reads at each call: driver calls write to these.
#[repr(C, align(128))]
struct Locks([AtomicU32; WORDS]);

/// In the part of the data that no file backs: the kernel wipes nothing else.
static WIPED: Page =
    Page { live: AtomicU32::new(0), pid: AtomicI32::new(0), locks: Locks([const { AtomicU32::new(0) }; WORDS]) };
const _: () = assert!(size_of::<Page>() == PAGE && align_of::<Locks>() == 128);

/// What has begun here or, before a fork, in the parent.
static BEGUN: AtomicU32 = AtomicU32::new(0);

/// Makes the kernel wipe the page at each fork. False if it does not (before Linux 4.14).
pub fn prepare() -> bool {
    const WIPE_ON_FORK: usize = 18;
    let at = &raw const WIPED as usize;
    // SAFETY: only the agent uses the page.
    let wiped = unsafe { sys::syscall6(libc::SYS_madvise, at, PAGE, WIPE_ON_FORK, 0, 0, 0) == 0 };
    WIPED.pid.store(sys::getpid(), Ordering::Relaxed);
    wiped
}

/// Where the caller runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Home,
    /// In a forked child, at the first call.
    JustForked,
    /// In the memory of another process, which waits until this one calls exec or exits.
    VforkChild,
}

/// Where the caller runs. A system call.
pub fn place() -> Place {
    let me = sys::getpid();
    match WIPED.pid.load(Ordering::Relaxed) {
        0 if shares_its_parents_memory(me) => Place::VforkChild,
        0 => {
            WIPED.pid.store(me, Ordering::Relaxed);
            Place::JustForked
        }
        pid if pid == me => Place::Home,
        _ => Place::VforkChild,
    }
}

/// True in a vfork child, which must not change its parent's state. (As [`place`], but leaves a forked child's
/// `JustForked` to a later call.)
pub fn is_vfork_child() -> bool {
    let me = sys::getpid();
    match WIPED.pid.load(Ordering::Relaxed) {
        0 => shares_its_parents_memory(me),
        pid => pid != me,
    }
}

/// A vfork child of a forked child that has not called [`place`]. (False if the kernel gives no answer.)
#[cold]
fn shares_its_parents_memory(me: i32) -> bool {
    const KCMP_VM: usize = 1;
    // SAFETY: no arguments; numbers only.
    unsafe {
        let parent = sys::syscall6(libc::SYS_getppid, 0, 0, 0, 0, 0, 0);
        parent > 0 && sys::syscall6(libc::SYS_kcmp, me as usize, parent as usize, KCMP_VM, 0, 0, 0) == 0
    }
}

/// True while one of these ([`live`]) is active in this process.
#[inline(always)]
pub fn goes_on(what: u32) -> bool {
    WIPED.live.load(Ordering::Relaxed) & what != 0
}

/// True if one of these is active, or was in the parent before it forked.
#[inline(always)]
pub fn was_begun(what: u32) -> bool {
    // ORDERING: Acquire: a thread that sees the bit also sees what was prepared for it.
    BEGUN.load(Ordering::Acquire) & what != 0
}

/// Marks this as active.
pub fn begin(what: u32) {
    WIPED.live.fetch_or(what, Ordering::Release);
    // ORDERING: Release: the preparations, before any thread sees the bit.
    BEGUN.fetch_or(what, Ordering::Release);
}

/// Marks this as no longer active.
pub fn end(what: u32) {
    WIPED.live.fetch_and(!what, Ordering::Release);
}

/// A lock's word: 0, or the thread that holds it, in the kernel's format for a lock with priority inheritance.
#[inline(always)]
pub fn lock_word(w: usize) -> &'static AtomicU32 {
    &WIPED.locks.0[w]
}

#[cfg(test)]
mod tests {
    use super::*;

    extern "C" fn asks(_: *mut libc::c_void) -> i32 {
        i32::from(place() != Place::VforkChild)
    }

    #[test]
    fn a_forked_child_finds_the_page_wiped() {
        assert!(prepare(), "the page lies where the kernel can wipe it");
        WIPED.locks.0[word::CODE].store(77, Ordering::Relaxed);
        // SAFETY: the child looks at one word and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let wiped = lock_word(word::CODE).load(Ordering::Relaxed) == 0;
            // A vfork child of a child that has never called `place`.
            let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD;
            let mut stack = [0u128; 4096];
            // SAFETY: the grandchild runs on its own stack until it exits, and the test waits for it.
            let in_grandchild = unsafe {
                let top = stack.as_mut_ptr().add(stack.len());
                let grandchild = libc::clone(asks, top.cast(), flags, core::ptr::null_mut());
                let mut status = 1;
                libc::waitpid(grandchild, &mut status, 0);
                status == 0
            };
            let places = [place(), place()] == [Place::JustForked, Place::Home];
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!(wiped && places && in_grandchild))) };
        }
        let mut status = 0;
        // SAFETY: the test's child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(lock_word(word::CODE).swap(0, Ordering::Relaxed), 77);
        assert_eq!(status, 0);
    }
}
