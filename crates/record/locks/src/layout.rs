//! The layout of glibc 2.3x's `pthread_mutex_t` on x86-64, and a proof of it on the current machine. On a libc whose
//! mutexes look or behave otherwise, no mutex is converted.

use core::ffi::c_int;
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering};

use libc::{pthread_mutex_t, pthread_mutexattr_t};

use crate::tid::Tid;

pub const KIND_MASK: i32 = 3;
pub const RECURSIVE: i32 = 1;
pub const ERRORCHECK: i32 = 2;
pub const ADAPTIVE: i32 = 3;
pub const ROBUST: i32 = 16;
pub const PRIO_INHERIT: i32 = 32;
pub const PRIO_PROTECT: i32 = 64;
pub const SHARED: i32 = 128;
pub const ELISION: i32 = 256;
pub const NO_ELISION: i32 = 512;

/// `struct __pthread_mutex_s` of glibc 2.3x, x86-64, as threads see it that may not hold it. The fields from `decision`
/// on are `__list`, which only robust mutexes use. It is zero in every other mutex, including static initialisers.
#[repr(C)]
pub struct Mutex {
    pub(crate) lock: AtomicU32,
    pub(crate) count: AtomicU32,
    pub(crate) owner: AtomicU32,
    pub(crate) users: AtomicU32,
    pub(crate) kind: AtomicI32,
    spins: u32,
    pub(crate) decision: AtomicU32,
    pub(crate) released: AtomicU32,
    pub(crate) conditions: AtomicU32,
    room: u32,
}

const _: () = assert!(size_of::<Mutex>() == size_of::<pthread_mutex_t>());

impl Mutex {
    /// # Safety
    /// `mutex` is a mutex that lives for `'a`, of a libc that [`Layout::probe`] has accepted.
    pub unsafe fn of<'a>(mutex: *const pthread_mutex_t) -> &'a Mutex {
        // SAFETY: see above; all fields that are read are atomics, and all bytes may have any value.
        unsafe { &*mutex.cast() }
    }
}

type Operation = unsafe extern "C" fn(*mut pthread_mutex_t) -> c_int;
type Attributes<'a> = &'a [(SetAttribute, c_int)];
type SetAttribute = unsafe extern "C" fn(*mut pthread_mutexattr_t, c_int) -> c_int;

/// libc's own functions. The interposer looks them up; otherwise the probe would probe the interposer.
#[derive(Clone, Copy)]
pub struct Real {
    pub init: unsafe extern "C" fn(*mut pthread_mutex_t, *const pthread_mutexattr_t) -> c_int,
    pub lock: Operation,
    pub trylock: Operation,
    pub unlock: Operation,
    pub destroy: Operation,
    pub attr_init: unsafe extern "C" fn(*mut pthread_mutexattr_t) -> c_int,
    pub attr_settype: SetAttribute,
    pub attr_setprotocol: SetAttribute,
    pub attr_setpshared: SetAttribute,
    pub attr_setrobust: SetAttribute,
}

/// Proof that the layout is valid here; every conversion requires it.
#[derive(Clone, Copy, Debug)]
pub struct Layout(());

/// The property that was not as expected.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mismatch {
    /// A description, for the refusal.
    pub what: &'static str,
    pub expected: u32,
    pub found: u32,
}

fn same(what: &'static str, expected: u32, found: u32) -> Result<(), Mismatch> {
    if expected == found { Ok(()) } else { Err(Mismatch { what, expected, found }) }
}

/// A mutex that the probe made. It is initialised in place: tools that follow mutexes (valgrind) identify it by its address.
struct Sample(core::mem::MaybeUninit<pthread_mutex_t>);

impl Sample {
    const fn empty() -> Sample {
        Sample(core::mem::MaybeUninit::uninit())
    }

    /// Initialises it with these attributes.
    fn make(&mut self, real: &Real, attributes: Attributes) -> Result<&mut Sample, Mismatch> {
        let mut attribute = core::mem::MaybeUninit::<pthread_mutexattr_t>::uninit();
        // Neither all zero nor plausible: bytes that init leaves out show.
        // SAFETY: bytes of this sample.
        unsafe { core::ptr::write_bytes(&mut self.0, 0xa5, 1) };
        // SAFETY: libc's functions with valid arguments; mutexattr_t needs no destroy in glibc.
        unsafe {
            same("pthread_mutexattr_init", 0, (real.attr_init)(attribute.as_mut_ptr()) as u32)?;
            for (set, value) in attributes {
                same("a mutex attribute", 0, set(attribute.as_mut_ptr(), *value) as u32)?;
            }
            same("pthread_mutex_init", 0, (real.init)(self.0.as_mut_ptr(), attribute.as_ptr()) as u32)?;
        }
        Ok(self)
    }

    fn view(&mut self) -> &Mutex {
        // SAFETY: the probe's own mutex. The layout is not proven yet, but every byte value is valid for `Mutex`.
        unsafe { Mutex::of(self.0.as_ptr()) }
    }

    fn run(&mut self, operation: Operation) -> u32 {
        // SAFETY: an initialised mutex that does not move between operations.
        unsafe { operation(self.0.as_mut_ptr()) as u32 }
    }

    fn expect(
        &mut self,
        what: &'static str,
        lock: u32,
        count: Option<u32>,
        owner: u32,
        users: u32,
    ) -> Result<(), Mismatch> {
        let view = self.view();
        let load = |word: &AtomicU32| word.load(Ordering::Relaxed);
        same(what, lock, load(&view.lock))?;
        if let Some(count) = count {
            same(what, count, load(&view.count))?;
        }
        same(what, owner, load(&view.owner))?;
        same(what, users, load(&view.users))?;
        same(
            "the unused bytes of a mutex",
            0,
            load(&view.decision) | load(&view.released) | load(&view.conditions) | view.room,
        )
    }
}

impl Layout {
    /// Initialises, locks and unlocks a few mutexes and reads their bytes. No thread waits.
    ///
    /// # Errors
    /// The first property that differs from this module's layout.
    pub fn probe(real: &Real, me: Tid) -> Result<Layout, Mismatch> {
        let tid = me.raw();
        crate::fork::process();
        let (settype, setprotocol) = (real.attr_settype, real.attr_setprotocol);
        let kinds: [(&'static str, Attributes, i32); 8] = [
            ("kind of a default mutex", &[], 0),
            ("kind of a recursive mutex", &[(settype, libc::PTHREAD_MUTEX_RECURSIVE)], RECURSIVE),
            ("kind of an errorcheck mutex", &[(settype, libc::PTHREAD_MUTEX_ERRORCHECK)], ERRORCHECK),
            ("kind of an adaptive mutex", &[(settype, ADAPTIVE)], ADAPTIVE),
            ("kind of a PI mutex", &[(setprotocol, libc::PTHREAD_PRIO_INHERIT)], PRIO_INHERIT),
            ("kind of a ceiling mutex", &[(setprotocol, libc::PTHREAD_PRIO_PROTECT)], PRIO_PROTECT),
            ("kind of a shared mutex", &[(real.attr_setpshared, libc::PTHREAD_PROCESS_SHARED)], SHARED),
            // glibc wakes the waiters of a robust mutex as if it were shared with other processes.
            ("kind of a robust mutex", &[(real.attr_setrobust, libc::PTHREAD_MUTEX_ROBUST)], ROBUST | SHARED),
        ];
        let mut sample = Sample::empty();
        for (what, attributes, expected) in kinds {
            sample.make(real, attributes)?;
            let mask = !(ELISION | NO_ELISION);
            // A ceiling's priority is in the upper bits of the lock word, not in the kind.
            same(what, expected as u32, (sample.view().kind.load(Ordering::Relaxed) & mask) as u32)?;
            sample.run(real.destroy);
        }

        let plain = sample.make(real, &[])?;
        plain.expect("a new mutex", 0, Some(0), 0, 0)?;
        same("pthread_mutex_lock", 0, plain.run(real.lock))?;
        plain.expect("a locked mutex", 1, Some(0), tid, 1)?;
        same("pthread_mutex_trylock", libc::EBUSY as u32, plain.run(real.trylock))?;
        same("pthread_mutex_unlock", 0, plain.run(real.unlock))?;
        plain.expect("an unlocked mutex", 0, Some(0), 0, 0)?;

        // The same mutex with the bit set by hand is a PI mutex to this libc; then the bit is cleared. (libc counts 1
        // for every kind.)
        plain.view().kind.fetch_or(PRIO_INHERIT, Ordering::Relaxed);
        same("pthread_mutex_lock, PI", 0, plain.run(real.lock))?;
        plain.expect("a locked mutex turned PI", tid, None, tid, 1)?;
        same("pthread_mutex_unlock, PI", 0, plain.run(real.unlock))?;
        plain.expect("an unlocked mutex turned PI", 0, None, 0, 0)?;
        plain.view().kind.fetch_and(!PRIO_INHERIT, Ordering::Relaxed);
        same("pthread_mutex_lock", 0, plain.run(real.lock))?;
        plain.expect("a locked mutex turned back", 1, None, tid, 1)?;
        // A word that holds a thread's number under the plain protocol: it counts as locked, and an exchange releases it.
        plain.view().lock.store(tid, Ordering::Relaxed);
        same("pthread_mutex_trylock", libc::EBUSY as u32, plain.run(real.trylock))?;
        same("pthread_mutex_unlock", 0, plain.run(real.unlock))?;
        plain.expect("an unlocked mutex turned back", 0, None, 0, 0)?;
        plain.run(real.destroy);

        let recursive = sample.make(real, &[(settype, libc::PTHREAD_MUTEX_RECURSIVE)])?;
        recursive.view().kind.fetch_or(PRIO_INHERIT, Ordering::Relaxed);
        same("pthread_mutex_lock, recursive PI", 0, recursive.run(real.lock))?;
        same("pthread_mutex_lock, recursive PI", 0, recursive.run(real.lock))?;
        recursive.expect("a recursive PI mutex locked twice", tid, Some(2), tid, 1)?;
        same("pthread_mutex_unlock, recursive PI", 0, recursive.run(real.unlock))?;
        recursive.expect("a recursive PI mutex unlocked once", tid, Some(1), tid, 1)?;
        same("pthread_mutex_unlock, recursive PI", 0, recursive.run(real.unlock))?;
        recursive.expect("a recursive PI mutex unlocked twice", 0, Some(0), 0, 0)?;
        recursive.run(real.destroy);
        Ok(Layout(()))
    }
}
