//! Several stages in one table, a line each: what the values of the matrix change is read down a column.

use super::Group;
use super::figures::{Column, fit, no_room};
use crate::ReportError;
use crate::number::{bytes, nanoseconds};
use crate::table::{self, Style};
use results::run::{CellOfRun, Figure};
use std::io::Write;

/// With fewer stages their own tables are enough.
const LEAST: usize = 3;
/// Subjects, each at one size. More are no columns.
const MOST: usize = 6;

/// Which figure of a cell.
type Of = fn(&Figure) -> Option<u64>;

pub(super) fn write(out: &mut dyn Write, style: &Style, groups: &[Group<'_>]) -> Result<(), ReportError> {
    let mut kinds: Vec<(&str, u64)> = Vec::new();
    for c in groups.iter().flat_map(|g| &g.cells).filter(|c| c.observed().is_some()) {
        if !kinds.contains(&(c.subject.as_str(), c.bytes)) {
            kinds.push((&c.subject, c.bytes));
        }
    }
    if groups.len() < LEAST || kinds.is_empty() || kinds.len() > MOST {
        return Ok(());
    }
    let mut columns = axes(groups);
    let one_size = kinds.iter().all(|k| k.1 == kinds[0].1);
    for (subject, size) in kinds {
        let name = if one_size || size == 0 { subject.to_owned() } else { format!("{subject} {}", bytes(size)) };
        let figures: [(&str, u8, Of); 3] = [
            ("p50", 0, |f| Some(f.summary.p50)),
            ("p99.9", 2, |f| f.summary.p999),
            ("max", 1, |f| Some(f.summary.max)),
        ];
        for (figure, goes, of) in figures {
            let is_it = |c: &&&CellOfRun| c.subject == subject && c.bytes == size;
            let cell = |g: &Group<'_>| {
                let value = g.cells.iter().find(is_it).and_then(|c| of(c.observed()?));
                value.map_or("-".into(), nanoseconds)
            };
            let cells: Vec<String> = groups.iter().map(cell).collect();
            if cells.iter().any(|c| c != "-") {
                columns.push(Column { head: format!(">{name}\n{figure}"), cells, goes, short: None });
            }
        }
    }
    let left_out = fit(&mut columns, style.width);
    writeln!(out)?;
    writeln!(out, "{}", style.bold("side by side"))?;
    let heads: Vec<&str> = columns.iter().map(|c| c.head.as_str()).collect();
    let mut t = style.table(&heads);
    for i in 0..groups.len() {
        t.add_row(columns.iter().map(|c| c.cells[i].clone()));
    }
    table::write(out, &t, 0)?;
    no_room(out, left_out)
}

/// One for each axis that has more than one value.
fn axes(groups: &[Group<'_>]) -> Vec<Column> {
    let mut names: Vec<&str> = Vec::new();
    for c in groups.iter().flat_map(|g| &g.point) {
        if !names.contains(&c.name.as_str()) {
            names.push(&c.name);
        }
    }
    let values = |name: &str| -> Vec<String> {
        let of = |g: &Group<'_>| g.point.iter().find(|c| c.name == name).map_or("-".into(), |c| c.value.clone());
        groups.iter().map(of).collect()
    };
    let columns = names.into_iter().map(|name| (name, values(name)));
    let varies = columns.filter(|(_, values)| values.iter().any(|v| *v != values[0]));
    varies.map(|(name, cells)| Column { head: name.into(), cells, goes: 0, short: None }).collect()
}
