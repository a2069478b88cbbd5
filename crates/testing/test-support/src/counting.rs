//! Counts the allocations of a thread, and its system calls if the kernel can report them. A stand-in's own functions do not count ([`stand_in`]).
//!
//! A test's program counts allocations if it uses this allocator: `#[global_allocator] static ALLOCATOR: Counting = Counting;`

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

/// Allocates as the system does, and counts.
pub struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
    /// The state of the gate, and the allocations, when a stand-in was entered.
    static BEFORE: Cell<(u8, u64)> = const { Cell::new((0, 0)) };
}

// SAFETY: every call is passed to `System` unchanged; the counter is a plain thread-local without a destructor.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // Freeing is as unwelcome.
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's obligations are those of `System`.
        unsafe { System.dealloc(ptr, layout) }
    }
}

/// The allocations of this thread so far, including freed ones.
pub fn allocations() -> u64 {
    ALLOCATIONS.get()
}

/// Whether a system call of this thread is passed to SIGSYS instead of the kernel (syscall user dispatch).
static GATE: AtomicU8 = AtomicU8::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn called(_: i32) {
    // Lets this handler's return and everything after it pass.
    GATE.store(0, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// False if the kernel cannot report them.
pub fn watch_system_calls() -> bool {
    // SAFETY: a handler that only touches atomics.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = called as *const () as usize;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
    }
    dispatch(true) && dispatch(false)
}

/// Whether the gate is this thread's: only while it counts, or another's would send its calls, too.
fn dispatch(on: bool) -> bool {
    const DISPATCH: i32 = 59; // PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11
    let gate = if on { GATE.as_ptr() } else { std::ptr::null_mut() };
    // SAFETY: the gate lives as long as the process, and no range is exempt.
    unsafe { libc::prctl(DISPATCH, u64::from(on), 0u64, 0u64, gate) == 0 }
}

/// Allocations and system calls of this thread during `work`.
pub fn cost(watched: bool, work: impl FnOnce()) -> (u64, u32) {
    let (allocations, calls) = (ALLOCATIONS.get(), CALLS.load(Ordering::SeqCst));
    let watched = watched && dispatch(true);
    GATE.store(u8::from(watched), Ordering::SeqCst);
    work();
    GATE.store(0, Ordering::SeqCst);
    if watched {
        dispatch(false);
    }
    (ALLOCATIONS.get() - allocations, CALLS.load(Ordering::SeqCst) - calls)
}

/// Called when a stand-in is entered and left: the time between is not counted.
pub fn stand_in(entered: bool) {
    if entered {
        BEFORE.set((GATE.swap(0, Ordering::SeqCst), ALLOCATIONS.get()));
    } else {
        let (gate, allocations) = BEFORE.get();
        ALLOCATIONS.set(allocations);
        GATE.store(gate, Ordering::SeqCst);
    }
}
