//! The median of each round in the order of time: whether a cell has one speed or two, and whether it drifts.

use super::Of;
use super::groups;
use super::rates::{self, gigabytes};
use super::spread::name_of;
use crate::document::{Block, Cell, Column, Figure, Section, Table, head, number};
use crate::numbers::{ns, slug, times};
use crate::plot::Axis;
use crate::plot::rounds::{Panel, Picture, Round, Rounds, draw};
use run_folder::Run;
use run_folder::run::CellOfRun;
use terminal::number::tick;

/// Panels of one picture.
const MOST: usize = 6;
const PICTURES: usize = 4;
/// With fewer rounds a picture shows nothing.
const ROUNDS: usize = 3;

pub fn section(of_run: &Of<'_>) -> Option<Section> {
    let mut section = Section::new(&of_run.id("rounds"), "Rounds over time");
    let groups = groups::all(of_run.run);
    let (places, left) = groups::main_places(&groups, MOST, PICTURES);
    let mut drawn = 0;
    for place in &places {
        let name = of_run.id(&format!("rounds-{}", slug(&place.behind())));
        let title = format!("Rounds over time{}", place.behind());
        let cells: Vec<(String, Vec<Taken<'_>>)> = place
            .cells
            .iter()
            .map(|c| (name_of(c, &place.cells), vec![Taken { run: of_run.run, cell: c, name: String::new() }]))
            .collect();
        if let Some(figure) = figure(&name, title, &cells, of_run.below()) {
            drawn += 1;
            section.push(Block::Figure(Box::new(figure)));
        }
    }
    if left > 0 && drawn > 0 {
        section.push(Block::Text(format!("{left} more places are left out here.")));
    }
    section.some()
}

/// The rounds of a cell in one run, and the name of that run.
pub struct Taken<'a> {
    pub run: &'a Run,
    pub cell: &'a CellOfRun,
    pub name: String,
}

/// A panel for each name; the same cell of two runs shares one.
pub fn figure(name: &str, title: String, cells: &[(String, Vec<Taken<'_>>)], below: [&str; 2]) -> Option<Figure> {
    let all = || cells.iter().flat_map(|(_, taken)| taken);
    let each = all().flat_map(|t| &t.cell.per_round.round).max().map_or(1, |r| *r as usize + 1);
    let repeats = all().flat_map(|t| &t.cell.per_round.repeat).max().map_or(1, |r| *r as usize + 1);
    let rounds = each * repeats;
    let most = all().map(|t| t.cell.per_round.p50.len()).max().unwrap_or(0);
    if most < ROUNDS {
        return None;
    }
    let is_rate = all().all(|t| rates::is_about(t.run) && t.cell.bytes > 0);
    let value = |cell: &CellOfRun, ns: u64| if is_rate { gigabytes(cell, ns as f64) } else { ns.max(1) as f64 };
    let line = |t: &Taken<'_>| {
        let of = &t.cell.per_round;
        let rows = of.repeat.iter().zip(&of.round).zip(&of.p50);
        let point = |((repeat, round), p50): ((&u32, &u32), &u64)| Round {
            at: *repeat as usize * each + *round as usize,
            repeat: *repeat,
            value: value(t.cell, *p50),
        };
        Rounds { points: rows.map(point).collect() }
    };
    let panels: Vec<Panel> = cells
        .iter()
        .map(|(title, taken)| {
            let series: Vec<Rounds> = taken.iter().map(line).collect();
            let values = || series.iter().flat_map(|s| s.points.iter().map(|p| p.value));
            let (low, high) = (values().fold(f64::INFINITY, f64::min), values().fold(0.0, f64::max));
            let y = match is_rate {
                true => Axis::nearly(low, high, tick::count, Axis::rates),
                false => Axis::nearly(low, high, tick::nanoseconds, Axis::times),
            };
            Panel { title: title.clone(), y, series }
        })
        .collect();
    let starts: Vec<usize> = (1..repeats).map(|r| r * each).collect();
    let names: Vec<String> = cells.first().map_or(Vec::new(), |(_, t)| t.iter().map(|t| t.name.clone()).collect());
    let label = if is_rate { "GB/s" } else { "p50" };
    let about = match repeats {
        1 => format!("{label} of each round; a steady cell is a flat line, two levels are two speeds."),
        n => format!("{label} of each round of {n} repeats; a steady cell is a flat line, two levels are two speeds."),
    };
    let [page, file] = draw(&Picture {
        title: title.clone(),
        about: about.clone(),
        below,
        label,
        panels: &panels,
        rounds,
        repeats: &starts,
        names: &names,
    });
    let table = data(name, cells, is_rate);
    Some(Figure { name: name.into(), title, about, page, file: file.svg, says: Vec::new(), table })
}

/// Rows are rounds, columns cells.
fn data(name: &str, cells: &[(String, Vec<Taken<'_>>)], is_rate: bool) -> Table {
    let mut columns = vec![head("repeat"), number("round", "")];
    let all: Vec<(&String, &Taken<'_>)> =
        cells.iter().flat_map(|(of, taken)| taken.iter().map(move |t| (of, t))).collect();
    let unit = if is_rate { "GB/s" } else { "ns" };
    columns.extend(all.iter().map(|(of, t)| -> Column {
        number(if t.name.is_empty() { (*of).clone() } else { format!("{of}, {}", t.name) }, unit)
    }));
    let mut table = Table::new(name, "The median of each round", columns);
    let mut rounds: Vec<(u32, u32)> = all
        .iter()
        .flat_map(|(_, t)| t.cell.per_round.repeat.iter().copied().zip(t.cell.per_round.round.iter().copied()))
        .collect();
    rounds.sort_unstable();
    rounds.dedup();
    for (repeat, round) in rounds {
        let mut row = vec![Cell::from(repeat.to_string()), Cell::number(round.to_string(), round.into())];
        row.extend(all.iter().map(|(_, t)| {
            let of = &t.cell.per_round;
            let at = of.repeat.iter().zip(&of.round).position(|(r, n)| (*r, *n) == (repeat, round));
            let p50 = at.and_then(|at| of.p50.get(at).copied());
            p50.map_or_else(Cell::none, |v| if is_rate { times(gigabytes(t.cell, v as f64)) } else { ns(v) })
        }));
        table.row(row);
    }
    table
}
