//! [`Registers`] of the thread that a signal interrupted, read from and written to the `ucontext_t` that the kernel
//! passes to a handler installed with `SA_SIGINFO`.

use crate::registers::Registers;
use core::ffi::c_void;

/// Index of the CPU's register n in `ucontext_t`, which numbers registers differently.
const GREG: [libc::c_int; 16] = [
    libc::REG_RAX,
    libc::REG_RCX,
    libc::REG_RDX,
    libc::REG_RBX,
    libc::REG_RSP,
    libc::REG_RBP,
    libc::REG_RSI,
    libc::REG_RDI,
    libc::REG_R8,
    libc::REG_R9,
    libc::REG_R10,
    libc::REG_R11,
    libc::REG_R12,
    libc::REG_R13,
    libc::REG_R14,
    libc::REG_R15,
];

/// Bit 1 of a page fault's error code: the access was a write (Intel SDM volume 3, 4.7).
const FAULT_WRITE: i64 = 2;

/// #PF (Intel SDM volume 3, 6.15).
const PAGE_FAULT: i64 = 14;

/// The interrupted thread; changes take effect when the handler returns.
pub struct Context<'a>(&'a mut libc::ucontext_t);

impl Context<'_> {
    /// # Safety
    /// `context` is null or the third argument of a running `SA_SIGINFO` handler, and no other code uses it at the same time.
    pub unsafe fn from_handler(context: *mut c_void) -> Option<Self> {
        // SAFETY: the caller guarantees that a pointer that is not null is a ucontext_t that only this code uses.
        unsafe { context.cast::<libc::ucontext_t>().as_mut() }.map(Context)
    }

    /// The address whose access faulted (CR2). `None` if it was no page fault: CR2 then holds the address of an earlier fault.
    pub fn fault_address(&self) -> Option<u64> {
        let page_fault = self.0.uc_mcontext.gregs[libc::REG_TRAPNO as usize] == PAGE_FAULT;
        page_fault.then_some(self.0.uc_mcontext.gregs[libc::REG_CR2 as usize] as u64)
    }

    /// Whether the page fault was a write.
    pub fn fault_was_write(&self) -> bool {
        self.0.uc_mcontext.gregs[libc::REG_ERR as usize] & FAULT_WRITE != 0
    }
}

impl Registers for Context<'_> {
    fn gpr(&self, index: u8) -> u64 {
        self.0.uc_mcontext.gregs[GREG[usize::from(index & 15)] as usize] as u64
    }

    fn set_gpr(&mut self, index: u8, value: u64) {
        self.0.uc_mcontext.gregs[GREG[usize::from(index & 15)] as usize] = value as i64;
    }

    fn rip(&self) -> u64 {
        self.0.uc_mcontext.gregs[libc::REG_RIP as usize] as u64
    }

    fn set_rip(&mut self, rip: u64) {
        self.0.uc_mcontext.gregs[libc::REG_RIP as usize] = rip as i64;
    }

    fn xmm(&self, index: u8) -> Option<u128> {
        // SAFETY: fpregs is null or points to the FXSAVE image that the kernel put into this signal frame.
        let state = unsafe { self.0.uc_mcontext.fpregs.as_ref() }?;
        let [a, b, c, d] = state._xmm[usize::from(index & 15)].element.map(u128::from);
        Some(a | b << 32 | c << 64 | d << 96)
    }

    fn set_xmm(&mut self, index: u8, value: u128) -> Option<()> {
        // SAFETY: as in `xmm`; `&mut self` is the only user of the frame.
        let state = unsafe { self.0.uc_mcontext.fpregs.as_mut() }?;
        state._xmm[usize::from(index & 15)].element =
            [value as u32, (value >> 32) as u32, (value >> 64) as u32, (value >> 96) as u32];
        Some(())
    }
}
