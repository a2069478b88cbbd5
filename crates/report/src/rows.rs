//! Lists that have a row for some of the operations: copies, launches.

use crate::table::{Style, to_stdout};
use crate::{ReportError, json};
use insight::Recording;
use insight::rows;
use insight::walk::{At, Filter, Sink, walk};
use pushbuf::ops::Op;
use schema::Clock;
use serde::Serialize;
use std::io::{self, Write};

/// How rows look as text.
pub struct Lines<R> {
    /// Writes the names of the columns.
    pub head: fn(Style, &mut dyn Write) -> io::Result<()>,
    pub line: fn(&mut dyn Write, &R) -> io::Result<()>,
}

/// Shows rows on standard output: as lines or, with `as_json`, as an array; in the order of time or, with a `key`, those with
/// the largest first. `each` calls a function with each row that a filter wants.
pub fn print<R: Serialize, K: Ord>(
    filter: &Filter,
    key: Option<impl Fn(&R) -> K>,
    style: Style,
    as_json: bool,
    lines: &Lines<R>,
    each: impl Fn(Filter, &mut dyn FnMut(R) -> io::Result<()>) -> Result<(), ReportError>,
) -> Result<(), ReportError> {
    let sorted = key.map(|key| sorted(filter, key, &each)).transpose()?;
    let all = |f: &mut dyn FnMut(R) -> io::Result<()>| match sorted {
        Some(rows) => Ok(rows.into_iter().try_for_each(f)?),
        None => each(filter.clone(), f),
    };
    to_stdout(|out| {
        if as_json {
            let mut array = json::Array::begin(out)?;
            all(&mut |row| array.push(&row))?;
            Ok(array.end()?)
        } else {
            (lines.head)(style, out)?;
            all(&mut |row| (lines.line)(out, &row))
        }
    })
}

/// Calls `f` with what `of` makes of each operation that the filter wants.
pub fn each<R>(
    r: &Recording,
    filter: Filter,
    of: impl FnMut(&At<'_>, &Op, &Clock) -> Option<R>,
    f: impl FnMut(R) -> io::Result<()>,
) -> Result<(), ReportError> {
    let left = filter.limit.unwrap_or(u64::MAX);
    let mut rows = Rows { filter, clock: rows::clock(r), left, of, f, error: None };
    walk(r, &mut rows)?;
    rows.error.map_or(Ok(()), |e| Err(e.into()))
}

struct Rows<O, F> {
    filter: Filter,
    clock: Clock,
    left: u64,
    of: O,
    f: F,
    error: Option<io::Error>,
}

impl<R, O, F> Sink for Rows<O, F>
where
    O: FnMut(&At<'_>, &Op, &Clock) -> Option<R>,
    F: FnMut(R) -> io::Result<()>,
{
    fn done(&self) -> bool {
        self.left == 0 || self.error.is_some()
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if self.done() || !self.filter.wants_at(at, &self.clock) {
            return;
        }
        if let Some(row) = (self.of)(at, op, &self.clock) {
            self.left -= 1;
            self.error = (self.f)(row).err();
        }
    }
}

/// All rows that the filter wants, those with the largest `key` first, and no more than its limit.
fn sorted<R, K: Ord>(
    filter: &Filter,
    key: impl Fn(&R) -> K,
    each: impl FnOnce(Filter, &mut dyn FnMut(R) -> io::Result<()>) -> Result<(), ReportError>,
) -> Result<Vec<R>, ReportError> {
    let mut all = Vec::new();
    each(Filter { limit: None, ..filter.clone() }, &mut |row| {
        all.push(row);
        Ok(())
    })?;
    // (Stable: what is equal stays in the order of time.)
    all.sort_by_cached_key(|row| std::cmp::Reverse(key(row)));
    all.truncate(filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    Ok(all)
}
