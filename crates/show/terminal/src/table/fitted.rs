//! Lines of text on a terminal: those that are too long continue below, broken between words.

use std::io::{self, Write};
use unicode_width::UnicodeWidthChar;

/// Added indent of a continued line.
const CONTINUED: usize = 4;

/// A writer that breaks lines which are longer than the terminal is wide. A longer word stays whole.
pub(super) struct Fitted<W: Write> {
    to: W,
    /// `None`: every line stays as it is.
    columns: Option<usize>,
    /// Of a line whose end has not come.
    line: Vec<u8>,
}

impl<W: Write> Fitted<W> {
    pub fn new(to: W, columns: Option<u16>) -> Fitted<W> {
        Fitted { to, columns: columns.map(usize::from), line: Vec::new() }
    }

    fn line(&mut self, columns: usize) -> io::Result<()> {
        let line = String::from_utf8_lossy(&self.line).into_owned();
        self.line.clear();
        self.to.write_all(broken(&line, columns).as_bytes())
    }
}

impl<W: Write> Write for Fitted<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(columns) = self.columns else { return self.to.write(bytes) };
        for piece in bytes.split_inclusive(|b| *b == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                self.line(columns)?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if let Some(columns) = self.columns.filter(|_| !self.line.is_empty()) {
            self.line(columns)?;
        }
        self.to.flush()
    }
}

fn broken(line: &str, columns: usize) -> String {
    let indent = line.len() - line.trim_start_matches(' ').len();
    let indent = if indent + CONTINUED < columns * 2 / 3 { indent + CONTINUED } else { CONTINUED };
    let mut out = String::with_capacity(line.len() + indent);
    let (mut width, mut rest, mut last_blank) = (0, line, None);
    let mut has_word = false;
    let mut chars = line.char_indices();
    while let Some((at, c)) = chars.next() {
        let here = at - (line.len() - rest.len());
        match c {
            // What doorbell puts around a text has no width.
            '\x1b' => while chars.next().is_some_and(|(_, c)| c != 'm') {},
            ' ' if has_word => {
                last_blank = Some(here);
                width += 1;
            }
            ' ' => width += 1,
            '\n' => {}
            c => {
                has_word = true;
                width += c.width().unwrap_or(0);
            }
        }
        if let (true, Some(blank)) = (width > columns && c != ' ', last_blank) {
            let (now, later) = rest.split_at(blank);
            out += now.trim_end_matches(' ');
            out += "\n";
            out.extend(std::iter::repeat_n(' ', indent));
            let later = later.trim_start_matches(' ');
            width = indent + text_width(&later[..later.len() - (line.len() - at - c.len_utf8())]);
            (rest, last_blank) = (later, None);
        }
    }
    out + rest
}

fn text_width(text: &str) -> usize {
    let mut is_style = false;
    let of = |c: char| {
        is_style |= c == '\x1b';
        let width = if is_style { 0 } else { c.width().unwrap_or(0) };
        is_style &= c != 'm';
        width
    };
    text.chars().map(of).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str, columns: u16) -> String {
        let mut out = Fitted::new(Vec::new(), Some(columns));
        for piece in text.as_bytes().chunks(7) {
            out.write_all(piece).unwrap();
        }
        out.flush().unwrap();
        String::from_utf8(out.to).unwrap()
    }

    #[test]
    fn long_lines_continue_below_and_words_stay_whole() {
        let text = "  one two three four five six\nshort\n\nnone";
        assert_eq!(written(text, 30), text);
        assert_eq!(written(text, 16), "  one two three\n      four five\n      six\nshort\n\nnone");
        assert_eq!(written("a 0123456789abcdef b\n", 8), "a\n    0123456789abcdef\n    b\n");
        assert_eq!(written("\x1b[1mbold bold\x1b[0m x\n", 12), "\x1b[1mbold bold\x1b[0m x\n", "a style has no width");
        for columns in 10..60 {
            let text = "  GP_PUT 0 -> 1   in cuLaunchKernel #3, ä é ü, 12 of 14 words\n".repeat(3);
            let out = written(&text, columns);
            assert_eq!(out.split_whitespace().collect::<Vec<_>>(), text.split_whitespace().collect::<Vec<_>>());
            let fits = |line: &str| line.chars().count() <= usize::from(columns) || !line.trim().contains(' ');
            assert!(out.lines().all(fits), "{columns}:\n{out}");
        }
    }
}
