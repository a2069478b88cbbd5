//! Threads that sleep until submissions are done, and the events that end their sleep.

mod alone;

use alone::{LIMIT, SOON, alone, cpu_time, open, piece, timed, word};
use doorbell_softgpu::Planted;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use submit::{Copy, Error, InOrder, Options, Session, Wait};

/// Sleeps immediately.
const AT_ONCE: Wait = Wait::Sleep { spin: Duration::ZERO };

#[test]
fn every_way_of_waiting_notices_what_is_done() {
    let (s, _) = alone(&Options { lanes: 1, ..Options::default() });
    let [to, from] = [(); 2].map(|()| s.allocate(1 << 20, false).unwrap());
    let large = s.prepare((to, 0), (from, 0), 1 << 20).unwrap();
    for how in [Wait::Spin, Wait::SLEEP, AT_ONCE] {
        for _ in 0..50 {
            s.wait_by(how, s.submit(large).unwrap(), LIMIT).unwrap();
        }
        s.set_wait(how);
        s.copy((to, 0), (from, 0), 64, LIMIT).unwrap();
        let done = s.submit(large).unwrap();
        s.wait(done, LIMIT).unwrap();
        assert!(s.wait(done, Duration::ZERO).is_ok(), "what is done needs no time");
    }
}

#[test]
fn a_thread_that_sleeps_costs_little_and_its_limit_is_kept() {
    let (s, _) = alone(&Options { lanes: 1, ..Options::default() });
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let copy = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    let before = cpu_time();
    let (ended, took) = timed(|| s.wait_by(Wait::SLEEP, copy, Duration::from_millis(300)));
    let spent = cpu_time() - before;
    assert!(matches!(ended, Err(Error::Timeout(_))) && took >= Duration::from_millis(300), "{ended:?}, {took:?}");
    // In a guest a nap costs some 16 us, bare metal 3.
    assert!(spent < took.mul_f64(0.6), "{spent:?} of {took:?}");
    word(&s, gate).store(1, Ordering::SeqCst);
    s.wait_by(Wait::SLEEP, copy, LIMIT).unwrap();
}

#[test]
fn the_first_of_several_and_all_of_several_are_waited_for_across_lanes() {
    for how in [Wait::Spin, AT_ONCE] {
        let (s, _) = alone(&Options { lanes: 2, ..Options::default() });
        s.set_wait(how);
        let [gates, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
        let video = s.allocate(4096, true).unwrap();
        // To the GPU and from it: two channels, which wait for different words.
        let waits = |at: u64, from| {
            s.copy_in(&piece(to, from), &InOrder { word: Some((gates, at, 1)), ..InOrder::default() }).unwrap()
        };
        let (first, second) = (waits(0, from), waits(64, video));
        let both = [first, second];
        assert!(matches!(s.wait_any(&both, Duration::from_millis(5)), Err(Error::Timeout(_))));
        assert!(matches!(s.wait_all(&both, Duration::from_millis(5)), Err(Error::Timeout(_))));
        let (at, _) = s.place(gates).unwrap();
        // SAFETY: words of memory that stays until the session's end.
        let gate = |at: u64| unsafe { std::sync::atomic::AtomicU32::from_ptr(at as *mut u32) };
        std::thread::scope(|scope| {
            let any = scope.spawn(|| s.wait_any(&both, LIMIT).unwrap());
            std::thread::sleep(Duration::from_millis(5));
            gate(at + 64).store(1, Ordering::SeqCst);
            assert_eq!(any.join().unwrap(), 1);
            let all = scope.spawn(|| s.wait_all(&both, LIMIT));
            std::thread::sleep(Duration::from_millis(5));
            gate(at).store(1, Ordering::SeqCst);
            all.join().unwrap().unwrap();
        });
        assert_eq!(s.wait_any(&both, Duration::ZERO).unwrap(), 0, "the first of those that are done");
        s.wait_all(&[], Duration::ZERO).unwrap();
        assert!(matches!(s.wait_any(&[], LIMIT), Err(Error::Argument(_))));
        assert!(matches!(s.wait_any(&[Copy::from_raw(7)], LIMIT), Err(Error::Handle(_))));
        assert!(matches!(s.wait_all(&[first, Copy::from_raw(7)], LIMIT), Err(Error::Handle(_))));
    }
}

/// Threads that wait for a submission that waits for a word. Returns their results after `end`, and how long
/// they took.
fn sleepers(s: &Session, copies: &[Copy], end: impl FnOnce()) -> Vec<(Result<(), Error>, Duration)> {
    let asleep = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..64)
            .map(|n| {
                let asleep = &asleep;
                scope.spawn(move || {
                    asleep.fetch_add(1, Ordering::SeqCst);
                    let ended = match n % 4 {
                        0 => s.wait_any(copies, LIMIT).map(drop),
                        1 => s.wait_all(copies, LIMIT),
                        _ => s.wait_by(AT_ONCE, copies[n % copies.len()], LIMIT),
                    };
                    (ended, std::time::Instant::now())
                })
            })
            .collect();
        while asleep.load(Ordering::SeqCst) < 64 {
            std::thread::yield_now();
        }
        std::thread::sleep(Duration::from_millis(30));
        let start = std::time::Instant::now();
        end();
        threads.into_iter().map(|thread| thread.join().unwrap()).map(|(ended, at)| (ended, at - start)).collect()
    })
}

#[test]
fn sixty_four_threads_that_sleep_are_all_woken_when_it_is_done() {
    let (s, driver) = alone(&Options { lanes: 1, ..Options::default() });
    s.set_wait(AT_ONCE);
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let mut copies =
        vec![s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap()];
    copies.extend((0..31).map(|_| s.copy_async((to, 0), (from, 0), 64).unwrap()));
    let gate = word(&s, gate);
    for (ended, took) in sleepers(&s, &copies, || gate.store(1, Ordering::SeqCst)) {
        assert!(ended.is_ok() && took < SOON, "{ended:?} after {took:?}");
    }
    assert_eq!(driver.counters().faults.load(Ordering::Relaxed), 0);
}

#[test]
fn all_who_sleep_learn_at_once_that_the_lane_was_killed() {
    let (s, driver) = alone(&Options { lanes: 1, ..Options::default() });
    s.set_wait(AT_ONCE);
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let copy = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    // The submission after the gate kills it.
    driver.machine.plant(Some(Planted::DeadChannel { entry: 1, xid: 31 }));
    let behind = s.copy_async((to, 0), (from, 0), 64).unwrap();
    let gate = word(&s, gate);
    for (ended, took) in sleepers(&s, &[behind], || gate.store(1, Ordering::SeqCst)) {
        assert!(matches!(ended, Err(Error::Killed(31))) && took < SOON, "{ended:?} after {took:?}");
    }
    let _ = copy;
    driver.machine.plant(None);
}

#[test]
fn all_who_sleep_learn_at_once_that_the_session_is_closed() {
    let (s, _) = alone(&Options { lanes: 1, ..Options::default() });
    s.set_wait(AT_ONCE);
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let copy = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    let gate = word(&s, gate);
    std::thread::scope(|scope| {
        let s = &s;
        // The close itself waits up to ten seconds for the copy; the sleeping threads do not.
        let ended = sleepers(s, &[copy], || drop(scope.spawn(|| s.close().unwrap())));
        gate.store(1, Ordering::SeqCst);
        for (ended, took) in ended {
            assert!(matches!(ended, Err(Error::Closed)) && took < SOON, "{ended:?} after {took:?}");
        }
    });
}

#[test]
fn a_doorbell_that_was_missed_is_rung_again_by_who_sleeps() {
    let (s, driver) = alone(&Options { lanes: 1, ..Options::default() });
    s.set_wait(AT_ONCE);
    let [to, from] = [(); 2].map(|()| s.allocate(4096, false).unwrap());
    for any in [false, true] {
        driver.machine.plant(Some(Planted::LostDoorbell { nth: 1 }));
        let copy = s.copy_async((to, 0), (from, 0), 64).unwrap();
        let ended = if any { s.wait_any(&[copy], LIMIT).map(drop) } else { s.wait(copy, LIMIT) };
        ended.unwrap();
        driver.machine.plant(None);
    }
}

#[test]
fn a_childs_wait_is_an_error_also_while_threads_of_the_parent_sleep() {
    let (s, _) = alone(&Options { lanes: 1, ..Options::default() });
    s.set_wait(AT_ONCE);
    let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
    let copy = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
    let gate = word(&s, gate);
    let ended = sleepers(&s, &[copy], || {
        // SAFETY: the child makes no call that takes a lock, and leaves by _exit.
        let child = unsafe { libc::fork() };
        if child == 0 {
            let all = [s.wait(copy, LIMIT), s.wait_any(&[copy], LIMIT).map(drop), s.wait_all(&[copy], LIMIT)];
            let wrong = all.iter().any(|ended| !matches!(ended, Err(Error::Forked)));
            // SAFETY: no destructor runs.
            unsafe { libc::_exit(wrong.into()) };
        }
        let mut status = 0;
        // SAFETY: this test's child.
        unsafe { libc::waitpid(child, &mut status, 0) };
        assert_eq!(status, 0);
        gate.store(1, Ordering::SeqCst);
    });
    assert!(ended.iter().all(|(ended, _)| ended.is_ok()));
}

#[test]
fn what_a_session_waits_by_stays_when_it_is_opened_again_and_no_other_has_it() {
    let (one, driver) = alone(&Options { lanes: 1, ..Options::default() });
    let (other, _) = alone(&Options { lanes: 1, ..Options::default() });
    one.set_wait(AT_ONCE);
    one.close().unwrap();
    open(&one, driver, &Options { lanes: 1, ..Options::default() });
    // Measured by the CPU time of a wait that times out.
    let spent = |s: &Session| {
        let [gate, to, from] = [(); 3].map(|()| s.allocate(4096, false).unwrap());
        let copy = s.copy_in(&piece(to, from), &InOrder { word: Some((gate, 0, 1)), ..InOrder::default() }).unwrap();
        let before = cpu_time();
        assert!(s.wait(copy, Duration::from_millis(200)).is_err());
        let spent = cpu_time() - before;
        word(s, gate).store(1, Ordering::SeqCst);
        s.wait(copy, LIMIT).unwrap();
        spent
    };
    test_support::measured(|| {
        let (sleeps, spins) = (spent(&one), spent(&other));
        if sleeps < spins { Ok(()) } else { Err(format!("{sleeps:?} asleep, {spins:?} awake")) }
    });
}
