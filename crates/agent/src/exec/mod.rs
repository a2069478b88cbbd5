//! Follows what the program starts: the names by which programs exec, spawn and run shells.
//!
//! Each passes the call on with an environment that loads us again ([`environment`]), where the started program can load
//! us ([`target`]). The started process takes the variables out again before its program sees them.
//!
//! Not followed: raw execve system calls, and programs started by code that is not dynamically linked.
//!
//! Invariant: the call's results, errno, and the meaning of vfork stay as they are: nothing here writes to memory other
//! than the stack, or changes a table of the agent's.

pub mod environment;
mod target;

use crate::process::real::{self, Strings};
use crate::process::restrictions::{may, need};
use crate::process::{session, sys};
use crate::signals::inherit::{over_exec, over_spawn};
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::Ordering;
use target::Target;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

fn env() -> Strings {
    // SAFETY: the program's own variable, read once.
    unsafe { (&raw const environ).read() as Strings }
}

/// The value of PATH, or what execvp takes where there is none.
fn search_path() -> &'static [u8] {
    let mut at = env();
    // SAFETY: the environment: a null-terminated array of strings.
    unsafe {
        while !at.is_null() && !(*at).is_null() {
            let entry: &'static [u8] = CStr::from_ptr(*at).to_bytes();
            if let Some(path) = entry.strip_prefix(b"PATH=") {
                return path;
            }
            at = at.add(1);
        }
    }
    b"/bin:/usr/bin"
}

/// Decides about a program that is about to be started and calls `start` with its environment.
///
/// # Safety
/// `env` is null or a null-terminated array of strings, `path` null or a string.
unsafe fn start(
    examine: impl FnOnce() -> Target,
    (path, child): (*const c_char, bool),
    env: Strings,
    start: impl FnOnce(Strings) -> c_int,
) -> c_int {
    // (A program that may not open files starts none that is linked dynamically.)
    if !environment::is_kept() || !may(need::FILES) {
        return start(env);
    }
    let mut target = examine();
    if target.inject() && !environment::is_reachable() {
        target = Target::Unreachable;
    }
    // SAFETY: the caller's.
    unsafe { note(target, path, child) };
    if !target.inject() {
        return start(env);
    }
    // Counted before, for an exec that succeeds does not come back. Whether the program then loads us is not known here: it may
    // lose the right to at its exec.
    let expected = session::get().filter(|_| target.loads()).map(|s| &s.expected);
    if let Some(n) = expected {
        n.fetch_add(1, Ordering::Relaxed);
    }
    // SAFETY: the caller's.
    let done = unsafe { environment::with(env, start) };
    if let Some(n) = expected.filter(|_| !child || done != 0) {
        n.fetch_sub(1, Ordering::Relaxed);
    }
    done
}

/// Says that a started program is not followed.
///
/// # Safety
/// `path` is null or a string.
/// `child`: a child of this process will be it, not this process.
unsafe fn note(target: Target, path: *const c_char, child: bool) {
    let (Some(why), Some(s)) = (target.unwatched(), session::get()) else { return };
    // SAFETY: the caller's.
    let path = if path.is_null() { &[][..] } else { unsafe { CStr::from_ptr(path) }.to_bytes() };
    let pid = if child { 0 } else { sys::getpid() };
    s.note_unwatched(why, pid, session::number(), sys::tsc(), path);
    session::call(s);
}

/// # Safety
/// As execve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(path: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        start(
            || target::of_path(libc::AT_FDCWD, path),
            (path, false),
            envp,
            |e| over_exec(|| real::execve(path, argv, e)),
        )
    }
}

/// # Safety
/// As execv.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execve(path, argv, env()) }
}

/// # Safety
/// As execvpe.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(file: *const c_char, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        start(
            || target::in_path(file, search_path()),
            (file, false),
            envp,
            |e| over_exec(|| real::execvpe(file, argv, e)),
        )
    }
}

/// # Safety
/// As execvp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execvpe(file, argv, env()) }
}

/// # Safety
/// As fexecve.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fexecve(fd: c_int, argv: Strings, envp: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        start(
            || target::of_descriptor(fd),
            (core::ptr::null(), false),
            envp,
            |e| over_exec(|| real::fexecve(fd, argv, e)),
        )
    }
}

/// # Safety
/// As execveat.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execveat(
    dir: c_int,
    path: *const c_char,
    argv: Strings,
    envp: Strings,
    flags: c_int,
) -> c_int {
    // SAFETY: the caller's.
    let examine = || unsafe {
        let empty = !path.is_null() && *path == 0;
        if empty && flags & libc::AT_EMPTY_PATH != 0 { target::of_descriptor(dir) } else { target::of_path(dir, path) }
    };
    // SAFETY: the caller's.
    unsafe { start(examine, (path, false), envp, |e| over_exec(|| real::execveat(dir, path, argv, e, flags))) }
}

/// Gives a function of the execl family its arguments as an array. They come in registers, then on the stack: the
/// registers are put right below what is on the stack, where the return address was.
macro_rules! variadic {
    ($($name:ident -> $to:ident;)*) => {$(
        /// # Safety
        /// As the C function of that name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name() -> c_int {
            naked_asm!(
                ".cfi_startproc",
                "pop rax",
                ".cfi_def_cfa_offset 0",
                ".cfi_register rip, rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                "push rax",
                ".cfi_def_cfa_offset 48",
                ".cfi_offset rip, -48",
                // Aligned to 16 as the ABI asks: the return address and five registers moved it by 48 - 8 bytes.
                "call {to}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                ".cfi_def_cfa_offset 8",
                ".cfi_offset rip, -8",
                "ret",
                ".cfi_endproc",
                to = sym $to,
            )
        }
    )*};
}

variadic! {
    execl -> with_own_environment;
    execle -> with_environment_behind;
    execlp -> searched;
}

/// execl's arguments as an array.
///
/// # Safety
/// As execl.
unsafe extern "C" fn with_own_environment(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execve(path, argv, env()) }
}

/// execle's: the environment follows the null pointer that ends the array.
///
/// # Safety
/// As execle.
unsafe extern "C" fn with_environment_behind(path: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's: a null pointer ends the arguments, and the environment follows.
    unsafe {
        let mut at = argv;
        while !(*at).is_null() {
            at = at.add(1);
        }
        execve(path, argv, *at.add(1) as Strings)
    }
}

/// execlp's.
///
/// # Safety
/// As execlp.
unsafe extern "C" fn searched(file: *const c_char, argv: Strings) -> c_int {
    // SAFETY: the caller's.
    unsafe { execvpe(file, argv, env()) }
}

/// # Safety
/// As posix_spawn.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        start(
            || target::of_path(libc::AT_FDCWD, path),
            (path, true),
            envp,
            |e| over_spawn(|| real::posix_spawn(pid, path, actions, attributes, argv, e)),
        )
    }
}

/// # Safety
/// As posix_spawnp.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: Strings,
    envp: Strings,
) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        start(
            || target::in_path(file, search_path()),
            (file, true),
            envp,
            |e| over_spawn(|| real::posix_spawnp(pid, file, actions, attributes, argv, e)),
        )
    }
}

/// Runs `call` with a command that carries our variables, or with the command itself.
///
/// # Safety
/// `command` is null or a string.
unsafe fn shell<R>(command: *const c_char, call: impl Fn(*const c_char) -> R) -> R {
    if command.is_null() || !environment::is_kept() || !may(need::FILES | need::MEMORY) || !environment::is_reachable()
    {
        return call(command);
    }
    // SAFETY: the caller's.
    unsafe { environment::with_command(command, env(), &call) }.unwrap_or_else(|()| {
        // SAFETY: the caller's.
        unsafe { note(Target::Command, c"/bin/sh".as_ptr(), true) };
        call(command)
    })
}

/// # Safety
/// As system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe { shell(command, |c| real::system(c)) }
}

/// # Safety
/// As popen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { shell(command, |c| over_spawn(|| real::popen(c, mode))) }
}
