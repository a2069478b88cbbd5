//! Lists that have a row for some of the operations: copies, launches.

use crate::table::Style;
use crate::table::columns::{Column, Columns};
use std::io::{self, Write};

/// How the rows of a list are written as text.
pub struct List<R> {
    pub columns: &'static [Column],
    /// A row for [`Columns::line`].
    pub cells: fn(&R) -> Vec<String>,
    /// The key by which rows can be sorted: the word, and the row's number.
    pub key: fn(&str, &R) -> u64,
}

impl<R> List<R> {
    /// Writes rows as lines of fixed columns, as `each` gives them.
    pub fn write<E: From<io::Error>>(
        &self,
        out: &mut dyn Write,
        style: Style,
        each: impl FnOnce(&mut dyn FnMut(R) -> Result<(), E>) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut columns = Columns::new(style, self.columns, 0);
        columns.head(out)?;
        each(&mut |row| Ok(columns.line(out, &(self.cells)(&row))?))?;
        Ok(columns.end(out)?)
    }
}
