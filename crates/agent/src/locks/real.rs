//! The functions behind the taps. They are looked up once, when the library is loaded, or at the first call where
//! somebody is faster (see [`super::symbol`]: no dlsym, no allocation).

use super::symbol;
use core::ffi::{CStr, c_int, c_uint, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

pub type Mutex = *mut libc::pthread_mutex_t;
pub type Rwlock = *mut libc::pthread_rwlock_t;
pub type Cond = *mut libc::pthread_cond_t;
pub type Sem = *mut libc::sem_t;
pub type Time = *const libc::timespec;
pub type Clock = libc::clockid_t;

struct Real {
    name: &'static CStr,
    at: AtomicUsize,
}

impl Real {
    #[inline(always)]
    fn addr(&self) -> usize {
        // ORDERING: Relaxed: one word, the same whoever writes it.
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
    ($($name:ident ($($a:ident: $t:ty),*);)*) => {
        mod table {
            use super::{AtomicUsize, Real};
            $(
                #[allow(non_upper_case_globals, reason = "each is the function of that name")]
                pub static $name: Real = Real {
                    // A name of the C library has no NUL in it.
                    name: match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => c"",
                    },
                    at: AtomicUsize::new(0),
                };
            )*
        }
        $(
            /// The next definition; ENOSYS where no library has one.
            ///
            /// A thread that is cancelled in here is unwound through its callers, so nothing in them may need a
            /// destructor.
            ///
            /// # Safety
            /// As the C function of that name.
            #[inline(always)]
            pub unsafe fn $name($($a: $t),*) -> c_int {
                let at = table::$name.addr();
                if at == 0 {
                    return libc::ENOSYS;
                }
                // SAFETY: the symbol has this C type.
                let f: unsafe extern "C" fn($($t),*) -> c_int = unsafe { core::mem::transmute(at) };
                // SAFETY: the caller's.
                unsafe { f($($a),*) }
            }
        )*
        /// The same, for where [`look_up`] has been and found what every libc has: no call but the one that is asked for, so
        /// that it can be a jump.
        pub mod known {
            use super::*;
            $(
                /// # Safety
                /// As the C function of that name; it was looked up and is there.
                #[allow(dead_code, reason = "few are called so often")]
                #[inline(always)]
                pub unsafe fn $name($($a: $t),*) -> c_int {
                    let at = table::$name.at.load(Ordering::Relaxed);
                    // SAFETY: the caller's: not 0, and the symbol has this C type.
                    let f: unsafe extern "C" fn($($t),*) -> c_int = unsafe { core::mem::transmute(at) };
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

real! {
    pthread_mutex_lock(m: Mutex);
    pthread_mutex_trylock(m: Mutex);
    pthread_mutex_timedlock(m: Mutex, t: Time);
    pthread_mutex_clocklock(m: Mutex, c: Clock, t: Time);
    pthread_mutex_unlock(m: Mutex);
    pthread_mutex_init(m: Mutex, a: *const c_void);
    pthread_mutex_destroy(m: Mutex);
    mtx_init(m: Mutex, kind: c_int);
    pthread_rwlock_rdlock(l: Rwlock);
    pthread_rwlock_tryrdlock(l: Rwlock);
    pthread_rwlock_timedrdlock(l: Rwlock, t: Time);
    pthread_rwlock_clockrdlock(l: Rwlock, c: Clock, t: Time);
    pthread_rwlock_wrlock(l: Rwlock);
    pthread_rwlock_trywrlock(l: Rwlock);
    pthread_rwlock_timedwrlock(l: Rwlock, t: Time);
    pthread_rwlock_clockwrlock(l: Rwlock, c: Clock, t: Time);
    pthread_rwlock_unlock(l: Rwlock);
    pthread_rwlock_init(l: Rwlock, a: *const c_void);
    pthread_rwlock_destroy(l: Rwlock);
    pthread_cond_wait(c: Cond, m: Mutex);
    pthread_cond_timedwait(c: Cond, m: Mutex, t: Time);
    pthread_cond_clockwait(c: Cond, m: Mutex, k: Clock, t: Time);
    pthread_cond_signal(c: Cond);
    pthread_cond_broadcast(c: Cond);
    pthread_cond_init(c: Cond, a: *const c_void);
    pthread_cond_destroy(c: Cond);
    sem_wait(s: Sem);
    sem_trywait(s: Sem);
    sem_timedwait(s: Sem, t: Time);
    sem_clockwait(s: Sem, c: Clock, t: Time);
    sem_post(s: Sem);
    sem_init(s: Sem, shared: c_int, value: c_uint);
    sem_destroy(s: Sem);
    pthread_create(t: *mut c_void, a: *const c_void, f: *const c_void, with: *mut c_void);
    pthread_key_create(k: *mut libc::pthread_key_t, d: *const c_void);
    pthread_setschedparam(t: libc::pthread_t, policy: c_int, p: *const libc::sched_param);
    pthread_setschedprio(t: libc::pthread_t, priority: c_int);
    sched_setscheduler(pid: c_int, policy: c_int, p: *const libc::sched_param);
    sched_setparam(pid: c_int, p: *const libc::sched_param);
    sched_setattr(pid: c_int, a: *const c_void, flags: c_uint);
    sched_setaffinity(pid: c_int, n: usize, set: *const c_void);
    pthread_setaffinity_np(t: libc::pthread_t, n: usize, set: *const c_void);
}
