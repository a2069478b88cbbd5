//! How loops end: stopped in each state, or by an event of the session, the channel, the memory or the process.

mod rig;

use frame_loop::{Class, Error, Loop, LoopOptions, Pace, Producer, Reason, Scheduling, Stamp, State, Waiting};
use rig::{LIMIT, input, program, until};
use std::sync::Arc;
use std::time::{Duration, Instant};
use submit::Session;

const SOON: Duration = Duration::from_secs(2);

fn started(rig: &rig::Rig, options: LoopOptions) -> Loop {
    Loop::start(rig.session.clone(), options).unwrap()
}

fn stopped(running: &Loop, what: &str) {
    let start = Instant::now();
    let status = running.stop();
    assert_eq!((status.state, status.reason), (State::Ended, Reason::Asked), "{what}");
    assert!(start.elapsed() < SOON, "{what}: {:?}", start.elapsed());
    assert_eq!(running.stop(), status, "{what}: once more");
}

#[test]
fn a_loop_is_stopped_at_once_whatever_it_waits_for() {
    if !program::inside("a_loop_is_stopped_at_once_whatever_it_waits_for") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let hour = chain.options(Pace::Period(Duration::from_secs(3600)));
    stopped(&started(&rig, hour.clone()), "a tick in an hour");
    stopped(&started(&rig, LoopOptions { spin: Duration::MAX, ..hour }), "a tick for which it spins");
    stopped(&started(&rig, chain.options(Pace::Frames)), "an input");
    let spins = LoopOptions { spin: Duration::MAX, ..chain.options(Pace::Frames) };
    stopped(&started(&rig, spins), "an input for which it spins");
    drop(started(&rig, chain.options(Pace::Frames)));
    let held = rig.held();
    for waiting in [Waiting::Nap, Waiting::Spin] {
        let gate = rig.close_gate(held);
        let running = started(&rig, LoopOptions { waiting, ..chain.options(Pace::Frames) });
        let mut producer = running.producer().unwrap();
        producer.put(&input(1), Stamp::default()).unwrap();
        until("a launch", || !is_taken(&running, 0));
        std::thread::sleep(Duration::from_millis(20));
        stopped(&running, "a result");
        assert_eq!(running.statistics().abandoned, 1);
        assert!(matches!(producer.slot(), Err(Error::Ended(Reason::Asked))));
        gate.open();
        // The chain may be launched again after the loop's end.
        let copy = rig.session.launch(chain.graph).unwrap();
        rig.session.wait(copy, LIMIT).unwrap();
    }
    // By several threads together, and while frames run.
    let running = started(&rig, chain.options(Pace::Frames));
    let mut producer = running.producer().unwrap();
    (0..4).for_each(|n| assert!(producer.put(&input(n), Stamp::default()).is_ok()));
    std::thread::scope(|scope| (0..3).for_each(|_| drop(scope.spawn(|| stopped(&running, "by three")))));
}

/// Waits for a frame with a result. (If the thread has no CPU for a whole period, an input is refused, so there are
/// several.)
fn a_frame(running: &Loop, producer: &mut Producer) {
    until("a frame", || {
        let _ = producer.put(&input(1), Stamp::default());
        running.statistics().frames > 0
    });
}

/// Whether exactly this many inputs were taken.
fn is_taken(running: &Loop, count: u64) -> bool {
    let (memory, _) = running.memory();
    // SAFETY: the header, as in the layout.
    let header = unsafe { memory.cast::<frame_loop::layout::Header>().as_ref() };
    header.progress.taken.load(std::sync::atomic::Ordering::SeqCst) == count
}

#[test]
fn a_result_that_does_not_come_ends_the_loop() {
    if !program::inside("a_result_that_does_not_come_ends_the_loop") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let held = rig.held();
    let gate = rig.close_gate(held);
    let running = started(&rig, LoopOptions { limit: Duration::from_millis(50), ..chain.options(Pace::Frames) });
    running.producer().unwrap().put(&input(1), Stamp::default()).unwrap();
    until("the end", || running.status().state == State::Ended);
    assert_eq!((running.status().reason, running.statistics().abandoned), (Reason::Timeout, 1));
    assert!(running.why().is_some_and(|why| why.contains("within the loop's limit")), "{:?}", running.why());
    gate.open();
}

#[test]
fn a_killed_channel_ends_the_loop_with_its_error() {
    if !program::inside("a_killed_channel_ends_the_loop_with_its_error") {
        return;
    }
    let rig = rig::rig();
    let (chain, other) = (rig.chain(), rig.chain());
    let running = started(&rig, chain.options(Pace::Period(Duration::from_millis(1))));
    let waits = started(&rig, LoopOptions { input: Some(other.input), ..other.options(Pace::Frames) });
    let mut producer = running.producer().unwrap();
    let results = running.results().unwrap();
    a_frame(&running, &mut producer);
    // Its kernel stores to an unmapped address.
    let nowhere = 0x1234_5678_9000u64.to_le_bytes();
    until("a parameter", || rig.session.set_parameter(chain.graph, 1, 0, &nowhere).is_ok());
    until("the end", || {
        let _ = producer.put(&input(2), Stamp::default());
        running.status().state == State::Ended
    });
    let status = running.status();
    assert!(status.reason == Reason::Killed && status.code != 0, "{status:?}");
    assert!(running.why().is_some_and(|why| why.contains("killed by error")), "{:?}", running.why());
    assert!(results.wait(LIMIT), "the end is signalled");
    assert_eq!(running.stop(), status);
    // The other loop gets the error when it launches.
    waits.producer().unwrap().put(&input(1), Stamp::default()).unwrap();
    until("the other's end", || waits.status().state == State::Ended);
    assert_eq!(waits.status().reason, Reason::Killed);
}

#[test]
fn memory_that_goes_a_chain_that_is_released_and_a_session_that_is_closed_end_their_loops() {
    if !program::inside("memory_that_goes_a_chain_that_is_released_and_a_session_that_is_closed_end_their_loops") {
        return;
    }
    let rig = rig::rig();
    let pace = Pace::Period(Duration::from_millis(1));
    let ends = |running: &Loop, reason: Reason| {
        let mut producer = running.producer().unwrap();
        until("the end", || {
            let _ = producer.put(&input(1), Stamp::default());
            running.status().state == State::Ended
        });
        assert_eq!(running.status().reason, reason);
    };
    // Memory that the chain's copies name.
    let cudas = cuda::DeviceBuffer::new(rig.context, 8192).unwrap();
    let video = rig.session.pin(cudas.address(), 8192).unwrap();
    let chain = rig.chain_in(video);
    let running = started(&rig, chain.options(pace));
    a_frame(&running, &mut running.producer().unwrap());
    drop(cudas);
    ends(&running, Reason::Freed);
    // The chain.
    let chain = rig.chain();
    let running = started(&rig, chain.options(pace));
    rig.session.graph_release(chain.graph).unwrap();
    ends(&running, Reason::Handle);
    // The buffers of a chain, which stay for it and for the loop.
    let chain = rig.chain();
    let running = started(&rig, chain.options(pace));
    rig.session.unpin(chain.input.buffer).unwrap();
    let mut producer = running.producer().unwrap();
    until("frames or an end", || {
        let _ = producer.put(&input(1), Stamp::default());
        running.statistics().frames > 10 || running.status().reason == Reason::Freed
    });
    drop((running, producer));
    // The session; no call uses it before.
    let chain = rig.chain();
    let running = started(&rig, chain.options(pace));
    a_frame(&running, &mut running.producer().unwrap());
    rig.session.close().unwrap();
    ends(&running, Reason::Closed);
    // Opened again, the session does not have the loop's objects.
    rig.session.open(&rig::options()).unwrap();
    assert!(matches!(Loop::start(rig.session.clone(), chain.options(pace)), Err(Error::Session(_))));
    drop(running);
    rig.session.close().unwrap();
}

#[test]
fn a_session_that_is_closed_under_loops_ends_them_and_nothing_worse() {
    if !program::inside("a_session_that_is_closed_under_loops_ends_them_and_nothing_worse") {
        return;
    }
    let rig = rig::rig();
    for round in 0..5 {
        let chain = rig.chain();
        let running = started(&rig, chain.options(Pace::Frames));
        let mut producer = running.producer().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || while !matches!(producer.put(&input(1), Stamp::default()), Err(Error::Ended(_))) {});
            until("frames", || running.statistics().frames > 20 * round);
            rig.session.close().unwrap();
            until("the end", || running.status().state == State::Ended);
        });
        assert_eq!(running.status().reason, Reason::Closed);
        rig.session.open(&rig::options()).unwrap();
    }
}

#[test]
fn a_forks_child_has_no_loop_and_waits_for_nothing() {
    if !program::inside("a_forks_child_has_no_loop_and_waits_for_nothing") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let running = started(&rig, chain.options(Pace::Frames));
    let (mut producer, mut results) = (running.producer().unwrap(), running.results().unwrap());
    producer.put(&input(1), Stamp::default()).unwrap();
    until("a frame", || running.statistics().frames == 1);
    // SAFETY: the child makes no call that takes a lock, and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let child = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let is_forked =
                |status: frame_loop::Status| status.state == State::Ended && status.reason == Reason::Forked;
            let all = [
                is_forked(running.status()),
                matches!(producer.put(&input(1), Stamp::default()), Err(Error::Forked)),
                matches!(results.next(&mut []), Err(Error::Forked)),
                is_forked(running.stop()),
            ];
            running.wake();
            drop((producer, results, running));
            all.iter().position(|right| !right).map_or(0, |at| at as i32 + 1)
        }));
        // SAFETY: no destructor runs.
        unsafe { libc::_exit(child.unwrap_or(99)) };
    }
    let mut status = 0;
    let mut ended = 0;
    until("the child's end", || {
        // SAFETY: this test's child.
        ended = unsafe { libc::waitpid(child, &mut status, libc::WNOHANG) };
        ended == child
    });
    assert_eq!(status, 0, "which call");
    producer.put(&input(2), Stamp::default()).unwrap();
    until("a frame more", || running.statistics().frames == 2);
    stopped(&running, "the parent's");
}

#[test]
fn other_threads_leave_the_cpu_of_a_loop_that_is_alone() {
    if !program::inside("other_threads_leave_the_cpu_of_a_loop_that_is_alone") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let with = |scheduling| LoopOptions { scheduling, ..chain.options(Pace::Frames) };
    let nowhere = Scheduling { alone: true, ..Scheduling::default() };
    assert!(matches!(Loop::start(rig.session.clone(), with(nowhere)), Err(Error::Argument(_))));
    let all = environment::placement::affinity().unwrap();
    let cpu = all.last().copied();
    let running = started(&rig, with(Scheduling { cpu, alone: true, ..Scheduling::default() }));
    if all.len() == 1 {
        assert!(running.refused().iter().any(|why| why.contains("no other CPU")), "{:?}", running.refused());
        return;
    }
    assert_eq!(running.refused(), [] as [String; 0]);
    let others = &all[..all.len() - 1];
    assert_eq!(environment::placement::affinity().unwrap(), others);
    assert_eq!(
        std::thread::spawn(|| environment::placement::affinity().unwrap()).join().unwrap(),
        others,
        "one that is started later"
    );
    let status = std::fs::read_to_string(format!("/proc/self/task/{}/status", running.thread_id())).unwrap();
    let allowed = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap().trim();
    assert_eq!(allowed.parse().ok(), cpu);
    drop(running);
    assert_eq!(environment::placement::affinity().unwrap(), all);
}

#[test]
fn what_the_kernel_refuses_is_named_and_an_error_only_where_it_is_required() {
    if !program::inside("what_the_kernel_refuses_is_named_and_an_error_only_where_it_is_required") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let with = |scheduling| LoopOptions { scheduling, ..chain.options(Pace::Frames) };
    let never = Scheduling { cpu: Some(1_000_000), class: Class::Fifo(1000), ..Scheduling::default() };
    let running = started(&rig, with(never.clone()));
    let refused = running.refused();
    assert!(
        refused.len() == 2 && refused[0].contains("CPU 1000000") && refused[1].contains("SCHED_FIFO"),
        "{refused:?}"
    );
    running.producer().unwrap().put(&input(1), Stamp::default()).unwrap();
    until("a frame", || running.statistics().frames == 1);
    let error = Loop::start(rig.session.clone(), with(Scheduling { required: true, ..never })).unwrap_err();
    assert!(matches!(&error, Error::Refused(all) if all.len() == 2), "{error}");
    // The thread has what this machine grants, and refused requests are named.
    let second = Duration::from_secs(1);
    let deadline = Class::Deadline { runtime: second / 100, deadline: second / 10, period: second / 10 };
    for (class, policy) in [(Class::Fifo(1), libc::SCHED_FIFO), (deadline, libc::SCHED_DEADLINE)] {
        let scheduling = Scheduling { class, lock_memory: true, ..Scheduling::default() };
        let running = started(&rig, LoopOptions { name: "a-loop".into(), ..with(scheduling) });
        // SAFETY: takes numbers.
        let given = unsafe { libc::sched_getscheduler(running.thread_id()) } & !libc::SCHED_RESET_ON_FORK;
        let is_refused = running.refused().iter().any(|why| why.contains("SCHED_"));
        assert_eq!(given == policy, !is_refused, "{:?}", running.refused());
        let task = format!("/proc/self/task/{}", running.thread_id());
        assert_eq!(std::fs::read_to_string(format!("{task}/comm")).unwrap(), "a-loop\n");
        let status = std::fs::read_to_string(format!("{task}/status")).unwrap();
        let blocked = status.lines().find_map(|line| line.strip_prefix("SigBlk:")).unwrap().trim();
        let blocked = u64::from_str_radix(blocked, 16).unwrap();
        let is_blocked = |signal: i32| blocked >> (signal - 1) & 1 == 1;
        assert!(is_blocked(libc::SIGTERM) && is_blocked(libc::SIGUSR1) && !is_blocked(libc::SIGSEGV));
        running.producer().unwrap().put(&input(1), Stamp::default()).unwrap();
        until("a frame", || running.statistics().frames == 1);
    }
}

/// The thread is never the session's last owner.
#[test]
fn a_loop_keeps_its_session_until_it_is_dropped() {
    if !program::inside("a_loop_keeps_its_session_until_it_is_dropped") {
        return;
    }
    let rig = rig::rig();
    let chain = rig.chain();
    let running = started(&rig, chain.options(Pace::Frames));
    let weak: std::sync::Weak<Session> = Arc::downgrade(&rig.session);
    let mut producer = running.producer().unwrap();
    drop(rig);
    producer.put(&input(1), Stamp::default()).unwrap();
    until("a frame", || running.statistics().frames == 1);
    stopped(&running, "with the last session");
    assert!(weak.upgrade().is_some());
    drop(running);
    assert!(weak.upgrade().is_none());
}
