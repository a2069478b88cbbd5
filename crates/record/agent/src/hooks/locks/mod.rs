//! The names of locks: mutexes, rwlocks, conditions, semaphores.
//!
//! Each hands its caller's address to a function that calls the real one ([`crate::process::real`]) and writes down what came
//! of it ([`crate::trace`]). A lock is tried first: what was free costs one clock read, what was not is waited for in the real
//! function. Where nothing is recorded the call goes to its policy ([`crate::policy`]).
//!
//! Invariant: the program gets the result that the real function gives for this call, and errno as that leaves it; where
//! nothing is recorded (no `--locks`, a forked child) a tap passes on. Nothing here allocates, takes a lock of its own
//! or makes a system call, but for a thread's first event, new code of callers, and a full ring that is waited for.

/// Makes the names that a program finds. `$register` is that of the argument after the last: the caller's address goes
/// there, which only code without a frame of its own can read off the stack.
macro_rules! tap {
    ($($name:ident, $register:literal => $to:path;)*) => {$(
        /// As the C function of that name, with the caller's address as one more argument for what it jumps to.
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
