//! JSON that reads well in an editor: each key of the document and each element of a list in it begins a line, and what lies
//! deeper stays on it.

use serde::Serialize;
use serde_json::ser::{CompactFormatter, Formatter};
use std::io::{self, Write};

/// Of the document itself, and of what its lists hold.
const LINES: usize = 2;

#[derive(Default)]
struct Lines {
    depth: usize,
    /// Of each level that begins lines: something stands there.
    any: [bool; LINES],
}

/// # Errors
/// What `serde_json` cannot write.
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

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
