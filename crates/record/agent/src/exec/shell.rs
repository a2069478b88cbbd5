//! `system` and `popen`: the shell starts with the agent in it, though libc gives it an environment that only libc sees.
//!
//! `system` repeats libc's steps (sysdeps/posix/system.c of glibc) with the exported `posix_spawn`. For `popen` only libc
//! can make the stream. In a process with one thread, libc's own `popen` runs while `environ` is the shell's environment.
//! With more threads, which may read `environ` at any time, the shell that libc starts is replaced by a second one, with
//! the agent in it.
//!
//! If another library also defines these functions, the agent calls that library's, and two shells are started.
//!
//! Invariant: the program sees the same results, errno, signals and cancellation of these calls as with libc's own.

use super::environment::{self, Room};
use super::target::{self, Target};
use super::{env, follows, note, reachable, start, start_in};
use crate::process::environment::SHELL as IS_SHELL;
use crate::process::own_lock::OwnLock;
use crate::process::real::{self, Strings};
use crate::process::wiped::{self, word};
use crate::process::{children, symbol, sys};
use crate::signals::calls::{KernelAction, kernel_action};
use crate::signals::inherit::over_spawn;
use crate::signals::masks::{self, bit};
use core::cell::Cell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicU32, Ordering};
use locks::leaving;

/// The shell of `system` and `popen`.
const SHELL: &CStr = c"/bin/sh";

/// 0 not yet known, 1 as in glibc, 2 as in glibc since 2.38 (`--` before the command), 3 another library's.
static WHOSE: AtomicU32 = AtomicU32::new(0);
const LIBCS: u32 = 1;
const LIBCS_WITH_DASHES: u32 = 2;
const OTHERS: u32 = 3;

fn whose() -> u32 {
    match WHOSE.load(Ordering::Relaxed) {
        0 => look(),
        known => known,
    }
}

#[cold]
fn look() -> u32 {
    let names = [c"system", c"popen", c"posix_spawn", c"waitpid"];
    let version = c"gnu_get_libc_version";
    let whose = match symbol::next(version) {
        f if f != 0 && names.iter().all(|name| symbol::next(name) == symbol::of_library_with(version, name)) => {
            // SAFETY: glibc's function, and its string.
            let version = unsafe {
                let f: extern "C" fn() -> *const c_char = core::mem::transmute(f);
                CStr::from_ptr(f()).to_bytes()
            };
            let minor = version.strip_prefix(b"2.").unwrap_or(b"").iter().take_while(|b| b.is_ascii_digit());
            let minor = minor.fold(0u32, |n, b| n.saturating_mul(10).saturating_add(u32::from(b - b'0')));
            if minor >= 38 { LIBCS_WITH_DASHES } else { LIBCS }
        }
        _ => OTHERS,
    };
    WHOSE.store(whose, Ordering::Relaxed);
    whose
}

/// Running calls of `system`, and the program's actions for SIGINT and SIGQUIT before the first. (As in libc, they do not
/// change in a forked child.)
struct Calls {
    n: u32,
    before: [KernelAction; 2],
}

const IGNORED: [c_int; 2] = [libc::SIGINT, libc::SIGQUIT];
static CALLS: OwnLock<Calls, { word::SHELLS }> =
    OwnLock::new(Calls { n: 0, before: [KernelAction { handler: 0, flags: 0, restorer: 0, mask: 0 }; 2] });

/// The process ignores SIGINT and SIGQUIT from here on. Returns the actions before. `None` (in a signal handler that
/// interrupted this function): nothing is changed.
fn ignore_signals() -> Option<[KernelAction; 2]> {
    let mut calls = CALLS.lock()?;
    if calls.n == 0 {
        let ignore = KernelAction { handler: libc::SIG_IGN, ..KernelAction::default() };
        calls.before = IGNORED.map(|signal| kernel_action(signal, Some(&ignore)));
    }
    calls.n += 1;
    Some(calls.before)
}

fn put_signals_back() {
    let Some(mut calls) = CALLS.lock() else { return };
    calls.n -= 1;
    if calls.n == 0 {
        for (&signal, before) in IGNORED.iter().zip(&calls.before) {
            kernel_action(signal, Some(before));
        }
    }
}

/// A shell for which a thread waits.
struct Wait {
    pid: libc::pid_t,
    status: c_int,
    ignores: bool,
}

/// Repeats waitpid until it is not interrupted. (A cancellation point: nothing here may need a destructor.)
///
/// # Safety
/// `w` is a Wait.
unsafe fn wait(w: *mut Wait) {
    // SAFETY: the caller's.
    unsafe {
        loop {
            let mut status = 0;
            let r = real::waitpid((*w).pid, &mut status, 0);
            if r == -1 && sys::Errno::get() == libc::EINTR {
                continue;
            }
            (*w).status = if r == (*w).pid { status } else { -1 };
            return;
        }
    }
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: c_int, old: *mut c_int) -> c_int;
}

/// The thread was cancelled in [`wait`]: the shell is killed. (libc leaves SIGCHLD blocked here, too.)
extern "C" fn cancelled(w: *mut c_void) {
    // PTHREAD_CANCEL_DISABLE
    const DISABLE: c_int = 1;
    // SAFETY: the caller's, in the frame of [`system`], which is unwound later.
    unsafe {
        let w = w.cast::<Wait>();
        sys::syscall6(libc::SYS_kill, (*w).pid as usize, libc::SIGKILL as usize, 0, 0, 0, 0);
        let mut state = 0;
        pthread_setcancelstate(DISABLE, &mut state);
        wait(w);
        pthread_setcancelstate(state, core::ptr::null_mut());
        if (*w).ignores {
            put_signals_back();
        }
    }
}

/// A shell's arguments for a command.
fn arguments(command: *const c_char) -> [*const c_char; 5] {
    let (name, end) = (c"sh".as_ptr(), core::ptr::null());
    if whose() == LIBCS_WITH_DASHES {
        [name, c"-c".as_ptr(), c"--".as_ptr(), command, end]
    } else {
        [name, c"-c".as_ptr(), command, end, end]
    }
}

/// The steps of libc's `system` for a command.
///
/// # Safety
/// `command` is a string.
unsafe fn run(command: *const c_char) -> c_int {
    let before = ignore_signals();
    let blocked = masks::blocked();
    let mask = sys::signal_mask(libc::SIG_BLOCK, bit(libc::SIGCHLD));
    let mut pid = 0;
    // SAFETY: libc's attributes, made and given back; a string, and the program's environment.
    let failed = unsafe {
        // (All zero is the empty set.)
        let (mut reset, mut inherited): (libc::sigset_t, libc::sigset_t) = core::mem::zeroed();
        for (&signal, action) in IGNORED.iter().zip(before.iter().flatten()) {
            if action.handler != libc::SIG_IGN {
                masks::change(&mut reset, |set| set | bit(signal));
            }
        }
        masks::change(&mut inherited, |_| masks::told(mask, blocked));
        let mut attributes = MaybeUninit::<libc::posix_spawnattr_t>::uninit();
        let at = attributes.as_mut_ptr();
        libc::posix_spawnattr_init(at);
        libc::posix_spawnattr_setsigmask(at, &inherited);
        libc::posix_spawnattr_setsigdefault(at, &reset);
        let flags = libc::POSIX_SPAWN_SETSIGDEF | libc::POSIX_SPAWN_SETSIGMASK;
        libc::posix_spawnattr_setflags(at, flags as i16);
        let arguments = arguments(command);
        let pid = &raw mut pid;
        let failed = start(
            || target::of_path(libc::AT_FDCWD, SHELL.as_ptr()),
            (SHELL.as_ptr(), true),
            env(),
            |e| real::posix_spawn(pid, SHELL.as_ptr(), core::ptr::null(), at.cast(), arguments.as_ptr(), e),
        );
        libc::posix_spawnattr_destroy(at);
        failed
    };
    // (POSIX: as if the shell had ended with 127.)
    let mut w = Wait { pid, status: 127 << 8, ignores: before.is_some() };
    if failed == 0 {
        let w = &raw mut w;
        // SAFETY: a Wait.
        leaving::run(w, cancelled, || unsafe { wait(w) });
    }
    if w.ignores {
        put_signals_back();
    }
    sys::signal_mask(libc::SIG_SETMASK, mask);
    if failed != 0 {
        sys::Errno::set(failed);
    }
    w.status
}

/// # Safety
/// As system.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn system(command: *const c_char) -> c_int {
    // SAFETY: the caller's.
    unsafe {
        if environment::starts().is_none() {
            real::system(command)
        } else if whose() == OTHERS {
            second_shell(command, |c| real::system(c), |status| *status == -1)
        } else if command.is_null() {
            c_int::from(run(c"exit 0".as_ptr()) == 0)
        } else {
            run(command)
        }
    }
}

unsafe extern "C" {
    static mut environ: Strings;
}

/// True if no other thread can read this process's variables.
fn is_alone() -> bool {
    // (A directory with two links and one for each thread.)
    sys::status(c"/proc/self/task").is_some_and(|s| s.st_nlink == 3) && !wiped::is_vfork_child()
}

/// # Safety
/// As popen.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void {
    // SAFETY: the caller's.
    let libcs = |command| unsafe { over_spawn(|| real::popen(command, mode)) };
    if command.is_null() || whose() == OTHERS || follows().is_none() || !is_alone() {
        // SAFETY: the caller's.
        return unsafe { second_shell(command, libcs, |stream| stream.is_null()) };
    }
    let stream = Cell::new(core::ptr::null_mut());
    let own = env();
    let with = |e: Strings| {
        // SAFETY: the program's variable, in its only thread. It is restored unless its value was changed in the
        // meantime.
        unsafe {
            (&raw mut environ).write(e);
            stream.set(libcs(command));
            if (&raw const environ).read() == e {
                (&raw mut environ).write(own);
            }
        }
        if stream.get().is_null() { sys::Errno::get() } else { 0 }
    };
    // SAFETY: the shell's path; the program's environment.
    unsafe {
        start_in(Room::Mapped, || target::of_path(libc::AT_FDCWD, SHELL.as_ptr()), (SHELL.as_ptr(), true), own, with)
    };
    stream.get()
}

/// Runs `call` with a command that replaces the shell that `call` starts by another shell, with the agent in it. If that
/// is not possible, runs `call` with the command itself.
///
/// # Safety
/// `command` is null or a string.
unsafe fn second_shell<R>(command: *const c_char, call: impl Fn(*const c_char) -> R, failed: impl Fn(&R) -> bool) -> R {
    // SAFETY: only readable memory is read; the command is the caller's.
    let starts = follows().filter(|_| !command.is_null() && unsafe { environment::is_whole(env()) });
    let Some(starts) = starts else { return call(command) };
    children::count();
    let path = SHELL.as_ptr();
    // SAFETY: a string; the command is the caller's. (A command that looks like an option is treated differently by
    // different libcs.)
    let target = match unsafe { (reachable(target::of_path(libc::AT_FDCWD, path), starts), *command as u8) } {
        (t, b'-' | b'+') if t.inject() => Target::Command,
        (t, _) => t,
    };
    if target.inject() && starts.expect() {
        // SAFETY: the caller's.
        let done = unsafe { with_command(command, env(), &call) };
        if done.as_ref().is_none_or(failed) {
            starts.take_back();
        }
        if let Some(done) = done {
            return done;
        }
        // SAFETY: a string.
        unsafe { note(Target::Command, path, true) };
    } else {
        // SAFETY: a string.
        unsafe { note(target, path, true) };
    }
    call(command)
}

/// Maximum number of bytes of a command line that [`with_command`] makes: the kernel's limit of one string
/// (MAX_ARG_STRLEN).
const COMMAND: usize = 128 << 10;

/// Text for a shell, word by word. It is counted first and then written.
struct Text {
    at: *mut u8,
    len: usize,
}

impl Text {
    fn put(&mut self, piece: &[u8]) {
        if !self.at.is_null() {
            // SAFETY: the place at `at` has room for the bytes that were counted.
            unsafe { core::ptr::copy_nonoverlapping(piece.as_ptr(), self.at.add(self.len), piece.len()) };
        }
        self.len += piece.len();
    }

    /// One word that the shell takes literally.
    fn word(&mut self, pieces: &[&[u8]]) {
        self.put(b"'");
        for piece in pieces {
            for (i, part) in piece.split(|&b| b == b'\'').enumerate() {
                self.put(if i == 0 { b"" } else { b"'\\''" });
                self.put(part);
            }
        }
        self.put(b"'");
    }
}

/// Calls `then` with a command that replaces the shell that runs it by another one, with the agent in it, which runs
/// `command`. (libc gives the shells of `system` and `popen` an environment that only libc sees. The second shell removes
/// the agent's variables from its environment again, and its own execs check each program.) `None`: the command is too
/// long.
///
/// # Safety
/// `command` is a string; `env` as for [`environment::with`].
unsafe fn with_command<R>(command: *const c_char, env: Strings, then: impl FnOnce(*const c_char) -> R) -> Option<R> {
    // SAFETY: the caller's.
    let (command, added) = unsafe { (CStr::from_ptr(command).to_bytes(), environment::added_to(env)?) };
    let write = |at: *mut u8| {
        let mut t = Text { at, len: 0 };
        t.put(b"export ");
        for words in added.iter().map(|variable| &variable[..]).chain([&[IS_SHELL, b"1"][..]]) {
            t.word(words);
            t.put(b" ");
        }
        t.put(b"; exec ");
        t.put(SHELL.to_bytes());
        t.put(b" -c ");
        t.word(&[command]);
        t.put(b"\0");
        t.len
    };
    let need = write(core::ptr::null_mut());
    if need > COMMAND {
        return None;
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping.
    let at = unsafe { sys::mmap(0, need, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }?;
    write(at as *mut u8);
    let r = then(at as *const c_char);
    // SAFETY: the agent's own mapping; the shell has its own copy.
    unsafe { sys::munmap(at, need) };
    Some(r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::environment::tests::{kept, strings};
    use std::ffi::CString;

    #[test]
    fn a_shell_command_has_another_shell_run_it_with_the_variables() {
        kept();
        let (_owned, array) = strings(&["LD_PRELOAD=x'y.so"]);
        // SAFETY: strings.
        let command = unsafe {
            with_command(c"echo '$1'; exit 3".as_ptr(), array.as_ptr(), |c| {
                CStr::from_ptr(c).to_str().map(str::to_owned)
            })
        };
        assert_eq!(
            command.expect("it fits").expect("text"),
            r"export 'LD_PRELOAD=x'\''y.so:/proc/1/fd/3:/proc/1/fd/4' 'DOORBELL_PRELOAD=/proc/1/fd/3:/proc/1/fd/4' 'DOORBELL_SESSION=/proc/1/fd/5' 'DOORBELL_SHELL=1' ; exec /bin/sh -c 'echo '\''$1'\''; exit 3'"
        );
        let long = CString::new("x".repeat(COMMAND)).expect("no NUL");
        // SAFETY: strings.
        assert!(unsafe { with_command(long.as_ptr(), array.as_ptr(), |_| ()) }.is_none());
    }
}
