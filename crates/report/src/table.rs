//! How tables and headings look on this output.

use crate::ReportError;
use colorchoice::ColorChoice;
use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use std::io::{self, IsTerminal, Write};

/// What the output can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Escape sequences are understood and wanted.
    pub colour: bool,
    /// Columns of the terminal; `None` where lines may be as long as they are.
    pub width: Option<u16>,
}

/// Whether escape sequences go to a stream: what `--color` said, and else on a terminal, unless NO_COLOR is set (to
/// anything: empty is unset).
pub fn wants_color(is_terminal: bool) -> bool {
    match ColorChoice::global() {
        ColorChoice::Always | ColorChoice::AlwaysAnsi => true,
        ColorChoice::Never => false,
        ColorChoice::Auto => {
            let is_set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
            is_terminal && !is_set("NO_COLOR") && std::env::var_os("TERM").is_none_or(|t| t != "dumb")
        }
    }
}

impl Style {
    /// For standard output: lines fit a terminal, and are as long as they are elsewhere.
    pub fn of_stdout() -> Style {
        let width = if io::stdout().is_terminal() { Table::new().width() } else { None };
        Style { colour: wants_color(io::stdout().is_terminal()), width }
    }

    /// For standard error.
    pub fn of_stderr() -> Style {
        Style { colour: wants_color(io::stderr().is_terminal()), width: None }
    }

    pub fn bold(&self, text: &str) -> String {
        if self.colour { format!("\x1b[1m{text}\x1b[0m") } else { text.into() }
    }

    pub fn bad(&self, text: &str) -> String {
        if self.colour { format!("\x1b[31m{text}\x1b[0m") } else { text.into() }
    }

    pub fn good(&self, text: &str) -> String {
        if self.colour { format!("\x1b[32m{text}\x1b[0m") } else { text.into() }
    }

    /// A table with these column heads; a head that begins with `>` is of numbers and stands on the right.
    pub fn table(&self, heads: &[&str]) -> Table {
        let mut t = Table::new();
        t.load_preset(presets::NOTHING).force_no_tty();
        if let Some(w) = self.width {
            t.set_width(w).set_content_arrangement(ContentArrangement::Dynamic);
        }
        t.set_header(heads.iter().map(|h| h.trim_start_matches('>')));
        for (i, h) in heads.iter().enumerate() {
            if let Some(c) = t.column_mut(i) {
                c.set_padding((0, 2));
                if h.starts_with('>') {
                    c.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        t
    }
}

/// Writes a table, indented, without the blanks that fill its last column.
pub fn write(out: &mut dyn Write, t: &Table, indent: usize) -> io::Result<()> {
    for line in t.to_string().lines() {
        let line = line.trim_end();
        if line.is_empty() {
            writeln!(out)?;
        } else {
            writeln!(out, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

/// Runs `f` on standard output, buffered. A closed pipe ends it without an error.
pub fn to_stdout(f: impl FnOnce(&mut dyn Write) -> Result<(), ReportError>) -> Result<(), ReportError> {
    let mut out = io::BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let r = f(&mut out).and_then(|()| Ok(out.flush()?));
    forgive_closed_pipe(r, out)
}

fn forgive_closed_pipe<W: Write>(r: Result<(), ReportError>, out: io::BufWriter<W>) -> Result<(), ReportError> {
    match r {
        Err(ReportError::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => {
            // What is still buffered has no reader: drop it without trying again.
            let _ = out.into_parts();
            Ok(())
        }
        r => r,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stand_on_the_right_and_lines_end_with_their_text() {
        let mut t = Style::default().table(&["name", ">count"]);
        t.add_row(["a", "1"]).add_row(["bbbb", "1,000"]);
        let mut out = Vec::new();
        write(&mut out, &t, 2).unwrap();
        assert_eq!(String::from_utf8(out).unwrap(), "  name  count\n  a         1\n  bbbb  1,000\n");
    }

    struct Closed;

    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(io::ErrorKind::BrokenPipe.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_but_a_full_disk_is() {
        let mut out = io::BufWriter::new(Closed);
        let r = out.write_all(b"x").and_then(|()| out.flush());
        assert!(r.is_err());
        assert!(forgive_closed_pipe(r.map_err(ReportError::from), out).is_ok());
        let full = Err(io::Error::from(io::ErrorKind::StorageFull).into());
        assert!(forgive_closed_pipe(full, io::BufWriter::new(Vec::new())).is_err());
    }
}
