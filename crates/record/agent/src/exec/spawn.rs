//! posix_spawn and posix_spawnp. Their file actions may change the child's directory before it looks for its program.

use super::target::{self, File, Target};
use super::{search_path, start};
use crate::process::real::{self, Strings};
use crate::signals::inherit::over_spawn;
use core::ffi::{c_char, c_int, c_void};

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
            || in_directory(actions, |dir| target::of_path(dir, path)),
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
            || in_directory(actions, |dir| target::in_path(dir, file, search_path())),
            (file, true),
            envp,
            |e| over_spawn(|| real::posix_spawnp(pid, file, actions, attributes, argv, e)),
        )
    }
}

/// posix_spawn_file_actions_t of glibc (posix/spawn.h).
#[repr(C)]
struct Actions {
    allocated: c_int,
    used: c_int,
    actions: *const Action,
}

/// `struct __spawn_action` of glibc (posix/spawn_int.h).
#[repr(C)]
struct Action {
    tag: c_int,
    _pad: c_int,
    /// A path, a descriptor, or two.
    first: u64,
    _rest: [u64; 2],
}

const _: () = assert!(size_of::<Action>() == 32);

/// Its tags for what concerns the directory.
mod tag {
    pub const DUP2: i32 = 1;
    pub const OPEN: i32 = 2;
    pub const CHDIR: i32 = 3;
    pub const FCHDIR: i32 = 4;
}

/// Calls `examine` with the directory in which the child looks for its program.
///
/// # Safety
/// `actions` is null or what posix_spawn takes.
unsafe fn in_directory(actions: *const c_void, examine: impl FnOnce(i32) -> Target) -> Target {
    let mut dir = None;
    // SAFETY: the caller's: glibc reads the same fields.
    let actions = unsafe {
        match actions.cast::<Actions>().as_ref() {
            Some(a) if a.used > 0 && !a.actions.is_null() => core::slice::from_raw_parts(a.actions, a.used as usize),
            _ => &[],
        }
    };
    for (i, action) in actions.iter().enumerate() {
        let from = dir.as_ref().map_or(libc::AT_FDCWD, |d: &File| d.0);
        let fd = action.first as c_int;
        let next = match action.tag {
            tag::CHDIR => File::directory(from, action.first as *const c_char),
            // A descriptor that an earlier action makes is not open yet.
            tag::FCHDIR if actions.iter().take(i).any(|a| makes(a, fd)) => return Target::Unreadable,
            tag::FCHDIR => File::directory(fd, c".".as_ptr()),
            _ => continue,
        };
        match next {
            Some(next) => dir = Some(next),
            // The child ends there.
            None => return Target::Missing,
        }
    }
    examine(dir.as_ref().map_or(libc::AT_FDCWD, |d| d.0))
}

fn makes(a: &Action, fd: c_int) -> bool {
    match a.tag {
        tag::OPEN => a.first as c_int == fd,
        tag::DUP2 => (a.first >> 32) as c_int == fd,
        _ => false,
    }
}
