//! Locks: which ones threads waited for, who held them, and on which time line.

use crate::document::{Block, Cell, Figure, Section, Table, head, number, text};
use crate::numbers::{moment, ns, ns_or_none};
use crate::plot::Axis;
use crate::plot::series::{Form, Picture, Point, Series, draw};
use crate::view;
use schema::locks::{Locks, WaitRow};
use schema::names::{lock, site, thread};
use terminal::number::nanoseconds;

/// Series of a picture; the waits for all other locks are one more.
const SERIES: usize = 6;

pub fn section(locks: &Locks) -> Section {
    let mut section =
        view::section("locks", "Locks", |out, style| terminal::locks::write(locks, super::ROWS, style, out));
    if locks.waits.len() > 1 {
        section.blocks.insert(0, Block::Figure(Box::new(picture(locks))));
    }
    section
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
        Series { name: lock(locks, name), note, points: waits.iter().map(point).collect() }
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
