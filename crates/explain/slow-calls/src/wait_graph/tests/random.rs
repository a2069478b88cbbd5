//! Looks at random: processes, what threads wait for outside of their process, Python's lock, joins, ends and stopped processes.

use super::Hex;
use crate::wait_graph::now;
use proptest::prelude::*;
use proptest::sample::select;
use schema::now::Now;
use tape::call::{function, number};
use tape::live::*;
use tape::lock::{attr, op};

const STATES: [&str; 9] = [
    "",
    state::RUNNING,
    state::SLEEPING,
    state::SLEEPING,
    state::UNINTERRUPTIBLE,
    state::STOPPED,
    state::TRACED,
    state::ENDED,
    state::UNKNOWN,
];
const PIDS: [i32; 5] = [-1, 0, 7, 8, 9];
const TIDS: [i32; 8] = [-1, 0, 7, 8, 9, 71, 81, 91];

fn word() -> impl Strategy<Value = u64> {
    select(vec![0, 1, 2, 0x10, 0x20, 100, 2_000_000_000, u64::MAX])
}

fn place() -> impl Strategy<Value = LivePlace> {
    (0u64..2, word()).prop_map(|(inode, offset)| LivePlace {
        device: "00:01".into(),
        inode,
        offset,
        path: "/dev/shm/a".into(),
    })
}

fn other() -> impl Strategy<Value = LiveOther> {
    let hows = vec![how::READ, how::WRITE, how::BOTH, how::HOLDS, how::MAPS, how::CHILD, how::PEER, how::TRACES, ""];
    (select(&PIDS[..]), select(&STATES[..]), select(hows), prop::collection::vec(select(&TIDS[..]), 0..3)).prop_map(
        |(pid, state, how, tids)| LiveOther { pid, name: "o".into(), state: state.into(), how: how.into(), tids },
    )
}

fn on() -> impl Strategy<Value = LiveOn> {
    let kinds = vec![
        on::PIPE,
        on::SOCKET,
        on::FILE,
        on::FILE_LOCK,
        on::DEVICE,
        on::IOCTL,
        on::FUTEX,
        on::EVENTS,
        on::CHILD,
        on::SIGNAL,
        on::TIME,
        on::DESCRIPTOR,
        "",
    ];
    let barrier = (any::<u32>(), any::<u32>()).prop_map(|(arrived, count)| LiveBarrier { arrived, count });
    let futex = (
        prop::option::of(word()),
        prop::option::of(0u32..3),
        prop::option::of(0u32..3),
        prop::option::of(place()),
        prop::option::of(barrier),
    );
    (
        select(kinds),
        select(vec!["", "pipe:[1]", "/a"]),
        select(vec!["", how::READ, how::WRITE]),
        futex,
        prop::collection::vec(other(), 0..4),
        any::<bool>(),
    )
        .prop_map(|(kind, name, to, (address, value, expected, place, barrier), others, cut)| LiveOn {
            kind: kind.into(),
            name: name.into(),
            to: to.into(),
            address,
            value,
            expected,
            place,
            barrier,
            others,
            cut,
            ..LiveOn::default()
        })
}

fn hold() -> impl Strategy<Value = LiveHold> {
    let ops = vec![
        op::MUTEX_LOCK,
        op::RWLOCK_RDLOCK,
        op::RWLOCK_WRLOCK,
        op::COND_WAIT,
        op::COND_TIMEDWAIT,
        op::SEM_WAIT,
        0,
        255,
    ];
    (word(), select(ops), word(), any::<bool>()).prop_map(|(address, op, since, is_shared)| LiveHold {
        address,
        since,
        flags: u16::from(op) << 8 | if is_shared { u16::from(attr::SHARED) } else { 0 },
        ..LiveHold::default()
    })
}

fn call() -> impl Strategy<Value = LiveCall> {
    (
        select(vec![
            "cuStreamSynchronize",
            "cuEventSynchronize",
            "cuCtxSynchronize",
            "cuLaunchKernel",
            "cuMemcpyDtoH",
            "x",
        ]),
        word(),
        word(),
        word(),
    )
        .prop_map(|(function, began, stream, object)| LiveCall {
            function: function.into(),
            began,
            stream,
            object,
            ..LiveCall::default()
        })
}

fn thread() -> impl Strategy<Value = LiveThread> {
    let of = (
        select(&TIDS[..]),
        select(&STATES[..]),
        prop::option::of(select(vec!["futex", "read", "wait4", "ioctl", "pause"])),
        prop::option::of(select(&TIDS[..])),
    );
    let what = (
        prop::option::of(call()),
        prop::option::of(hold()),
        prop::collection::vec(hold(), 0..3),
        prop::option::weighted(0.1, word()),
    );
    (of, prop::collection::vec(on(), 0..3), what).prop_map(
        |((tid, state, system_call, joins), on, (call, waits, holds, host_function))| LiveThread {
            tid,
            name: "t".into(),
            state: state.into(),
            system_call: system_call.map(Into::into),
            sleeps: tid as u64 % 20,
            joins,
            on,
            call,
            waits,
            holds,
            host_function,
        },
    )
}

fn process() -> impl Strategy<Value = LiveProcess> {
    let names = vec![
        "cuLaunchKernel",
        "cuEventRecord",
        "cuStreamWaitEvent",
        "cuStreamWaitValue32",
        "cuStreamWriteValue32",
        "cuLaunchHostFunc",
    ];
    let work = (select(names), word(), word(), word(), word(), prop::option::of(word())).prop_map(
        |(f, tsc, object, value, how, there)| LiveWork {
            function: number(f),
            tsc,
            tid: 7,
            object,
            value,
            how,
            there,
            ..LiveWork::default()
        },
    );
    let stream = (word(), prop::collection::vec(work, 0..4), any::<bool>())
        .prop_map(|(stream, work, cut)| LiveStream { stream, work, cut });
    let share = (word(), word(), word(), 0u64..2).prop_map(|(begin, end, offset, inode)| LiveShared {
        begin,
        end,
        offset,
        device: "00:01".into(),
        inode,
        path: String::new(),
    });
    let gil = (word(), any::<bool>(), select(&TIDS[..]), 0u64..2)
        .prop_map(|(condition, is_locked, holder, switches)| LiveGil { condition, is_locked, holder, switches });
    let lock = (word(), select(&TIDS[..]), 0u32..3).prop_map(|(address, holder, readers)| LiveLock {
        address,
        holder,
        readers,
    });
    let pipe = select(vec![how::READ, how::WRITE, how::BOTH])
        .prop_map(|how| LivePipe { name: "pipe:[1]".into(), how: how.into() });
    let poll = (select(&TIDS[..]), word(), word(), word()).prop_map(|(tid, object, since, last)| LivePoll {
        tid,
        function: number("cuEventQuery"),
        object,
        since,
        last,
        ..LivePoll::default()
    });
    let end = any::<bool>().prop_map(|zombie| LiveEnd {
        how: "killed by signal 9".into(),
        signal: Some(9),
        zombie,
        ..LiveEnd::default()
    });
    let of = (
        select(&PIDS[..]),
        select(&PIDS[..]),
        select(&STATES[..]),
        any::<[bool; 3]>(),
        prop::option::of(end),
        prop::option::weighted(0.2, other()),
    );
    let lists = (
        prop::collection::vec(thread(), 0..6),
        prop::collection::vec(lock, 0..3),
        prop::collection::vec(stream, 0..3),
        prop::collection::vec(poll, 0..2),
        prop::collection::vec(share, 0..3),
        prop::collection::vec(pipe, 0..2),
        prop::collection::vec(gil, 0..2),
    );
    (of, lists).prop_map(
        |(
            (pid, parent, state, [unrecorded, paused, other_numbers], ended, tracer),
            (threads, locks, streams, polls, shares, pipes, python),
        )| {
            LiveProcess {
                pid,
                name: "p".into(),
                parent,
                state: state.into(),
                unrecorded,
                paused,
                other_numbers,
                ended,
                tracer,
                threads,
                locks,
                streams,
                polls,
                shares,
                pipes,
                python,
                ..LiveProcess::default()
            }
        },
    )
}

fn look() -> impl Strategy<Value = Live> {
    (word(), select(vec![0.0, 1e9, f64::NAN, -1.0]), any::<bool>(), prop::collection::vec(process(), 0..4))
        .prop_map(|(tsc, hz, cut, processes)| Live { tsc, hz, cut, processes })
}

/// As the recorder has it: only of a thread that sleeps it knows a system call, and what the thread waits for there.
fn honest(mut live: Live) -> Live {
    for t in live.processes.iter_mut().flat_map(|p| &mut p.threads) {
        if ![state::SLEEPING, state::UNINTERRUPTIBLE].contains(&t.state.as_str()) {
            (t.system_call, t.joins, t.host_function) = (None, None, None);
            t.on.clear();
        }
        t.joins = t.joins.filter(|tid| *tid > 0 && *tid != t.tid);
    }
    for p in &mut live.processes {
        let waits = |tid: i32| p.threads.iter().any(|t| t.tid == tid && t.waits.is_some());
        p.python.retain(|gil| !waits(gil.holder));
    }
    live
}

/// The threads of a cycle wait: none of them runs or has ended, and each is in both looks.
fn is_of_waiters(now: &Now, first: &Live, second: &Live) -> Result<(), TestCaseError> {
    let waits = |live: &Live, tid: i32| {
        let mut rows = live.processes.iter().flat_map(|p| p.threads.iter().map(move |t| (p, t)));
        rows.any(|(p, t)| {
            let is_python = t.waits.is_some_and(|w| p.python.iter().any(|gil| gil.condition == w.address));
            // (A thread may spin for a stream: in a call that waits for one, or between queries.)
            let in_call = t.call.as_ref().is_some_and(|call| function(number(&call.function)).is_some());
            let spins = t.state == state::RUNNING && (in_call || p.polls.iter().any(|poll| poll.tid == tid));
            t.tid == tid && (is_python || spins || ![state::RUNNING, state::ENDED].contains(&t.state.as_str()))
        })
    };
    for cycle in &now.cycles {
        prop_assert!(!cycle.text.is_empty() && !cycle.tids.is_empty() | !cycle.streams.is_empty(), "{:?}", cycle);
        for tid in &cycle.tids {
            prop_assert!(waits(first, *tid) && waits(second, *tid), "{}", cycle.text);
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Whatever a recorder answers: no panic, an end, and an answer.
    #[test]
    fn any_two_looks(first in look(), second in look()) {
        let now = now(&first, &second, Vec::new(), &Hex);
        prop_assert!(!now.answer.is_empty());
    }

    /// The same, twice, so that all that can be an edge is one. Afterwards each thread runs: then no thread is in a cycle.
    #[test]
    fn a_look_twice(second in look().prop_map(honest)) {
        let first = Live { tsc: second.tsc.saturating_sub(100), ..second.clone() };
        let found = now(&first, &second, Vec::new(), &Hex);
        is_of_waiters(&found, &first, &second)?;
        let mut later = second.clone();
        later.processes.iter_mut().flat_map(|p| &mut p.threads).for_each(|t| t.state = state::RUNNING.into());
        // (A thread that waits for Python's lock runs for a moment every 5 ms.)
        later.processes.iter_mut().for_each(|p| p.python.clear());
        let later = honest(later);
        let found = now(&first, &later, Vec::new(), &Hex);
        prop_assert!(found.cycles.iter().all(|c| c.tids.is_empty()), "{:?}", found.cycles);
    }

    /// An answer's JSON with any change of one of its bytes is read or refused.
    #[test]
    fn a_damaged_answer(live in look(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut text = serde_json::to_vec(&Live { hz: 1e9, ..live }).unwrap();
        let at = at.index(text.len());
        text[at] = byte;
        if let Ok(read) = serde_json::from_slice::<Live>(&text) {
            now(&read, &read, Vec::new(), &Hex);
        }
    }
}
