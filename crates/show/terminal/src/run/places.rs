//! Sweeps: whether it matters where in a memory the bytes are.

use super::figures::{rows, three_digits};
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{Out, Style};
use run_folder::run::{CellOfRun, Places};
use std::io;

/// A row for each cell that was swept.
pub(super) fn write(out: &mut dyn Out, style: &Style, cells: &[&CellOfRun]) -> io::Result<()> {
    let swept: Vec<(&CellOfRun, &Places)> = cells.iter().filter_map(|c| Some((*c, c.places.as_ref()?))).collect();
    let Some((_, first)) = swept.first() else { return Ok(()) };
    let apart: Vec<&Places> = swept.iter().map(|(_, p)| *p).filter(|p| p.step != first.step).collect();
    let step = if apart.is_empty() { format!(", {} apart", bytes(first.step)) } else { String::new() };
    let lead = format!("by place{step}; of the places' means:");
    let heads = [">places", ">mean", ">sd", ">sd of mean", ">least", ">at", ">most", ">at", ">most of least"];
    rows(out, style, &lead, &heads, &swept, |_, p| {
        let ns = |ns: f64| nanoseconds(ns.round() as u64);
        vec![
            if p.measured == p.count { count(p.count) } else { of_all(p) },
            ns(p.mean_ns),
            ns(p.sd_ns),
            format!("{} %", three_digits(p.sd_ns / p.mean_ns * 100.0)),
            ns(p.least_ns),
            bytes(p.least_at),
            ns(p.most_ns),
            bytes(p.most_at),
            three_digits(p.most_ns / p.least_ns),
        ]
    })
}

fn of_all(places: &Places) -> String {
    format!("{} of {}", count(places.measured), of(places.count, "place"))
}
