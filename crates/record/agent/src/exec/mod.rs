//! Follows the programs that this one starts: the functions that exec, spawn and run shells.
//!
//! Each passes the call on with an environment that loads the agent again ([`environment`]), if the started program can
//! load it ([`target`]). The started process removes the variables before its program sees them.
//!
//! Not followed: execve by a system call that does not pass through libc, and programs started by a program that is not
//! dynamically linked.
//!
//! Invariant: a program gets the agent's variables only if it can load the agent, so it never sees them. The call's
//! results, errno, and the meaning of vfork stay as they are: this code writes only to the stack, and changes none of the
//! agent's tables.

pub mod environment;
pub mod glibc;
mod rights;
mod shell;
mod spawn;
mod target;

use crate::process::real::{self, Strings};
use crate::process::restrictions::{may, need};
use crate::process::{children, identity, session, sys};
use crate::signals::inherit::over_exec;
use core::arch::naked_asm;
use core::ffi::{CStr, c_char, c_int};
use environment::Room;
use tape::starts::Starts;
use target::Target;

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

fn env() -> Strings {
    // SAFETY: the program's own variable, read once.
    unsafe { (&raw const environ).read() as Strings }
}

/// The value of PATH, or execvp's default if there is none.
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

/// Decides about a program that is about to be started and calls `start` with its environment. All checks are made here,
/// by the process that becomes the program or starts it: what the file is, whether the library can be opened now and with
/// the rights after the exec, whether there is room for it. The last check is whether the recorder is about to end.
///
/// # Safety
/// `path` is null or a string, unless `examine` says that there is no such program.
unsafe fn start(
    examine: impl FnOnce() -> Target,
    (path, child): (*const c_char, bool),
    env: Strings,
    start: impl Fn(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    unsafe { start_in(Room::Stack, examine, (path, child), env, start) }
}

/// As [`start`]; `room` is where the environment is built.
///
/// # Safety
/// As [`start`].
unsafe fn start_in(
    room: Room,
    examine: impl FnOnce() -> Target,
    (path, child): (*const c_char, bool),
    env: Strings,
    start: impl Fn(Strings) -> c_int,
) -> c_int {
    // SAFETY: only readable memory is read. (A call that the kernel will refuse gets the program's own arguments.)
    let Some(starts) = follows().filter(|_| unsafe { environment::is_whole(env) }) else { return start(env) };
    let start = |env| if child { start(env) } else { identity::in_exec(|| start(env)) };
    children::count();
    // SAFETY: it is whole.
    let another = unsafe { environment::is_anothers(env) };
    let target = if another { Target::Another } else { reachable(examine(), starts) };
    // SAFETY: the caller's.
    unsafe { note(target, path, child) };
    // (Counted before, because a successful exec does not return.)
    if !target.inject() || !starts.expect() {
        return start(env);
    }
    // SAFETY: it is whole.
    let done = unsafe { environment::with(room, env, start) };
    if child && done == 0 {
        return done;
    }
    starts.take_back();
    if (if child { done } else { sys::Errno::get() }) != libc::E2BIG {
        return done;
    }
    // (A successful exec does not return, so it is noted before. A child is noted once it exists.)
    // SAFETY: the caller's.
    let noted = || unsafe { note(Target::Environment, path, child) };
    if !child {
        noted();
    }
    let done = start(env);
    if child && done == 0 {
        noted();
    }
    done
}

/// The count of started programs, if those are followed and the agent may make the calls for these checks. (A filter
/// stays over an exec, and the agent's start makes calls that it may forbid.)
fn follows() -> Option<&'static Starts> {
    environment::starts().filter(|_| may(need::ALL))
}

/// The target, or the reason why it cannot load the agent from here.
fn reachable(target: Target, starts: &Starts) -> Target {
    match target {
        t if !t.inject() => t,
        _ if !environment::is_reachable() => Target::Unreachable,
        _ if environment::is_by_descriptor() && !rights::last_over_exec(starts) => Target::Rights,
        _ if !rights::has_room() => Target::Limit,
        t => t,
    }
}

/// Reports that a started program is not followed.
///
/// # Safety
/// `path` is null or a string, unless the target is nothing to report. `child`: a child of this process becomes the
/// program, not this process.
unsafe fn note(target: Target, path: *const c_char, child: bool) {
    let Some(why) = target.unwatched() else { return };
    if let Some(starts) = environment::starts().filter(|_| !target.inject()) {
        starts.leave_out(why);
    }
    let Some(s) = session::get() else { return };
    // SAFETY: the caller's.
    let path = if path.is_null() { &[][..] } else { unsafe { CStr::from_ptr(path) }.to_bytes() };
    // (If the process does not have the recorder's numbers, it is not reported under another process's number.)
    let number = session::number().max(0);
    let pid = if child { 0 } else { number };
    s.note_unwatched(why, pid, number, sys::tsc(), path);
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
            || target::in_path(libc::AT_FDCWD, file, search_path()),
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
    unsafe { at(dir, path, envp, flags, |e| real::execveat(dir, path, argv, e, flags)) }
}

/// As [`execveat`], with the call that is made in the end.
///
/// # Safety
/// As execveat.
pub unsafe fn at(
    dir: c_int,
    path: *const c_char,
    envp: Strings,
    flags: c_int,
    exec: impl Fn(Strings) -> c_int,
) -> c_int {
    // SAFETY: the caller's.
    let examine = || unsafe {
        let empty = !path.is_null() && sys::is_readable(path as usize) && *path == 0;
        if empty && flags & libc::AT_EMPTY_PATH != 0 { target::of_descriptor(dir) } else { target::of_path(dir, path) }
    };
    // SAFETY: the caller's.
    unsafe { start(examine, (path, false), envp, |e| over_exec(|| exec(e))) }
}

/// Gives a function of the execl family its arguments as an array. They arrive in registers, then on the stack: the
/// registers are stored directly below those on the stack, over the return address.
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
                // Aligned to 16 as the ABI requires: the return address and five registers moved it by 48 - 8 bytes.
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
