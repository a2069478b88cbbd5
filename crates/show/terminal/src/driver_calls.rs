//! Driver calls, counted.

use crate::number::{count, nanoseconds};
use crate::table::{Style, more, write as write_table};
use schema::driver_calls::DriverCallCount;
use std::io::{self, Write};

/// Rows by default.
pub const ROWS: usize = 20;

/// Writes those with the longest total time first.
pub fn write(out: &mut dyn Write, style: &Style, counts: &[DriverCallCount], limit: usize) -> io::Result<()> {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), nanoseconds);
    let mut table = style.table(&[">calls", ">failed", ">time", ">mean", ">p50", ">p99", ">max", "!what", "within"]);
    for c in counts.iter().take(limit) {
        let more = c.within.len().saturating_sub(1);
        let first = c.within.first().map_or_else(|| "-".into(), |w| w.call.clone());
        table.add_row([
            count(c.calls),
            if c.failed == 0 { "-".into() } else { count(c.failed) },
            time(c.ns),
            time(c.mean_ns),
            time(c.p50_ns),
            time(c.p99_ns),
            time(c.max_ns),
            c.what.clone(),
            if more > 0 { format!("{first} and {more} more") } else { first },
        ]);
    }
    if counts.is_empty() {
        return writeln!(out, "no driver call was made while it was recorded");
    }
    write_table(out, &table, 0)?;
    more(out, counts.len(), limit, 0)
}
