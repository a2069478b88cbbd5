//! Bytes per second, if an experiment is about them.

use super::{Of, groups, place};
use crate::document::{Block, Cell, Figure, Section, Table, head, number, text};
use crate::numbers::{count, size, slug, times};
use crate::plot::Axis;
use crate::plot::ranked::{Bar, Ranked};
use crate::plot::series::{Form, Picture, Point, Series};
use experiment::Metric;
use run_folder::run::groups::{Group, directions, sizes, subjects};
use run_folder::run::{CellOfRun, Rate};
use run_folder::{Run, Status};
use terminal::number::{bytes, tick};
use terminal::run::three_digits;

const PICTURES: usize = 6;
/// Bars of one picture.
const BARS: usize = 24;
/// With fewer sizes there is no line.
const SIZES: usize = 3;

/// Whether its experiment compares or asserts rates, or moves copies back to back to find them.
pub fn is_about(run: &Run) -> bool {
    let e = &run.experiment;
    e.compare.as_ref().is_some_and(|c| c.metric == Metric::Rate)
        || e.asserts.iter().any(|a| a.metric == Metric::Rate)
        || run.cells.iter().any(|c| c.back_to_back > 1)
}

/// Bytes per nanosecond if a sample takes this long.
pub fn gigabytes(cell: &CellOfRun, ns: f64) -> f64 {
    cell.bytes as f64 * f64::from(cell.back_to_back) / ns.max(1.0)
}

fn rate(cell: &CellOfRun) -> Option<(f64, &Rate)> {
    let rate = cell.rate.as_ref().filter(|_| cell.status == Status::Measured)?;
    Some((rate.bytes_per_second? / 1e9, rate))
}

/// From where to where, GB/s.
fn interval(rate: &Rate) -> Option<(f64, f64)> {
    let each = rate.bytes_per_second? / rate.transfers_per_second / 1e9;
    rate.interval.map(|i| (i.low * each, i.high * each))
}

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let run = of_run.run;
    if !is_about(run) {
        return None;
    }
    let mut section = Section::new(&of_run.id("rates"), "Rates");
    let groups = groups::all(run);
    let mut drawn = 0;
    for group in &groups {
        let cells: Vec<&CellOfRun> = group.cells.iter().copied().filter(|c| rate(c).is_some()).collect();
        let figures =
            if sizes(&group.cells).len() < SIZES { bars(of_run, group, &cells) } else { lines(of_run, group, &cells) };
        let room = PICTURES - drawn;
        drawn += figures.len().min(room);
        figures.into_iter().take(room).for_each(|f| section.push(Block::Figure(Box::new(f))));
    }
    section.some()
}

fn table(of_run: &Of<'_>, name: &str, cells: &[&CellOfRun]) -> Table {
    let columns = vec![
        head("what"),
        number("size", "bytes"),
        text("where"),
        number("GB/s", "GB/s"),
        text("95 %"),
        number("transfers a second", ""),
    ];
    let mut table = Table::new(name, "Rates", columns);
    for cell in cells {
        let Some((v, of)) = rate(cell) else { continue };
        table.row(vec![
            cell.subject.as_str().into(),
            size(cell.bytes),
            place(of_run.run, cell.stage).trim_start_matches(", ").into(),
            times(v),
            interval(of).map_or_else(Cell::none, |(l, h)| format!("{} to {}", three_digits(l), three_digits(h)).into()),
            count(of.transfers_per_second.round() as u64),
        ]);
    }
    table.without_empty()
}

/// For each direction and size, the fastest first.
fn bars(of_run: &Of<'_>, group: &Group<'_>, cells: &[&CellOfRun]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for bytes_each in sizes(&group.cells) {
        let here: Vec<&CellOfRun> = cells.iter().copied().filter(|c| c.bytes == bytes_each).collect();
        for (direction, mut of) in directions(&here) {
            of.sort_by(|a, b| {
                rate(b).map(|r| r.0).partial_cmp(&rate(a).map(|r| r.0)).unwrap_or(std::cmp::Ordering::Equal)
            });
            of.truncate(BARS);
            let bar = |c: &&CellOfRun| {
                let (value, rate) = rate(c)?;
                let written = format!("{} GB/s", three_digits(value));
                Some(Bar { name: c.subject.clone(), value, written, interval: interval(rate) })
            };
            let all: Vec<Bar> = of.iter().filter_map(bar).collect();
            let high = all.iter().map(|b| b.interval.map_or(b.value, |i| i.1)).fold(0.0, f64::max);
            if all.is_empty() || high <= 0.0 {
                continue;
            }
            let way = direction.map_or("calls".to_owned(), |(from, to)| format!("{from} to {to}"));
            let title = format!("{way}, {}{}: GB/s", bytes(bytes_each), group.behind());
            let about = "Longer is better. The short line on each bar is its 95 % interval.";
            let [page, file] = crate::plot::ranked::draw(&Ranked {
                title: title.clone(),
                about: about.into(),
                below: of_run.below(),
                axis: Axis::from_zero(high, tick::count),
                label: "GB/s",
                bars: &all,
            });
            let name = of_run.id(&format!("rates-{}", slug(&title)));
            let table = table(of_run, &name, &of);
            figures.push(Figure { name, title, about: about.into(), page, file: file.svg, says: Vec::new(), table });
        }
    }
    figures
}

/// Against size.
fn lines(of_run: &Of<'_>, group: &Group<'_>, cells: &[&CellOfRun]) -> Vec<Figure> {
    let mut figures = Vec::new();
    for (direction, of) in directions(cells) {
        let sized = |c: &&CellOfRun| c.bytes > 0;
        let of: Vec<&CellOfRun> = of.into_iter().filter(sized).collect();
        let series = subjects(&of).into_iter().map(|all| {
            let point = |c: &&CellOfRun| {
                let v = rate(c)?.0;
                let says = format!("{}, {}: {} GB/s", c.label(), bytes(c.bytes), three_digits(v));
                Some(Point { x: c.bytes as f64, y: v, says })
            };
            let points = all.iter().filter_map(point).collect();
            Series { name: all[0].label(), note: String::new(), points }
        });
        let series: Vec<Series> = series.collect();
        let values = || series.iter().flat_map(|s| s.points.iter().map(|p| p.y));
        let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
        let sizes = || of.iter().map(|c| c.bytes);
        let Some((least, most)) = sizes().min().zip(sizes().max()).filter(|_| high > 0.0) else { continue };
        let way = direction.map_or("calls".to_owned(), |(from, to)| format!("{from} to {to}"));
        let title = format!("{way}{}: GB/s against size", group.behind());
        let about = "Higher is better; both axes are logarithmic.";
        let [page, file] = crate::plot::series::draw(&Picture {
            title: title.clone(),
            about: about.into(),
            below: of_run.below(),
            axes: (Axis::sizes(least, most), Axis::rates(low, high)),
            labels: ("size", "GB/s"),
            form: Form::Lines,
            series: &series,
            others: &[],
            crossings: &[],
        });
        let name = of_run.id(&format!("rates-{}", slug(&title)));
        let table = table(of_run, &name, &of);
        figures.push(Figure { name, title, about: about.into(), page, file: file.svg, says: Vec::new(), table });
    }
    figures
}
