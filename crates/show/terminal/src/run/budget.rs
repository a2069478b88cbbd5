//! Where the time of a sample goes, part by part.

use super::figures::{rows, three_digits};
use crate::number::nanoseconds;
use crate::table::{Out, Style};
use run_folder::run::{CellOfRun, PartOfBudget, Span};
use std::io;

/// A row for each cell with a budget; no table if no cell has more parts than the call and the rest.
pub(super) fn write(out: &mut dyn Out, style: &Style, cells: &[&CellOfRun]) -> io::Result<()> {
    let all: Vec<_> = cells.iter().filter_map(|c| Some((*c, c.budget.as_ref()?))).collect();
    let spans: Vec<Span> =
        Span::ALL.into_iter().filter(|s| all.iter().any(|(_, b)| b.parts.iter().any(|p| p.name == *s))).collect();
    if spans.is_empty() {
        return Ok(());
    }
    let lead = "where the time goes: means over the middle half of each round's samples, which add up, +- half of the 95 % interval; \
                what most of it goes to";
    let mut heads: Vec<String> = spans.iter().map(|s| format!(">{}", s.name())).collect();
    heads.extend([">sum".to_owned(), "mostly".to_owned()]);
    let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
    rows(out, style, lead, &heads, &all, |_, budget| {
        let of = |span: &Span| budget.parts.iter().find(|p| p.name == *span);
        let mut row: Vec<String> = spans.iter().map(|s| of(s).map_or("-".into(), part)).collect();
        row.extend([nanoseconds(budget.whole_ns.round() as u64), budget.mostly.name().to_owned()]);
        row
    })
}

/// `1.24 us +- 0.5 %`
fn part(p: &PartOfBudget) -> String {
    let mean = nanoseconds(p.mean_ns.round() as u64);
    match p.interval.filter(|_| p.mean_ns > 0.0) {
        Some(i) => format!("{mean} +- {} %", three_digits((i.high - i.low) / 2.0 / p.mean_ns * 100.0)),
        None => mean,
    }
}
