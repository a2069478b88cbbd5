//! cuFile, NVIDIA's library for files and GPU memory, opened at run time if it is installed. Counters show whether the bytes bypassed host memory (GPUDirect
//! Storage).

mod counters;
pub(crate) mod error;
mod sys;
mod whole;

pub use counters::{Counters, Measured, Mode};
pub use error::Error;
pub use whole::{read, write};

use crate::queue::Direction;
use crate::source::Source;
use libloading::Library;
use std::ffi::{c_int, c_void};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use sys::{Descriptor, Functions, OPAQUE_FD, Properties, Status};

/// The library, which stays open for the life of the process because its threads run that long.
pub struct CuFile {
    functions: Functions,
    properties: Option<Properties>,
    counters: Counters,
}

impl std::fmt::Debug for CuFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CuFile").field("properties", &self.properties).finish_non_exhaustive()
    }
}

/// The result of a transfer by cuFile.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    pub bytes: u64,
    pub took: Duration,
    pub threads: usize,
    pub block: usize,
    pub measured: Measured,
}

fn check(call: &'static str, status: Status) -> Result<(), Error> {
    match status {
        Status { error: 0, .. } => Ok(()),
        Status { error, cuda: 0 } => Err(Error::Call { call, name: sys::name(error) }),
        Status { error, cuda } => Err(Error::Call { call, name: format!("{}, CUDA's error {cuda}", sys::name(error)) }),
    }
}

impl CuFile {
    /// Opens the library and its driver, by the loader's own search.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Call`].
    pub fn open() -> Result<CuFile, Error> {
        CuFile::open_at(&["libcufile.so.0", "libcufile.so"], Counters::default())
    }

    /// As [`CuFile::open`], with the caller's file names and counters.
    ///
    /// # Errors
    /// As [`CuFile::open`].
    pub fn open_at(names: &[&str], counters: Counters) -> Result<CuFile, Error> {
        let mut reasons = Vec::new();
        for name in names {
            // SAFETY: any program that opens the library may run its initialisers.
            match unsafe { Library::new(name) } {
                Ok(library) => {
                    let functions = Functions::of(&library).map_err(Error::Missing)?;
                    std::mem::forget(library);
                    // SAFETY: no arguments.
                    check("cuFileDriverOpen", unsafe { (functions.driver_open)() })?;
                    let mut properties = Properties::default();
                    // SAFETY: room for the struct, and for the fields that later versions add.
                    let asked = unsafe { (functions.driver_properties)(&mut properties) };
                    let properties = check("cuFileDriverGetProperties", asked).ok().map(|()| properties);
                    return Ok(CuFile { functions, properties, counters });
                }
                Err(error) => reasons.push(error.to_string()),
            }
        }
        Err(Error::Missing(reasons.join("; ")))
    }

    /// Whether the library may use compatibility mode, and its version of nvidia-fs (0.0: none).
    pub fn says(&self) -> Option<(bool, (u32, u32))> {
        let properties = self.properties.as_ref()?;
        let allows = properties.control_flags >> sys::ALLOW_COMPATIBILITY & 1 == 1;
        Some((allows, (properties.nvfs_major, properties.nvfs_minor)))
    }

    /// Moves a file's first `bytes` from or to the GPU memory at `va`, in blocks, on `threads` threads.
    ///
    /// # Errors
    /// [`Error::Call`], [`Error::Transfer`]; [`Error::NotDirect`] if `require_direct` and the path was not direct, or is unknown.
    ///
    /// # Safety
    /// `bytes` bytes of GPU memory are at `va`, and no other code uses them during the call.
    pub unsafe fn transfer(
        &self,
        source: &Source,
        direction: Direction,
        (va, bytes): (u64, u64),
        (block, threads): (usize, usize),
        require_direct: bool,
        progress: &AtomicU64,
    ) -> Result<Report, Error> {
        let file = self.register(source)?;
        // SAFETY: the caller's promise: the memory stays until the registration is dropped.
        let buffer = unsafe { self.register_buffer(va, bytes) }?;
        let before = self.counters.read(direction == Direction::Write);
        let begun = Instant::now();
        let (next, stop, failed) = (AtomicU64::new(0), AtomicBool::new(false), Mutex::new(None));
        let work = || {
            while !stop.load(Ordering::Relaxed) {
                let offset = next.fetch_add(block as u64, Ordering::Relaxed);
                if offset >= bytes {
                    return;
                }
                let part = (block as u64).min(bytes - offset);
                // SAFETY: the part is within the memory.
                match unsafe { self.block(&file, direction, va, offset, part) } {
                    Ok(()) => drop(progress.fetch_add(part, Ordering::Relaxed)),
                    Err((call, what)) => {
                        stop.store(true, Ordering::Relaxed);
                        let path = source.path().to_owned();
                        let error = Error::Transfer { path, call, offset, bytes: part, what };
                        poison::ignore(failed.lock()).get_or_insert(error);
                    }
                }
            }
        };
        std::thread::scope(|scope| {
            for _ in 1..threads {
                scope.spawn(work);
            }
            work();
        });
        let took = begun.elapsed();
        drop((file, buffer));
        if let Some(error) = poison::ignore(failed.into_inner()) {
            return Err(error);
        }
        let measured = before.until(self.counters.read(direction == Direction::Write), bytes);
        if require_direct && measured.mode != Mode::Direct {
            let said = |count: Option<u64>| count.map_or_else(|| "an unknown number".into(), |n| n.to_string());
            let Measured { mode, through_host, by_nvidia_fs } = measured;
            let (through_host, by_nvidia_fs) = (said(through_host), said(by_nvidia_fs));
            return Err(Error::NotDirect { mode, bytes, through_host, by_nvidia_fs });
        }
        Ok(Report { bytes, took, threads, block, measured })
    }

    /// Moves one block, and continues after a short transfer.
    ///
    /// # Safety
    /// `offset + bytes` bytes of GPU memory are at `va`.
    unsafe fn block(
        &self,
        file: &Registered<'_>,
        direction: Direction,
        va: u64,
        offset: u64,
        bytes: u64,
    ) -> Result<(), (&'static str, String)> {
        let (call, transfer) = match direction {
            Direction::Read => ("cuFileRead", self.functions.read),
            Direction::Write => ("cuFileWrite", self.functions.write),
        };
        let mut done = 0;
        while done < bytes {
            let at = (offset + done) as libc::off_t;
            // SAFETY: the caller's promise; the handle is registered.
            let moved = unsafe { transfer(file.handle, va as *const c_void, (bytes - done) as usize, at, at) };
            match moved {
                // The system's error, or the library's own code.
                -1 => return Err((call, std::io::Error::last_os_error().to_string())),
                ..-1 => return Err((call, sys::name(-moved as c_int))),
                0 => return Err((call, format!("the file ends at {}", offset + done))),
                moved if moved as u64 > bytes - done => return Err((call, format!("it says {moved} bytes"))),
                moved => done += moved as u64,
            }
        }
        Ok(())
    }

    fn register(&self, source: &Source) -> Result<Registered<'_>, Error> {
        let mut handle = std::ptr::null_mut();
        let mut descriptor =
            Descriptor { kind: OPAQUE_FD, pad: 0, fd: source.fd(), fd_rest: 0, operations: std::ptr::null() };
        // SAFETY: an open descriptor, and room for the handle.
        check("cuFileHandleRegister", unsafe { (self.functions.handle_register)(&mut handle, &mut descriptor) })?;
        Ok(Registered { library: self, handle })
    }

    /// # Safety
    /// The memory stays until the result is dropped.
    unsafe fn register_buffer(&self, va: u64, bytes: u64) -> Result<RegisteredBuffer<'_>, Error> {
        // SAFETY: the caller's promise.
        check("cuFileBufRegister", unsafe {
            (self.functions.buffer_register)(va as *const c_void, bytes as usize, 0)
        })?;
        Ok(RegisteredBuffer { library: self, va })
    }
}

struct Registered<'c> {
    library: &'c CuFile,
    handle: sys::Handle,
}

// SAFETY: all threads may use cuFile's handles.
unsafe impl Sync for Registered<'_> {}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        // SAFETY: registered, and no transfer is pending.
        unsafe { (self.library.functions.handle_deregister)(self.handle) }
    }
}

struct RegisteredBuffer<'c> {
    library: &'c CuFile,
    va: u64,
}

impl Drop for RegisteredBuffer<'_> {
    fn drop(&mut self) {
        // SAFETY: as above. A failure needs no action.
        let _ = unsafe { (self.library.functions.buffer_deregister)(self.va as *const c_void) };
    }
}
