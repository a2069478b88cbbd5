//! Every cell in one table.

use super::{Of, why_not};
use crate::document::{Block, Cell, Mark, Section, Table, head, number, text};
use crate::numbers::{count, ns, ns_or_none, size, times};
use run_folder::Run;
use run_folder::run::{Bounded, CellOfRun, Coordinate, Figure};

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    let axes = axes(run);
    let table = if run.functional { functional(of_run, &axes) } else { all(of_run, &axes) };
    let mut section = Section::new(&of_run.id("cells"), "All cells");
    section.push(Block::Table(table.without_empty().folded_above(12)));
    if !run.functional {
        section.push(Block::Text(
            "Times are from the intended release until the CPU saw the end, unless the name says otherwise. A percentile needs ten samples \
             beyond it; max is the largest of this many samples, not a bound. Intervals hold 95 %, from what processes differ by; \
             with fewer than three there is none. ~ stands before a ratio that may be 1."
                .into(),
        ));
    }
    section.some()
}

/// Axes with more than one value, without the size.
pub fn axes(run: &Run) -> Vec<String> {
    let mut names: Vec<&str> = Vec::new();
    for c in run.stages.iter().flat_map(|s| &s.point).filter(|c| c.name != "bytes") {
        if !names.contains(&c.name.as_str()) {
            names.push(&c.name);
        }
    }
    let of = |point: &[Coordinate], name: &str| point.iter().find(|c| c.name == name).map(|c| c.value.clone());
    let varies = |name: &&str| {
        let first = run.stages.first().and_then(|s| of(&s.point, name));
        run.stages.iter().any(|s| of(&s.point, name) != first)
    };
    names.into_iter().filter(varies).map(str::to_owned).collect()
}

/// A suffix for the name of a cell: `, crowd.count = 64`.
pub fn place(run: &Run, stage: u32) -> String {
    let names = axes(run);
    let stage = run.stages.iter().find(|s| s.number == stage);
    let here = stage.into_iter().flat_map(|s| &s.point).filter(|c| names.contains(&c.name));
    here.map(|c| format!(", {c}")).collect()
}

fn names(axes: &[String]) -> Vec<crate::document::Column> {
    let mut columns: Vec<_> = vec![head("what"), number("size", "bytes")];
    columns.extend(axes.iter().map(text));
    columns
}

/// What it is, its size, and where in the matrix.
fn named(cell: &CellOfRun, axes: &[String]) -> Vec<Cell> {
    let many = if cell.back_to_back > 1 { format!(", {} each", cell.back_to_back) } else { String::new() };
    let mut row = vec![Cell::text(format!("{}{many}", cell.subject)), size(cell.bytes)];
    row.extend(axes.iter().map(|name| {
        let value = cell.point.iter().find(|c| c.name == *name).map(|c| c.value.as_str());
        value.map_or_else(Cell::none, Cell::from)
    }));
    row
}

/// Its status, if it is not simply measured.
fn status(cell: &CellOfRun) -> Cell {
    why_not(&cell.status).map_or_else(|| Cell::text(""), |(word, _)| Cell::text(word).marked(Mark::Bad))
}

fn functional(of_run: &Of<'_>, axes: &[String]) -> Table {
    let mut columns = names(axes);
    columns.extend([number("samples", ""), number("compared", ""), text("data"), text("status")]);
    let mut table = Table::new(of_run.id("cells"), "All cells: what worked", columns);
    for cell in &of_run.run.cells {
        let mut row = named(cell, axes);
        let data = match (why_not(&cell.status), cell.checked.whole) {
            (Some(_), _) | (_, 0) => "-",
            _ if cell.checked.guards => "right, bytes around untouched",
            _ => "right",
        };
        row.extend([count(cell.samples), count(cell.checked.whole), data.into(), status(cell)]);
        table.row(row);
    }
    table
}

fn all(of_run: &Of<'_>, axes: &[String]) -> Table {
    let run = of_run.run;
    let mut columns = names(axes);
    columns.extend([
        number("samples", ""),
        number("p50", "ns"),
        text("95 % of p50"),
        number("p99", "ns"),
        number("p99.9", "ns"),
        number("max", "ns"),
        number("times", ""),
        text("of"),
        number("GB/s", "GB/s"),
        number("a second", ""),
        number("missed", ""),
        number("call p50", "ns"),
        number("engine p50", "ns"),
        text("status"),
    ]);
    let mut table = Table::new(of_run.id("cells"), "All cells with their figures", columns);
    for cell in &run.cells {
        let stands = why_not(&cell.status).is_none();
        let figure = cell.observed().filter(|_| stands);
        let of = |which: statistics::Figure, f: fn(&Figure) -> Option<u64>| {
            let mut time = ns_or_none(figure.and_then(f));
            if figure.and_then(f).is_some() && cell.is_at_least(which) {
                time.text.insert_str(0, "at least ");
            }
            time
        };
        let mut row = named(cell, axes);
        row.push(count(cell.samples));
        row.push(of(statistics::Figure::P50, |f| Some(f.summary.p50)));
        row.push(figure.and_then(|f| f.p50_interval).map_or_else(Cell::none, |i| {
            let text = |v: f64| terminal::number::nanoseconds(v.round() as u64);
            Cell::text(format!("{} to {}", text(i.low), text(i.high)))
        }));
        row.push(of(statistics::Figure::P99, |f| f.summary.p99));
        row.push(of(statistics::Figure::P999, |f| f.summary.p999));
        row.push(of(statistics::Figure::Max, |f| Some(f.summary.max)));
        let ratio = cell.ratio.as_ref().filter(|_| stands);
        row.push(ratio.map_or_else(Cell::none, |r| {
            let mut of_ratio = times(r.ratio.ratio);
            let sign = match r.bounded {
                Some(Bounded::AtLeast) => "at least ",
                Some(Bounded::AtMost) => "at most ",
                None if r.ratio.differs() == Some(true) => "",
                None | Some(Bounded::NotKnown) => "~",
            };
            of_ratio.text.insert_str(0, sign);
            of_ratio
        }));
        row.push(ratio.map_or_else(Cell::none, |r| format!("{} of {}", r.metric, r.baseline).into()));
        let rate = cell.rate.as_ref().filter(|_| stands);
        row.push(rate.and_then(|r| r.bytes_per_second).map_or_else(Cell::none, |v| times(v / 1e9)));
        row.push(rate.map_or_else(Cell::none, |r| count(r.transfers_per_second.round() as u64)));
        row.push(cell.misses.filter(|_| stands).map_or_else(Cell::none, |m| count(m.missed)));
        let p50 = |f: &Option<Figure>| f.as_ref().filter(|_| stands).map_or_else(Cell::none, |f| ns(f.summary.p50));
        row.push(p50(&cell.figures.submit));
        row.push(p50(&cell.figures.engine));
        row.push(status(cell));
        table.row(row);
        let rows = table.rows.len();
        if rows > 1 && run.cells[rows - 2].stage != cell.stage {
            table.rows[rows - 1].apart = true;
        }
    }
    table
}
