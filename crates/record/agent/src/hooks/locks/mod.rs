//! The functions of locks: mutexes, rwlocks, conditions, semaphores.
//!
//! Each passes its caller's address to a function that calls the real one ([`crate::process::real`]) and records the
//! result ([`crate::trace`]). A lock is tried first: if it is free, that costs one clock read; if not, the real function
//! waits. If nothing is recorded, the call is passed to its policy ([`crate::policy`]).
//!
//! Invariant: the program gets the real function's result and errno for this call. If nothing is recorded (no `--locks`,
//! a pause), a tap passes the call on. In a pause it stores a wait in the thread's table. A tap does not allocate, take a lock of the agent or make a system call. The
//! exceptions are a thread's first event, callers' code that was not seen before, and the wait for a full ring.

/// Defines the functions that a program finds. `$register` is the register of the argument after the last. The caller's
/// address is put there, because only code without a frame can read it from the stack.
macro_rules! tap {
    ($($name:ident, $register:literal => $to:path;)*) => {$(
        /// As the C function of that name, with the caller's address as an additional argument for the function that it
        /// jumps to.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub extern "C" fn $name() {
            core::arch::naked_asm!(concat!("mov ", $register, ", qword ptr [rsp]"), "jmp {to}", to = sym $to)
        }
    )*};
}
mod c11;
mod cond;
mod mutex;
mod rwlock;
mod sched;
mod semaphore;
mod threads;
