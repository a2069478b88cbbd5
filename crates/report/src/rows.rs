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
    let mut rows = Rows { filter, clock: rows::clock(r), left: filter.limit.unwrap_or(u64::MAX), of, f, error: None };
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
        if self.done() || !self.filter.wants(at.channel) {
            return;
        }
        if let Some(row) = (self.of)(at, op, &self.clock) {
            self.left -= 1;
            self.error = (self.f)(row).err();
        }
    }
}
