//! A command is prepared, started and reaped without an allocation and without a system call. (A lock that is waited for is a system call.)

#[path = "support/soft.rs"]
mod soft;

use nvme::{Controller, Depth, Done, Options, Piece};
use pcie::model::{ModelBus, plug};
use soft::Soft;
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};

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
    // This one's return and everything after it pass.
    GATE.store(0, Ordering::SeqCst);
    CALLS.fetch_add(1, Ordering::SeqCst);
}

/// Arms the gate for this thread; `false` where the kernel has none.
fn arm() -> bool {
    const DISPATCH: i32 = 59; // PR_SET_SYSCALL_USER_DISPATCH, Linux 5.11
    // SAFETY: an action whose handler only stores to atomics; the gate lives as long as the process.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = called as *const () as usize;
        assert_eq!(libc::sigaction(libc::SIGSYS, &raw const action, std::ptr::null_mut()), 0);
        libc::prctl(DISPATCH, 1u64, 0u64, 0u64, GATE.as_ptr()) == 0
    }
}

#[test]
fn commands_allocate_nothing_and_make_no_system_call() {
    let bus = ModelBus::default();
    let (function, model) = plug(Soft { hold: true, ..Soft::default() }, &bus);
    let controller = Controller::open(function, Options::default()).unwrap();
    let namespace = controller.namespace(1).unwrap();
    let mut queue = controller.queue(&Depth { slots: 8, ..Depth::default() }).unwrap();
    let memory = controller.allocate(256 << 10).unwrap();
    let io = namespace.read(8, 64).unwrap();
    let armed = arm();
    let mut allocated = 0;
    for turn in 0..40u64 {
        let before = ALLOCATIONS.get();
        GATE.store(armed.into(), Ordering::SeqCst);
        let mut good = true;
        for slot in 0..8 {
            // Another place each time: a PRP list is written.
            let offset = u64::from(slot) * (32 << 10) + turn % 7 * 512;
            let bytes = if slot < 7 { 32 << 10 } else { 16 << 10 };
            good &= queue.prepare(slot, &[Piece::new(&memory, offset, bytes)]).is_ok();
        }
        good &= queue.submit(0, &io).is_ok() && queue.submit(1, &io).is_ok();
        good &= queue.submit_batch(&[(2, io), (3, io), (4, io)]).is_ok();
        // Errors ask nobody either.
        good &= queue.submit(7, &io).is_err() && queue.submit(0, &io).is_err();
        good &= queue.reap(&mut [Done::NONE; 8]).is_ok_and(|count| count == 0);
        GATE.store(0, Ordering::SeqCst);
        allocated += ALLOCATIONS.get() - before;
        assert!(good);
        model.with(|soft| soft.work(&bus, 1, usize::MAX));
        let before = ALLOCATIONS.get();
        GATE.store(armed.into(), Ordering::SeqCst);
        let mut done = [Done::NONE; 8];
        let count = queue.reap(&mut done);
        GATE.store(0, Ordering::SeqCst);
        allocated += ALLOCATIONS.get() - before;
        assert_eq!(count.unwrap(), 5);
        assert!(done[..5].iter().all(Done::is_success));
    }
    assert_eq!((allocated, CALLS.load(Ordering::SeqCst)), (0, 0));
    if !armed {
        trial::skip_part!("this kernel has no system call user dispatch: system calls were not looked for");
    }
}
