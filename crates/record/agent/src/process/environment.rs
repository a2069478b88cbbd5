//! The environment at the start: what the recorder put there, and the environment as it would be without that.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};

/// What the recorder puts into the environment; taken out again before the program sees it.
pub const SESSION: &[u8] = b"DOORBELL_SESSION=";
/// The same of `run`: which locks follow which policy.
pub const BOARD: &[u8] = b"DOORBELL_POLICY_BOARD=";
/// The user's: `off` leaves all locks alone.
const SWITCH: &[u8] = b"DOORBELL_LOCK_POLICY=";
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// Our part of that.
pub const OURS: &[u8] = b"DOORBELL_PRELOAD=";
/// There in a shell that `system` or `popen` has started, by its path, and that libc names `sh`.
pub const SHELL: &[u8] = b"DOORBELL_SHELL=";

/// Longest path of a session or board, with its NUL: `/proc/PID/fd/N`.
const PATH: usize = 256;

/// What was found. Copied: the program may write over the strings that it was started with.
struct Found {
    session: [u8; PATH],
    board: [u8; PATH],
    off: bool,
}

struct Kept(UnsafeCell<Found>);
// SAFETY: written by the constructor only, before there are other threads.
unsafe impl Sync for Kept {}
static FOUND: Kept = Kept(UnsafeCell::new(Found { session: [0; PATH], board: [0; PATH], off: false }));

fn found() -> &'static Found {
    // SAFETY: see Kept.
    unsafe { &*FOUND.0.get() }
}

fn path(of: &'static [u8; PATH]) -> Option<&'static CStr> {
    CStr::from_bytes_until_nul(of).ok().filter(|p| !p.is_empty())
}

/// Path of the recorder's session.
pub fn session() -> Option<&'static CStr> {
    path(&found().session)
}

/// Path of the board of policies.
pub fn board() -> Option<&'static CStr> {
    path(&found().board)
}

/// True if the user has switched policies off.
pub fn policies_off() -> bool {
    found().off
}

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

fn variable(entry: *const c_char, name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: an entry of the environment: a string that lives as long as the process.
    let s: &'static [u8] = unsafe { CStr::from_ptr(entry) }.to_bytes();
    s.strip_prefix(name)
}

/// False before libc has set it up.
pub fn is_there() -> bool {
    // SAFETY: libc's variable, read once.
    !unsafe { (&raw const environ).read() }.is_null()
}

/// The entry of the environment that begins so, name, `=` and value. From the constructor.
pub fn entry(begins: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: constructors run before other threads; environ is a null-terminated array of strings that live as long as the
    // process.
    unsafe {
        let mut p = environ;
        while !p.is_null() && !(*p).is_null() {
            let whole: &'static [u8] = CStr::from_ptr(*p).to_bytes();
            if whole.starts_with(begins) {
                return Some(whole);
            }
            p = p.add(1);
        }
    }
    None
}

/// Keeps what the recorder has put there. From the constructor.
pub fn read() {
    // SAFETY: constructors run before other threads.
    let f = unsafe { &mut *FOUND.0.get() };
    for (name, to) in [(SESSION, &mut f.session), (BOARD, &mut f.board)] {
        if let Some(value) = entry(name).and_then(|e| e.get(name.len()..))
            && let Some(room) = to.get_mut(..value.len()).filter(|r| r.len() < PATH)
        {
            room.copy_from_slice(value);
        }
    }
    f.off = entry(SWITCH).is_some_and(|e| e.get(SWITCH.len()..) == Some(b"off"));
}

/// Takes out again what the recorder has put there: children and what the program prints of its environment are as without
/// us. The array keeps its length and its end, for behind that lies the auxiliary vector, which Go looks for there: what is
/// left moves to the end, `environ` to where that begins, and who starts at the arguments finds empty strings first. From the
/// constructor.
///
/// An LD_PRELOAD that ends with our libraries was put behind the program's own, if it has one. A shell between us and the
/// program has made one of both: then ours is cut off.
pub fn restore() {
    let ours = entry(OURS).and_then(|e| e.get(OURS.len()..)).unwrap_or(&[]);
    // SAFETY: as in `read`; entries are moved within the array, and LD_PRELOAD begins later in its own string.
    unsafe {
        let mut own = false;
        let mut from = environ;
        while !(*from).is_null() {
            own |= variable(*from, PRELOAD).is_some_and(|v| ours.is_empty() || !v.ends_with(ours));
            from = from.add(1);
        }
        let mut to = from;
        while from != environ {
            from = from.sub(1);
            let e = *from;
            if [SESSION, BOARD, OURS, SHELL].iter().any(|name| variable(e, name).is_some()) {
                continue;
            }
            if let Some(rest) = variable(e, PRELOAD).filter(|_| !ours.is_empty()).and_then(|v| v.strip_suffix(ours)) {
                let Some(theirs) = rest.strip_suffix(b":").filter(|_| !own) else { continue };
                *e.add(PRELOAD.len() + theirs.len()) = 0;
            }
            to = to.sub(1);
            *to = e;
        }
        while from != to {
            *from = c"".as_ptr().cast_mut();
            from = from.add(1);
        }
        environ = to;
    }
}

/// True for a shell that is to find itself named as libc names it.
pub fn is_shell() -> bool {
    entry(SHELL).is_some()
}

/// Names a program by the last part of its path, as its first argument. From the constructor.
///
/// # Safety
/// `args` is the array that the program begins with.
pub unsafe fn shorten_name(args: *mut *mut c_char) {
    unsafe extern "C" {
        static mut program_invocation_name: *mut c_char;
    }
    // SAFETY: the caller's: the first entry is a string or null; libc's variable is a pointer into the same string.
    unsafe {
        if args.is_null() || (*args).is_null() {
            return;
        }
        let name = CStr::from_ptr(*args).to_bytes();
        let short = name.iter().rposition(|&b| b == b'/').map_or(0, |n| n + 1);
        *args = (*args).add(short);
        program_invocation_name = *args;
    }
}
