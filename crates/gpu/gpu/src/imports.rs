//! The import slots of a loaded library: the pointers through which it calls other libraries' functions.
//!
//! A dynamic library calls `ioctl` through a pointer that the loader fills in (ELF gABI: DT_JMPREL, DT_RELA with
//! relocation types JUMP_SLOT and GLOB_DAT of the x86-64 psABI). Replacing that pointer needs no preload and no change of code.

use crate::elf::{self, Library};
use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

/// A replacement for a function, and the place where the original is kept.
pub(crate) struct Exchange {
    pub name: &'static CStr,
    pub ours: *mut c_void,
    /// Receives the slot's former value; written before the slot is.
    pub theirs: &'static AtomicPtr<c_void>,
}

/// Replaces slots of the library of `handle`. Returns how many were found for each.
///
/// # Safety
/// `handle` is dlopen's, of a library that is never closed, none of whose code runs at this moment. Each replacement
/// has the signature of its original and may be called from any thread from now on.
pub(crate) unsafe fn exchange(handle: *mut c_void, exchanges: &[Exchange]) -> Result<Vec<usize>, String> {
    // SAFETY: the caller's promise.
    let library = unsafe { Library::of(handle)? };
    let mut found = vec![0; exchanges.len()];
    let mut slots = Vec::new();
    // SAFETY: the library is loaded.
    unsafe {
        library.slots(|slot| slots.extend(exchanges.iter().position(|e| e.name == slot.name).map(|i| (i, slot.at))));
    }
    for (i, at) in slots {
        // SAFETY: a pointer-sized slot of this library.
        unsafe { put(library.base(), at, &exchanges[i])? };
        found[i] += 1;
    }
    Ok(found)
}

/// # Safety
/// `at` is a slot for the function that `exchange` names.
unsafe fn put(base: u64, at: u64, exchange: &Exchange) -> Result<(), String> {
    // SAFETY: a slot of a loaded library. It stays writable, like slots that are bound late.
    unsafe {
        elf::writable(at)?;
        let slot = &*(at as *const AtomicPtr<c_void>);
        let theirs = slot.load(Ordering::Relaxed);
        if theirs != exchange.ours {
            // An unbound slot points to the library's own resolver, which would find the same function as dlsym. For a
            // bound slot, the function in it counts as the real one. It may belong to another copy of this code, in
            // another library of the process, which also has to see the calls.
            let real = if lies_in(base, theirs) {
                libc::dlsym(libc::RTLD_DEFAULT, exchange.name.as_ptr())
            } else {
                std::ptr::null_mut()
            };
            exchange.theirs.store(if real.is_null() { theirs } else { real }, Ordering::Release);
            // ORDERING: a thread that calls through the slot finds the real function.
            slot.store(exchange.ours, Ordering::Release);
        }
    }
    Ok(())
}

/// Whether an address is within the library at `base`.
fn lies_in(base: u64, address: *mut c_void) -> bool {
    // SAFETY: a struct of pointers, for which zeros are good.
    let mut found: libc::Dl_info = unsafe { std::mem::zeroed() };
    // SAFETY: dladdr accepts any address.
    unsafe { libc::dladdr(address, &mut found) != 0 && found.dli_fbase as u64 == base }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CString;
    use std::path::Path;
    use std::process::Command;

    static THEIRS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

    extern "C" fn ours() -> libc::pid_t {
        let theirs = THEIRS.load(Ordering::Acquire);
        // SAFETY: getpid, which the slot held.
        let theirs = unsafe { std::mem::transmute::<*mut c_void, extern "C" fn() -> libc::pid_t>(theirs) };
        -theirs()
    }

    /// Builds a library that calls getpid through a slot, linked with these flags. Returns dlopen's handle.
    fn library(name: &str, flags: &[&str]) -> *mut c_void {
        // CARGO_TARGET_TMPDIR is not set for unit tests.
        let folder = std::env::temp_dir().join(format!("doorbell-slots-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (source, built) = (folder.join(format!("{name}.c")), folder.join(format!("{name}.so")));
        std::fs::write(&source, "#include <unistd.h>\nint call(void) { return getpid(); }\n").unwrap();
        let mut cc = Command::new("cc");
        cc.args(["-shared", "-fPIC", "-O1"]).args(flags).arg("-o").arg(&built).arg(&source);
        assert!(cc.status().unwrap().success(), "{cc:?}");
        let handle = open(&built);
        std::fs::remove_dir_all(&folder).unwrap();
        handle
    }

    fn open(path: &Path) -> *mut c_void {
        let path = CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: a library without initialisers.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_LAZY) };
        assert!(!handle.is_null());
        handle
    }

    fn call(handle: *mut c_void) -> i32 {
        // SAFETY: `call` of the library above.
        unsafe {
            let call = libc::dlsym(handle, c"call".as_ptr());
            std::mem::transmute::<*mut c_void, extern "C" fn() -> i32>(call)()
        }
    }

    #[test]
    fn calls_of_the_library_come_to_us_and_go_on() {
        let process = std::process::id() as i32;
        for (name, flags) in [
            ("lazy", ["-Wl,-z,lazy", "-Wl,-z,norelro"]),
            ("now", ["-Wl,-z,now", "-Wl,-z,relro"]),
            ("without-plt", ["-fno-plt", "-Wl,-z,relro"]),
        ] {
            let handle = library(name, &flags);
            // A lazy slot is exchanged before it was ever bound.
            if name != "lazy" {
                assert_eq!(call(handle), process, "{name}");
            }
            let exchanges = || {
                [
                    Exchange { name: c"getpid", ours: ours as *mut c_void, theirs: &THEIRS },
                    Exchange { name: c"not_imported", ours: ours as *mut c_void, theirs: &THEIRS },
                ]
            };
            for _ in 0..2 {
                // SAFETY: never closed, no thread runs its code, and the signatures agree.
                let found = unsafe { exchange(handle, &exchanges()) }.unwrap();
                assert!(found[0] >= 1 && found[1] == 0, "{name}: {found:?}");
                assert_eq!(call(handle), -process, "{name}: ours, which calls the real one, even when exchanged twice");
            }
            // SAFETY: getpid of this test itself does not go through the library.
            assert_eq!(unsafe { libc::getpid() }, process);
        }
    }
}
