//! Who waits for whom in a program at one moment: cycles and chains of threads, in words.
//!
//! [`edges`] compares two looks at the program's threads, [`streams`] those at its streams, [`peers`] those at other processes. [`graph`] finds cycles and longest chains of
//! both ([`nodes`]), [`words`], [`stream_words`] and [`peer_words`] make sentences of them. Whoever makes the looks (`doorbell why --now`) gives the names
//! of places.
//! [`joined`] makes one pair of looks of several recorders', and [`ranks`] finds the rank for which the others wait.
//!
//! Invariant: nothing is read here but the two looks. No looks make this panic, whatever is in them.

mod edges;
mod graph;
mod joined;
mod nodes;
mod peer_words;
mod peers;
pub mod ranks;
mod stream_words;
mod streams;
mod wait_rows;
mod words;

pub use joined::joined;

use decode::Kernel;
use edges::{Holder, How, Threads};
use lock_analysis::ops::Class;
use nodes::{Node, Nodes};
use peers::Peers;
use schema::now::{Now, NowCall, NowHolder, NowKernel, NowPath, NowStream, NowThread, NowWait};
use std::collections::{BTreeMap, BTreeSet};
use streams::{On, Streams};
use tape::live::{Live, state};
use words::Words;

/// Names of addresses in a process.
pub trait Names {
    /// Module and offset of a variable; `None` for memory that belongs to no module.
    fn variable(&self, pid: i32, address: u64) -> Option<String>;
    /// The place of a call, from its return address.
    fn site(&self, pid: i32, address: u64) -> String;
}

/// Chains that are kept.
const CHAINS: usize = 20;
/// Cycles and chains in the answer.
const IN_ANSWER: usize = 5;

/// What two looks at the same processes show. `kernels`: those that have not ended. The caller fills in the program and what is not followed.
pub fn now(first: &Live, second: &Live, mut kernels: Vec<NowKernel>, names: &dyn Names) -> Now {
    kernels.sort_by_key(|k| std::cmp::Reverse(k.ns));
    let threads = Threads::of(first, second);
    let streams = Streams::of(first, second, &threads, &kernels);
    let peers = Peers::of(first, second, &threads, &streams);
    let nodes = Nodes { threads, streams, peers };
    let threads = &nodes.threads;
    let words = Words { nodes: &nodes, live: second, kernels: &kernels, names };
    let all = nodes.edges();
    let edges = nodes.without_guesses(all.clone());
    let found = graph::cycles(&edges);
    let mut is_in_cycle = vec![false; edges.len()];
    found.iter().flat_map(|(_, component)| component).for_each(|n| is_in_cycle[*n] = true);
    let cycles: Vec<NowPath> = found
        .iter()
        .map(|(cycle, component)| NowPath {
            text: words.cycle(cycle),
            kind: words.kind(cycle),
            tids: words.tids(cycle),
            streams: words.streams(cycle),
            end: "cycle",
            waiting: component.len(),
        })
        .collect();
    let chains = chains(&words, &edges, &is_in_cycle);
    let keeps = graph::lead_to(&edges, threads.all.len());
    let is_python = |t: usize, address: u64| {
        let pid = threads.all.get(t).map_or(0, |t| t.process.pid);
        names.variable(pid, address).is_some_and(|name| lock_analysis::names::is_of_python(&name))
    };
    let stopped = second.processes.iter().filter(|p| p.state == state::STOPPED).map(|p| p.pid).collect();
    let mut now = Now {
        apart_ns: ns(second, second.tsc.saturating_sub(first.tsc)),
        cycles,
        stopped,
        threads: rows(&words, &keeps),
        streams: stream_rows(&words, &edges, &keeps),
        waits: words.rows(&all),
        looked_at: threads.all.len(),
        short_waits: threads.short.len(),
        python_lock_waits: threads
            .renewed
            .iter()
            .filter(|(t, w)| threads.all[*t].waits.is_none() && is_python(*t, w.address))
            .count(),
        chains: chains.iter().map(|(path, _)| path.clone()).collect(),
        kernels: kernels.clone(),
        ..Now::default()
    };
    if second.cut {
        now.not_followed.push("more threads than were looked at".into());
    }
    if second.processes.iter().any(|p| p.paused) {
        now.not_followed.push("CUDA calls and readers of rwlocks: the recording is paused".into());
    }
    now.answer = answer(&now, &words, &chains);
    now
}

fn ns(live: &Live, ticks: u64) -> u64 {
    let hz = if live.hz.is_finite() && live.hz > 0.0 { live.hz } else { 1e9 };
    (ticks as f64 / hz * 1e9) as u64
}

/// A chain, and its threads.
type Chain = (NowPath, Vec<usize>);

/// The longest chain to each node at which chains end.
fn chains(words: &Words, edges: &[Vec<usize>], is_in_cycle: &[bool]) -> Vec<Chain> {
    let threads = &words.nodes.threads.all;
    let waits = |n: &usize| {
        let lock = threads.get(*n).and_then(|t| t.waits.as_ref());
        let is_lock = lock.is_some_and(|w| matches!(w.class, Class::Mutex | Class::Rwlock));
        let is_outside = edges[*n].iter().any(|to| !matches!(words.nodes.node(*to), Node::Thread(_)));
        let is_for_stream = is_outside || lock.is_some_and(|w| w.is_python) || words.nodes.peers.of.contains_key(n);
        let is_in_driver = threads[*n].call.is_some() && threads[*n].system_call == Some("ioctl");
        (is_lock || is_for_stream || is_in_driver) && !is_in_cycle[*n]
    };
    let longest = graph::Chains::of(edges, is_in_cycle);
    let rank = |n: usize| (longest.length[n], words.waited(n));
    // By the last thread of the chain: the first one of the best, and how many have the same end.
    let mut of: BTreeMap<usize, (usize, usize)> = BTreeMap::new();
    for n in (0..threads.len()).filter(waits) {
        let (best, waiting) = of.entry(longest.from(n).last().unwrap_or(n)).or_insert((n, 0));
        *waiting += 1;
        if rank(n) > rank(*best) {
            *best = n;
        }
    }
    let mut all: Vec<_> = of.into_iter().map(|(last, (first, waiting))| (first, last, waiting)).collect();
    all.sort_by_key(|(first, ..)| std::cmp::Reverse(rank(*first)));
    let path = |(first, last, waiting): (usize, usize, usize)| {
        let chain: Vec<usize> = longest.from(first).collect();
        let (end, end_text) = words.end(last, is_in_cycle[last]);
        let text = words.chain(&chain, &end_text, waiting);
        let kind = words.kind_of_chain(&chain);
        (NowPath { kind, text, tids: words.tids(&chain), streams: words.streams(&chain), end, waiting }, chain)
    };
    all.into_iter().take(CHAINS).map(path).collect()
}

/// `keeps`: how many threads wait for each node.
fn rows(words: &Words, keeps: &[usize]) -> Vec<NowThread> {
    let threads = &words.nodes.threads;
    let mut all = Vec::new();
    for (n, t) in threads.all.iter().enumerate() {
        if t.waits.is_none() && t.call.is_none() && keeps[n] == 0 {
            continue;
        }
        let since = |at: u64| ns(words.live, words.live.tsc.saturating_sub(at));
        let waits = t.waits.as_ref().map(|w| {
            let holders = match &w.holder {
                Holder::Threads(all) => all.as_slice(),
                _ => &[],
            };
            let holder = |h: &edges::Held| NowHolder {
                tid: h.tid,
                how: match h.how {
                    How::Alone => "holds",
                    How::Reads => "reads",
                    How::Queues => "queues",
                },
                ns: h.since.map(since),
            };
            NowWait {
                lock: words.of_wait(t.process.pid, w),
                kind: if w.is_python { "python_lock" } else { w.class.name() },
                site: words.names.site(t.process.pid, w.lock.site),
                ns: since(w.lock.since),
                has_limit: edges::has_limit(&w.lock),
                holders: holders.iter().map(holder).collect(),
                holder: words::holder(&w.holder),
            }
        });
        let call = t.call.map(|c| NowCall {
            name: c.function.clone(),
            ns: since(c.began),
            stream: c.stream,
            object: c.object,
        });
        all.push(NowThread {
            pid: t.process.pid,
            tid: t.row.tid,
            thread: t.row.name.clone(),
            state: t.state.into(),
            system_call: t.system_call.map(str::to_owned),
            waits,
            joins: t.joins.and_then(|n| Some(threads.all.get(n)?.row.tid)),
            call,
            keeps_waiting: keeps[n],
            ..NowThread::default()
        });
    }
    // Those that wait for a lock first, then those in a call, each by time.
    all.sort_by_key(|t| {
        let lock = t.waits.as_ref().is_some_and(|w| w.holder != "signal");
        let ns = t.waits.as_ref().map(|w| w.ns).max(t.call.as_ref().map(|c| c.ns));
        std::cmp::Reverse((lock, t.call.is_some(), ns))
    });
    all
}

/// The streams for which somebody waits.
fn stream_rows(words: &Words, edges: &[Vec<usize>], keeps: &[usize]) -> Vec<NowStream> {
    let threads = words.nodes.threads.all.len();
    let row = |(n, s): (usize, &streams::Stream<'_>)| {
        let head = s.head.as_ref()?;
        let w = head.work;
        let on = match &head.on {
            On::Word(_) => "word",
            On::Event(..) => "event",
            On::HostFunction(_) => "host_function",
            On::Work if !w.name.is_empty() => "kernel",
            On::Work => "work",
        };
        let is_word = matches!(head.on, On::Word(_));
        Some(NowStream {
            pid: s.pid,
            stream: s.handle,
            ns: ns(words.live, words.live.tsc.saturating_sub(w.tsc)),
            waits_for: on,
            call: tape::call::function(w.function).map_or("", |f| f.name),
            tid: w.tid,
            object: w.object,
            kernel: if w.name.is_empty() { String::new() } else { Kernel::new(w.name.as_bytes()).name },
            there: w.there,
            wanted: is_word.then_some(w.value),
            streams: words.streams(&edges[threads + n]),
            tids: words.tids(&edges[threads + n]),
            is_certain: head.is_certain,
            others: head.others.len(),
            keeps_waiting: keeps[threads + n],
        })
    };
    words.nodes.streams.all.iter().enumerate().filter_map(row).collect()
}

fn answer(now: &Now, words: &Words, chains: &[Chain]) -> Vec<String> {
    let mut lines: Vec<String> = now.cycles.iter().take(IN_ANSWER).map(|c| format!("cycle: {}", c.text)).collect();
    lines.extend(now.stopped.iter().map(|pid| format!("process {pid} is stopped (SIGSTOP)")));
    let in_chains =
        |k: &&NowKernel| now.chains.iter().all(|c| c.end != "kernel" || c.streams.last() != Some(&k.stream));
    let mut told: BTreeSet<i32> = now.cycles.iter().flat_map(|c| c.tids.iter().copied()).collect();
    for (chain, _) in chains.iter().take(IN_ANSWER) {
        lines.push(format!("chain: {}", chain.text));
        told.extend(&chain.tids);
    }
    if let Some((tid, text)) = words.longest_call().filter(|(tid, _)| !told.contains(tid)) {
        lines.push(text);
        told.insert(tid);
    }
    lines.extend(now.kernels.iter().filter(in_chains).take(IN_ANSWER).map(|k| words.kernel(k)));
    if lines.is_empty() {
        let looks = numbers::nanoseconds(now.apart_ns);
        lines.push(format!("nobody waits for a lock or a CUDA call: no thread waited for the same one in both of two looks {looks} apart"));
    }
    lines.extend(words.short_waits());
    let waits_for_signal =
        |t: &&NowThread| t.waits.as_ref().is_some_and(|w| w.holder == "signal") && !words.waits_for_peer(t.pid, t.tid);
    let signal: Vec<&NowThread> = now.threads.iter().filter(waits_for_signal).collect();
    if let Some(longest) = signal.iter().max_by_key(|t| t.waits.as_ref().map(|w| w.ns)) {
        let of = numbers::of(signal.len() as u64, "thread");
        let longest = words.longest_wait(longest.pid, longest.tid);
        let longest = longest.map_or_else(String::new, |text| format!("; the longest: {text}"));
        let verb = if signal.len() == 1 { "waits" } else { "wait" };
        lines.push(format!(
            "{of} {verb} for a condition or a semaphore, maybe on purpose: who will signal it is not known{longest}"
        ));
    }
    if now.python_lock_waits > 0 {
        let of = numbers::of(now.python_lock_waits as u64, "thread");
        let verb = if now.python_lock_waits == 1 { "waits" } else { "wait" };
        lines.push(format!(
            "{of} {verb} for Python's lock (GIL) in both looks: it changes hands, or who has it is not known"
        ));
    }
    lines
}

#[cfg(test)]
mod tests;
