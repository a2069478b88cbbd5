//! How samples are distributed: from the samples where they are there, else from the percentiles that `run.json` has.

use super::Of;
use super::groups::{self, Group};
use crate::Error;
use crate::document::{Block, Figure, Section, Table, head, number};
use crate::numbers::{count, ns, ns_of, ns_or_none, slug};
use plot::Axis;
use plot::series::{Form, Picture, Point, Series, draw};
use report::number::{bytes, nanoseconds};
use results::run::CellOfRun;

/// Series of one picture.
const MOST: usize = 6;
const PICTURES: usize = 6;

/// Of one picture: all of a size, or those of one direction where they are many.
type Place<'a> = (&'a Group<'a>, Option<(&'a str, &'a str)>, u64, Vec<&'a CellOfRun>);

pub fn section(of_run: &Of<'_>) -> Result<Option<Section>, Error> {
    let mut section = Section::new(&of_run.id("spread"), "Distributions");
    let groups = groups::all(of_run.run);
    let mut places: Vec<Place<'_>> = Vec::new();
    for group in &groups {
        for size in telling(&group.sizes()) {
            let here: Vec<&CellOfRun> = group.cells.iter().copied().filter(|c| c.bytes == size).collect();
            match here.len() > MOST {
                true => {
                    places.extend(group.directions_of(here).into_iter().map(|(way, cells)| (group, way, size, cells)))
                }
                false => places.push((group, None, size, here)),
            }
        }
    }
    let left = places.len().saturating_sub(PICTURES);
    // Of a long matrix its first and its last places, not only its beginning.
    let chosen = (0..places.len()).filter(|n| left == 0 || n * (PICTURES - 1) % (places.len() - 1) < PICTURES - 1);
    for (group, direction, size, cells) in chosen.filter_map(|n| places.get(n)) {
        let mut cells = cells.clone();
        let all = cells.len();
        cells.sort_by_key(|c| c.observed().map_or(u64::MAX, |f| f.summary.p50));
        cells.truncate(MOST);
        let size = if *size > 0 { format!(", {}", bytes(*size)) } else { String::new() };
        let direction = direction.map_or(String::new(), |(from, to)| format!(", {from} to {to}"));
        let place = format!("{direction}{size}{}", group.behind());
        let many = if all > cells.len() { format!(" The {MOST} with the least p50 of {all}.") } else { String::new() };
        for figure in figures(of_run, &cells, &place, &many)? {
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

/// The smallest, one in the middle, and the largest.
fn telling(sizes: &[u64]) -> Vec<u64> {
    match sizes {
        [first, .., last] if sizes.len() > 3 => vec![*first, sizes[sizes.len() / 2], *last],
        few => few.to_vec(),
    }
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
        about: format!("The part of the samples below each time; each nine has as much room as the one before.{many}"),
        page,
        file: file.svg,
        says: Vec::new(),
        table: percentiles(&name("cdf"), cells),
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

fn percentiles(name: &str, cells: &[&CellOfRun]) -> Table {
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
    for cell in cells {
        let Some(figure) = cell.observed() else { continue };
        let s = &figure.summary;
        table.row(vec![
            name_of(cell, cells).into(),
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

/// A line through what is known.
fn from_percentiles(of_run: &Of<'_>, cells: &[&CellOfRun], place: &str, many: &str) -> Option<Figure> {
    let mut series = Vec::new();
    let (mut low, mut high, mut most) = (f64::INFINITY, 0.0f64, 0);
    for cell in cells {
        let s = &cell.observed()?.summary;
        let known = [
            (Some(s.min), 0.0, "min"),
            (Some(s.p50), 0.5, "p50"),
            (s.p90, 0.9, "p90"),
            (s.p99, 0.99, "p99"),
            (s.p999, 0.999, "p99.9"),
            (s.p9999, 0.9999, "p99.99"),
            (Some(s.max), 1.0 - 1.0 / s.count.max(2) as f64, "max"),
        ];
        let points = known.into_iter().filter_map(|(v, part, name)| {
            let v = v?.max(1);
            let says = format!("{}: {name} {}", name_of(cell, cells), nanoseconds(v));
            Some(Point { x: v as f64, y: part, says })
        });
        let points: Vec<Point> = points.collect();
        low = points.iter().map(|p| p.x).fold(low, f64::min);
        high = points.iter().map(|p| p.x).fold(high, f64::max);
        most = most.max(s.count);
        let note =
            format!("p50 {}, max {} of {}", nanoseconds(s.p50), nanoseconds(s.max), report::number::count(s.count));
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
            "The part of the samples below each time, drawn through the known percentiles (the samples are not here); each nine has as \
             much room as the one before.{many}"
        ),
        page,
        file: file.svg,
        says: Vec::new(),
        table: percentiles(&name, cells),
        name,
        title,
    })
}

/// Short where that is nobody else's name.
fn name_of(cell: &CellOfRun, cells: &[&CellOfRun]) -> String {
    let label = cell.label();
    if cells.iter().filter(|c| c.label() == label).count() > 1 { cell.subject.clone() } else { label }
}
