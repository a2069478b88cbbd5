//! The locks under test, with a common trait: each is newly made for a measurement and used through a handle of each thread.
//!
//! Invariant: a handle is used only by the thread that made it.

use super::{Missing, Policy};
use locks::boost::{Seat, Seats};
use locks::guard::{Entered, Guard};
use locks::held::{Entry, Exit, Held, Mode};
use locks::layout::{Layout, Mismatch, Mutex, Real};
use locks::old_rwlock::OldRwLock;
use locks::pi::{Call, Decision};
use locks::room::{RealRwlock, RwLayout};
use locks::{NotHeld, Tid};
use std::cell::UnsafeCell;
use std::ffi::c_int;

/// How a lock is taken. A mutex is always taken for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    Read,
    Write,
}

/// As pthread functions return it: 0 is done.
pub type Code = c_int;

pub trait Subject: Sync {
    type Hand<'a>
    where
        Self: 'a;

    /// A handle for the calling thread.
    fn hand(&self) -> Self::Hand<'_>;
    fn take(&self, hand: &Self::Hand<'_>, access: Access) -> Code;
    fn release(&self, hand: &Self::Hand<'_>, access: Access) -> Code;
}

/// Code that runs with the lock of a policy.
pub trait Visit {
    type Out;
    fn visit<S: Subject>(self, subject: &S) -> Result<Self::Out, Missing>;
}

/// Makes a rwlock of this policy and visits it.
pub fn with_rwlock<V: Visit>(policy: Policy, visit: V) -> Result<V::Out, Missing> {
    match policy {
        Policy::Stock => visit.visit(&StockRwlock::new(false)?),
        Policy::StockPreferWriter => visit.visit(&StockRwlock::new(true)?),
        Policy::Old => visit.visit(&Old(OldRwLock::new())),
        Policy::PhaseFair => visit.visit(&PhaseFairRwlock::new()?),
        Policy::Guard => visit.visit(&GuardedRwlock(Guard::new(), StockRwlock::new(false)?)),
        other => Err(Missing::Unavailable(format!("{} is for mutexes", other.name()))),
    }
}

/// Makes a mutex of this policy and visits it.
pub fn with_mutex<V: Visit>(policy: Policy, visit: V) -> Result<V::Out, Missing> {
    match policy {
        Policy::Stock => visit.visit(&StockMutex::new(false)?),
        Policy::StockInherit => visit.visit(&StockMutex::new(true)?),
        Policy::Pi => visit.visit(&Converted::new()?),
        Policy::Ticket => visit.visit(&Ticketed::new()?),
        Policy::Boost => visit.visit(&Boosted::new()?),
        Policy::Guard => visit.visit(&Guard::new()),
        other => Err(Missing::Unavailable(format!("{} is for rwlocks", other.name()))),
    }
}

/// A pthread object at a fixed address, in separate cache lines.
#[repr(align(128))]
struct Line<T>(UnsafeCell<T>);

// SAFETY: handed to pthread functions only, and to views of it that consist of atomics.
unsafe impl<T> Sync for Line<T> {}

impl<T> Line<T> {
    fn new(value: T) -> Box<Line<T>> {
        Box::new(Line(UnsafeCell::new(value)))
    }

    fn address(&self) -> usize {
        self.0.get() as usize
    }
}

fn done(what: &str, code: c_int) -> Result<(), Missing> {
    if code == 0 { Ok(()) } else { Err(Missing::Unavailable(format!("{what}: error {code}"))) }
}

fn left(result: Result<(), NotHeld>) -> Code {
    if result.is_ok() { 0 } else { libc::EPERM }
}

fn unknown(mismatch: Mismatch) -> Missing {
    let Mismatch { what, expected, found } = mismatch;
    Missing::Unavailable(format!("the layout of locks in this libc is not known: {what} is {found}, not {expected}"))
}

pub struct StockMutex(Box<Line<libc::pthread_mutex_t>>);

impl StockMutex {
    fn new(inherit: bool) -> Result<StockMutex, Missing> {
        let line = Line::new(libc::PTHREAD_MUTEX_INITIALIZER);
        if inherit {
            // SAFETY: a local attribute and a mutex without users yet.
            unsafe {
                let mut attribute = std::mem::zeroed();
                done("pthread_mutexattr_init", libc::pthread_mutexattr_init(&mut attribute))?;
                let set = libc::pthread_mutexattr_setprotocol(&mut attribute, libc::PTHREAD_PRIO_INHERIT);
                done("pthread_mutexattr_setprotocol", set)?;
                done("pthread_mutex_init, PTHREAD_PRIO_INHERIT", libc::pthread_mutex_init(line.0.get(), &attribute))?;
            }
        }
        Ok(StockMutex(line))
    }

    #[inline]
    fn lock(&self) -> Code {
        // SAFETY: an initialised mutex that stays where it is.
        unsafe { libc::pthread_mutex_lock(self.0.0.get()) }
    }

    #[inline]
    fn unlock(&self) -> Code {
        // SAFETY: as above; the caller holds it.
        unsafe { libc::pthread_mutex_unlock(self.0.0.get()) }
    }
}

impl Subject for StockMutex {
    type Hand<'a> = ();

    fn hand(&self) {}

    #[inline]
    fn take(&self, (): &(), _: Access) -> Code {
        self.lock()
    }

    #[inline]
    fn release(&self, (): &(), _: Access) -> Code {
        self.unlock()
    }
}

fn layout() -> Result<Layout, Missing> {
    let real = Real {
        init: libc::pthread_mutex_init,
        lock: libc::pthread_mutex_lock,
        trylock: libc::pthread_mutex_trylock,
        unlock: libc::pthread_mutex_unlock,
        destroy: libc::pthread_mutex_destroy,
        attr_init: libc::pthread_mutexattr_init,
        attr_settype: libc::pthread_mutexattr_settype,
        attr_setprotocol: libc::pthread_mutexattr_setprotocol,
        attr_setpshared: libc::pthread_mutexattr_setpshared,
        attr_setrobust: libc::pthread_mutexattr_setrobust,
    };
    Layout::probe(&real, Tid::current()).map_err(unknown)
}

/// An ordinary mutex converted to priority inheritance.
struct Converted {
    mutex: StockMutex,
    layout: Layout,
}

impl Converted {
    fn new() -> Result<Converted, Missing> {
        let converted = Converted { mutex: StockMutex::new(false)?, layout: layout()? };
        match converted.view().decide(&converted.layout) {
            Decision::Converted => Ok(converted),
            Decision::Refused(why) => Err(Missing::Unavailable(format!("the mutex was not converted: {why:?}"))),
        }
    }

    #[inline]
    fn view(&self) -> &Mutex {
        // SAFETY: the mutex lives as long as `self`; `layout` was proven before this is called.
        unsafe { Mutex::of(self.mutex.0.0.get()) }
    }
}

impl Subject for Converted {
    type Hand<'a> = Tid;

    fn hand(&self) -> Tid {
        Tid::current()
    }

    #[inline]
    fn take(&self, me: &Tid, _: Access) -> Code {
        let view = self.view();
        if view.decide(&self.layout) == Decision::Converted
            && let Call::Done { code, .. } = view.lock(*me)
        {
            return code;
        }
        self.mutex.lock()
    }

    #[inline]
    fn release(&self, me: &Tid, _: Access) -> Code {
        let view = self.view();
        if view.decide(&self.layout) == Decision::Converted
            && let Call::Done { code, .. } = view.unlock(*me).call
        {
            return code;
        }
        self.mutex.unlock()
    }
}

/// The ticket is inside its mutex.
struct Ticketed {
    mutex: StockMutex,
    layout: Layout,
}

impl Ticketed {
    fn new() -> Result<Ticketed, Missing> {
        Ok(Ticketed { mutex: StockMutex::new(false)?, layout: layout()? })
    }
}

impl Subject for Ticketed {
    type Hand<'a> = Tid;

    fn hand(&self) -> Tid {
        Tid::current()
    }

    #[inline]
    fn take(&self, me: &Tid, _: Access) -> Code {
        // SAFETY: the mutex lives as long as `self`.
        if let Some(ticket) = unsafe { self.layout.ticket(self.mutex.0.0.get()) } {
            let code = ticket.lock(*me).code();
            if code != 0 {
                return code;
            }
        }
        self.mutex.lock()
    }

    #[inline]
    fn release(&self, me: &Tid, _: Access) -> Code {
        let code = self.mutex.unlock();
        // SAFETY: as above.
        match unsafe { self.layout.ticket(self.mutex.0.0.get()) } {
            Some(ticket) => code | left(ticket.unlock(*me)),
            None => code,
        }
    }
}

/// More than the number of threads of any plan.
const SEATS: usize = 256;

/// Those of each subject in turn: every hand leaves its seat.
static PLACES: [Seat; SEATS] = [const { Seat::free() }; SEATS];

struct Boosted {
    mutex: StockMutex,
    seats: Seats<SEATS>,
}

impl Boosted {
    fn new() -> Result<Boosted, Missing> {
        Ok(Boosted { mutex: StockMutex::new(false)?, seats: Seats::of(&PLACES) })
    }
}

struct BoostHand<'a> {
    me: Tid,
    seats: &'a Seats<SEATS>,
    seat: Option<&'a Seat>,
}

impl Drop for BoostHand<'_> {
    fn drop(&mut self) {
        if let Some(seat) = self.seat {
            self.seats.leave(seat, self.me);
        }
    }
}

impl Subject for Boosted {
    type Hand<'a> = BoostHand<'a>;

    fn hand(&self) -> BoostHand<'_> {
        let me = Tid::current();
        BoostHand { me, seats: &self.seats, seat: self.seats.register(me) }
    }

    #[inline]
    fn take(&self, hand: &BoostHand<'_>, _: Access) -> Code {
        let Some(seat) = hand.seat else { return libc::ENOMEM };
        let address = self.mutex.0.address();
        seat.held.enter(address, Mode::Write);
        // SAFETY: an initialised mutex that stays where it is.
        if unsafe { libc::pthread_mutex_trylock(self.mutex.0.0.get()) } == 0 {
            self.seats.after_lock(seat, hand.me);
            return 0;
        }
        self.seats.begin_wait(seat, hand.me, address);
        let code = self.mutex.lock();
        self.seats.end_wait(seat, hand.me);
        code
    }

    #[inline]
    fn release(&self, hand: &BoostHand<'_>, _: Access) -> Code {
        let Some(seat) = hand.seat else { return libc::ENOMEM };
        let code = self.mutex.unlock();
        seat.held.leave(self.mutex.0.address());
        self.seats.after_unlock(seat, hand.me);
        code
    }
}

fn entered(entered: Entered) -> Code {
    match entered {
        Entered::AtOnce | Entered::AfterWait => 0,
        Entered::Nested => libc::EDEADLK,
        Entered::Recovered => libc::EOWNERDEAD,
        Entered::TimedOut => libc::ETIMEDOUT,
        Entered::Refused(_) => libc::ENOTSUP,
    }
}

/// The guard is around a whole call, whatever locks the call takes, so it is measured alone.
impl Subject for Guard {
    type Hand<'a> = Tid;

    fn hand(&self) -> Tid {
        Tid::current()
    }

    #[inline]
    fn take(&self, me: &Tid, _: Access) -> Code {
        entered(self.enter(*me))
    }

    #[inline]
    fn release(&self, me: &Tid, _: Access) -> Code {
        left(self.leave(*me))
    }
}

pub struct StockRwlock(Box<Line<libc::pthread_rwlock_t>>);

/// glibc's `pthread.h`.
const PREFER_WRITER_NONRECURSIVE: c_int = 2;

impl StockRwlock {
    fn new(prefer_writer: bool) -> Result<StockRwlock, Missing> {
        let line = Line::new(libc::PTHREAD_RWLOCK_INITIALIZER);
        if prefer_writer {
            // SAFETY: a local attribute and a rwlock without users yet.
            unsafe {
                let mut attribute = std::mem::zeroed();
                done("pthread_rwlockattr_init", libc::pthread_rwlockattr_init(&mut attribute))?;
                let set = libc::pthread_rwlockattr_setkind_np(&mut attribute, PREFER_WRITER_NONRECURSIVE);
                done("pthread_rwlockattr_setkind_np", set)?;
                done("pthread_rwlock_init", libc::pthread_rwlock_init(line.0.get(), &attribute))?;
            }
        }
        Ok(StockRwlock(line))
    }

    #[inline]
    fn lock(&self, access: Access) -> Code {
        // SAFETY: an initialised rwlock that stays where it is.
        unsafe {
            match access {
                Access::Read => libc::pthread_rwlock_rdlock(self.0.0.get()),
                Access::Write => libc::pthread_rwlock_wrlock(self.0.0.get()),
            }
        }
    }

    #[inline]
    fn unlock(&self) -> Code {
        // SAFETY: as above; the caller holds it.
        unsafe { libc::pthread_rwlock_unlock(self.0.0.get()) }
    }
}

impl Subject for StockRwlock {
    type Hand<'a> = ();

    fn hand(&self) {}

    #[inline]
    fn take(&self, (): &(), access: Access) -> Code {
        self.lock(access)
    }

    #[inline]
    fn release(&self, (): &(), _: Access) -> Code {
        self.unlock()
    }
}

/// The gate is inside its rwlock.
struct PhaseFairRwlock {
    rwlock: StockRwlock,
    layout: RwLayout,
}

impl PhaseFairRwlock {
    fn new() -> Result<PhaseFairRwlock, Missing> {
        let real = RealRwlock {
            init: libc::pthread_rwlock_init,
            rdlock: libc::pthread_rwlock_rdlock,
            wrlock: libc::pthread_rwlock_wrlock,
            unlock: libc::pthread_rwlock_unlock,
            destroy: libc::pthread_rwlock_destroy,
            attr_init: libc::pthread_rwlockattr_init,
            attr_setpshared: libc::pthread_rwlockattr_setpshared,
        };
        let layout = RwLayout::probe(&real, Tid::current()).map_err(unknown)?;
        Ok(PhaseFairRwlock { rwlock: StockRwlock::new(false)?, layout })
    }
}

struct GateHand {
    me: Tid,
    held: Held,
}

impl Subject for PhaseFairRwlock {
    type Hand<'a> = GateHand;

    fn hand(&self) -> GateHand {
        GateHand { me: Tid::current(), held: Held::new() }
    }

    #[inline]
    fn take(&self, hand: &GateHand, access: Access) -> Code {
        let mode = if access == Access::Read { Mode::Read } else { Mode::Write };
        if hand.held.enter(self.rwlock.0.address(), mode) == Entry::First
            // SAFETY: the rwlock lives as long as `self`.
            && let Some(gate) = unsafe { self.layout.gate(self.rwlock.0.0.get()) }
        {
            let passed = if access == Access::Read { gate.read(hand.me) } else { gate.write(hand.me) };
            if passed.code() != 0 {
                return passed.code();
            }
        }
        self.rwlock.lock(access)
    }

    #[inline]
    fn release(&self, hand: &GateHand, _: Access) -> Code {
        let code = self.rwlock.unlock();
        // SAFETY: as above.
        let gate = unsafe { self.layout.gate(self.rwlock.0.0.get()) };
        match (hand.held.leave(self.rwlock.0.address()), gate) {
            (Exit::Last(Mode::Read), Some(gate)) => code | left(gate.leave_read(hand.me)),
            (Exit::Last(Mode::Write), Some(gate)) => code | left(gate.leave_write(hand.me)),
            _ => code,
        }
    }
}

struct Old(OldRwLock);

impl Subject for Old {
    type Hand<'a> = Tid;

    fn hand(&self) -> Tid {
        Tid::current()
    }

    #[inline]
    fn take(&self, me: &Tid, access: Access) -> Code {
        match access {
            Access::Read => self.0.read(*me).code(),
            Access::Write => self.0.write(*me).code(),
        }
    }

    #[inline]
    fn release(&self, me: &Tid, _: Access) -> Code {
        left(self.0.unlock(*me))
    }
}

/// The guard round a call that takes a rwlock.
struct GuardedRwlock(Guard, StockRwlock);

impl Subject for GuardedRwlock {
    type Hand<'a> = Tid;

    fn hand(&self) -> Tid {
        Tid::current()
    }

    #[inline]
    fn take(&self, me: &Tid, access: Access) -> Code {
        match entered(self.0.enter(*me)) {
            0 => self.1.lock(access),
            code => code,
        }
    }

    #[inline]
    fn release(&self, me: &Tid, _: Access) -> Code {
        self.1.unlock() | left(self.0.leave(*me))
    }
}
