//! Room for a gate inside the lock that it guards. glibc 2.3x on x86-64 leaves 16 bytes of every rwlock and of every
//! non-robust mutex unused and zero, and zero is a free gate. So a gate is found without a table, lives as long as its
//! lock, and exists in statically initialised locks too.
//!
//! Invariant: only the proof that the bytes are unused here ([`RwLayout`], [`Layout`]) leads to a gate.

use core::ffi::c_int;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{pthread_mutex_t, pthread_rwlock_t, pthread_rwlockattr_t};

use crate::layout::{Layout, Mismatch, Mutex, ROBUST, SHARED};
use crate::phase_fair::PhaseFair;
use crate::ticket::Ticket;
use crate::tid::Tid;

/// In a mutex: its `__list`. A converted mutex keeps its decision there, so a mutex has a ticket or is converted, not both.
const IN_MUTEX: usize = 24;
/// In a rwlock: `__rwelision`, `__pad1`, `__pad2`.
const IN_RWLOCK: usize = 32;
/// `__readers`, `__cur_writer` and `__shared` of a rwlock.
const READERS: usize = 0;
const WRITER: usize = 24;
const RWLOCK_SHARED: usize = 28;

type Operation = unsafe extern "C" fn(*mut pthread_rwlock_t) -> c_int;

/// libc's own functions; the interposer looks them up.
#[derive(Clone, Copy)]
pub struct RealRwlock {
    pub init: unsafe extern "C" fn(*mut pthread_rwlock_t, *const pthread_rwlockattr_t) -> c_int,
    pub rdlock: Operation,
    pub wrlock: Operation,
    pub unlock: Operation,
    pub destroy: Operation,
    pub attr_init: unsafe extern "C" fn(*mut pthread_rwlockattr_t) -> c_int,
    pub attr_setpshared: unsafe extern "C" fn(*mut pthread_rwlockattr_t, c_int) -> c_int,
}

/// Proof that rwlocks have this room here.
#[derive(Clone, Copy, Debug)]
pub struct RwLayout(());

fn same(what: &'static str, expected: u32, found: u32) -> Result<(), Mismatch> {
    if expected == found { Ok(()) } else { Err(Mismatch { what, expected, found }) }
}

fn word(rwlock: &MaybeUninit<pthread_rwlock_t>, offset: usize) -> u32 {
    // SAFETY: within the rwlock, aligned, and every byte was written by the probe.
    unsafe { rwlock.as_ptr().byte_add(offset).cast::<u32>().read() }
}

impl RwLayout {
    /// Initialises, locks and unlocks two rwlocks and reads their bytes. No thread waits.
    ///
    /// # Errors
    /// The first property that differs from this module's layout.
    pub fn probe(real: &RealRwlock, me: Tid) -> Result<RwLayout, Mismatch> {
        let mut attribute = MaybeUninit::<pthread_rwlockattr_t>::uninit();
        let mut plain = MaybeUninit::<pthread_rwlock_t>::uninit();
        let mut shared = plain;
        let unused = |rwlock: &MaybeUninit<pthread_rwlock_t>| {
            let bits = (0..4).fold(0, |bits, index| bits | word(rwlock, IN_RWLOCK + 4 * index));
            same("the unused bytes of a rwlock", 0, bits)
        };
        // SAFETY: libc's functions with valid arguments, on local variables. The fill pattern shows any bytes that init
        // leaves out.
        unsafe {
            core::ptr::write_bytes(&mut plain, 0xa5, 1);
            core::ptr::write_bytes(&mut shared, 0xa5, 1);
            same("pthread_rwlockattr_init", 0, (real.attr_init)(attribute.as_mut_ptr()) as u32)?;
            same("pthread_rwlock_init", 0, (real.init)(plain.as_mut_ptr(), attribute.as_ptr()) as u32)?;
            (real.attr_setpshared)(attribute.as_mut_ptr(), libc::PTHREAD_PROCESS_SHARED);
            same("pthread_rwlock_init, shared", 0, (real.init)(shared.as_mut_ptr(), attribute.as_ptr()) as u32)?;
            unused(&plain)?;
            unused(&shared)?;
            same("whether a private rwlock is shared", 0, word(&plain, RWLOCK_SHARED))?;
            same("whether a shared rwlock is shared", 1, (word(&shared, RWLOCK_SHARED) != 0).into())?;
            same("the readers of a new rwlock", 0, word(&plain, READERS))?;
            same("pthread_rwlock_rdlock", 0, (real.rdlock)(plain.as_mut_ptr()) as u32)?;
            same("whether a read rwlock has readers", 1, (word(&plain, READERS) != 0).into())?;
            unused(&plain)?;
            same("pthread_rwlock_unlock", 0, (real.unlock)(plain.as_mut_ptr()) as u32)?;
            same("pthread_rwlock_wrlock", 0, (real.wrlock)(plain.as_mut_ptr()) as u32)?;
            same("the writer of a rwlock", me.raw(), word(&plain, WRITER))?;
            unused(&plain)?;
            // libc must ignore a gate in use there.
            plain.as_mut_ptr().byte_add(IN_RWLOCK).cast::<u128>().write_unaligned(u128::MAX);
            same("pthread_rwlock_unlock", 0, (real.unlock)(plain.as_mut_ptr()) as u32)?;
            same("pthread_rwlock_rdlock", 0, (real.rdlock)(plain.as_mut_ptr()) as u32)?;
            same("pthread_rwlock_unlock", 0, (real.unlock)(plain.as_mut_ptr()) as u32)?;
            same("the bytes of a gate in a rwlock", u32::MAX, word(&plain, IN_RWLOCK) & word(&plain, IN_RWLOCK + 12))?;
            (real.destroy)(plain.as_mut_ptr());
            (real.destroy)(shared.as_mut_ptr());
        }
        Ok(RwLayout(()))
    }

    /// The gate in a rwlock, or `None` if other processes may use the rwlock (they would not pass the gate).
    ///
    /// # Safety
    /// `rwlock` is an initialised rwlock that lives for `'a`.
    #[inline]
    pub unsafe fn gate<'a>(&self, rwlock: *const pthread_rwlock_t) -> Option<&'a PhaseFair> {
        // SAFETY: see above. The probe has shown that the bytes are unused. Zero, or any state that only gates wrote,
        // is a gate.
        unsafe {
            let shared = &*rwlock.byte_add(RWLOCK_SHARED).cast::<AtomicU32>();
            (shared.load(Ordering::Relaxed) == 0).then(|| &*rwlock.byte_add(IN_RWLOCK).cast::<PhaseFair>())
        }
    }
}

impl Layout {
    /// The ticket in a mutex, or `None` if the bytes are in use (robust) or other processes would bypass it (shared,
    /// destroyed). Not for mutexes on which [`Mutex::decide`] was called.
    ///
    /// # Safety
    /// `mutex` is an initialised mutex that lives for `'a`.
    #[inline]
    pub unsafe fn ticket<'a>(&self, mutex: *const pthread_mutex_t) -> Option<&'a Ticket> {
        // SAFETY: see above; as for rwlocks.
        unsafe {
            let kind = (*mutex.cast::<Mutex>().byte_add(core::mem::offset_of!(Mutex, kind)).cast::<AtomicI32>())
                .load(Ordering::Relaxed);
            (kind & (ROBUST | SHARED) == 0).then(|| &*mutex.byte_add(IN_MUTEX).cast::<Ticket>())
        }
    }

    /// As [`Layout::ticket`], of a mutex that is known to be private and not robust.
    ///
    /// # Safety
    /// `mutex` is an initialised mutex that lives for `'a`, private and not robust.
    #[inline(always)]
    pub unsafe fn ticket_of_ours<'a>(&self, mutex: *const pthread_mutex_t) -> &'a Ticket {
        // SAFETY: see above.
        unsafe { &*mutex.byte_add(IN_MUTEX).cast::<Ticket>() }
    }
}
