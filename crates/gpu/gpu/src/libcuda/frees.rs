//! Hooks in front of the libcuda functions that free memory, unload code and move local memory.
//!
//! CUDA frees a small block without a driver call, so hooks in its import slots do not see that. But these functions are
//! exported. After the exchange, lookups (dlsym, the loader, cuGetProcAddress) return doorbell's hooks, and slots that were
//! bound before are bound again. Each hook announces the free, then makes the call. So pins of that memory end, and copies
//! in flight are waited for, before CUDA can give the memory to another owner.

use super::{theirs, watched};
use crate::exports::{self, Export};
use crate::watched::Watched;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// `CU_POINTER_ATTRIBUTE_MEMORY_TYPE`.
const MEMORY_TYPE: c_int = 2;
/// `CU_POINTER_ATTRIBUTE_RANGE_START_ADDR`, `CU_POINTER_ATTRIBUTE_RANGE_SIZE`.
const RANGE_START: c_int = 11;
const RANGE_SIZE: c_int = 12;
/// cuMemFree's first version in the driver API has 32-bit addresses; cuGetProcAddress returns the second from CUDA 3.2 on.
const SECOND_VERSION: c_int = 3020;

type Free = unsafe extern "C" fn(u64) -> c_int;
type FreeAsync = unsafe extern "C" fn(u64, *mut c_void) -> c_int;
type Attribute = unsafe extern "C" fn(*mut c_void, c_int, u64) -> c_int;
type SetLimit = unsafe extern "C" fn(c_int, usize) -> c_int;
type GetLimit = unsafe extern "C" fn(*mut usize, c_int) -> c_int;
type Lookup = unsafe extern "C" fn(*const c_char, *mut *mut c_void, c_int, u64, *mut c_void) -> c_int;

/// `CU_LIMIT_STACK_SIZE`: bytes of local memory that each thread has for its stack.
const STACK_SIZE: c_int = 0;

static ATTRIBUTE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FREE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FREE_HOST: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static UNREGISTER: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FREE_ASYNC: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static FREE_ASYNC_PTSZ: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static UNLOAD_MODULE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static UNLOAD_LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static SET_LIMIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static GET_LIMIT: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static LOOKUP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static LOOKUP_2: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn exported() -> [Export; 10] {
    [
        Export { name: c"cuMemFree_v2", ours: free as *mut c_void, theirs: &FREE },
        Export { name: c"cuMemFreeHost", ours: free_host as *mut c_void, theirs: &FREE_HOST },
        Export { name: c"cuMemHostUnregister", ours: unregister as *mut c_void, theirs: &UNREGISTER },
        Export { name: c"cuMemFreeAsync", ours: free_async as *mut c_void, theirs: &FREE_ASYNC },
        Export { name: c"cuMemFreeAsync_ptsz", ours: free_async_ptsz as *mut c_void, theirs: &FREE_ASYNC_PTSZ },
        Export { name: c"cuModuleUnload", ours: unload_module as *mut c_void, theirs: &UNLOAD_MODULE },
        Export { name: c"cuLibraryUnload", ours: unload_library as *mut c_void, theirs: &UNLOAD_LIBRARY },
        Export { name: c"cuCtxSetLimit", ours: set_limit as *mut c_void, theirs: &SET_LIMIT },
        Export { name: c"cuGetProcAddress", ours: lookup as *mut c_void, theirs: &LOOKUP },
        Export { name: c"cuGetProcAddress_v2", ours: lookup_2 as *mut c_void, theirs: &LOOKUP_2 },
    ]
}

/// Installs the hooks. Returns the names of those that the library has.
///
/// # Safety
/// `handle` is dlopen's, of libcuda or a stand-in whose functions have its signatures; it is never closed.
pub(super) unsafe fn exchange(handle: *mut c_void, watched: &'static Watched) -> Result<Vec<&'static CStr>, String> {
    // SAFETY: a lookup.
    let attribute = unsafe { libc::dlsym(handle, c"cuPointerGetAttribute".as_ptr()) };
    ATTRIBUTE.store(attribute, Ordering::Release);
    // SAFETY: a lookup.
    GET_LIMIT.store(unsafe { libc::dlsym(handle, c"cuCtxGetLimit".as_ptr()) }, Ordering::Release);
    super::tell(watched);
    // SAFETY: the caller's promise; each hook has its namesake's signature and makes its call.
    unsafe { exports::exchange(handle, &exported()) }
}

/// Before these frees CUDA waits for all its own work, so wait for doorbell's launches, too. (For frees in a stream's
/// order the program must order its work.)
fn after_launches(free: impl FnOnce() -> c_int) -> c_int {
    match watched() {
        Some(watched) => watched.after_launches(free),
        None => free(),
    }
}

/// Whether CUDA identifies `address` as memory that the program got from it; `None` without a libcuda to query.
pub(super) fn knows(address: u64) -> Option<bool> {
    if ATTRIBUTE.load(Ordering::Acquire).is_null() {
        return None;
    }
    // SAFETY: cuPointerGetAttribute.
    let ask = unsafe { theirs::<Attribute>(&ATTRIBUTE) };
    let mut kind = 0u64;
    // SAFETY: writes a `CUmemorytype`, which is shorter.
    Some(unsafe { ask((&raw mut kind).cast(), MEMORY_TYPE, address) } == 0 && kind != 0)
}

/// Announces that the allocation which contains `address` is about to be freed.
fn tell(address: u64) {
    let Some(watched) = watched() else { return };
    if address == 0 || !watched.has_pins() {
        return;
    }
    let (mut base, mut bytes) = (0u64, 0u64);
    if !ATTRIBUTE.load(Ordering::Acquire).is_null() {
        // SAFETY: cuPointerGetAttribute, which writes one address or size.
        let ask = unsafe { theirs::<Attribute>(&ATTRIBUTE) };
        // SAFETY: as above; for an unknown address it returns an error and writes no result.
        let known = unsafe {
            ask((&raw mut base).cast(), RANGE_START, address) == 0
                && ask((&raw mut bytes).cast(), RANGE_SIZE, address) == 0
        };
        if !known {
            (base, bytes) = (0, 0);
        }
    }
    // CUDA will not free memory that it does not know. A single byte there is enough to end its pin.
    let (base, bytes) = if bytes == 0 { (address, 1) } else { (base, bytes) };
    watched.frees(base, bytes);
}

unsafe extern "C" fn free(address: u64) -> c_int {
    tell(address);
    // SAFETY: the caller's call, passed on unchanged.
    after_launches(|| unsafe { theirs::<Free>(&FREE)(address) })
}

unsafe extern "C" fn free_host(address: u64) -> c_int {
    tell(address);
    // SAFETY: as above; pointers and addresses are passed in the same way.
    after_launches(|| unsafe { theirs::<Free>(&FREE_HOST)(address) })
}

unsafe extern "C" fn unregister(address: u64) -> c_int {
    tell(address);
    // SAFETY: as above.
    after_launches(|| unsafe { theirs::<Free>(&UNREGISTER)(address) })
}

unsafe extern "C" fn free_async(address: u64, stream: *mut c_void) -> c_int {
    tell(address);
    // SAFETY: as above.
    unsafe { theirs::<FreeAsync>(&FREE_ASYNC)(address, stream) }
}

unsafe extern "C" fn free_async_ptsz(address: u64, stream: *mut c_void) -> c_int {
    tell(address);
    // SAFETY: as above.
    unsafe { theirs::<FreeAsync>(&FREE_ASYNC_PTSZ)(address, stream) }
}

/// Unloads the code of kernels that doorbell's launches may still run.
unsafe extern "C" fn unload_module(module: u64) -> c_int {
    // SAFETY: as above; handles and addresses are passed in the same way.
    after_launches(|| unsafe { theirs::<Free>(&UNLOAD_MODULE)(module) })
}

unsafe extern "C" fn unload_library(library: u64) -> c_int {
    // SAFETY: as above.
    after_launches(|| unsafe { theirs::<Free>(&UNLOAD_LIBRARY)(library) })
}

/// Another stack size moves local memory, also for the kernels of doorbell's launches. Launches that were prepared before
/// end, and are not made again.
unsafe extern "C" fn set_limit(limit: c_int, value: usize) -> c_int {
    let changes = limit == STACK_SIZE && {
        let mut now = 0;
        // SAFETY: cuCtxGetLimit, which writes one size.
        let known = !GET_LIMIT.load(Ordering::Acquire).is_null()
            && unsafe { theirs::<GetLimit>(&GET_LIMIT)(&mut now, limit) } == 0;
        !known || now != value
    };
    if let (true, Some(watched)) = (changes, watched()) {
        watched.local_memory_moves();
    }
    // SAFETY: as above.
    unsafe { theirs::<SetLimit>(&SET_LIMIT)(limit, value) }
}

/// Both versions of cuGetProcAddress; the first has no fifth argument and ignores it.
unsafe extern "C" fn lookup(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    why: *mut c_void,
) -> c_int {
    // SAFETY: the caller's call.
    unsafe { look_up(&LOOKUP, name, to, version, flags, why) }
}

unsafe extern "C" fn lookup_2(
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    why: *mut c_void,
) -> c_int {
    // SAFETY: the caller's call.
    unsafe { look_up(&LOOKUP_2, name, to, version, flags, why) }
}

/// Makes the call, and returns doorbell's hook in place of a hooked function.
///
/// # Safety
/// As cuGetProcAddress.
unsafe fn look_up(
    real: &AtomicPtr<c_void>,
    name: *const c_char,
    to: *mut *mut c_void,
    version: c_int,
    flags: u64,
    why: *mut c_void,
) -> c_int {
    /// `CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM`
    const PER_THREAD: u64 = 2;
    // SAFETY: the caller's call, passed on unchanged; afterwards the driver has read the name and written the address.
    unsafe {
        let status = theirs::<Lookup>(real)(name, to, version, flags, why);
        if status == 0 && !name.is_null() && !to.is_null() && !(*to).is_null() {
            let per_thread = flags & PER_THREAD != 0;
            let meant = match CStr::from_ptr(name).to_bytes() {
                b"cuMemFree" if version >= SECOND_VERSION => c"cuMemFree_v2",
                b"cuMemFreeAsync" if per_thread => c"cuMemFreeAsync_ptsz",
                b"cuGetProcAddress" if version >= 12000 => c"cuGetProcAddress_v2",
                _ => CStr::from_ptr(name),
            };
            if let Some(export) = exported().into_iter().find(|export| export.name == meant)
                && *to != export.ours
            {
                // cuGetProcAddress may return another function than the exported one. From now on the hook calls that one.
                export.theirs.store(*to, Ordering::Release);
                *to = export.ours;
            }
        }
        status
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lease::{Lease, Of};
    use crate::pins::Row;
    use std::ffi::CString;
    use std::process::Command;

    /// A libcuda that remembers the last free, has one allocation of 0x100 bytes at 0x1000, and keeps its functions in a
    /// table like the real one.
    const LIBCUDA: &str = r#"
        #include <string.h>
        typedef unsigned long long u64;
        u64 last;
        int cuMemFree_v2(u64 at) { last = at; return at == 7 ? 1 : 0; }
        int cuMemFreeHost(void *at) { last = (u64)at; return 0; }
        int cuMemFreeAsync(u64 at, void *stream) { last = at; return (int)(u64)stream; }
        int cuPointerGetAttribute(void *to, int what, u64 at) {
            if (at < 0x1000 || at >= 0x1100) return 1;
            *(u64 *)to = what == 11 ? 0x1000 : 0x100;
            return 0;
        }
        int cuGetProcAddress_v2(const char *name, void **to, int version, u64 flags, void *why) {
            *to = 0;
            if (!strcmp(name, "cuMemFree")) *to = (void *)cuMemFree_v2;
            if (!strcmp(name, "cuMemFreeAsync")) *to = (void *)cuMemFreeAsync;
            if (!strcmp(name, "cuGetProcAddress")) *to = (void *)cuGetProcAddress_v2;
            return *to ? 0 : 500;
        }
    "#;
    /// A library that was linked to it, and bound, before the exchange.
    const USER: &str =
        "typedef unsigned long long u64; int cuMemFree_v2(u64); int user(u64 at) { return cuMemFree_v2(at); }";

    fn symbol(handle: *mut c_void, name: &CStr) -> *mut c_void {
        // SAFETY: a lookup.
        let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
        assert!(!found.is_null(), "{name:?}");
        found
    }

    #[test]
    fn every_way_to_a_free_ends_the_pins_of_what_it_frees() {
        let folder = std::env::temp_dir().join(format!("doorbell-frees-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let build = |name: &str, source: &str, more: &[&str]| {
            let (text, built) = (folder.join(format!("{name}.c")), folder.join(format!("lib{name}.so")));
            std::fs::write(&text, source).unwrap();
            let mut cc = Command::new("cc");
            cc.args(["-shared", "-fPIC", "-O1", "-o"]).arg(&built).arg(&text).arg("-L").arg(&folder).args(more);
            cc.arg(format!("-Wl,-rpath,{}", folder.display()));
            assert!(cc.status().unwrap().success(), "{cc:?}");
            let path = CString::new(built.as_os_str().as_encoded_bytes()).unwrap();
            // SAFETY: a library without initialisers.
            let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW) };
            assert!(!handle.is_null());
            handle
        };
        let library = build("freesstandin", LIBCUDA, &[]);
        let user = build("freesuser", USER, &["-lfreesstandin", "-Wl,-z,now,-z,relro"]);
        std::fs::remove_dir_all(&folder).unwrap();
        let watched: &'static Watched = Box::leak(Box::default());
        // SAFETY: never closed, and the signatures are libcuda's.
        let exchanged = unsafe { exchange(library, watched) }.unwrap();
        assert_eq!(exchanged, [c"cuMemFree_v2", c"cuMemFreeHost", c"cuMemFreeAsync", c"cuGetProcAddress_v2"]);
        // SAFETY: a second call makes no change.
        assert!(unsafe { exchange(library, watched) }.unwrap().is_empty());

        let pin = |va, length| {
            watched.pins.add(Row {
                id: 0,
                space: 0,
                va,
                length,
                gpu: [0; 16],
                pieces: Vec::new(),
                witness: None,
                lease: Lease::new(Of::Pin),
            })
        };
        let neighbour = pin(0x1100, 0x10);
        // SAFETY: the stand-in's functions, and its word.
        unsafe {
            let last = symbol(library, c"last").cast::<u64>();
            let lookup: Lookup = std::mem::transmute(symbol(library, c"cuGetProcAddress_v2"));
            let found = |lookup: Lookup, name: &CStr| {
                let mut at = std::ptr::null_mut();
                assert_eq!(lookup(name.as_ptr(), &raw mut at, 12000, 0, std::ptr::null_mut()), 0, "{name:?}");
                at
            };
            let again: Lookup = std::mem::transmute(found(lookup, c"cuGetProcAddress"));
            let ways: [(&str, *mut c_void); 6] = [
                ("dlsym", symbol(library, c"cuMemFree_v2")),
                ("bound before", symbol(user, c"user")),
                ("cuGetProcAddress", found(lookup, c"cuMemFree")),
                ("cuGetProcAddress that cuGetProcAddress gave", found(again, c"cuMemFree")),
                ("host", symbol(library, c"cuMemFreeHost")),
                ("asynchronous", found(lookup, c"cuMemFreeAsync")),
            ];
            for (way, function) in ways {
                // A pin in the middle of an allocation, which is freed by its first address.
                pin(0x1080, 0x20);
                let before = watched.generation();
                let free: FreeAsync = std::mem::transmute(function);
                assert_eq!(free(0x1000, std::ptr::null_mut()), 0, "{way}");
                assert_eq!((*last, watched.pins.count()), (0x1000, 1), "{way}: freed, and the pin is gone");
                assert!(watched.generation() > before, "{way}");
            }
            // The hook returns libcuda's result, and unknown addresses end no pin.
            let free: Free = std::mem::transmute(symbol(library, c"cuMemFree_v2"));
            assert_eq!((free(7), free(0)), (1, 0));
        }
        assert_eq!(watched.pins.count(), 1);
        watched.pins.remove(neighbour);
    }
}
