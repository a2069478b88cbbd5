//! The constructor and destructor of the preloaded library.

use crate::exec::{self, environment};
use crate::{cold, policy, record};
use core::ffi::{CStr, c_char};

/// What the recorder puts into the environment; taken out again before the program sees it.
const REGION: &[u8] = b"DOORBELL_REGION=";
/// The same of `run`: which locks follow which policy.
const BOARD: &[u8] = b"DOORBELL_POLICY_BOARD=";
/// The user's: `off` leaves all locks alone.
const SWITCH: &[u8] = b"DOORBELL_LOCK_POLICY=";
const PRELOAD: &[u8] = b"LD_PRELOAD=";
/// What LD_PRELOAD was before the recorder put us in front.
const WAS: &[u8] = b"DOORBELL_PRELOAD_WAS=";

unsafe extern "C" {
    static mut environ: *mut *mut c_char;
}

fn variable(entry: *const c_char, name: &[u8]) -> Option<&'static [u8]> {
    // SAFETY: an entry of the environment: a string that lives as long as the process.
    let s: &'static [u8] = unsafe { CStr::from_ptr(entry) }.to_bytes();
    s.strip_prefix(name)
}

/// Keeps what started programs need to be followed, as long as it stands in the environment.
fn keep(was: &[u8]) {
    let (mut preload, mut board) = (None, None);
    // SAFETY: as in `start`.
    unsafe {
        let mut p = environ;
        while !p.is_null() && !(*p).is_null() {
            preload = preload.or(variable(*p, PRELOAD));
            board = board.or(variable(*p, BOARD).map(|_| CStr::from_ptr(*p).to_bytes()));
            p = p.add(1);
        }
    }
    let (Some(preload), Some(board)) = (preload, board) else { return };
    let ours = preload.strip_suffix(was).unwrap_or(preload);
    environment::keep(ours.strip_suffix(b":").unwrap_or(ours), &[board]);
}

extern "C" fn start() {
    let mut region = None;
    let mut board = None;
    let mut off = false;
    let mut was = None;
    // SAFETY: constructors run before other threads; environ is a null-terminated array.
    unsafe {
        let mut p = environ;
        while !p.is_null() && !(*p).is_null() {
            region = region.or(variable(*p, REGION));
            board = board.or(variable(*p, BOARD));
            off |= variable(*p, SWITCH) == Some(b"off");
            was = was.or(variable(*p, WAS));
            p = p.add(1);
        }
    }
    // The value of an environment entry is NUL-terminated where it ends.
    // Not attached: nothing is recorded or changed, and the environment is put right all the same.
    exec::look_up();
    match (region, board) {
        (Some(region), _) => {
            let _ = record::attach(region.as_ptr().cast());
        }
        (None, Some(board)) => {
            keep(was.unwrap_or(&[]));
            let _ = policy::attach(board.as_ptr().cast(), off);
        }
        (None, None) => return,
    }
    // Children and what the program prints of its environment are as without us. The array keeps its length and its end, for
    // behind that lies the auxiliary vector, which Go looks for there: what is left moves to the end, `environ` to where
    // that begins, and who starts at the arguments finds empty strings first.
    // SAFETY: as above; entries are moved within the array, and LD_PRELOAD is shortened in place.
    unsafe {
        let mut from = environ;
        while !(*from).is_null() {
            from = from.add(1);
        }
        let mut to = from;
        while from != environ {
            from = from.sub(1);
            let e = *from;
            if variable(e, REGION).is_some() || variable(e, BOARD).is_some() || variable(e, WAS).is_some() {
                continue;
            }
            if let Some(value) = variable(e, PRELOAD) {
                let Some(was) = was.filter(|w| !w.is_empty() && w.len() <= value.len()) else { continue };
                let at = e.add(PRELOAD.len());
                core::ptr::copy(was.as_ptr().cast(), at, was.len());
                *at.add(was.len()) = 0;
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

extern "C" fn finish() {
    cold::finish();
}

#[used]
#[unsafe(link_section = ".init_array")]
static START: extern "C" fn() = start;

#[used]
#[unsafe(link_section = ".fini_array")]
static FINISH: extern "C" fn() = finish;
