//! The slowest samples: when they occurred, and where their time went.

use super::Of;
use super::groups;
use crate::document::{Block, Cell, Figure, Section, Table, head, number, text};
use crate::numbers::{count, moment, ns, ns_or_none, size, slug};
use crate::plot::Axis;
use crate::plot::series::{Form, Picture, Point, Series, draw};
use run_folder::Run;
use run_folder::run::{Cause, CellOfRun, Group, WorstOfRun, causes};
use terminal::number::nanoseconds;

/// Points of one picture.
const POINTS: usize = 60;
const PICTURES: usize = 6;

struct Slow<'a> {
    cell: &'a CellOfRun,
    worst: &'a WorstOfRun,
    /// Since the first stage of its picture began.
    at: f64,
}

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let mut section = Section::new(&of_run.id("worst"), "The slowest samples");
    let groups = groups::all(of_run.run);
    let mut all: Vec<(&Group<'_>, Vec<Slow<'_>>)> =
        groups.iter().map(|g| (g, slowest(of_run.run, g))).filter(|(_, slow)| !slow.is_empty()).collect();
    // The places with the worst first, then in the order of the experiment.
    let mut bounds: Vec<u64> = all.iter().map(|(_, slow)| slow[0].worst.value_ns).collect();
    bounds.sort_unstable_by_key(|v| std::cmp::Reverse(*v));
    let left = all.len().saturating_sub(PICTURES);
    if let Some(least) = bounds.get(PICTURES.saturating_sub(1)) {
        all.retain(|(_, slow)| slow[0].worst.value_ns >= *least);
        all.truncate(PICTURES);
    }
    for (group, slow) in &all {
        section.push(Block::Figure(Box::new(figure(of_run, group, slow))));
    }
    if left > 0 {
        section.push(Block::Text(format!(
            "{left} other places of the matrix, whose slowest samples were faster, are left out."
        )));
    }
    section.some()
}

fn slowest<'a>(run: &'a Run, group: &Group<'a>) -> Vec<Slow<'a>> {
    let stages: Vec<u32> = group.cells.iter().map(|c| c.stage).collect();
    // Parts ran one after the other.
    let mut parts: Vec<_> = run.parts.iter().filter(|p| stages.contains(&p.stage)).collect();
    parts.sort_by(|a, b| a.began.cmp(&b.began));
    let mut offset = 0.0;
    let mut offsets = Vec::new();
    for part in parts {
        offsets.push(((part.stage, part.repeat), offset));
        offset += part.seconds;
    }
    let at = |cell: &CellOfRun, worst: &WorstOfRun| {
        let of_part = offsets.iter().find(|(key, _)| *key == (cell.stage, worst.repeat));
        of_part.map_or(0.0, |(_, offset)| *offset) + worst.at_ns as f64 / 1e9
    };
    let of_cell = |cell: &&'a CellOfRun| {
        let cell: &'a CellOfRun = cell;
        cell.worst.iter().map(move |worst| (cell, worst)).collect::<Vec<_>>()
    };
    let mut all: Vec<Slow<'_>> =
        group.cells.iter().flat_map(of_cell).map(|(cell, worst)| Slow { cell, worst, at: at(cell, worst) }).collect();
    all.sort_by_key(|s| std::cmp::Reverse(s.worst.value_ns));
    all.truncate(POINTS);
    all
}

fn figure(of_run: &Of<'_>, group: &Group<'_>, slow: &[Slow<'_>]) -> Figure {
    let series = causes(slow.iter().map(|s| s.worst)).into_iter().map(|(cause, n)| {
        let of_cause = slow.iter().filter(|s| s.worst.mostly == cause);
        let point = |s: &Slow<'_>| Point {
            x: s.at,
            y: s.worst.value_ns.max(1) as f64,
            says: format!("{}: {} at {:.3} s", s.cell.label(), nanoseconds(s.worst.value_ns), s.at),
        };
        let note = format!("{n} of {}", slow.len());
        Series { name: cause_of(cause).into(), note, points: of_cause.map(point).collect() }
    });
    let series: Vec<Series> = series.collect();
    let values = || slow.iter().map(|s| s.worst.value_ns.max(1) as f64);
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
    let last = slow.iter().map(|s| s.at).fold(0.0, f64::max);
    let title = format!("The {} slowest samples{}", slow.len(), group.behind());
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: "Each of the slowest samples at the time at which it was released; its mark shows where most of its time went".into(),
        below: of_run.below(),
        axes: (Axis::seconds(last), Axis::times(low, high)),
        labels: ("when it was released", "time"),
        form: Form::Marks,
        series: &series,
        others: &[],
        crossings: &[],
    });
    let name = of_run.id(&format!("worst-{}", slug(&group.place())));
    Figure {
        table: data(&name, slow),
        name,
        title,
        about: "When each was released; its mark shows where most of its time went.".into(),
        page,
        file: file.svg,
        says: Vec::new(),
    }
}

fn cause_of(cause: Cause) -> &'static str {
    match cause {
        Cause::Queue => "waited for those before it",
        Cause::Submission => "in the submission",
        Cause::Engine => "in the engine",
        Cause::CpuKeptAway => "the CPU was kept away",
        Cause::Seeing => "until the end was seen",
        Cause::Asleep => "asleep",
        Cause::RunQueue => "in the run queue",
        Cause::OnCpu => "on a CPU",
        Cause::Unknown => "not known",
    }
}

fn data(name: &str, slow: &[Slow<'_>]) -> Table {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        number("time", "ns"),
        text("mostly"),
        number("at", "s"),
        text("repeat, round, sample"),
        number("waited", "ns"),
        number("call", "ns"),
        number("engine", "ns"),
        number("seen after", "ns"),
        number("longest gap", "ns"),
        number("asleep", "ns"),
        number("run queue", "ns"),
        number("on a CPU", "ns"),
    ];
    let mut table = Table::new(name, "The slowest samples and where their time went", columns);
    for Slow { cell, worst: w, at } in slow {
        let signed = |v: Option<i64>| match v {
            Some(v) if v < 0 => Cell::number(format!("-{}", nanoseconds(v.unsigned_abs())), v as f64),
            v => ns_or_none(v.map(|v| v as u64)),
        };
        let least = if w.capped { "at least " } else { "" };
        let time = Cell::number(format!("{least}{}", nanoseconds(w.value_ns)), w.value_ns as f64);
        table.row(vec![
            cell.label().into(),
            size(cell.bytes),
            time,
            cause_of(w.mostly).into(),
            moment(*at),
            format!("{}, {}, {}", w.repeat, w.round, count(w.index).text).into(),
            ns_or_none(Some(w.queued_ns).filter(|v| *v > 0)),
            ns(w.submit_ns),
            signed(w.engine_ns),
            signed(w.seen_ns),
            ns_or_none(w.longest_gap_ns),
            ns_or_none(w.asleep_ns),
            ns_or_none(w.run_queue_ns),
            ns_or_none(w.on_cpu_ns),
        ]);
    }
    table.without_empty()
}
