//! What a thread keeps for us, in thread-local storage of the initial-exec model.
//!
//! Rust's own thread-locals in a shared library call `__tls_get_addr`, which may allocate; a lock is taken inside
//! malloc, too. A library that is preloaded has its block in every thread from the start, so its address is the
//! thread's base and an offset.
//!
//! Invariant: all zero is the state of a new thread; nothing has a destructor, so what runs after ours still finds it.

use super::sys;
use core::arch::{asm, global_asm};
use core::cell::Cell;
use locks::held::Held;
use tape::region::{CallRow, LockTable};
use tape::ring::Writer;

#[repr(C)]
pub struct Thread {
    /// This thread's ring; null before its first event.
    pub writer: Cell<*mut Writer>,
    /// Where the thread's held locks are written down: in its ring's first page.
    pub locks: Cell<*const LockTable>,
    /// Code in which a caller of a lock was last seen, twice: start and length. Its mapping is on the tape.
    pub code: [Cell<(usize, usize)>; 2],
    /// Where the call of CUDA's that it is in is written down: in its ring's first page.
    pub call: Cell<*const CallRow>,
    /// Where the stack stood at the begin of the outermost call of CUDA's; 0 outside of any.
    pub call_stack: Cell<usize>,
    /// Code in which a caller of CUDA was last seen, as `code`.
    pub call_code: Cell<(usize, usize)>,
    /// Tapped calls in the call that it is in.
    pub calls_inside: Cell<u16>,
    /// While it writes: a signal handler that comes in then must not.
    pub busy: Cell<bool>,
    pub tid: Cell<i32>,
    /// Events until the next attempt to get a ring, after there was none.
    pub patience: Cell<u32>,
    /// Under a policy: the rwlocks that it holds, and by which way.
    pub held: Held,
    /// Under `boost`: its seat, null before it needs one.
    pub seat: Cell<usize>,
}

const BYTES: usize = 640;
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
    /// Its id, asked for once.
    #[inline]
    pub fn id(&self) -> i32 {
        if self.tid.get() == 0 {
            self.tid.set(sys::gettid());
        }
        self.tid.get()
    }
}
