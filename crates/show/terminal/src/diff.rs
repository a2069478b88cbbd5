//! Two tapes' locks side by side.

use crate::number::{count, nanoseconds};
use crate::table::{self, Style};
use schema::diff::{Both, CallDiff, Change, Diff, LockDiff};
use schema::locks::Locks;
use schema::names::lock_and_key;
use std::io::{self, Write};

/// Writes the text. `of`: the locks of both, for the names of variables.
pub fn write(d: &Diff, of: (&Locks, &Locks), top: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut t = style.table(&["", ">first", ">second"]);
    for (name, (a, b)) in [("operations", d.operations), ("contended", d.contended)] {
        t.add_row([name.to_owned(), count(a), count(b)]);
    }
    for (name, (a, b)) in [("waited", d.wait_ns), ("longest wait", d.longest_wait_ns)] {
        t.add_row([name.to_owned(), ns(a), ns(b)]);
    }
    table::write(out, &t, 0)?;
    let count_of = |c: Change| d.locks.iter().filter(|l| l.change == c).count() as u64;
    let changed = count_of(Change::Changed) + count_of(Change::New) + count_of(Change::Gone);
    let orders = d.order.iter().filter(|o| o.change != Change::Same).count() as u64;
    if d.equal {
        let (locks, orders) =
            (crate::number::of(count_of(Change::Same), "lock"), crate::number::of(d.order.len() as u64, "order"));
        let text = format!("{locks} and {orders} alike");
        writeln!(out, "\n{}", style.good(&text))?;
    } else {
        writeln!(
            out,
            "\n{} new, {} gone, {} changed, {} alike; {} of {} orders differ",
            crate::number::of(count_of(Change::New), "lock"),
            count(count_of(Change::Gone)),
            count(count_of(Change::Changed)),
            count(count_of(Change::Same)),
            count(orders),
            count(d.order.len() as u64)
        )?;
    }
    let (percent, floor) = (d.tolerance.percent, d.tolerance.floor);
    writeln!(
        out,
        "(counts that differ by at most {floor}, or by at most {percent} %, count as equal; times are not judged)"
    )?;
    if changed > 0 {
        locks(d, of, top, style, out)?;
    }
    calls(d, top, style, out)?;
    let moved: Vec<&LockDiff> = d.locks.iter().filter(|l| l.moved_to.is_some()).collect();
    if !moved.is_empty() {
        writeln!(out, "\n{} recognised by their use", style.bold("moved"))?;
        for l in moved.iter().take(top) {
            writeln!(out, "  {} -> {}", l.name, l.moved_to.as_deref().unwrap_or_default())?;
        }
        table::more(out, moved.len(), top, 2)?;
    }
    if orders > 0 {
        writeln!(out, "\n{}", style.bold("order"))?;
        let mut t = style.table(&["", "held", "then taken", ">first", ">second"]);
        for o in d.order.iter().filter(|o| o.change != Change::Same).take(top) {
            t.add_row([word(o.change).to_owned(), o.held.clone(), o.taken.clone(), count(o.count.0), count(o.count.1)]);
        }
        table::write(out, &t, 2)?;
        table::more(out, orders as usize, top, 2)?;
    }
    Ok(())
}

/// All of them, because changes in their times are the reason to compare.
fn calls(d: &Diff, top: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    if d.calls.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{}", style.bold("calls"))?;
    let mut t = style.table(&["", "call", ">n", ">mean", ">max", ">waited"]);
    for c in d.calls.iter().take(top) {
        let both = |(a, b): Both, f: fn(u64) -> String| format!("{} -> {}", f(a), f(b));
        t.add_row([
            word(c.change).to_owned(),
            name(c),
            both(c.count, count),
            both(c.mean_ns, ns),
            both(c.max_ns, ns),
            both(c.waited, |w| format!("{:.1} %", w as f64 / 10.0)),
        ]);
    }
    table::write(out, &t, 2)?;
    table::more(out, d.calls.len(), top, 2)?;
    for c in d.calls.iter().filter(|c| c.change != Change::Same).take(top) {
        let Some((a, b)) = &c.pattern else { continue };
        for (which, lines) in [("first", a), ("second", b)] {
            writeln!(out, "  locks of {} on the {which} tape", name(c))?;
            if lines.is_empty() {
                writeln!(out, "    none")?;
            }
            lines.iter().try_for_each(|l| writeln!(out, "    {l}"))?;
        }
    }
    Ok(())
}

fn name(c: &CallDiff) -> String {
    let about: Vec<&str> = c.direction.iter().chain(&c.size).copied().collect();
    format!("{} {}", c.call, about.join(", ")).trim_end().to_owned()
}

fn locks(d: &Diff, of: (&Locks, &Locks), top: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "\n{}", style.bold("locks"))?;
    let mut t = style.table(&["", "lock", "operations", ">contended", ">longest wait", ">waited"]);
    let changed: Vec<&LockDiff> = d.locks.iter().filter(|l| l.change != Change::Same).collect();
    for l in changed.iter().take(top) {
        let mut what: Vec<String> =
            l.operations.iter().map(|(op, (a, b))| format!("{op} {} -> {}", count(*a), count(*b))).collect();
        if l.change == Change::Changed && l.attributes.0 != l.attributes.1 {
            let name = |a: &[&str]| if a.is_empty() { "usual".to_owned() } else { a.join(", ") };
            what.push(format!("{} -> {}", name(&l.attributes.0), name(&l.attributes.1)));
        }
        let both = |(a, b): Both, f: fn(u64) -> String| format!("{} -> {}", f(a), f(b));
        t.add_row([
            word(l.change).to_owned(),
            lock_and_key(if l.change == Change::Gone { of.0 } else { of.1 }, &l.name),
            what.join("\n"),
            both(l.contended, count),
            both(l.longest_wait_ns, ns),
            both(l.wait_ns, ns),
        ]);
    }
    table::write(out, &t, 2)?;
    table::more(out, changed.len(), top, 2)
}

fn ns(n: u64) -> String {
    if n == 0 { "-".into() } else { nanoseconds(n) }
}

fn word(c: Change) -> &'static str {
    match c {
        Change::Same => "",
        Change::Changed => "changed",
        Change::New => "new",
        Change::Gone => "gone",
    }
}
