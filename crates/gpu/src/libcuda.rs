//! libcuda of this process, watched: its driver calls tell which handles it holds and what lies at which GPU address.
//!
//! libcuda's import slots are exchanged before it is initialised; each call goes on to where it went before, and what it did
//! is written into an [`ObjectGraph`]. With the handles found there a channel of our own enters CUDA's address space, and no
//! code of libcuda runs when it submits. Before CUDA frees memory, what of ours is in flight is waited for.

use crate::device::{Device, Entry, Theirs};
use crate::error::Error;
use crate::memory::AddressSpace;
use crate::slots::{Exchange, exchange};
use crate::tracker::{InFlight, Tracker};
use rm::abi::{self, Nvos21, Nvos54, Nvos64, Plain, nr, uvm};
use rm::call::Call;
use rm::driver::{Driver, Libc};
use rm::graph::{FileKind, IoctlRecord, MmapRecord, ObjectGraph, ObjectKind};
use std::ffi::{CStr, c_int, c_long, c_ulong, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

/// Where libcuda is looked for; the first is found through LD_LIBRARY_PATH and the linker's cache.
const PLACES: [&CStr; 3] = [c"libcuda.so.1", c"/usr/local/nvidia/lib64/libcuda.so.1", c"/usr/lib/wsl/lib/libcuda.so.1"];
/// Longest parameter block that is looked at.
const NESTED_MAX: usize = 4096;
/// How long CUDA's freeing of memory waits for copies of ours.
const DRAIN: Duration = Duration::from_secs(1);

/// The driver calls of one CUDA, and what follows from them.
#[derive(Debug, Default)]
pub struct Watched {
    graph: Mutex<ObjectGraph>,
    /// Calls that took something away.
    pub(crate) unmaps: AtomicU64,
    trackers: Mutex<Vec<Weak<Tracker>>>,
}

impl Watched {
    /// All that is known of CUDA's objects.
    pub fn graph(&self) -> MutexGuard<'_, ObjectGraph> {
        self.graph.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn track(&self, tracker: &Arc<Tracker>) {
        let mut trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
        trackers.retain(|t| t.strong_count() > 0);
        trackers.push(Arc::downgrade(tracker));
    }

    /// How far each of our channels beside this CUDA is.
    pub fn in_flight(&self) -> Vec<InFlight> {
        let trackers: Vec<_> = {
            let trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
            trackers.iter().filter_map(Weak::upgrade).collect()
        };
        trackers.iter().map(|tracker| tracker.in_flight()).collect()
    }

    fn file(&self, fd: RawFd) -> FileKind {
        if let Some(kind) = self.graph().file(fd) {
            return kind;
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        FileKind::of_path(path.as_os_str().as_encoded_bytes())
    }

    /// An ioctl, made by `make`, on one of the driver's files; on others only made.
    ///
    /// # Safety
    /// `arg` is what `request` takes.
    pub unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void, make: impl FnOnce() -> c_int) -> c_int {
        let file = self.file(fd);
        if file == FileKind::Other || arg.is_null() {
            return make();
        }
        // SAFETY: the caller's.
        let takes = unsafe { self.before(file, request, arg) };
        let ret = make();
        let errno = Errno::keep();
        if ret == 0 && !takes {
            // SAFETY: the driver has just read and written these structs.
            let (whole, nested) = unsafe { (argument(file, request, arg), nested(request, arg)) };
            self.graph().ioctl(IoctlRecord { fd, file, request, ret, arg: whole, nested });
        }
        drop(errno);
        ret
    }

    /// Something that is about to go is gone for us first: nothing is submitted to it any more, and what is in flight is
    /// waited for. True if the graph has it already.
    unsafe fn before(&self, file: FileKind, request: u64, arg: *mut c_void) -> bool {
        // SAFETY: the argument of a call that is about to be made.
        let whole = unsafe { argument(file, request, arg) };
        let takes = match Call::parse(file, request, whole, &[]) {
            Call::UvmFree(_) | Call::UvmUnmapExternal(_) | Call::UvmUnregisterGpuVaspace(_) => true,
            Call::Free(call) => matches!(
                self.graph().object(call.root, call.old).map(|o| o.kind),
                Some(ObjectKind::Memory(_) | ObjectKind::VaSpace | ObjectKind::Device { .. } | ObjectKind::Client)
            ),
            _ => false,
        };
        if takes {
            // The status that is in the struct now is not the call's answer; it is taken for a success.
            let mut copy = whole.to_vec();
            let status = match file {
                FileKind::Uvm => abi::uvm::status_offset(request),
                _ => Some(12),
            };
            if let Some(status) = status.and_then(|at| copy.get_mut(at..at + 4)) {
                status.fill(0);
            }
            self.graph().ioctl(IoctlRecord { fd: -1, file, request, ret: 0, arg: &copy, nested: &[] });
            self.took_away();
        }
        takes
    }

    fn took_away(&self) {
        // ORDERING: see AddressSpace::unmapped.
        self.unmaps.fetch_add(1, Ordering::SeqCst);
        let trackers: Vec<_> = {
            let trackers = self.trackers.lock().unwrap_or_else(PoisonError::into_inner);
            trackers.iter().filter_map(Weak::upgrade).collect()
        };
        let deadline = Instant::now() + DRAIN;
        for tracker in trackers {
            tracker.drain(deadline);
        }
    }

    pub fn opened(&self, fd: RawFd, path: &[u8]) {
        if fd >= 0 {
            self.graph().open(fd, FileKind::of_path(path));
        }
    }

    pub fn closed(&self, fd: RawFd) {
        self.graph().close(fd);
    }

    pub fn mapped(&self, record: MmapRecord) {
        self.graph().mmap(record);
    }

    pub fn unmapped(&self, addr: u64, len: u64) {
        self.graph().munmap(addr, len);
    }

    /// CUDA's channels whose GPFIFO is not consumed up to GP_PUT, as their USERD says now: still at work, or stuck.
    pub fn unconsumed(&self) -> Vec<Unconsumed> {
        let graph = self.graph();
        let of = |channel: &rm::graph::Channel| {
            let userd = channel.userd.as_ref()?.cpu?;
            // SAFETY: the graph saw USERD mapped there and not unmapped since, and it is held.
            let word = |offset: usize| unsafe { ((userd + offset as u64) as *const u32).read_volatile() };
            let (get, put) = (word(pushbuf::userd::GP_GET), word(pushbuf::userd::GP_PUT));
            let engine = channel.engine_name().unwrap_or("unknown");
            (get != put).then_some(Unconsumed { handle: channel.handle, token: channel.token, engine, get, put })
        };
        graph.channels().iter().filter(|channel| channel.alive()).filter_map(of).collect()
    }

    /// UUIDs of the GPUs that have a VA space registered with UVM.
    pub fn gpus(&self) -> Vec<[u8; 16]> {
        let mut gpus: Vec<_> = self.graph().va_spaces().iter().map(|(_, _, uuid)| *uuid).collect();
        gpus.sort_unstable();
        gpus.dedup();
        gpus
    }

    /// The address space that CUDA has on the GPU of that UUID, for channels of our own.
    ///
    /// # Errors
    /// Where CUDA has no context there, or the driver refuses.
    pub fn address_space(
        &'static self,
        driver: Arc<dyn Driver>,
        uuid: [u8; 16],
        entry: Entry,
    ) -> Result<Arc<AddressSpace>, Error> {
        let theirs = self.theirs(uuid)?;
        let device = Device::beside(driver.clone(), &theirs, entry)?;
        let handle = match entry {
            Entry::CudasClient => theirs.va_space,
            Entry::OwnClient => rm::driver::dup_object(
                &*driver,
                device.ctl,
                device.client,
                device.device,
                theirs.client,
                theirs.va_space,
            )?,
        };
        Ok(AddressSpace::beside(&device, handle, self))
    }

    /// CUDA's graphics channel group, for a channel of ours in it.
    pub(crate) fn group(&self, client: u32, device: u32) -> Option<CudasGroup> {
        let graph = self.graph();
        let channel = graph.channels().iter().find(|c| {
            let group = c.group.and_then(|group| graph.object(client, group));
            c.alive()
                && c.client == client
                && c.context_share.is_some()
                && group.is_some_and(|g| g.parent_handle == device)
        })?;
        Some(CudasGroup { group: channel.group?, share: channel.context_share?, contexts: channel.uvm? })
    }

    fn theirs(&self, uuid: [u8; 16]) -> Result<Theirs, Error> {
        let missing = |what: &str| Error::Libcuda(format!("{what}: create a CUDA context on this GPU first"));
        let graph = self.graph();
        let &(client, va_space, _) = graph
            .va_spaces()
            .iter()
            .rev()
            .find(|(client, handle, gpu)| *gpu == uuid && graph.object(*client, *handle).is_some())
            .ok_or_else(|| missing("CUDA has no address space registered for this GPU"))?;
        let device = graph
            .object(client, va_space)
            .and_then(|space| graph.object(client, space.parent_handle))
            .ok_or_else(|| missing("the address space's device was not seen"))?;
        let ObjectKind::Device { instance } = device.kind else { return Err(missing("no device above the VA space")) };
        let subdevice = graph
            .objects()
            .iter()
            .find(|o| {
                o.client == client
                    && o.parent_handle == device.handle
                    && o.freed.is_none()
                    && matches!(o.kind, ObjectKind::Subdevice { .. })
            })
            .ok_or_else(|| missing("no subdevice"))?;
        let ctl = *graph.client_fds(client).first().ok_or_else(|| missing("CUDA's control file is closed"))?;
        let uvm = graph.uvm_fd().ok_or_else(|| missing("CUDA's UVM file was not seen"))?;
        Ok(Theirs { ctl, uvm, client, device: device.handle, subdevice: subdevice.handle, va_space, uuid, instance })
    }
}

/// A channel of CUDA's with entries that the GPU has not come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unconsumed {
    pub handle: u32,
    pub token: Option<u32>,
    pub engine: &'static str,
    pub get: u32,
    pub put: u32,
}

/// What a channel needs to be one of CUDA's graphics channels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CudasGroup {
    pub group: u32,
    pub share: u32,
    /// Where UVM has the group's context buffers: address and length.
    pub contexts: (u64, u64),
}

/// libcuda, loaded and watched.
#[derive(Clone, Copy, Debug)]
pub struct Libcuda {
    watched: &'static Watched,
}

static WATCHED: OnceLock<Result<&'static Watched, String>> = OnceLock::new();
/// The same for the functions in the slots.
static SEEN_BY_SLOTS: AtomicPtr<Watched> = AtomicPtr::new(std::ptr::null_mut());

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
    SEEN_BY_SLOTS.store(std::ptr::from_ref(watched).cast_mut(), Ordering::Release);
    // SAFETY: never closed, not initialised yet, and each function has its namesake's signature.
    let found = unsafe { exchange(handle, &exchanges()) }?;
    let exchanged: Vec<_> = exchanges().iter().zip(&found).filter(|(_, n)| **n > 0).map(|(e, _)| e.name).collect();
    for needed in [c"ioctl", c"mmap"] {
        if !exchanged.contains(&needed) {
            return Err(format!("it does not import {}", needed.to_string_lossy()));
        }
    }
    Ok(())
}

/// errno, put back when dropped: who calls the driver sees only what the driver left.
struct Errno(c_int);

impl Errno {
    fn keep() -> Errno {
        // SAFETY: this thread's errno.
        Errno(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

/// # Safety
/// `arg` is what `request` takes on such a file; it lives as long as the caller looks.
unsafe fn argument<'a>(file: FileKind, request: u64, arg: *mut c_void) -> &'a [u8] {
    let size = match file {
        FileKind::Uvm => uvm::size(request),
        _ if abi::rm_nr(request).is_some() => abi::request_size(request),
        _ => 0,
    };
    // SAFETY: the driver reads and writes this many bytes there.
    unsafe { std::slice::from_raw_parts(arg.cast(), size) }
}

/// What RM_ALLOC's and RM_CONTROL's `params` point to, after the call.
///
/// # Safety
/// As [`argument`], and the call has succeeded.
unsafe fn nested<'a>(request: u64, arg: *mut c_void) -> &'a [u8] {
    let size = abi::request_size(request);
    // SAFETY: the request's struct.
    let bytes = || unsafe { std::slice::from_raw_parts(arg.cast::<u8>(), size) };
    let (at, length, status) = match abi::rm_nr(request) {
        Some(nr::ALLOC) => {
            if let Some(call) = (size == size_of::<Nvos64>()).then(|| Nvos64::read(bytes())).flatten() {
                (call.params, abi::alloc_params_size(call.class, call.params_size), call.status)
            } else if let Some(call) = Nvos21::read(bytes()) {
                (call.params, abi::alloc_params_size(call.class, call.params_size), call.status)
            } else {
                return &[];
            }
        }
        Some(nr::CONTROL) => match Nvos54::read(bytes()) {
            Some(call) => (call.params, call.params_size, call.status),
            None => return &[],
        },
        _ => return &[],
    };
    if at == 0 || status != 0 {
        return &[];
    }
    // SAFETY: the driver has just used that many bytes.
    unsafe { std::slice::from_raw_parts(at as *const u8, (length as usize).min(NESTED_MAX)) }
}

static IOCTL: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MMAP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MMAP64: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static MUNMAP: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static OPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static OPEN64: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
static CLOSE: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

type Ioctl = unsafe extern "C" fn(c_int, c_ulong, *mut c_void) -> c_int;
type Mmap = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, c_long) -> *mut c_void;
type Munmap = unsafe extern "C" fn(*mut c_void, usize) -> c_int;
type Open = unsafe extern "C" fn(*const libc::c_char, c_int, libc::mode_t) -> c_int;
type Close = unsafe extern "C" fn(c_int) -> c_int;

fn exchanges() -> [Exchange; 7] {
    [
        Exchange { name: c"ioctl", ours: slot_ioctl as *mut c_void, theirs: &IOCTL },
        Exchange { name: c"mmap", ours: slot_mmap as *mut c_void, theirs: &MMAP },
        Exchange { name: c"mmap64", ours: slot_mmap64 as *mut c_void, theirs: &MMAP64 },
        Exchange { name: c"munmap", ours: slot_munmap as *mut c_void, theirs: &MUNMAP },
        Exchange { name: c"open", ours: slot_open as *mut c_void, theirs: &OPEN },
        Exchange { name: c"open64", ours: slot_open64 as *mut c_void, theirs: &OPEN64 },
        Exchange { name: c"close", ours: slot_close as *mut c_void, theirs: &CLOSE },
    ]
}

/// What a slot held before.
///
/// # Safety
/// `F` is the type of the function that `from` was exchanged for, and the exchange was made.
unsafe fn theirs<F: Copy>(from: &AtomicPtr<c_void>) -> F {
    let function = from.load(Ordering::Acquire);
    // SAFETY: a function pointer of that type.
    unsafe { std::mem::transmute_copy(&function) }
}

fn watched() -> Option<&'static Watched> {
    // SAFETY: null, or leaked.
    unsafe { SEEN_BY_SLOTS.load(Ordering::Acquire).as_ref() }
}

// ioctl and open are variadic; on x86-64 a third argument that was not passed is garbage that they ignore as we do.
unsafe extern "C" fn slot_ioctl(fd: c_int, request: c_ulong, arg: *mut c_void) -> c_int {
    // SAFETY: libcuda's call, passed on as it is.
    unsafe {
        let make = || theirs::<Ioctl>(&IOCTL)(fd, request, arg);
        match watched() {
            Some(watched) => watched.ioctl(fd, request, arg, make),
            None => make(),
        }
    }
}

/// # Safety
/// As mmap.
unsafe fn map(
    real: &AtomicPtr<c_void>,
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    offset: c_long,
) -> *mut c_void {
    // SAFETY: libcuda's call, passed on as it is.
    let at = unsafe { theirs::<Mmap>(real)(addr, len, prot, flags, fd, offset) };
    if let Some(watched) = watched() {
        let _errno = Errno::keep();
        let (addr, len) = (at as u64, len as u64);
        watched.mapped(MmapRecord { addr, len, offset: offset as u64, fd, prot: prot as u32, flags: flags as u32 });
    }
    at
}

unsafe extern "C" fn slot_mmap(a: *mut c_void, l: usize, p: c_int, f: c_int, fd: c_int, o: c_long) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { map(&MMAP, a, l, p, f, fd, o) }
}

unsafe extern "C" fn slot_mmap64(a: *mut c_void, l: usize, p: c_int, f: c_int, fd: c_int, o: c_long) -> *mut c_void {
    // SAFETY: the caller's.
    unsafe { map(&MMAP64, a, l, p, f, fd, o) }
}

unsafe extern "C" fn slot_munmap(addr: *mut c_void, len: usize) -> c_int {
    // SAFETY: libcuda's call, passed on as it is.
    let ret = unsafe { theirs::<Munmap>(&MUNMAP)(addr, len) };
    if ret == 0
        && let Some(watched) = watched()
    {
        watched.unmapped(addr as u64, len as u64);
    }
    ret
}

/// # Safety
/// As open.
unsafe fn open(real: &AtomicPtr<c_void>, path: *const libc::c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: libcuda's call, passed on as it is.
    let fd = unsafe { theirs::<Open>(real)(path, flags, mode) };
    if fd >= 0
        && let Some(watched) = watched()
    {
        let _errno = Errno::keep();
        // SAFETY: the path was opened, so it is a string.
        watched.opened(fd, unsafe { CStr::from_ptr(path) }.to_bytes());
    }
    fd
}

unsafe extern "C" fn slot_open(path: *const libc::c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { open(&OPEN, path, flags, mode) }
}

unsafe extern "C" fn slot_open64(path: *const libc::c_char, flags: c_int, mode: libc::mode_t) -> c_int {
    // SAFETY: the caller's.
    unsafe { open(&OPEN64, path, flags, mode) }
}

unsafe extern "C" fn slot_close(fd: c_int) -> c_int {
    if let Some(watched) = watched() {
        let _errno = Errno::keep();
        watched.closed(fd);
    }
    // SAFETY: libcuda's call, passed on as it is.
    unsafe { theirs::<Close>(&CLOSE)(fd) }
}
