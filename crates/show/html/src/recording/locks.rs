//! Locks: which ones threads waited for, who held them, and on which time line.

use crate::document::{Block, Cell, Figure, Kind, Mark, Notice, Section, Table, head, number, text};
use crate::numbers::{count, moment, ns, ns_or_none};
use plot::Axis;
use plot::series::{Form, Picture, Point, Series, draw};
use schema::locks::{HolderRow, LockRow, Locks, WaitRow};
use terminal::locks::pattern;
use terminal::number::nanoseconds;
use terminal::symbols::{lock, lock_and_key, site};

const OPEN: usize = 20;
/// Series of a picture; the waits for all other locks are one more.
const SERIES: usize = 6;

pub fn section(locks: &Locks) -> Option<Section> {
    if !locks.recorded {
        return None;
    }
    let mut section = Section::new("locks", "Locks");
    for why in &locks.incomplete_because {
        section.push(Block::Notice(Notice { kind: Kind::Warning, text: why.clone() }));
    }
    if locks.waits_only {
        let text = "Only waits for locks were recorded (record --locks=waits). How often locks were taken and how long they were held is not \
                    known; a holder's time, if given, is a minimum.";
        section.push(Block::Notice(Notice { kind: Kind::Note, text: text.into() }));
    }
    answer(locks).into_iter().for_each(|text| section.push(Block::Answer(text)));
    if locks.waits.len() > 1 {
        section.push(Block::Figure(Box::new(picture(locks))));
    }
    if !locks.waits.is_empty() {
        section.push(Block::Table(waits(locks)));
    }
    section.push(Block::Table(all(locks)));
    section.blocks.extend(inversions(locks).map(Block::Table));
    section.blocks.extend(cycles(locks).map(Block::Table));
    Some(section)
}

/// The longest wait, and which pattern it follows.
fn answer(locks: &Locks) -> Vec<String> {
    let Some(first) = locks.waits.first() else {
        return vec!["No thread waited for a mutex or rwlock.".into()];
    };
    let still = if first.unfinished { " and did not get it" } else { "" };
    let mut all = vec![format!(
        "{} waited. The longest wait: {}, {} for {}{still}.",
        terminal::number::of(locks.waits_seen, "operation"),
        thread(first.tid, &first.thread),
        nanoseconds(first.wait_ns),
        lock(locks, &first.lock),
    )];
    match (pattern(first, locks), first.holders.first()) {
        (Some(pattern), _) => all.extend(pattern.lines()),
        (None, Some(h)) => {
            let (time, holds) = (nanoseconds(h.of_wait_ns), terminal::number::of(first.holds, "hold"));
            let most = thread(h.tid, &h.thread);
            all.push(format!("{holds} of other threads were in it, the longest {time}: {most}."));
        }
        (None, None) => all.push("No hold in the recording covers that time.".into()),
    }
    all
}

fn thread(tid: i32, name: &str) -> String {
    if name.is_empty() { format!("thread {tid}") } else { format!("thread {tid} ({name})") }
}

/// Each of the longest waits at its beginning, with a separate look for each lock.
fn picture(locks: &Locks) -> Figure {
    let mut names: Vec<(&str, u64)> = Vec::new();
    for w in &locks.waits {
        match names.iter_mut().find(|(name, _)| *name == w.lock) {
            Some((_, ns)) => *ns += w.wait_ns,
            None => names.push((&w.lock, w.wait_ns)),
        }
    }
    names.sort_by_key(|(_, ns)| std::cmp::Reverse(*ns));
    let rest = names.split_off(names.len().min(SERIES));
    let series = |name: &str, of: &dyn Fn(&WaitRow) -> bool| {
        let waits: Vec<&WaitRow> = locks.waits.iter().filter(|w| of(w)).collect();
        let point = |w: &&WaitRow| Point {
            x: w.at,
            y: w.wait_ns.max(1) as f64,
            says: format!(
                "{} waited {} for {}",
                thread(w.tid, &w.thread),
                nanoseconds(w.wait_ns),
                lock(locks, &w.lock)
            ),
        };
        let note = terminal::number::of(waits.len() as u64, "wait");
        Series { name: lock(locks, name), note, points: waits.iter().map(point).collect(), band: Vec::new() }
    };
    let mut all: Vec<Series> = names.iter().map(|(name, _)| series(name, &|w| w.lock == *name)).collect();
    if !rest.is_empty() {
        all.push(series("other locks", &|w| rest.iter().any(|(name, _)| *name == w.lock)));
    }
    let values = || locks.waits.iter().map(|w| w.wait_ns.max(1) as f64);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let last = locks.waits.iter().map(|w| w.at).fold(0.0, f64::max);
    let title = format!("The {} longest waits", locks.waits.len());
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: "When each wait for a lock began, and how long it took".into(),
        below: ["", ""],
        axes: (Axis::seconds(last), Axis::times(low, high)),
        labels: ("when it began", "waited"),
        form: Form::Marks,
        series: &all,
        others: &[],
        crossings: &[],
    });
    Figure {
        name: "lock-waits".into(),
        title,
        about: "When each began; a mark for each lock.".into(),
        page,
        file: file.svg,
        says: Vec::new(),
        table: holders(locks),
    }
}

/// One line for each wait.
fn waits(locks: &Locks) -> Table {
    let columns = vec![
        head("waiter"),
        number("at", "s"),
        number("waited", "ns"),
        text("for"),
        text("what happened"),
        text("in"),
        text("held by"),
        number("for", "ns"),
        text("in"),
        text("who waited for"),
    ];
    let mut table = Table::new("waits", "The longest waits, and who held the lock the longest meanwhile", columns);
    for w in locks.waits.iter().take(OPEN) {
        let h = w.holders.first();
        let still = if w.unfinished { ", still waiting" } else { "" };
        table.row(vec![
            format!("{}{still}", thread(w.tid, &w.thread)).into(),
            moment(w.at),
            ns(w.wait_ns),
            lock(locks, &w.lock).into(),
            pattern(w, locks).map_or_else(Cell::none, |p| p.what.into()),
            w.inside.as_deref().unwrap_or("-").into(),
            h.map_or_else(|| "not on the tape".into(), |h| thread(h.tid, &h.thread).into()),
            ns_or_none(h.map(|h| h.of_wait_ns)),
            h.and_then(|h| h.inside.as_deref()).unwrap_or("-").into(),
            behind(locks, h).into(),
        ]);
    }
    table.without_empty()
}

fn behind(locks: &Locks, h: Option<&HolderRow>) -> String {
    let all: Vec<String> = h
        .into_iter()
        .flat_map(|h| &h.behind)
        .map(|b| {
            let by = b.holder.map_or(String::new(), |tid| format!(", held by {}", thread(tid, &b.holder_name)));
            format!("{} for {}{by}", lock(locks, &b.lock), nanoseconds(b.wait_ns))
        })
        .collect();
    if all.is_empty() { "-".into() } else { all.join("; ") }
}

/// Every holder of every wait.
fn holders(locks: &Locks) -> Table {
    let columns = vec![
        head("waiter"),
        number("at", "s"),
        number("waited", "ns"),
        text("for"),
        text("called at"),
        text("holder"),
        text("took it at"),
        number("held it for", "ns"),
        number("of the wait", "ns"),
        number("off CPU", "ns"),
        text("CPU had"),
    ];
    let mut table = Table::new("lock-waits", "Waits with all their holders", columns);
    for w in &locks.waits {
        let head = |w: &WaitRow| -> Vec<Cell> {
            vec![
                thread(w.tid, &w.thread).into(),
                moment(w.at),
                ns(w.wait_ns),
                lock(locks, &w.lock).into(),
                site(locks, &w.site).into(),
            ]
        };
        if w.holders.is_empty() {
            let mut row = head(w);
            row.extend([(); 6].map(|()| Cell::none()));
            table.row(row);
        }
        for h in &w.holders {
            let mut row = head(w);
            let off = h.off_cpu.as_ref();
            row.extend([
                thread(h.tid, &h.thread).into(),
                site(locks, &h.site).into(),
                ns(h.hold_ns),
                ns(h.of_wait_ns),
                ns_or_none(off.map(|o| o.off_ns)),
                off.and_then(|o| Some(thread(o.by_tid?, &o.by))).map_or_else(Cell::none, Cell::from),
            ]);
            table.row(row);
        }
    }
    table.without_empty()
}

fn all(locks: &Locks) -> Table {
    let columns = vec![
        head("lock"),
        number("locks", ""),
        number("operations", ""),
        number("had to wait", ""),
        number("waited", "ns"),
        number("longest wait", "ns"),
        number("p50 wait", "ns"),
        number("p99 wait", "ns"),
        number("held", "ns"),
        number("longest hold", "ns"),
        text("held from"),
        text("kind"),
    ];
    let mut table = Table::new("locks", "Locks, the one that was waited for the longest first", columns);
    for l in &locks.locks {
        table.row(row(locks, l));
    }
    table.without_empty().folded_above(OPEN)
}

fn row(locks: &Locks, l: &LockRow) -> Vec<Cell> {
    vec![
        lock_and_key(locks, &l.name).into(),
        count(l.instances),
        if locks.waits_only { Cell::none() } else { count(l.operations.values().sum()) },
        count(l.contended),
        ns(l.wait_ns),
        ns(l.longest_wait_ns),
        ns_or_none(l.wait_p50_ns),
        ns_or_none(l.wait_p99_ns),
        ns_or_none(l.hold_ns),
        ns_or_none(l.longest_hold_ns),
        l.longest_hold_site.as_deref().map_or_else(|| "-".into(), |place| site(locks, place).into()),
        if l.attributes.is_empty() { Cell::none() } else { l.attributes.join(", ").into() },
    ]
}

fn inversions(locks: &Locks) -> Option<Table> {
    let columns = vec![
        head("waiter"),
        text("its class"),
        number("waited", "ns"),
        text("for"),
        text("holder"),
        text("its class"),
        text("priority inheritance"),
    ];
    let mut table = Table::new("inversions", "Priority inversions: waits for a thread of lower priority", columns);
    for i in &locks.inversions {
        let helps = if i.inheritance_helps { "could have shortened it" } else { "could not: " };
        let why = if i.inheritance_helps { String::new() } else { i.why.to_owned() };
        table.row(vec![
            thread(i.tid, &i.thread).into(),
            i.sched.as_str().into(),
            ns(i.wait_ns).marked(Mark::Bad),
            lock(locks, &i.lock).into(),
            thread(i.holder.tid, &i.holder.thread).into(),
            i.holder_sched.as_str().into(),
            format!("{helps}{why}").into(),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn cycles(locks: &Locks) -> Option<Table> {
    let columns = vec![head("circle"), text("held"), text("then taken"), number("count", ""), text("by")];
    let mut table = Table::new(
        "cycles",
        "Cycles in the order of locks: threads that take them at the same time may deadlock",
        columns,
    );
    for (n, cycle) in locks.cycles.iter().enumerate() {
        for edge in &cycle.edges {
            let by = if cycle.one_thread { "one thread: it cannot deadlock alone" } else { "several threads" };
            table.row(vec![
                (n + 1).to_string().into(),
                lock(locks, &edge.held).into(),
                lock(locks, &edge.taken).into(),
                count(edge.count),
                by.into(),
            ]);
        }
    }
    (!table.rows.is_empty()).then_some(table)
}
