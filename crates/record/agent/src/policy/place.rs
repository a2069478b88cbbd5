//! The module that contains an address, as rules name it. Uses the loader's only function that takes no lock
//! (`_dl_find_object`, glibc 2.35). Without it, no rule matches.

use crate::process::symbol;
use crate::process::sys::syscall6;
use core::cell::UnsafeCell;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use tape::policy::{Board, NAME};

/// `struct dl_find_object` (dlfcn.h).
#[repr(C)]
struct Found {
    flags: u64,
    start: usize,
    end: usize,
    map: *const Map,
    frame: *const c_void,
    reserved: [u64; 7],
}

/// `struct link_map`, its public part (link.h).
#[repr(C)]
struct Map {
    addr: usize,
    name: *const c_char,
}

static FIND: AtomicUsize = AtomicUsize::new(0);

struct Program(UnsafeCell<[u8; NAME]>);
// SAFETY: written by `look_up` only, before any reader.
unsafe impl Sync for Program {}
/// The program's own name: the loader has no name for it.
static PROGRAM: Program = Program(UnsafeCell::new([0; NAME]));

/// Called by the constructor.
pub fn look_up() {
    FIND.store(symbol::next(c"_dl_find_object"), Ordering::Relaxed);
    let mut path = [0u8; 4096];
    let (name, to) = (c"/proc/self/exe".as_ptr() as usize, path.as_mut_ptr() as usize);
    // SAFETY: a NUL-terminated path, and a buffer with its length.
    let n = unsafe { syscall6(libc::SYS_readlink, name, to, path.len(), 0, 0, 0) }.max(0) as usize;
    // SAFETY: no thread reads it yet.
    unsafe { *PROGRAM.0.get() = Board::module(path.get(..n).unwrap_or(&[])) };
}

/// Module and offset of an address; `None` outside all modules.
pub fn of(addr: usize) -> Option<([u8; NAME], u64)> {
    let find = FIND.load(Ordering::Relaxed);
    if find == 0 || addr == 0 {
        return None;
    }
    let mut found = core::mem::MaybeUninit::<Found>::zeroed();
    // SAFETY: the function has this type. It writes the struct if it returns 0, and the module stays loaded while its
    // code or its lock is in use.
    unsafe {
        let find: unsafe extern "C" fn(*mut c_void, *mut Found) -> c_int = core::mem::transmute(find);
        if find(addr as *mut c_void, found.as_mut_ptr()) != 0 {
            return None;
        }
        let found = found.assume_init();
        let name =
            if found.map.is_null() || (*found.map).name.is_null() { c"" } else { CStr::from_ptr((*found.map).name) };
        let module = if name.is_empty() { *PROGRAM.0.get() } else { Board::module(name.to_bytes()) };
        Some((module, (addr - found.start) as u64))
    }
}
