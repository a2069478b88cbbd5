//! JSON: one value, or an array of rows.

use crate::ReportError;
use crate::foreign::Plain;
use crate::table::to_stdout;
use schema::Document;
use schema::document::Kind;
use serde::Serialize;
use std::io::{self, Write};

/// Writes a value with indentation and a line end to standard output.
pub fn print<T: Serialize>(value: &T) -> Result<(), ReportError> {
    to_stdout(|out| {
        serde_json::to_writer_pretty(Plain::json(&mut *out), value).map_err(io::Error::from)?;
        Ok(writeln!(out)?)
    })
}

/// As [`print`], with the name of its schema as the first key.
pub fn document<T: Kind>(value: &T) -> Result<(), ReportError> {
    print(&Document::of(value))
}

/// As [`document`], without indentation: for programs alone.
pub fn compact<T: Kind>(value: &T) -> Result<(), ReportError> {
    to_stdout(|out| {
        serde_json::to_writer(&mut *out, &Document::of(value)).map_err(io::Error::from)?;
        Ok(writeln!(out)?)
    })
}

/// A JSON array whose elements are written one by one.
pub struct Array<'a> {
    out: &'a mut dyn Write,
    any: bool,
}

impl<'a> Array<'a> {
    pub fn begin(out: &'a mut dyn Write) -> io::Result<Array<'a>> {
        write!(out, "[")?;
        Ok(Array { out, any: false })
    }

    pub fn push<T: Serialize>(&mut self, value: &T) -> io::Result<()> {
        write!(self.out, "{}", if self.any { ",\n " } else { "\n " })?;
        self.any = true;
        Ok(serde_json::to_writer(Plain::json(&mut *self.out), value)?)
    }

    pub fn end(self) -> io::Result<()> {
        writeln!(self.out, "{}]", if self.any { "\n" } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_in_pieces_is_json() {
        for n in 0..3u64 {
            let mut out = Vec::new();
            let mut a = Array::begin(&mut out).unwrap();
            (0..n).for_each(|i| a.push(&i).unwrap());
            a.end().unwrap();
            assert_eq!(serde_json::from_slice::<Vec<u64>>(&out).unwrap(), (0..n).collect::<Vec<_>>());
        }
    }
}
