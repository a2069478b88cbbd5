//! What a call sends over the bus before any payload, next to what the GPU's own counters saw.

use super::figures::{rows, three_digits};
use crate::number::{bytes, count};
use crate::table::{Out, Style};
use run_folder::Run;
use run_folder::run::{CellOfRun, Link, MeteredOfRun};
use std::io;

/// The same cell where it was metered: in a stage that is not recorded.
fn metered<'r>(run: &'r Run, cell: &CellOfRun) -> Option<&'r MeteredOfRun> {
    let others = |c: &CellOfRun| c.point.iter().filter(|p| p.name != "run.record").cloned().collect::<Vec<_>>();
    let same = |c: &&CellOfRun| c.subject == cell.subject && c.bytes == cell.bytes && others(c) == others(cell);
    run.cells.iter().filter(same).filter_map(|c| c.metered.as_ref()).find(|m| m.transfers > 0)
}

/// A row for each cell that was recorded.
pub(super) fn write(out: &mut dyn Out, style: &Style, run: &Run, cells: &[&CellOfRun]) -> io::Result<()> {
    let recorded: Vec<_> =
        cells.iter().filter_map(|c| Some((*c, c.commands.as_ref()?))).filter(|(_, c)| c.doorbells.max > 0).collect();
    let lead = "bytes a call on the bus without payload, by the recording (stores of the CPU: doorbell, GPFIFO, USERD; fetched: commands that the \
         GPU reads in host memory; not fetched: in its own, where prepared ones already are), and with payload by the GPU's counters:";
    let heads = [
        ">doorbell",
        ">GPFIFO",
        ">USERD",
        ">not fetched",
        ">fetched",
        ">not known",
        ">counted to the GPU",
        ">counted from it",
        ">metered",
    ];
    rows(out, style, lead, &heads, &recorded, |c, commands| {
        let metered = metered(run, c);
        let each = |of: fn(&Link) -> f64| {
            let bytes_each = metered.and_then(|m| Some(of(&m.used.link?) / m.transfers as f64));
            bytes_each.map_or("-".into(), |b| bytes(b.round() as u64))
        };
        let of = &commands.to_gpu;
        let means = [of.doorbell, of.gpfifo, of.userd, of.not_fetched, of.fetched, of.unknown];
        let mut row: Vec<String> = means.map(|b| if b == 0.0 { "-".into() } else { three_digits(b) }).into();
        row.extend([each(|link| link.to_gpu.counted_bytes), each(|link| link.from_gpu.counted_bytes)]);
        row.push(metered.map_or("-".into(), |m| count(m.transfers)));
        row
    })
}
