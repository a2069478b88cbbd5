//! Whether every field is where this version of the interpreter has it. Decided once, by the first thread that makes a
//! call from Python.

use super::frames::walk;
use super::loads::{half, word};
use super::versions::{self, NONE, Offsets, SIZE, TYPE};
use super::{CODE_TYPE, DEBUG, GET_VERSION, MAY_GO, READY, function, loads, object, say, seen, thread_state};
use crate::fault;
use crate::process::sys;
use crate::process::thread;
use crate::record;
use crate::signals;
use core::ffi::{CStr, c_char};
use core::sync::atomic::{AtomicU32, Ordering};
use tape::python::{LAYOUT, PythonBody, kind, state};

/// The decision: one of [`state`].
static DECIDED: AtomicU32 = AtomicU32::new(state::NONE);
static MINOR: AtomicU32 = AtomicU32::new(0);

/// The process has attached, maybe as a forked child: an earlier decision is not on its tape.
pub fn attached() {
    if DECIDED.load(Ordering::Relaxed) != state::NONE {
        tell(version());
    }
}

/// Decides, if the calling thread has a frame. True if frames are read from now on.
#[cold]
#[inline(never)]
pub fn decide() -> bool {
    let state = thread_state();
    // (A thread without Python cannot show the layout.)
    if state == 0 {
        return false;
    }
    let _keep = sys::Errno::keep();
    let Some(_one) = seen::lock() else { return false };
    let known = DECIDED.load(Ordering::Relaxed);
    if known == state::READ && MAY_GO.load(Ordering::Relaxed) {
        // The program closed another library.
    } else if known != state::NONE {
        return known == state::READ;
    }
    let text = version();
    let minor = minor(text);
    MINOR.store(minor, Ordering::Relaxed);
    let (decided, offsets) = match judge(minor, text, state) {
        Ok(Some(o)) => (state::READ, Some(o)),
        Ok(None) => return false,
        Err(why) => (why, None),
    };
    DECIDED.store(decided, Ordering::Relaxed);
    let at = offsets.map_or(core::ptr::null_mut(), |o| core::ptr::from_ref(o).cast_mut());
    // ORDERING: Release: the offsets before the pointer to them.
    READY.store(at, Ordering::Release);
    if known == state::NONE {
        tell(text);
    }
    decided == state::READ
}

/// The offsets; `None` if it cannot be decided yet; an error with the reason if there are none.
fn judge(minor: u32, text: &[u8], thread_state: usize) -> Result<Option<&'static Offsets>, u32> {
    let contains = |what: &[u8]| text.windows(what.len()).any(|w| w == what);
    if contains(b"free-threading") {
        return Err(state::FREE_THREADED);
    }
    if function(DEBUG) != 0 {
        return Err(state::DEBUG);
    }
    let o = versions::of(minor).ok_or(state::VERSION)?;
    if !(fault::register(loads::answer) && signals::install()) {
        return Err(state::NO_HANDLER);
    }
    if word(thread_state + usize::from(o.thread_id)) != thread::pointer() || !published_agree(o) {
        return Err(state::LAYOUT);
    }
    let stack = walk(o, thread_state, object(CODE_TYPE));
    if stack.frames().is_empty() {
        // Either the thread has called no Python code, or its frames are elsewhere. In the first case it has no frame at
        // all.
        let top = word(thread_state + usize::from(o.top));
        let top = if o.current != NONE && top != 0 { word(top + usize::from(o.current)) } else { top };
        return if top == 0 { Ok(None) } else { Err(state::LAYOUT) };
    }
    if stack.frames().iter().all(|f| is_code(o, f.code)) { Ok(Some(o)) } else { Err(state::LAYOUT) }
}

/// True if the fields of a code object have the right types.
fn is_code(o: &Offsets, code: usize) -> bool {
    const TYPES: [usize; 3] = [CODE_TYPE, CODE_TYPE + 1, CODE_TYPE + 2];
    let [_, string, bytes] = TYPES.map(object);
    let of = |field: u16| word(code + usize::from(field));
    let is = |field: u16, kind: usize| kind != 0 && word(of(field) + TYPE) == kind;
    let first_line = half(code + usize::from(o.first_line)) as i32;
    let lines = word(of(o.lines) + SIZE);
    is(o.file, string)
        && is(o.name, string)
        && is(o.lines, bytes)
        && (0..1 << 28).contains(&first_line)
        && lines < 1 << 28
}

/// From 3.13 on CPython publishes the offsets of its fields, at the start of `_PyRuntime` (`_Py_DebugOffsets`).
fn published_agree(o: &Offsets) -> bool {
    const RUNTIME: usize = CODE_TYPE + 3;
    const COOKIE: usize = u64::from_le_bytes(*b"xdebugpy") as usize;
    let places = match o.minor {
        ..13 => return true,
        13 => &PUBLISHED_313,
        _ => &PUBLISHED_314,
    };
    let at = object(RUNTIME);
    let agrees = |(place, field): (&usize, &Field)| word(at + place) == usize::from(field(o));
    at != 0 && word(at) == COOKIE && places.iter().zip(&FIELDS).all(agrees)
}

type Field = fn(&Offsets) -> u16;

/// The fields whose offsets are compared, and their places in `_Py_DebugOffsets` of each version.
const FIELDS: [Field; 11] = [
    |o| o.top,
    |o| o.thread_id,
    |o| o.back,
    |o| o.code,
    |o| o.instruction,
    |o| o.owner,
    |o| o.file,
    |o| o.name,
    |o| o.lines,
    |o| o.first_line,
    |o| o.start,
];
const PUBLISHED_313: [usize; 11] = [184, 192, 232, 240, 248, 264, 280, 296, 304, 312, 344];
const PUBLISHED_314: [usize; 11] = [208, 216, 256, 264, 272, 288, 320, 336, 344, 352, 384];

/// The begin of `sys.version`.
fn version() -> &'static [u8] {
    match function(GET_VERSION) {
        0 => &[],
        at => {
            // SAFETY: const char *Py_GetVersion(void): returns a static text.
            unsafe {
                let at = core::mem::transmute::<usize, unsafe extern "C" fn() -> *const c_char>(at)();
                if at.is_null() { &[] } else { CStr::from_ptr(at).to_bytes() }
            }
        }
    }
}

/// The 11 of `3.11.7 (main, ...`; 0 if it is not version 3.
fn minor(text: &[u8]) -> u32 {
    let digits = text.strip_prefix(b"3.").unwrap_or_default().iter().take_while(|b| b.is_ascii_digit());
    digits.take(3).fold(0, |n, b| n * 10 + u32::from(b - b'0'))
}

fn tell(text: &[u8]) {
    let (state, minor) = (DECIDED.load(Ordering::Relaxed), MINOR.load(Ordering::Relaxed));
    say(state);
    let text = text.split(|b| *b == b' ').next().unwrap_or_default();
    let text = text.get(..64).unwrap_or(text);
    record::event(
        kind::PYTHON,
        0,
        sys::tsc(),
        &PythonBody { layout: LAYOUT, state, minor, text: text.len() as u32 },
        text,
        &[],
    );
}
