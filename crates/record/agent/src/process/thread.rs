//! The agent's data for each thread, in thread-local storage of the initial-exec model.
//!
//! Rust's own thread-locals in a shared library call `__tls_get_addr`, which may allocate, and hooks of locks also run
//! inside malloc. A preloaded library has its block in every thread from the start, so its address is the thread's base
//! and an offset.
//!
//! Invariant: all zero is the state of a new thread. No field has a destructor, so code that runs after the agent's still
//! finds it.

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
    /// Numbers of its rings, plus 1: the small ring, where its locks and its call are stored, and the large ring that it
    /// may have moved to.
    pub rings: [Cell<u32>; 2],
    /// Number of rings that it has used.
    pub ordinal: Cell<u32>,
    /// The table of the thread's held locks, in its ring's first page.
    pub locks: Cell<*const LockTable>,
    /// The row of its current CUDA call, in its ring's first page.
    pub call: Cell<*const CallRow>,
    /// The stack pointer at the begin of the outermost CUDA call; 0 outside of any.
    pub call_stack: Cell<usize>,
    /// Its outermost CUDA call that began in a pause: the stack pointer at its begin, 0 outside of any; the caller; the
    /// function's number and, above it, its flags.
    pub paused_call: [Cell<usize>; 3],
    /// Outermost CUDA calls that it had made when it gave its last ring back: [`tape::region::CallRow::seq`] counts on
    /// from there.
    pub calls: Cell<u32>,
    /// Tapped calls inside its current call.
    pub calls_inside: Cell<u16>,
    /// It is about to launch on a GPU for which the slots are mapped, and has not rung since.
    pub on_mapped: Cell<bool>,
    /// NVTX ranges that it is in.
    pub ranges: Depths,
    /// Its own range for which recording is on: the domain, and its depth in that domain with this range; 0 for none.
    pub capturing: Cell<(u64, u64)>,
    /// [`crate::process::region::pauses`] at its last operation of a lock that is recorded, plus 1; 0 while it has no ring.
    pub pauses: Cell<u32>,
    /// Set while it writes: a signal handler that interrupts it must not write.
    pub busy: Cell<bool>,
    pub tid: Cell<i32>,
    /// Events left until the next attempt to get a ring, after one failed.
    pub patience: Cell<u32>,
    /// Under a policy: the rwlocks that it holds, and how each was taken.
    pub held: Held,
    /// Which of the agent's signals it has blocked by calls, as it sees it, and which of them were sent to it since: bits
    /// of [`crate::signals::masks`].
    pub blocked: Cell<u8>,
    /// The kernel's mask with which it blocked them.
    pub under: Cell<u64>,
    pub pending: Cell<u8>,
    /// Those signals, as the kernel described them.
    pub sent: UnsafeCell<[[u64; 16]; 2]>,
    /// The vfork child on this thread's stack that has handed its mask to the kernel, 0 if none has.
    pub handed_over: Cell<i32>,
    /// Changes of mappings (`CHANGES` in [`crate::fault`]) that it had seen at its last fault.
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

/// The calling thread's data. The reference must not leave the thread.
#[inline(always)]
pub fn here() -> &'static Thread {
    let p: *const Thread;
    // SAFETY: the thread's base (the word at fs:0, x86-64 psABI) and the block's offset from it, which the loader has put
    // into the global offset table. The block is zeroed, which is a Thread, and lives as long as the thread.
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
    /// The calling thread's kernel number, kept after the first call.
    #[inline]
    pub fn id(&self) -> i32 {
        if self.tid.get() == 0 {
            self.tid.set(number());
        }
        self.tid.get()
    }

    /// [`Thread::id`] in a forked child, where the kept number is the parent's. Returns that number and the current one.
    pub fn renew_id(&self) -> (i32, i32) {
        let before = self.tid.replace(0);
        let mut now = number();
        if before == now {
            // A fork by a raw system call: libc did not see it, and the number in its block is also the parent's.
            now = sys::gettid();
        }
        self.tid.set(now);
        (if before == 0 { now } else { before }, now)
    }
}

/// Offset of `tid` in libc's block of a thread (`struct pthread`, at the thread's pointer); 0 before [`find_numbers`] and
/// if it is unknown.
static TID_AT: AtomicUsize = AtomicUsize::new(0);

/// glibc 2.12 to 2.41 on x86-64.
const USUAL_TID_AT: usize = 0x2d0;
/// No block of a thread is larger.
const BLOCK: usize = 1 << 14;

/// Finds where libc keeps a thread's number, so that the agent needs no system call for it, which one of the program's
/// filters may forbid. libc publishes the offset for debuggers. It is used only if it holds for this thread. Called by
/// the constructor.
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

/// The calling thread's kernel number. Makes a system call only if [`find_numbers`] has found nothing.
#[inline]
pub fn number() -> i32 {
    match TID_AT.load(Ordering::Relaxed) {
        0 => sys::gettid(),
        offset => number_at(pointer(), offset),
    }
}

/// As [`number`], for the thread with this pthread_t. `None` if unknown, or if that thread has ended.
pub fn number_of(pthread: u64) -> Option<i32> {
    let offset = TID_AT.load(Ordering::Relaxed);
    (offset != 0).then(|| number_at(pthread as usize, offset)).filter(|&tid| tid > 0)
}

#[inline(always)]
fn number_at(block: usize, offset: usize) -> i32 {
    // SAFETY: the block of an existing thread, and a word in it. The kernel writes it when a thread ends.
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
        // SAFETY: the child compares two numbers and exits.
        let child = unsafe { libc::fork() };
        if child == 0 {
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right())) };
        }
        let mut status = 0;
        // SAFETY: the test's child.
        assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
        assert_eq!(status, 0);
    }

    #[test]
    fn a_child_that_libc_knows_nothing_of_asks_the_kernel() {
        find_numbers();
        let me = here().id();
        // SAFETY: a fork without libc; the child compares numbers and exits.
        let child = unsafe { sys::syscall6(libc::SYS_fork, 0, 0, 0, 0, 0, 0) };
        if child == 0 {
            let (before, now) = here().renew_id();
            let right = before == me && now == sys::gettid() && now != me;
            // SAFETY: ends the child.
            unsafe { libc::_exit(i32::from(!right)) };
        }
        let mut status = 0;
        // SAFETY: the test's child.
        assert_eq!(unsafe { libc::waitpid(child as i32, &mut status, 0) }, child as i32);
        assert_eq!(status, 0);
    }
}
