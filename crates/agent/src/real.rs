//! The functions behind our interposers: the next definition in link order (RTLD_NEXT), so that another preloaded library
//! (the software GPU) stays in the chain.

use core::ffi::{CStr, c_char, c_int, c_long, c_ulong, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

/// A lazily resolved symbol. Constructors of other libraries may call us before ours has run.
pub struct Next {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Next {
    const fn new(name: &'static CStr) -> Next {
        Next { name, at: AtomicUsize::new(0) }
    }

    /// Address of the function; 0 if no library after us has it.
    #[inline]
    pub fn addr(&self) -> usize {
        let a = self.at.load(Ordering::Relaxed);
        if a != 0 {
            return a;
        }
        // SAFETY: a NUL-terminated name; dlsym allocates only when it fails.
        let a = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) } as usize;
        self.at.store(a, Ordering::Relaxed);
        a
    }
}

macro_rules! next {
    ($($(#[$m:meta])* $name:ident = $sym:literal ($($a:ident: $t:ty),*) -> $r:ty, $none:expr;)*) => {$(
        $(#[$m])*
        /// Calls the next definition; where there is none, fails as the C library would.
        ///
        /// # Safety
        /// As the C function of that name.
        #[inline]
        pub unsafe fn $name($($a: $t),*) -> $r {
            static NEXT: Next = Next::new($sym);
            let at = NEXT.addr();
            if at == 0 {
                return $none;
            }
            // SAFETY: the symbol has this C type.
            let f: unsafe extern "C" fn($($t),*) -> $r = unsafe { core::mem::transmute(at) };
            // SAFETY: the caller's.
            unsafe { f($($a),*) }
        }
    )*};
}

type Handler = usize;
const FAILED: *mut c_void = usize::MAX as *mut c_void;

next! {
    ioctl = c"ioctl" (fd: c_int, req: c_ulong, arg: *mut c_void) -> c_int, -1;
    open = c"open" (p: *const c_char, flags: c_int, mode: c_int) -> c_int, -1;
    open64 = c"open64" (p: *const c_char, flags: c_int, mode: c_int) -> c_int, -1;
    openat = c"openat" (d: c_int, p: *const c_char, flags: c_int, mode: c_int) -> c_int, -1;
    openat64 = c"openat64" (d: c_int, p: *const c_char, flags: c_int, mode: c_int) -> c_int, -1;
    open_2 = c"__open_2" (p: *const c_char, flags: c_int) -> c_int, -1;
    open64_2 = c"__open64_2" (p: *const c_char, flags: c_int) -> c_int, -1;
    openat_2 = c"__openat_2" (d: c_int, p: *const c_char, flags: c_int) -> c_int, -1;
    openat64_2 = c"__openat64_2" (d: c_int, p: *const c_char, flags: c_int) -> c_int, -1;
    close = c"close" (fd: c_int) -> c_int, -1;
    close_range = c"close_range" (a: u32, b: u32, flags: c_int) -> c_int, -1;
    dup = c"dup" (fd: c_int) -> c_int, -1;
    dup2 = c"dup2" (a: c_int, b: c_int) -> c_int, -1;
    dup3 = c"dup3" (a: c_int, b: c_int, flags: c_int) -> c_int, -1;
    mmap = c"mmap" (a: *mut c_void, n: usize, p: c_int, f: c_int, fd: c_int, o: c_long) -> *mut c_void, FAILED;
    mmap64 = c"mmap64" (a: *mut c_void, n: usize, p: c_int, f: c_int, fd: c_int, o: c_long) -> *mut c_void, FAILED;
    munmap = c"munmap" (a: *mut c_void, n: usize) -> c_int, -1;
    mremap = c"mremap" (a: *mut c_void, o: usize, n: usize, f: c_int, to: *mut c_void) -> *mut c_void, FAILED;
    mprotect = c"mprotect" (a: *mut c_void, n: usize, p: c_int) -> c_int, -1;
    sigaction = c"sigaction" (s: c_int, a: *const libc::sigaction, o: *mut libc::sigaction) -> c_int, -1;
    signal = c"signal" (s: c_int, h: Handler) -> Handler, usize::MAX;
    pthread_sigmask = c"pthread_sigmask" (how: c_int, s: *const libc::sigset_t, o: *mut libc::sigset_t) -> c_int, libc::EINVAL;
    sigprocmask = c"sigprocmask" (how: c_int, s: *const libc::sigset_t, o: *mut libc::sigset_t) -> c_int, -1;
}
