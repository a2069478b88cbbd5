//! What a thread keeps for us, in thread-local storage of the initial-exec model.
//!
//! Rust's own thread-locals in a shared library call `__tls_get_addr`, which may allocate; a lock is taken inside
//! malloc, too. A library that is preloaded has its block in every thread from the start, so its address is the
//! thread's base and an offset.
//!
//! Invariant: all zero is the state of a new thread; nothing has a destructor, so what runs after ours still finds it.

use super::depths::Depths;
use super::{symbol, sys};
use core::arch::{asm, global_asm};
use core::cell::{Cell, UnsafeCell};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicUsize, Ordering};
use locks::held::Held;
use tape::region::{CallRow, LockTable};
use tape::ring::Writer;

#[repr(C)]
pub struct Thread {
    /// Writes to this thread's ring: points to `room`; null before its first event.
    pub writer: Cell<*mut Writer>,
    pub room: UnsafeCell<MaybeUninit<Writer>>,
    /// Numbers of its rings, plus 1: the small one, where its locks and its call are written down, and the large one that it
    /// may have moved to.
    pub rings: [Cell<u32>; 2],
    /// Rings that it has used.
    pub ordinal: Cell<u32>,
    /// Where the thread's held locks are written down: in its ring's first page.
    pub locks: Cell<*const LockTable>,
    /// Where the call of CUDA's that it is in is written down: in its ring's first page.
    pub call: Cell<*const CallRow>,
    /// Where the stack stood at the begin of the outermost call of CUDA's; 0 outside of any.
    pub call_stack: Cell<usize>,
    /// Outermost calls of CUDA's that it had made when it gave its last ring back: [`tape::region::CallRow::seq`] counts on from there.
    pub calls: Cell<u32>,
    /// Tapped calls in the call that it is in.
    pub calls_inside: Cell<u16>,
    /// Ranges of NVTX that it is in.
    pub ranges: Depths,
    /// The range of its own for which recording goes on: its domain, and in how many of that it is with this one; 0 for none.
    pub capturing: Cell<(u64, u64)>,
    /// [`crate::process::region::pauses`] at its last operation of a lock that is recorded, plus 1; 0 while it has no ring.
    pub pauses: Cell<u32>,
    /// While it writes: a signal handler that comes in then must not.
    pub busy: Cell<bool>,
    pub tid: Cell<i32>,
    /// Events until the next attempt to get a ring, after there was none.
    pub patience: Cell<u32>,
    /// Under a policy: the rwlocks that it holds, and by which way.
    pub held: Held,
    /// Which of our signals it has blocked by calls, as it believes, and which of them were sent to it meanwhile: bits of
    /// [`crate::signals::masks`].
    pub blocked: Cell<u8>,
    pub pending: Cell<u8>,
    /// Those signals, as the kernel described them.
    pub sent: UnsafeCell<[[u64; 16]; 2]>,
    /// The vfork child on this thread's stack that has handed its mask to the kernel, 0 if none has.
    pub handed_over: Cell<i32>,
    /// Changes of mappings ([`crate::fault::changes`]) that it knew of at its last fault.
    pub changes: Cell<u32>,
    /// Under `boost`: its seat, null before it needs one.
    pub seat: Cell<usize>,
}

const BYTES: usize = 1152;
const _: () = assert!(size_of::<Thread>() <= BYTES && align_of::<Thread>() <= 16);

global_asm!(
    ".pushsection .tbss.doorbell_thread, \"awT\", @nobits",
    ".p2align 4",
    ".globl doorbell_thread",
    ".hidden doorbell_thread",
    ".type doorbell_thread, @object",
    ".size doorbell_thread, {bytes}",
    "doorbell_thread:",
    ".zero {bytes}",
    ".popsection",
    bytes = const BYTES,
);

/// The calling thread's. The reference must not leave the thread.
#[inline(always)]
pub fn here() -> &'static Thread {
    let p: *const Thread;
    // SAFETY: the thread's base (the word at fs:0, x86-64 psABI) and the block's offset from it, which the loader has put
    // into the global offset table; the block is zeroed, which is a Thread, and lives as long as the thread.
    unsafe {
        asm!(
            "mov {p}, qword ptr [rip + doorbell_thread@GOTTPOFF]",
            "add {p}, qword ptr fs:[0]",
            p = out(reg) p,
            options(pure, nomem, nostack)
        );
        &*p
    }
}

impl Thread {
    /// The kernel's number of the calling thread, kept after the first time.
    #[inline]
    pub fn id(&self) -> i32 {
        if self.tid.get() == 0 {
            self.tid.set(number());
        }
        self.tid.get()
    }

    /// [`Thread::id`] in a forked child, where the kept number is the parent's. Returns that, and the number now.
    pub fn renew_id(&self) -> (i32, i32) {
        let before = self.tid.replace(0);
        let mut now = number();
        if before == now {
            // A fork by a raw system call: libc does not know of it, and the number in its block is the parent's, too.
            now = sys::gettid();
        }
        self.tid.set(now);
        (if before == 0 { now } else { before }, now)
    }
}

/// Offset of `tid` in libc's block of a thread (`struct pthread`, at the thread's pointer); 0 before [`find_numbers`] and
/// where it is not known.
static TID_AT: AtomicUsize = AtomicUsize::new(0);

/// glibc 2.12 to 2.41 on x86-64.
const USUAL_TID_AT: usize = 0x2d0;
/// No block of a thread is larger.
const BLOCK: usize = 1 << 14;

/// Finds where libc keeps a thread's number, so that nobody has to ask the kernel for it: a system call filter of the
/// program's may forbid that. libc says it to debuggers; what it says must hold for this thread. From the constructor.
pub fn find_numbers() {
    let me = sys::gettid();
    // SAFETY: three words that describe a member for debuggers: its bits, its elements, its offset (nptl_db).
    let told = match symbol::next_object(c"_thread_db_pthread_tid") {
        0 => None,
        // SAFETY: as above.
        at => unsafe { Some(*(at as *const [u32; 3])) },
    };
    let offset = match told {
        Some([32, 1, offset]) => offset as usize,
        _ => USUAL_TID_AT,
    };
    if offset < BLOCK && offset.is_multiple_of(4) && number_at(pointer(), offset) == me {
        TID_AT.store(offset, Ordering::Relaxed);
    }
}

/// The kernel's number of the calling thread. No system call, but where [`find_numbers`] has found nothing.
#[inline]
pub fn number() -> i32 {
    match TID_AT.load(Ordering::Relaxed) {
        0 => sys::gettid(),
        offset => number_at(pointer(), offset),
    }
}

/// As [`number`], of the thread with this pthread_t. `None` where it is not known, and when that thread has ended.
pub fn number_of(pthread: u64) -> Option<i32> {
    let offset = TID_AT.load(Ordering::Relaxed);
    (offset != 0).then(|| number_at(pthread as usize, offset)).filter(|&tid| tid > 0)
}

#[inline(always)]
fn number_at(block: usize, offset: usize) -> i32 {
    // SAFETY: the block of a thread that is there, and a word in it. The kernel writes it when a thread ends.
    unsafe { ((block + offset) as *const i32).read_volatile() }
}

/// The calling thread's pthread_t: the address of its block.
#[inline(always)]
pub fn pointer() -> usize {
    let p: usize;
    // SAFETY: the thread's base, at fs:0x10 (glibc's tcbhead_t.self, x86-64).
    unsafe { asm!("mov {p}, qword ptr fs:[0x10]", p = out(reg) p, options(pure, readonly, nostack)) };
    p
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_know_their_numbers_without_asking_the_kernel() {
        find_numbers();
        assert_ne!(TID_AT.load(Ordering::Relaxed), 0, "this libc says where");
        let right = || (number(), number_of(pointer() as u64)) == (sys::gettid(), Some(sys::gettid()));
        assert!(right());
        assert!(std::thread::spawn(right).join().unwrap());
        // SAFETY: the child compares two numbers and leaves.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right())) };
        }
        let mut status = 0;
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_that_libc_knows_nothing_of_asks_the_kernel() {
        find_numbers();
        let me = here().id();
        // SAFETY: a fork without libc; the child compares numbers and leaves.
        let child = unsafe { sys::syscall6(libc::SYS_fork, 0, 0, 0, 0, 0, 0) };
        if child == 0 {
            let (before, now) = here().renew_id();
            let right = before == me && now == sys::gettid() && now != me;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY: our child.
        assert_eq!(unsafe { libc::waitpid(child as i32, &mut status, 0) }, child as i32);
        assert_eq!(status, 0);
    }
}
