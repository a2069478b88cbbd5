//! CUPTI's buffers and records, with a stand-in for libcupti. A process has one profiler, so one test runs all steps.
// Every unsafe block here plays CUPTI's part with memory that the test owns.
#![allow(clippy::undocumented_unsafe_blocks)]

use cuda::Unavailable;
use cuda::cupti::{CopyKind, Cupti};
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

type Request = extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
type Complete = extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// Bytes of the stand-in's records, as CUpti_ActivityMemcpy6: longer than the part that is read.
const RECORD: usize = 96;

static CALLBACKS: Mutex<Option<(Request, Complete)>> = Mutex::new(None);
static ENABLED: AtomicBool = AtomicBool::new(false);
static VERSION: AtomicU32 = AtomicU32::new(130_001);
static DROPPED: AtomicUsize = AtomicUsize::new(0);
/// Kind of copy, bytes, start, end of the copies since the last flush.
static DONE: Mutex<Vec<(u8, u64, u64, u64)>> = Mutex::new(Vec::new());

extern "C" fn version(into: *mut u32) -> u32 {
    unsafe { *into = VERSION.load(Ordering::Relaxed) };
    0
}

extern "C" fn enable(kind: u32) -> u32 {
    assert_eq!(kind, 1);
    ENABLED.store(true, Ordering::Relaxed);
    0
}

extern "C" fn disable(_: u32) -> u32 {
    ENABLED.store(false, Ordering::Relaxed);
    0
}

extern "C" fn register(request: Request, complete: Complete) -> u32 {
    *CALLBACKS.lock().unwrap() = Some((request, complete));
    0
}

extern "C" fn flush(_: u32) -> u32 {
    let (request, complete) = CALLBACKS.lock().unwrap().unwrap();
    let done = std::mem::take(&mut *DONE.lock().unwrap());
    let (mut buffer, mut size, mut most) = (std::ptr::null_mut::<u8>(), 0, 9);
    request(&mut buffer, &mut size, &mut most);
    assert!(!buffer.is_null() && (buffer as usize).is_multiple_of(8) && most == 0);
    assert!(size >= done.len() * RECORD);
    for (n, (kind, bytes, start, end)) in done.iter().enumerate() {
        let mut record = [0u8; RECORD];
        record[..4].copy_from_slice(&1u32.to_le_bytes());
        record[4] = *kind;
        for (at, word) in [(8, bytes), (16, start), (24, end)] {
            record[at..at + 8].copy_from_slice(&word.to_le_bytes());
        }
        unsafe { buffer.add(n * RECORD).copy_from_nonoverlapping(record.as_ptr(), RECORD) };
    }
    complete(std::ptr::null_mut(), 0, buffer, size, done.len() * RECORD);
    0
}

extern "C" fn next(buffer: *mut u8, valid: usize, record: *mut *mut u8) -> u32 {
    let at = unsafe { *record };
    let next = if at.is_null() { 0 } else { at as usize - buffer as usize + RECORD };
    if next >= valid {
        return 12;
    }
    unsafe { *record = buffer.add(next) };
    0
}

extern "C" fn dropped(_: *mut c_void, _: u32, into: *mut usize) -> u32 {
    unsafe { *into = DROPPED.swap(0, Ordering::Relaxed) };
    0
}

extern "C" fn text(_: u32, into: *mut *const c_char) -> u32 {
    unsafe { *into = c"CUPTI_ERROR_STAND_IN".as_ptr() };
    0
}

fn find(name: &CStr) -> Option<NonNull<c_void>> {
    NonNull::new(match name.to_bytes() {
        b"cuptiGetVersion" => version as *mut c_void,
        b"cuptiActivityEnable" => enable as *mut c_void,
        b"cuptiActivityDisable" => disable as *mut c_void,
        b"cuptiActivityRegisterCallbacks" => register as *mut c_void,
        b"cuptiActivityFlushAll" => flush as *mut c_void,
        b"cuptiActivityGetNextRecord" => next as *mut c_void,
        b"cuptiActivityGetNumDroppedRecords" => dropped as *mut c_void,
        b"cuptiGetResultString" => text as *mut c_void,
        _ => return None,
    })
}

#[test]
fn copies_come_back_with_what_they_took() {
    let open = || unsafe { Cupti::from_symbols(find) };
    // A version whose records are not known is refused.
    for unknown in [3, 29, 140_000] {
        VERSION.store(unknown, Ordering::Relaxed);
        assert!(open().unwrap_err().reason.contains(&unknown.to_string()));
    }
    VERSION.store(130_001, Ordering::Relaxed);
    let cupti = open().unwrap();
    assert_eq!(cupti.version(), 130_001);
    let copies = cupti
        .copies(|| {
            assert!(ENABLED.load(Ordering::Relaxed));
            *DONE.lock().unwrap() = vec![(1, 8, 100, 568), (2, 4096, 1000, 2500), (8, 7, 0, 0)];
        })
        .unwrap();
    assert!(!ENABLED.load(Ordering::Relaxed));
    let seen: Vec<_> = copies.iter().map(|copy| (copy.kind, copy.bytes, copy.duration())).collect();
    assert_eq!(
        seen,
        [
            (CopyKind::HostToDevice, 8, Some(468)),
            (CopyKind::DeviceToHost, 4096, Some(1500)),
            (CopyKind::DeviceToDevice, 7, None),
        ]
    );
    assert!(cupti.copies(|| ()).unwrap().is_empty(), "each run has its own records");
    DROPPED.store(5, Ordering::Relaxed);
    assert_eq!(cupti.copies(|| ()).unwrap_err().reason, "CUPTI dropped 5 records");
    assert!(open().unwrap_err().reason.contains("already"));
}

#[test]
fn what_is_missing_is_named() {
    let Unavailable { reason } = Cupti::load_from(&["/nonexistent/libcupti.so.13"]).unwrap_err();
    assert!(reason.contains("/nonexistent/libcupti.so.13"), "{reason}");
    let Unavailable { reason } = Cupti::load_from(&["libc.so.6"]).unwrap_err();
    assert!(reason.contains("libc.so.6 lacks") && reason.contains("cuptiGetVersion"), "{reason}");
}
