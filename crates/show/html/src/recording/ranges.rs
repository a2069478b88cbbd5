//! NVTX ranges: the names with the most time, and what was done in them.

use crate::Error;
use crate::document::{Block, Cell, Section, Table, head, number};
use crate::numbers::{bytes, count, ns, ns_or_none};
use decode::Recording;
use decode::walk::Filter;
use schema::ranges::{RangeRow, RangeWork};

/// Names with a row.
const ROWS: u64 = 12;

/// `None` if no range has ended.
pub fn section(r: &Recording) -> Result<Option<Section>, Error> {
    let mut rows = lock_analysis::ranges(r, &Filter { limit: Some(ROWS), ..Filter::default() })?.ranges;
    rows.retain(|row| row.count > 0 && row.style != "mark");
    Ok((!rows.is_empty()).then(|| Section::new("ranges", "Ranges").with(Block::Table(table(&rows)))))
}

fn table(rows: &[RangeRow]) -> Table {
    let columns = vec![
        head("range"),
        number("ended", ""),
        number("in all", "ns"),
        number("mean", "ns"),
        number("longest", "ns"),
        number("GPU busy", "ns"),
        number("queued", "ns"),
        number("idle", "ns"),
        number("launches and copies without a time", ""),
        number("copies", ""),
        number("copied", "B"),
        number("in calls", "ns"),
        number("waited for locks", "ns"),
    ];
    let about = "NVTX ranges by name, those with the most time first. On the GPU: what any thread submitted in them";
    let mut table = Table::new("ranges", about, columns);
    for row in rows {
        let domain = row.domain.as_ref().map_or(String::new(), |domain| format!("{domain}:"));
        let on_gpu = |of: fn(RangeWork) -> u64| row.all_threads.map_or_else(Cell::none, |work| ns(of(work)));
        table.row(vec![
            format!("{domain}{}", row.text).into(),
            count(row.count),
            ns(row.ns),
            ns(row.mean_ns),
            ns(row.max_ns),
            on_gpu(|work| work.busy_ns),
            on_gpu(|work| work.queued_ns),
            on_gpu(|work| work.idle_ns),
            row.all_threads.filter(|work| work.without_time > 0).map_or_else(Cell::none, |w| count(w.without_time)),
            count(row.counts.copies),
            bytes(row.counts.copy_bytes),
            ns_or_none(row.counts.calls_ns),
            ns_or_none(row.counts.lock_wait_ns),
        ]);
    }
    table.without_empty()
}
