//! How samples are distributed: from the samples if they are there, else from the percentiles in `run.json`.

use super::Of;
use super::groups;
use crate::Error;
use crate::document::{Block, Figure, Section, Table, head, number};
use crate::numbers::{count, ns, ns_of, ns_or_none, slug};
use plot::Axis;
use plot::series::{Form, Picture, Point, Series, draw};
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
    let drawn = match of_run.folder {
        Some(folder) => plot::distributions(folder, of_run.run, cells)?,
        None => None,
    };
    let Some(drawn) = drawn else { return Ok(from_percentiles(of_run, cells, place, many).into_iter().collect()) };
    let [page, file] = drawn.cdf;
    let cdf = Figure {
        name: name("cdf"),
        title: format!("Distribution{place}"),
        about: format!(
            "The fraction of the samples below each time; each nine has as much room as the one before.{many}"
        ),
        page,
        file: file.svg,
        says: Vec::new(),
        table: percentiles(&name("cdf"), &named(cells)),
    };
    let [page, file] = drawn.histogram;
    let columns = vec![head("what"), number("from", "ns"), number("to", "ns"), number("samples", "")];
    let mut table = Table::new(name("histogram"), format!("Histogram{place}"), columns);
    for (cell, buckets) in cells.iter().zip(&drawn.buckets) {
        for (from, to, n) in buckets {
            table.row(vec![name_of(cell, cells).into(), ns_of(*from), ns_of(*to), count(*n)]);
        }
    }
    let histogram = Figure {
        name: name("histogram"),
        title: format!("Histogram{place}"),
        about: "How many samples took how long; both axes are logarithmic.".into(),
        page,
        file: file.svg,
        says: Vec::new(),
        table,
    };
    Ok(vec![cdf, histogram])
}

fn slug_behind(place: &str) -> String {
    let slug = slug(place);
    if slug.is_empty() { slug } else { format!("-{slug}") }
}

fn named<'c>(cells: &[&'c CellOfRun]) -> Vec<(String, &'c CellOfRun)> {
    cells.iter().map(|c| (name_of(c, cells), *c)).collect()
}

/// A row for each cell, with its name.
pub fn percentiles(name: &str, cells: &[(String, &CellOfRun)]) -> Table {
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
    for (name, cell) in cells {
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

/// A line through the known percentiles.
fn from_percentiles(of_run: &Of<'_>, cells: &[&CellOfRun], place: &str, many: &str) -> Option<Figure> {
    let mut series = Vec::new();
    let (mut low, mut high, mut most) = (f64::INFINITY, 0.0f64, 0);
    for cell in cells {
        let s = &cell.observed()?.summary;
        let points = known(&name_of(cell, cells), s);
        low = points.iter().map(|p| p.x).fold(low, f64::min);
        high = points.iter().map(|p| p.x).fold(high, f64::max);
        most = most.max(s.count);
        let note =
            format!("p50 {}, max {} of {}", nanoseconds(s.p50), nanoseconds(s.max), terminal::number::count(s.count));
        series.push(Series { name: name_of(cell, cells), note, points, band: Vec::new() });
    }
    if series.is_empty() {
        return None;
    }
    let title = format!("Distribution{place}");
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: "The part of the samples below each time, from the percentiles that are known; tails are stretched"
            .into(),
        below: of_run.below(),
        axes: (Axis::times(low, high), Axis::nines(most)),
        labels: ("time", "samples below"),
        form: Form::Lines,
        series: &series,
        others: &[],
        crossings: &[],
    });
    let name = of_run.id(&format!("cdf{}", slug_behind(place)));
    Some(Figure {
        about: format!(
            "The fraction of the samples below each time, drawn through the known percentiles (the samples are missing); each nine has as \
             much room as the one before.{many}"
        ),
        page,
        file: file.svg,
        says: Vec::new(),
        table: percentiles(&name, &named(cells)),
        name,
        title,
    })
}

/// The percentiles that are known, as points of a distribution.
pub fn known(name: &str, s: &Summary) -> Vec<Point> {
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
