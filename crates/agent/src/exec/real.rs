//! The functions behind the names here, looked up when the agent starts.

use core::ffi::{CStr, c_char, c_int, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

type Strings = *const *const c_char;

macro_rules! real {
    ($($name:ident ($($a:ident: $t:ty),*) -> $r:ty, $none:expr;)*) => {
        mod table {
            $(#[allow(non_upper_case_globals, reason = "each is the function of that name")]
            pub static $name: super::AtomicUsize = super::AtomicUsize::new(0);)*
        }
        $(
            /// The next definition; fails as the C library would where there is none.
            ///
            /// # Safety
            /// As the C function of that name.
            pub unsafe fn $name($($a: $t),*) -> $r {
                let at = match table::$name.load(Ordering::Relaxed) {
                    0 => look(&table::$name, concat!(stringify!($name), "\0")),
                    at => at,
                };
                if at == 0 {
                    return $none;
                }
                // SAFETY: the symbol has this C type.
                let f: unsafe extern "C" fn($($t),*) -> $r = unsafe { core::mem::transmute(at) };
                // SAFETY: the caller's.
                unsafe { f($($a),*) }
            }
        )*
        /// Looks all of them up.
        pub fn look_up() {
            $(look(&table::$name, concat!(stringify!($name), "\0"));)*
        }
    };
}

fn look(to: &AtomicUsize, name: &str) -> usize {
    let at = CStr::from_bytes_with_nul(name.as_bytes()).map_or(0, crate::locks::symbol::next);
    to.store(at, Ordering::Relaxed);
    at
}

real! {
    execve(path: *const c_char, argv: Strings, env: Strings) -> c_int, -1;
    execvpe(file: *const c_char, argv: Strings, env: Strings) -> c_int, -1;
    fexecve(fd: c_int, argv: Strings, env: Strings) -> c_int, -1;
    execveat(dir: c_int, path: *const c_char, argv: Strings, env: Strings, flags: c_int) -> c_int, -1;
    posix_spawn(pid: *mut libc::pid_t, path: *const c_char, a: *const c_void, b: *const c_void, argv: Strings, env: Strings) -> c_int, libc::ENOSYS;
    posix_spawnp(pid: *mut libc::pid_t, path: *const c_char, a: *const c_void, b: *const c_void, argv: Strings, env: Strings) -> c_int, libc::ENOSYS;
    system(command: *const c_char) -> c_int, -1;
    popen(command: *const c_char, mode: *const c_char) -> *mut c_void, core::ptr::null_mut();
}
