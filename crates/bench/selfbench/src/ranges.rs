//! The loop `range-loop`: an NVTX range, bare and recorded.
//!
//! The program's side of NVTX is here, as small as possible: a function pointer, which is null unless an injection library has set it. A range is
//! a push and a pop. Bare and recorded ranges alternate in one process.

use crate::{batch, in_turns, print, stay_on};
use anyhow::{Context, bail};
use std::ffi::{c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

/// Functions of the NVTX modules 1 and 5 by number; null until the injection library has set them.
static CORE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
static CORE2: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
/// The same, but never set.
static BARE: [AtomicPtr<c_void>; 16] = [const { AtomicPtr::new(null_mut()) }; 16];
const PUSH_EX: usize = 8;
const PUSH: usize = 9;
const POP: usize = 11;
const REGISTER: usize = 10;

struct Pointers([[AtomicPtr<AtomicPtr<c_void>>; 16]; 2]);
static POINTERS: Pointers = Pointers([const { [const { AtomicPtr::new(null_mut()) }; 16] }; 2]);

unsafe extern "C" fn functions(module: u32, table: *mut *const c_void, n: *mut u32) -> c_int {
    let (of, pointers) = match module {
        1 => (&CORE, &POINTERS.0[0]),
        5 => (&CORE2, &POINTERS.0[1]),
        _ => return 0,
    };
    for (to, at) in pointers.iter().zip(of).skip(1) {
        to.store(std::ptr::from_ref(at).cast_mut(), Ordering::Relaxed);
    }
    // SAFETY: the caller guarantees it.
    unsafe {
        *table = pointers.as_ptr().cast();
        *n = 16;
    }
    1
}

#[repr(C)]
struct Callbacks {
    bytes: usize,
    functions: unsafe extern "C" fn(u32, *mut *const c_void, *mut u32) -> c_int,
}
static CALLBACKS: Callbacks = Callbacks { bytes: size_of::<Callbacks>(), functions };

unsafe extern "C" fn table(number: u32) -> *const c_void {
    if number == 1 { (&raw const CALLBACKS).cast() } else { std::ptr::null() }
}

/// Does the same as NVTX at its first call.
fn connect() -> anyhow::Result<()> {
    // SAFETY: the names are NUL-terminated. The library stays loaded, and its function of that name has this type.
    unsafe {
        let path = libc::getenv(c"NVTX_INJECTION64_PATH".as_ptr());
        if path.is_null() {
            bail!("this is the loop of `doorbell selfbench ranges`, which starts it under the agent");
        }
        let library = libc::dlopen(path, libc::RTLD_LAZY);
        let begin = libc::dlsym(library, c"InitializeInjectionNvtx2".as_ptr());
        if library.is_null() || begin.is_null() {
            bail!("the agent is no injection library of NVTX");
        }
        type Begin = unsafe extern "C" fn(unsafe extern "C" fn(u32) -> *const c_void) -> c_int;
        if std::mem::transmute::<*mut c_void, Begin>(begin)(table) == 0 {
            bail!("the agent records no ranges here");
        }
    }
    Ok(())
}

/// nvtxEventAttributes_t.
#[repr(C)]
struct Attributes {
    version: u16,
    size: u16,
    words: [u32; 5],
    payload: u64,
    message_type: u32,
    message: *mut c_void,
}

const TEXT: *const c_char = c"forward of layer 12".as_ptr();

/// Calls like NVTX's functions: through the pointer if it is set.
#[inline(always)]
fn call<T>(of: &[AtomicPtr<c_void>; 16], i: usize, f: impl FnOnce(*mut c_void) -> T) -> Option<T> {
    let at = of[i].load(Ordering::Relaxed);
    if at.is_null() { None } else { Some(f(at)) }
}

#[inline(never)]
fn texts(of: &[AtomicPtr<c_void>; 16]) -> f64 {
    batch(|| {
        // SAFETY: pointers that are set have the types of the NVTX functions.
        unsafe {
            call(of, PUSH, |f| {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*const c_char) -> c_int>(f)(TEXT)
            });
            call(of, POP, |f| std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(f)());
        }
    })
}

#[inline(never)]
fn registered(handle: *mut c_void) -> f64 {
    let size = size_of::<Attributes>() as u16;
    let a = Attributes { version: 3, size, words: [0; 5], payload: 0, message_type: 3, message: handle };
    batch(|| {
        // SAFETY: as in `texts`.
        unsafe {
            type PushEx = unsafe extern "C" fn(*const Attributes) -> c_int;
            call(&CORE, PUSH_EX, |f| std::mem::transmute::<*mut c_void, PushEx>(f)(&raw const a));
            call(&CORE, POP, |f| std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(f)());
        }
    })
}

/// Measures bare and recorded ranges, `count` of each.
pub fn run(count: u32, cpu: Option<usize>) -> anyhow::Result<()> {
    stay_on(cpu)?;
    connect()?;
    // SAFETY: as in `texts`, and the agent's function of that name has this type.
    let (handle, recording) = unsafe {
        type Register = unsafe extern "C" fn(usize, *const c_char) -> *mut c_void;
        let handle = call(&CORE2, REGISTER, |f| std::mem::transmute::<*mut c_void, Register>(f)(0, TEXT));
        let recording = libc::dlsym(libc::RTLD_DEFAULT, c"doorbell_agent_recording".as_ptr());
        if recording.is_null() {
            bail!("the agent cannot pause");
        }
        (
            handle.context("no text is registered")?,
            std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(recording),
        )
    };
    // The first range maps the ring.
    texts(&CORE);
    texts(&BARE);
    print(in_turns(
        count,
        &mut [
            ("bare_ns", &mut || texts(&BARE)),
            ("text_ns", &mut || texts(&CORE)),
            ("registered_ns", &mut || registered(handle)),
            ("paused_ns", &mut || {
                recording(0);
                let ns = texts(&CORE);
                recording(1);
                ns
            }),
        ],
    ));
    Ok(())
}
