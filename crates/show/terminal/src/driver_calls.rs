//! Driver calls, counted.

use crate::number::{count, nanoseconds};
use crate::table::{Style, more, text_to_stdout, write as write_table};
use crate::{ReportError, json};
use decode::Recording;
use schema::driver_calls::DriverCallCount;
use std::io::{self, Write};

/// Rows by default.
const ROWS: u64 = 20;

/// Shows them on standard output, those with the longest total time first: all of them as JSON, `limit` as text.
pub fn print(r: &Recording, limit: Option<u64>, style: Style, as_json: bool) -> Result<(), ReportError> {
    let counts = decode::driver_call_counts::driver_call_counts(r)?;
    if as_json {
        return json::print(&counts);
    }
    text_to_stdout(style, |out| Ok(write(out, &style, &counts, limit.unwrap_or(ROWS))?))
}

fn write(out: &mut dyn Write, style: &Style, counts: &[DriverCallCount], limit: u64) -> io::Result<()> {
    let time = |ns: Option<u64>| ns.map_or_else(|| "-".into(), nanoseconds);
    let mut table = style.table(&[">calls", ">failed", ">time", ">mean", ">p50", ">p99", ">max", "!what", "within"]);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
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
