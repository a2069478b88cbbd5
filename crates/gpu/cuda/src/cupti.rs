//! Copy times from NVIDIA's profiler interface: activity records of libcupti, opened at run time.
//!
//! Facts from `cupti_activity.h`, `cupti_version.h` and the CUPTI documentation. Only the head of a memcpy record is
//! read here. It is the same from CUpti_ActivityMemcpy3 (CUDA 11.1) to CUpti_ActivityMemcpy7. Other API versions are
//! refused.
//!
//! A process has one CUPTI, and its callbacks carry no argument from the caller. So there is one [`Cupti`], and its
//! records are kept in one static.

use crate::error::Unavailable;
use crate::library::Loaded;
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ffi::{CStr, c_char, c_void};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// `CUptiResult`.
type Status = u32;
const SUCCESS: Status = 0;
const MAX_LIMIT_REACHED: Status = 12;
/// `CUPTI_ACTIVITY_KIND_MEMCPY`.
const KIND_MEMCPY: u32 = 1;
/// `CUPTI_ACTIVITY_FLAG_FLUSH_FORCED`: incomplete records are delivered too.
const FLUSH_FORCED: u32 = 1;
/// Bytes of a buffer of records, and their alignment (`ACTIVITY_RECORD_ALIGNMENT`).
const BUFFER: usize = 1 << 20;
const ALIGNMENT: usize = 8;

/// API versions whose records are known: CUDA 11.1 to 12.9 count up, 13.x have the form 13yyzz.
const KNOWN: [std::ops::RangeInclusive<u32>; 2] = [14..=28, 130_000..=139_999];

/// Where libcupti is searched. The plain names are found through LD_LIBRARY_PATH and the linker's cache.
const PLACES: [&str; 9] = [
    "libcupti.so.13",
    "libcupti.so.12",
    "libcupti.so",
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.13",
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so.12",
    "/usr/local/cuda/extras/CUPTI/lib64/libcupti.so",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so.13",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so.12",
    "/usr/local/cuda/targets/x86_64-linux/lib/libcupti.so",
];

type RequestBuffer = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type CompleteBuffer = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

#[derive(Clone, Copy)]
struct Table {
    version: unsafe extern "C" fn(*mut u32) -> Status,
    enable: unsafe extern "C" fn(u32) -> Status,
    disable: unsafe extern "C" fn(u32) -> Status,
    register: unsafe extern "C" fn(RequestBuffer, CompleteBuffer) -> Status,
    flush: unsafe extern "C" fn(u32) -> Status,
    next: unsafe extern "C" fn(*mut u8, usize, *mut *mut u8) -> Status,
    dropped: unsafe extern "C" fn(*mut c_void, u32, *mut usize) -> Status,
    text: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

/// Direction of a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyKind {
    /// `CUPTI_ACTIVITY_MEMCPY_KIND_HTOD`
    HostToDevice,
    /// `CUPTI_ACTIVITY_MEMCPY_KIND_DTOH`
    DeviceToHost,
    /// `CUPTI_ACTIVITY_MEMCPY_KIND_DTOD`
    DeviceToDevice,
    Other(u8),
}

/// One copy, as the profiler reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memcpy {
    pub kind: CopyKind,
    pub bytes: u64,
    /// Nanoseconds.
    pub start: u64,
    pub end: u64,
}

impl Memcpy {
    /// From the head of a record: kind @0, copyKind @4, bytes @8, start @16, end @24.
    fn parse(head: &[u8; 32]) -> Option<Memcpy> {
        let word = |at: usize| head[at..at + 8].try_into().map(u64::from_le_bytes).ok();
        if head[..4] != KIND_MEMCPY.to_le_bytes() {
            return None;
        }
        let kind = match head[4] {
            1 => CopyKind::HostToDevice,
            2 => CopyKind::DeviceToHost,
            8 => CopyKind::DeviceToDevice,
            other => CopyKind::Other(other),
        };
        Some(Memcpy { kind, bytes: word(8)?, start: word(16)?, end: word(24)? })
    }

    /// Nanoseconds from start to end; `None` where the profiler could not collect them (both 0).
    pub fn duration(&self) -> Option<u64> {
        self.end.checked_sub(self.start).filter(|_| self.end != 0)
    }
}

/// Records that arrived since the last call.
#[derive(Default)]
struct Collected {
    records: Vec<Memcpy>,
    dropped: usize,
    /// The first failure inside a callback.
    failed: Option<String>,
}

static TABLE: OnceLock<Table> = OnceLock::new();
static COLLECTED: Mutex<Collected> = Mutex::new(Collected { records: Vec::new(), dropped: 0, failed: None });

fn collected() -> MutexGuard<'static, Collected> {
    poison::ignore(COLLECTED.lock())
}

const fn buffer_layout() -> Layout {
    match Layout::from_size_align(BUFFER, ALIGNMENT) {
        Ok(layout) => layout,
        Err(_) => Layout::new::<u64>(),
    }
}

extern "C" fn request_buffer(buffer: *mut *mut u8, size: *mut usize, most: *mut usize) {
    // SAFETY: CUPTI passes three valid places; the layout is not empty. A null buffer makes CUPTI drop records.
    unsafe {
        *buffer = alloc_zeroed(buffer_layout());
        *size = if (*buffer).is_null() { 0 } else { BUFFER };
        *most = 0;
    }
}

extern "C" fn complete_buffer(context: *mut c_void, stream: u32, buffer: *mut u8, _size: usize, valid: usize) {
    let Some(table) = TABLE.get() else { return };
    let mut into = collected();
    let mut record: *mut u8 = std::ptr::null_mut();
    loop {
        // SAFETY: CUPTI gave back this buffer with `valid` bytes; `record` is null or what the last call set.
        match unsafe { (table.next)(buffer, valid, &raw mut record) } {
            SUCCESS => {}
            MAX_LIMIT_REACHED => break,
            status => {
                into.failed.get_or_insert_with(|| table.describe("cuptiActivityGetNextRecord", status));
                break;
            }
        }
        // Every record of the enabled kind is longer than its head. A record cut off at the very end is skipped.
        let inside = (record as usize).wrapping_sub(buffer as usize);
        if record.is_null() || inside.checked_add(32).is_none_or(|end| end > valid) {
            break;
        }
        // SAFETY: 32 bytes within the buffer, initialised by CUPTI or zeroed by `request_buffer`.
        let head = unsafe { record.cast::<[u8; 32]>().read_unaligned() };
        into.records.extend(Memcpy::parse(&head));
    }
    let mut dropped = 0;
    // SAFETY: the context and stream that CUPTI named, and a valid place.
    if unsafe { (table.dropped)(context, stream, &raw mut dropped) } == SUCCESS {
        into.dropped += dropped;
    }
    if !buffer.is_null() {
        // SAFETY: from `request_buffer`, with this layout; CUPTI does not use it any more.
        unsafe { dealloc(buffer, buffer_layout()) };
    }
}

impl Table {
    /// # Safety
    /// Each address that `find` returns is that of the function with this name in CUPTI's reference, which is never
    /// unloaded.
    unsafe fn find(mut find: impl FnMut(&CStr) -> Result<NonNull<c_void>, String>) -> Result<Table, String> {
        macro_rules! function {
            ($name:literal, $($argument:ty),*) => {{
                let address = find($name)?.as_ptr();
                // SAFETY: the caller promises that this function exists, with the signature of the reference.
                unsafe { std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> Status>(address) }
            }};
        }
        Ok(Table {
            version: function!(c"cuptiGetVersion", *mut u32),
            enable: function!(c"cuptiActivityEnable", u32),
            disable: function!(c"cuptiActivityDisable", u32),
            register: function!(c"cuptiActivityRegisterCallbacks", RequestBuffer, CompleteBuffer),
            flush: function!(c"cuptiActivityFlushAll", u32),
            next: function!(c"cuptiActivityGetNextRecord", *mut u8, usize, *mut *mut u8),
            dropped: function!(c"cuptiActivityGetNumDroppedRecords", *mut c_void, u32, *mut usize),
            text: function!(c"cuptiGetResultString", Status, *mut *const c_char),
        })
    }

    fn describe(&self, call: &str, status: Status) -> String {
        let mut text = std::ptr::null();
        // SAFETY: a valid place for a pointer to a string that is never freed.
        let named = unsafe { (self.text)(status, &raw mut text) } == SUCCESS && !text.is_null();
        // SAFETY: CUPTI's own C string.
        let text = if named { unsafe { CStr::from_ptr(text) }.to_string_lossy() } else { "unknown status".into() };
        format!("{call}: {text} ({status})")
    }

    fn check(&self, call: &str, status: Status) -> Result<(), Unavailable> {
        if status == SUCCESS { Ok(()) } else { Err(Unavailable { reason: self.describe(call, status) }) }
    }
}

/// The profiler interface, ready to record copies. Open it before CUDA makes its first context.
#[derive(Clone, Copy, Debug)]
pub struct Cupti {
    version: u32,
}

impl Cupti {
    /// Opens libcupti from its usual places.
    pub fn load() -> Result<Cupti, Unavailable> {
        Cupti::load_from(&PLACES)
    }

    /// Opens this libcupti.
    pub fn load_file(path: &Path) -> Result<Cupti, Unavailable> {
        Cupti::load_from(&[&path.to_string_lossy()])
    }

    /// Opens the first of these libraries that exists. It stays loaded for the life of the process.
    pub fn load_from(places: &[&str]) -> Result<Cupti, Unavailable> {
        let library = Loaded::first(places, "libcupti")
            .map_err(|reason| Unavailable { reason: format!("no libcupti: {reason}") })?;
        // SAFETY: the signatures are those of CUPTI's reference, and the library is never closed.
        Cupti::start(library.functions(|find| unsafe { Table::find(find) })?)
    }

    /// A profiler with functions that the caller provides, such as a stand-in for libcupti in tests.
    ///
    /// # Safety
    /// For every name that `find` resolves, it returns a function with the signature and behaviour of CUPTI's
    /// reference, which is never unloaded.
    pub unsafe fn from_symbols(mut find: impl FnMut(&CStr) -> Option<NonNull<c_void>>) -> Result<Cupti, Unavailable> {
        // SAFETY: passed on to the caller.
        let table = unsafe { Table::find(|name| find(name).ok_or_else(|| format!("no {}", name.to_string_lossy()))) };
        Cupti::start(table.map_err(|reason| Unavailable { reason })?)
    }

    fn start(table: Table) -> Result<Cupti, Unavailable> {
        let mut version = 0;
        // SAFETY: writes one word.
        table.check("cuptiGetVersion", unsafe { (table.version)(&raw mut version) })?;
        if !KNOWN.iter().any(|known| known.contains(&version)) {
            let reason = format!("CUPTI API version {version}: the layout of its records is not known here");
            return Err(Unavailable { reason });
        }
        TABLE.set(table).map_err(|_| Unavailable { reason: "CUPTI has been opened already in this process".into() })?;
        // SAFETY: functions with the signatures that CUPTI requires.
        table.check("cuptiActivityRegisterCallbacks", unsafe { (table.register)(request_buffer, complete_buffer) })?;
        Ok(Cupti { version })
    }

    /// The API version. CUDA 12.6 has 24, CUDA 13.0 has 130001.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Runs `work` and returns the profiler's records of the copies in it. `work` must wait for its copies itself.
    ///
    /// # Errors
    /// What CUPTI refused (profiling may be for administrators only), or how many records it lost.
    pub fn copies(&self, work: impl FnOnce()) -> Result<Vec<Memcpy>, Unavailable> {
        let Some(table) = TABLE.get() else {
            return Err(Unavailable { reason: "CUPTI is not open".into() });
        };
        *collected() = Collected::default();
        // SAFETY: takes a number.
        table.check("cuptiActivityEnable(MEMCPY)", unsafe { (table.enable)(KIND_MEMCPY) })?;
        work();
        // SAFETY: take numbers.
        let (flushed, disabled) = unsafe { ((table.flush)(FLUSH_FORCED), (table.disable)(KIND_MEMCPY)) };
        table.check("cuptiActivityFlushAll", flushed)?;
        table.check("cuptiActivityDisable(MEMCPY)", disabled)?;
        let Collected { records, dropped, failed } = std::mem::take(&mut *collected());
        if let Some(reason) = failed {
            return Err(Unavailable { reason });
        }
        if dropped > 0 {
            return Err(Unavailable { reason: format!("CUPTI dropped {dropped} records") });
        }
        Ok(records)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(kind: u32, copy: u8, bytes: u64, start: u64, end: u64) -> [u8; 32] {
        let mut head = [0; 32];
        head[..4].copy_from_slice(&kind.to_le_bytes());
        head[4] = copy;
        head[8..16].copy_from_slice(&bytes.to_le_bytes());
        head[16..24].copy_from_slice(&start.to_le_bytes());
        head[24..].copy_from_slice(&end.to_le_bytes());
        head
    }

    #[test]
    fn records_are_read_by_the_documented_layout() {
        let copy = Memcpy::parse(&head(1, 1, 4096, 1_000_000, 1_001_500)).unwrap();
        assert_eq!((copy.kind, copy.bytes, copy.duration()), (CopyKind::HostToDevice, 4096, Some(1500)));
        assert_eq!(Memcpy::parse(&head(1, 2, 1, 2, 3)).unwrap().kind, CopyKind::DeviceToHost);
        assert_eq!(Memcpy::parse(&head(1, 9, 1, 2, 3)).unwrap().kind, CopyKind::Other(9));
        assert_eq!(Memcpy::parse(&head(1, 1, 1, 0, 0)).unwrap().duration(), None, "it could not be collected");
        assert_eq!(Memcpy::parse(&head(1, 1, 1, 5, 4)).unwrap().duration(), None);
        assert_eq!(Memcpy::parse(&head(3, 1, 4096, 1, 2)), None, "a kernel");
    }
}
