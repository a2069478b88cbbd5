//! Lists that have a row for some of the operations: copies, launches.

use crate::ReportError;
use insight::Recording;
use insight::rows;
use insight::walk::{At, Filter, Sink, walk};
use pushbuf::ops::Op;
use schema::Clock;
use std::io;

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
pub fn sorted<R, K: Ord>(
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
