//! How samples are distributed: from the samples if they are there, else from the percentiles in `run.json`.

use super::Of;
use super::groups;
use crate::Error;
use crate::document::{Block, Figure, Section, Table, head, number};
use crate::numbers::{count, ns, ns_of, ns_or_none, slug};
use crate::plot::series::{Form, Picture, Point, Series, draw};
use crate::plot::{self, Axis, Shape};
use run_folder::run::CellOfRun;
use statistics::Summary;
use terminal::number::nanoseconds;

/// Series of one picture.
const MOST: usize = 6;
const PICTURES: usize = 6;

pub fn section(of_run: &Of<'_>) -> Result<Option<Section>, Error> {
    let mut section = Section::new(&of_run.id("spread"), "Distributions");
    let groups = groups::all(of_run.run);
    let (places, left) = groups::main_places(&groups, MOST, PICTURES);
    for place in &places {
        let all = place.of;
        let many =
            if all > place.cells.len() { format!(" The {MOST} with the least p50 of {all}.") } else { String::new() };
        for figure in figures(of_run, &place.cells, &place.behind(), &many)? {
            section.push(Block::Figure(Box::new(figure)));
        }
    }
    if left > 0 {
        section.push(Block::Text(format!(
            "{left} more are left out here; the table of all cells has their percentiles, and the run's folder a picture of each."
        )));
    }
    Ok(section.some())
}

fn figures(of_run: &Of<'_>, cells: &[&CellOfRun], place: &str, many: &str) -> Result<Vec<Figure>, Error> {
    let name = |kind: &str| of_run.id(&format!("{kind}{}", slug_behind(place)));
    let shapes = match of_run.folder {
        Some(folder) => plot::shapes(folder, of_run.run, cells)?,
        None => Vec::new(),
    };
    let lines = cells.iter().enumerate().map(|(n, cell)| Line {
        name: name_of(cell, cells),
        cell,
        points: shapes.get(n).map_or_else(Vec::new, |s| s.distribution.clone()),
    });
    let about = match shapes.is_empty() {
        true => ", drawn through the known percentiles (the samples are missing)",
        false => "",
    };
    let about = format!(
        "The fraction of the samples below each time{about}; each nine has as much room as the one before.{many}"
    );
    let cdf =
        distribution(name("cdf"), format!("Distribution{place}"), about, of_run.below(), &lines.collect::<Vec<_>>());
    Ok(cdf
        .into_iter()
        .chain(histogram(of_run, name("histogram"), format!("Histogram{place}"), cells, &shapes))
        .collect())
}

/// A cell in a picture of distributions: times, and the part of the samples below each. Without points it is drawn through its percentiles.
pub struct Line<'a> {
    pub name: String,
    pub cell: &'a CellOfRun,
    pub points: Vec<(f64, f64)>,
}

/// `None` if nothing is known of a cell.
pub fn distribution(
    name: String,
    title: String,
    about: String,
    below: [&str; 2],
    lines: &[Line<'_>],
) -> Option<Figure> {
    let mut series = Vec::new();
    for line in lines {
        let s = &line.cell.observed()?.summary;
        let points = match line.points.as_slice() {
            [] => known(&line.name, s),
            points => points.iter().map(|(x, y)| Point { x: *x, y: *y, says: String::new() }).collect(),
        };
        let (p50, max) = (nanoseconds(s.p50), nanoseconds(s.max));
        let note = format!("p50 {p50}, max {max} of {}", terminal::number::count(s.count));
        series.push(Series { name: line.name.clone(), note, points });
    }
    let (low, high) = range(series.iter().flat_map(|s| s.points.iter().map(|p| p.x)))?;
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: about.clone(),
        below,
        axes: (Axis::times(low, high), Axis::nines(lines.iter().map(|l| l.cell.samples).max().unwrap_or(0))),
        labels: ("time", "samples below"),
        form: if lines.iter().all(|l| l.points.is_empty()) { Form::Lines } else { Form::Curves },
        series: &series,
        others: &[],
        crossings: &[],
    });
    let table = percentiles(&name, lines);
    Some(Figure { name, title, about, page, file: file.svg, says: Vec::new(), table })
}

/// The least and the largest.
fn range(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, v| Some(range.map_or((v, v), |(low, high): (f64, f64)| (low.min(v), high.max(v)))))
}

/// A count of less than one sample: the axis is logarithmic.
const NONE: f64 = 0.8;

fn histogram(of_run: &Of<'_>, name: String, title: String, cells: &[&CellOfRun], shapes: &[Shape]) -> Option<Figure> {
    let columns = vec![head("what"), number("from", "ns"), number("to", "ns"), number("samples", "")];
    let mut table = Table::new(name.as_str(), title.as_str(), columns);
    let mut series = Vec::new();
    for (cell, shape) in cells.iter().zip(shapes) {
        let mut points: Vec<Point> = Vec::new();
        let mut add = |x: f64, y: f64| points.push(Point { x, y, says: String::new() });
        let mut last = None;
        for (from, to, n) in &shape.buckets {
            // Down to the axis where buckets between are empty.
            if last.is_none_or(|last| *from > last * 1.0001) {
                last.into_iter().for_each(|last| add(last, NONE));
                add(*from, NONE);
            }
            add(*from, *n as f64);
            add(*to, *n as f64);
            last = Some(*to);
            table.row(vec![name_of(cell, cells).into(), ns_of(*from), ns_of(*to), count(*n)]);
        }
        last.into_iter().for_each(|last| add(last, NONE));
        series.push(Series { name: name_of(cell, cells), note: String::new(), points });
    }
    let points = || series.iter().flat_map(|s| &s.points);
    let (low, high) = range(points().map(|p| p.x))?;
    let about = "How many samples took how long; both axes are logarithmic.";
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: about.into(),
        below: of_run.below(),
        axes: (Axis::times(low, high), Axis::counts(points().map(|p| p.y).fold(1.0, f64::max) * 1.3)),
        labels: ("time", "samples"),
        form: Form::Curves,
        series: &series,
        others: &[],
        crossings: &[],
    });
    Some(Figure { name, title, about: about.into(), page, file: file.svg, says: Vec::new(), table })
}

fn slug_behind(place: &str) -> String {
    let slug = slug(place);
    if slug.is_empty() { slug } else { format!("-{slug}") }
}

/// A row for each cell, with its name.
fn percentiles(name: &str, cells: &[Line<'_>]) -> Table {
    let columns = vec![
        head("what"),
        number("samples", ""),
        number("min", "ns"),
        number("mean", "ns"),
        number("p50", "ns"),
        number("p90", "ns"),
        number("p99", "ns"),
        number("p99.9", "ns"),
        number("p99.99", "ns"),
        number("max", "ns"),
    ];
    let mut table = Table::new(name, "Percentiles; one that needs more samples is left out", columns);
    for Line { name, cell, .. } in cells {
        let Some(figure) = cell.observed() else { continue };
        let s = &figure.summary;
        table.row(vec![
            name.as_str().into(),
            count(s.count),
            ns(s.min),
            ns_of(s.mean),
            ns(s.p50),
            ns_or_none(s.p90),
            ns_or_none(s.p99),
            ns_or_none(s.p999),
            ns_or_none(s.p9999),
            ns(s.max),
        ]);
    }
    table.without_empty()
}

/// The percentiles that are known, as points of a distribution.
fn known(name: &str, s: &Summary) -> Vec<Point> {
    let known = [
        (Some(s.min), 0.0, "min"),
        (Some(s.p50), 0.5, "p50"),
        (s.p90, 0.9, "p90"),
        (s.p99, 0.99, "p99"),
        (s.p999, 0.999, "p99.9"),
        (s.p9999, 0.9999, "p99.99"),
        (Some(s.max), 1.0 - 1.0 / s.count.max(2) as f64, "max"),
    ];
    let points = known.into_iter().filter_map(|(v, part, which)| {
        let v = v?.max(1);
        Some(Point { x: v as f64, y: part, says: format!("{name}: {which} {}", nanoseconds(v)) })
    });
    points.collect()
}

/// Short if no other cell has that name.
pub fn name_of(cell: &CellOfRun, cells: &[&CellOfRun]) -> String {
    let label = cell.label();
    if cells.iter().filter(|c| c.label() == label).count() > 1 { cell.subject.clone() } else { label }
}
