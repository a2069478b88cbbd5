//! Where the time of CUDA's calls went, and why the slowest were slow.

mod answer;
pub mod lines;

pub use answer::{answer, left_out, slow};

use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{self, Out, Style};
use schema::names::Named;
use schema::slow_calls::{Cause, CauseRow, SlowCall, Why};
use std::io::{self, Write};

/// Causes below this share of all calls' time get no advice.
const SHARE: u64 = 100;
/// Places that copy pageable memory.
const SITES: usize = 5;

/// The answer alone, and where the call was made.
pub fn write_answer(out: &mut dyn Write, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    sentences(out, why, named, style)?;
    why.worst.iter().take(1).try_for_each(|call| writeln!(out, "  called at {}", named.site(&call.site)))
}

fn sentences(out: &mut dyn Write, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    let all = answer(why, named).into_iter().flat_map(|sentence| style.wrapped(&sentence, 0));
    all.into_iter().try_for_each(|line| writeln!(out, "{}", style.bold(&line)))
}

/// Writes all of it. `number`: the number of the calls, if they were chosen by it.
pub fn write(out: &mut dyn Out, why: &Why, number: Option<u32>, named: Named<'_>, style: Style) -> io::Result<()> {
    if let Some(because) = &why.saved_because {
        writeln!(out, "{} because of {because}", style.bold("saved"))?;
    }
    sentences(out, why, named, style)?;
    if why.calls == 0 {
        return Ok(());
    }
    unfinished(out, why, style)?;
    writeln!(out, "\n{} {} took {}", style.bold("calls"), count(why.calls), nanoseconds(why.ns))?;
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
    pageable(out, why, named, style)?;
    if let Some(number) = number {
        writeln!(out, "\n{} with number {number}: {}", style.bold("calls"), count(why.worst.len() as u64))?;
    } else if why.slow > 0 {
        writeln!(out, "\n{}: {}", style.bold("slow calls"), slow(why))?;
    }
    why.worst.iter().try_for_each(|call| slow_call(out, call, named, style))?;
    if let Some(text) = left_out(why) {
        writeln!(out, "\n{text}")?;
    }
    waits(out, why, named, style)
}

/// Waits for the GPU that were not shown as slow calls, then waits between calls.
pub fn waits(out: &mut dyn Write, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    let is_shown = |call: &SlowCall| why.worst.iter().any(|w| (w.tsc, w.tid) == (call.tsc, call.tid));
    if !why.waits.iter().all(is_shown) {
        let (head, from) = (style.bold("waits for the GPU"), nanoseconds(why.slow_from_ns));
        let calls = if why.long_waits == 1 { "call waited" } else { "calls waited" };
        writeln!(out, "\n{head}: {} {calls} for {from} or more; the longest first", count(why.long_waits))?;
        let others = why.waits.iter().filter(|call| !is_shown(call));
        others.into_iter().try_for_each(|call| slow_call(out, call, named, style))?;
    }
    between(out, why, named, style)
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
        gap.because.iter().try_for_each(|link| writeln!(out, "{:16}{}", "", lines::because(link, named)))
    })
}

fn times(n: u64) -> String {
    if n == 1 { "once".into() } else { format!("{} times", count(n)) }
}

/// Each with what to do below it, or below all of them.
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
    let to_do = |out: &mut dyn Write, c: &CauseRow, head: &str| match advice_for(c, why) {
        Some(text) => wrapped(out, style, head, &text),
        None => Ok(()),
    };
    let mut text = Vec::new();
    table::write(&mut text, &t, 2)?;
    let text = String::from_utf8_lossy(&text);
    // (On a narrow terminal a row has several lines, or a line below names the columns that were left out.)
    let rows = text.lines().count().saturating_sub(1) == why.causes.len();
    if !rows {
        out.write_all(text.as_bytes())?;
        return why.causes.iter().try_for_each(|c| to_do(out, c, &format!("  {}: ", c.cause.name())));
    }
    let mut lines = text.lines();
    lines.next().map_or(Ok(()), |head| writeln!(out, "{head}"))?;
    lines.zip(&why.causes).try_for_each(|(line, c)| {
        writeln!(out, "{line}")?;
        to_do(out, c, "      ")
    })
}

/// A remedy for a cause that took enough time after the start, and how much it saves at most.
pub fn advice_for(c: &CauseRow, why: &Why) -> Option<String> {
    let later = c.ns.saturating_sub(c.starting_ns);
    let text = c.advice.filter(|_| later > 0 && later >= why.ns / SHARE)?;
    Some(format!("{text}; saves up to {}", nanoseconds(later)))
}

/// A head, with the text next to it in as many lines as it needs.
fn wrapped(out: &mut dyn Write, style: Style, head: &str, text: &str) -> io::Result<()> {
    for (i, line) in style.wrapped(text, head.chars().count()).iter().enumerate() {
        let head = if i == 0 { head.to_owned() } else { " ".repeat(head.chars().count()) };
        writeln!(out, "{head}{line}")?;
    }
    Ok(())
}

/// Copies of pageable memory.
pub fn pageable(out: &mut dyn Out, why: &Why, named: Named<'_>, style: Style) -> io::Result<()> {
    if why.pageable.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("copies of pageable memory"))?;
    let mut t = style.table(&["from", "call", ">calls", ">bytes", ">time"]);
    for p in why.pageable.iter().take(SITES) {
        t.add_row([named.site(&p.site), p.call.clone(), count(p.calls), bytes(p.bytes), nanoseconds(p.ns)]);
    }
    out.table(&t, 2)
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

/// `cuLaunchKernel of gemm, call 7`
pub fn called(c: &SlowCall) -> String {
    let kernel = c.kernel.as_ref().map_or_else(String::new, |k| format!(" of {k}"));
    let number = if c.number == 0 { "a call".into() } else { format!("call {}", c.number) };
    format!("{}{kernel}, {number}", c.call)
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
    writeln!(out, "\n{:>11.6} s  {} of thread {}{thread}: {}, {verdict}", c.at, called(c), c.tid, took(c))?;
    for line in lines::of_call(c, named) {
        match line.ns {
            Some(ns) => {
                let gap = " ".repeat(2 + 2 * line.depth);
                writeln!(out, "{:16}{:>9}{gap}{}", "", nanoseconds(ns), line.text)?;
            }
            None if line.depth == 0 => wrapped(out, style, &format!("{:16}", ""), &line.text)?,
            None => writeln!(out, "{:29}{}", "", line.text)?,
        }
    }
    Ok(())
}

fn percent(part: u64, of: u64) -> String {
    format!("{:.1} %", part as f64 * 100.0 / of.max(1) as f64)
}
