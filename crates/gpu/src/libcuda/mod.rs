//! libcuda of this process, watched: its driver calls tell which handles it holds and what lies at which GPU address.
//!
//! libcuda's import slots are exchanged before it is initialised; each call goes on to where it went before, and what it did
//! is written into an [`ObjectGraph`](rm::graph::ObjectGraph). With the handles found there a channel of our own enters CUDA's
//! address space, and no code of libcuda runs when it submits. Before CUDA frees memory, with a driver call (`hooks`) or without
//! one (`frees`), pins of it end and what of ours is in flight is waited for.

mod frees;
mod hooks;

use crate::device::Entry;
use crate::error::Error;
use crate::slots::exchange;
use crate::space::AddressSpace;
use crate::watched::Watched;
use hooks::exchanges;
use rm::driver::Libc;
use std::ffi::CStr;
use std::sync::{Arc, OnceLock};

/// Where libcuda is looked for; the first is found through LD_LIBRARY_PATH and the linker's cache.
const PLACES: [&CStr; 3] = [c"libcuda.so.1", c"/usr/local/nvidia/lib64/libcuda.so.1", c"/usr/lib/wsl/lib/libcuda.so.1"];
/// libcuda, loaded and watched.
#[derive(Clone, Copy, Debug)]
pub struct Libcuda {
    watched: &'static Watched,
}

static WATCHED: OnceLock<Result<&'static Watched, String>> = OnceLock::new();

impl Libcuda {
    /// Loads libcuda, if it is not loaded yet, and exchanges its import slots; the first call does it for the process.
    ///
    /// # Errors
    /// Where there is no libcuda, or it is initialised already: its calls until now are lost.
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

    /// The address space that CUDA has on the GPU of that UUID (`cuDeviceGetUuid`).
    pub fn address_space(&self, uuid: [u8; 16], entry: Entry) -> Result<Arc<AddressSpace>, Error> {
        self.watched.address_space(Arc::new(Libc), uuid, entry)
    }
}

fn watch(watched: &'static Watched) -> Result<(), String> {
    let already = std::fs::read_dir("/proc/self/fd")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| std::fs::read_link(entry.path()).ok())
        .any(|path| path.as_os_str() == "/dev/nvidiactl");
    // SAFETY: asks whether it is loaded, and loads nothing.
    let loaded = unsafe { libc::dlopen(PLACES[0].as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if already && !loaded.is_null() {
        return Err("it is initialised already; open doorbell before the first CUDA call".into());
    }
    let mut handle = loaded;
    let mut reasons = Vec::new();
    for place in PLACES {
        if handle.is_null() {
            // SAFETY: libcuda's initialisers are meant to be run by whoever opens it; it is never closed.
            handle = unsafe { libc::dlopen(place.as_ptr(), libc::RTLD_NOW) };
            if handle.is_null() {
                // SAFETY: dlerror's text, valid until the next call of its family on this thread.
                let text = unsafe { CStr::from_ptr(libc::dlerror()) };
                reasons.push(text.to_string_lossy().into_owned());
            }
        }
    }
    if handle.is_null() {
        return Err(reasons.join("; "));
    }
    hooks::tell(watched);
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
