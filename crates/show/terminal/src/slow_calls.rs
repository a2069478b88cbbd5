//! Where the time of CUDA's calls went, and why the slowest were slow.

use crate::number::{bytes, count, nanoseconds, of};
use crate::symbols::{self, Named};
use crate::table::{self, Style, to_stdout};
use crate::{ReportError, json};
use decode::Recording;
use schema::slow_calls::{Cause, LinkRow, OfRow, PartRow, SlowCall, Why};
use slow_calls::Wanted;
use std::io::{self, Write};

/// Parts of a call's time below this share of it are left out.
const SMALL: u64 = 100;
/// Causes below this share of all calls' time get no advice.
const SHARE: u64 = 100;
/// Places that copy pageable memory.
const SITES: usize = 5;

/// Shows it on standard output.
pub fn print(r: &Recording, wanted: &Wanted, style: Style, as_json: bool) -> Result<(), ReportError> {
    let Some((mut why, places)) = slow_calls::why(r, wanted)? else {
        return Err(ReportError::NotRecorded { path: r.path().into(), what: "CUDA calls" });
    };
    let names = names(&why);
    why.symbols = ::symbols::look_up(&places, names.iter().map(String::as_str));
    if as_json {
        return json::document(&why);
    }
    let named = Named { places: &places, symbols: &why.symbols };
    to_stdout(|out| Ok(write(out, &why, wanted, named, style)?))
}

/// Shows the worst calls alone.
pub fn print_worst(r: &Recording, wanted: &Wanted, style: Style) -> Result<(), ReportError> {
    let Some((mut why, places)) = slow_calls::why(r, wanted)? else {
        return Err(ReportError::NotRecorded { path: r.path().into(), what: "CUDA calls" });
    };
    let names = names(&why);
    why.symbols = ::symbols::look_up(&places, names.iter().map(String::as_str));
    let named = Named { places: &places, symbols: &why.symbols };
    to_stdout(|out| Ok(why.worst.iter().try_for_each(|call| slow_call(out, call, named, style))?))
}

/// The places in the rows.
fn names(why: &Why) -> Vec<String> {
    let mut names: Vec<&str> = why.pageable.iter().map(|p| p.site.as_str()).collect();
    let gaps = why.between.worst.iter().flat_map(|gap| &gap.because).filter_map(|l| l.doing_what.as_ref());
    names.extend(gaps.map(|what| symbols::parts(what).0));
    for call in &why.worst {
        names.push(&call.site);
        let rows = call.parts.iter().flat_map(|p| &p.of);
        let links = rows.clone().flat_map(|o| &o.because);
        let locks = rows
            .map(|o| &o.what)
            .chain(links.clone().map(|l| &l.what))
            .chain(links.filter_map(|l| l.doing_what.as_ref()));
        names.extend(locks.map(|lock| symbols::parts(lock).0));
    }
    names.sort_unstable();
    names.dedup();
    names.into_iter().map(str::to_owned).collect()
}

fn write(out: &mut dyn Write, why: &Why, wanted: &Wanted, named: Named<'_>, style: Style) -> io::Result<()> {
    if let Some(because) = &why.saved_because {
        writeln!(out, "{} because of {because}", style.bold("saved"))?;
    }
    if why.calls == 0 {
        return writeln!(out, "no CUDA calls were made while it was recorded");
    }
    writeln!(out, "{} {} took {}", style.bold("calls"), count(why.calls), nanoseconds(why.ns))?;
    for because in &why.incomplete_because {
        writeln!(out, "  {}", style.bad(&format!("not complete: {because}")))?;
    }
    causes(out, why, style)?;
    if !why.not_watched.is_empty() {
        writeln!(out, "  (not watched: {})", why.not_watched.join("; "))?;
    }
    if let Some(stolen) = why.stolen_ns.filter(|ns| *ns > 0) {
        let stolen = nanoseconds(stolen);
        writeln!(out, "  (a hypervisor took {stolen} from this machine's CPUs meanwhile: not known from which calls)")?;
    }
    advice(out, why, style)?;
    pageable(out, why, named, style)?;
    unfinished(out, why, style)?;
    let from = nanoseconds(why.slow_from_ns);
    let after = if wanted.starting { "" } else { " after a process's first 1,000 launches and copies" };
    if let Some(number) = wanted.number {
        writeln!(out, "\n{} with number {number}: {}", style.bold("calls"), count(why.worst.len() as u64))?;
    } else if why.slow == 0 {
        writeln!(out, "\n{}: no call lost {from} or more{after}", style.good("no slow call"))?;
    } else {
        let lost = if why.slow == 1 { "call lost" } else { "calls lost" };
        writeln!(
            out,
            "\n{}: {} {lost} {from} or more{after}; the worst first",
            style.bold("slow calls"),
            count(why.slow)
        )?;
    }
    why.worst.iter().try_for_each(|call| slow_call(out, call, named, style))?;
    waits(out, why, named, style)?;
    between(out, why, named, style)
}

/// Those that were not shown as slow calls.
fn waits(out: &mut dyn Write, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    let is_shown = |call: &SlowCall| why.worst.iter().any(|w| (w.tsc, w.tid) == (call.tsc, call.tid));
    if why.waits.iter().all(is_shown) {
        return Ok(());
    }
    let (head, from) = (style.bold("waits for the GPU"), nanoseconds(why.slow_from_ns));
    let calls = if why.long_waits == 1 { "call waited" } else { "calls waited" };
    writeln!(out, "\n{head}: {} {calls} for {from} or more; the longest first", count(why.long_waits))?;
    why.waits.iter().filter(|call| !is_shown(call)).try_for_each(|call| slow_call(out, call, named, style))
}

fn between(out: &mut dyn Write, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    let b = &why.between;
    if b.gaps == 0 {
        return Ok(());
    }
    let title = style.bold("between calls");
    let (ns, longest) = (nanoseconds(b.ns), nanoseconds(b.longest_ns));
    writeln!(out, "\n{title}: waited for Python's lock (GIL) {}, {ns}, {longest} at the longest", times(b.gaps))?;
    b.worst.iter().try_for_each(|gap| {
        let thread = if gap.thread.is_empty() { String::new() } else { format!(" ({})", gap.thread) };
        let before = if gap.number == 0 { gap.call.clone() } else { format!("{}, call {},", gap.call, gap.number) };
        let (at, tid, ns) = (gap.at, gap.tid, nanoseconds(gap.ns));
        writeln!(out, "{at:>11.6} s  before {before} of thread {tid}{thread}: {ns}")?;
        gap.because.iter().try_for_each(|link| writeln!(out, "{:16}{}", "", because(link, named)))
    })
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{} times", count(n)) }
}

fn causes(out: &mut dyn Write, why: &Why, style: Style) -> io::Result<()> {
    let mut t = style.table(&["where the time went", ">time", ">share", ">calls", ">longest", ">while starting", ""]);
    for c in &why.causes {
        t.add_row([
            c.cause.name().to_owned(),
            nanoseconds(c.ns),
            percent(c.ns, why.ns),
            count(c.calls),
            nanoseconds(c.longest_ns),
            if c.starting_ns == 0 { "-".into() } else { nanoseconds(c.starting_ns) },
            if c.cause.is_by_design() { "by design".into() } else { String::new() },
        ]);
    }
    table::write(out, &t, 2)
}

fn advice(out: &mut dyn Write, why: &Why, style: Style) -> io::Result<()> {
    let later = |c: &&schema::slow_calls::CauseRow| c.ns.saturating_sub(c.starting_ns);
    let worth: Vec<_> = why.causes.iter().filter(|c| later(c) > 0 && later(c) >= why.ns / SHARE).collect();
    let mut title = style.bold("what to do");
    for c in worth {
        let Some(text) = c.advice else { continue };
        if !title.is_empty() {
            writeln!(out, "\n{}", std::mem::take(&mut title))?;
        }
        let head = format!("  {}: ", c.cause.name());
        let text = format!("{text}; saves up to {}", nanoseconds(later(&c)));
        wrapped(out, style, &head, &text)?;
    }
    Ok(())
}

/// A head, with the text next to it in as many lines as it needs.
fn wrapped(out: &mut dyn Write, style: Style, head: &str, text: &str) -> io::Result<()> {
    for (i, line) in style.wrapped(text, head.chars().count()).iter().enumerate() {
        let head = if i == 0 { head.to_owned() } else { " ".repeat(head.chars().count()) };
        writeln!(out, "{head}{line}")?;
    }
    Ok(())
}

fn pageable(out: &mut dyn Write, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    if why.pageable.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("copies of pageable memory"))?;
    let mut t = style.table(&["from", "call", ">calls", ">bytes", ">time"]);
    for p in why.pageable.iter().take(SITES) {
        t.add_row([named.site(&p.site), p.call.clone(), count(p.calls), bytes(p.bytes), nanoseconds(p.ns)]);
    }
    table::write(out, &t, 2)
}

fn unfinished(out: &mut dyn Write, why: &Why, style: Style) -> io::Result<()> {
    if why.unfinished == 0 {
        return Ok(());
    }
    let had = style.bold("not returned");
    writeln!(out, "\n{had}: {} when the thread, or the recording, ended", of(why.unfinished, "call"))?;
    for u in &why.first_unfinished {
        let thread = if u.thread.is_empty() { String::new() } else { format!(" ({})", u.thread) };
        writeln!(out, "{:>11.6} s  {} of thread {}{thread}, for {}", u.at, u.call, u.tid, nanoseconds(u.ns))?;
    }
    Ok(())
}

/// The time that the verdict is about: the lost part, if that is the smaller one. (A wait by design may be long.)
fn took(c: &SlowCall) -> String {
    let by_design = c.cause.is_none_or(Cause::is_by_design);
    match c.lost_ns < c.ns / 2 && !by_design {
        true => format!("{}, {} of it lost", nanoseconds(c.ns), nanoseconds(c.lost_ns)),
        false => nanoseconds(c.ns),
    }
}

fn slow_call(out: &mut dyn Write, c: &SlowCall, named: Named<'_>, style: Style) -> io::Result<()> {
    let thread = if c.thread.is_empty() { String::new() } else { format!(" ({})", c.thread) };
    let verdict = match c.cause {
        Some(cause) if cause.is_by_design() => style.good(cause.name()),
        Some(cause) => style.bad(cause.name()),
        None => style.good("by design"),
    };
    let kernel = c.kernel.as_ref().map_or_else(String::new, |k| format!(" of {k}"));
    writeln!(
        out,
        "\n{:>11.6} s  {}{kernel}, {} of thread {}{thread}: {}, {verdict}",
        c.at,
        c.call,
        if c.number == 0 { "a call".into() } else { format!("call {}", c.number) },
        c.tid,
        took(c),
    )?;
    if c.host_functions > 0 {
        let functions = of(c.host_functions, "function of the host's");
        writeln!(out, "                its stream had {functions} to wait for (cudaLaunchHostFunc)")?;
    }
    for p in c.parts.iter().filter(|p| p.ns >= c.ns / SMALL) {
        part(out, p, c.tid, named)?;
    }
    if let (Some(advice), Some(saves)) = (&c.advice, c.saves_ns) {
        let text = format!("{advice}; saves up to {}", nanoseconds(saves));
        wrapped(out, style, &format!("{:16}", ""), &text)?;
    }
    writeln!(out, "                called at {}", named.site(&c.site))
}

fn part(out: &mut dyn Write, p: &PartRow, tid: i32, named: Named<'_>) -> io::Result<()> {
    writeln!(out, "{:16}{:>9}  {}", "", nanoseconds(p.ns), p.cause.name())?;
    for row in p.of.iter().filter(|row| row.ns >= p.ns / 10) {
        match p.cause {
            Cause::PageFault => faults(out, row)?,
            Cause::Engine | Cause::Queue | Cause::Gpu => kernels(out, row)?,
            _ => piece(out, row, tid, named)?,
        }
    }
    Ok(())
}

fn faults(out: &mut dyn Write, row: &OfRow) -> io::Result<()> {
    let waited = if row.what == "major" { ": the page was read from a disk, or waited for" } else { "" };
    let faults = of(row.times, &format!("{} fault", row.what));
    writeln!(out, "{:16}{:>9}    {faults}{waited}", "", nanoseconds(row.ns))
}

fn kernels(out: &mut dyn Write, row: &OfRow) -> io::Result<()> {
    let ran = if row.times > 1 { format!(", {} times", count(row.times)) } else { String::new() };
    let at_most = if row.at_most { ", at most: only bounds are known" } else { "" };
    writeln!(out, "{:16}{:>9}    {}{ran}{at_most}", "", nanoseconds(row.ns), row.what)
}

/// `tid`: the waiting thread.
fn piece(out: &mut dyn Write, row: &OfRow, tid: i32, named: Named<'_>) -> io::Result<()> {
    let what = if row.what.is_empty() { "not known for what".into() } else { named.lock(&row.what) };
    writeln!(out, "{:16}{:>9}    {what}", "", nanoseconds(row.ns))?;
    if let Some(free) = row.free_ns.filter(|free| *free >= row.ns / 4) {
        let free = nanoseconds(free);
        writeln!(
            out,
            "{:29}no thread held it for {free} of that: the waiting thread was not woken, or had no CPU",
            ""
        )?;
    }
    for (i, link) in row.because.iter().enumerate() {
        writeln!(out, "{:29}{}", "", because(link, named))?;
        let earlier = row.because.iter().take(i).map(|l| l.tid);
        if std::iter::once(tid).chain(earlier).any(|t| t == link.tid) {
            writeln!(out, "{:29}a cycle: thread {} waits for a thread that waits for it", "", link.tid)?;
        }
    }
    Ok(())
}

/// `thread 7 (worker) held it for 3 ms inside cudaHostRegister, of that 2.9 ms in ...`
fn because(l: &LinkRow, named: Named<'_>) -> String {
    let thread =
        if l.thread.is_empty() { format!("thread {}", l.tid) } else { format!("thread {} ({})", l.tid, l.thread) };
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

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / of.max(1) as f64)
}
