//! How tables and headings look on this output.

pub mod columns;
mod fitted;
mod narrow;

use crate::foreign::{self, Plain};
use crate::number::count;
use colorchoice::ColorChoice;
use comfy_table::{CellAlignment, Row, presets};
use fitted::Fitted;
use std::io::{self, IsTerminal, Write};

/// What the output can show.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Escape sequences are understood and wanted.
    pub colour: bool,
    /// Columns of the terminal; `None` if they are unknown, or lines may have any length.
    pub width: Option<u16>,
}

/// Whether escape sequences go to a stream: as `--color` says; by default on a terminal, unless NO_COLOR is set (to anything: empty is unset).
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

/// Columns of the terminal: COLUMNS, else the terminal's answer. 0 of either is an unknown width.
pub fn columns() -> Option<u16> {
    let set = std::env::var("COLUMNS").ok().and_then(|c| c.trim().parse().ok());
    let columns = set.or_else(|| terminal_size::terminal_size().map(|(width, _)| width.0));
    columns.filter(|columns| *columns > 0)
}

/// Rows of texts below heads.
#[derive(Clone, Debug)]
pub struct Table {
    grid: comfy_table::Table,
    is_number: Vec<bool>,
    stays: Vec<bool>,
    /// Columns of the terminal.
    width: Option<u16>,
}

impl Table {
    pub fn add_row<T: Into<Row>>(&mut self, row: T) -> &mut Table {
        self.grid.add_row(row.into().cell_iter().map(|cell| foreign::plain(&cell.content())));
        self
    }

    /// The heads, and whether each is of numbers.
    pub fn heads(&self) -> impl Iterator<Item = (String, bool)> {
        let heads = self.grid.header().map(narrow::texts).unwrap_or_default();
        heads.into_iter().zip(self.is_number.iter().copied())
    }

    pub fn rows(&self) -> impl Iterator<Item = Vec<String>> {
        self.grid.row_iter().map(narrow::texts)
    }

    pub fn is_empty(&self) -> bool {
        self.grid.is_empty()
    }
}

impl Style {
    /// For standard output: lines fit a terminal, and are as long as they are elsewhere.
    pub fn of_stdout() -> Style {
        let width = if io::stdout().is_terminal() { columns() } else { None };
        Style { colour: wants_color(io::stdout().is_terminal()), width }
    }

    /// For standard error.
    pub fn of_stderr() -> Style {
        Style { colour: wants_color(io::stderr().is_terminal()), width: None }
    }

    pub fn bold(&self, text: &str) -> String {
        self.within("\x1b[1m", text)
    }

    pub fn bad(&self, text: &str) -> String {
        self.within("\x1b[31m", text)
    }

    pub fn good(&self, text: &str) -> String {
        self.within("\x1b[32m", text)
    }

    /// A part of a line in a style.
    fn within(&self, style: &str, text: &str) -> String {
        let text = foreign::plain(text);
        if self.colour { format!("{style}{text}\x1b[0m") } else { text }
    }

    /// A table with these column heads. `>` in front is for numbers, which are aligned to the right. A narrow terminal leaves out columns from the
    /// right, except for the first and those with `!` in front.
    pub fn table(&self, heads: &[&str]) -> Table {
        let mut grid = comfy_table::Table::new();
        grid.load_preset(presets::NOTHING).force_no_tty();
        let stays: Vec<bool> = heads.iter().map(|h| h.starts_with('!')).collect();
        let heads: Vec<&str> = heads.iter().map(|h| h.trim_start_matches('!')).collect();
        grid.set_header(heads.iter().map(|h| h.trim_start_matches('>')));
        let is_number: Vec<bool> = heads.iter().map(|h| h.starts_with('>')).collect();
        for (i, is_number) in is_number.iter().enumerate() {
            if let Some(c) = grid.column_mut(i) {
                c.set_padding((0, 2));
                if *is_number {
                    c.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        Table { grid, is_number, stays, width: self.width }
    }

    /// A text in lines that fit the terminal next to `taken` columns, broken between words.
    pub fn wrapped(&self, text: &str, taken: usize) -> Vec<String> {
        let left = self.width.map(|width| usize::from(width).saturating_sub(taken)).filter(|left| *left >= NARROW);
        left.map_or_else(|| vec![text.into()], |left| narrow::wrapped(text, left, ""))
    }
}

/// What a view is written to. A text shows all of it; a page keeps the tables as they are.
pub trait Out: Write {
    /// Writes a table, indented.
    fn table(&mut self, t: &Table, indent: usize) -> io::Result<()> {
        write(self, t, indent)
    }
}

impl Out for Vec<u8> {}
impl<W: Write> Out for Plain<W> {}
impl<W: Write> Out for Fitted<W> {}

/// Less is no room for a text.
const NARROW: usize = 20;

/// Writes a table, indented, without the blanks that fill its last column.
pub fn write<W: Write + ?Sized>(out: &mut W, t: &Table, indent: usize) -> io::Result<()> {
    let lines = match t.width {
        Some(width) => narrow::lines(t, usize::from(width).saturating_sub(indent)),
        None => t.grid.to_string().lines().map(str::to_owned).collect(),
    };
    for line in lines {
        let line = line.trim_end();
        if line.is_empty() {
            writeln!(out)?;
        } else {
            writeln!(out, "{:indent$}{line}", "")?;
        }
    }
    Ok(())
}

/// Writes the columns that a narrow terminal left out, if any, and how to see them.
pub fn left_out(out: &mut dyn Write, heads: &[&str]) -> io::Result<()> {
    narrow::note(heads, false, usize::MAX).iter().try_for_each(|line| writeln!(out, "{line}"))
}

/// Writes how many of `n` rows were left out after the `shown` ones.
pub fn more(out: &mut dyn Write, n: usize, shown: usize, indent: usize) -> io::Result<()> {
    match n.saturating_sub(shown) {
        0 => Ok(()),
        left => writeln!(out, "{:indent$}and {} more (--top)", "", count(left as u64)),
    }
}

/// Runs `f` on standard output, buffered. A closed pipe ends it without an error.
pub fn to_stdout<E: From<io::Error>>(f: impl FnOnce(&mut dyn Out) -> Result<(), E>) -> Result<(), E> {
    file_to_stdout(|out| f(&mut Plain::text(out, wants_color(io::stdout().is_terminal()))))
}

/// As [`to_stdout`], for text that people read: on a terminal its lines break between words.
pub fn text_to_stdout<E: From<io::Error>>(
    style: Style,
    f: impl FnOnce(&mut dyn Out) -> Result<(), E>,
) -> Result<(), E> {
    to_stdout(|out| {
        let mut out = Fitted::new(out, style.width);
        f(&mut out)?;
        Ok(out.flush()?)
    })
}

/// As [`to_stdout`], for a file that goes there as it is.
pub fn file_to_stdout<E: From<io::Error>>(f: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<(), E> {
    to_pipe(io::stdout().lock(), f)
}

/// A writer whose reader may have gone.
struct Pipe<W> {
    to: W,
    is_closed: bool,
}

impl<W: Write> Pipe<W> {
    fn noted<T>(&mut self, r: io::Result<T>) -> io::Result<T> {
        r.map_err(|e| {
            self.is_closed |= e.kind() == io::ErrorKind::BrokenPipe;
            io::Error::new(e.kind(), format!("the output could not be written: {e}"))
        })
    }
}

impl<W: Write> Write for Pipe<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let r = self.to.write(bytes);
        self.noted(r)
    }

    fn flush(&mut self) -> io::Result<()> {
        let r = self.to.flush();
        self.noted(r)
    }
}

fn to_pipe<E: From<io::Error>>(to: impl Write, f: impl FnOnce(&mut dyn Write) -> Result<(), E>) -> Result<(), E> {
    let mut out = io::BufWriter::with_capacity(1 << 16, Pipe { to, is_closed: false });
    let r = f(&mut out).and_then(|()| Ok(out.flush()?));
    // What is still buffered for a closed pipe has no reader: it is dropped without another try.
    if out.get_ref().is_closed {
        drop(out.into_parts())
    } else {
        r?
    }
    Ok(())
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

    fn at(columns: u16) -> String {
        let style = Style { width: Some(columns), ..Style::default() };
        let heads = ["lock", ">operations", ">longest wait", ">95 % of it", "held from", "!kind"];
        let mut t = style.table(&heads);
        t.add_row([
            "doorbell+0x1484988/rwlock",
            "140,920",
            "5.00 s",
            "4.99 .. 5.01 s",
            "libcuda+0x9d0c2e",
            "robust, shared",
        ]);
        t.add_row(["GRAPHICS", "1", "10.7 ms", "-", "-", "a text of several words that wraps"]);
        let mut out = Vec::new();
        write(&mut out, &t, 2).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn no_width_breaks_a_word() {
        let named = |text: &str, head| {
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            text.split_once("left out: ").is_some_and(|(_, note)| note.contains(head))
        };
        for columns in 20..=140 {
            let text = at(columns);
            let longest = text.lines().map(|line| line.chars().count()).max().unwrap();
            assert!(longest <= usize::from(columns), "{columns}: {longest}\n{text}");
            assert!(columns < 42 || !text.contains("..."), "only where two columns have no room: {columns}\n{text}");
            for (head, cell) in [
                ("operations", "140,920"),
                ("longest wait", "10.7 ms"),
                ("held from", "libcuda+0x9d0c2e"),
                ("kind", "several"),
            ] {
                assert!(named(&text, head) != text.contains(cell), "{columns}: {cell}\n{text}");
            }
            let cut = "doorbell+0x1484988/rwlock"
                .char_indices()
                .any(|(i, _)| text.contains(&format!("{}...", &"doorbell+0x1484988/rwlock"[..i])));
            assert!(cut || text.contains("doorbell+0x1484988/rwlock"), "{columns}: the lock\n{text}");
        }
        assert_eq!(at(140).lines().count(), 3);
        let (at_80, at_60) = (at(80), at(60));
        assert!(named(&at_80, "95 % of it") && !named(&at_80, "held from"), "intervals go first: {at_80}");
        assert!(named(&at_60, "held from") && !named(&at_60, "kind"), "from the right, but for the kind: {at_60}");
    }

    #[test]
    fn a_width_that_is_not_known_is_any() {
        let mut t = Style::default().table(&["a"]);
        t.add_row(["word ".repeat(100)]);
        let mut out = Vec::new();
        write(&mut out, &t, 0).unwrap();
        assert_eq!(out.iter().filter(|b| **b == b'\n').count(), 2);
    }

    struct Failing(io::ErrorKind);

    impl Write for Failing {
        fn write(&mut self, _: &[u8]) -> io::Result<usize> {
            Err(self.0.into())
        }
        fn flush(&mut self) -> io::Result<()> {
            Err(self.0.into())
        }
    }

    #[test]
    fn a_closed_pipe_is_no_error_but_a_full_disk_is() {
        let written = |to: &mut dyn Write| to_pipe(to, |out| out.write_all(b"x").and_then(|()| out.flush()));
        assert!(written(&mut Failing(io::ErrorKind::BrokenPipe)).is_ok());
        assert!(written(&mut Failing(io::ErrorKind::StorageFull)).is_err());
    }
}
