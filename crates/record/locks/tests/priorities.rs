//! Boosts and the guard, with real priorities. Where SCHED_FIFO is not allowed these tests print that and pass.
#![cfg(not(loom))]

mod hands;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;

use hands::{me, until, within};
use locks::boost::{Policy, Seat, Seats};
use locks::guard::{Entered, Guard};
use locks::held::{Entry, Exit, Mode};
use locks::ticket::Ticket;
use locks::{NotHeld, Tid};

fn fifo(priority: i32) -> bool {
    let parameter = libc::sched_param { sched_priority: priority };
    // SAFETY: a live parameter; 0 is the calling thread.
    let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &parameter) } == 0;
    if !set {
        test_support::skip_part!("SCHED_FIFO is not allowed here");
    }
    set
}

const TURNS: u32 = 1_000;

fn rank(tid: Tid) -> u32 {
    Policy::of(tid).unwrap().rank()
}

fn seats<const N: usize>() -> Seats<N> {
    Seats::of(Box::leak(Box::new([const { Seat::free() }; N])))
}

/// A lock with boosts, combined as in an interposer.
struct Boosted {
    lock: Ticket,
}

impl Boosted {
    fn new() -> Boosted {
        Boosted { lock: Ticket::new() }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self) as usize
    }

    fn lock<const N: usize>(&self, seats: &Seats<N>, seat: &Seat, milliseconds: u64) -> bool {
        assert_eq!(seat.held.enter(self.address(), Mode::Write), Entry::First);
        if self.lock.try_lock().is_acquired() {
            seats.after_lock(seat, me());
            return true;
        }
        seats.begin_wait(seat, me(), self.address());
        let taken = self.lock.lock_until(me(), &within(milliseconds)).is_acquired();
        if !taken {
            seat.held.leave(self.address());
        }
        seats.end_wait(seat, me());
        taken
    }

    fn unlock<const N: usize>(&self, seats: &Seats<N>, seat: &Seat) {
        self.lock.unlock(me()).unwrap();
        assert_eq!(seat.held.leave(self.address()), Exit::Last(Mode::Write));
        seats.after_unlock(seat, me());
    }
}

/// A holder at 5, waiters at 20 and 40 on two nested locks. The higher one gives up, the other gets in.
#[test]
fn boosts_nest_and_end() {
    let seats = seats::<8>();
    let (outer, inner) = (Boosted::new(), Boosted::new());
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            if !fifo(5) {
                return;
            }
            let seat = seats.register(me()).unwrap();
            let my = me();
            assert!(outer.lock(&seats, seat, 1) && inner.lock(&seats, seat, 1));
            assert_eq!(rank(my), 5);
            let waiter = |priority, lock: &'static str, milliseconds: u64| {
                let (seats, outer, inner) = (&seats, &outer, &inner);
                scope.spawn(move || {
                    assert!(fifo(priority));
                    let lock = if lock == "outer" { outer } else { inner };
                    let seat = seats.register(me()).unwrap();
                    let taken = lock.lock(seats, seat, milliseconds);
                    if taken {
                        lock.unlock(seats, seat);
                    }
                    assert_eq!(rank(me()), priority as u32);
                    seats.leave(seat, me());
                    taken
                })
            };
            let low = waiter(20, "outer", 60_000);
            until("raised to 20", || rank(my) == 20);
            let high = waiter(40, "inner", 2_000);
            until("raised to 40", || rank(my) == 40);
            assert_eq!(seats.own_policy(seat, my).unwrap().rank(), 5);
            assert!(!high.join().unwrap());
            assert_eq!(rank(my), 20, "the higher waiter gave up");
            let high = waiter(60, "inner", 60_000);
            until("raised to 60", || rank(my) == 60);
            inner.unlock(&seats, seat);
            assert_eq!(rank(my), 20, "the inner lock is released");
            assert!(high.join().unwrap());
            outer.unlock(&seats, seat);
            assert_eq!(rank(my), 5);
            assert!(low.join().unwrap());
            assert_eq!(seat.raised_to(), 0);
            seats.leave(seat, my);
        });
        holder.join().unwrap();
    });
}

/// The waiter's priority is passed on to the thread that its holder waits for.
#[test]
fn boosts_follow_a_chain() {
    let seats = seats::<8>();
    let (first, second) = (Boosted::new(), Boosted::new());
    let (seats, first, second) = (&seats, &first, &second);
    let release = AtomicBool::new(false);
    let release = &release;
    let (far, near) = (&AtomicU32::new(0), &AtomicU32::new(0));
    thread::scope(|scope| {
        let end = scope.spawn(move || {
            if !fifo(3) {
                far.store(u32::MAX, Ordering::Relaxed);
                return;
            }
            let seat = seats.register(me()).unwrap();
            assert!(second.lock(seats, seat, 1));
            far.store(me().raw(), Ordering::Relaxed);
            until("released", || release.load(Ordering::Relaxed));
            second.unlock(seats, seat);
            assert_eq!(rank(me()), 3);
            seats.leave(seat, me());
        });
        until("second held", || far.load(Ordering::Relaxed) != 0);
        if far.load(Ordering::Relaxed) == u32::MAX {
            return;
        }
        scope.spawn(move || {
            assert!(fifo(4));
            let seat = seats.register(me()).unwrap();
            assert!(first.lock(seats, seat, 1));
            near.store(me().raw(), Ordering::Relaxed);
            assert!(second.lock(seats, seat, 60_000));
            second.unlock(seats, seat);
            first.unlock(seats, seat);
            assert_eq!(rank(me()), 4);
            seats.leave(seat, me());
        });
        until("first held", || near.load(Ordering::Relaxed) != 0);
        let far = Tid::from_raw(far.load(Ordering::Relaxed));
        until("raised by the near one", || rank(far) == 4);
        scope.spawn(move || {
            assert!(fifo(50));
            let seat = seats.register(me()).unwrap();
            assert!(first.lock(seats, seat, 60_000));
            first.unlock(seats, seat);
            seats.leave(seat, me());
        });
        until("raised through the near one", || rank(far) == 50);
        release.store(true, Ordering::Relaxed);
        end.join().unwrap();
    });
}

#[test]
fn a_policy_of_the_programs_own_is_left() {
    let seats = seats::<4>();
    let lock = Boosted::new();
    thread::scope(|scope| {
        let (seats, lock) = (&seats, &lock);
        scope.spawn(move || {
            if !fifo(5) {
                return;
            }
            let seat = seats.register(me()).unwrap();
            assert!(lock.lock(seats, seat, 1));
            let my = me();
            let waiter = scope.spawn(move || {
                assert!(fifo(30));
                let seat = seats.register(me()).unwrap();
                assert!(lock.lock(seats, seat, 60_000));
                lock.unlock(seats, seat);
                seats.leave(seat, me());
            });
            until("raised", || rank(my) == 30);
            assert!(fifo(12));
            lock.unlock(seats, seat);
            assert_eq!(rank(my), 12, "set meanwhile, round us");
            waiter.join().unwrap();
            assert_eq!(rank(my), 12);
            // The same through `policy_wanted`: no change while it is raised, and the wanted policy is its base afterwards.
            assert!(lock.lock(seats, seat, 1));
            let waiter = scope.spawn(move || {
                assert!(fifo(30));
                let seat = seats.register(me()).unwrap();
                assert!(lock.lock(seats, seat, 60_000));
                lock.unlock(seats, seat);
                seats.leave(seat, me());
            });
            until("raised", || rank(my) == 30);
            let mut wanted = Policy::of(my).unwrap();
            wanted.priority = 7;
            assert!(seats.policy_wanted(seat, my, wanted));
            assert_eq!(rank(my), 30);
            lock.unlock(seats, seat);
            assert_eq!(rank(my), 7);
            waiter.join().unwrap();
            seats.leave(seat, my);
        });
    });
}

/// Runs `holder` at priority 5, with its seat.
fn at_five(holder: impl FnOnce(&Seats<4>, &Boosted, &Seat) + Send) {
    let (seats, lock) = (seats(), Boosted::new());
    let holder = || {
        if fifo(5) {
            let seat = seats.register(me()).unwrap();
            holder(&seats, &lock, seat);
            seats.leave(seat, me());
        }
    };
    thread::scope(|scope| scope.spawn(holder).join().unwrap());
}

/// If libc's mutex is unlocked, the first thread that tries gets it, also past a waiter.
#[test]
fn a_thread_that_overtakes_a_waiter_is_raised() {
    at_five(|seats, lock, seat| {
        let (waits, over) = (&Barrier::new(2), &Barrier::new(2));
        thread::scope(|scope| {
            scope.spawn(move || {
                assert!(fifo(30));
                let seat = seats.register(me()).unwrap();
                assert_eq!(seat.held.enter(lock.address(), Mode::Write), Entry::First);
                seats.begin_wait(seat, me(), lock.address());
                waits.wait();
                over.wait();
                seat.held.leave(lock.address());
                seats.end_wait(seat, me());
                seats.leave(seat, me());
            });
            waits.wait();
            assert!(lock.lock(seats, seat, 0));
            assert_eq!(rank(me()), 30);
            lock.unlock(seats, seat);
            assert_eq!(rank(me()), 5);
            over.wait();
        });
        assert!(lock.lock(seats, seat, 0));
        assert_eq!(rank(me()), 5);
        lock.unlock(seats, seat);
    });
}

/// A waiter that got in restores the holder, too: the holder's unlock must not return in the middle of that.
#[test]
fn an_unlock_returns_when_the_holder_has_its_own_policy_again() {
    let turn = &AtomicU32::new(0);
    at_five(|seats, lock, seat| {
        let my = me();
        thread::scope(|scope| {
            scope.spawn(move || {
                assert!(fifo(30));
                let seat = seats.register(me()).unwrap();
                for n in 1..=TURNS {
                    until("held", || turn.load(Ordering::Acquire) >= n);
                    assert!(lock.lock(seats, seat, 60_000));
                    lock.unlock(seats, seat);
                }
                seats.leave(seat, me());
            });
            for n in 1..=TURNS {
                assert!(lock.lock(seats, seat, 60_000));
                turn.store(n, Ordering::Release);
                until("raised", || rank(my) == 30);
                lock.unlock(seats, seat);
                assert_eq!(rank(my), 5, "turn {n}");
            }
        });
    });
}

#[test]
fn a_holder_that_leaves_is_restored_and_its_seat_used_again() {
    let seats = seats::<2>();
    let lock = Boosted::new();
    thread::scope(|scope| {
        let (seats, lock) = (&seats, &lock);
        scope.spawn(move || {
            if !fifo(5) {
                return;
            }
            let seat = seats.register(me()).unwrap();
            assert!(lock.lock(seats, seat, 1));
            let my = me();
            let waiter = scope.spawn(move || {
                assert!(fifo(30));
                let seat = seats.register(me()).unwrap();
                assert!(scope.spawn(|| seats.register(me()).is_none()).join().unwrap(), "there are two");
                assert!(!lock.lock(seats, seat, 2_000));
                seats.leave(seat, me());
            });
            until("raised", || rank(my) == 30);
            seats.leave(seat, my);
            assert_eq!(rank(my), 5);
            waiter.join().unwrap();
            assert_eq!(rank(my), 5);
            let seat = seats.register(my).unwrap();
            assert!(seat.held.is_empty() && seat.raised_to() == 0);
        });
    });
}

/// Runs the calling thread under SCHED_DEADLINE: 2 ms of every 10.
fn deadline() -> bool {
    let (runtime, period) = (2_000_000u64, 10_000_000u64);
    // `struct sched_attr`: size, policy, flags, nice, priority, runtime, deadline, period.
    let attributes: [u64; 6] = [48 | (libc::SCHED_DEADLINE as u64) << 32, 0, 0, runtime, period, period];
    // SAFETY: a live struct of the size that it states; 0 is the calling thread.
    let set = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &attributes, 0) } == 0;
    if !set {
        test_support::skip_part!("SCHED_DEADLINE is not allowed here");
    }
    set
}

/// Random locks, priorities, deadlines: at the end every thread has the policy that it started with.
#[test]
fn nobody_is_left_high() {
    at_the_end_everybody_is_as_before(false);
}

/// The kernel refuses to set the policy of a thread that it has raised to SCHED_DEADLINE, as it does for the holder of
/// a latch that such a thread waits for.
#[test]
fn nobody_is_left_high_beside_a_thread_with_a_deadline() {
    at_the_end_everybody_is_as_before(true);
}

fn at_the_end_everybody_is_as_before(with_deadline: bool) {
    let seats = seats::<16>();
    let locks: [Boosted; 3] = std::array::from_fn(|_| Boosted::new());
    let counter = AtomicU32::new(0);
    thread::scope(|scope| {
        for number in 0..8 {
            let (seats, locks, counter) = (&seats, &locks, &counter);
            scope.spawn(move || {
                let real_time = if with_deadline && number % 4 == 1 { deadline } else { || true };
                if number % 4 != 0 && (number % 4 != 1 || !with_deadline) && !fifo(number) || !real_time() {
                    return;
                }
                let before = Policy::of(me()).unwrap();
                let seat = seats.register(me()).unwrap();
                let mut dice = hands::Dice::new(number as u64 + 1);
                for _ in 0..400 {
                    // In order, so that only a deadline is ever in the way.
                    let (first, second) = (dice.roll(2) as usize, 2);
                    if locks[first].lock(seats, seat, 1 + dice.roll(3)) {
                        if locks[second].lock(seats, seat, 1 + dice.roll(3)) {
                            counter.fetch_add(1, Ordering::Relaxed);
                            if dice.roll(4) == 0 {
                                thread::sleep(std::time::Duration::from_micros(300));
                            }
                            locks[second].unlock(seats, seat);
                        }
                        locks[first].unlock(seats, seat);
                    }
                }
                seats.leave(seat, me());
                assert_eq!(Policy::of(me()).unwrap(), before, "thread {number}");
            });
        }
    });
    let count = |count: &AtomicU32| count.load(Ordering::Relaxed);
    let counts = &seats.counts;
    println!(
        "{} entries, {} raised, {} restored, {} refused, {} left to the program",
        count(&counter),
        count(&counts.raised),
        count(&counts.restored),
        count(&counts.refused),
        count(&counts.left_to_program)
    );
    assert_eq!(count(&counts.left_to_program), 0);
}

#[test]
fn guard_nests_and_recovers() {
    let guard = Guard::new();
    assert_eq!(guard.leave(me()), Err(NotHeld));
    assert_eq!(guard.enter(me()), Entered::AtOnce);
    assert_eq!(guard.enter(me()), Entered::Nested);
    assert_eq!(guard.leave(me()), Ok(()));
    assert_eq!(guard.holder(), Some(me()));
    assert_eq!(thread::scope(|scope| scope.spawn(|| guard.leave(me())).join().unwrap()), Err(NotHeld));
    assert_eq!(guard.leave(me()), Ok(()));
    assert_eq!(guard.holder(), None);
    // It ends inside, before any thread waits.
    thread::scope(|scope| scope.spawn(|| assert_eq!(guard.enter(me()), Entered::AtOnce)).join().unwrap());
    assert_eq!(guard.enter(me()), Entered::Recovered);
    assert_eq!(guard.leave(me()), Ok(()));
    // It ends inside while a thread waits.
    let guard = Arc::new(guard);
    let both = Arc::new(Barrier::new(2));
    let (theirs, there) = (guard.clone(), both.clone());
    let me_known = me().raw();
    let ended = thread::spawn(move || {
        assert_eq!(theirs.enter(me()), Entered::AtOnce);
        there.wait();
        until("the other sleeps", || hands::sleeps(me_known));
    });
    both.wait();
    assert_eq!(guard.enter(me()), Entered::Recovered);
    ended.join().unwrap();
    assert_eq!(guard.leave(me()), Ok(()));
    assert_eq!(guard.enter(me()), Entered::AtOnce);
    assert_eq!(guard.leave(me()), Ok(()));
}

/// No thread waits longer than its limit, and a thread that gave up is not inside.
#[test]
fn guard_is_not_waited_for_for_ever() {
    use std::time::{Duration, Instant};
    let guard = Guard::new();
    assert_eq!(guard.enter_within(me(), Duration::ZERO), Entered::AtOnce);
    assert_eq!(guard.try_enter(me()), Some(Entered::Nested));
    assert_eq!(guard.leave(me()), Ok(()));
    let holder = me();
    thread::scope(|scope| {
        let other = || {
            assert_eq!(guard.try_enter(me()), None);
            for patience in [Duration::ZERO, Duration::from_millis(30)] {
                let from = Instant::now();
                assert_eq!(guard.enter_within(me(), patience), Entered::TimedOut);
                assert!(from.elapsed() >= patience, "{:?}", from.elapsed());
            }
            assert_eq!(guard.leave(me()), Err(NotHeld));
            assert_eq!(guard.holder(), Some(holder));
        };
        scope.spawn(other).join().unwrap();
    });
    assert_eq!(guard.leave(me()), Ok(()));
    assert_eq!(guard.try_enter(me()), Some(Entered::AtOnce));
    let after = thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let entered = guard.enter_within(me(), Duration::from_secs(60));
            (entered, guard.leave(me()))
        });
        thread::sleep(Duration::from_millis(20));
        assert_eq!(guard.leave(holder), Ok(()));
        waits.join().unwrap()
    });
    assert!(matches!(after.0, Entered::AfterWait | Entered::AtOnce) && after.1 == Ok(()), "{after:?}");
    assert_eq!(guard.holder(), None);
}

/// The thread inside runs at its waiters' priority.
#[test]
fn guard_inherits() {
    let guard = Guard::new();
    let inside = AtomicU32::new(0);
    let release = AtomicBool::new(false);
    // The kernel's effective priority: field 18 of stat; -1 - priority for real-time threads.
    let effective = |tid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{tid}/stat")).unwrap();
        stat.rsplit(") ").next().unwrap().split(' ').nth(15).unwrap().parse::<i32>().unwrap()
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            if !fifo(5) {
                inside.store(u32::MAX, Ordering::Relaxed);
                return;
            }
            assert_eq!(guard.enter(me()), Entered::AtOnce);
            inside.store(me().raw(), Ordering::Relaxed);
            until("released", || release.load(Ordering::Relaxed));
            guard.leave(me()).unwrap();
            assert_eq!(effective(me().raw()), -6);
        });
        until("inside", || inside.load(Ordering::Relaxed) != 0);
        let tid = inside.load(Ordering::Relaxed);
        if tid == u32::MAX {
            return;
        }
        scope.spawn(|| {
            assert!(fifo(70));
            assert_eq!(guard.enter(me()), Entered::AfterWait);
            guard.leave(me()).unwrap();
        });
        until("raised to 70", || effective(tid) == -71);
        release.store(true, Ordering::Relaxed);
    });
}
