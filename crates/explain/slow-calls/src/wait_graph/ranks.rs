//! The ranks of a job: in which collective each of them is, and which of them the others wait for.
//!
//! Every rank launches the same collectives in the same order, and a collective ends when all have launched it. So a rank that has
//! launched fewer than others is the one for which they wait, if the next one has not ended there.
//!
//! Invariant: a rank is behind only if both looks have the same numbers, and if the collective that it has not launched was not
//! seen to end anywhere.

use crate::wait_graph::ns;
use numbers::nanoseconds;
use schema::now::{Now, NowCall, NowPath};
use schema::now_ranks::{NowCollective, NowRank};
use std::collections::{BTreeMap, BTreeSet};
use tape::live::{Live, LiveCollectives, LiveProcess, LiveThread, LiveWork, collective, state};

/// Ranks of a list, in words.
const LISTED: usize = 8;
/// A collective that has lasted so long is named though no rank is behind.
const LONG: u64 = 1_000_000_000;

/// A rank in both looks.
struct Rank<'a> {
    number: Option<u32>,
    was: &'a LiveProcess,
    is: &'a LiveProcess,
}

/// A collective of a rank that has not ended.
struct Open<'a> {
    name: &'a str,
    number: u64,
    stream: u64,
    tsc: u64,
}

/// Adds the ranks, and who is behind. `programs`: those that recorders have started, if these are to be taken for ranks where there
/// is no job.
pub fn add(now: &mut Now, first: &Live, second: &Live, programs: &[i32]) {
    let ranks = ranks(first, second, programs);
    if ranks.len() < 2 {
        return;
    }
    let mut rows: Vec<NowRank> = ranks.iter().map(|r| row(r, now, second)).collect();
    let numbers: BTreeSet<u32> = ranks.iter().filter_map(|r| r.number).collect();
    if !numbers.is_empty() && numbers.len() < ranks.iter().filter(|r| r.number.is_some()).count() {
        now.not_followed.push("which rank is behind: several jobs are recorded".into());
    } else {
        let lines = compare(&ranks, &mut rows, now, second);
        now.answer.splice(0..0, lines);
        now.answer.extend(missing(&ranks, &numbers));
    }
    now.ranks = rows;
}

/// The processes that are ranks, in their order.
fn ranks<'a>(first: &'a Live, second: &'a Live, programs: &[i32]) -> Vec<Rank<'a>> {
    let number = |p: &LiveProcess| p.rank.as_ref().map(|r| r.rank);
    let recorded = || second.processes.iter().filter(|p| !p.unrecorded);
    let in_job = |p: &&LiveProcess| p.rank.is_some() || !p.collectives.is_empty();
    let mut all: Vec<&LiveProcess> = recorded().filter(in_job).collect();
    if all.is_empty() {
        all = recorded().filter(|p| programs.contains(&p.pid)).collect();
    }
    let parents: BTreeMap<i32, i32> = second.processes.iter().map(|p| (p.pid, p.parent)).collect();
    // A rank's children have its number, too, and so has a shell that started it.
    let root = |p: &LiveProcess| {
        let up = std::iter::successors(Some(p.pid), |pid| parents.get(pid).copied()).take(parents.len());
        let is_same = |pid: &i32| all.iter().any(|q| q.pid == *pid && number(q) == number(p));
        if p.rank.is_some() { up.filter(is_same).last().unwrap_or(p.pid) } else { p.pid }
    };
    let worth = |p: &LiveProcess| {
        let in_call = p.threads.iter().any(|t| t.call.is_some());
        (p.state != state::ENDED, launched(p), in_call || !p.streams.is_empty(), root(p) == p.pid)
    };
    let mut best: BTreeMap<(Option<u32>, i32), &LiveProcess> = BTreeMap::new();
    for p in &all {
        let of = best.entry((number(p), root(p))).or_insert(p);
        if worth(p) > worth(of) {
            *of = p;
        }
    }
    let rank = |((number, _), is): ((Option<u32>, i32), &'a LiveProcess)| {
        let was = first.processes.iter().find(|p| p.pid == is.pid)?;
        Some(Rank { number, was, is })
    };
    best.into_iter().filter_map(rank).collect()
}

fn launched(p: &LiveProcess) -> u64 {
    p.collectives.iter().map(|c| c.launched).sum()
}

/// What has not ended in both looks of a stream's collectives, the oldest first. False: older ones were forgotten, which may be open, too.
fn open<'a>(r: &Rank<'a>, c: &LiveCollectives) -> (Vec<Open<'a>>, bool) {
    let of = |p: &'a LiveProcess| p.streams.iter().find(|s| s.stream == c.stream);
    let (Some(was), Some(is)) = (of(r.was), of(r.is)) else { return (Vec::new(), true) };
    let named = |w: &'a LiveWork| Some((w, collective(&w.name)?));
    let all: Vec<_> = is.work.iter().filter_map(named).collect();
    let older = c.launched.saturating_sub(all.len() as u64);
    let open = |(n, (w, name)): (u64, (&'a LiveWork, &'a str))| {
        let is_same = |b: &LiveWork| (b.tsc, b.object, b.tid) == (w.tsc, w.object, w.tid);
        let number = older + n + 1;
        was.work.iter().any(is_same).then_some(Open { name, number, stream: c.stream, tsc: w.tsc })
    };
    ((0..).zip(all).filter_map(open).collect(), !is.cut)
}

/// Its number of launches in its stream number `lane`, if both looks have the same.
fn count(r: &Rank, lane: usize) -> Option<u64> {
    let of = |p: &LiveProcess| p.collectives.get(lane).map_or(0, |c| c.launched);
    (of(r.was) == of(r.is)).then(|| of(r.is))
}

/// Who is behind, stream by stream. (Which stream of one rank is which of another is known by the order in which they were first used.)
fn compare(ranks: &[Rank], rows: &mut [NowRank], now: &Now, live: &Live) -> Vec<String> {
    let mut lines = Vec::new();
    let lanes = ranks.iter().map(|r| r.is.collectives.len()).max().unwrap_or(0);
    for lane in 0..lanes {
        // (Not every rank need be in every group, so only the first stream must be on all.)
        let takes_part = |n: &usize| lane == 0 || ranks[*n].is.collectives.len() > lane;
        let counts: Vec<(usize, u64)> =
            (0..ranks.len()).filter(takes_part).filter_map(|n| Some((n, count(&ranks[n], lane)?))).collect();
        let (Some(least), Some(most)) = (counts.iter().map(|(_, c)| *c).min(), counts.iter().map(|(_, c)| *c).max())
        else {
            continue;
        };
        let wanted = if least == most { least } else { least + 1 };
        // Those that have launched it, with what is known of it; it must not have ended.
        let mut waiting: Vec<(usize, Option<Open>)> = Vec::new();
        for (n, c) in counts.iter().filter(|(_, c)| *c >= wanted) {
            let Some(of) = ranks[*n].is.collectives.get(lane) else { continue };
            let (all, is_all) = open(&ranks[*n], of);
            let first = all.first().map_or(*c + 1, |o| o.number);
            match all.into_iter().find(|o| o.number == wanted) {
                Some(open) => waiting.push((*n, Some(open))),
                None if !is_all && first > wanted => waiting.push((*n, None)),
                None => {}
            }
        }
        let Some(known) = waiting.iter().find_map(|(_, open)| open.as_ref()) else { continue };
        let since = waiting.iter().filter_map(|(_, open)| Some(open.as_ref()?.tsc)).min().unwrap_or(live.tsc);
        let ago = ns(live, live.tsc.saturating_sub(since));
        let what = format!("{} (number {wanted} of its stream)", known.name);
        let are = |all: &[usize]| list(&all.iter().map(|n| &ranks[*n]).collect::<Vec<_>>());
        let others: Vec<usize> = waiting.iter().map(|(n, _)| *n).collect();
        if least == most {
            if others.len() == ranks.len() && ago >= LONG {
                lines.push(format!(
                    "all {} ranks have launched {what}, the first of them {} ago, and it has not ended: none of them is behind",
                    ranks.len(),
                    nanoseconds(ago)
                ));
            }
            continue;
        }
        let behind: Vec<usize> = counts.iter().filter(|(_, c)| *c == least).map(|(n, _)| *n).collect();
        for (n, c) in counts.iter().filter(|(_, c)| *c < most) {
            rows[*n].behind = rows[*n].behind.max(most - c);
        }
        let (verb, have) =
            (if behind.len() == 1 { "is" } else { "are" }, if others.len() == 1 { "has" } else { "have" });
        lines.push(format!(
            "{} {verb} behind: {} {have} launched {what}, {} ago, and it has not ended",
            are(&behind),
            are(&others),
            nanoseconds(ago)
        ));
        for n in behind.iter().take(LISTED) {
            lines.push(why(&ranks[*n], &rows[*n], lane, now, live));
        }
    }
    lines
}

/// `ranks 0, 1 and 3`
fn list(ranks: &[&Rank]) -> String {
    let name = |r: &&Rank| r.number.map_or_else(|| format!("process {}", r.is.pid), |n| n.to_string());
    let mut names: Vec<String> = ranks.iter().take(LISTED).map(name).collect();
    match (ranks.len() - names.len(), names.pop()) {
        (0, Some(last)) if !names.is_empty() => names = vec![format!("{} and {last}", names.join(", "))],
        (more, last) => {
            names.extend(last);
            names.extend((more > 0).then(|| format!("and {more} more")));
        }
    }
    let noun = match (ranks.iter().all(|r| r.number.is_some()), ranks.len()) {
        (true, 1) => "rank ",
        (true, _) => "ranks ",
        (false, _) => "",
    };
    format!("{noun}{}", names.join(", "))
}

/// What a rank that is behind does.
fn why(r: &Rank, row: &NowRank, lane: usize, now: &Now, live: &Live) -> String {
    let last = r.is.collectives.get(lane).map_or_else(
        || ", which has launched none before,".into(),
        |c| format!(", {} after its last one,", nanoseconds(ns(live, live.tsc.saturating_sub(c.tsc)))),
    );
    let who = format!("{}{last}", list(&[r]));
    if let Some(end) = process_end(r.is) {
        return format!("{who} {end}");
    }
    // (A cycle or chain that begins with this thread has more.)
    let paths = || now.cycles.iter().chain(&now.chains);
    if let Some(path) = paths().find(|p: &&NowPath| p.tids.first() == Some(&row.tid)) {
        return format!("{who} waits: {}", path.text);
    }
    let cycle = now.cycles.iter().any(|c| c.tids.contains(&row.tid));
    format!("{who} {}{}", row.does, if cycle { ", in a cycle" } else { "" })
}

/// A process that does nothing any more.
fn process_end(p: &LiveProcess) -> Option<String> {
    match (p.state.as_str(), &p.ended) {
        (state::ENDED, Some(end)) if end.how != "ended" => Some(format!("has ended ({})", end.how)),
        (state::ENDED, _) => Some("has ended".into()),
        (state::STOPPED, _) => Some(format!("is stopped (SIGSTOP): process {}", p.pid)),
        (state::TRACED, _) => Some(format!("is stopped by a debugger: process {}", p.pid)),
        _ => None,
    }
}

fn row(r: &Rank, now: &Now, live: &Live) -> NowRank {
    let since = |tsc: u64| ns(live, live.tsc.saturating_sub(tsc));
    let calls = now.threads.iter().filter(|t| t.pid == r.is.pid);
    let call: Option<(i32, &NowCall)> =
        calls.filter_map(|t| Some((t.tid, t.call.as_ref()?))).max_by_key(|(_, call)| call.ns);
    let lives = |tid: &i32| r.is.threads.iter().any(|t| t.tid == *tid && t.state != state::ENDED);
    let last = r.is.collectives.iter().max_by_key(|c| c.tsc).map(|c| c.tid).filter(lives);
    let tid = last.or(call.map(|(tid, _)| tid)).unwrap_or(r.is.pid);
    let mut all: Vec<Open> = r.is.collectives.iter().flat_map(|c| open(r, c).0).collect();
    all.sort_by_key(|o| o.tsc);
    let collective = all.first().map(|o| NowCollective {
        name: o.name.into(),
        number: o.number,
        stream: o.stream,
        ns: since(o.tsc),
    });
    NowRank {
        rank: r.number,
        pid: r.is.pid,
        program: r.is.name.clone(),
        state: r.is.state.clone(),
        collectives: launched(r.is),
        behind: 0,
        collective,
        call: call.map(|(_, call)| call.clone()),
        tid,
        does: process_end(r.is).unwrap_or_else(|| does(r.is.threads.iter().find(|t| t.tid == tid), now)),
    }
}

/// What a thread does, after its number and name.
fn does(thread: Option<&LiveThread>, now: &Now) -> String {
    let Some(t) = thread else { return "does what was not seen".into() };
    let name = if t.name.is_empty() { String::new() } else { format!(" ({})", t.name) };
    let row = now.threads.iter().find(|n| n.tid == t.tid);
    let (call, waits) = (row.and_then(|r| r.call.as_ref()), row.and_then(|r| r.waits.as_ref()));
    let on = t.on.first().filter(|o| !o.name.is_empty()).map_or_else(String::new, |o| format!(", for {}", o.name));
    let does = match (call, waits, &t.system_call) {
        (Some(c), ..) => format!("is in {} for {}", c.name, nanoseconds(c.ns)),
        (_, Some(w), _) => format!("waits {} for {}", nanoseconds(w.ns), w.lock),
        (_, _, Some(name)) => format!("sleeps in {name}{on}"),
        _ if t.state == state::RUNNING => "runs".into(),
        _ => format!("is {}", t.state),
    };
    format!("has thread {}{name}, which {does}", t.tid)
}

/// Ranks of the job that are not here, if most are.
fn missing(ranks: &[Rank], here: &BTreeSet<u32>) -> Option<String> {
    let size = ranks.iter().filter_map(|r| r.is.rank.as_ref()?.world_size).max()?;
    let all: Vec<u32> = (0..size.min(1 << 16)).filter(|n| !here.contains(n)).collect();
    if all.is_empty() || all.len() >= here.len() {
        return None;
    }
    let shown: Vec<String> = all.iter().take(LISTED).map(u32::to_string).collect();
    let more = if all.len() > LISTED { format!(" and {} more", all.len() - LISTED) } else { String::new() };
    let (noun, verb) = if all.len() == 1 { ("rank", "is") } else { ("ranks", "are") };
    Some(format!(
        "{noun} {}{more} of {size} {verb} not recorded here now: ended, not recorded, or on another machine",
        shown.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tape::call::number;
    use tape::file::Rank as Part;
    use tape::live::{LiveEnd, LiveStream, LiveThread};

    /// A rank that launched so many collectives, the last `open` of which have not ended.
    fn rank(n: u32, launched: u64, open: u64) -> LiveProcess {
        let pid = 100 + n as i32;
        let work = |i: u64| LiveWork {
            function: number("cuLaunchKernel"),
            tsc: i * 1_000_000_000,
            tid: pid,
            name: "ncclDevKernel_AllReduce(x)".into(),
            ..LiveWork::default()
        };
        let c = LiveCollectives {
            stream: 7,
            launched,
            tid: pid,
            tsc: launched * 1_000_000_000,
            ..LiveCollectives::default()
        };
        let stream = LiveStream { stream: 7, work: (launched - open + 1..=launched).map(work).collect(), cut: false };
        let thread = LiveThread {
            tid: pid,
            name: "main".into(),
            state: state::SLEEPING.into(),
            system_call: Some("read".into()),
            ..LiveThread::default()
        };
        LiveProcess {
            pid,
            state: state::SLEEPING.into(),
            threads: vec![thread],
            streams: vec![stream],
            collectives: if launched > 0 { vec![c] } else { Vec::new() },
            rank: Some(Part { rank: n, world_size: Some(3), ..Part::default() }),
            ..LiveProcess::default()
        }
    }

    fn answer(first: Vec<LiveProcess>, second: Vec<LiveProcess>) -> Now {
        let look = |tsc, processes| Live { tsc, hz: 1e9, cut: false, processes };
        let mut now = Now::default();
        add(&mut now, &look(40_000_000_000, first), &look(40_100_000_000, second), &[]);
        now
    }

    fn twice(all: &[LiveProcess]) -> Now {
        answer(all.to_vec(), all.to_vec())
    }

    #[test]
    fn the_rank_that_has_launched_less_is_behind() {
        let now = twice(&[rank(0, 9, 1), rank(1, 8, 0), rank(2, 10, 2)]);
        let text = "rank 1 is behind: ranks 0 and 2 have launched ncclDevKernel_AllReduce (number 9 of its stream), 31.1 s ago, and it has not ended";
        let why = "rank 1, 32.1 s after its last one, has thread 101 (main), which sleeps in read";
        assert_eq!(now.answer, [text, why]);
        assert_eq!(now.ranks.iter().map(|r| (r.collectives, r.behind)).collect::<Vec<_>>(), [(9, 1), (8, 2), (10, 0)]);
        // One that has launched none, and one that has ended.
        let mut ended = LiveProcess { state: state::ENDED.into(), threads: Vec::new(), ..rank(2, 8, 0) };
        ended.ended = Some(LiveEnd { how: "killed by signal 9".into(), ..LiveEnd::default() });
        let now = twice(&[rank(0, 9, 9), rank(1, 0, 0)]);
        assert!(
            now.answer[1].starts_with("rank 1, which has launched none before, has thread 101"),
            "{:?}",
            now.answer
        );
        assert_eq!(now.answer[2], "rank 2 of 3 is not recorded here now: ended, not recorded, or on another machine");
        let now = twice(&[rank(0, 9, 1), rank(1, 9, 1), ended]);
        assert!(now.answer[1].ends_with("has ended (killed by signal 9)"), "{:?}", now.answer);
    }

    #[test]
    fn nobody_is_behind_if_it_goes_on_or_is_not_known() {
        // It has ended where it was launched, so the others belong to another group.
        assert!(twice(&[rank(0, 9, 0), rank(1, 8, 0), rank(2, 9, 0)]).answer.is_empty());
        // A rank goes on.
        let (slow, fast) = ([rank(0, 9, 1), rank(1, 8, 0)], [rank(0, 9, 1), rank(1, 9, 1)]);
        assert!(answer(slow.to_vec(), fast.to_vec()).answer.iter().all(|line| !line.contains("behind")));
        assert!(answer(fast.to_vec(), slow.to_vec()).answer.iter().all(|line| !line.contains("behind")));
        // Two jobs.
        let other = LiveProcess { pid: 300, ..rank(0, 8, 0) };
        assert!(twice(&[rank(0, 9, 1), rank(1, 9, 1), other]).not_followed[0].contains("several jobs"));
        // All wait.
        let now = twice(&[rank(0, 9, 1), rank(1, 9, 2), rank(2, 9, 1)]);
        assert!(
            now.answer[0].starts_with("all 3 ranks have launched ncclDevKernel_AllReduce (number 9"),
            "{:?}",
            now.answer
        );
        assert_eq!(now.ranks[1].collective.as_ref().map(|c| c.number), Some(8));
        assert!(twice(&[rank(0, 9, 1)]).ranks.is_empty());
    }

    #[test]
    fn a_rank_is_the_process_that_launches_not_its_shell_or_its_children() {
        let plain = |pid, parent, n| LiveProcess { pid, parent, streams: Vec::new(), ..rank(n, 0, 0) };
        let launcher = LiveProcess { rank: None, ..plain(50, 1, 0) };
        let mut main = rank(0, 9, 1);
        main.parent = 60;
        let all = [launcher, plain(60, 50, 0), main, plain(61, 100, 0), plain(70, 50, 1), plain(71, 70, 1)];
        let now = twice(&all);
        assert_eq!(now.ranks.iter().map(|r| (r.rank, r.pid)).collect::<Vec<_>>(), [(Some(0), 100), (Some(1), 70)]);
    }
}
