//! The environment with which a started program finds us.
//!
//! At the start the agent takes its variables out of the program's environment, so that the program sees its own. What
//! was taken is kept here and added again for a program that is started.
//!
//! Invariant: building it allocates nothing and writes to the stack only (vfork children exec from their parent's
//! memory). Only an environment that is too large for that gets a mapping, which a vfork child leaves to its parent.

use crate::process::environment::{PRELOAD, WAS};
use crate::process::restrictions::{may, need};
use crate::process::sys;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};

/// Bytes of one kept string, its NUL included. They name files of the recorder's under /proc.
const KEPT: usize = 256;
/// Variables kept at most.
const VARIABLES: usize = 4;

#[derive(Clone, Copy)]
struct Kept {
    bytes: [u8; KEPT],
    len: usize,
}

impl Kept {
    const NONE: Kept = Kept { bytes: [0; KEPT], len: 0 };

    fn set(&mut self, s: &[u8]) -> bool {
        let Some(to) = self.bytes.get_mut(..s.len()).filter(|_| s.len() < KEPT) else { return false };
        to.copy_from_slice(s);
        self.len = s.len();
        true
    }

    fn get(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

struct Carried {
    /// The libraries that are preloaded, as LD_PRELOAD names them.
    preload: Kept,
    /// `NAME=value`, each with a NUL behind it.
    variables: [Kept; VARIABLES],
    n: usize,
}

struct Once(UnsafeCell<Carried>);
// SAFETY: written in the constructor, before READY is set; read by whoever has seen READY.
unsafe impl Sync for Once {}
static CARRIED: Once = Once(UnsafeCell::new(Carried { preload: Kept::NONE, variables: [Kept::NONE; VARIABLES], n: 0 }));
static READY: AtomicBool = AtomicBool::new(false);

/// Keeps what started programs need: our part of LD_PRELOAD, and whole variables. From the constructor, once. Where it
/// does not fit nothing is kept, and started programs are not followed.
pub fn keep(preload: &[u8], variables: &[&[u8]]) {
    if READY.load(Ordering::Acquire) || preload.is_empty() || variables.len() > VARIABLES {
        return;
    }
    // SAFETY: before READY nobody else looks.
    let c = unsafe { &mut *CARRIED.0.get() };
    let fits = c.preload.set(preload) && variables.iter().zip(&mut c.variables).all(|(v, to)| to.set(v));
    c.n = variables.len();
    // ORDERING: Release pairs with `carried`.
    READY.store(fits, Ordering::Release);
}

fn carried() -> Option<&'static Carried> {
    // SAFETY: READY: it is not written any more.
    READY.load(Ordering::Acquire).then(|| unsafe { &*CARRIED.0.get() })
}

/// True if started programs are followed.
pub fn is_kept() -> bool {
    // (A filter goes on over exec, and our start makes calls that it may forbid.)
    may(need::ALL) && carried().is_some()
}

/// The first of our libraries can be opened from here.
pub fn is_reachable() -> bool {
    let Some(c) = carried() else { return false };
    let first = c.preload.get().split(|&b| b == b':').next().unwrap_or(&[]);
    let mut path = [0u8; KEPT];
    path[..first.len()].copy_from_slice(first);
    CStr::from_bytes_until_nul(&path).is_ok_and(super::target::is_readable)
}

/// The value of LD_PRELOAD without our libraries, which may be in front of it.
fn without_ours<'a>(value: &'a [u8], ours: &[u8]) -> &'a [u8] {
    match value.strip_prefix(ours) {
        Some(rest) => rest.strip_prefix(b":").unwrap_or(rest),
        None => value,
    }
}

/// True if this entry is one that we add.
fn is_ours(c: &Carried, entry: &[u8]) -> bool {
    let names = |v: &Kept| v.get().iter().position(|&b| b == b'=').is_some_and(|n| entry.starts_with(&v.get()[..=n]));
    entry.starts_with(WAS) || c.variables.iter().take(c.n).any(names)
}

/// What an environment needs.
struct Size {
    entries: usize,
    /// Bytes of the program's own LD_PRELOAD.
    preload: usize,
}

/// # Safety
/// `env` is null or a null-terminated array of strings.
unsafe fn size(c: &Carried, env: *const *const c_char) -> Size {
    let mut s = Size { entries: 0, preload: 0 };
    // SAFETY: the caller's.
    while !env.is_null() && !unsafe { *env.add(s.entries) }.is_null() {
        // SAFETY: the caller's.
        let entry = unsafe { CStr::from_ptr(*env.add(s.entries)) }.to_bytes();
        if let Some(value) = entry.strip_prefix(PRELOAD) {
            s.preload = s.preload.max(without_ours(value, c.preload.get()).len());
        }
        s.entries += 1;
    }
    s
}

/// Where an environment is built: its array and the text of two variables.
#[repr(C)]
struct Room<const ENTRIES: usize, const TEXT: usize> {
    entries: [MaybeUninit<*const c_char>; ENTRIES],
    text: [MaybeUninit<u8>; TEXT],
}

/// The usual size of an environment, and one that a stack still takes. A signal handler may exec from a small stack.
const SMALL: (usize, usize) = (160, 1024);
const LARGE: (usize, usize) = (2048, 8192);

/// Calls `then` with `env` and what we add to it; with `env` itself where nothing is kept or no memory is to be had.
///
/// # Safety
/// `env` is null or a null-terminated array of strings.
pub unsafe fn with<R>(env: *const *const c_char, then: impl FnOnce(*const *const c_char) -> R) -> R {
    let Some(c) = carried() else { return then(env) };
    // SAFETY: the caller's.
    let s = unsafe { size(c, env) };
    // Ours and the array's end; two strings with their names, a colon and two ends.
    let entries = s.entries + 2 + c.n + 1;
    let text = PRELOAD.len() + c.preload.len + WAS.len() + 2 * s.preload + 3;
    // SAFETY: the caller's, and each room is as large as it says.
    unsafe {
        if entries <= SMALL.0 && text <= SMALL.1 {
            on_stack::<{ SMALL.0 }, { SMALL.1 }, R>(c, env, then)
        } else if entries <= LARGE.0 && text <= LARGE.1 {
            on_stack::<{ LARGE.0 }, { LARGE.1 }, R>(c, env, then)
        } else {
            mapped(c, env, entries, text, then)
        }
    }
}

/// # Safety
/// As [`with`]; the room is large enough.
#[inline(never)]
unsafe fn on_stack<const ENTRIES: usize, const TEXT: usize, R>(
    c: &Carried,
    env: *const *const c_char,
    then: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let mut room = MaybeUninit::<Room<ENTRIES, TEXT>>::uninit();
    let at = room.as_mut_ptr();
    // SAFETY: the caller's; the pointers are those of the room's fields.
    unsafe { fill(c, env, (&raw mut (*at).entries).cast(), (&raw mut (*at).text).cast()) };
    then(at.cast())
}

/// # Safety
/// As [`with`].
#[inline(never)]
unsafe fn mapped<R>(
    c: &Carried,
    env: *const *const c_char,
    entries: usize,
    text: usize,
    then: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let array = entries * size_of::<*const c_char>();
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping.
    let Some(at) = (unsafe { sys::mmap(0, array + text, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }) else {
        return then(env);
    };
    // SAFETY: the mapping is as large as is needed; the strings are the caller's.
    unsafe { fill(c, env, at as *mut *const c_char, (at + array) as *mut u8) };
    let r = then(at as *const *const c_char);
    // The exec failed, or a spawn is done.
    // SAFETY: our own mapping, which nobody looks at any more.
    unsafe { sys::munmap(at, array + text) };
    r
}

/// # Safety
/// `entries` and `text` have the room that [`with`] counts.
unsafe fn fill(c: &Carried, env: *const *const c_char, entries: *mut *const c_char, text: *mut u8) {
    let mut theirs: &[u8] = &[];
    let mut place = None;
    let mut n = 0;
    let mut i = 0;
    // SAFETY: the caller's: a null-terminated array, and room for it.
    unsafe {
        while !env.is_null() && !(*env.add(i)).is_null() {
            let at = *env.add(i);
            i += 1;
            let entry = CStr::from_ptr(at).to_bytes();
            if is_ours(c, entry) {
                continue;
            }
            if let Some(value) = entry.strip_prefix(PRELOAD) {
                // The loader takes the last one.
                theirs = without_ours(value, c.preload.get());
                if place.is_some() {
                    continue;
                }
                place = Some(n);
            }
            entries.add(n).write(at);
            n += 1;
        }
        let place = place.unwrap_or_else(|| {
            n += 1;
            n - 1
        });
        let mut end = text;
        let mut put = |pieces: &[&[u8]]| {
            let begin = end;
            for piece in pieces {
                core::ptr::copy_nonoverlapping(piece.as_ptr(), end, piece.len());
                end = end.add(piece.len());
            }
            end.write(0);
            end = end.add(1);
            begin as *const c_char
        };
        let colon: &[u8] = if theirs.is_empty() { b"" } else { b":" };
        entries.add(place).write(put(&[PRELOAD, c.preload.get(), colon, theirs]));
        entries.add(n).write(put(&[WAS, theirs]));
        n += 1;
        for v in c.variables.iter().take(c.n) {
            entries.add(n).write(v.bytes.as_ptr().cast());
            n += 1;
        }
        entries.add(n).write(core::ptr::null());
    }
}

/// Bytes of the longest command line that [`with_command`] makes room for: the kernel's limit of one string (MAX_ARG_STRLEN).
const COMMAND: usize = 128 << 10;

/// Calls `then` with a shell command that sets our variables before it goes on with `command`. `system` and `popen` give
/// the shell an environment that only libc sees. `None`: the command cannot carry them.
///
/// # Safety
/// `command` is a string; `env` as for [`with`].
pub unsafe fn with_command<R>(
    command: *const c_char,
    env: *const *const c_char,
    then: impl FnOnce(*const c_char) -> R,
) -> Result<R, ()> {
    let c = carried().ok_or(())?;
    // SAFETY: the caller's.
    let command = unsafe { CStr::from_ptr(command) }.to_bytes();
    let mut theirs: &[u8] = &[];
    let mut i = 0;
    // SAFETY: the caller's.
    while !env.is_null() && !unsafe { *env.add(i) }.is_null() {
        // SAFETY: the caller's.
        let entry = unsafe { CStr::from_ptr(*env.add(i)) }.to_bytes();
        theirs = entry.strip_prefix(PRELOAD).unwrap_or(theirs);
        i += 1;
    }
    if theirs.contains(&b'\'') {
        return Err(());
    }
    let values: usize = c.variables.iter().take(c.n).map(|v| v.len + 3).sum();
    let need = 64 + PRELOAD.len() + c.preload.len + WAS.len() + 2 * theirs.len() + values + command.len();
    if need > COMMAND {
        return Err(());
    }
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping.
    let at = unsafe { sys::mmap(0, need, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }.ok_or(())?;
    let mut end = at as *mut u8;
    let mut put = |pieces: &[&[u8]]| {
        for piece in pieces {
            // SAFETY: `need` counts all pieces; the mapping is zeroed, so the text ends in a NUL.
            unsafe {
                core::ptr::copy_nonoverlapping(piece.as_ptr(), end, piece.len());
                end = end.add(piece.len());
            }
        }
    };
    let colon: &[u8] = if theirs.is_empty() { b"" } else { b":" };
    put(&[b"export ", PRELOAD, b"'", c.preload.get(), colon, theirs, b"' ", WAS, b"'", theirs, b"'"]);
    for v in c.variables.iter().take(c.n) {
        let n = v.get().iter().position(|&b| b == b'=').map_or(0, |n| n + 1);
        put(&[b" ", &v.get()[..n], b"'", &v.get()[n..], b"'"]);
    }
    // On the same line: the shell's messages keep their line numbers.
    put(&[b"; ", command]);
    let r = then(at as *const c_char);
    // SAFETY: our own mapping; the shell has its own copy.
    unsafe { sys::munmap(at, need) };
    Ok(r)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;

    fn strings(all: &[&str]) -> (Vec<CString>, Vec<*const c_char>) {
        let owned: Vec<CString> = all.iter().map(|s| CString::new(*s).expect("no NUL")).collect();
        let mut array: Vec<*const c_char> = owned.iter().map(|s| s.as_ptr()).collect();
        array.push(core::ptr::null());
        (owned, array)
    }

    fn read(env: *const *const c_char) -> Vec<String> {
        let mut out = Vec::new();
        let mut i = 0;
        // SAFETY: an environment.
        while !unsafe { *env.add(i) }.is_null() {
            // SAFETY: one of its strings.
            out.push(unsafe { CStr::from_ptr(*env.add(i)) }.to_str().expect("text").to_owned());
            i += 1;
        }
        out
    }

    fn built(all: &[&str]) -> Vec<String> {
        keep(b"/proc/1/fd/3:/proc/1/fd/4", &[b"DOORBELL_SESSION=/proc/1/fd/5"]);
        let (_owned, array) = strings(all);
        // SAFETY: a null-terminated array of strings.
        unsafe { with(array.as_ptr(), read) }
    }

    #[test]
    fn ours_come_behind_what_is_there() {
        assert_eq!(
            built(&["A=1", "B=2"]),
            [
                "A=1",
                "B=2",
                "LD_PRELOAD=/proc/1/fd/3:/proc/1/fd/4",
                "DOORBELL_PRELOAD_WAS=",
                "DOORBELL_SESSION=/proc/1/fd/5"
            ]
        );
    }

    #[test]
    fn a_preload_of_the_programs_own_stays_where_it_was() {
        let e = built(&["A=1", "LD_PRELOAD=x.so:y.so", "B=2"]);
        assert_eq!(e[1], "LD_PRELOAD=/proc/1/fd/3:/proc/1/fd/4:x.so:y.so");
        assert_eq!(e[3], "DOORBELL_PRELOAD_WAS=x.so:y.so");
        assert_eq!(e.len(), 5);
    }

    #[test]
    fn nothing_is_added_twice() {
        let once = built(&["A=1", "LD_PRELOAD=x.so"]);
        let all: Vec<&str> = once.iter().map(String::as_str).collect();
        assert_eq!(built(&all), once);
    }

    #[test]
    fn environments_of_every_size() {
        for n in [0, 100, 155, 156, 157, 158, 500, 2042, 2043, 2044, 5000] {
            let all: Vec<String> = (0..n).map(|i| format!("V{i}={i}")).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let e = built(&all);
            assert_eq!(e.len(), n + 3, "{n}");
            assert_eq!(e[..n], all[..], "{n}");
        }
        for len in [900, 1000, 4000, 9000, 100_000] {
            let own = format!("LD_PRELOAD={}", "x".repeat(len));
            let e = built(&[&own]);
            assert_eq!(e[1], format!("DOORBELL_PRELOAD_WAS={}", "x".repeat(len)), "{len}");
        }
    }

    #[test]
    fn a_shell_command_carries_the_variables() {
        let _ = built(&[]);
        let (_owned, array) = strings(&["LD_PRELOAD=x.so"]);
        // SAFETY: strings.
        let command = unsafe {
            with_command(c"echo $1; exit 3".as_ptr(), array.as_ptr(), |c| CStr::from_ptr(c).to_str().map(str::to_owned))
        };
        assert_eq!(
            command.expect("it fits").expect("text"),
            "export LD_PRELOAD='/proc/1/fd/3:/proc/1/fd/4:x.so' DOORBELL_PRELOAD_WAS='x.so' \
             DOORBELL_SESSION='/proc/1/fd/5'; echo $1; exit 3"
        );
        let long = CString::new("x".repeat(COMMAND)).expect("no NUL");
        // SAFETY: strings.
        assert!(unsafe { with_command(long.as_ptr(), array.as_ptr(), |_| ()) }.is_err());
    }
}
