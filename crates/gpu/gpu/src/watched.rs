//! The driver calls of one CUDA and their effects: an [`ObjectGraph`], the memory that was taken away, and the channels
//! whose transfers must be waited for first.

use crate::errno::Errno;
use crate::lease::Lease;
use crate::pins::PinTable;
use crate::tracker::{self, InFlight, Tracker};
use rm::abi::{self, Branch, uvm};
use rm::call::Call;
use rm::graph::{FileKind, IoctlRecord, MmapRecord, ObjectGraph, ObjectKind};
use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

/// The longest parameter block that is read.
const NESTED_MAX: usize = 4096;
/// How long CUDA's frees wait for doorbell's copies.
const DRAIN: Duration = Duration::from_secs(1);

/// How long CUDA's frees wait for doorbell's launches, whose kernels may touch the memory. CUDA waits for its own without a
/// limit.
const LAUNCHES: Duration = Duration::from_secs(10);

thread_local!(
    /// This thread is in a free that has waited for launches.
    static HAS_WAITED: Cell<bool> = const { Cell::new(false) }
);

/// The driver calls of one CUDA and their effects.
#[derive(Debug, Default)]
pub struct Watched {
    graph: Mutex<ObjectGraph>,
    /// Incremented by each call that took memory away.
    unmaps: AtomicU64,
    /// Incremented when kernels' local memory moves.
    moves: AtomicU64,
    pub(crate) pins: PinTable,
    trackers: Mutex<Vec<Weak<Tracker>>>,
    /// CUDA was initialised before it was watched.
    late: AtomicBool,
    /// Allocations from before watching began that were taken on CUDA's word: address and length.
    believed: Mutex<Vec<(u64, u64)>>,
}

impl Watched {
    /// CUDA's objects, as far as they are known.
    pub fn graph(&self) -> MutexGuard<'_, ObjectGraph> {
        poison::ignore(self.graph.lock())
    }

    /// CUDA was initialised first: its calls until now were not seen.
    pub fn is_late(&self) -> bool {
        self.late.load(Ordering::Relaxed)
    }

    /// Sets [`Watched::is_late`].
    pub fn begin_late(&self) {
        self.late.store(true, Ordering::Relaxed);
    }

    pub(crate) fn believed(&self) -> MutexGuard<'_, Vec<(u64, u64)>> {
        poison::ignore(self.believed.lock())
    }

    pub(crate) fn track(&self, tracker: &Arc<Tracker>) {
        let mut trackers = poison::ignore(self.trackers.lock());
        trackers.retain(|t| t.strong_count() > 0);
        trackers.push(Arc::downgrade(tracker));
    }

    pub(crate) fn trackers(&self) -> Vec<Arc<Tracker>> {
        let trackers = poison::ignore(self.trackers.lock());
        trackers.iter().filter_map(Weak::upgrade).collect()
    }

    /// How far each doorbell channel in this CUDA's address spaces is.
    pub fn in_flight(&self) -> Vec<InFlight> {
        self.trackers().iter().map(|tracker| tracker.in_flight()).collect()
    }

    fn file(&self, fd: RawFd) -> FileKind {
        if let Some(kind) = self.graph().file(fd) {
            return kind;
        }
        let path = std::fs::read_link(format!("/proc/self/fd/{fd}")).unwrap_or_default();
        FileKind::of_path(path.as_os_str().as_encoded_bytes())
    }

    /// Makes an ioctl with `make`. On one of the driver's files it is recorded, too.
    ///
    /// # Safety
    /// `arg` is a valid argument of `request`.
    pub unsafe fn ioctl(&self, fd: RawFd, request: u64, arg: *mut c_void, make: impl FnOnce() -> c_int) -> c_int {
        let file = self.file(fd);
        if file == FileKind::Other || arg.is_null() {
            return make();
        }
        let branch = self.graph().branch();
        // SAFETY: the caller's promise.
        let (takes, parameters) =
            unsafe { (self.before(branch, file, request, arg), parameters(branch, request, arg)) };
        let ret = make();
        let errno = Errno::keep();
        if ret == 0 && !takes {
            // SAFETY: the driver has just read and written these structs; the place of the parameters was read before the call.
            let whole = unsafe { argument(branch, file, request, arg) };
            // SAFETY: the same.
            let nested = unsafe { nested(branch, file, request, whole, parameters) };
            self.record(IoctlRecord { fd, file, request, ret, arg: whole, nested });
        }
        drop(errno);
        ret
    }

    fn record(&self, record: IoctlRecord<'_>) {
        let mut graph = self.graph();
        graph.ioctl(record);
        graph.forget_freed();
    }

    /// If the call will free memory: forbids new submissions that name it, and waits for those in flight. True if the graph
    /// has recorded the call already.
    unsafe fn before(&self, branch: &Branch, file: FileKind, request: u64, arg: *mut c_void) -> bool {
        // SAFETY: the argument of a call that is about to be made.
        let whole = unsafe { argument(branch, file, request, arg) };
        // Whether the address space is freed, or memory in it.
        let call = Call::parse(branch, file, request, whole, &[]);
        let (takes, all) = match call {
            Call::UvmFree(_) | Call::UvmUnmapExternal(_) => (true, false),
            Call::UvmUnregisterGpuVaspace(_) => (true, true),
            Call::Free(call) => match self.graph().object(call.root, call.old).map(|o| o.kind) {
                Some(ObjectKind::Memory(_)) => (true, false),
                Some(ObjectKind::VaSpace | ObjectKind::Device { .. } | ObjectKind::Client) => (true, true),
                _ => (false, false),
            },
            _ => (false, false),
        };
        if takes {
            // The status in the struct is not the call's result yet; assume success.
            let mut copy = whole.to_vec();
            let status = match file {
                FileKind::Uvm => abi::uvm::status_offset(branch, request),
                _ => Some(12),
            };
            if let Some(status) = status.and_then(|at| copy.get_mut(at..at + 4)) {
                status.fill(0);
            }
            self.record(IoctlRecord { fd: -1, file, request, ret: 0, arg: &copy, nested: &[] });
            if let Call::UvmFree(free) = call
                && free.length == 0
            {
                self.freed_unseen(free.base);
            }
            let ended = self.pins.unmapped(&self.graph());
            // No transfer of doorbell can name memory that was never pinned.
            if all || !ended.is_empty() {
                self.took_away(if all { None } else { Some(&ended) });
            } else if !HAS_WAITED.get() {
                self.launches_end();
            }
        }
        takes
    }

    #[inline]
    pub(crate) fn generation(&self) -> u64 {
        self.unmaps.load(Ordering::SeqCst)
    }

    /// How often kernels' local memory has moved.
    pub(crate) fn moves(&self) -> u64 {
        self.moves.load(Ordering::SeqCst)
    }

    /// Kernels' local memory is about to move: launches that were prepared before are not made any more, and those in
    /// progress are waited for.
    pub fn local_memory_moves(&self) {
        self.moves.fetch_add(1, Ordering::SeqCst);
        // ORDERING: see `lease`.
        self.unmaps.fetch_add(1, Ordering::SeqCst);
        self.launches_end();
    }

    /// Whether there is any pin.
    pub(crate) fn has_pins(&self) -> bool {
        self.pins.count() > 0
    }

    /// CUDA is about to free `length` bytes at `base`, with or without a driver call: pins in it end, and submissions in
    /// flight are waited for.
    pub fn frees(&self, base: u64, length: u64) {
        let ended = self.pins.freed(base, length);
        if !ended.is_empty() {
            self.took_away(Some(&ended));
        }
    }

    /// Memory is about to be freed that kernels of doorbell may touch; which kernels is unknown. So this waits for launches
    /// in progress, as CUDA does for its own launches. They are not stopped: the memory may have no connection with them.
    fn launches_end(&self) {
        let trackers = self.trackers();
        let deadline = Instant::now() + LAUNCHES;
        for tracker in trackers.iter().filter(|tracker| tracker.launching()) {
            tracker.drain(deadline);
        }
    }

    /// Waits for launches in progress, then calls CUDA's function that frees. Its driver calls do not wait for launches again: CUDA makes them with
    /// locks that other threads' calls of CUDA need. A launch that begins after this may not use the memory, by any CUDA rule.
    pub fn after_launches<T>(&self, free: impl FnOnce() -> T) -> T {
        self.launches_end();
        let before = HAS_WAITED.replace(true);
        let freed = free();
        HAS_WAITED.set(before);
        freed
    }

    /// From now on no submission may name the memory that is about to be freed. Submissions in flight must finish, or their
    /// channel is stopped: CUDA frees the memory when this returns. `leases` are over; `None` if the address space itself is
    /// freed.
    fn took_away(&self, leases: Option<&[Arc<Lease>]>) {
        // ORDERING: see `lease`.
        self.unmaps.fetch_add(1, Ordering::SeqCst);
        self.launches_end();
        tracker::wait_or_stop(&self.trackers(), leases, DRAIN);
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
}

/// CUDA's graphics channel group, for a channel that joins it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CudasGroup {
    pub group: u32,
    pub share: u32,
    /// Where UVM has the group's context buffers: address and length.
    pub contexts: (u64, u64),
}

/// # Safety
/// `arg` is a valid argument of `request` on such a file; it lives as long as the result is used.
unsafe fn argument<'a>(branch: &Branch, file: FileKind, request: u64, arg: *mut c_void) -> &'a [u8] {
    let size = match file {
        FileKind::Uvm => uvm::size(branch, request),
        _ if abi::rm_nr(request).is_some() => abi::request_size(request),
        _ => 0,
    };
    // SAFETY: the driver reads and writes this many bytes there.
    unsafe { std::slice::from_raw_parts(arg.cast(), size) }
}

/// The place and length of RM_ALLOC's and RM_CONTROL's parameters, as the program gives them before the call. A place that
/// the driver returns is ignored.
///
/// # Safety
/// As [`argument`].
unsafe fn parameters(branch: &Branch, request: u64, arg: *mut c_void) -> Option<(u64, u32)> {
    // SAFETY: the request's struct.
    let bytes = unsafe { std::slice::from_raw_parts(arg.cast::<u8>(), abi::request_size(request)) };
    rm::call::parameters(branch, request, bytes)
}

/// The parameters after a call that succeeded. `whole` is the call's argument, read after the call.
///
/// # Safety
/// As [`argument`]; `parameters` is its value before the call.
unsafe fn nested<'a>(
    branch: &Branch,
    file: FileKind,
    request: u64,
    whole: &[u8],
    parameters: Option<(u64, u32)>,
) -> &'a [u8] {
    match (parameters, Call::parse(branch, file, request, whole, &[]).status()) {
        // SAFETY: the driver has just used that many bytes there.
        (Some((at, length)), Some(0)) => unsafe {
            std::slice::from_raw_parts(at as *const u8, (length as usize).min(NESTED_MAX))
        },
        _ => &[],
    }
}
