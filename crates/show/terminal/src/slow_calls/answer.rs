//! The answer in a sentence: which call of which thread lost how long, to what, and which thread held it up.

use super::lines::because;
use crate::number::{nanoseconds, of};
use schema::names::{Named, thread};
use schema::slow_calls::{Cause, FixRow, LinkRow, Moment, SlowCall, UnfinishedRow, Why};

/// Who waited for whom at the end; then sentences about the call that lost the most, and the first one that another thread held up; or
/// that no call is slow.
pub fn answer(why: &Why, named: Named<'_>) -> Vec<String> {
    let mut all = at_the_end(why);
    if why.calls == 0 {
        all.push("No CUDA call was made while it was recorded.".into());
        return all;
    }
    match (why.worst.first(), why.between.worst.first()) {
        (Some(c), _) => {
            let other = why.worst.iter().find(|c| is_held_up(c)).filter(|_| !is_held_up(c));
            all.extend([Some(c), other].into_iter().flatten().map(|c| lost(c, has_not_returned(why, c), named)));
        }
        (None, _) if !all.is_empty() => {}
        (None, Some(gap)) => {
            let by = gap.because.first().map_or_else(String::new, |link| format!(": {}", because(link, named)));
            let (thread, ns) = (thread(gap.tid, &gap.thread), nanoseconds(gap.ns));
            all.push(format!(
                "No CUDA call was slow. Before {}, {thread} waited {ns} for Python's lock{by}.",
                gap.call
            ));
        }
        (None, None) => all.push(format!("No CUDA call lost {} or more.", nanoseconds(why.slow_from_ns))),
    }
    all.extend(why.fixes.iter().filter(|f| f.not_with.is_empty()).map(fix));
    all
}

/// The slow calls that were left out, and the option that includes them.
pub fn left_out(why: &Why) -> Option<String> {
    let (calls, from) = (of(why.slow_starting, "call"), nanoseconds(why.slow_from_ns));
    (why.slow_starting > 0).then(|| {
        format!("{calls} lost {from} or more in a process's first 1,000 launches and copies: `doorbell why --starting` has them.")
    })
}

/// How many calls are slow.
pub fn slow(why: &Why) -> String {
    format!("{} lost {} or more; the worst first", of(why.slow, "call"), nanoseconds(why.slow_from_ns))
}

/// `when the recording ended: cycle: ...`
fn at_the_end(why: &Why) -> Vec<String> {
    let of = |m: &Moment| m.now.answer.iter().map(|line| format!("{}: {line}", m.when)).collect();
    why.moment.as_ref().map(of).unwrap_or_default()
}

fn has_not_returned(why: &Why, c: &SlowCall) -> bool {
    let is = |u: &UnfinishedRow| (u.pid, u.tid, u.number, u.call.as_str()) == (c.pid, c.tid, c.number, c.call.as_str());
    why.first_unfinished.iter().any(is)
}

/// Its largest loss is due to a thread that had a lock, or had to act first.
fn is_held_up(c: &SlowCall) -> bool {
    let part = c.parts.iter().find(|p| Some(p.cause) == c.cause);
    part.and_then(|p| p.of.first()?.because.first()).is_some_and(|link| link.how != "meanwhile")
}

fn lost(c: &SlowCall, unfinished: bool, named: Named<'_>) -> String {
    let thread = thread(c.tid, &c.thread);
    let kernel = c.kernel.as_ref().map_or_else(String::new, |k| format!(" ({k})"));
    let time = nanoseconds(c.lost_ns);
    let of_all = if c.lost_ns < c.ns / 10 * 9 { format!(" of its {}", nanoseconds(c.ns)) } else { String::new() };
    let part = c.parts.iter().find(|p| Some(p.cause) == c.cause);
    let most = part.filter(|p| p.ns < c.lost_ns / 10 * 9);
    let most = most.map_or_else(String::new, |p| format!(", {} of it", nanoseconds(p.ns)));
    let row = part.and_then(|p| p.of.first());
    let what = row.map_or("", |row| row.what.as_str());
    let to = to(c.cause, &named.lock(what));
    let by = row.and_then(|row| row.because.first()).map_or_else(String::new, by);
    let end = if unfinished { "; it had not returned" } else { "" };
    format!("{}{kernel} of {thread} lost {time}{of_all}{most} to {to}{by}{end}.", c.call)
}

fn fix(f: &FixRow) -> String {
    let (calls, ns, name) = (of(f.calls, "slow call"), nanoseconds(f.ns), f.fix);
    format!("Without a change of the program: `doorbell run --fix={name}` would have saved up to {ns} of {calls}.")
}

/// What time was lost to.
fn to(cause: Option<Cause>, what: &str) -> String {
    let is_named = !what.is_empty();
    let text = match cause {
        Some(Cause::Lock) if is_named => return format!("the lock {what}"),
        Some(Cause::Lock) => "a lock",
        Some(Cause::Condition) if is_named => return format!("a wait for {what}"),
        Some(Cause::Condition) => "a wait for another thread",
        Some(Cause::Preempted) if is_named => return format!("the loss of its CPU, which {what} had"),
        Some(Cause::Preempted) => "the loss of its CPU",
        Some(Cause::DriverCall) => "a driver call",
        Some(Cause::Memory) => "the allocation or release of memory",
        Some(Cause::Making) => "the making of objects",
        Some(Cause::CodeLoading) => "the loading of code",
        Some(Cause::GraphUpload) => "the upload of a graph",
        Some(Cause::FullRing) => "a full ring",
        Some(Cause::HostFunction) => "a host function",
        Some(Cause::Queue) => "work that had not started on the GPU",
        Some(Cause::PageFault) => return "page faults".into(),
        Some(Cause::Pageable) => "a copy of pageable memory",
        Some(Cause::Asleep) => "sleep, for a reason that is not recorded",
        Some(Cause::Unknown) | None => "an unknown cause, while it was on a CPU",
        Some(cause @ (Cause::Usual | Cause::Gpu | Cause::Engine)) => cause.name(),
    };
    if is_named { format!("{text} ({what})") } else { text.into() }
}

/// Who held it, or signalled it, and in which call.
fn by(l: &LinkRow) -> String {
    let thread = thread(l.tid, &l.thread);
    let inside = l.call.as_ref().map_or_else(String::new, |call| format!(" inside {call}"));
    match l.how {
        "held" => format!(", which {thread} held{inside}"),
        "signalled" => format!(", which {thread} signalled{inside}"),
        _ => format!(", while {thread} was in {}", l.what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::names::Named;
    use schema::now::Now;
    use schema::slow_calls::{OfRow, PageFaults, PartRow};
    use schema::symbols::{Places, Symbols};

    fn call(lost_ns: u64, cause: Cause, what: &str, because: Vec<LinkRow>) -> SlowCall {
        let of = OfRow { what: what.into(), ns: lost_ns, times: 1, at_most: false, free_ns: None, because };
        SlowCall {
            at: 0.0,
            tsc: 0,
            process: 0,
            pid: 1,
            tid: 7,
            thread: "main".into(),
            call: "cuLaunchKernel".into(),
            number: 3,
            kernel: Some("gemm".into()),
            size: 0,
            stream: 0,
            site: String::new(),
            ns: 4_000_000,
            lost_ns,
            cause: Some(cause),
            parts: vec![PartRow { cause, ns: lost_ns / 2, of: vec![of] }],
            pageable_bytes: 0,
            host_functions: 0,
            page_faults: PageFaults::default(),
            advice: None,
            saves_ns: None,
        }
    }

    fn link() -> LinkRow {
        LinkRow {
            pid: 1,
            tid: 8,
            thread: String::new(),
            how: "signalled",
            what: String::new(),
            ns: 1,
            times: 1,
            call: Some("cuMemFree".into()),
            holds_others: None,
            doing: Cause::Unknown,
            doing_what: None,
            doing_ns: 1,
        }
    }

    fn said(why: Why) -> Vec<String> {
        answer(&Why { calls: 9, ..why }, Named { places: &Places::default(), symbols: &Symbols::default() })
    }

    #[test]
    fn a_part_of_a_call_and_its_largest_cause_are_told_apart() {
        let worst = vec![call(2_000_000, Cause::Condition, "app+0x1/cond", vec![link()])];
        assert_eq!(
            said(Why { worst, ..Why::default() }),
            [
                "cuLaunchKernel (gemm) of thread 7 (main) lost 2.00 ms of its 4.00 ms, 1.00 ms of it to a wait for app+0x1/cond, which thread 8 signalled \
              inside cuMemFree."
            ]
        );
    }

    #[test]
    fn the_first_call_that_another_thread_held_up_is_named_if_the_worst_is_none() {
        let lost = |ns, because| call(ns, Cause::Memory, "RM_ALLOC", because);
        let held = lost(1_000_000, vec![LinkRow { how: "held", ..link() }]);
        let worst = vec![
            lost(3_000_000, vec![LinkRow { how: "meanwhile", ..link() }]),
            lost(2_000_000, Vec::new()),
            held.clone(),
        ];
        let all = said(Why { worst, ..Why::default() });
        assert_eq!(all.len(), 2, "{all:?}");
        assert!(
            all[0].contains("lost 3.00 ms")
                && all[1].contains("lost 1.00 ms")
                && all[1].contains(", which thread 8 held")
        );
        assert_eq!(said(Why { worst: vec![held.clone(), held], ..Why::default() }).len(), 1);
    }

    #[test]
    fn a_slow_call_that_did_not_return_is_known_by_its_number() {
        let unfinished = |number, ns| UnfinishedRow {
            at: 0.0,
            pid: 1,
            tid: 7,
            thread: "main".into(),
            call: "cuLaunchKernel".into(),
            number,
            ns,
        };
        let with = |number, ns| {
            let worst = vec![call(4_000_000, Cause::DriverCall, "RM_ALLOC", Vec::new())];
            said(Why { worst, first_unfinished: vec![unfinished(number, ns)], ..Why::default() })
        };
        let lost = "cuLaunchKernel (gemm) of thread 7 (main) lost 4.00 ms, 2.00 ms of it to a driver call (RM_ALLOC)";
        assert_eq!(with(3, 4_000_001), [format!("{lost}; it had not returned.")]);
        assert_eq!(with(4, 5_000_000), [format!("{lost}.")]);
    }

    #[test]
    fn the_end_comes_first() {
        let now = Now { answer: vec!["cycle: one".into(), "chain: two".into()], ..Now::default() };
        let moment = Some(Moment { when: "when the recording ended".into(), now });
        let all = said(Why { moment, ..Why::default() });
        assert_eq!(all[..2], ["when the recording ended: cycle: one", "when the recording ended: chain: two"]);
    }
}
