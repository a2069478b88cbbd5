//! Raises lock holders to the priority of their waiters. Its cost is negligible while no thread waits.
//!
//! A thread's priority is computed from facts, not from a history of changes. It is the highest of the thread's own
//! priority and those of all threads that wait for a lock it holds. Each thread has a [`Seat`] with these facts (which
//! locks it holds, which one it waits for, at which priority). A thread that changes a fact under contention recomputes
//! the threads concerned. So boosts nest and end in any order. They end when the waiter gives up or gets in, or when
//! the holder unlocks or leaves.
//!
//! Invariants: a thread's policy is changed only under its seat's latch and only while its seat is taken, so never
//! through a thread number that has ended. A policy that differs from the one set here was set by the program, and stays.

use core::ffi::c_int;
use core::sync::atomic::{AtomicPtr, AtomicU32, AtomicUsize, Ordering, fence};
use core::time::Duration;

use crate::deadline::{Clock, Deadline};
use crate::futex;
use crate::held::Held;
use crate::latch::Latch;
use crate::sync::Guarded;
use crate::tid::Tid;

/// `struct sched_attr`, version 0 (Linux 3.14).
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Policy {
    size: u32,
    pub policy: u32,
    flags: u64,
    pub nice: i32,
    /// 1 to 99 under SCHED_FIFO and SCHED_RR, else 0.
    pub priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

const ZERO: Policy = Policy { size: 48, policy: 0, flags: 0, nice: 0, priority: 0, runtime: 0, deadline: 0, period: 0 };

/// All zero, so a table of seats takes no room in a library's file.
const NONE: Policy = Policy { size: 0, ..ZERO };

/// A sequentially consistent fence: a locked instruction on a cache line of the thread's own stack, at half of mfence's cost.
#[inline(always)]
fn full_fence() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a word of the stack whose value does not change. (No `nomem`: the compiler moves no access across it.)
    unsafe {
        // ORDERING: a locked instruction waits for all stores before it and holds back all loads after it. For ordinary
        // (write-back) memory mfence does the same (Intel SDM 3A 9.2.5, AMD APM 2 7.4.2).
        core::arch::asm!("lock or dword ptr [rsp], 0", options(nostack));
    }
    #[cfg(not(target_arch = "x86_64"))]
    fence(Ordering::SeqCst);
}

/// A system call that leaves `errno` alone.
fn sched(number: libc::c_long, tid: u32, policy: *mut Policy, size: u32) -> Result<(), c_int> {
    // SAFETY: errno is the thread's own; `policy` is a Policy that the caller owns, of the size that it states.
    unsafe {
        let errno = libc::__errno_location();
        let saved = *errno;
        let result = libc::syscall(number, tid, policy, size, 0u32);
        let result = if result < 0 { Err(*errno) } else { Ok(()) };
        *errno = saved;
        result
    }
}

impl Policy {
    /// # Errors
    /// ESRCH: no such thread.
    pub fn of(tid: Tid) -> Result<Policy, c_int> {
        let mut policy = ZERO;
        sched(libc::SYS_sched_getattr, tid.raw(), &mut policy, policy.size)?;
        Ok(policy)
    }

    /// # Errors
    /// EPERM: not allowed (RLIMIT_RTPRIO, CAP_SYS_NICE); ESRCH: no such thread.
    pub fn set(mut self, tid: Tid) -> Result<(), c_int> {
        self.size = ZERO.size;
        // For sched_setattr the third argument is the flags.
        sched(libc::SYS_sched_setattr, tid.raw(), &mut self, 0)
    }

    /// The priority on SCHED_FIFO's scale: 0 for the policies that are not real-time, 100 for SCHED_DEADLINE.
    pub fn rank(&self) -> u32 {
        match self.policy as c_int {
            libc::SCHED_FIFO | libc::SCHED_RR => self.priority,
            libc::SCHED_DEADLINE => 100,
            _ => 0,
        }
    }

    fn raised(&self, rank: u32) -> Policy {
        let policy = if self.policy as c_int == libc::SCHED_RR { libc::SCHED_RR } else { libc::SCHED_FIFO };
        Policy { policy: policy as u32, flags: self.flags, priority: rank.min(99), ..ZERO }
    }

    fn same(&self, other: &Policy) -> bool {
        self.policy == other.policy && self.priority == other.priority
    }
}

/// The known facts of one thread. Zero when free.
pub struct Seat {
    latch: Latch,
    tid: AtomicU32,
    /// The raised priority, nonzero while the thread is raised.
    raised: AtomicU32,
    waiting_for: AtomicUsize,
    /// Changed by [`Seats::set_waiting_rank`].
    waiting_rank: AtomicU32,
    /// The thread's own policy while it is raised. Under the latch.
    base: Guarded<Policy>,
    pub held: Held,
}

// SAFETY: `base` is touched under the latch only; all else is atomic.
unsafe impl Sync for Seat {}

impl Seat {
    /// One that nobody has. All zero.
    pub const fn free() -> Seat {
        Seat {
            latch: Latch::new(),
            tid: AtomicU32::new(0),
            raised: AtomicU32::new(0),
            waiting_for: AtomicUsize::new(0),
            waiting_rank: AtomicU32::new(0),
            base: Guarded::new(NONE),
            held: Held::new(),
        }
    }

    /// The priority to which the thread is raised at this moment, or 0.
    pub fn raised_to(&self) -> u32 {
        self.raised.load(Ordering::Relaxed)
    }
}

/// Counts of boosts and their failures, for the report.
#[derive(Default)]
pub struct Counts {
    pub raised: AtomicU32,
    pub restored: AtomicU32,
    /// The kernel did not allow it.
    pub refused: AtomicU32,
    /// The program set a policy while the thread was raised; that policy was kept.
    pub left_to_program: AtomicU32,
    /// Nonzero: this process may not raise any thread (EPERM), and stops trying.
    pub forbidden: AtomicU32,
}

/// No thread: a seat that is being given up. (Thread numbers have 30 bits.)
const ENDED: u32 = u32::MAX;

/// Attempts to change a thread that the kernel has temporarily raised to SCHED_DEADLINE (because it holds a latch that
/// such a thread waits for), and the pause between them. The pause is longer than any thread holds a latch.
const ATTEMPTS: u32 = 20;
const PAUSE: Duration = Duration::from_micros(50);

/// The seats of a process. All functions take the seat of the calling thread as `me`.
pub struct Seats<const N: usize> {
    /// Null before [`Seats::give`]. (Apart from the rest, which every lock reads: a program without boosted locks has none.)
    seats: AtomicPtr<[Seat; N]>,
    /// No seat at or above this index was ever taken.
    high: AtomicUsize,
    /// The number of seats whose `waiting_rank` is not 0.
    waiting: AtomicU32,
    pub counts: Counts,
}

/// How many holders a boost follows along a chain of holders that wait themselves.
const CHAIN: u32 = 8;

impl<const N: usize> Seats<N> {
    pub const fn of(seats: &'static [Seat; N]) -> Self {
        Self::from_pointer(core::ptr::from_ref(seats).cast_mut())
    }

    /// No thread gets a seat before [`Seats::give`].
    pub const fn not_given_yet() -> Self {
        Self::from_pointer(core::ptr::null_mut())
    }

    const fn from_pointer(seats: *mut [Seat; N]) -> Self {
        Seats {
            seats: AtomicPtr::new(seats),
            high: AtomicUsize::new(0),
            waiting: AtomicU32::new(0),
            counts: Counts {
                raised: AtomicU32::new(0),
                restored: AtomicU32::new(0),
                refused: AtomicU32::new(0),
                left_to_program: AtomicU32::new(0),
                forbidden: AtomicU32::new(0),
            },
        }
    }

    /// The seats of [`Seats::not_given_yet`].
    pub fn give(&self, seats: &'static [Seat; N]) {
        self.seats.store(core::ptr::from_ref(seats).cast_mut(), Ordering::Release);
    }

    fn seats(&self) -> &[Seat] {
        // SAFETY: null, or what `of` or `give` was given, which lives for ever and is not changed but by its atomics and latches.
        unsafe { self.seats.load(Ordering::Acquire).as_ref() }.map_or(&[], |seats| seats)
    }

    /// A seat for the calling thread. `None` if all are taken: the thread then neither boosts others nor is boosted.
    pub fn register(&self, me: Tid) -> Option<&Seat> {
        // A seat of an ended thread that did not unregister and had the same thread number.
        if let Some(seat) = self.seat_of(me) {
            self.unregister(seat, me);
        }
        self.take_free(me).or_else(|| {
            for seat in self.taken() {
                let tid = seat.tid.load(Ordering::Relaxed);
                if tid != 0 && Policy::of(Tid::from_raw(tid)) == Err(libc::ESRCH) {
                    self.unregister(seat, Tid::from_raw(tid));
                }
            }
            self.take_free(me)
        })
    }

    /// Gives up the seat of a thread that has ended, unless another thread has taken it over already.
    fn unregister(&self, seat: &Seat, whose: Tid) {
        if seat.tid.compare_exchange(whose.raw(), ENDED, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            seat.waiting_for.store(0, Ordering::SeqCst);
            self.set_waiting_rank(seat, 0);
            seat.raised.store(0, Ordering::Relaxed);
            seat.held.clear();
            seat.tid.store(0, Ordering::Release);
        }
    }

    /// Returns the rank before.
    fn set_waiting_rank(&self, seat: &Seat, rank: u32) -> u32 {
        let before = seat.waiting_rank.swap(rank, Ordering::SeqCst);
        match (before, rank) {
            (0, 1..) => _ = self.waiting.fetch_add(1, Ordering::SeqCst),
            (1.., 0) => _ = self.waiting.fetch_sub(1, Ordering::SeqCst),
            _ => {}
        }
        before
    }

    fn take_free(&self, me: Tid) -> Option<&Seat> {
        for (index, seat) in self.seats().iter().enumerate() {
            let free = seat.tid.load(Ordering::Relaxed) == 0;
            if free && seat.tid.compare_exchange(0, me.raw(), Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                self.high.fetch_max(index + 1, Ordering::AcqRel);
                return Some(seat);
            }
        }
        None
    }

    /// No thread can be raised, so no check is needed whether one should be. Threads that are raised are still restored.
    fn is_forbidden(&self) -> bool {
        self.counts.forbidden.load(Ordering::Relaxed) != 0
    }

    fn taken(&self) -> impl Iterator<Item = &Seat> {
        let high = self.high.load(Ordering::Acquire);
        self.seats().iter().take(high).filter(|seat| seat.tid.load(Ordering::Relaxed) != 0)
    }

    /// The seat of the thread with this number.
    pub fn seat_of(&self, tid: Tid) -> Option<&Seat> {
        self.taken().find(|seat| seat.tid.load(Ordering::Relaxed) == tid.raw())
    }

    /// The calling thread is about to wait for `lock`. Its seat's `held` already has it (as "about to be held").
    pub fn begin_wait(&self, me: &Seat, my: Tid, lock: usize) {
        if self.is_forbidden() {
            return;
        }
        self.set_waiting_rank(me, 0);
        // ORDERING: either the holder's unlock sees this waiter (the holder is raised), or this waiter sees that the
        // lock is released.
        me.waiting_for.store(lock, Ordering::SeqCst);
        // Finds the caller's rank, and passes it to the holders if it is not 0.
        self.reckon(me, my, CHAIN);
    }

    /// The calling thread no longer waits: it has the lock, or gave up.
    pub fn end_wait(&self, me: &Seat, my: Tid) {
        if self.is_forbidden() && me.waiting_for.load(Ordering::Relaxed) == 0 {
            return;
        }
        let lock = me.waiting_for.swap(0, Ordering::SeqCst);
        let rank = self.set_waiting_rank(me, 0);
        if lock != 0 && rank != 0 {
            self.reckon_holders(lock, my, CHAIN);
        }
        // The threads queued after this one now wait for it, if it got the lock.
        self.reckon(me, my, CHAIN);
    }

    /// The calling thread has the lock without a wait, and `held` has shown it since before the attempt. Another thread may
    /// still wait for it: libc gives an unlocked mutex to the first thread that tries, and the woken waiter sleeps again. One
    /// load while no thread with a real-time priority waits for any lock.
    #[inline]
    pub fn after_lock(&self, me: &Seat, my: Tid) {
        // ORDERING: either the waiter finds this thread (it looks for holders after it is counted), or this thread finds
        // it counted. x86: the locked instruction that took the lock orders `held` before this load.
        #[cfg(not(target_arch = "x86_64"))]
        full_fence();
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.reckon(me, my, CHAIN);
        }
    }

    /// After an unlock and `held.leave`: takes back the boost that the lock had brought. Without a boost: one fence and
    /// one load.
    #[inline]
    pub fn after_unlock(&self, me: &Seat, my: Tid) {
        // ORDERING: pairs with the fence in `begin_wait`.
        full_fence();
        if me.raised.load(Ordering::Relaxed) != 0 {
            self.reckon(me, my, CHAIN);
        }
    }

    /// The calling thread ends, or needs no boosts any more.
    pub fn leave(&self, me: &Seat, my: Tid) {
        me.waiting_for.store(0, Ordering::SeqCst);
        self.set_waiting_rank(me, 0);
        for attempt in 0..=ATTEMPTS {
            let _latched = me.latch.hold(my);
            if me.raised.load(Ordering::Relaxed) != 0 {
                self.restore(me, my);
            }
            if me.raised.load(Ordering::Relaxed) == 0 || attempt == ATTEMPTS {
                me.raised.store(0, Ordering::Relaxed);
                me.held.clear();
                me.tid.store(0, Ordering::Release);
                return;
            }
            // A thread under SCHED_DEADLINE waits for the latch: let it in.
        }
    }

    /// The program is setting the policy of the thread in `seat`. While that thread is raised, the policy becomes its
    /// base (it takes effect when the boost ends), and the result is true: do not make the system call.
    pub fn policy_wanted(&self, seat: &Seat, my: Tid, wanted: Policy) -> bool {
        let _latched = seat.latch.hold(my);
        let raised = seat.raised.load(Ordering::Relaxed);
        if raised == 0 || wanted.rank() >= raised {
            // The program's policy is high enough.
            seat.raised.store(0, Ordering::Relaxed);
            return false;
        }
        // SAFETY: under the latch.
        unsafe { seat.base.set(wanted) };
        true
    }

    /// The program's own policy of the thread in `seat`: the one to report to the program, and the one its new threads inherit.
    pub fn own_policy(&self, seat: &Seat, my: Tid) -> Option<Policy> {
        let _latched = seat.latch.hold(my);
        let tid = seat.tid.load(Ordering::Relaxed);
        if tid == 0 {
            return None;
        }
        if seat.raised.load(Ordering::Relaxed) != 0 {
            // SAFETY: under the latch.
            return Some(unsafe { seat.base.get() });
        }
        Policy::of(Tid::from_raw(tid)).ok()
    }

    /// To be called in a forked child, which has inherited a raised policy but no waiters.
    ///
    /// # Safety
    /// The process has one thread, just forked, whose seat is `me` and whose new number is `my`.
    pub unsafe fn after_fork_in_child(&self, me: Option<&Seat>, my: Tid) {
        // (Not all of the table, which is large: the child gets its own copy of each page that it writes to.)
        for seat in self.seats().iter().take(self.high.load(Ordering::Relaxed)) {
            seat.latch.reset();
            if me.is_some_and(|me| core::ptr::eq(me, seat)) {
                seat.tid.store(my.raw(), Ordering::Relaxed);
                if seat.raised.load(Ordering::Relaxed) != 0 {
                    self.restore(seat, my);
                }
            } else {
                seat.tid.store(0, Ordering::Relaxed);
                seat.raised.store(0, Ordering::Relaxed);
                seat.held.clear();
            }
            seat.waiting_for.store(0, Ordering::Relaxed);
            seat.waiting_rank.store(0, Ordering::Relaxed);
        }
        self.waiting.store(0, Ordering::Relaxed);
    }

    /// Recomputes the threads that hold `lock` or wait for it. In a FIFO queue the highest waits for all before it, and
    /// a thread that is let in has to run before it can withdraw its wait.
    #[cold]
    fn reckon_holders(&self, lock: usize, my: Tid, chain: u32) {
        for seat in self.taken() {
            if seat.held.shows(lock) {
                self.reckon(seat, my, chain);
            }
        }
    }

    /// The highest rank among threads that wait for a lock that `seat` holds or waits for, without the lock `except`.
    fn highest_behind(&self, seat: &Seat, except: usize) -> u32 {
        let others = self.taken().filter(|other| !core::ptr::eq(*other, seat));
        let behind = others.filter_map(|other| {
            let lock = other.waiting_for.load(Ordering::Relaxed);
            let waits_behind = lock != 0 && lock != except && seat.held.shows(lock);
            waits_behind.then(|| other.waiting_rank.load(Ordering::Relaxed))
        });
        behind.max().unwrap_or(0)
    }

    /// Sets one thread's priority to the value that the facts give.
    #[cold]
    fn reckon(&self, seat: &Seat, my: Tid, chain: u32) {
        let latched = seat.latch.hold(my);
        let tid = seat.tid.load(Ordering::Acquire);
        let wanted = self.highest_behind(seat, 0);
        let raised = seat.raised.load(Ordering::Relaxed);
        let lock = seat.waiting_for.load(Ordering::Relaxed);
        if tid == 0 || wanted == 0 && raised == 0 && lock == 0 {
            return;
        }
        let tid = Tid::from_raw(tid);
        let Ok(now) = Policy::of(tid) else { return };
        // SAFETY: under the latch.
        let mut base = if raised == 0 { now } else { unsafe { seat.base.get() } };
        if raised != 0 && !now.same(&base.raised(raised)) {
            self.counts.left_to_program.fetch_add(1, Ordering::Relaxed);
            seat.raised.store(0, Ordering::Relaxed);
            base = now;
        } else if wanted <= base.rank() {
            if raised != 0 {
                self.restore(seat, tid);
            }
        } else if wanted != raised {
            self.raise(seat, tid, &base, wanted);
        }
        // The rank that it passes to the lock it waits for: its own rank, and the boosts from locks that it holds.
        // Boosts from others in the same queue do not count, or two threads would keep each other up.
        let rank = base.rank().min(99).max(self.highest_behind(seat, lock));
        let next = lock != 0 && self.set_waiting_rank(seat, rank) != rank;
        drop(latched);
        if next && chain != 0 {
            self.reckon_holders(lock, my, chain - 1);
        }
    }

    /// Under the seat's latch.
    fn raise(&self, seat: &Seat, tid: Tid, base: &Policy, to: u32) {
        // Before the policy: a holder that unlocks from now on waits for the latch, and has its own policy again when its
        // unlock returns.
        // SAFETY: under the latch.
        unsafe { seat.base.set(*base) };
        let before = seat.raised.swap(to, Ordering::Relaxed);
        if let Err(error) = set_raised(tid, &base.raised(to)) {
            seat.raised.store(before, Ordering::Relaxed);
            self.counts.refused.fetch_add(1, Ordering::Relaxed);
            if error == libc::EPERM {
                self.counts.forbidden.store(1, Ordering::Relaxed);
            }
            return;
        }
        self.counts.raised.fetch_add(1, Ordering::Relaxed);
        // ORDERING: with the holder's fence after its unlock: the holder sees that it was raised, or this sees the lock
        // released.
        fence(Ordering::SeqCst);
        if self.highest_behind(seat, 0) == 0 {
            self.restore(seat, tid);
        }
    }

    /// Under the seat's latch: back to the thread's own policy, unless the program has set another since.
    fn restore(&self, seat: &Seat, tid: Tid) {
        // SAFETY: under the latch.
        let base = unsafe { seat.base.get() };
        let raised = base.raised(seat.raised.load(Ordering::Relaxed));
        let count = match Policy::of(tid) {
            Ok(now) if now.same(&raised) => match base.set(tid) {
                Ok(()) => &self.counts.restored,
                // A thread under SCHED_DEADLINE waits for this latch. The kernel has raised the latch's holder to
                // SCHED_DEADLINE and refuses to set its policy. That waiter restores this thread, too; so does this
                // thread's next unlock.
                Err(libc::EBUSY) => return,
                Err(_) => &self.counts.refused,
            },
            _ => &self.counts.left_to_program,
        };
        count.fetch_add(1, Ordering::Relaxed);
        // Last: a thread that finds itself not raised does not take the latch, and has its own policy then.
        seat.raised.store(0, Ordering::Relaxed);
    }
}

fn set_raised(tid: Tid, policy: &Policy) -> Result<(), c_int> {
    let mut attempts = 0;
    loop {
        match policy.set(tid) {
            Err(libc::EBUSY) if attempts < ATTEMPTS => attempts += 1,
            done => return done,
        }
        let never = AtomicU32::new(0);
        futex::wait(&never, 0, Some(&Deadline::after(Clock::Monotonic, PAUSE)));
    }
}
