//! Locks: a list of them, who held them while others waited, and in which orders they are taken.

use crate::number::{count, nanoseconds, of};
use crate::summary::where_events_went;
use crate::table::{self, Out, Style};
use schema::locks::{Cycle, HolderRow, Inversion, LockRow, Locks, OffCpu, OrderRow, SwitchesRow, WaitRow};
use schema::names::{lock, lock_and_key, site, thread as who};
use std::collections::BTreeMap;
use std::io;

/// Rows of each kind by default.
pub const ROWS: usize = 10;
/// Rows of CUDA's calls, which have a separate view.
const CALLS: usize = 5;
/// Waits in JSON by default.
pub const JSON_WAITS: usize = 1000;

/// Writes the text.
pub fn write(l: &Locks, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    let operations =
        if l.waits_only { "operations not counted".into() } else { of(l.operations.values().sum(), "operation") };
    let instances: u64 = l.locks.iter().map(|r| r.instances).sum();
    writeln!(
        out,
        "{} {}, {}, {} contended, {}",
        style.bold("locks"),
        of(instances, "lock"),
        operations,
        count(l.contended),
        of(l.threads.len() as u64, "thread")
    )?;
    for line in wrapped(&l.operations, 100) {
        writeln!(out, "  {line}")?;
    }
    if l.waits_only {
        writeln!(
            out,
            "  waits only (`record --locks=waits`): how often locks were taken, how long they were held and in which order is not known"
        )?;
    }
    if instances == 0 {
        writeln!(
            out,
            "  no lock of libc was used; waits that a runtime makes of futexes itself (libgomp, Go, Java) are not recorded"
        )?;
    }
    for why in &l.incomplete_because {
        writeln!(out, "  {}", style.bad(&format!("not complete: {why}")))?;
    }
    if l.lost_events > 0 {
        let full = where_events_went(&l.incomplete_because).contains("rings");
        let hint = if full { "; --ring 64MiB or --on-full wait keeps them" } else { "" };
        writeln!(out, "  counts and times lack the missing events{hint}")?;
    }
    switches(&l.switches, style, out)?;
    rows(l, limit, style, out)?;
    if !l.waits.is_empty() {
        writeln!(out, "\n{} of {}, the longest first", style.bold("waits"), count(l.waits_seen))?;
        for w in l.waits.iter().take(limit) {
            wait(w, l, out)?;
        }
    }
    if let Some(c) = l.calls.as_ref().filter(|c| !c.calls.is_empty()) {
        writeln!(out)?;
        crate::calls::table(c, limit.min(CALLS), style, out)?;
        if !l.waits_only {
            crate::calls::shared(l, c, limit.min(CALLS), style, out)?;
            writeln!(out, "  (`show --calls` has the locks of each call in their order)")?;
        }
    }
    left(l, limit, style, out)?;
    if !l.cycles.is_empty() {
        writeln!(out, "\n{} in the order of locks: threads that meet in them deadlock", style.bad("cycles"))?;
        l.cycles.iter().take(limit).try_for_each(|c| cycle(l, c, out))?;
    }
    if !l.order.is_empty() {
        order(l, limit, style, out)?;
    }
    inversions(l, limit, style, out)
}

/// `name n` in a row, in lines of at most this many characters.
fn wrapped(operations: &BTreeMap<&'static str, u64>, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for (name, n) in operations {
        let word = format!("{name} {}", count(*n));
        match lines.last_mut() {
            Some(line) if line.len() + word.len() + 3 <= width => *line += &format!("   {word}"),
            _ => lines.push(word),
        }
    }
    lines
}

fn rows(l: &Locks, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    writeln!(out)?;
    let mut heads = vec!["lock", ">n"];
    heads.extend((!l.waits_only).then_some(">operations"));
    heads.extend([">contended", ">longest wait", ">p50", ">p99", ">waited"]);
    heads.extend([">longest hold", "held from"].into_iter().filter(|_| !l.waits_only));
    heads.push("kind");
    let mut t = style.table(&heads);
    for r in l.locks.iter().take(limit) {
        let ns = |n: u64| if n == 0 { "-".into() } else { nanoseconds(n) };
        let mut kind = r.attributes.join(", ");
        if r.foreign_unlocks > 0 {
            kind = [kind, of(r.foreign_unlocks, "unlock by another thread").replace("threads", "thread")]
                .into_iter()
                .filter(|s| !s.is_empty())
                .collect::<Vec<_>>()
                .join(", ");
        }
        let mut cells = vec![lock_and_key(l, &r.name), count(r.instances)];
        cells.extend((!l.waits_only).then(|| count(r.operations.values().sum())));
        cells.extend([count(r.contended), ns(r.longest_wait_ns)]);
        cells.extend([r.wait_p50_ns, r.wait_p99_ns].map(|p| ns(p.unwrap_or(0))));
        cells.push(ns(r.wait_ns));
        if !l.waits_only {
            cells.extend([ns(r.longest_hold_ns.unwrap_or(0)), held_from(l, r)]);
        }
        cells.push(kind);
        t.add_row(cells);
    }
    out.table(&t, 2)?;
    table::more(out, l.locks.len(), limit, 2)
}

fn held_from(l: &Locks, r: &LockRow) -> String {
    r.longest_hold_site.as_ref().map_or_else(|| "-".into(), |s| site(l, s) + &inside(&r.longest_hold_inside))
}

fn switches(s: &SwitchesRow, style: Style, out: &mut dyn Out) -> io::Result<()> {
    match s.scope {
        "none" => {
            writeln!(out, "  no context switches in the recording, so it is unknown who was off CPU: {}", s.reason)?
        }
        "program" => writeln!(
            out,
            "  {}, without who took the CPU",
            of(s.count, "context switch").replace("switchs", "switches")
        )?,
        _ => writeln!(out, "  {}", of(s.count, "context switch").replace("switchs", "switches"))?,
    }
    if s.lost > 0 {
        let text = format!("{} of context switches were lost: times off CPU lack them", of(s.lost, "record"));
        writeln!(out, "  {}", style.bad(&text))?;
    }
    Ok(())
}

fn wait(w: &WaitRow, l: &Locks, out: &mut dyn Out) -> io::Result<()> {
    let end = match (w.unfinished, w.result) {
        (true, _) => " and did not get it".to_owned(),
        (_, 0) => String::new(),
        (_, r) => format!(" and got {}", error(r)),
    };
    let (thread, time) = (who(w.tid, &w.thread), nanoseconds(w.wait_ns));
    let inside = inside(&w.inside);
    let at_least = if w.unfinished { "at least " } else { "" };
    let head = format!(
        "{:>11.6} s  {thread} waited {at_least}{time} at {} ({}){inside}{end}",
        w.at,
        site(l, &w.site),
        w.operation
    );
    match w.holders.split_first() {
        None => writeln!(out, "  {head} for {}; who held it is not on the tape", lock(l, &w.lock)),
        Some((first, rest)) => {
            // A separate line if the holder does not explain the wait alone.
            match w.pattern.as_ref().filter(|p| p.more.is_some()) {
                None => writeln!(out, "  {head}; {}", held(l, first, &lock(l, &w.lock)))?,
                Some(pattern) => {
                    writeln!(out, "  {head}")?;
                    pattern.lines().iter().try_for_each(|line| writeln!(out, "{:16}{line}", ""))?;
                    writeln!(out, "{:16}{}", "", held(l, first, &lock(l, &w.lock)))?;
                }
            }
            off_cpu(first, out)?;
            behind(l, first, out)?;
            for h in rest {
                writeln!(out, "{:16}{}", "", held(l, h, "it"))?;
                off_cpu(h, out)?;
                behind(l, h, out)?;
            }
            let told: u64 = w.holders.iter().map(|h| h.of_wait_ns).fold(0, u64::saturating_add);
            let (more, time) = (w.holds.saturating_sub(w.holders.len() as u64), w.held_ns.saturating_sub(told));
            if more > 0 && matters(time, w.wait_ns) {
                writeln!(out, "{:16}and in {} of it for {} in all", "", of(more, "other hold"), nanoseconds(time))?;
            }
            not_run(w, out)
        }
    }
}

/// Left out if it is only the time of a wake-up, or a small part of the whole.
fn matters(ns: u64, of: u64) -> bool {
    ns > 20_000 && ns.saturating_mul(10) > of
}

/// Why a holder took so long.
fn off_cpu(h: &HolderRow, out: &mut dyn Out) -> io::Result<()> {
    let Some(o) = h.off_cpu.as_ref().filter(|o| matters(o.off_ns, h.of_wait_ns)) else { return Ok(()) };
    let blocked = o.off_ns.saturating_sub(o.preempted_ns);
    let how = match (matters(o.preempted_ns, o.off_ns), matters(blocked, o.off_ns)) {
        (true, true) => {
            let (p, b) = (nanoseconds(o.preempted_ns), nanoseconds(blocked));
            format!("off CPU, {p} {}, {b} blocked (it slept, or waited itself)", preempted(o))
        }
        (true, false) => format!("off CPU, {}", preempted(o)),
        _ => "off CPU, blocked: it slept, or waited itself".to_owned(),
    };
    writeln!(out, "{:18}of this {} {how}", "", nanoseconds(o.off_ns))
}

/// The locks that a holder waited for itself.
fn behind(l: &Locks, h: &HolderRow, out: &mut dyn Out) -> io::Result<()> {
    for (i, b) in h.behind.iter().enumerate() {
        let by = match b.holder {
            Some(tid) => format!("held by {}{}", who(tid, &b.holder_name), inside(&b.inside)),
            None => "its holder is not in the recording".to_owned(),
        };
        let whose = if i == 0 { "of this it waited" } else { "which waited" };
        writeln!(out, "{:18}{whose} {} for {}, {by}", "", nanoseconds(b.wait_ns), lock(l, &b.lock))?;
    }
    Ok(())
}

fn preempted(o: &OffCpu) -> String {
    match o.by_tid {
        None => "preempted, by whom is not known".to_owned(),
        Some(0) => "preempted, its CPU idle".to_owned(),
        Some(tid) => {
            let most = if matters(o.preempted_ns.saturating_sub(o.by_ns), o.preempted_ns) {
                format!(" for {} and by others", nanoseconds(o.by_ns))
            } else {
                String::new()
            };
            format!("preempted by {}{most}", who(tid, &o.by))
        }
    }
}

/// Why a waiter went on waiting when it could have had the lock.
fn not_run(w: &WaitRow, out: &mut dyn Out) -> io::Result<()> {
    let free = nanoseconds(w.free_ns);
    let Some(o) = &w.off_cpu else {
        if matters(w.free_ns, w.wait_ns) {
            writeln!(out, "{:16}it was free for {free} of the wait: off CPU, by whom unknown", "")?;
        }
        return Ok(());
    };
    let ready = w.ready_ns.unwrap_or(0);
    if matters(ready, w.wait_ns) {
        let by = if matters(o.preempted_ns, ready) { format!(", {}", preempted(o)) } else { String::new() };
        writeln!(out, "{:16}for {} of the wait it could have run but was on no CPU{by}", "", nanoseconds(ready))?;
    } else if matters(w.free_ns, w.wait_ns) {
        writeln!(out, "{:16}it was free for {free} of the wait", "")?;
    }
    Ok(())
}

fn inside(call: &Option<String>) -> String {
    call.as_ref().map_or_else(String::new, |c| format!(" inside {c}"))
}

fn held(l: &Locks, h: &HolderRow, lock: &str) -> String {
    let (part, hold) = (nanoseconds(h.of_wait_ns), nanoseconds(h.hold_ns));
    let (thread, inside) = (who(h.tid, &h.thread), inside(&h.inside));
    if h.site.is_empty() {
        return format!("{thread} holds {lock}, as the lock itself names it; since when is not recorded");
    }
    let from = site(l, &h.site);
    if h.begin_unknown {
        let most = if h.end_unknown { "at most " } else { "" };
        let to = h.since + h.hold_ns as f64 / 1e9;
        let end = match (h.unfinished, h.end_unknown) {
            (true, _) => "never released".to_owned(),
            (_, true) => format!("released by {to:.6} s"),
            _ => format!("held for {hold} at least, to {to:.6} s"),
        };
        return format!(
            "{thread} held {lock} from {from}{inside} since {:.6} s or before ({most}{part} of the wait, {end})",
            h.since
        );
    }
    let end = if h.unfinished { "never released" } else { &format!("held for {hold}") };
    format!("{thread} held {lock} from {from}{inside} since {:.6} s ({part} of the wait, {end})", h.since)
}

/// Those that lock functions return.
fn error(r: i32) -> String {
    let known = [
        (1, "EPERM"),
        (4, "EINTR"),
        (11, "EAGAIN"),
        (16, "EBUSY"),
        (22, "EINVAL"),
        (35, "EDEADLK"),
        (110, "ETIMEDOUT"),
        (130, "EOWNERDEAD"),
        (131, "ENOTRECOVERABLE"),
    ];
    known.iter().find(|(n, _)| *n == r).map_or_else(|| format!("error {r}"), |(_, name)| (*name).to_owned())
}

fn left(l: &Locks, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    if l.left.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{} when its thread, or the recording, ended", style.bold("held or waited for"))?;
    for r in l.left.iter().take(limit) {
        let what = if r.waiting { "waited for" } else { "held" };
        let (thread, lock) = (who(r.tid, &r.thread), lock(l, &r.lock));
        let from = taken_at(l, &r.site);
        let since = if r.since_unknown { "since an unknown time, at" } else { "since" };
        writeln!(out, "  {thread} {what} {lock} from {from} {since} {:.6} s", r.since)?;
    }
    table::more(out, l.left.len(), limit, 2)
}

fn taken_at(l: &Locks, at: &str) -> String {
    if at.is_empty() { "an unknown place".to_owned() } else { site(l, at) }
}

fn cycle(l: &Locks, c: &Cycle, out: &mut dyn Out) -> io::Result<()> {
    let mut names: Vec<String> = c.edges.iter().map(|e| lock(l, &e.held)).collect();
    names.extend(names.first().cloned());
    let one = if c.one_thread { " (one thread only: it cannot deadlock alone)" } else { "" };
    writeln!(out, "  {}{one}", names.join(" -> "))?;
    for e in &c.edges {
        let threads = e.tids.iter().map(i32::to_string).collect::<Vec<_>>().join(", ");
        writeln!(
            out,
            "    {} at {}, holding {} from {} (thread {threads})",
            lock(l, &e.taken),
            site(l, &e.taken_site),
            lock(l, &e.held),
            taken_at(l, &e.held_site)
        )?;
    }
    Ok(())
}

fn order(l: &Locks, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    writeln!(out, "\n{}", style.bold("order"))?;
    let mut t = style.table(&["held", "then taken", ">times", "held from", "taken at"]);
    for OrderRow { held, taken, count: n, held_site, taken_site, .. } in l.order.iter().take(limit) {
        t.add_row([lock(l, held), lock(l, taken), count(*n), taken_at(l, held_site), site(l, taken_site)]);
    }
    out.table(&t, 2)?;
    table::more(out, l.order.len(), limit, 2)
}

fn inversions(l: &Locks, limit: usize, style: Style, out: &mut dyn Out) -> io::Result<()> {
    if !l.real_time {
        writeln!(
            out,
            "\nno thread has a real-time priority: there are no inversions, and priority inheritance changes nothing"
        )?;
        return Ok(());
    }
    if l.inversions.is_empty() {
        writeln!(out, "\nno thread waited for one of lower priority")?;
        return Ok(());
    }
    writeln!(out, "\n{}", style.bad("priority inversions"))?;
    for i in l.inversions.iter().take(limit) {
        inversion(l, i, out)?;
    }
    table::more(out, l.inversions.len(), limit, 2)
}

fn inversion(l: &Locks, i: &Inversion, out: &mut dyn Out) -> io::Result<()> {
    let (waiter, holder) = (who(i.tid, &i.thread), who(i.holder.tid, &i.holder.thread));
    let time = nanoseconds(i.wait_ns);
    writeln!(
        out,
        "  {:>11.6} s  {waiter}, {}, waited {time} at {}; {holder}, {}, held {} from {}",
        i.at,
        i.sched,
        site(l, &i.site),
        i.holder_sched,
        lock(l, &i.lock),
        site(l, &i.holder.site)
    )?;
    if let Some(o) = i.holder.off_cpu.as_ref().filter(|o| matters(o.preempted_ns, i.holder.of_wait_ns)) {
        let sched = i.by_sched.as_ref().map_or_else(String::new, |s| format!(", {s}"));
        let time = nanoseconds(o.preempted_ns);
        writeln!(out, "{:16}which was off CPU for {time} of this, {}{sched}", "", preempted(o))?;
    }
    writeln!(out, "{:16}priority inheritance? {}", "", i.why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::locks::BehindRow;

    #[test]
    fn a_wait_names_the_holder_of_the_lock() {
        let holder = HolderRow {
            tid: 17,
            site: "app+0x20".into(),
            since: 0.25,
            hold_ns: 2_000_000,
            of_wait_ns: 1_900_000,
            ..HolderRow::default()
        };
        let mut w = WaitRow {
            at: 0.5,
            tsc: 500,
            process: 0,
            tid: 12,
            thread: "main".into(),
            lock: "libx+0x3f21c0/mutex".into(),
            operation: "mutex_lock",
            site: "app+0x10".into(),
            wait_ns: 1_900_000,
            result: 110,
            unfinished: false,
            free_ns: 0,
            off_cpu: None,
            ready_ns: None,
            inside: None,
            holds: 1,
            held_ns: 1_900_000,
            overtaken: 0,
            overtaken_by_readers: 0,
            holders: vec![holder],
            pattern: None,
        };
        let text = |w: &WaitRow| {
            let mut out = Vec::new();
            wait(w, &Locks::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(&w),
            "     0.500000 s  thread 12 (main) waited 1.90 ms at app+0x10 (mutex_lock) and got ETIMEDOUT; thread 17 held \
             libx+0x3f21c0/mutex from app+0x20 since 0.250000 s (1.90 ms of the wait, held for 2.00 ms)\n"
        );
        let off = |off_ns, preempted_ns, by_tid| {
            Some(OffCpu { off_ns, preempted_ns, by_tid, by: "hog".into(), by_ns: preempted_ns })
        };
        let cases = [
            (off(1_200_000, 1_200_000, Some(9)), "of this 1.20 ms off CPU, preempted by thread 9 (hog)"),
            (off(1_200_000, 1_200_000, None), "of this 1.20 ms off CPU, preempted, by whom is not known"),
            (off(1_200_000, 0, None), "of this 1.20 ms off CPU, blocked: it slept, or waited itself"),
            (off(1_200_000, 1_000_000, Some(9)), "1.00 ms preempted by thread 9 (hog), 200 us blocked (it"),
        ];
        for (o, line) in cases {
            w.holders[0].off_cpu = o;
            w.holders[0].inside = Some("cudaMemcpyAsync".into());
            let text = text(&w);
            assert!(text.contains(line) && text.contains("from app+0x20 inside cudaMemcpyAsync since"), "{text}");
        }
        let behind = |holder| BehindRow {
            lock: "liby+0x1/mutex".into(),
            wait_ns: 900_000,
            holder,
            holder_name: "io".into(),
            inside: Some("cudaFree".into()),
        };
        w.holders[0].behind = vec![behind(Some(21)), behind(None)];
        let lines = text(&w);
        assert!(
            lines.contains("of this it waited 900 us for liby+0x1/mutex, held by thread 21 (io) inside cudaFree\n")
        );
        assert!(
            lines.contains("which waited 900 us for liby+0x1/mutex, its holder is not in the recording\n"),
            "{lines}"
        );
        w.holders[0].behind.clear();
        w.holders[0].off_cpu = off(1_000, 0, None);
        assert_eq!(text(&w).lines().count(), 1);
        (w.off_cpu, w.ready_ns, w.inside) = (off(1_900_000, 0, None), Some(400_000), Some("cudaLaunchKernel".into()));
        assert!(text(&w).contains("for 400 us of the wait it could have run but was on no CPU\n"), "{}", text(&w));
        assert!(text(&w).contains("(mutex_lock) inside cudaLaunchKernel and got"));
        w.holders.clear();
        assert!(text(&w).ends_with("for libx+0x3f21c0/mutex; who held it is not on the tape\n"));
    }

    #[test]
    fn operations_fill_lines() {
        let operations = BTreeMap::from([("a", 1000), ("bb", 2), ("ccc", 3)]);
        assert_eq!(wrapped(&operations, 16), ["a 1,000   bb 2", "ccc 3"]);
    }
}
