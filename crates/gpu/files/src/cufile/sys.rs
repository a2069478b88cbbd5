//! The used part of cufile.h (CUDA 12 and 13): function names and structs.

use libloading::Library;
use std::ffi::{c_int, c_uint, c_void};

/// `CUfileError_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Status {
    /// `CUfileOpError`.
    pub error: c_int,
    /// `CUresult`, where the error is a CUDA driver error.
    pub cuda: c_int,
}

/// `CU_FILE_HANDLE_TYPE_OPAQUE_FD`.
pub const OPAQUE_FD: c_int = 1;

/// `CUfileDescr_t` for a file descriptor.
#[repr(C)]
pub struct Descriptor {
    pub kind: c_int,
    pub pad: c_int,
    /// In a union with a pointer.
    pub fd: c_int,
    pub fd_rest: c_int,
    pub operations: *const c_void,
}

/// `CUfileDrvProps_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Properties {
    pub nvfs_major: c_uint,
    pub nvfs_minor: c_uint,
    pub poll_threshold: usize,
    pub max_direct_io: usize,
    pub status_flags: c_uint,
    pub control_flags: c_uint,
    pub feature_flags: c_uint,
    pub max_device_cache: c_uint,
    pub per_buffer_cache: c_uint,
    pub max_pinned: c_uint,
    pub max_batch: c_uint,
    pub max_batch_ms: c_uint,
    /// Fields that later versions add.
    pub more: [u64; 16],
}

/// `CU_FILE_ALLOW_COMPAT_MODE`, the number of a bit in `dcontrolflags`.
pub const ALLOW_COMPATIBILITY: c_uint = 1;

pub type Handle = *mut c_void;

type Transfer = unsafe extern "C" fn(Handle, *const c_void, usize, libc::off_t, libc::off_t) -> isize;

/// The functions.
pub struct Functions {
    pub driver_open: unsafe extern "C" fn() -> Status,
    pub driver_properties: unsafe extern "C" fn(*mut Properties) -> Status,
    pub handle_register: unsafe extern "C" fn(*mut Handle, *mut Descriptor) -> Status,
    pub handle_deregister: unsafe extern "C" fn(Handle),
    pub buffer_register: unsafe extern "C" fn(*const c_void, usize, c_int) -> Status,
    pub buffer_deregister: unsafe extern "C" fn(*const c_void) -> Status,
    pub read: Transfer,
    pub write: Transfer,
}

impl Functions {
    /// # Errors
    /// The missing name.
    pub fn of(library: &Library) -> Result<Functions, String> {
        /// # Safety
        /// `T` is the type of the function of that name.
        unsafe fn find<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
            // SAFETY: the caller's promise.
            unsafe { library.get::<T>(name.as_bytes()) }.map(|found| *found).map_err(|error| error.to_string())
        }
        // SAFETY: the types are those of cufile.h.
        unsafe {
            Ok(Functions {
                driver_open: find(library, "cuFileDriverOpen")?,
                driver_properties: find(library, "cuFileDriverGetProperties")?,
                handle_register: find(library, "cuFileHandleRegister")?,
                handle_deregister: find(library, "cuFileHandleDeregister")?,
                buffer_register: find(library, "cuFileBufRegister")?,
                buffer_deregister: find(library, "cuFileBufDeregister")?,
                read: find(library, "cuFileRead")?,
                write: find(library, "cuFileWrite")?,
            })
        }
    }
}

/// Names of `CUfileOpError`, from 5001.
const NAMES: [(c_int, &str); 25] = [
    (5001, "DRIVER_NOT_INITIALIZED"),
    (5002, "DRIVER_INVALID_PROPS"),
    (5003, "DRIVER_UNSUPPORTED_LIMIT"),
    (5004, "DRIVER_VERSION_MISMATCH"),
    (5005, "DRIVER_VERSION_READ_ERROR"),
    (5006, "DRIVER_CLOSING"),
    (5007, "PLATFORM_NOT_SUPPORTED"),
    (5008, "IO_NOT_SUPPORTED"),
    (5009, "DEVICE_NOT_SUPPORTED"),
    (5010, "NVFS_DRIVER_ERROR"),
    (5011, "CUDA_DRIVER_ERROR"),
    (5012, "CUDA_POINTER_INVALID"),
    (5013, "CUDA_MEMORY_TYPE_INVALID"),
    (5014, "CUDA_POINTER_RANGE_ERROR"),
    (5015, "CUDA_CONTEXT_MISMATCH"),
    (5016, "INVALID_MAPPING_SIZE"),
    (5017, "INVALID_MAPPING_RANGE"),
    (5018, "INVALID_FILE_TYPE"),
    (5019, "INVALID_FILE_OPEN_FLAG"),
    (5020, "DIO_NOT_SET"),
    (5022, "INVALID_VALUE"),
    (5023, "MEMORY_ALREADY_REGISTERED"),
    (5024, "MEMORY_NOT_REGISTERED"),
    (5025, "PERMISSION_DENIED"),
    (5030, "INTERNAL_ERROR"),
];

/// The name of a code, without its prefix CU_FILE_.
pub fn name(code: c_int) -> String {
    let known = NAMES.iter().find(|(known, _)| *known == code);
    known.map_or_else(|| format!("error {code}"), |(_, name)| format!("{name} ({code})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::{offset_of, size_of};

    #[test]
    fn structs_are_laid_out_as_in_the_header() {
        assert_eq!(size_of::<Status>(), 8);
        assert_eq!(
            (size_of::<Descriptor>(), offset_of!(Descriptor, fd), offset_of!(Descriptor, operations)),
            (24, 8, 16)
        );
        assert_eq!(
            (
                offset_of!(Properties, poll_threshold),
                offset_of!(Properties, status_flags),
                offset_of!(Properties, feature_flags),
                offset_of!(Properties, max_batch_ms)
            ),
            (8, 24, 32, 52)
        );
    }
}
