//! Curves over the time that was measured.

use super::tables::named;
use crate::document::{Block, Cell, Figure, Section, Table, head, number};
use crate::numbers::{bytes, slug, times};
use crate::plot::Axis;
use crate::plot::series::{Form, Picture, Point, Series, draw};
use run_folder::soak::Soak;
use run_folder::soak::account::{CellName, CellOfSoak, Period};
use terminal::number::{moment, nanoseconds};
use terminal::run::three_digits;

/// Series with a distinct look.
const STRONG: usize = 7;

/// How values of a curve are written, and on which axis.
#[derive(Clone, Copy, PartialEq)]
enum Unit {
    Time,
    Bytes,
    Plain(&'static str),
}

impl Unit {
    fn cell(self, v: f64) -> Cell {
        match self {
            Unit::Time => Cell::number(nanoseconds(v.round() as u64), v),
            Unit::Bytes => bytes(v as u64),
            Unit::Plain(unit) => Cell { text: format!("{} {unit}", three_digits(v)).trim_end().into(), ..times(v) },
        }
    }

    fn name(self) -> &'static str {
        match self {
            Unit::Time => "ns",
            Unit::Bytes => "bytes",
            Unit::Plain(unit) => unit,
        }
    }

    fn axis(self, low: f64, high: f64) -> Axis {
        match self {
            Unit::Time => Axis::times(low.max(1.0), high.max(1.0)),
            Unit::Bytes => Axis::values(low, high, |v, _| terminal::number::bytes(v.max(0.0) as u64)),
            Unit::Plain(unit) => Axis::values(low, high, move |v, decimals| format!("{v:.decimals$} {unit}")),
        }
    }
}

/// A name, and a value for each period that has one.
type Curve = (String, Vec<Option<f64>>);

pub fn section(soak: &Soak, below: [&str; 2]) -> Option<Section> {
    let mut section = Section::new("curves", "By period");
    type OfCell = (&'static str, fn(&CellOfSoak) -> Option<f64>);
    let of_cells: [OfCell; 3] =
        [("Mean", |c| c.mean_ns), ("p99", |c| c.p99_ns.map(|v| v as f64)), ("Longest", |c| c.max_ns.map(|v| v as f64))];
    for (title, of) in of_cells {
        let curves: Vec<Curve> =
            soak.cells.iter().map(|total| (named(soak, &total.cell), of_cell(soak, &total.cell, of))).collect();
        section.blocks.extend(figure(soak, below, &format!("{title} of each cell"), Unit::Time, curves));
    }
    type OfPeriod = (&'static str, fn(&Period) -> Option<f64>);
    type Curves<'a> = (&'static str, Unit, &'a [OfPeriod]);
    let of_machine: [Curves<'_>; 4] = [
        (
            "Power of the GPU",
            Unit::Plain("W"),
            &[
                ("mean", |p| Some(p.machine.power_w?.mean)),
                ("least", |p| Some(p.machine.power_w?.min)),
                ("most", |p| Some(p.machine.power_w?.max)),
            ],
        ),
        ("Temperature of the GPU", Unit::Plain("C"), &[("mean", |p| Some(p.machine.temperature_c?.mean))]),
        ("Clock of the GPU", Unit::Plain("MHz"), &[("mean", |p| Some(p.machine.sm_clock_mhz?.mean))]),
        (
            "Memory that the measuring process holds",
            Unit::Bytes,
            &[
                ("resident", |p| Some(p.held.rss_bytes? as f64)),
                ("of the GPU", |p| Some(p.held.gpu_used_bytes? as f64)),
            ],
        ),
    ];
    for (title, unit, of) in of_machine {
        let curves = of.iter().map(|(name, of)| ((*name).to_owned(), soak.periods.iter().map(of).collect()));
        section.blocks.extend(figure(soak, below, title, unit, curves.collect()));
    }
    section.some()
}

fn of_cell(soak: &Soak, name: &CellName, of: fn(&CellOfSoak) -> Option<f64>) -> Vec<Option<f64>> {
    soak.periods.iter().map(|p| p.cells.iter().find(|c| c.cell == *name).and_then(of)).collect()
}

/// `None` if fewer than two periods have a value.
fn figure(soak: &Soak, below: [&str; 2], title: &str, unit: Unit, mut curves: Vec<Curve>) -> Option<Block> {
    curves.retain(|(_, values)| values.iter().flatten().count() > 1);
    if curves.is_empty() {
        return None;
    }
    // Each at the middle of its period, by the time that was measured.
    let mut ends = 0.0;
    let at: Vec<f64> = soak
        .periods
        .iter()
        .map(|p| {
            ends += p.seconds;
            ends - p.seconds / 2.0
        })
        .collect();
    let (scale, word) = match ends {
        ..240.0 => (1.0, "s"),
        ..7200.0 => (60.0, "min"),
        _ => (3600.0, "h"),
    };
    let series: Vec<Series> = curves
        .iter()
        .map(|(name, values)| {
            let known = at.iter().zip(values).filter_map(|(at, v)| Some((*at, (*v)?)));
            let point = |(at, v): (f64, f64)| Point {
                x: at / scale,
                y: v,
                says: format!("{name}: {} after {}", unit.cell(v).text, moment(at)),
            };
            Series { name: name.clone(), note: String::new(), points: known.map(point).collect() }
        })
        .collect();
    let values = || curves.iter().flat_map(|(_, v)| v).flatten().copied();
    let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    let (first, others) = series.split_at(series.len().min(STRONG));
    let [page, file] = draw(&Picture {
        title: title.into(),
        about: format!("{title} in each period, against the time that was measured"),
        below,
        axes: (Axis::values(0.0, ends / scale, |v, decimals| format!("{v:.decimals$} {word}")), unit.axis(low, high)),
        labels: ("time measured", title),
        form: if soak.periods.len() > 24 { Form::Curves } else { Form::Lines },
        series: first,
        others,
        crossings: &[],
    });
    let name = slug(&format!("soak {title}"));
    let mut columns = vec![head("period"), number("after", "s")];
    columns.extend(curves.iter().map(|(name, _)| number(name.as_str(), unit.name())));
    let mut table = Table::new(name.clone(), format!("{title}, by period"), columns);
    for (n, (period, at)) in soak.periods.iter().zip(&at).enumerate() {
        let mut row = vec![period.index.to_string().into(), crate::numbers::moment(*at)];
        row.extend(curves.iter().map(|(_, values)| values[n].map_or_else(Cell::none, |v| unit.cell(v))));
        table.row(row);
    }
    Some(Block::Figure(Box::new(Figure {
        name,
        title: title.into(),
        about: String::new(),
        page,
        file: file.svg,
        says: Vec::new(),
        table,
    })))
}
