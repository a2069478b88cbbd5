//! The environment at the start: the recorder's variables, and the environment without them.

use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char};
use tape::fix::Fixes;

/// Variables that the recorder sets; removed before the program sees them.
pub const SESSION: &[u8] = b"DOORBELL_SESSION=";
/// The same for `run`: which locks follow which policy.
pub const BOARD: &[u8] = b"DOORBELL_POLICY_BOARD=";
/// Set by the user: `off` leaves all locks alone.
const SWITCH: &[u8] = b"DOORBELL_LOCK_POLICY=";
/// Set by the user: `off` passes all calls on. Without doorbell: the fixes.
const FIX_SWITCH: &[u8] = b"DOORBELL_FIX=";
pub const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// The agent's part of LD_PRELOAD.
pub const OURS: &[u8] = b"DOORBELL_PRELOAD=";
/// Set in a shell that `system` or `popen` started by its path, and that libc names `sh`.
pub const SHELL: &[u8] = b"DOORBELL_SHELL=";

/// Longest path of a session or board, with its NUL: `/proc/PID/fd/N`.
const PATH: usize = 256;

/// The values found, copied: the program may overwrite the strings that it was started with.
struct Found {
    session: [u8; PATH],
    board: [u8; PATH],
    off: bool,
    fixes_off: bool,
}

struct Kept(UnsafeCell<Found>);
// SAFETY: written by the constructor only, before there are other threads.
unsafe impl Sync for Kept {}
static FOUND: Kept =
    Kept(UnsafeCell::new(Found { session: [0; PATH], board: [0; PATH], off: false, fixes_off: false }));

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

/// True if the user has switched fixes off.
pub fn fixes_off() -> bool {
    found().fixes_off
}

/// The fixes that the environment asks for; or its list, in which a name is none.
pub fn fixes() -> Result<u32, &'static [u8]> {
    match value(FIX_SWITCH) {
        None | Some(b"off" | b"") => Ok(0),
        Some(list) => Fixes::bits(list).map_err(|_| list),
    }
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

/// The environment's entry with this beginning: name, `=` and value. Called by the constructor.
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

fn value(name: &[u8]) -> Option<&'static [u8]> {
    entry(name)?.get(name.len()..)
}

/// Keeps the recorder's variables. Called by the constructor.
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
    (f.off, f.fixes_off) = (value(SWITCH) == Some(b"off"), value(FIX_SWITCH) == Some(b"off"));
}

/// Removes the recorder's variables, so that children, and anything the program prints of its environment, are as without
/// the agent. The array keeps its length and its end, because Go looks for the auxiliary vector after it. The remaining
/// entries move to the end and `environ` points to the first of them; code that starts at the arguments finds empty
/// strings first. Called by the constructor.
///
/// An LD_PRELOAD entry that ends with the agent's libraries follows the program's own entry, if it has one, and is
/// removed. If a shell in between has made one entry of both, only the agent's part is cut off.
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

/// True for a shell that must see itself under libc's name for it.
pub fn is_shell() -> bool {
    entry(SHELL).is_some()
}

/// Replaces a program's first argument by the last part of its path. Called by the constructor.
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
