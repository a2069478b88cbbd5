//! JSON that is readable in an editor: each key of the document and each element of its lists begins a line, and deeper levels stay on that line.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use std::io::{self, Write};

/// Levels that begin lines: the document itself, and the elements of its lists.
const LINES: usize = 2;

#[derive(Default)]
struct Lines {
    depth: usize,
    /// For each such level: whether it already has an element.
    any: [bool; LINES],
}

/// # Errors
/// Values that `serde_json` cannot write.
pub fn to_vec(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut out = Vec::new();
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut out, Lines::default()))?;
    out.push(b'\n');
    Ok(out)
}

impl Lines {
    fn open<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        if let Some(any) = self.any.get_mut(self.depth) {
            *any = false;
        }
        self.depth += 1;
        out.write_all(bracket)
    }

    fn close<W: ?Sized + Write>(&mut self, out: &mut W, bracket: &[u8]) -> io::Result<()> {
        self.depth -= 1;
        if self.any.get(self.depth) == Some(&true) {
            newline(out, self.depth)?;
        }
        out.write_all(bracket)
    }

    fn next<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        if !first {
            out.write_all(b",")?;
        }
        match self.any.get_mut(self.depth - 1) {
            Some(any) => {
                *any = true;
                newline(out, self.depth)
            }
            None if first => Ok(()),
            None => out.write_all(b" "),
        }
    }
}

fn newline<W: ?Sized + Write>(out: &mut W, depth: usize) -> io::Result<()> {
    write!(out, "\n{:1$}", "", 2 * depth)
}

impl Formatter for Lines {
    fn begin_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"]")
    }

    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.open(out, b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        self.close(out, b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> io::Result<()> {
        self.next(out, first)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> io::Result<()> {
        CompactFormatter.begin_object_value(out)?;
        out.write_all(b" ")
    }
}

/// Bytes of a line to show on both sides of an error in it.
const AROUND: usize = 24;

/// Texts that other programs write for a number that is not finite.
const NO_NUMBERS: [&str; 7] = ["NaN", "nan", "-NaN", "-nan", "Infinity", "-Infinity", "inf"];

/// Why a text could not be read as a document: the place, the error, and the text there.
pub fn wrong(text: &[u8], error: &serde_json::Error) -> String {
    let (line, column) = (error.line(), error.column());
    if line == 0 {
        return error.to_string();
    }
    if error.is_eof() {
        return format!("it ends at line {line}, column {column}, in the middle: it was cut");
    }
    let of_line = text.split(|b| *b == b'\n').nth(line - 1).unwrap_or_default();
    // The first byte that does not fit, or the last one of the text that does not.
    let at = column.saturating_sub(1).min(of_line.len());
    let word = of_line[..at].iter().rposition(|b| b" ,:[{".contains(b)).map_or(0, |before| before + 1);
    let none = NO_NUMBERS.iter().find(|none| of_line[word..].starts_with(none.as_bytes()));
    let what = match none {
        Some(none) => format!("{none} is no number in JSON, and a value that is not known is null"),
        None => {
            let whole = error.to_string();
            whole.split(" at line ").next().unwrap_or(&whole).to_owned()
        }
    };
    let shown = &of_line[at.saturating_sub(AROUND)..(at + AROUND).min(of_line.len())];
    format!("line {line}, column {column}: {what}, at `{}`", String::from_utf8_lossy(shown).trim())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn a_wrong_number_is_reported_with_its_place() {
        let of = |text: &str| wrong(text.as_bytes(), &serde_json::from_str::<Value>(text).unwrap_err());
        let text = of("{\n\"schema\": \"x\",\n\"cells\": [{\"p50\": 3, \"mean\": NaN}]}");
        assert!(text.starts_with("line 3, column ") && text.contains("NaN is no number in JSON"), "{text}");
        assert!(text.contains("\"mean\": NaN"), "{text}");
        assert!(of("[1, -Infinity]").contains("-Infinity is no number"), "{}", of("[1, -Infinity]"));
        assert!(of("[1e999]").contains("line 1, column 6: number out of range, at `[1e999]`"), "{}", of("[1e999]"));
        assert!(of("{\"a\": [1, 2").contains("it was cut"));
        let null = serde_json::from_str::<Vec<f64>>("[1, null]").unwrap_err();
        assert!(wrong(b"[1, null]", &null).contains("invalid type: null, expected f64, at `[1, null]`"));
    }

    #[test]
    fn lists_of_the_document_have_a_line_each() {
        let v = json!({ "a": 1, "b": [], "c": [{ "d": [1, 2], "e": {} }, { "d": null }], "f": { "g": [3] } });
        let text = String::from_utf8(to_vec(&v).unwrap()).unwrap();
        let lines = [
            "{",
            "  \"a\": 1,",
            "  \"b\": [],",
            "  \"c\": [",
            "    {\"d\": [1, 2], \"e\": {}},",
            "    {\"d\": null}",
            "  ],",
            "  \"f\": {",
            "    \"g\": [3]",
            "  }",
            "}",
            "",
        ];
        assert_eq!(text, lines.join("\n"));
        assert_eq!(serde_json::from_str::<Value>(&text).unwrap(), v);
    }
}
