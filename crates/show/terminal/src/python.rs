//! CUDA's calls by the line of Python that makes them.

use crate::cell::line_of;
use crate::foreign::plain;
use crate::number::{bytes, count, nanoseconds, of};
use crate::table::{self, Style};
use schema::python::{LineRow, Python};
use std::io::{self, Write};

/// Rows by default.
pub const ROWS: usize = 20;

/// Writes the first `limit` lines.
pub fn write(p: &Python, limit: usize, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for i in p.interpreters.iter().filter(|i| !i.read) {
        writeln!(out, "Python {} of process {}: no frames were read: {}", i.version, i.pid, i.why)?;
    }
    if p.lines.is_empty() {
        writeln!(out, "no CUDA call was made from Python while it was watched")?;
    } else {
        let calls: u64 = p.lines.iter().map(|l| l.calls).sum();
        writeln!(out, "{} {} from {}", style.bold("calls"), count(calls), of(p.lines.len() as u64, "line"))?;
        let heads = [
            ">calls",
            ">time",
            ">mean",
            ">p50",
            ">p99",
            ">max",
            ">launches",
            ">bytes",
            "most often",
            "!line",
            "function",
        ];
        let mut t = style.table(&heads);
        for l in p.lines.iter().take(limit) {
            t.add_row([
                count(l.calls) + &failed(l),
                nanoseconds(l.ns),
                nanoseconds(l.mean_ns),
                nanoseconds(l.p50_ns),
                nanoseconds(l.p99_ns),
                nanoseconds(l.max_ns),
                if l.launches == 0 { "-".into() } else { count(l.launches) },
                if l.bytes == 0 { "-".into() } else { bytes(l.bytes) },
                often(l),
                line_of(&l.at),
                plain(&l.at.function),
            ]);
        }
        table::write(out, &t, 2)?;
        table::more(out, p.lines.len(), limit, 2)?;
    }
    for (n, what) in [
        (p.without, "by threads that ran no Python code"),
        (p.lost, "whose Python frames are not in the recording"),
        (p.others, "from more lines than are distinguished"),
    ] {
        if n > 0 {
            writeln!(out, "{} {what}", of(n, "call"))?;
        }
    }
    Ok(())
}

fn failed(l: &LineRow) -> String {
    if l.failed > 0 { format!(" ({} failed)", count(l.failed)) } else { String::new() }
}

/// `cuLaunchKernel and 2 more`
fn often(l: &LineRow) -> String {
    let first = l.functions.first().map_or("-", |f| f.name.as_str());
    match l.functions.len() {
        0 | 1 => first.into(),
        n => format!("{first} and {} more", n - 1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use schema::python::{FrameRow, FunctionRow, InterpreterRow};

    #[test]
    fn lines_are_rows_and_missing_ones_are_named() {
        let function = |name: &str, calls| FunctionRow { name: name.into(), calls };
        let line = LineRow {
            at: FrameRow { file: "train\u{1b}.py".into(), line: Some(12), function: "Net.forward".into() },
            calls: 100,
            failed: 1,
            launches: 90,
            bytes: 4096,
            ns: 500_000,
            mean_ns: 5000,
            p50_ns: 4900,
            p99_ns: 9000,
            max_ns: 12_000,
            max_at: 0.5,
            functions: vec![function("cuLaunchKernel", 90), function("cuMemAlloc", 10)],
            stacks: 2,
            stack: Vec::new(),
            deeper: false,
        };
        let unknown = LineRow { at: FrameRow { line: None, ..line.at.clone() }, ..line.clone() };
        let why = "it is a debug build";
        let debug = InterpreterRow { process: 1, pid: 77, version: "3.12.1".into(), read: false, why };
        let mut p =
            Python { recorded: true, interpreters: vec![debug], lines: vec![line, unknown], ..Python::default() };
        (p.without, p.lost) = (3, 1);
        let text = |p: &Python| {
            let mut out = Vec::new();
            write(p, 1, Style::default(), &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        let said = text(&p);
        for line in [
            "Python 3.12.1 of process 77: no frames were read: it is a debug build",
            "calls 200 from 2 lines",
            "100 (1 failed)  500 us  5.00 us  4.90 us  9.00 us  12.0 us",
            "cuLaunchKernel and 1 more  train?.py:12  Net.forward",
            "  and 1 more (--top)",
            "3 calls by threads that ran no Python code",
            "1 call whose Python frames are not in the recording",
        ] {
            assert!(said.contains(line), "{line}\n{said}");
        }
        assert_eq!(
            text(&Python { recorded: true, ..Python::default() }),
            "no CUDA call was made from Python while it was watched\n"
        );
        assert_eq!(line_of(&FrameRow { file: "a.py".into(), line: None, function: "f".into() }), "a.py:?");
    }
}
