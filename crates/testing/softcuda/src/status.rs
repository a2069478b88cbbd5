//! The results of calls: values of `CUresult`.

use std::ffi::c_int;

pub(crate) const SUCCESS: c_int = 0;
pub(crate) const INVALID_VALUE: c_int = 1;
pub(crate) const INVALID_PTX: c_int = 218;
pub(crate) const OUT_OF_MEMORY: c_int = 2;
pub(crate) const NO_DEVICE: c_int = 100;
pub(crate) const INVALID_CONTEXT: c_int = 201;
pub(crate) const INVALID_HANDLE: c_int = 400;
pub(crate) const ILLEGAL_STATE: c_int = 401;
pub(crate) const FILE_NOT_FOUND: c_int = 301;
pub(crate) const NOT_FOUND: c_int = 500;
pub(crate) const NOT_READY: c_int = 600;
pub(crate) const CONTEXT_IS_DESTROYED: c_int = 709;
pub(crate) const LAUNCH_FAILED: c_int = 719;
pub(crate) const NOT_SUPPORTED: c_int = 801;
pub(crate) const CAPTURE_UNSUPPORTED: c_int = 900;
pub(crate) const CAPTURE_INVALIDATED: c_int = 901;

/// Writes a result to the caller's variable.
pub(crate) fn give<T>(to: *mut T, value: T) -> c_int {
    if to.is_null() {
        return INVALID_VALUE;
    }
    // SAFETY: the caller's place for the answer.
    unsafe { to.write_unaligned(value) };
    SUCCESS
}

pub(crate) fn status(good: bool, otherwise: c_int) -> c_int {
    if good { SUCCESS } else { otherwise }
}

/// Functions that libcuda exports.
macro_rules! calls {
    ($($name:ident($($argument:ident: $kind:ty),*) $body:block)*) => {$(
        /// # Safety
        /// As the CUDA driver API reference describes this function.
        #[allow(non_snake_case)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($argument: $kind),*) -> c_int $body
    )*};
}
