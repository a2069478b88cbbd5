//! JSON Lines: each row is an object on a separate line.

use crate::about::About;
use crate::{ExportError, Writer, rows};
use decode::Recording;
use schema::lines::Line;
use std::io::{self, Write};

/// Writes the whole recording.
pub fn jsonl(r: &Recording, out: &mut dyn Write) -> Result<(), ExportError> {
    rows::each(r, &About::of(r, 0)?, &mut Lines(out))
}

struct Lines<'a>(&'a mut dyn Write);

impl Writer for Lines<'_> {
    fn row(&mut self, row: &Line<'_>) -> Result<(), ExportError> {
        serde_json::to_writer(&mut *self.0, row).map_err(io::Error::from)?;
        Ok(writeln!(self.0)?)
    }
}
