//! As CUDA does, cuInit loads the library that `CUDA_INJECTION64_PATH` names, and calls its InitializeInjection: this is how profilers are loaded.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt;
use std::sync::Once;

unsafe extern "C" {
    fn dlopen(path: *const c_char, flags: c_int) -> *mut c_void;
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

const RTLD_NOW: c_int = 2;
const INITIALIZE: &CStr = c"InitializeInjection";

/// Once in a process.
pub(crate) fn load() {
    static LOADED: Once = Once::new();
    LOADED.call_once(|| {
        let path = std::env::var_os("CUDA_INJECTION64_PATH").and_then(|path| CString::new(path.into_vec()).ok());
        let Some(path) = path else { return };
        // SAFETY: two strings; the library is made to be loaded like this, and its function has this type.
        unsafe {
            let library = dlopen(path.as_ptr(), RTLD_NOW);
            let function = if library.is_null() { library } else { dlsym(library, INITIALIZE.as_ptr()) };
            if !function.is_null() {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> c_int>(function)();
            }
        }
    });
}
