//! What goes through a BAR1 map asks nobody: no allocation, no system call. (A lock that is waited for is a system call.)

use doorbell_softgpu::{Mode, SoftDriver};
use gpu::{AddressSpace, Bar1Map, Device};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;
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
fn writes_and_reads_allocate_nothing_and_make_no_system_call() {
    let device = Device::open(Arc::new(SoftDriver::new(Mode::Strict)), 0).unwrap();
    let space = AddressSpace::new(&device).unwrap();
    let memory = space.alloc_video(1 << 20).unwrap();
    let map = Bar1Map::of(&memory, 0x30, 0x80000).unwrap();
    let data: Vec<u8> = (0..0x40000u32).map(|i| (i.wrapping_mul(0x9e37_79b9) >> 13) as u8).collect();
    let mut back = vec![0; data.len()];
    let work = |back: &mut [u8]| {
        let mut good = true;
        for (length, offset) in [(1, 0), (4, 0x14), (63, 5), (64, 0x10), (4096, 3), (0x40000, 0x30001)] {
            good &= map.write(offset, &data[..length]).is_ok();
            good &= map.read(offset, &mut back[..length]).is_ok() && back[..length] == data[..length];
        }
        good &= map.store32(0x10, 7).is_ok() && map.load32(0x10).is_ok_and(|value| value == 7);
        good &= map.store64(0x10, 8).is_ok() && map.load64(0x10).is_ok_and(|value| value == 8);
        // Errors ask nobody either.
        good && map.write(0x80000, &data[..1]).is_err() && map.store32(1, 0).is_err()
    };
    assert!(work(&mut back), "what is written comes back");
    let before = ALLOCATIONS.get();
    let armed = arm();
    GATE.store(armed.into(), Ordering::SeqCst);
    let good = (0..20).all(|_| work(&mut back));
    GATE.store(0, Ordering::SeqCst);
    assert_eq!((CALLS.load(Ordering::SeqCst), ALLOCATIONS.get() - before), (0, 0));
    assert!(good);
    drop(vec![0u8; 64]);
    assert!(ALLOCATIONS.get() > before, "the counter counts");
    if !armed {
        trial::skip!("system calls not looked at: this kernel has no syscall user dispatch");
    }
    GATE.store(1, Ordering::SeqCst);
    // SAFETY: no arguments.
    unsafe { libc::getppid() };
    GATE.store(0, Ordering::SeqCst);
    assert_eq!(CALLS.load(Ordering::SeqCst), 1, "the gate works");
}
