//! Which way wins at which size, and latency against size.

use super::Of;
use super::groups;
use crate::document::{Block, Cell, Figure, Mark, Section, Table, head, number, text};
use crate::numbers::{ns_of, slug, times_or_none};
use experiment::{Metric, Observe};
use plot::Axis;
use plot::series::{Form, Picture, Point, Series, draw};
use run_folder::Run;
use run_folder::run::groups::{Group, directions, place, subjects};
use run_folder::run::{BestAt, BestOfRun, CellOfRun, Ends, SAME};
use terminal::number::{bytes, nanoseconds};

/// Lines with a distinct look; more cannot be distinguished at a glance.
const STRONG: usize = 7;
/// Pictures of one run; more would make the page too long.
const PICTURES: usize = 10;
/// With fewer sizes a picture shows nothing.
const SIZES: usize = 3;
/// Tables of single places that are open from the start.
const OPEN: usize = 4;

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let mut section = Section::new(&of_run.id("routes"), "The best way, and latency against size");
    winners(of_run, &mut section);
    let mut tables = matrix(of_run);
    let has_tables = !tables.is_empty();
    // For a large matrix, one table shows the best way for each place; the tables of the places are opened on demand.
    if tables.len() > OPEN {
        tables = tables.into_iter().map(|t| Ways { table: t.table.folded(), ..t }).collect();
    }
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
            // Below the picture of the same direction.
            let (here, others): (Vec<_>, Vec<_>) =
                tables.into_iter().partition(|t| Some(t.direction()) == direction && t.place == group.place());
            tables = others;
            here.into_iter().for_each(|t| section.push(Block::Table(t.table)));
        }
    }
    tables.into_iter().for_each(|t| section.push(Block::Table(t.table)));
    if has_tables {
        section.push(Block::Text(format!(
            "A way is named as long as it is within {:.0} % of the best. A line marks where the named way changes. Times CUDA: the p50 \
             over that of CUDA's best form, in the same rounds; 95 %: its interval.",
            (SAME - 1.0) * 100.0
        )));
    }
    if left > 0 {
        section.push(Block::Text(format!(
            "{left} more pictures are left out here. The table of all cells has their figures."
        )));
    }
    section.some()
}

/// For two memories and one metric: rows are places of the matrix, columns are sizes, and each cell names the best way.
fn winners(of_run: &Of<'_>, section: &mut Section) {
    let run = of_run.run;
    let mut ends: Vec<(&str, &str)> = Vec::new();
    for b in &run.best {
        if !ends.contains(&(&b.source, &b.destination)) {
            ends.push((&b.source, &b.destination));
        }
    }
    for (source, destination) in ends {
        for metric in [Metric::P50, Metric::Max] {
            let is_it = |b: &&BestOfRun| {
                b.metric == metric && (b.source.as_str(), b.destination.as_str()) == (source, destination)
            };
            let rows: Vec<&BestOfRun> = run.best.iter().filter(is_it).collect();
            if rows.len() < 2 {
                continue;
            }
            let mut sizes: Vec<u64> = rows.iter().flat_map(|b| b.sizes.iter().map(|at| at.bytes)).collect();
            sizes.sort_unstable();
            sizes.dedup();
            let title = format!("{source} to {destination}: the way with the least {metric} at each place and size");
            let mut columns = vec![head("where")];
            columns.extend(sizes.iter().map(|size| text(bytes(*size))));
            let mut table = Table::new(of_run.id(&format!("winners-{}", slug(&title))), title, columns);
            for best in &rows {
                let mut row = vec![Cell::from(place(&best.point))];
                row.extend(sizes.iter().map(|size| {
                    let at = |b: &BestOfRun| Some(b.sizes.iter().find(|at| at.bytes == *size)?.subject.clone());
                    let Some(here) = best.sizes.iter().find(|at| at.bytes == *size) else { return Cell::none() };
                    let cell = Cell::from(run.label(here.stage, &here.subject));
                    // If it differs from the first row.
                    if at(rows[0]).is_some_and(|first| first != here.subject) {
                        cell.marked(Mark::Heat(2))
                    } else {
                        cell
                    }
                }));
                table.row(row);
            }
            let folded = metric == Metric::Max;
            section.push(Block::Table(if folded { table.folded() } else { table }));
        }
    }
    if !section.blocks.is_empty() {
        section.push(Block::Text("A shade marks where another way is the best than in the first row.".into()));
    }
}

/// The best ways between two memories.
struct Ways {
    place: String,
    source: String,
    destination: String,
    table: Table,
}

impl Ways {
    /// Whatever kinds of memory these are.
    fn direction(&self) -> (&str, &str) {
        let bare = |text: &str| text.find('[').unwrap_or(text.len());
        (&self.source[..bare(&self.source)], &self.destination[..bare(&self.destination)])
    }
}

/// A table for each pair of memories: for each size the best way by p50, p99 and max, next to CUDA's best form.
fn matrix(of_run: &Of<'_>) -> Vec<Ways> {
    let mut all = Vec::new();
    let run = of_run.run;
    let same =
        |a: &BestOfRun, b: &BestOfRun| (&a.point, &a.source, &a.destination) == (&b.point, &b.source, &b.destination);
    for of_ends in run.best.chunk_by(|a, b| same(a, b)) {
        let by = |metric: Metric| of_ends.iter().find(|b| b.metric == metric);
        let Some(p50) = by(Metric::P50) else { continue };
        let place = place(&p50.point);
        let behind = if place.is_empty() { String::new() } else { format!(", {place}") };
        let title = format!("{} to {}{behind}", p50.source, p50.destination);
        let columns = vec![
            head("size"),
            text("least p50"),
            number("p50", "ns"),
            text("CUDA's best"),
            number("its p50", "ns"),
            number("times CUDA", ""),
            text("95 %"),
            text("least p99"),
            number("p99", "ns"),
            text("least max"),
            number("max", "ns"),
        ];
        let name = of_run.id(&format!("best-{}", slug(&title)));
        let mut table = Table::new(name, format!("{title}: the best way at each size"), columns);
        let mut before: Option<&str> = None;
        for at in &p50.sizes {
            let other = |metric: Metric| by(metric).and_then(|b| b.sizes.iter().find(|o| o.bytes == at.bytes));
            let mut cells = vec![Cell::number(bytes(at.bytes), at.bytes as f64)];
            cells.extend(winner(run, Some(at)));
            let cuda = at.cuda.as_ref();
            cells.push(cuda.map_or_else(Cell::none, |c| run.label(at.stage, &c.subject).into()));
            cells.push(cuda.map_or_else(Cell::none, |c| ns_of(c.value_ns)));
            let ratio = cuda.and_then(|c| c.ratio);
            cells.push(times_or_none(ratio.map(|r| r.ratio)));
            cells.push(ratio.and_then(|r| r.interval).map_or_else(Cell::none, |i| {
                let three = terminal::run::three_digits;
                format!("{} to {}", three(i.low), three(i.high)).into()
            }));
            cells.extend(winner(run, other(Metric::P99)));
            cells.extend(winner(run, other(Metric::Max)));
            table.row(cells);
            if before.is_some_and(|b| b != at.subject) {
                table.rows.last_mut().into_iter().for_each(|row| row.apart = true);
            }
            before = Some(&at.subject);
        }
        let (source, destination) = (p50.source.clone(), p50.destination.clone());
        all.push(Ways { place, source, destination, table: table.without_empty() });
    }
    all
}

fn winner(run: &Run, at: Option<&BestAt>) -> [Cell; 2] {
    let name = at.map_or_else(Cell::none, |at| run.label(at.stage, &at.subject).into());
    [name, at.map_or_else(Cell::none, |at| ns_of(at.value_ns))]
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
        Series {
            name: of[0].label(),
            note: what(of[0].observe).into(),
            points: of.iter().map(point).collect(),
            band: Vec::new(),
        }
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
    let best: Vec<(&BestOfRun, &BestAt)> = run
        .best
        .iter()
        .filter(|b| b.metric == Metric::P50)
        .flat_map(|b| b.sizes.iter().map(move |at| (b, at)))
        .collect();
    let is_best = |c: &CellOfRun, ns: u64| {
        let Some(ends) = Ends::of(&c.what).filter(|_| c.observe == Observe::Done) else { return false };
        best.iter().any(|(b, at)| {
            (at.stage, at.bytes) == (c.stage, c.bytes)
                && (b.source.as_str(), b.destination.as_str()) == (ends.source, ends.destination)
                && ns as f64 <= at.least_ns * SAME
        })
    };
    for of in all {
        let mut row = vec![Cell::from(of[0].label())];
        for size in sizes {
            let found = of.iter().find(|c| c.bytes == *size).and_then(|c| Some((c, c.observed()?.summary.p50)));
            row.push(found.map_or_else(Cell::none, |(c, ns)| {
                let cell = crate::numbers::ns(ns);
                if is_best(c, ns) { cell.marked(Mark::Best) } else { cell }
            }));
        }
        table.row(row);
    }
    table
}
