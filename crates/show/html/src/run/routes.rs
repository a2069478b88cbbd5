//! Which way wins at which size, and latency against size.

use super::Of;
use super::groups;
use crate::document::{Block, Cell, Figure, Mark, Section, Table, head, number};
use crate::numbers::slug;
use crate::plot::Axis;
use crate::plot::series::{Form, Picture, Point, Series, draw};
use experiment::{Metric, Observe};
use run_folder::Run;
use run_folder::run::groups::{Group, directions, subjects};
use run_folder::run::{BestAt, BestOfRun, CellOfRun, Ends};
use terminal::number::{bytes, nanoseconds};

/// Lines with a distinct look; more cannot be distinguished at a glance.
const STRONG: usize = 7;
/// Pictures of one run; more would make the page too long.
const PICTURES: usize = 10;
/// With fewer sizes a picture shows nothing.
const SIZES: usize = 3;

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let mut section = Section::new(&of_run.id("routes"), "The best way, and latency against size");
    let (mut drawn, mut left) = (0, 0);
    for group in groups::all(run) {
        for (direction, cells) in directions(&group.cells) {
            let cells: Vec<&CellOfRun> = cells.into_iter().filter(|c| c.bytes > 0 && c.back_to_back == 1).collect();
            match figure(of_run, &group, direction, &cells) {
                Some(_) if drawn == PICTURES => left += 1,
                Some(figure) => {
                    drawn += 1;
                    section.push(Block::Figure(Box::new(figure)));
                }
                None => {}
            }
        }
    }
    if left > 0 {
        section.push(Block::Text(format!(
            "{left} more pictures are left out here. The table of all cells has their figures."
        )));
    }
    section.some()
}

fn figure(of_run: &Of<'_>, group: &Group<'_>, direction: Option<(&str, &str)>, cells: &[&CellOfRun]) -> Option<Figure> {
    let run = of_run.run;
    let all = subjects(cells);
    let mut sizes: Vec<u64> = cells.iter().map(|c| c.bytes).collect();
    sizes.sort_unstable();
    sizes.dedup();
    if sizes.len() < SIZES {
        return None;
    }
    let strong = strong(run, cells, &all);
    let p50 = |c: &CellOfRun| c.observed().map_or(1.0, |f| f.summary.p50.max(1) as f64);
    let series = |of: &Vec<&CellOfRun>| {
        let point = |c: &&CellOfRun| {
            let tail = c.observed().and_then(|f| f.summary.p999);
            let tail = tail.map_or(String::new(), |v| format!(", p99.9 {}", nanoseconds(v)));
            let says = format!("{}, {}: p50 {}{tail}", c.label(), bytes(c.bytes), nanoseconds(p50(c) as u64));
            Point { x: c.bytes as f64, y: p50(c), says }
        };
        Series { name: of[0].label(), note: what(of[0].observe).into(), points: of.iter().map(point).collect() }
    };
    let look = |name: &str| strong.iter().position(|s| *s == name);
    let mut first: Vec<(usize, Series)> =
        all.iter().filter_map(|of| Some((look(&of[0].subject)?, series(of)))).collect();
    first.sort_by_key(|(n, _)| *n);
    let first: Vec<Series> = first.into_iter().map(|(_, s)| s).collect();
    let others: Vec<Series> = all.iter().filter(|of| look(&of[0].subject).is_none()).map(series).collect();
    let crossings = crossings(run, cells);
    let (low, high) = cells.iter().map(|c| p50(c)).fold((f64::INFINITY, 0.0f64), |(l, h), v| (l.min(v), h.max(v)));
    let of_direction = direction.map_or("calls".to_owned(), |(from, to)| format!("{from} to {to}"));
    let title = format!("{of_direction}{}: p50 against size", group.behind());
    let marks: Vec<(f64, String)> = crossings.iter().map(|(at, letter, _)| (*at as f64, letter.clone())).collect();
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: "The median time of each way against the size of a transfer, both by their logarithm".into(),
        below: of_run.below(),
        axes: (Axis::sizes(*sizes.first()?, *sizes.last()?), Axis::times(low, high)),
        labels: ("size", "p50"),
        form: Form::Lines,
        series: &first,
        others: &others,
        crossings: &marks,
    });
    Some(Figure {
        name: of_run.id(&format!("latency-{}", slug(&format!("{of_direction}{}", group.behind())))),
        about: match others.is_empty() {
            true => "Lower is better; both axes are logarithmic.".into(),
            false => {
                "Lower is better; both axes are logarithmic. Thin lines are ways that are not the best at any size."
                    .into()
            }
        },
        page,
        file: file.svg,
        says: crossings.into_iter().map(|(_, letter, text)| format!("{letter}: {text}")).collect(),
        table: data(run, &of_direction, &all, &sizes),
        title,
    })
}

fn what(observe: Observe) -> &'static str {
    match observe {
        Observe::Done => "",
        Observe::Submit => "of the call alone",
        Observe::Engine => "of the engine alone",
    }
}

/// The subjects that are the best somewhere, those of the most sizes first, then CUDA's best forms. If none is the best, the first subjects of the
/// experiment.
fn strong<'r>(run: &'r Run, cells: &[&'r CellOfRun], all: &[Vec<&'r CellOfRun>]) -> Vec<&'r str> {
    let mut counted: Vec<(&str, usize, bool)> = Vec::new();
    let mut add = |name: &'r str, cuda: bool| match counted.iter_mut().find(|(known, ..)| *known == name) {
        Some((_, n, _)) => *n += 1,
        None => counted.push((name, 1, cuda)),
    };
    let is_here = |at: &&BestAt| cells.iter().any(|c| c.stage == at.stage && c.bytes == at.bytes);
    let p50 = || run.best.iter().filter(|b| b.metric == Metric::P50).flat_map(|b| &b.sizes).filter(is_here);
    p50().for_each(|at| add(&at.subject, false));
    p50().filter_map(|at| at.cuda.as_ref()).for_each(|cuda| add(&cuda.subject, true));
    counted.sort_by_key(|(_, n, cuda)| (*cuda, std::cmp::Reverse(*n)));
    let mut names: Vec<&str> = counted.into_iter().map(|(name, ..)| name).collect();
    names.retain(|name| cells.iter().any(|c| c.subject == *name));
    // CUDA's best form is not cut off by the seventh way.
    if names.len() > STRONG
        && let Some(last) = names.pop()
    {
        names.truncate(STRONG - 1);
        names.push(last);
    }
    for of in all {
        if names.len() < STRONG && (all.len() <= STRONG || names.is_empty()) && !names.contains(&of[0].subject.as_str())
        {
            names.push(&of[0].subject);
        }
    }
    names
}

/// Where the best way changes: the size, a letter, and its meaning.
fn crossings(run: &Run, cells: &[&CellOfRun]) -> Vec<(u64, String, String)> {
    let mut all = Vec::new();
    let is_here = |b: &&BestOfRun| {
        let at = b.sizes.first();
        let ends = |c: &&&CellOfRun| {
            Ends::of(&c.what).is_some_and(|e| (e.source, e.destination) == (b.source.as_str(), b.destination.as_str()))
        };
        b.metric == Metric::P50
            && at.is_some_and(|at| cells.iter().filter(ends).any(|c| c.stage == at.stage && c.bytes == at.bytes))
    };
    for best in run.best.iter().filter(is_here) {
        for pair in best.ranges.windows(2) {
            let stage = best.sizes.iter().find(|at| at.bytes == pair[1].from).map_or(0, |at| at.stage);
            let name = |subject: &str| run.label(stage, subject);
            let ends = format!("{} to {}", best.source, best.destination);
            let text = format!(
                "from {} on {} has the least p50 ({ends}), up to {} it is {}",
                bytes(pair[1].from),
                name(&pair[1].subject),
                bytes(pair[0].to),
                name(&pair[0].subject)
            );
            all.push((pair[1].from, text));
        }
    }
    all.sort_by_key(|(at, _)| *at);
    let letter = |n: usize| char::from(b'A' + (n % 26) as u8).to_string();
    all.into_iter().take(26).enumerate().map(|(n, (at, text))| (at, letter(n), text)).collect()
}

/// Rows are ways, columns sizes.
fn data(run: &Run, direction: &str, all: &[Vec<&CellOfRun>], sizes: &[u64]) -> Table {
    let mut columns = vec![head("p50 of")];
    columns.extend(sizes.iter().map(|size| number(bytes(*size), "ns")));
    let name = format!("{}-p50", slug(direction));
    let mut table = Table::new(name, format!("{direction}: p50 of every way at every size"), columns);
    for of in all {
        let mut row = vec![Cell::from(of[0].label())];
        for size in sizes {
            let found = of.iter().find(|c| c.bytes == *size).and_then(|c| Some((c, c.observed()?.summary.p50)));
            row.push(found.map_or_else(Cell::none, |(c, ns)| {
                let cell = crate::numbers::ns(ns);
                if run.is_best(c, ns as f64) { cell.marked(Mark::Best) } else { cell }
            }));
        }
        table.row(row);
    }
    table
}
