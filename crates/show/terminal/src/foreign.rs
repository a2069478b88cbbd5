//! Text of others: names of a recording or a process may hold anything. This module decides which characters of them
//! reach a terminal, for all views.

use crate::table::wants_color;
use std::io::{self, IsTerminal, Write};

/// False for characters that move the cursor, begin an escape sequence, or change the order of the text around them.
fn is_shown(c: char) -> bool {
    let turns = matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    !(c.is_control() || turns || matches!(c, '\u{2028}' | '\u{2029}'))
}

/// A name without such characters.
pub fn plain(name: &str) -> String {
    name.chars().map(|c| if is_shown(c) { c } else { '?' }).collect()
}

/// A text of several lines without such characters in its lines.
pub fn lines(text: &str) -> String {
    text.split('\n').map(plain).collect::<Vec<_>>().join("\n")
}

/// What [`crate::table::Style`] puts around a text.
const OWN: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[31m", "\x1b[32m"];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text { colour: bool },
    Json,
}

/// A writer that lets no such character pass.
pub struct Plain<W: Write> {
    to: W,
    kind: Kind,
}

impl<W: Write> Plain<W> {
    /// For text: such characters become `?`, except for the ends of lines and the style that doorbell itself adds.
    pub fn text(to: W, colour: bool) -> Plain<W> {
        Plain { to, kind: Kind::Text { colour } }
    }

    /// For JSON: they are written as JSON's escape sequences, so the value is the same.
    pub fn json(to: W) -> Plain<W> {
        Plain { to, kind: Kind::Json }
    }

    fn pass(&mut self, mut text: &str) -> io::Result<()> {
        while let Some(at) = text.find(|c: char| c != '\n' && !is_shown(c)) {
            let (before, rest) = text.split_at(at);
            self.to.write_all(before.as_bytes())?;
            let own = OWN.iter().find(|own| self.kind == Kind::Text { colour: true } && rest.starts_with(**own));
            let (len, c) = own.map_or_else(|| (0, rest.chars().next().unwrap_or('?')), |own| (own.len(), '?'));
            match (own, self.kind, c) {
                (Some(own), ..) => self.to.write_all(own.as_bytes())?,
                (None, Kind::Text { .. }, '\t') => self.to.write_all(b"\t")?,
                (None, Kind::Text { .. }, _) => self.to.write_all(b"?")?,
                (None, Kind::Json, c) => write!(self.to, "\\u{:04x}", u32::from(c))?,
            }
            text = &rest[len.max(if own.is_some() { 0 } else { c.len_utf8() })..];
        }
        self.to.write_all(text.as_bytes())
    }
}

impl<W: Write> Write for Plain<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if bytes.iter().all(|b| *b == b'\n' || (b' '..=b'~').contains(b)) {
            self.to.write_all(bytes)?;
        } else {
            // (Texts arrive whole: by `write!`, or a string at a time.)
            self.pass(&String::from_utf8_lossy(bytes))?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.to.flush()
    }
}

/// Standard error, for lines with names in them. Each line is one write: those of several ranks do not mix.
pub fn stderr() -> Plain<io::LineWriter<io::StderrLock<'static>>> {
    Plain::text(io::LineWriter::new(io::stderr().lock()), wants_color(io::stderr().is_terminal()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "x\x1b]0;TITLE\x07\x1b[31mRED\x08\x7f\u{9b}2J\u{202e}\u{2066}\u{200f}\u{2028}é";

    fn written(plain: impl FnOnce(Vec<u8>) -> Plain<Vec<u8>>, text: &str) -> String {
        let mut out = plain(Vec::new());
        out.write_all(text.as_bytes()).unwrap();
        String::from_utf8(out.to).unwrap()
    }

    #[test]
    fn nothing_of_a_name_moves_a_cursor_or_turns_a_line() {
        assert_eq!(plain(HOSTILE), "x?]0;TITLE??[31mRED???2J????é");
        assert_eq!(plain("a\nb\tc\rd"), "a?b?c?d");
        assert_eq!(lines("a\r\nb\x1b"), "a?\nb?");
    }

    #[test]
    fn a_text_keeps_its_lines_and_its_own_style() {
        assert_eq!(written(|to| Plain::text(to, false), HOSTILE), "x?]0;TITLE??[31mRED???2J????é");
        assert_eq!(
            written(|to| Plain::text(to, true), "\x1b[1mhead\x1b[0m\n\ta\x1b[5mb"),
            "\x1b[1mhead\x1b[0m\n\ta?[5mb"
        );
        assert_eq!(written(|to| Plain::text(to, false), "\x1b[1mhead\x1b[0m"), "?[1mhead?[0m");
    }

    #[test]
    fn json_keeps_its_values() {
        for text in [HOSTILE, "a\n\t\u{7f}b"] {
            let json = written(Plain::json, &serde_json::to_string_pretty(&[text]).unwrap());
            assert!(json.chars().all(|c| c == '\n' || is_shown(c)), "{json:?}");
            assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
        }
    }
}
