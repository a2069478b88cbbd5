//! The functions behind the exported names: the next definition in link order, so that another preloaded library (the
//! software GPU) stays in the chain.
//!
//! They are looked up once, when the library is loaded, or earlier at their first call (see [`symbol`]: no dlsym, no
//! allocation). Constructors of other libraries may call the agent before its own constructor has run.

use super::symbol;
use core::ffi::{CStr, c_char, c_int, c_long, c_uint, c_ulong, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

pub type Mutex = *mut libc::pthread_mutex_t;
pub type Rwlock = *mut libc::pthread_rwlock_t;
pub type Cond = *mut libc::pthread_cond_t;
pub type Sem = *mut libc::sem_t;
pub type Time = *const libc::timespec;
pub type Clock = libc::clockid_t;
/// Arguments and environments of programs.
pub type Strings = *const *const c_char;
type Handler = usize;

struct Real {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Real {
    #[inline(always)]
    fn addr(&self) -> usize {
        // ORDERING: Relaxed: one word, the same whichever thread writes it.
        match self.at.load(Ordering::Relaxed) {
            0 => self.look(),
            at => at,
        }
    }

    #[cold]
    #[inline(never)]
    fn look(&self) -> usize {
        let at = symbol::next(self.name);
        self.at.store(at, Ordering::Relaxed);
        at
    }
}

macro_rules! real {
    ($($name:ident = $symbol:literal ($($a:ident: $t:ty),*) -> $r:ty, $none:expr;)*) => {
        mod table {
            use super::{AtomicUsize, Real};
            $(
                #[allow(non_upper_case_globals, reason = "each is the function of that name")]
                pub static $name: Real = Real { name: $symbol, at: AtomicUsize::new(0) };
            )*
        }
        $(
            /// The next definition. If no library has one, fails as the C library would.
            ///
            /// A thread that is cancelled in here is unwound through its callers, so they must contain nothing that needs
            /// a destructor.
            ///
            /// # Safety
            /// As the C function of that name.
            #[inline(always)]
            pub unsafe fn $name($($a: $t),*) -> $r {
                let at = table::$name.addr();
                if at == 0 {
                    return $none;
                }
                // SAFETY: the symbol has this C type.
                let f: unsafe extern "C" fn($($t),*) -> $r = unsafe { core::mem::transmute(at) };
                // SAFETY: the caller's.
                unsafe { f($($a),*) }
            }
        )*
        /// The same, for functions that [`look_up`] has found and that every libc has. It makes no other call, so it can
        /// be a jump.
        pub mod known {
            use super::*;
            $(
                /// # Safety
                /// As the C function of that name; it was looked up and is there.
                #[allow(dead_code, reason = "few are called so often")]
                #[inline(always)]
                pub unsafe fn $name($($a: $t),*) -> $r {
                    let at = table::$name.at.load(Ordering::Relaxed);
                    // SAFETY: the caller's: not 0, and the symbol has this C type.
                    let f: unsafe extern "C" fn($($t),*) -> $r = unsafe { core::mem::transmute(at) };
                    // SAFETY: the caller's.
                    unsafe { f($($a),*) }
                }
            )*
        }
        /// Looks all of them up.
        pub fn look_up() {
            $( table::$name.addr(); )*
        }
    };
}

const FAILED: *mut c_void = usize::MAX as *mut c_void;

real! {
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
    mlockall = c"mlockall" (f: c_int) -> c_int, -1;
    munmap = c"munmap" (a: *mut c_void, n: usize) -> c_int, -1;
    mremap = c"mremap" (a: *mut c_void, o: usize, n: usize, f: c_int, to: *mut c_void) -> *mut c_void, FAILED;
    mprotect = c"mprotect" (a: *mut c_void, n: usize, p: c_int) -> c_int, -1;
    sigaction = c"sigaction" (s: c_int, a: *const libc::sigaction, o: *mut libc::sigaction) -> c_int, -1;
    signal = c"signal" (s: c_int, h: Handler) -> Handler, usize::MAX;
    sysv_signal = c"__sysv_signal" (s: c_int, h: Handler) -> Handler, usize::MAX;
    sigset = c"sigset" (s: c_int, h: Handler) -> Handler, usize::MAX;
    sighold = c"sighold" (s: c_int) -> c_int, -1;
    sigrelse = c"sigrelse" (s: c_int) -> c_int, -1;
    sigignore = c"sigignore" (s: c_int) -> c_int, -1;
    siginterrupt = c"siginterrupt" (s: c_int, i: c_int) -> c_int, -1;
    sigaltstack = c"sigaltstack" (new: *const libc::stack_t, old: *mut libc::stack_t) -> c_int, -1;
    sigpending = c"sigpending" (s: *mut libc::sigset_t) -> c_int, -1;
    sigwait = c"sigwait" (s: *const libc::sigset_t, w: *mut c_int) -> c_int, libc::ENOSYS;
    sigwaitinfo = c"sigwaitinfo" (s: *const libc::sigset_t, i: *mut libc::siginfo_t) -> c_int, -1;
    sigtimedwait = c"sigtimedwait" (s: *const libc::sigset_t, i: *mut libc::siginfo_t, t: Time) -> c_int, -1;
    sigsuspend = c"sigsuspend" (s: *const libc::sigset_t) -> c_int, -1;
    pthread_attr_getsigmask_np = c"pthread_attr_getsigmask_np" (a: *const c_void, s: *mut libc::sigset_t) -> c_int, -1;
    thrd_create = c"thrd_create" (t: *mut c_void, f: *const c_void, with: *mut c_void) -> c_int, 2;
    pthread_sigmask = c"pthread_sigmask" (how: c_int, s: *const libc::sigset_t, o: *mut libc::sigset_t) -> c_int, libc::EINVAL;
    sigprocmask = c"sigprocmask" (how: c_int, s: *const libc::sigset_t, o: *mut libc::sigset_t) -> c_int, -1;
    pthread_mutex_lock = c"pthread_mutex_lock" (m: Mutex) -> c_int, libc::ENOSYS;
    pthread_mutex_trylock = c"pthread_mutex_trylock" (m: Mutex) -> c_int, libc::ENOSYS;
    pthread_mutex_timedlock = c"pthread_mutex_timedlock" (m: Mutex, t: Time) -> c_int, libc::ENOSYS;
    pthread_mutex_clocklock = c"pthread_mutex_clocklock" (m: Mutex, c: Clock, t: Time) -> c_int, libc::ENOSYS;
    pthread_mutex_unlock = c"pthread_mutex_unlock" (m: Mutex) -> c_int, libc::ENOSYS;
    pthread_mutex_init = c"pthread_mutex_init" (m: Mutex, a: *const c_void) -> c_int, libc::ENOSYS;
    pthread_mutex_destroy = c"pthread_mutex_destroy" (m: Mutex) -> c_int, libc::ENOSYS;
    mtx_init = c"mtx_init" (m: Mutex, kind: c_int) -> c_int, libc::ENOSYS;
    pthread_rwlock_rdlock = c"pthread_rwlock_rdlock" (l: Rwlock) -> c_int, libc::ENOSYS;
    pthread_rwlock_tryrdlock = c"pthread_rwlock_tryrdlock" (l: Rwlock) -> c_int, libc::ENOSYS;
    pthread_rwlock_timedrdlock = c"pthread_rwlock_timedrdlock" (l: Rwlock, t: Time) -> c_int, libc::ENOSYS;
    pthread_rwlock_clockrdlock = c"pthread_rwlock_clockrdlock" (l: Rwlock, c: Clock, t: Time) -> c_int, libc::ENOSYS;
    pthread_rwlock_wrlock = c"pthread_rwlock_wrlock" (l: Rwlock) -> c_int, libc::ENOSYS;
    pthread_rwlock_trywrlock = c"pthread_rwlock_trywrlock" (l: Rwlock) -> c_int, libc::ENOSYS;
    pthread_rwlock_timedwrlock = c"pthread_rwlock_timedwrlock" (l: Rwlock, t: Time) -> c_int, libc::ENOSYS;
    pthread_rwlock_clockwrlock = c"pthread_rwlock_clockwrlock" (l: Rwlock, c: Clock, t: Time) -> c_int, libc::ENOSYS;
    pthread_rwlock_unlock = c"pthread_rwlock_unlock" (l: Rwlock) -> c_int, libc::ENOSYS;
    pthread_rwlock_init = c"pthread_rwlock_init" (l: Rwlock, a: *const c_void) -> c_int, libc::ENOSYS;
    pthread_rwlock_destroy = c"pthread_rwlock_destroy" (l: Rwlock) -> c_int, libc::ENOSYS;
    pthread_cond_wait = c"pthread_cond_wait" (c: Cond, m: Mutex) -> c_int, libc::ENOSYS;
    pthread_cond_timedwait = c"pthread_cond_timedwait" (c: Cond, m: Mutex, t: Time) -> c_int, libc::ENOSYS;
    pthread_cond_clockwait = c"pthread_cond_clockwait" (c: Cond, m: Mutex, k: Clock, t: Time) -> c_int, libc::ENOSYS;
    pthread_cond_signal = c"pthread_cond_signal" (c: Cond) -> c_int, libc::ENOSYS;
    pthread_cond_broadcast = c"pthread_cond_broadcast" (c: Cond) -> c_int, libc::ENOSYS;
    pthread_cond_init = c"pthread_cond_init" (c: Cond, a: *const c_void) -> c_int, libc::ENOSYS;
    pthread_cond_destroy = c"pthread_cond_destroy" (c: Cond) -> c_int, libc::ENOSYS;
    sem_wait = c"sem_wait" (s: Sem) -> c_int, libc::ENOSYS;
    sem_trywait = c"sem_trywait" (s: Sem) -> c_int, libc::ENOSYS;
    sem_timedwait = c"sem_timedwait" (s: Sem, t: Time) -> c_int, libc::ENOSYS;
    sem_clockwait = c"sem_clockwait" (s: Sem, c: Clock, t: Time) -> c_int, libc::ENOSYS;
    sem_post = c"sem_post" (s: Sem) -> c_int, libc::ENOSYS;
    sem_init = c"sem_init" (s: Sem, shared: c_int, value: c_uint) -> c_int, libc::ENOSYS;
    sem_destroy = c"sem_destroy" (s: Sem) -> c_int, libc::ENOSYS;
    pthread_create = c"pthread_create" (t: *mut c_void, a: *const c_void, f: *const c_void, with: *mut c_void) -> c_int, libc::ENOSYS;
    pthread_key_create = c"pthread_key_create" (k: *mut libc::pthread_key_t, d: *const c_void) -> c_int, libc::ENOSYS;
    pthread_setschedparam = c"pthread_setschedparam" (t: libc::pthread_t, policy: c_int, p: *const libc::sched_param) -> c_int, libc::ENOSYS;
    pthread_setschedprio = c"pthread_setschedprio" (t: libc::pthread_t, priority: c_int) -> c_int, libc::ENOSYS;
    sched_setscheduler = c"sched_setscheduler" (pid: c_int, policy: c_int, p: *const libc::sched_param) -> c_int, libc::ENOSYS;
    sched_setparam = c"sched_setparam" (pid: c_int, p: *const libc::sched_param) -> c_int, libc::ENOSYS;
    sched_setattr = c"sched_setattr" (pid: c_int, a: *const c_void, flags: c_uint) -> c_int, libc::ENOSYS;
    sched_setaffinity = c"sched_setaffinity" (pid: c_int, n: usize, set: *const c_void) -> c_int, libc::ENOSYS;
    pthread_setaffinity_np = c"pthread_setaffinity_np" (t: libc::pthread_t, n: usize, set: *const c_void) -> c_int, libc::ENOSYS;
    execve = c"execve" (path: *const c_char, argv: Strings, env: Strings) -> c_int, -1;
    execvpe = c"execvpe" (file: *const c_char, argv: Strings, env: Strings) -> c_int, -1;
    fexecve = c"fexecve" (fd: c_int, argv: Strings, env: Strings) -> c_int, -1;
    execveat = c"execveat" (dir: c_int, path: *const c_char, argv: Strings, env: Strings, flags: c_int) -> c_int, -1;
    posix_spawn = c"posix_spawn" (pid: *mut libc::pid_t, path: *const c_char, a: *const c_void, b: *const c_void, argv: Strings, env: Strings) -> c_int, libc::ENOSYS;
    posix_spawnp = c"posix_spawnp" (pid: *mut libc::pid_t, path: *const c_char, a: *const c_void, b: *const c_void, argv: Strings, env: Strings) -> c_int, libc::ENOSYS;
    waitpid = c"waitpid" (pid: libc::pid_t, status: *mut c_int, options: c_int) -> libc::pid_t, -1;
    system = c"system" (command: *const c_char) -> c_int, -1;
    prctl = c"prctl" (option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int, -1;
    syscall = c"syscall" (n: c_long, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong, e: c_ulong) -> c_long, -1;
    popen = c"popen" (command: *const c_char, mode: *const c_char) -> *mut c_void, core::ptr::null_mut();
}

/// For code that jumps there.
pub fn address_of_syscall() -> usize {
    table::syscall.addr()
}
