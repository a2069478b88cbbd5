//! JSON: one value, or an array of rows.

use crate::foreign::Plain;
use crate::table::{Out, Style, text_to_stdout, to_stdout};
use serde::Serialize;
use std::io::{self, Write};

/// Writes a value with indentation and a line end to standard output.
pub fn print<T: Serialize>(value: &T) -> io::Result<()> {
    to_stdout(|out| {
        serde_json::to_writer_pretty(Plain::json(&mut *out), value).map_err(io::Error::from)?;
        writeln!(out)
    })
}

/// A value as JSON, or its text, on standard output.
pub fn or_text(
    as_json: bool,
    value: &impl Serialize,
    style: Style,
    text: impl FnOnce(&mut dyn Out) -> io::Result<()>,
) -> io::Result<()> {
    if as_json { print(value) } else { text_to_stdout(style, text) }
}

/// Writes a JSON array of the rows that `each` gives, one by one.
pub fn array<R: Serialize, E: From<io::Error>>(
    out: &mut dyn Write,
    each: impl FnOnce(&mut dyn FnMut(R) -> Result<(), E>) -> Result<(), E>,
) -> Result<(), E> {
    write!(out, "[")?;
    let mut any = false;
    each(&mut |row| {
        write!(out, "{}", if any { ",\n " } else { "\n " })?;
        any = true;
        Ok(serde_json::to_writer(Plain::json(&mut *out), &row).map_err(io::Error::from)?)
    })?;
    Ok(writeln!(out, "{}]", if any { "\n" } else { "" })?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_in_pieces_is_json() {
        for n in 0..3u64 {
            let mut out = Vec::new();
            array::<_, io::Error>(&mut out, |f| (0..n).try_for_each(f)).unwrap();
            assert_eq!(serde_json::from_slice::<Vec<u64>>(&out).unwrap(), (0..n).collect::<Vec<_>>());
        }
    }
}
