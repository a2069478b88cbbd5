//! Watches this process's libcuda: its driver calls show its handles, and the memory at each GPU address.
//!
//! libcuda's import slots are replaced before it is initialised. Each call is passed on, and its effect is recorded in an
//! [`ObjectGraph`](rm::graph::ObjectGraph). With the handles found there, doorbell's own channel enters CUDA's address
//! space, and no code of libcuda runs when it submits. CUDA frees memory with a driver call (`hooks`) or without one
//! (`frees`). Before each free, pins of the memory end, and doorbell's submissions in flight are waited for.

mod frees;
mod hooks;

use crate::device::Entry;
use crate::error::Error;
use crate::imports::exchange;
use crate::space::AddressSpace;
use crate::watched::Watched;
use hooks::exchanges;
use rm::driver::{Driver, Libc};
use std::ffi::{CStr, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, OnceLock};

/// Where libcuda is searched; the first is found through LD_LIBRARY_PATH and the linker's cache.
const PLACES: [&CStr; 3] = [c"libcuda.so.1", c"/usr/local/nvidia/lib64/libcuda.so.1", c"/usr/lib/wsl/lib/libcuda.so.1"];
/// libcuda, loaded and watched.
#[derive(Clone, Copy, Debug)]
pub struct Libcuda {
    watched: &'static Watched,
}

static WATCHED: OnceLock<Result<&'static Watched, String>> = OnceLock::new();

impl Libcuda {
    /// Whether CUDA identifies `address` as memory that it gave to the program, or that was registered; `None` without a
    /// watched libcuda. (It does not for its internal memory, through which it copies pageable memory.)
    pub fn knows(address: u64) -> Option<bool> {
        frees::knows(address)
    }

    /// Loads libcuda, if it is not loaded yet, and replaces its import slots. Only the process's first call does the work.
    ///
    /// If CUDA is already initialised, its objects are queried from the kernel driver when an address space is first needed
    /// ([`Watched::catch_up`]). Then no channel can join CUDA's group, and memory that was allocated before has no BAR1 map.
    ///
    /// # Errors
    /// If there is no libcuda.
    pub fn open() -> Result<Libcuda, Error> {
        let watched = WATCHED.get_or_init(|| {
            let watched: &'static Watched = Box::leak(Box::default());
            watch(watched).map(|()| watched)
        });
        match watched {
            Ok(watched) => Ok(Libcuda { watched }),
            Err(reason) => Err(Error::Libcuda(reason.clone())),
        }
    }

    pub fn watched(&self) -> &'static Watched {
        self.watched
    }

    /// CUDA's address space on the GPU with that UUID (`cuDeviceGetUuid`).
    pub fn address_space(&self, uuid: [u8; 16], entry: Entry) -> Result<Arc<AddressSpace>, Error> {
        let driver: Arc<dyn Driver> = Arc::new(Libc);
        if self.watched.is_late() && !self.watched.gpus().contains(&uuid) {
            let ours = |error| Error::Libcuda(format!("it was initialised before doorbell was opened, and {error}"));
            self.watched.catch_up(&driver, &files("/dev/nvidiactl"), &files("/dev/nvidia-uvm"), uuid).map_err(ours)?;
        }
        self.watched.address_space(driver, uuid, entry)
    }
}

/// The receiver of the hooks' reports.
static TOLD: AtomicPtr<Watched> = AtomicPtr::new(std::ptr::null_mut());

/// To be called before the first hook is installed.
fn tell(watched: &'static Watched) {
    TOLD.store(std::ptr::from_ref(watched).cast_mut(), Ordering::Release);
}

fn watched() -> Option<&'static Watched> {
    // SAFETY: null, or leaked.
    unsafe { TOLD.load(Ordering::Acquire).as_ref() }
}

/// The function that a hook replaced.
///
/// # Safety
/// `F` is the type of the function in `from`, which was written before the hook could be called.
unsafe fn theirs<F: Copy>(from: &AtomicPtr<c_void>) -> F {
    let function = from.load(Ordering::Acquire);
    // SAFETY: a function pointer of that type.
    unsafe { std::mem::transmute_copy(&function) }
}

/// This process's descriptors of a file, the lowest first.
fn files(path: &str) -> Vec<RawFd> {
    let open = std::fs::read_dir("/proc/self/fd").into_iter().flatten().flatten();
    let same = open.filter(|entry| std::fs::read_link(entry.path()).is_ok_and(|link| link.as_os_str() == path));
    let mut all: Vec<RawFd> = same.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

fn watch(watched: &'static Watched) -> Result<(), String> {
    // SAFETY: only checks whether it is loaded (RTLD_NOLOAD).
    let loaded = unsafe { libc::dlopen(PLACES[0].as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if !loaded.is_null() && !files("/dev/nvidiactl").is_empty() {
        watched.begin_late();
    }
    let mut handle = loaded;
    let mut reasons = Vec::new();
    for place in PLACES {
        if handle.is_null() {
            // SAFETY: libcuda's initialisers may be run by any program that opens it; it is never closed.
            handle = unsafe { libc::dlopen(place.as_ptr(), libc::RTLD_NOW) };
            if handle.is_null() {
                // SAFETY: dlerror's text, valid until this thread's next call of that family.
                let text = unsafe { CStr::from_ptr(libc::dlerror()) };
                reasons.push(text.to_string_lossy().into_owned());
            }
        }
    }
    if handle.is_null() {
        return Err(reasons.join("; "));
    }
    tell(watched);
    // SAFETY: never closed, not initialised yet, and each function has its namesake's signature.
    let found = unsafe { exchange(handle, &exchanges()) }?;
    let exchanged: Vec<_> = exchanges().iter().zip(&found).filter(|(_, n)| **n > 0).map(|(e, _)| e.name).collect();
    for needed in [c"ioctl", c"mmap"] {
        if !exchanged.contains(&needed) {
            return Err(format!("it does not import {}", needed.to_string_lossy()));
        }
    }
    // SAFETY: libcuda, which is never closed, and not initialised yet.
    let frees = unsafe { frees::exchange(handle, watched) }?;
    if !frees.contains(&c"cuMemFree_v2") {
        return Err("it does not export cuMemFree_v2: what it frees would not be seen".into());
    }
    Ok(())
}
