//! Looks made by hand, and at random.

mod random;

use super::*;
use proptest::prelude::*;
use tape::call::number;
use tape::live::{
    LiveCall, LiveHold, LiveLock, LivePoll, LiveProcess, LiveShared, LiveSignal, LiveStream, LiveThread, LiveWork,
};
use tape::lock::op;

struct Hex;

impl Names for Hex {
    fn variable(&self, _: i32, address: u64) -> Option<String> {
        Some(format!("{}+{address:#x}", if address < 0x1000 { "app" } else { "python3.11" }))
    }
    fn site(&self, _: i32, address: u64) -> String {
        format!("app+{address:#x}")
    }
}

fn hold(address: u64, op: u8, since: u64) -> LiveHold {
    LiveHold { address, since, flags: u16::from(op) << 8, ..LiveHold::default() }
}

fn thread(tid: i32, waits: Option<LiveHold>, holds: &[LiveHold]) -> LiveThread {
    LiveThread {
        tid,
        name: format!("t{tid}"),
        state: state::SLEEPING.into(),
        system_call: Some("futex".into()),
        waits,
        holds: holds.to_vec(),
        ..LiveThread::default()
    }
}

fn look(tsc: u64, threads: Vec<LiveThread>, locks: &[(u64, i32, u32)]) -> Live {
    let locks = locks.iter().map(|(address, holder, readers)| LiveLock {
        address: *address,
        holder: *holder,
        readers: *readers,
    });
    let p = LiveProcess {
        pid: 7,
        state: state::SLEEPING.into(),
        threads,
        locks: locks.collect(),
        ..LiveProcess::default()
    };
    Live { tsc, hz: 1e9, cut: false, processes: vec![p] }
}

/// The same in both looks, 100 ms apart.
fn twice(threads: Vec<LiveThread>, locks: &[(u64, i32, u32)]) -> Now {
    let second = look(2_100_000_000, threads, locks);
    now(&Live { tsc: 2_000_000_000, ..second.clone() }, &second, Vec::new(), &Hex)
}

const M: u8 = op::MUTEX_LOCK;

#[test]
fn two_mutexes_in_two_orders_are_a_cycle() {
    let (a, b) = (hold(0xa, M, 50), hold(0xb, M, 60));
    let waits = |address| Some(hold(address, M, 100_000_000));
    let threads = || vec![thread(1, waits(0xb), &[a]), thread(2, waits(0xa), &[b]), thread(3, waits(0xa), &[])];
    let found = twice(threads(), &[(0xa, 1, 0), (0xb, 2, 0)]);
    assert_eq!(
        found.answer[0],
        "cycle: thread 1 (t1) waits 2.00 s for app+0xb/mutex, which thread 2 (t2) holds; thread 2 waits 2.00 s for app+0xa/mutex, which thread 1 holds"
    );
    assert_eq!((found.cycles.len(), found.chains.len(), found.chains[0].end), (1, 1, "cycle"));
    assert_eq!(found.threads.iter().map(|t| t.keeps_waiting).max(), Some(2));
    // From the tables alone, where the locks cannot be read.
    assert_eq!(twice(threads(), &[]).cycles.len(), 1);
    // A lock that was given on meanwhile, a wait that began anew, a thread that runs: none of these is a cycle.
    let both = [(0xa, 1, 0), (0xb, 2, 0)];
    let first = || look(2_000_000_000, threads(), &both);
    let second = |change: &dyn Fn(&mut LiveProcess)| {
        let mut live = look(2_100_000_000, threads(), &both);
        change(&mut live.processes[0]);
        now(&first(), &live, Vec::new(), &Hex).cycles.len()
    };
    assert_eq!(second(&|_| {}), 1);
    assert_eq!(second(&|p| p.locks[0].holder = 3), 0);
    assert_eq!(second(&|p| p.threads[0].holds[0].since = 55), 0);
    assert_eq!(second(&|p| p.threads[1].waits = Some(hold(0xa, M, 2_050_000_000))), 0);
    assert_eq!(second(&|p| p.threads[1].state = state::RUNNING.into()), 0);
    assert_eq!(second(&|p| p.state = state::ENDED.into()), 0);
    assert_eq!(second(&|p| drop(p.threads.remove(1))), 0);
}

#[test]
fn a_rwlock_waits_for_its_readers_and_readers_for_a_writer_that_queues() {
    let (r, m) = (hold(0xf0, op::RWLOCK_RDLOCK, 50), hold(0xa, M, 60));
    let threads = vec![
        thread(1, Some(hold(0xa, M, 70)), &[r]),
        thread(2, Some(hold(0xf0, op::RWLOCK_RDLOCK, 90)), &[m]),
        thread(3, Some(hold(0xf0, op::RWLOCK_WRLOCK, 80)), &[]),
    ];
    let found = twice(threads, &[(0xa, 2, 0), (0xf0, 0, 2)]);
    assert_eq!(found.cycles.len(), 1);
    assert_eq!(found.cycles[0].tids, [1, 2, 3]);
    let text = &found.cycles[0].text;
    assert!(
        text.contains(
            "thread 2 waits 2.10 s to read app+0xf0/rwlock, after thread 3 (t3), which waits to write it first"
        ),
        "{text}"
    );
    assert!(text.contains("which thread 1 (and 1 other) holds to read"), "{text}");
    // Without the writer in the queue the lock is not in its way.
    let threads = vec![thread(1, None, &[r]), thread(2, Some(hold(0xf0, op::RWLOCK_RDLOCK, 90)), &[])];
    assert_eq!(twice(threads, &[(0xf0, 0, 1)]).chains[0].end, "changes");
}

#[test]
fn a_lock_that_its_thread_waits_for_itself() {
    let a = hold(0xa, M, 50);
    let itself = |holds: &[LiveHold]| vec![thread(1, Some(hold(0xa, M, 70)), holds)];
    let found = twice(itself(&[a]), &[(0xa, 1, 0)]);
    assert!(found.cycles[0].text.ends_with("app+0xa/mutex, which it holds itself"), "{:?}", found.cycles);
    // In a pause there is no row: it sleeps in the wait, so it has not just got the lock.
    assert_eq!(twice(itself(&[]), &[(0xa, 1, 0)]).cycles.len(), 1);
    let mut stopped = itself(&[]);
    (stopped[0].state, stopped[0].system_call) = (state::STOPPED.into(), None);
    assert_eq!(twice(stopped, &[(0xa, 1, 0)]).cycles.len(), 0);
}

#[test]
fn chains_end_with_what_the_last_thread_does() {
    let waits = || thread(1, Some(hold(0xa, M, 100_000_000)), &[]);
    let a = hold(0xa, M, 50);
    let ends = |last: LiveThread, locks: &[(u64, i32, u32)]| {
        let found = twice(vec![waits(), last], locks);
        (found.chains[0].end, found.answer[0].clone())
    };
    let held: &[_] = &[(0xa, 2, 0)];
    let call =
        LiveCall { function: "cuStreamSynchronize".into(), began: 100_000_000, stream: 0x10, ..LiveCall::default() };
    let in_call = LiveThread { call: Some(call), ..thread(2, None, &[a]) };
    assert_eq!(
        ends(in_call, held),
        (
            "call",
            "chain: thread 1 (t1) waits 2.00 s for app+0xa/mutex, which thread 2 (t2) holds; thread 2 is in cuStreamSynchronize for 2.00 s"
                .into()
        )
    );
    let reads = LiveThread { system_call: Some("read".into()), ..thread(2, None, &[a]) };
    assert!(ends(reads, held).1.ends_with("thread 2 sleeps in read"));
    let ended = LiveThread { state: state::ENDED.into(), ..thread(2, None, &[]) };
    assert!(ends(ended, held).1.ends_with("thread 2 has ended without giving it back"));
    let cond = thread(2, Some(hold(0xc, op::COND_WAIT, 100_000_000)), &[a]);
    assert_eq!(ends(cond, held).0, "condition");
    assert_eq!(ends(thread(2, None, &[]), &[]).0, "unknown_holder");
    assert_eq!(ends(thread(2, None, &[]), &[(0xa, 0, 0)]).0, "free");
    assert!(ends(thread(2, None, &[]), &[(0xa, 9, 0)]).1.ends_with("which thread 9 holds, of which no more is known"));
}

#[test]
fn a_thread_that_waits_for_the_end_of_another_that_waits_for_its_lock() {
    let main = LiveThread { joins: Some(2), ..thread(1, None, &[hold(0xa, M, 50)]) };
    let threads = || vec![main.clone(), thread(2, Some(hold(0xa, M, 100_000_000)), &[])];
    let found = twice(threads(), &[(0xa, 1, 0)]);
    assert_eq!(
        found.answer[0],
        "cycle: thread 1 (t1) waits for the end of thread 2 (t2); thread 2 waits 2.00 s for app+0xa/mutex, which thread 1 holds"
    );
    // The other thread is not one of those that were seen.
    let other = vec![LiveThread { joins: Some(9), ..main.clone() }, threads().remove(1)];
    assert_eq!(twice(other, &[(0xa, 1, 0)]).chains[0].end, "join");
}

#[test]
fn who_does_not_wait_for_long_is_in_no_chain() {
    let first = look(2_000_000_000, vec![thread(1, Some(hold(0xa, M, 1_999_000_000)), &[])], &[(0xa, 2, 0)]);
    let second = look(2_100_000_000, vec![thread(1, Some(hold(0xa, M, 2_098_000_000)), &[])], &[(0xa, 2, 0)]);
    let found = now(&first, &second, Vec::new(), &Hex);
    assert!(found.chains.is_empty() && found.short_waits == 1);
    assert!(found.answer[0].starts_with("nobody waits"), "{:?}", found.answer);
    assert_eq!(
        found.answer[1],
        "1 thread waits for a lock for a short time: thread 1 (t1) the longest, 2.00 ms for app+0xa/mutex"
    );
    // Python's lock is a condition with a time limit, which is waited for again and again.
    let gil = |tsc, since| look(tsc, vec![thread(1, Some(hold(0x2000, op::COND_TIMEDWAIT, since)), &[])], &[]);
    let found = now(&gil(2_000_000_000, 1_999_000_000), &gil(2_100_000_000, 2_099_000_000), Vec::new(), &Hex);
    assert_eq!(found.python_lock_waits, 1);
    assert!(found.answer.iter().any(|l| l.contains("(GIL)")), "{:?}", found.answer);
}

#[test]
fn a_kernel_that_has_not_ended_is_what_a_call_of_its_stream_waits_for() {
    let in_call = |function: &str, stream| LiveThread {
        call: Some(LiveCall { function: function.into(), began: 100_000_000, stream, ..LiveCall::default() }),
        ..thread(2, None, &[hold(0xa, M, 50)])
    };
    let kernel = |name: &str, stream, ns| NowKernel { pid: 7, name: name.into(), stream, tid: 2, ns, after: 3 };
    let found = |call: LiveThread| {
        let second = look(2_100_000_000, vec![thread(1, Some(hold(0xa, M, 100_000_000)), &[]), call], &[(0xa, 2, 0)]);
        let kernels = vec![kernel("short", 0x52, 600_000_000), kernel("spin", 0x51, 2_000_000_000)];
        now(&Live { tsc: 2_000_000_000, ..second.clone() }, &second, kernels, &Hex)
    };
    let now = found(in_call("cuStreamSynchronize", 0x52));
    assert_eq!(
        now.answer,
        [
            "chain: thread 1 (t1) waits 2.00 s for app+0xa/mutex, which thread 2 (t2) holds; thread 2 is in cuStreamSynchronize for 2.00 s, which waits for kernel short",
            "kernel spin of stream 0x51 has not ended 2.00 s after its launch by thread 2 (t2); 3 kernels wait after it in the stream",
            "kernel short of stream 0x52 has not ended 600 ms after its launch by thread 2 (t2); 3 kernels wait after it in the stream",
        ]
    );
    assert_eq!(now.kernels[0].name, "spin");
    // All streams; one without such a kernel.
    assert!(found(in_call("cuCtxSynchronize", 0)).answer[0].ends_with("which waits for kernel spin"));
    assert!(found(in_call("cuStreamSynchronize", 0x53)).answer[0].ends_with("is in cuStreamSynchronize for 2.00 s"));
}

proptest! {
    /// Each thread holds its own mutex. The cycles are those of the graph of waits, and no rows of any kind make it panic.
    #[test]
    fn random_waits(to in prop::collection::vec(0usize..9, 1..9), odd in any::<[u8; 4]>()) {
        let n = to.len();
        let row = |(i, to): (usize, &usize)| {
            let waits = (*to < n).then(|| hold(*to as u64 + 1, M, 5));
            thread(i as i32 + 1, waits, &[hold(i as u64 + 1, M, 1)])
        };
        let threads: Vec<_> = to.iter().enumerate().map(row).collect();
        let words: Vec<_> = (1..=n).map(|i| (i as u64, i as i32, 0)).collect();
        let found = twice(threads.clone(), &words);
        let leads_back = |start: usize| {
            let mut at = start;
            (0..n).any(|_| { at = to.get(at).copied().unwrap_or(n); at == start })
        };
        for (i, _) in to.iter().enumerate() {
            let is_in = found.cycles.iter().any(|c| c.tids.contains(&(i as i32 + 1)));
            prop_assert_eq!(is_in, leads_back(i));
        }
        let mut wild = threads;
        for (t, odd) in wild.iter_mut().zip(odd) {
            t.waits = Some(LiveHold { flags: u16::from(odd) << 8 | u16::from(odd), since: u64::MAX, ..hold(u64::from(odd % 3), 0, 0) });
            t.state = ["", "running", "stopped", "ended"][usize::from(odd) % 4].into();
        }
        twice(wild, &words);
    }
}

/// Work that a stream was given at this time.
fn work(name: &str, tsc: u64, object: u64) -> LiveWork {
    LiveWork { function: number(name), tsc, tid: 1, object, ..LiveWork::default() }
}

fn word(address: u64, tsc: u64, value: u64, there: Option<u64>) -> LiveWork {
    LiveWork { value, there, ..work("cuStreamWaitValue32", tsc, address) }
}

fn in_call(tid: i32, name: &str, stream: u64, object: u64) -> LiveThread {
    let call = LiveCall { function: name.into(), began: 1_000_000_000, stream, object, ..LiveCall::default() };
    LiveThread { call: Some(call), system_call: None, ..thread(tid, None, &[]) }
}

fn with_streams(threads: Vec<LiveThread>, streams: &[(u64, &[LiveWork])]) -> Live {
    let stream = |(stream, work): &(u64, &[LiveWork])| LiveStream { stream: *stream, work: work.to_vec(), cut: false };
    let mut live = look(2_100_000_000, threads, &[]);
    live.processes[0].streams = streams.iter().map(stream).collect();
    live
}

fn answer_of(second: &Live) -> Now {
    now(&Live { tsc: 2_000_000_000, ..second.clone() }, second, Vec::new(), &Hex)
}

#[test]
fn two_streams_that_wait_for_words_of_each_other_are_a_cycle() {
    let a = [word(0x10, 100, 1, Some(0)), work("cuStreamWriteValue32", 200, 0x20)];
    let b = [word(0x20, 110, 1, Some(0)), work("cuStreamWriteValue32", 210, 0x10)];
    let sync = || vec![in_call(5, "cuStreamSynchronize", 0xa0, 0)];
    let found = answer_of(&with_streams(sync(), &[(0xa0, &a), (0xb0, &b)]));
    assert_eq!(
        found.answer[0],
        "cycle: stream 0xa0 waits for word 0x10 (0 there, 1 or more wanted), which stream 0xb0 is to write; stream 0xb0 waits for word 0x20 (0 there, 1 or more wanted), which stream 0xa0 is to write"
    );
    assert_eq!((found.cycles[0].kind, found.cycles[0].streams.as_slice()), ("streams", [0xa0, 0xb0].as_slice()));
    assert_eq!(found.chains[0].end, "cycle");
    // A thread that waits for no stream does not say that anything is not done.
    assert!(answer_of(&with_streams(vec![thread(5, None, &[])], &[(0xa0, &a), (0xb0, &b)])).cycles.is_empty());
    // A word that has the value, that changes, that was written before its stream stood still, or that cannot be read.
    for first in [word(0x10, 100, 1, Some(1)), word(0x10, 100, 1, None)] {
        let a = [first, a[1].clone()];
        // (If something else may be what is not done.)
        let a = [&a[..], &[work("cuLaunchKernel", 300, 1)]].concat();
        let found = answer_of(&with_streams(sync(), &[(0xa0, &a), (0xb0, &b)]));
        assert!(found.cycles.is_empty(), "{:#?}", found.answer);
    }
    let early = [work("cuStreamWriteValue32", 90, 0x10), b[0].clone()];
    assert!(answer_of(&with_streams(sync(), &[(0xa0, &a), (0xb0, &early)])).cycles.is_empty());
}

#[test]
fn a_chain_goes_from_a_thread_through_events_to_what_has_not_ended() {
    let kernel = LiveWork { name: "spin".into(), ..work("cuLaunchKernel", 100, 0x77) };
    let a = [kernel, work("cuEventRecord", 200, 0xe1), work("cuLaunchKernel", 900, 0x78)];
    let wait = LiveWork { value: 200, how: 0xa0, ..work("cuStreamWaitEvent", 300, 0xe1) };
    let b = [wait, work("cuEventRecord", 400, 0xe2)];
    let found = answer_of(&with_streams(vec![in_call(5, "cuEventSynchronize", 0, 0xe2)], &[(0xa0, &a), (0xb0, &b)]));
    let text = &found.chains[0].text;
    assert!(text.contains("thread 5 (t5) is in cuEventSynchronize for 1.10 s, for stream 0xb0"), "{text}");
    assert!(
        text.contains("stream 0xb0 waits for event 0xe1, which stream 0xa0 has recorded and not reached"),
        "{text}"
    );
    assert!(text.contains("stream 0xa0 has not ended kernel spin, launched 2.10 s ago by thread 1"), "{text}");
    assert_eq!((found.chains[0].end, found.chains[0].streams.as_slice()), ("kernel", [0xb0, 0xa0].as_slice()));
    let rows: Vec<_> = found.waits.iter().map(|w| (w.waiter.as_str(), w.call.as_str(), w.holder.as_str())).collect();
    assert!(rows.contains(&("thread 5 (t5)", "cuEventSynchronize", "stream 0xb0")), "{rows:?}");
    assert!(rows.contains(&("stream 0xb0", "cuStreamWaitEvent", "stream 0xa0 (kernel spin)")), "{rows:?}");
    // Which of several it is is not known, unless the GPU stored their ends.
    let several = [a[0].clone(), work("cuLaunchKernel", 150, 0x79)];
    let live = with_streams(vec![in_call(5, "cuStreamSynchronize", 0xa0, 0)], &[(0xa0, &several)]);
    let found = answer_of(&live);
    assert_eq!((found.streams[0].is_certain, found.streams[0].others), (false, 1));
    assert!(found.answer[0].contains("kernel spin, or kernel 0x79"), "{:?}", found.answer);
    let known = NowKernel { pid: 7, stream: 0xa0, name: "spin".into(), ..NowKernel::default() };
    let found = now(&Live { tsc: 2_000_000_000, ..live.clone() }, &live, vec![known], &Hex);
    assert!(found.streams[0].is_certain && found.answer.len() == 1, "{:?}", found.answer);
}

#[test]
fn a_thread_that_asks_again_and_again_waits() {
    let a = [word(0x10, 100, 5, Some(4)), work("cuEventRecord", 200, 0xe1)];
    let mut live = with_streams(vec![thread(5, None, &[])], &[(0xa0, &a)]);
    let poll = |last| LivePoll { tid: 5, function: number("cuEventQuery"), stream: 0, object: 0xe1, since: 300, last };
    live.processes[0].polls = vec![poll(2_099_000_000)];
    let found = answer_of(&live);
    assert!(
        found.answer[0].contains("asks again and again (cuEventQuery for event 0xe1, since 2.10 s)"),
        "{:?}",
        found.answer
    );
    assert!(found.answer[0].contains("waits for word 0x10 (4 there, 5 or more wanted), which no stream is to write"));
    assert_eq!(found.chains[0].end, "word");
    // One that has stopped to ask.
    live.processes[0].polls = vec![poll(1_000_000_000)];
    assert!(answer_of(&live).chains.is_empty());
}

#[test]
fn who_signalled_a_condition_last_is_named_or_that_nobody_has() {
    let waits = || vec![thread(1, Some(hold(0xc0, op::COND_WAIT, 100_000_000)), &[]), thread(2, None, &[])];
    let of = |signals: &[LiveSignal], has_signals| {
        let mut live = look(2_100_000_000, waits(), &[]);
        (live.processes[0].signals, live.processes[0].has_signals) = (signals.to_vec(), has_signals);
        answer_of(&live).answer.last().unwrap().clone()
    };
    assert!(
        of(&[], true).ends_with("app+0xc0/cond, which nobody has signalled in this recording"),
        "{}",
        of(&[], true)
    );
    assert!(of(&[], false).ends_with("2.00 s for app+0xc0/cond"));
    let last = LiveSignal { address: 0xc0, tid: 2, tsc: 1_100_000_000 };
    assert!(of(&[last], true).ends_with("app+0xc0/cond, which thread 2 (t2) signalled last, 1.00 s ago"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Streams with any work: no panic, and every cycle is a path of waits.
    #[test]
    fn no_work_of_streams_panics(
        works in prop::collection::vec(prop::collection::vec((0usize..8, 0u64..6, 0u64..3), 0..12), 1..5),
        calls in prop::collection::vec((0usize..4, 0u64..5), 1..4),
    ) {
        const NAMES: [&str; 8] = ["cuLaunchKernel", "cuEventRecord", "cuStreamWaitEvent", "cuStreamWaitValue32", "cuStreamWriteValue32",
            "cuLaunchHostFunc", "cuMemcpyAsync", "cuGraphLaunch"];
        let made: Vec<Vec<LiveWork>> = works.iter().enumerate().map(|(s, all)| {
            all.iter().enumerate().map(|(n, (name, object, value))| LiveWork {
                value: if NAMES[*name] == "cuStreamWaitEvent" { (n as u64) * 10 } else { *value },
                how: if NAMES[*name] == "cuStreamWaitEvent" { 100 + value } else { 0 },
                there: (*value > 0).then_some(*object),
                ..work(NAMES[*name], (n * 10 + s) as u64 + 1, *object)
            }).collect()
        }).collect();
        let streams: Vec<(u64, &[LiveWork])> = made.iter().enumerate().map(|(s, all)| (100 + s as u64, all.as_slice())).collect();
        const CALLS: [&str; 4] = ["cuStreamSynchronize", "cuEventSynchronize", "cuCtxSynchronize", "cuMemcpyDtoH"];
        let threads = calls.iter().enumerate().map(|(n, (name, of))| in_call(n as i32 + 1, CALLS[*name], 100 + of, *of)).collect();
        let found = answer_of(&with_streams(threads, &streams));
        for cycle in &found.cycles {
            prop_assert!(!cycle.streams.is_empty(), "threads wait for streams alone");
        }
    }
}

#[test]
fn a_first_thread_that_sleeps_often_may_wait_for_a_process_that_sleeps() {
    let shares = vec![LiveShared { end: 1, inode: 5, ..LiveShared::default() }];
    let process = |pid, thread| LiveProcess {
        pid,
        state: state::SLEEPING.into(),
        threads: vec![thread],
        shares: shares.clone(),
        ..LiveProcess::default()
    };
    let look = |tsc, sleeps, holds: &[LiveHold]| {
        let polls = LiveThread { state: state::RUNNING.into(), system_call: None, sleeps, ..thread(7, None, holds) };
        let processes = vec![process(7, polls), process(8, thread(8, None, &[]))];
        Live { tsc, hz: 1e9, cut: false, processes }
    };
    let rows = |slept: u64, holds: &[LiveHold]| {
        let (first, second) = (look(2_000_000_000, 100, holds), look(2_100_000_000, 100 + slept, holds));
        let found = now(&first, &second, Vec::new(), &Hex);
        assert!(found.cycles.is_empty(), "{:?}", found.cycles);
        found.waits.iter().map(|w| format!("{} {} {}", w.waiter, w.call, w.holder)).collect::<Vec<_>>()
    };
    assert_eq!(rows(10, &[]), ["thread 7 (t7) of process 7 polls thread 8 (t8) of process 8"]);
    assert!(rows(1, &[]).is_empty() && rows(10, &[hold(0xa, M, 50)]).is_empty());
}
