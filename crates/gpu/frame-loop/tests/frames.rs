//! Frames of a loop: their results, the rules for late ones, and both ends of the rings. Next to a libcuda in software.

mod rig;

use frame_loop::{
    Error, Full, Late, Loop, LoopOptions, Outcome, Pace, Producer, Reason, Results, Stamp, State, Take, Waiting,
};
use rig::{BYTES, Chain, LIMIT, input, is_right, program, until};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use submit::Way;

const TICK: Duration = Duration::from_millis(5);

fn started(rig: &rig::Rig, options: LoopOptions) -> Loop {
    Loop::start(rig.session.clone(), options).unwrap()
}

fn stamp(sequence: u64) -> Stamp {
    Stamp { sequence, tag: !sequence, deadline: 0 }
}

/// Commits as soon as there is room.
fn put(producer: &mut Producer, number: u32, stamp: Stamp) {
    while let Err(error) = producer.put(&input(number), stamp) {
        assert!(matches!(error, Error::Full), "{error}");
        std::thread::sleep(Duration::from_micros(50));
    }
}

/// Waits for the next result.
fn next(results: &mut Results) -> (Outcome, [u8; BYTES as usize]) {
    let mut bytes = [0; BYTES as usize];
    loop {
        if let Some(outcome) = results.next(&mut bytes).unwrap() {
            return (outcome, bytes);
        }
        assert!(results.wait(LIMIT), "no result");
    }
}

#[test]
fn ten_thousand_frames_as_they_come_have_their_own_results() {
    let name = "ten_thousand_frames_as_they_come_have_their_own_results";
    if !program::inside_for(name, Duration::from_secs(300)) {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let running = started(&rig, LoopOptions { results: 16_384, ..chain.options(Pace::Frames) });
    let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
    assert!(running.producer().is_none() && running.results().is_none(), "one of each");
    std::thread::scope(|scope| {
        scope.spawn(move || (0..10_000).for_each(|n| put(&mut producer, n, stamp(u64::from(n) + 7))));
        for n in 0..10_000u32 {
            let (outcome, bytes) = next(&mut results);
            assert!(is_right(&bytes, n), "{n}: {bytes:?}");
            let sequence = u64::from(n) + 7;
            assert_eq!((outcome.frame, outcome.sequence, outcome.tag), (n.into(), sequence, !sequence));
            let Outcome { due, time_in, launched, done, .. } = outcome;
            assert!(due == time_in && time_in <= launched && launched <= done, "{outcome:?}");
            assert_eq!((outcome.skipped, outcome.deadline, outcome.late, outcome.refused), (0, 0, false, false));
        }
    });
    let seen = running.statistics();
    assert_eq!((seen.frames, seen.missed, seen.late, seen.skipped, seen.overruns), (10_000, 0, 0, 0, 0));
    assert_eq!((seen.done.count, results.lost()), (10_000, 0));
    let [p50, p99, p999] = [50.0, 99.0, 99.9].map(|percent| seen.done.percentile(percent));
    assert!(0 < p50 && p50 <= p99 && p99 <= p999 && p999 <= seen.done.max);
    let ended = running.stop();
    assert_eq!((ended.state, ended.reason), (State::Ended, Reason::Asked));
}

#[test]
fn a_loop_with_a_period_launches_once_each_tick() {
    if !program::inside("a_loop_with_a_period_launches_once_each_tick") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    for waiting in [Waiting::Nap, Waiting::Spin] {
        let options =
            LoopOptions { waiting, late: Late::CatchUp, spin: Duration::ZERO, ..chain.options(Pace::Period(TICK)) };
        let running = started(&rig, options);
        let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
        let mut before = None;
        (0..6).for_each(|n| put(&mut producer, n, stamp(n.into())));
        for n in 0..40u32 {
            let (outcome, bytes) = next(&mut results);
            assert!(is_right(&bytes, n), "{n}");
            put(&mut producer, n + 6, stamp(u64::from(n) + 6));
            let (frame, due) = before.unwrap_or((outcome.frame, outcome.due));
            assert_eq!(outcome.due - due, (outcome.frame - frame) * TICK.as_nanos() as u64, "{outcome:?}");
            assert!(outcome.launched >= outcome.due && outcome.deadline == outcome.due + TICK.as_nanos() as u64);
            assert_eq!(outcome.late, outcome.done > outcome.deadline);
            before = Some((outcome.frame, outcome.due));
        }
        running.stop();
        let seen = running.statistics();
        assert!(seen.missed == 0 && seen.wake.count > 0 && seen.frames >= 40, "{seen:?}");
    }
}

/// A loop with a period whose fourth frame is delayed by twenty ticks. Its results have their sequences in order.
fn held_up(rig: &rig::Rig, chain: &Chain, late: Late) -> (Vec<Outcome>, frame_loop::Statistics) {
    let held = rig.held();
    let options = LoopOptions { late, slots: 64, results: 256, ..chain.options(Pace::Period(TICK)) };
    let running = started(rig, options);
    let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
    let over = AtomicBool::new(false);
    let mut all = Vec::new();
    std::thread::scope(|scope| {
        let over = &over;
        // One input for each tick, by another clock.
        scope.spawn(move || {
            let mut number = 0u32;
            while !over.load(Ordering::SeqCst) {
                let put = producer.put(&input(number), stamp(number.into()));
                number += u32::from(put.is_ok());
                std::thread::sleep(TICK);
            }
        });
        let mut gate = None;
        let mut after = 0;
        while after < 30 {
            let (outcome, bytes) = next(&mut results);
            assert!(outcome.refused || is_right(&bytes, outcome.sequence as u32), "{outcome:?}");
            all.push(outcome);
            after += usize::from(gate.is_some());
            if all.len() == 4 {
                gate = Some(());
                let gate = rig.close_gate(held);
                std::thread::sleep(20 * TICK);
                gate.open();
            }
        }
        over.store(true, Ordering::SeqCst);
    });
    running.stop();
    (all, running.statistics())
}

#[test]
fn frames_whose_tick_has_passed_are_missed_caught_up_or_the_newest_is_taken() {
    if !program::inside("frames_whose_tick_has_passed_are_missed_caught_up_or_the_newest_is_taken") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let (all, seen) = held_up(&rig, &chain, Late::Skip);
    assert!(seen.missed >= 15 && seen.skipped >= 3 && seen.late >= 1, "{seen:?}");
    // (A thread may lose its CPU between its last look at the clock and the launch.)
    let after = all.iter().filter(|one| one.launched >= one.due + TICK.as_nanos() as u64).count();
    assert!(after <= all.len() / 4, "{after} of {} were begun after their time", all.len());
    let skipped: u64 = all.iter().map(|one| one.skipped).sum();
    assert!(
        skipped <= seen.skipped && all.windows(2).all(|two| two[1].sequence == two[0].sequence + 1 + two[1].skipped)
    );

    let (all, seen) = held_up(&rig, &chain, Late::CatchUp);
    assert_eq!((seen.missed, seen.skipped), (0, 0));
    assert!(all.windows(2).all(|two| two[1].sequence == two[0].sequence + 1 && two[1].frame > two[0].frame));
    assert!(all.iter().filter(|one| one.late).count() >= 3, "{seen:?}");

    let (all, seen) = held_up(&rig, &chain, Late::Latest);
    assert!(seen.missed >= 15 && seen.skipped >= 3, "{seen:?}");
    let most = all.iter().map(|one| one.skipped).max().unwrap();
    assert!(most >= 3, "the newest of those that have come meanwhile: {most}");
}

#[test]
fn an_input_whose_deadline_has_passed_is_refused_or_done_late() {
    if !program::inside("an_input_whose_deadline_has_passed_is_refused_or_done_late") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    for late in [Late::Skip, Late::CatchUp] {
        let running = started(&rig, LoopOptions { late, ..chain.options(Pace::Frames) });
        let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
        let passed = frame_loop::now() - 1;
        put(&mut producer, 1, Stamp { sequence: 1, deadline: passed, tag: 0 });
        let (outcome, bytes) = next(&mut results);
        assert_eq!((outcome.sequence, outcome.deadline, outcome.refused), (1, passed, late == Late::Skip));
        assert_eq!(outcome.late, late == Late::CatchUp);
        assert!(outcome.refused || is_right(&bytes, 1));
        let far = frame_loop::now() + LIMIT.as_nanos() as u64;
        put(&mut producer, 2, Stamp { sequence: 2, deadline: far, tag: 0 });
        let (outcome, bytes) = next(&mut results);
        assert!(is_right(&bytes, 2) && !outcome.late && !outcome.refused);
        running.stop();
        let seen = running.statistics();
        let wanted = if late == Late::Skip { (1, 1, 0) } else { (2, 0, 1) };
        assert_eq!((seen.frames, seen.skipped, seen.late), wanted);
    }
}

#[test]
fn a_producer_that_is_slow_or_quick_is_counted() {
    if !program::inside("a_producer_that_is_slow_or_quick_is_counted") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    // A slow producer: ticks without an input.
    let running = started(&rig, chain.options(Pace::Period(TICK)));
    until("ticks that starve", || running.statistics().starved >= 5);
    assert_eq!(
        (running.statistics().frames, running.statistics().missed + running.statistics().starved >= 5),
        (0, true)
    );
    drop(running);
    // A quick producer, in order: there is no more room.
    let held = rig.held();
    let gate = rig.close_gate(held);
    let running = started(&rig, chain.options(Pace::Frames));
    let mut producer = running.producer().unwrap();
    put(&mut producer, 0, stamp(0));
    until("the first input taken", || {
        let (memory, _) = running.memory();
        // SAFETY: the header, as the layout says.
        unsafe { memory.cast::<frame_loop::layout::Header>().as_ref() }.progress.taken.load(Ordering::SeqCst) == 1
    });
    (1..9).for_each(|n| put(&mut producer, n, stamp(n.into())));
    assert!(matches!(producer.put(&input(9), stamp(9)), Err(Error::Full)));
    gate.open();
    put(&mut producer, 9, stamp(9));
    until("all", || running.statistics().frames == 10);
    assert_eq!(running.statistics().skipped, 0);
    drop((running, producer));
    // A quick producer, with the newest taken: there is room, and each result is of one whole input.
    for slots in [2, 8] {
        let options = LoopOptions { take: Take::Newest, slots, results: 4096, ..chain.options(Pace::Frames) };
        let running = started(&rig, options);
        let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
        let (mut number, mut last) = (0u32, None);
        while running.statistics().frames < 200 {
            std::thread::sleep(Duration::from_micros(200));
            for _ in 0..50 {
                // (A put fails while the loop reads the only other slot of two.)
                if producer.put(&input(number), stamp(number.into())).is_ok() {
                    number += 1;
                }
            }
        }
        let mut skipped = 0;
        let mut bytes = [0; BYTES as usize];
        while let Some(outcome) = results.next(&mut bytes).unwrap() {
            assert!(is_right(&bytes, outcome.sequence as u32), "{outcome:?}, {bytes:?}");
            assert!(last < Some(outcome.sequence));
            last = Some(outcome.sequence);
            skipped += outcome.skipped;
        }
        assert!(skipped > 0 && running.statistics().skipped >= skipped);
    }
}

#[test]
fn results_that_nobody_reads_are_written_over_or_end_the_loop() {
    if !program::inside("results_that_nobody_reads_are_written_over_or_end_the_loop") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let running = started(&rig, LoopOptions { results: 4, ..chain.options(Pace::Frames) });
    let mut producer = running.producer().unwrap();
    (0..10).for_each(|n| put(&mut producer, n, stamp(n.into())));
    until("ten frames", || running.statistics().frames == 10);
    until("six overruns", || running.statistics().overruns == 6);
    let mut results = running.results().unwrap();
    let left: Vec<u64> = (0..4).map(|_| next(&mut results).0.sequence).collect();
    assert_eq!((left, results.lost()), (vec![6, 7, 8, 9], 6));
    drop((running, producer, results));

    let running = started(&rig, LoopOptions { results: 4, full: Full::Stop, ..chain.options(Pace::Frames) });
    let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
    (0..4).for_each(|n| put(&mut producer, n, stamp(n.into())));
    until("four frames", || running.statistics().frames == 4);
    assert_eq!(next(&mut results).0.sequence, 0);
    (4..6).for_each(|n| put(&mut producer, n, stamp(n.into())));
    until("the end", || running.status().state == State::Ended);
    assert_eq!((running.status().reason, running.statistics().overruns), (Reason::Unread, 0));
    let left: Vec<u64> = (0..4).map(|_| next(&mut results).0.sequence).collect();
    assert_eq!((left, results.lost()), (vec![1, 2, 3, 4], 0));
    assert!(matches!(producer.slot(), Err(Error::Ended(Reason::Unread))));
}

#[test]
fn each_so_many_results_are_signalled_and_so_is_the_end() {
    if !program::inside("each_so_many_results_are_signalled_and_so_is_the_end") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let running = started(&rig, LoopOptions { signal_each: 3, ..chain.options(Pace::Frames) });
    let mut producer = running.producer().unwrap();
    let count = || {
        let mut count = 0u64;
        // SAFETY: writes eight bytes.
        let read = unsafe { libc::read(running.event_fd(), (&raw mut count).cast(), 8) };
        if read == 8 { count } else { 0 }
    };
    (0..7).for_each(|n| put(&mut producer, n, stamp(n.into())));
    let mut all = 0;
    until("seven frames", || running.statistics().frames == 7);
    until("two signals", || {
        all += count();
        all == 2
    });
    running.stop();
    assert_eq!(count(), 1, "the end");
}

/// A program that has only the addresses, as in C or numpy.
#[test]
fn a_producer_and_a_consumer_may_use_the_memory_as_it_is() {
    if !program::inside("a_producer_and_a_consumer_may_use_the_memory_as_it_is") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let running = started(&rig, LoopOptions { slots: 4, results: 8, ..chain.options(Pace::Frames) });
    let (base, bytes) = running.memory();
    let base = base.as_ptr() as usize;
    let word = |at: u64| {
        assert!(at + 8 <= bytes as u64);
        // SAFETY: within the loop's memory, and aligned.
        unsafe { AtomicU64::from_ptr((base + at as usize) as *mut u64) }
    };
    let half = |at: u64| {
        // SAFETY: as above.
        unsafe { AtomicU32::from_ptr((base + at as usize) as *mut u32) }
    };
    let of = |at: u64| word(at).load(Ordering::SeqCst);
    assert_eq!((of(0).to_le_bytes(), half(8).load(Ordering::SeqCst)), (*b"DBLOOP01", 1));
    assert_eq!((half(24).load(Ordering::SeqCst), half(28).load(Ordering::SeqCst), of(16)), (4, 8, bytes as u64));
    let [input_at, input_stride, input_bytes, result_at, result_stride, result_bytes] =
        [32, 40, 48, 56, 64, 72].map(of);
    assert_eq!((input_bytes, result_bytes), (BYTES, BYTES));
    let (committed, read, taken, published, sleeps) = (128, 256, 384, 400, 408);
    for n in 0..50u64 {
        until("room", || n - of(taken) < 4);
        let slot = input_at + n % 4 * input_stride;
        word(slot).store(n + 100, Ordering::Relaxed);
        (0..16).for_each(|at| half(slot + 64 + 4 * at).store(n as u32, Ordering::Relaxed));
        word(committed).store(n + 1, Ordering::SeqCst);
        if half(sleeps).load(Ordering::SeqCst) != 0 {
            running.wake();
        }
        until("its result", || of(published) > n);
        let slot = result_at + n % 8 * result_stride;
        assert_eq!((of(slot), of(slot + 8), of(slot + 16)), (2 * n + 2, n, n + 100));
        assert_eq!(half(slot + 128).load(Ordering::Relaxed), n as u32 + 1);
        word(read).store(n + 1, Ordering::SeqCst);
    }
    assert_eq!((of(512), running.statistics().frames), (50, 50));
    // A wrong number moves no address and does not end the loop.
    word(committed).store(1 << 40, Ordering::SeqCst);
    running.wake();
    until("a frame more", || running.statistics().frames >= 51);
    word(committed).store(3, Ordering::SeqCst);
    running.stop();
    word(read).store(1 << 50, Ordering::SeqCst);
    assert_eq!(running.results().unwrap().next(&mut []).unwrap(), None);
    drop(running);
    let running = started(&rig, LoopOptions { take: Take::Newest, ..chain.options(Pace::Frames) });
    let (base, _) = running.memory();
    // SAFETY: the header, as the layout says.
    let header = unsafe { base.cast::<frame_loop::layout::Header>().as_ref() };
    for (number, frames) in [(u64::MAX - 5, 1), (u64::MAX, 2), (7, 2), (0, 2)] {
        header.source.committed.store(number, Ordering::SeqCst);
        running.wake();
        until("as many frames", || running.statistics().frames == frames);
    }
    let ended = running.stop();
    assert_eq!(ended.reason, Reason::Asked);
}

/// One form has its bytes in the command stream, another has them stored by the CPU; copies may have a separate channel.
#[test]
fn every_form_of_a_chain_may_be_a_loops() {
    if !program::inside("every_form_of_a_chain_may_be_a_loops") {
        return;
    }
    let rig = rig::rig();
    for by in [Way::Inline, Way::CopyEngine, Way::Stores] {
        for beside in [false, true] {
            let video = rig.session.allocate(8192, true).unwrap();
            let chain = rig.chain_by(video, by, beside);
            let running = started(&rig, chain.options(Pace::Frames));
            let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
            for n in 0..100 {
                put(&mut producer, n, stamp(n.into()));
                let (_, bytes) = next(&mut results);
                assert!(is_right(&bytes, n), "{by:?}, {beside}: {n}");
            }
            let ended = running.stop();
            assert_eq!((ended.reason, running.statistics().frames), (Reason::Asked, 100));
        }
    }
}

#[test]
fn two_loops_and_a_thread_launch_on_one_session() {
    if !program::inside("two_loops_and_a_thread_launch_on_one_session") {
        return;
    }
    let rig = rig::rig();
    let chains = [rig.chain(), rig.chain()];
    let other = rig.held();
    let loops = [0, 1].map(|at| {
        let name = format!("loop-{at}");
        started(&rig, LoopOptions { name, results: 4096, ..chains[at].options(Pace::Frames) })
    });
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let all: Vec<_> = loops
            .iter()
            .map(|running| {
                scope.spawn(|| {
                    let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
                    for n in 0..500 {
                        put(&mut producer, n, stamp(n.into()));
                        let (_, bytes) = next(&mut results);
                        assert!(is_right(&bytes, n), "{n}");
                    }
                })
            })
            .collect();
        scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                if let Ok(copy) = rig.session.launch(other) {
                    until("its end", || rig.session.poll(copy).unwrap());
                }
                std::thread::sleep(Duration::from_micros(100));
            }
        });
        let ended: Vec<_> = all.into_iter().map(|one| one.join()).collect();
        over.store(true, Ordering::SeqCst);
        ended.into_iter().for_each(|one| one.unwrap());
    });
    for running in &loops {
        assert_eq!((running.statistics().frames, running.status().state), (500, State::Runs));
    }
}

#[test]
fn a_loop_may_have_neither_inputs_nor_outputs() {
    if !program::inside("a_loop_may_have_neither_inputs_nor_outputs") {
        return;
    }
    let rig = rig::rig();
    let graph = rig.held();
    let pace = Pace::Period(Duration::from_millis(1));
    let running = started(&rig, LoopOptions::new(graph, pace));
    let mut results = running.results().unwrap();
    let (first, second) = (next(&mut results).0, next(&mut results).0);
    assert!(second.frame > first.frame && first.sequence == 0);
    until("more of them", || running.statistics().frames > 20);
    let wrong = [
        LoopOptions::new(graph, Pace::Frames),
        LoopOptions::new(graph, Pace::Period(Duration::from_nanos(1))),
        LoopOptions { slots: 1, ..LoopOptions::new(graph, pace) },
        LoopOptions { name: "a name of a thread that is long".into(), ..LoopOptions::new(graph, pace) },
    ];
    for options in wrong {
        assert!(matches!(Loop::start(rig.session.clone(), options), Err(Error::Argument(_))));
    }
    let none = LoopOptions::new(submit::Graph::from_raw(7), pace);
    let refused = Loop::start(rig.session.clone(), none);
    assert!(matches!(refused, Err(Error::Session(submit::Error::Handle(_)))), "{refused:?}");
}
