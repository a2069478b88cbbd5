//! An uncontended lock and unlock: each variant compared with bare glibc in the same run. `none` is the loop itself.
//! `before` names the lock that a gate guards: the gate's cost is the difference to the bare lock.

#[cfg(not(loom))]
mod pairs {
    use std::cell::UnsafeCell;
    use std::hint::black_box;

    use criterion::Criterion;
    use locks::Tid;
    use locks::boost::{Seat, Seats};
    use locks::guard::Guard;
    use locks::held::{Entry, Exit, Held, Mode};
    use locks::layout::{Layout, Mutex, Real};
    use locks::old_rwlock::OldRwLock;
    use locks::phase_fair::PhaseFair;
    use locks::pi::Decision;
    use locks::ticket::Ticket;

    const REAL: Real = Real {
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

    thread_local! {
        static HELD: Held = const { Held::new() };
    }

    static TICKET: Ticket = Ticket::new();
    static GATE: PhaseFair = PhaseFair::new();
    static OLD: OldRwLock = OldRwLock::new();
    static GUARD: Guard = Guard::new();
    static PLACES: [Seat; 64] = [const { Seat::free() }; 64];
    static SEATS: Seats<64> = Seats::of(&PLACES);

    fn bare_mutex(mutex: *mut libc::pthread_mutex_t) {
        // SAFETY: an initialised mutex, used by this thread only.
        unsafe {
            libc::pthread_mutex_lock(black_box(mutex));
            libc::pthread_mutex_unlock(black_box(mutex));
        }
    }

    fn bare_read(rwlock: *mut libc::pthread_rwlock_t) {
        // SAFETY: an initialised rwlock, used by this thread only.
        unsafe {
            libc::pthread_rwlock_rdlock(black_box(rwlock));
            libc::pthread_rwlock_unlock(black_box(rwlock));
        }
    }

    fn bare_write(rwlock: *mut libc::pthread_rwlock_t) {
        // SAFETY: an initialised rwlock, used by this thread only.
        unsafe {
            libc::pthread_rwlock_wrlock(black_box(rwlock));
            libc::pthread_rwlock_unlock(black_box(rwlock));
        }
    }

    /// Uses a lock with a gate in front: note it in `Held`, enter the gate, lock and unlock the lock itself, leave,
    /// strike it out.
    fn gated(address: usize, mode: Mode, me: Tid, pair: impl FnOnce()) {
        HELD.with(|held| {
            if held.enter(address, mode) == Entry::First {
                let _ = if mode == Mode::Read { GATE.read(me) } else { GATE.write(me) };
            }
            pair();
            match held.leave(address) {
                Exit::Last(Mode::Read) => GATE.leave_read(me).unwrap_or_default(),
                Exit::Last(Mode::Write) => GATE.leave_write(me).unwrap_or_default(),
                _ => {}
            }
        });
    }

    pub fn run(criterion: &mut Criterion) {
        // libc takes short cuts in a program with one thread. Programs that need locks have at least two, so start another.
        std::thread::spawn(std::thread::park);
        let me = Tid::current();
        let mutex = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        let rwlock = UnsafeCell::new(libc::PTHREAD_RWLOCK_INITIALIZER);
        let inheriting = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        let converted = UnsafeCell::new(libc::PTHREAD_MUTEX_INITIALIZER);
        let layout = Layout::probe(&REAL, me);
        let mut group = criterion.benchmark_group("pairs");
        group.bench_function("none", |bench| bench.iter(|| black_box(mutex.get())));
        group.bench_function("glibc_mutex", |bench| bench.iter(|| bare_mutex(mutex.get())));
        group.bench_function("ticket", |bench| {
            bench.iter(|| (TICKET.lock(black_box(me)), TICKET.unlock(black_box(me))))
        });
        group.bench_function("ticket_before_mutex", |bench| {
            bench.iter(|| {
                let _ = TICKET.lock(black_box(me));
                bare_mutex(mutex.get());
                TICKET.unlock(black_box(me))
            })
        });
        group.bench_function("glibc_pi", |bench| {
            // SAFETY: a mutex and an attribute of this function.
            unsafe {
                let mut attribute = std::mem::zeroed();
                libc::pthread_mutexattr_init(&mut attribute);
                libc::pthread_mutexattr_setprotocol(&mut attribute, libc::PTHREAD_PRIO_INHERIT);
                libc::pthread_mutex_init(inheriting.get(), &attribute);
            }
            bench.iter(|| bare_mutex(inheriting.get()))
        });
        match layout {
            Err(mismatch) => eprintln!("pi: skipped, {mismatch:?}"),
            Ok(layout) => {
                group.bench_function("pi", |bench| {
                    // SAFETY: alive, and the layout is proven.
                    let mutex = unsafe { Mutex::of(converted.get()) };
                    assert_eq!(mutex.decide(&layout), Decision::Converted);
                    bench.iter(|| {
                        let mutex = black_box(mutex);
                        if mutex.decide(&layout) == Decision::Converted {
                            let _ = mutex.lock(black_box(me));
                        }
                        if mutex.decide(&layout) == Decision::Converted {
                            let _ = mutex.unlock(black_box(me));
                        }
                    })
                });
            }
        }
        group.bench_function("guard", |bench| bench.iter(|| (GUARD.enter(black_box(me)), GUARD.leave(me))));
        SEATS.give(Box::leak(Box::new([const { Seat::free() }; 64])));
        if let Some(seat) = SEATS.register(me) {
            let address = mutex.get() as usize;
            group.bench_function("boost_round_mutex", |bench| {
                bench.iter(|| {
                    seat.held.enter(black_box(address), Mode::Write);
                    bare_mutex(mutex.get());
                    seat.held.leave(black_box(address));
                    SEATS.after_unlock(seat, me);
                })
            });
        }
        let address = rwlock.get() as usize;
        group.bench_function("glibc_read", |bench| bench.iter(|| bare_read(rwlock.get())));
        group.bench_function("phase_fair_read", |bench| {
            bench.iter(|| (GATE.read(black_box(me)), GATE.leave_read(black_box(me))))
        });
        group.bench_function("phase_fair_before_read", |bench| {
            bench.iter(|| gated(black_box(address), Mode::Read, me, || bare_read(rwlock.get())))
        });
        group.bench_function("glibc_write", |bench| bench.iter(|| bare_write(rwlock.get())));
        group.bench_function("phase_fair_write", |bench| {
            bench.iter(|| (GATE.write(black_box(me)), GATE.leave_write(black_box(me))))
        });
        group.bench_function("phase_fair_before_write", |bench| {
            bench.iter(|| gated(black_box(address), Mode::Write, me, || bare_write(rwlock.get())))
        });
        group.bench_function("old_rwlock_read", |bench| bench.iter(|| (OLD.read(black_box(me)), OLD.unlock(me))));
        group.finish();
    }
}

fn main() {
    #[cfg(not(loom))]
    {
        let mut criterion = criterion::Criterion::default()
            .warm_up_time(std::time::Duration::from_millis(200))
            .measurement_time(std::time::Duration::from_millis(800))
            .configure_from_args();
        pairs::run(&mut criterion);
        criterion.final_summary();
    }
}
