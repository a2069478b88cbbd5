//! After `prepare`, our own routes submit and poll without an allocation and without a system call. Alone in its process:
//! it counts them.

use copy::{Machine, open};
use doorbell_softgpu::{Mode, SoftDriver};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::time::Duration;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call goes to `System` unchanged; the counter is a plain thread-local without a destructor.
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

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Whether a system call of this thread goes to SIGSYS instead of the kernel (syscall user dispatch).
static GATE: AtomicU8 = AtomicU8::new(0);
static CALLS: AtomicU32 = AtomicU32::new(0);

extern "C" fn called(_: i32) {
    // Let this one's return and everything after it pass.
    GATE.store(0, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// False where the kernel cannot tell.
fn watch_system_calls() -> bool {
    const DISPATCH: i32 = 59; // PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11
    // SAFETY: a handler that only touches atomics; the gate lives as long as the process, and no range is exempt.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = called as *const () as usize;
        libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut());
        libc::prctl(DISPATCH, 1u64, 0u64, 0u64, GATE.as_ptr()) == 0
    }
}

/// Allocations and system calls of this thread during `work`.
fn cost(watched: bool, work: impl FnOnce()) -> (u64, u32) {
    let (allocations, calls) = (ALLOCATIONS.get(), CALLS.load(Ordering::SeqCst));
    GATE.store(u8::from(watched), Ordering::SeqCst);
    work();
    GATE.store(0, Ordering::SeqCst);
    (ALLOCATIONS.get() - allocations, CALLS.load(Ordering::SeqCst) - calls)
}

#[test]
fn submit_and_poll_allocate_nothing_and_make_no_system_call() {
    // A GPU that polls: to trap a doorbell, the strict one makes system calls on this thread.
    let machine = Machine::of_driver(Arc::new(SoftDriver::new(Mode::Poll)), false).unwrap();
    let watched = watch_system_calls();
    if !watched {
        eprintln!("system calls are not watched: this kernel has no syscall user dispatch");
    }
    for (name, bytes) in [
        ("host->ce0->gpu0", 4096),
        ("gpu0->ce0[pipelined]->host", 4096),
        ("host->ce1[folded]->gpu0", 4096),
        ("host->inline->gpu0", 8),
        ("host->inline->gpu0", 40_000),
        ("host->inline[split]->gpu0", 40_000),
        ("host->inline[armed]->gpu0", 8),
        ("host->inline[armed,release=engine]->gpu0", 5000),
        ("gpu0->ce2[armed]->host", 4096),
        ("host->bar1->gpu0", 4097),
        ("host->bar1[flush]->gpu0", 8),
        ("gpu0->bar1->host", 4097),
    ] {
        let mut route = open(&machine, name, bytes).unwrap();
        let mut transfer = route.prepare(bytes).unwrap();
        // Round the ring and more, with the first submission in it; large ones go often enough round their slots.
        for round in 0..if bytes > 10_000 { 60 } else { 1200 } {
            let mut failed = false;
            let spent = cost(watched, || {
                failed = transfer.submit().is_err() || transfer.poll().is_err();
                std::hint::black_box(transfer.released_gpu_ns());
            });
            assert_eq!((failed, spent), (false, (0, 0)), "{name}, {bytes} bytes, round {round}");
            transfer.wait(Duration::from_secs(10)).unwrap();
        }
    }
    // Both counters count.
    let (allocations, calls) = cost(watched, || {
        drop(std::hint::black_box(Box::new(7)));
        // SAFETY: no arguments.
        unsafe { libc::getppid() };
    });
    assert_eq!((allocations, calls), (2, u32::from(watched)));
}
