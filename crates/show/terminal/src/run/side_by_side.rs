//! Several stages in one table, one line each: a column shows the effect of the matrix's values.

use super::figures::{Column, fitted, time};
use crate::number::bytes;
use crate::table::{Out, Style};
use run_folder::run::{CellOfRun, Figure, Group};
use std::io;

/// With fewer stages their own tables are enough.
const LEAST: usize = 3;
/// Subjects, each at one size, whose figures fit side by side. With more there is a table for each figure.
const MOST: usize = 6;
const MOST_OF_ONE_FIGURE: usize = 16;

/// Which figure of a cell.
type Of = (statistics::Figure, fn(&Figure) -> Option<u64>);

const FIGURES: [(&str, u8, Of); 3] = [
    ("p50", 0, (statistics::Figure::P50, |f| Some(f.summary.p50))),
    ("p99.9", 2, (statistics::Figure::P999, |f| f.summary.p999)),
    ("max", 1, (statistics::Figure::Max, |f| Some(f.summary.max))),
];

/// A subject at one size.
type Kind<'a> = (&'a str, u64);

pub(super) fn write(out: &mut dyn Out, style: &Style, groups: &[Group<'_>]) -> io::Result<()> {
    let mut kinds: Vec<Kind<'_>> = Vec::new();
    for c in groups.iter().flat_map(|g| &g.cells).filter(|c| c.observed().is_some()) {
        if !kinds.contains(&(c.subject.as_str(), c.bytes)) {
            kinds.push((&c.subject, c.bytes));
        }
    }
    if groups.len() < LEAST || kinds.is_empty() {
        return Ok(());
    }
    if kinds.len() <= MOST {
        let name = |kind, figure: &str| format!(">{}\n{figure}", title(&kinds, kind));
        let all = kinds.iter().flat_map(|&kind| FIGURES.map(|(figure, goes, of)| (kind, figure, goes, of)));
        let columns = all.map(|(kind, figure, goes, of)| column(groups, kind, name(kind, figure), goes, of));
        return table_of(out, style, groups, "side by side", columns.collect());
    }
    // Many subjects with loads: a table for each figure.
    for (figure, _, of) in FIGURES.into_iter().filter(|_| kinds.len() <= MOST_OF_ONE_FIGURE) {
        let columns = kinds.iter().map(|&kind| column(groups, kind, format!(">{}", title(&kinds, kind)), 0, of));
        table_of(out, style, groups, &format!("side by side, {figure}"), columns.collect())?;
    }
    Ok(())
}

fn title(kinds: &[Kind<'_>], (subject, size): Kind<'_>) -> String {
    let one_size = kinds.iter().all(|k| k.1 == kinds[0].1);
    if one_size || size == 0 { subject.to_owned() } else { format!("{subject} {}", bytes(size)) }
}

fn column(groups: &[Group<'_>], (subject, size): Kind<'_>, head: String, goes: u8, (figure, of): Of) -> Column {
    let is_it = |c: &&&CellOfRun| c.subject == subject && c.bytes == size;
    let cell = |g: &Group<'_>| {
        let value = g.cells.iter().find(is_it).and_then(|c| Some(time(c, figure, of(c.observed()?)?)));
        value.unwrap_or("-".into())
    };
    Column::of(head, goes, groups.iter().map(cell))
}

/// Empty columns are left out; if all are empty, so is the table.
fn table_of(
    out: &mut dyn Out,
    style: &Style,
    groups: &[Group<'_>],
    title: &str,
    figures: Vec<Column>,
) -> io::Result<()> {
    let said: Vec<Column> = figures.into_iter().filter(|column| column.cells.iter().any(|c| c != "-")).collect();
    if said.is_empty() {
        return Ok(());
    }
    let mut columns = axes(groups);
    columns.extend(said);
    writeln!(out)?;
    writeln!(out, "{}", style.bold(title))?;
    fitted(out, style, columns, |_| false)
}

/// One column for each axis that has more than one value.
fn axes(groups: &[Group<'_>]) -> Vec<Column> {
    let mut names: Vec<&str> = Vec::new();
    for c in groups.iter().flat_map(|g| &g.point) {
        if !names.contains(&c.name.as_str()) {
            names.push(&c.name);
        }
    }
    let of = |g: &Group<'_>, name| g.point.iter().find(|c| c.name == name).map_or("-".into(), |c| c.value.clone());
    let columns = names.into_iter().map(|name| Column::of(name, 0, groups.iter().map(|g| of(g, name))));
    columns.filter(|column| column.cells.iter().any(|v| *v != column.cells[0])).collect()
}
