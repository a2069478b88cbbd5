//! Who waits for whom at this moment.

use crate::number::{nanoseconds, of};
use crate::table::{Style, write as write_table};
use schema::now::{Now, NowThread, NowWait};
use schema::now_ranks::NowRank;
use std::io::{self, Write};

/// Maximum number of threads in the table.
const ROWS: usize = 40;
/// And of those that wait for a condition, and for which nobody waits.
const IDLE: usize = 5;

pub fn write(out: &mut dyn Write, now: &Now, style: Style) -> io::Result<()> {
    for line in now.answer.iter().flat_map(|line| style.wrapped(line, 0)) {
        writeln!(out, "{}", style.bold(&line))?;
    }
    ranks(out, &now.ranks, style)?;
    let mut table = style.table(&[">thread", "!name", "!waits for", ">for", "held by", "call", ">for", "state"]);
    // (A pool of threads that wait for something to do says little.)
    let is_idle = |t: &&NowThread| {
        t.call.is_none() && t.keeps_waiting == 0 && t.waits.as_ref().is_some_and(|w| w.holder == "signal")
    };
    let (idle, busy): (Vec<&NowThread>, Vec<&NowThread>) = now.threads.iter().partition(is_idle);
    let shown: Vec<&NowThread> = busy.into_iter().take(ROWS).chain(idle.into_iter().take(IDLE)).collect();
    for t in &shown {
        table.add_row(row(t));
    }
    if !table.is_empty() {
        writeln!(out)?;
        write_table(out, &table, 0)?;
    }
    if let left @ 1.. = now.threads.len() - shown.len() {
        writeln!(out, "and {} more (--json has all)", of(left as u64, "thread"))?;
    }
    shown.iter().try_for_each(|t| stack(out, t))?;
    let looks = nanoseconds(now.apart_ns);
    let who = match (now.recorders.len() as u64, now.program.as_str()) {
        (n @ 1.., _) => of(n, "recorded program"),
        (_, "") => format!("process {}", now.pid),
        (_, program) => format!("{program} ({})", now.pid),
    };
    writeln!(out, "\n{who}: {} looked at twice, {looks} apart", of(now.looked_at as u64, "thread"))?;
    now.not_followed.iter().try_for_each(|what| writeln!(out, "not followed: {what}"))
}

/// A line for each rank.
fn ranks(out: &mut dyn Write, all: &[NowRank], style: Style) -> io::Result<()> {
    let mut table =
        style.table(&[">rank", ">process", "!program", ">collectives", "!is in", ">for", ">behind by", "!does"]);
    for r in all {
        let call = r.call.as_ref().map(|c| (c.name.clone(), c.ns));
        let (is_in, ns) = match r.collective.as_ref().map(|c| (c.name.clone(), c.ns)).or(call) {
            Some((name, ns)) => (name, nanoseconds(ns)),
            None => ("-".into(), "-".into()),
        };
        table.add_row([
            r.rank.map_or_else(|| "-".into(), |n| n.to_string()),
            r.pid.to_string(),
            if r.program.is_empty() { "-".into() } else { r.program.clone() },
            r.collectives.to_string(),
            is_in,
            ns,
            if r.behind == 0 { "-".into() } else { r.behind.to_string() },
            r.does.clone(),
        ]);
    }
    if !table.is_empty() {
        writeln!(out)?;
        write_table(out, &table, 0)?;
    }
    Ok(())
}

/// The calls that a thread is in.
fn stack(out: &mut dyn Write, t: &NowThread) -> io::Result<()> {
    let name = if t.thread.is_empty() { String::new() } else { format!(" ({})", t.thread) };
    if let Some(why) = &t.no_stack {
        return writeln!(out, "\nthread {}{name}: no stack: {why}", t.tid);
    }
    if t.stack.is_empty() {
        return Ok(());
    }
    writeln!(out, "\nthread {}{name} is in", t.tid)?;
    let mut is_certain = true;
    for f in &t.stack {
        if is_certain && !f.certain {
            is_certain = false;
            writeln!(out, "  from here on calls found on the stack, some may be old:")?;
        }
        let named = f.function.as_ref().map_or_else(|| f.place.clone(), |name| format!("{name} ({})", f.place));
        match &f.source {
            Some(source) => writeln!(out, "  {named} at {source}")?,
            None => writeln!(out, "  {named}")?,
        }
    }
    Ok(())
}

fn row(t: &NowThread) -> [String; 8] {
    let none = || "-".to_owned();
    let wait = |f: &dyn Fn(&NowWait) -> String| t.waits.as_ref().map_or_else(none, f);
    let call = t.call.as_ref();
    let state = t.system_call.as_ref().map_or_else(|| t.state.clone(), |name| format!("{} in {name}", t.state));
    [
        t.tid.to_string(),
        if t.thread.is_empty() { none() } else { t.thread.clone() },
        t.joins.map_or_else(|| wait(&|w| w.lock.clone()), |tid| format!("end of thread {tid}")),
        wait(&|w| nanoseconds(w.ns)),
        wait(&held_by),
        call.map_or_else(none, |c| c.name.clone()),
        call.map_or_else(none, |c| nanoseconds(c.ns)),
        state,
    ]
}

fn held_by(w: &NowWait) -> String {
    let of = |h: &schema::now::NowHolder| match (h.how, h.tid) {
        (_, 0) => "another reader".to_owned(),
        ("queues", tid) => format!("{tid} (waits to write)"),
        ("reads", tid) => format!("{tid} (reads)"),
        (_, tid) => tid.to_string(),
    };
    match w.holder {
        "known" => w.holders.iter().map(of).collect::<Vec<_>>().join(", "),
        "signal" => "-".into(),
        "free" => "nobody".into(),
        "changes" => "different threads".into(),
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::now::{NowCall, NowFrame, NowHolder};

    #[test]
    fn the_answer_is_first_and_each_holder_is_named() {
        let holder = |tid, how| NowHolder { tid, how, ns: None };
        let wait = |holders, how| NowWait {
            lock: "app+0x40/mutex".into(),
            ns: 2_000_000_000,
            holders,
            holder: how,
            ..NowWait::default()
        };
        let thread =
            |tid, waits| NowThread { tid, thread: "a".into(), state: "sleeping".into(), waits, ..NowThread::default() };
        let call = NowCall { name: "cuStreamSynchronize".into(), ns: 3_000_000_000, ..NowCall::default() };
        let frame = |place: &str, certain| NowFrame { place: place.into(), certain, ..NowFrame::default() };
        let named = NowFrame { function: Some("push".into()), source: Some("a.c:4".into()), ..frame("app+0x2", true) };
        let stack = [frame("libc+0x1", true), named, frame("app+0x3", false)].to_vec();
        let now = Now {
            answer: vec!["cycle: one".into()],
            threads: vec![
                thread(1, Some(wait(vec![holder(2, "holds")], "known"))),
                thread(2, Some(wait(vec![holder(3, "reads"), holder(0, "reads")], "known"))),
                thread(3, Some(wait(vec![], "unknown"))),
                NowThread { stack: stack.clone(), ..thread(5, None) },
                NowThread { no_stack: Some("it runs".into()), ..thread(6, None) },
                NowThread { call: Some(call), system_call: Some("ioctl".into()), ..thread(4, None) },
            ],
            not_followed: vec!["locks".into()],
            ..Now::default()
        };
        let mut out = Vec::new();
        write(&mut out, &now, Style::default()).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.starts_with("cycle: one\n\n"), "{text}");
        for part in [
            "3 (reads), another reader",
            "unknown",
            "cuStreamSynchronize  3.00 s",
            "sleeping in ioctl",
            "not followed: locks",
            "thread 5 (a) is in\n  libc+0x1\n  push (app+0x2) at a.c:4\n  from here on calls found on the stack, some may be old:\n  app+0x3\n",
            "thread 6 (a): no stack: it runs",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
    }
}
