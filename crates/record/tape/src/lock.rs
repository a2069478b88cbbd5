//! Events of locks, which `record --locks` adds to a tape.
//!
//! A lock and its unlock by the same thread are one event, written at the unlock: a [`PairBody`], or a [`HoldBody`] where the short
//! form has no room. Every other operation is an [`OpBody`]. The head's time stamp is that of the operation's end, so that one
//! thread's events are in order. It is read after the lock was taken and before it is released, so exclusive holds of two threads
//! never overlap. The head's flags are an operation ([`op`]) in the high byte and the lock's attributes ([`attr`]) in the low byte.
//!
//! The first is a [`LocksBody`] with the layout. Tapes without locks do not have these.
//!
//! A tape of waits only ([`LAYOUT_WAITS`], `record --locks=waits`) has only operations that a thread waited for. A hold whose begin
//! was not read from the clock is on it if another thread began to wait during the hold. Its [`HoldBody`] has the latest time at
//! which the hold can have begun.

/// Layout of the bodies here; in the first event. Changes whenever one of them does.
pub const LAYOUT: u32 = 1;
/// As [`LAYOUT`], where only waits and the holds that caused them are recorded. A reader without support for it must not take the
/// tape for one of all operations.
pub const LAYOUT_WAITS: u32 = LAYOUT | 1 << 8;

/// Event kinds, in addition to those of [`crate::event::kind`].
pub mod kind {
    pub const LOCKS: u16 = 32;
    pub const PAIR: u16 = 33;
    pub const HOLD: u16 = 34;
    pub const OP: u16 = 35;
    pub const HELD: u16 = 36;
    pub const SCHED: u16 = 37;
    pub const MAPPING: u16 = 38;
}

/// The function that was called, or that ended a hold.
pub mod op {
    pub const MUTEX_LOCK: u8 = 1;
    pub const MUTEX_TRYLOCK: u8 = 2;
    pub const MUTEX_TIMEDLOCK: u8 = 3;
    pub const MUTEX_CLOCKLOCK: u8 = 4;
    pub const MUTEX_UNLOCK: u8 = 5;
    pub const MUTEX_INIT: u8 = 6;
    pub const MUTEX_DESTROY: u8 = 7;
    pub const RWLOCK_RDLOCK: u8 = 8;
    pub const RWLOCK_TRYRDLOCK: u8 = 9;
    pub const RWLOCK_TIMEDRDLOCK: u8 = 10;
    pub const RWLOCK_CLOCKRDLOCK: u8 = 11;
    pub const RWLOCK_WRLOCK: u8 = 12;
    pub const RWLOCK_TRYWRLOCK: u8 = 13;
    pub const RWLOCK_TIMEDWRLOCK: u8 = 14;
    pub const RWLOCK_CLOCKWRLOCK: u8 = 15;
    pub const RWLOCK_UNLOCK: u8 = 16;
    pub const RWLOCK_INIT: u8 = 17;
    pub const RWLOCK_DESTROY: u8 = 18;
    /// As the operation that took a mutex: the return from the wait.
    pub const COND_WAIT: u8 = 19;
    pub const COND_TIMEDWAIT: u8 = 20;
    pub const COND_CLOCKWAIT: u8 = 21;
    pub const COND_SIGNAL: u8 = 22;
    pub const COND_BROADCAST: u8 = 23;
    pub const COND_INIT: u8 = 24;
    pub const COND_DESTROY: u8 = 25;
    pub const SEM_WAIT: u8 = 26;
    pub const SEM_TRYWAIT: u8 = 27;
    pub const SEM_TIMEDWAIT: u8 = 28;
    pub const SEM_CLOCKWAIT: u8 = 29;
    pub const SEM_POST: u8 = 30;
    pub const SEM_INIT: u8 = 31;
    pub const SEM_DESTROY: u8 = 32;
    /// One more than the last.
    pub const COUNT: usize = 33;
}

/// `__readers` (+0) of glibc's `struct __pthread_rwlock_arch_t`: the number of readers above three bits, of which the second means that a writer
/// has the lock or waits for it.
pub mod readers {
    pub const HAS_WRITER: u32 = 2;
    pub const SHIFT: u32 = 3;
}

/// The low byte of an event's flags. For a mutex it is the low byte of glibc's `__kind`; for a rwlock its `__flags`, and `SHARED` as
/// for a mutex. Two bits that glibc leaves free hold the depth.
pub mod attr {
    /// Mutex: 0 normal, 1 recursive, 2 errorcheck, 3 adaptive. Rwlock: 0 prefers readers, 1 writers, 2 writers without
    /// recursive readers.
    pub const KIND: u8 = 3;
    /// How many locks the thread held already when it took this one: 0, 1, 2, or 3 for more.
    pub const DEPTH: u8 = 12;
    pub const DEPTH_SHIFT: u32 = 2;
    pub const ROBUST: u8 = 16;
    /// Priority inheritance.
    pub const INHERIT: u8 = 32;
    /// Priority ceiling.
    pub const PROTECT: u8 = 64;
    pub const SHARED: u8 = 128;
}

/// Locks are tapped from here on. Before any other event here.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LocksBody {
    /// [`LAYOUT`]
    pub layout: u32,
    pub pid: u32,
}

/// Taken without waiting and released by the same thread: the usual case. Head: the time of the release, the operation
/// that took it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairBody {
    pub addr: u64,
    /// Return address of the call that took it.
    pub site: u64,
    /// Ticks from taking to release.
    pub hold: u32,
    /// Return address of the call that released it, minus `site`.
    pub release: i32,
}

impl PairBody {
    /// Its bytes, as words of a little-endian machine.
    #[inline(always)]
    pub const fn words(self) -> [u64; 3] {
        [self.addr, self.site, self.hold as u64 | (self.release as u32 as u64) << 32]
    }
}

/// Taken and released by the same thread, with all fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HoldBody {
    pub addr: u64,
    pub site: u64,
    pub release_site: u64,
    /// Ticks from the call to having it; 0 if it was free.
    pub wait: u64,
    /// Ticks from taking to release.
    pub hold: u64,
    /// Result of the call that took it: 0 or EOWNERDEAD.
    pub result: i32,
    /// How the hold ended: one of [`ended`].
    pub ended: u32,
}

pub mod ended {
    pub const UNLOCK: u32 = 0;
    /// By waiting for a condition.
    pub const COND_WAIT: u32 = 1;
    /// By an unlock after a wait for a condition that did not return (cancellation). When the mutex was taken again is not known,
    /// and `hold` is 0.
    pub const CANCELLED_WAIT: u32 = 2;
    /// Not by this thread, as far as the agent saw: it took the lock again although it held it.
    pub const BY_ANOTHER: u32 = 3;
    /// Not seen: it was held when a pause began. If there were more pauses since, `hold` is 0.
    pub const PAUSED: u32 = 4;
    /// By an unlock; when it began is not known, see [`is_open`].
    pub const OPEN_UNLOCK: u32 = 5;
    /// By waiting for a condition; when it began is not known.
    pub const OPEN_COND_WAIT: u32 = 6;
    /// By an unlock at some time before the head's time stamp; when it began is not known. The agent saw only after the unlock that
    /// a thread waited. That thread may have waited for the next holder, if there was one.
    pub const OPEN_LATE: u32 = 7;

    /// A hold whose begin was not recorded, on a tape of waits only. `hold` is a lower bound: the time since the first waiting
    /// thread began to wait. `wait` is not a wait but the number of the CUDA call in which it was taken
    /// ([`crate::call::CallBody::seq`]), 0 for none.
    pub const fn is_open(ended: u32) -> bool {
        matches!(ended, OPEN_UNLOCK | OPEN_COND_WAIT | OPEN_LATE)
    }
}

/// One operation that is no pair: one that failed, one that makes or destroys, or one of a condition or a semaphore. Also a lock
/// that another thread unlocked, and that unlock.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpBody {
    pub addr: u64,
    pub site: u64,
    /// Ticks that the call took; 0 where it did not wait.
    pub wait: u64,
    /// For a wait for a condition: its mutex. For a lock that was taken and left the thread's table: when it was taken.
    pub other: u64,
    /// The call's result; errno where it returns -1.
    pub result: i32,
    pub pad: u32,
}

impl OpBody {
    /// Its bytes, as words of a little-endian machine.
    #[inline(always)]
    pub const fn words(self) -> [u64; 5] {
        [self.addr, self.site, self.wait, self.other, self.result as u32 as u64 | (self.pad as u64) << 32]
    }
}

/// A lock that a thread held or waited for when the thread or the recording ended, or waited for when a part of the recording
/// ended. Written by the recorder.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeldBody {
    pub addr: u64,
    pub site: u64,
    /// When it was taken, or when the wait began.
    pub since: u64,
    pub wait: u64,
    pub result: i32,
    /// One of [`left`].
    pub waiting: u32,
}

pub mod left {
    pub const HELD: u32 = 0;
    /// Waited for, not held.
    pub const WAITING: u32 = 1;
    /// Held since an unknown time, at which no thread waited for it. `since` is 0. The high half of `wait` is the number of the CUDA call
    /// in which it was taken, 0 for none.
    pub const OPEN: u32 = 2;
    /// The lock's own word named this thread as its holder, at the head's time, while others waited for it. When and where it
    /// took the lock: `since` and `site`, 0 if that was not recorded. Written where a part of the recording ends.
    pub const NAMED: u32 = 3;
}

/// A thread's scheduling: at its first event, and when something changes it.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedBody {
    /// `pthread_t` of the thread.
    pub pthread: u64,
    /// Its id; 0 if only `pthread` is known.
    pub tid: i32,
    /// SCHED_OTHER 0, SCHED_FIFO 1, SCHED_RR 2, SCHED_BATCH 3, SCHED_IDLE 5, SCHED_DEADLINE 6.
    pub policy: i32,
    pub priority: i32,
    pub nice: i32,
    /// One of [`sched_why`].
    pub why: u32,
    /// Number of CPUs that it may run on; 0 if not asked.
    pub cpus: u32,
    /// The first 128 of them.
    pub mask: [u64; 2],
    /// Its name, then zeros.
    pub name: [u8; 16],
}

pub mod sched_why {
    pub const FIRST_EVENT: u32 = 0;
    /// pthread_setschedparam, pthread_setschedprio
    pub const PTHREAD: u32 = 1;
    /// sched_setscheduler, sched_setparam, sched_setattr
    pub const SCHED: u32 = 2;
    /// sched_setaffinity, pthread_setaffinity_np
    pub const AFFINITY: u32 = 3;
    /// The recorder asked the kernel; no change was seen.
    pub const ASKED: u32 = 4;
}

/// A range of the program's address space, as /proc/self/maps has it. The path follows (`path` bytes), then, on the next multiple of
/// eight, the build id of the file, if this is where an ELF file begins that has one. The head's flags: bytes of the build id.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MappingBody {
    pub start: u64,
    pub end: u64,
    /// Offset in the file.
    pub offset: u64,
    /// Readable 1, writable 2, executable 4.
    pub rights: u32,
    /// Bytes of path that follow; 0 for memory without a file.
    pub path: u32,
}
