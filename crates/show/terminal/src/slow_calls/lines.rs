//! Why one call was slow, line by line: for `why`, and for a page.

use crate::calls::holds_others;
use crate::number::{count, nanoseconds, of};
use schema::names::{Named, thread};
use schema::slow_calls::{Cause, LinkRow, OfRow, PartRow, SlowCall};

/// Parts of a call's time below this share of it are left out.
const SMALL: u64 = 100;

/// A line below the head of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    /// 0: a part of the call, or a remark. 1: what the part is made of. 2: who caused that.
    pub depth: usize,
    /// How long.
    pub ns: Option<u64>,
    pub text: String,
}

fn remark(depth: usize, text: String) -> Line {
    Line { depth, ns: None, text }
}

/// The parts of a call's time, what is known of each, and where it was called.
pub fn of_call(c: &SlowCall, named: Named<'_>) -> Vec<Line> {
    let mut all = Vec::new();
    if c.host_functions > 0 {
        let functions = of(c.host_functions, "function of the host's");
        all.push(remark(0, format!("its stream had {functions} to wait for (cudaLaunchHostFunc)")));
    }
    c.parts.iter().filter(|p| p.ns >= c.ns / SMALL).for_each(|p| all.extend(of_part(p, c.tid, named)));
    if let (Some(advice), Some(saves)) = (&c.advice, c.saves_ns) {
        all.push(remark(0, format!("{advice}; saves up to {}", nanoseconds(saves))));
    }
    all.push(remark(0, format!("called at {}", named.site(&c.site))));
    all
}

/// A part of the time of a call of thread `tid`.
pub fn of_part(p: &PartRow, tid: i32, named: Named<'_>) -> Vec<Line> {
    let mut all = vec![Line { depth: 0, ns: Some(p.ns), text: p.cause.name().into() }];
    for row in p.of.iter().filter(|row| row.ns >= p.ns / 10) {
        let text = match p.cause {
            Cause::PageFault => faults(row),
            Cause::Engine | Cause::Queue | Cause::Gpu => kernels(row),
            _ if row.what.is_empty() => "not known for what".into(),
            _ => named.lock(&row.what),
        };
        all.push(Line { depth: 1, ns: Some(row.ns), text });
        if let Some(free) = row.free_ns.filter(|free| *free >= row.ns / 4) {
            let free = nanoseconds(free);
            let why = "the waiting thread was not woken, or had no CPU";
            all.push(remark(2, format!("no thread held it for {free} of that: {why}")));
        }
        for (i, link) in row.because.iter().enumerate() {
            all.push(remark(2, because(link, named)));
            if let (Some(call), Some(holds)) = (&link.call, &link.holds_others) {
                let held = holds_others(holds);
                all.push(remark(2, format!("measured on an {}: {call} holds others up for {held}", holds.gpu)));
            }
            let earlier = row.because.iter().take(i).map(|l| l.tid);
            if std::iter::once(tid).chain(earlier).any(|t| t == link.tid) {
                all.push(remark(2, format!("a cycle: thread {} waits for a thread that waits for it", link.tid)));
            }
        }
    }
    all
}

fn faults(row: &OfRow) -> String {
    let waited = if row.what == "major" { ": the page was read from a disk, or waited for" } else { "" };
    format!("{}{waited}", of(row.times, &format!("{} fault", row.what)))
}

fn kernels(row: &OfRow) -> String {
    let ran = if row.times > 1 { format!(", {} times", count(row.times)) } else { String::new() };
    let at_most = if row.at_most { ", at most: only bounds are known" } else { "" };
    format!("{}{ran}{at_most}", row.what)
}

/// `thread 7 (worker) held it for 3 ms inside cudaHostRegister, of that 2.9 ms in ...`
pub fn because(l: &LinkRow, named: Named<'_>) -> String {
    let thread = thread(l.tid, &l.thread);
    let inside = l.call.as_ref().map_or_else(String::new, |call| format!(" inside {call}"));
    let time = nanoseconds(l.ns);
    let did = match l.how {
        "held" if l.times > 1 => format!("{thread} held it {} times, for {time} of that{inside}", count(l.times)),
        "held" => format!("{thread} held it for {time} of that{inside}"),
        "signalled" => format!("{thread} signalled it after {time}{inside}"),
        _ => return format!("meanwhile {thread} was in {} for {time} of that{inside}", l.what),
    };
    let what = l.doing_what.as_ref().map(|what| named.lock(what));
    let doing = nanoseconds(l.doing_ns);
    let why = match (l.doing, what) {
        (Cause::Lock, Some(lock)) => format!("waited {doing} for {lock} itself"),
        (Cause::Condition, Some(what)) => format!("waited {doing} for {what}"),
        (Cause::DriverCall, Some(call)) => format!("{doing} in {call}"),
        (Cause::Preempted, Some(by)) => format!("{doing} without its CPU, which {by} had"),
        (Cause::Preempted, None) => format!("{doing} without its CPU"),
        (Cause::PageFault, _) => format!("{doing} in page faults"),
        (Cause::Asleep, _) => format!("asleep for {doing}"),
        _ => format!("on a CPU for {doing}"),
    };
    let longest = if l.times > 1 { "at the longest " } else { "" };
    format!("{did}: {longest}{why}")
}
