//! Calls with which the program restricts itself: `prctl` and, for `seccomp`, `syscall`.
//!
//! The agent then observes the restriction, too ([`crate::process::restrictions`]). A thread that has no ring yet gets
//! one before the filter is installed. Calls that are made without libc are not seen.

use crate::exec;
use crate::process::restrictions::{self, need};
use crate::process::wiped::{self, live};
use crate::process::{identity, real, region, thread};
use crate::record;
use core::arch::naked_asm;
use core::ffi::{c_int, c_long, c_ulong};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::region::trouble;

const SET_MODE_STRICT: c_ulong = 0;
const SET_MODE_FILTER: c_ulong = 1;

static SYSCALL: AtomicUsize = AtomicUsize::new(0);

/// As the C function of that name: some of its calls are passed to [`watched`], all others jump on.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub extern "C" fn syscall() {
    naked_asm!(
        ".cfi_startproc",
        "cmp rdi, {seccomp}",
        "je 2f",
        "cmp rdi, {prctl}",
        "je 2f",
        "cmp rdi, {execve}",
        "je 2f",
        "cmp rdi, {execveat}",
        "je 2f",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "je 3f",
        "jmp rax",
        "2:",
        "jmp {watched}",
        "3:",
        "push rdi",
        "push rsi",
        "push rdx",
        "push rcx",
        "push r8",
        "push r9",
        "sub rsp, 8",
        ".cfi_adjust_cfa_offset 56",
        "call {resolve}",
        "add rsp, 8",
        "pop r9",
        "pop r8",
        "pop rcx",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        ".cfi_adjust_cfa_offset -56",
        "jmp rax",
        ".cfi_endproc",
        seccomp = const libc::SYS_seccomp,
        prctl = const libc::SYS_prctl,
        execve = const libc::SYS_execve,
        execveat = const libc::SYS_execveat,
        real = sym SYSCALL,
        watched = sym watched,
        resolve = sym resolve,
    )
}

extern "C" fn resolve() -> usize {
    let at = real::address_of_syscall();
    SYSCALL.store(at, Ordering::Relaxed);
    at
}

unsafe extern "C" fn watched(n: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_long {
    // SAFETY: the caller's.
    let call = || unsafe { real::syscall(n, a, b, c, d, e) };
    // SAFETY: the filter or the program that the caller passes to the kernel.
    unsafe {
        match (n, a) {
            (libc::SYS_execve, _) => exec::execve(a as _, b as _, c as _).into(),
            (libc::SYS_execveat, _) => {
                let with = |env| real::syscall(n, a, b, c, env as c_ulong, e) as c_int;
                exec::at(a as c_int, b as _, d as _, e as c_int, with).into()
            }
            (libc::SYS_prctl, _) => restricted(a, b, c, call),
            (_, SET_MODE_STRICT) => confined(None, call),
            (_, SET_MODE_FILTER) => confined(Some(c as *const libc::sock_fprog), call),
            _ => call(),
        }
    }
}

/// # Safety
/// As the C function.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        let call = || real::prctl(option, a, b, c, d).into();
        restricted(option as c_ulong, a, b, call) as c_int
    }
}

/// # Safety
/// `b` is the caller's argument to the kernel.
#[inline(always)]
unsafe fn restricted(option: c_ulong, a: c_ulong, b: c_ulong, call: impl FnOnce() -> c_long) -> c_long {
    match option as c_int {
        libc::PR_SET_NAME => {
            identity::renamed();
            call()
        }
        // SAFETY: the caller's.
        libc::PR_SET_SECCOMP => match a as u32 {
            // SAFETY: the caller's.
            libc::SECCOMP_MODE_STRICT => unsafe { confined(None, call) },
            // SAFETY: the caller's.
            libc::SECCOMP_MODE_FILTER => unsafe { confined(Some(b as *const libc::sock_fprog), call) },
            _ => call(),
        },
        libc::PR_SET_TSC if a as c_int == libc::PR_TSC_SIGSEGV => without_tsc(call),
        _ => call(),
    }
}

/// Forbids the time stamp counter with `call`. Without times nothing can be recorded: locks and calls are left alone from
/// here on.
#[cold]
#[inline(never)]
fn without_tsc(call: impl FnOnce() -> c_long) -> c_long {
    let r = call();
    if r >= 0 {
        if wiped::goes_on(live::LOCKS | live::CALLS) {
            region::trouble(trouble::NO_TSC);
            wiped::end(live::LOCKS | live::CALLS);
        }
        restrictions::forbid_tsc();
    }
    r
}

/// Installs a filter with `call`; without a filter, strict mode, which forbids the time stamp counter, too.
///
/// # Safety
/// The filter is null or readable.
#[cold]
#[inline(never)]
unsafe fn confined(filter: Option<*const libc::sock_fprog>, call: impl FnOnce() -> c_long) -> c_long {
    // SAFETY: the caller's.
    let forbidden = filter.map_or(need::EVERYTHING, |f| unsafe { forbidden_by(f) });
    if forbidden & (need::MEMORY | need::FILES) != 0 {
        // (If events are recorded in this process at all.)
        let _ = region::attach();
    }
    let recorded = wiped::goes_on(live::LOCKS | live::CALLS);
    if recorded && forbidden != 0 {
        // The last chance for this thread.
        let t = thread::here();
        if t.writer.get().is_null() {
            record::ready(t);
        }
    }
    // Before the call: a filter may apply to all threads.
    let before = restrictions::forbid(forbidden);
    let r = if filter.is_some() { call() } else { without_tsc(call) };
    if r < 0 {
        restrictions::put_back(before);
    } else if recorded && forbidden & (need::MEMORY | need::FILES) != 0 {
        region::trouble(trouble::CONFINED);
    }
    r
}

/// # Safety
/// As [`confined`].
unsafe fn forbidden_by(filter: *const libc::sock_fprog) -> u32 {
    if (filter as usize) < 4096 || !restrictions::may(need::ALL) {
        return need::EVERYTHING;
    }
    // SAFETY: the caller's: a filter in the kernel's format.
    unsafe {
        let f = filter.read_unaligned();
        if (f.filter as usize) < 4096 || !f.filter.is_aligned() {
            return need::EVERYTHING;
        }
        restrictions::forbidden_by(core::slice::from_raw_parts(f.filter, usize::from(f.len)))
    }
}
