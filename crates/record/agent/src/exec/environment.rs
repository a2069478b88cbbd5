//! The environment through which a started program loads the agent.
//!
//! At the start the agent removes its variables from the program's environment, so that the program sees only its own. It
//! keeps them here, and appends them to the environment of each program that is started. The program's own entries stay
//! as they are. The loader uses the last LD_PRELOAD, which is the agent's; the started program gets its own value back.
//!
//! Invariant: building it allocates nothing and writes to the stack only (vfork children exec from their parent's
//! memory). Only an environment that is too large for the stack gets a mapping, which a vfork child leaves to its parent.

use crate::process::environment::{BOARD, OURS, PRELOAD, SESSION};
use crate::process::{place, sys};
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, Ordering};
use tape::starts::Starts;

/// Bytes of one kept string with its NUL. It names files of the recorder under /proc.
const KEPT: usize = 256;

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

    fn at(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

struct Carried {
    /// `DOORBELL_PRELOAD=` and the preloaded libraries, as LD_PRELOAD names them.
    libraries: Kept,
    /// The session or the board: `NAME=value`.
    place: Kept,
    starts: Option<&'static Starts>,
}

impl Carried {
    fn preload(&self) -> &[u8] {
        self.libraries.get().get(OURS.len()..).unwrap_or(&[])
    }
}

struct Once(UnsafeCell<Carried>);
// SAFETY: written in the constructor, before READY is set; read only after READY was seen.
unsafe impl Sync for Once {}
static CARRIED: Once = Once(UnsafeCell::new(Carried { libraries: Kept::NONE, place: Kept::NONE, starts: None }));
static READY: AtomicBool = AtomicBool::new(false);

/// Keeps the variables that started programs need: the list of the agent's libraries, and the session or board. Called
/// once, by the constructor. If they do not fit, none is kept, and started programs are not followed.
pub fn keep(libraries: &[u8], place: &[u8], starts: &'static Starts) {
    if READY.load(Ordering::Acquire) {
        return;
    }
    // SAFETY: before READY no other thread reads it.
    let c = unsafe { &mut *CARRIED.0.get() };
    let fits = c.libraries.set(libraries) && c.place.set(place) && !c.preload().is_empty();
    c.starts = Some(starts);
    // ORDERING: Release pairs with `carried`.
    READY.store(fits, Ordering::Release);
}

fn carried() -> Option<&'static Carried> {
    // SAFETY: READY is set, so it is not written any more.
    READY.load(Ordering::Acquire).then(|| unsafe { &*CARRIED.0.get() })
}

/// The count of programs that are started with the agent; `None` if started programs are not followed.
pub fn starts() -> Option<&'static Starts> {
    carried()?.starts
}

/// True if the first of the agent's libraries can be opened from here now.
pub fn is_reachable() -> bool {
    let Some(c) = carried() else { return false };
    let first = c.preload().split(|&b| b == b':').next().unwrap_or(&[]);
    let mut path = [0u8; KEPT];
    path[..first.len()].copy_from_slice(first);
    c.starts.is_some_and(|s| place::holds(first, s))
        && CStr::from_bytes_until_nul(&path).is_ok_and(super::target::is_readable)
}

/// True if the agent's libraries are opened through the recorder's descriptors, which needs its rights, not by a public
/// path.
pub fn is_by_descriptor() -> bool {
    carried().is_some_and(|c| c.preload().starts_with(b"/proc/"))
}

/// True if the agent adds this entry.
fn is_ours(c: &Carried, entry: &[u8]) -> bool {
    let names = |v: &Kept| v.get().iter().position(|&b| b == b'=').is_some_and(|n| entry.starts_with(&v.get()[..=n]));
    let preloads = || entry.strip_prefix(PRELOAD).is_some_and(|v| v.ends_with(c.preload()));
    names(&c.place) || names(&c.libraries) || preloads()
}

/// True if another recorder has put its variables into the environment: its agent is loaded then, and not this one.
///
/// # Safety
/// `env` is null or a null-terminated array of strings.
pub unsafe fn is_anothers(env: *const *const c_char) -> bool {
    let Some(c) = carried() else { return false };
    let mut at = env;
    // SAFETY: the caller's.
    while !at.is_null() && !unsafe { *at }.is_null() {
        // SAFETY: the caller's.
        let entry = unsafe { CStr::from_ptr(*at) }.to_bytes();
        if [SESSION, BOARD].iter().any(|name| entry.starts_with(name)) && entry != c.place.get() {
            return true;
        }
        // SAFETY: not the end yet.
        at = unsafe { at.add(1) };
    }
    false
}

/// The contents of an environment.
struct Contents<'a> {
    entries: usize,
    /// The program's own LD_PRELOAD: the last one, which the loader uses.
    preload: Option<&'a [u8]>,
}

/// # Safety
/// `env` is null or a null-terminated array of strings.
unsafe fn contents<'a>(c: &Carried, env: *const *const c_char) -> Contents<'a> {
    let mut s = Contents { entries: 0, preload: None };
    // SAFETY: the caller's.
    while !env.is_null() && !unsafe { *env.add(s.entries) }.is_null() {
        // SAFETY: the caller's.
        let entry = unsafe { CStr::from_ptr(*env.add(s.entries)) }.to_bytes();
        if let Some(value) = entry.strip_prefix(PRELOAD).filter(|v| !v.ends_with(c.preload())) {
            s.preload = Some(value);
        }
        s.entries += 1;
    }
    s
}

/// True if an environment can be read to its end as a null-terminated array of strings. A program may pass anything. For
/// a bad pointer the kernel returns an error, so it must get the program's own argument.
///
/// # Safety
/// The memory may be unmapped; mapped memory must stay mapped.
pub unsafe fn is_whole(env: *const *const c_char) -> bool {
    let mut good = sys::Readable::default();
    let mut at = env as usize;
    if at == 0 {
        return true;
    }
    loop {
        if !good.holds(at, size_of::<usize>()) {
            return false;
        }
        // SAFETY: readable just now.
        let mut byte = unsafe { (at as *const usize).read_unaligned() };
        if byte == 0 {
            return true;
        }
        // SAFETY: as above.
        while good.holds(byte, 1) && unsafe { *(byte as *const u8) } != 0 {
            byte += 1;
        }
        if !good.holds(byte, 1) {
            return false;
        }
        at += size_of::<usize>();
    }
}

/// Where an environment is built: its array and the text of LD_PRELOAD.
#[repr(C)]
struct OnStack<const ENTRIES: usize, const TEXT: usize> {
    entries: [MaybeUninit<*const c_char>; ENTRIES],
    text: [MaybeUninit<u8>; TEXT],
}

/// The usual size of an environment, and one that still fits on a stack. A signal handler may exec from a small stack.
const SMALL: (usize, usize) = (160, 1024);
const LARGE: (usize, usize) = (2048, 8192);
/// The agent's additions: LD_PRELOAD and two variables; and the array's end.
const OURS_AND_END: usize = 4;

/// Where to build an environment.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Room {
    /// On the stack, if it fits: for a vfork child.
    Stack,
    /// In a mapping, which stays if `then` is left by a jump.
    Mapped,
}

/// Calls `then` with `env` and the agent's additions; with `env` itself if no variables are kept or there is no memory.
///
/// # Safety
/// `env` is null or a null-terminated array of strings.
pub unsafe fn with<R>(room: Room, env: *const *const c_char, then: impl FnOnce(*const *const c_char) -> R) -> R {
    let Some(c) = carried() else { return then(env) };
    // SAFETY: the caller's.
    let s = unsafe { contents(c, env) };
    let entries = s.entries + OURS_AND_END;
    // A colon and the string's end.
    let text = PRELOAD.len() + c.preload().len() + s.preload.map_or(0, <[u8]>::len) + 2;
    // SAFETY: the caller's, and each room is used only if the environment fits.
    unsafe {
        if room == Room::Mapped {
            mapped(c, env, (entries, text), s.preload, then)
        } else if entries <= SMALL.0 && text <= SMALL.1 {
            on_stack::<{ SMALL.0 }, { SMALL.1 }, R>(c, env, s.preload, then)
        } else if entries <= LARGE.0 && text <= LARGE.1 {
            on_stack::<{ LARGE.0 }, { LARGE.1 }, R>(c, env, s.preload, then)
        } else {
            mapped(c, env, (entries, text), s.preload, then)
        }
    }
}

/// # Safety
/// As [`with`]; the room is large enough.
#[inline(never)]
unsafe fn on_stack<const ENTRIES: usize, const TEXT: usize, R>(
    c: &Carried,
    env: *const *const c_char,
    theirs: Option<&[u8]>,
    then: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let mut room = MaybeUninit::<OnStack<ENTRIES, TEXT>>::uninit();
    let at = room.as_mut_ptr();
    // SAFETY: the caller's; the pointers are those of the room's fields.
    unsafe { fill(c, env, theirs, (&raw mut (*at).entries).cast(), (&raw mut (*at).text).cast()) };
    then(at.cast())
}

/// # Safety
/// As [`with`].
#[inline(never)]
unsafe fn mapped<R>(
    c: &Carried,
    env: *const *const c_char,
    (entries, text): (usize, usize),
    theirs: Option<&[u8]>,
    then: impl FnOnce(*const *const c_char) -> R,
) -> R {
    let array = entries * size_of::<*const c_char>();
    let rw = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a fresh mapping.
    let Some(at) = (unsafe { sys::mmap(0, array + text, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) }) else {
        return then(env);
    };
    // SAFETY: the mapping is large enough; the strings are the caller's.
    unsafe { fill(c, env, theirs, at as *mut *const c_char, (at + array) as *mut u8) };
    let r = then(at as *const *const c_char);
    // The exec failed, or a spawn is done.
    // SAFETY: the agent's own mapping, which no thread uses any more.
    unsafe { sys::munmap(at, array + text) };
    r
}

/// # Safety
/// `entries` and `text` have the room that [`with`] computes.
unsafe fn fill(
    c: &Carried,
    env: *const *const c_char,
    theirs: Option<&[u8]>,
    entries: *mut *const c_char,
    text: *mut u8,
) {
    let mut n = 0;
    let mut i = 0;
    // SAFETY: the caller's: a null-terminated array, and room for it.
    unsafe {
        while !env.is_null() && !(*env.add(i)).is_null() {
            let at = *env.add(i);
            i += 1;
            if !is_ours(c, CStr::from_ptr(at).to_bytes()) {
                entries.add(n).write(at);
                n += 1;
            }
        }
        let mut end = text;
        for piece in preload(c, theirs) {
            core::ptr::copy_nonoverlapping(piece.as_ptr(), end, piece.len());
            end = end.add(piece.len());
        }
        end.write(0);
        for ours in [c.libraries.at(), c.place.at(), text.cast_const().cast(), core::ptr::null()] {
            entries.add(n).write(ours);
            n += 1;
        }
    }
}

/// LD_PRELOAD with the agent's libraries after the program's own. A library that replaces a function (ncu's for `dlopen`)
/// may look itself up under that function's name, and must find itself.
fn preload<'a>(c: &'a Carried, theirs: Option<&'a [u8]>) -> [&'a [u8]; 4] {
    let colon: &[u8] = if theirs.is_some() { b":" } else { b"" };
    [PRELOAD, theirs.unwrap_or(&[]), colon, c.preload()]
}

/// The variables that are added to `env`, in pieces; `None` if none are kept.
///
/// # Safety
/// As [`with`].
pub unsafe fn added_to<'a>(env: *const *const c_char) -> Option<[[&'a [u8]; 4]; 3]> {
    let c = carried()?;
    // SAFETY: the caller's.
    let theirs = unsafe { contents(c, env).preload };
    let whole = |v: &'static Kept| [v.get(), &[], &[], &[]];
    Some([preload(c, theirs), whole(&c.libraries), whole(&c.place)])
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use std::ffi::CString;

    pub fn strings(all: &[&str]) -> (Vec<CString>, Vec<*const c_char>) {
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

    const ADDED: [&str; 3] = [
        "DOORBELL_PRELOAD=/proc/1/fd/3:/proc/1/fd/4",
        "DOORBELL_SESSION=/proc/1/fd/5",
        "LD_PRELOAD=/proc/1/fd/3:/proc/1/fd/4",
    ];

    pub fn kept() {
        // SAFETY: numbers.
        static STARTS: Starts = unsafe { core::mem::zeroed() };
        keep(ADDED[0].as_bytes(), ADDED[1].as_bytes(), &STARTS);
    }

    fn built(all: &[&str]) -> Vec<String> {
        kept();
        let (_owned, array) = strings(all);
        // SAFETY: a null-terminated array of strings.
        unsafe { with(Room::Stack, array.as_ptr(), read) }
    }

    #[test]
    fn ours_come_behind_what_is_there_whatever_that_is() {
        assert_eq!(built(&["A=1", "B=2"]), [&["A=1", "B=2"], &ADDED[..]].concat());
        let odd = ["Z=1", "A=1", "A=2", "noequal", "=x", "LD_PRELOAD="];
        let e = built(&odd);
        assert_eq!(e[..6], odd);
        assert_eq!(e[8], "LD_PRELOAD=:/proc/1/fd/3:/proc/1/fd/4");
    }

    #[test]
    fn a_preload_of_the_programs_own_stays_and_is_the_last_one_that_it_has() {
        let e = built(&["LD_PRELOAD=first.so", "LD_PRELOAD=x.so:y.so", "B=2"]);
        assert_eq!(e[..3], ["LD_PRELOAD=first.so", "LD_PRELOAD=x.so:y.so", "B=2"]);
        assert_eq!(e[5], "LD_PRELOAD=x.so:y.so:/proc/1/fd/3:/proc/1/fd/4");
        assert_eq!(e.len(), 6);
    }

    #[test]
    fn nothing_is_added_twice() {
        let once = built(&["A=1", "LD_PRELOAD=x.so"]);
        let all: Vec<&str> = once.iter().map(String::as_str).collect();
        assert_eq!(built(&all), once);
    }

    #[test]
    fn environments_of_every_size() {
        for n in [0, 100, 155, 156, 157, 158, 500, 2042, 2043, 2044, 2045, 5000] {
            let all: Vec<String> = (0..n).map(|i| format!("V{i}={i}")).collect();
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let e = built(&all);
            assert_eq!(e.len(), n + 3, "{n}");
            assert_eq!(e[..n], all[..], "{n}");
        }
        for len in [900, 1000, 4000, 9000, 100_000] {
            let own = format!("LD_PRELOAD={}", "x".repeat(len));
            let e = built(&[&own]);
            assert_eq!(e[3], format!("LD_PRELOAD={}:/proc/1/fd/3:/proc/1/fd/4", "x".repeat(len)), "{len}");
        }
    }

    #[test]
    fn an_environment_that_is_none_is_not_read() {
        let (_owned, mut array) = strings(&["A=1", "B=2"]);
        // SAFETY: for a bad environment, only memory is read that the kernel reports as readable.
        unsafe {
            assert!(is_whole(core::ptr::null()) && is_whole(array.as_ptr()));
            assert!(
                !is_whole(core::ptr::without_provenance(72)) && !is_whole(core::ptr::without_provenance(usize::MAX))
            );
            array[1] = 8 as *const c_char;
            assert!(!is_whole(array.as_ptr()));
            // A string, and an array, that run to the end of what is mapped.
            let rw = libc::PROT_READ | libc::PROT_WRITE;
            let at = sys::mmap(0, 8192, rw, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0).expect("memory");
            sys::munmap(at + 4096, 4096);
            core::ptr::write_bytes(at as *mut u8, b'x', 4096);
            array[1] = (at + 4000) as *const c_char;
            assert!(!is_whole(array.as_ptr()));
            *((at + 4095) as *mut u8) = 0;
            assert!(is_whole(array.as_ptr()));
            let last = (at + 4088) as *mut *const c_char;
            *last = array[0];
            assert!(!is_whole(last));
            sys::munmap(at, 4096);
        }
    }
}
