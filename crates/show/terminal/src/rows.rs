//! Lists that have a row for some of the operations: copies, launches.

use crate::table::columns::{Column, Columns};
use crate::table::{Style, text_to_stdout, to_stdout};
use crate::{ReportError, json};
use decode::Recording;
use decode::rows;
use decode::walk::{At, Filter, GraphKernel, Sink, walk};
use pushbuf::ops::Op;
use schema::Clock;
use serde::Serialize;
use std::io::{self, Write};

/// Calls a function with each row of a recording that passes a filter.
pub type Each<R> = fn(&Recording, Filter, &mut dyn FnMut(R) -> io::Result<()>) -> Result<(), ReportError>;

/// A list: the source of its rows, and how they are written as text.
pub struct List<R> {
    pub each: Each<R>,
    pub columns: &'static [Column],
    /// A row for [`Columns::line`].
    pub cells: fn(&R) -> Vec<String>,
    /// The key by which rows can be sorted: the word, and the row's number.
    pub key: fn(&str, &R) -> u64,
}

impl<R: Serialize> List<R> {
    /// Shows rows on standard output: as lines or, with `as_json`, as an array; in the order of time or, with `sort`, the largest first.
    pub fn print(
        &self,
        r: &Recording,
        filter: &Filter,
        sort: Option<&str>,
        style: Style,
        as_json: bool,
    ) -> Result<(), ReportError> {
        let sorted = self.sorted(r, filter, sort)?;
        if !as_json {
            return text_to_stdout(style, |out| self.write_all(r, filter, sorted, style, out));
        }
        to_stdout(|out| {
            let mut array = json::Array::begin(out)?;
            self.each_of(r, filter, sorted, &mut |row| array.push(&row))?;
            Ok(array.end()?)
        })
    }

    /// Writes rows as lines of fixed columns, in the order that [`List::sorted`] gave.
    pub fn write_all(
        &self,
        r: &Recording,
        filter: &Filter,
        sorted: Option<Vec<R>>,
        style: Style,
        out: &mut dyn Write,
    ) -> Result<(), ReportError> {
        let mut columns = Columns::new(style, self.columns, 0);
        columns.head(out)?;
        self.each_of(r, filter, sorted, &mut |row| columns.line(out, &(self.cells)(&row)))?;
        Ok(columns.end(out)?)
    }

    /// All rows, the largest first; `None` for the order of time, in which they need not be kept.
    pub fn sorted(&self, r: &Recording, filter: &Filter, sort: Option<&str>) -> Result<Option<Vec<R>>, ReportError> {
        sort.map(|sort| sorted(r, filter, |row| (self.key)(sort, row), self.each)).transpose()
    }

    /// Calls `f` with each row, in the order that [`List::sorted`] gave.
    pub fn each_of(
        &self,
        r: &Recording,
        filter: &Filter,
        sorted: Option<Vec<R>>,
        f: &mut dyn FnMut(R) -> io::Result<()>,
    ) -> Result<(), ReportError> {
        match sorted {
            Some(rows) => Ok(rows.into_iter().try_for_each(f)?),
            None => (self.each)(r, filter.clone(), f),
        }
    }

    /// Writes rows as lines of fixed columns, as they are found.
    pub fn write(&self, r: &Recording, filter: Filter, style: Style, out: &mut dyn Write) -> Result<(), ReportError> {
        self.write_all(r, &filter, None, style, out)
    }
}

/// Calls `f` with the result of `of` for each operation that passes the filter.
pub fn each<R>(
    r: &Recording,
    filter: Filter,
    of: impl FnMut(&At<'_>, &Op, &Clock) -> Option<R>,
    f: impl FnMut(R) -> io::Result<()>,
) -> Result<(), ReportError> {
    each_with_graphs(r, filter, of, |_, _, _| None, f)
}

/// As [`each`], and with the result of `of_graph` for each kernel that a graph ran.
pub fn each_with_graphs<R>(
    r: &Recording,
    filter: Filter,
    of: impl FnMut(&At<'_>, &Op, &Clock) -> Option<R>,
    of_graph: impl FnMut(&At<'_>, &GraphKernel, &Clock) -> Option<R>,
    f: impl FnMut(R) -> io::Result<()>,
) -> Result<(), ReportError> {
    let left = filter.limit.unwrap_or(u64::MAX);
    let mut rows = Rows { filter, clock: rows::clock(r), left, of, of_graph, f, error: None };
    walk(r, &mut rows)?;
    rows.error.map_or(Ok(()), |e| Err(e.into()))
}

struct Rows<O, G, F> {
    filter: Filter,
    clock: Clock,
    left: u64,
    of: O,
    of_graph: G,
    f: F,
    error: Option<io::Error>,
}

impl<O, G, F> Rows<O, G, F> {
    fn is_done(&self) -> bool {
        self.left == 0 || self.error.is_some()
    }

    fn wants(&self, at: &At<'_>) -> bool {
        !self.is_done() && self.filter.wants_at(at, &self.clock)
    }

    fn give<R>(&mut self, row: Option<R>)
    where
        F: FnMut(R) -> io::Result<()>,
    {
        if let Some(row) = row {
            self.left -= 1;
            self.error = (self.f)(row).err();
        }
    }
}

impl<R, O, G, F> Sink for Rows<O, G, F>
where
    O: FnMut(&At<'_>, &Op, &Clock) -> Option<R>,
    G: FnMut(&At<'_>, &GraphKernel, &Clock) -> Option<R>,
    F: FnMut(R) -> io::Result<()>,
{
    fn done(&self) -> bool {
        self.is_done()
    }

    fn from(&self) -> Option<u64> {
        self.filter.from(&self.clock)
    }

    fn until(&self) -> Option<u64> {
        self.filter.until(&self.clock)
    }

    fn filter(&self) -> Option<&Filter> {
        Some(&self.filter)
    }

    fn op(&mut self, at: &At<'_>, op: &Op) {
        if self.wants(at) {
            let row = (self.of)(at, op, &self.clock);
            self.give(row);
        }
    }

    fn graph_kernel(&mut self, at: &At<'_>, kernel: &GraphKernel) {
        if self.wants(at) {
            let row = (self.of_graph)(at, kernel, &self.clock);
            self.give(row);
        }
    }
}

/// All rows that pass the filter, those with the largest `key` first, up to its limit.
fn sorted<R>(r: &Recording, filter: &Filter, key: impl Fn(&R) -> u64, each: Each<R>) -> Result<Vec<R>, ReportError> {
    let mut all = Vec::new();
    each(r, Filter { limit: None, ..filter.clone() }, &mut |row| {
        all.push(row);
        Ok(())
    })?;
    // (Stable: equal rows stay in the order of time.)
    all.sort_by_cached_key(|row| std::cmp::Reverse(key(row)));
    all.truncate(filter.limit.unwrap_or(u64::MAX).try_into().unwrap_or(usize::MAX));
    Ok(all)
}
