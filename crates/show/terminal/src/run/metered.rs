//! What the GPU and the machine counted while each cell ran alone.

use super::figures::{rows, three_digits};
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{Out, Style};
use run_folder::part::{LinkBy, LinkCount};
use run_folder::run::{CellOfRun, Crossed, MeteredOfRun};
use std::io;

/// The direction of the payload, and its bytes.
fn payload(metered: &MeteredOfRun) -> Option<Crossed> {
    let link = metered.used.link?;
    [link.to_gpu, link.from_gpu]
        .into_iter()
        .filter(|way| way.payload_bytes > 0.0)
        .reduce(|a, b| if a.payload_bytes >= b.payload_bytes { a } else { b })
}

/// A row for each cell that was metered.
pub(super) fn write(out: &mut dyn Out, style: &Style, cells: &[&CellOfRun]) -> io::Result<()> {
    let metered: Vec<_> =
        cells.iter().filter_map(|c| Some((*c, c.metered.as_ref().filter(|m| m.transfers > 0)?))).collect();
    let lead = "metered after the rounds, each cell alone; bytes on the link for each transfer by the GPU's counters, loads included:";
    let heads =
        [">transfers", ">to the GPU", ">from the GPU", ">times payload", ">J a 1000", ">W", ">CPUs", ">CPU each"];
    if metered.is_empty() {
        return Ok(());
    }
    rows(out, style, lead, &heads, &metered, |_, m| {
        let each = |total: f64| total / m.transfers as f64;
        let or_none = |value: Option<String>| value.unwrap_or_else(|| "-".into());
        let wire = |way: Crossed| bytes(each(way.counted_bytes).round() as u64);
        vec![
            count(m.transfers),
            or_none(m.used.link.map(|l| wire(l.to_gpu))),
            or_none(m.used.link.map(|l| wire(l.from_gpu))),
            or_none(payload(m).map(|way| three_digits(way.counted_bytes / way.payload_bytes))),
            or_none(m.used.energy_j.map(|j| three_digits(each(j) * 1e3))),
            or_none(m.used.energy_j.map(|j| three_digits(j / m.seconds))),
            or_none(m.used.cpu_seconds.map(|s| three_digits(s / m.seconds))),
            or_none(m.used.cpu_seconds.map(|s| nanoseconds((each(s) * 1e9).round() as u64))),
        ]
    })?;
    for line in who_counted(cells.iter().copied()) {
        writeln!(out, "{line}")?;
    }
    Ok(())
}

/// Who counted the bytes of the link of metered cells, and why it was not the accumulating counters.
pub fn who_counted<'r>(cells: impl Iterator<Item = &'r CellOfRun>) -> Vec<String> {
    let all: Vec<&LinkCount> = cells.filter_map(|c| c.metered.as_ref()?.link_count.as_ref()).collect();
    let ways = [
        (Some(LinkBy::Counters), "by the GPU's accumulating counters"),
        (Some(LinkBy::Rates), "by the GPU's rates, which lag"),
        (None, "not counted"),
    ];
    let line = |(by, words): (Option<LinkBy>, &str)| {
        let those: Vec<_> = all.iter().filter(|count| count.by == by).collect();
        if those.is_empty() {
            return None;
        }
        let looks: u64 = those.iter().map(|count| u64::from(count.looks)).sum();
        let what = of(those.len() as u64, "cell");
        // Reasons may differ only in their milliseconds.
        let why = those.iter().find_map(|count| count.why.as_ref()).map_or_else(String::new, |why| format!(": {why}"));
        Some(format!("bytes on the link {words} ({what}, {}){why}", of(looks, "look")))
    };
    ways.into_iter().filter_map(line).collect()
}
