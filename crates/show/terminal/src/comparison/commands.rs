//! In which commands the calls of two recorded runs differ.

use super::{cell, key_json};
use crate::cell::stored_places;
use crate::number::count;
use crate::table::{Out, Style};
use comparison::Key;
use run_folder::commands::{Differing, Said};
use serde_json::{Value, json};
use std::io::{self, Write};

type Cells = [(Key, Vec<Differing>)];

fn said(said: &Said) -> String {
    match said {
        Said::Calls(t) if t.min == t.max => count(t.median),
        Said::Calls(t) => format!("{} ({} .. {})", count(t.median), count(t.min), count(t.max)),
        Said::Places(places) => stored_places(places),
    }
}

fn rows(cells: &Cells) -> impl Iterator<Item = [String; 4]> {
    cells.iter().flat_map(|(key, all)| all.iter().map(|d| [cell(key), d.what.clone(), said(&d.a), said(&d.b)]))
}

const HEADING: &str =
    "what one call sends, where the two differ: the median (least .. most) of all calls but the first";

pub(super) fn write(out: &mut dyn Out, style: &Style, cells: &Cells) -> io::Result<()> {
    if cells.is_empty() {
        return Ok(());
    }
    if cells.iter().all(|(_, all)| all.is_empty()) {
        writeln!(
            out,
            "  what one call sends is the same in {}",
            crate::number::of(cells.len() as u64, "recorded cell")
        )?;
        return Ok(());
    }
    writeln!(out, "  {HEADING}")?;
    let mut t = style.table(&["cell", "what", ">A", ">B"]);
    rows(cells).for_each(|row| {
        t.add_row(row);
    });
    out.table(&t, 2)
}

pub(super) fn write_markdown(out: &mut dyn Write, cells: &Cells) -> io::Result<()> {
    if cells.iter().all(|(_, all)| all.is_empty()) {
        return Ok(());
    }
    writeln!(out, "\n{HEADING}\n\n| cell | what | A | B |\n|---|---|--:|--:|")?;
    for row in rows(cells) {
        writeln!(out, "| {} |", row.map(|text| text.replace('|', "\\|")).join(" | "))?;
    }
    Ok(())
}

pub(super) fn json(cells: &Cells) -> Value {
    let one = |(key, differing): &(Key, Vec<Differing>)| json!({ "cell": key_json(key), "differing": differing });
    cells.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use run_folder::commands::Typical;

    fn cells() -> Vec<(Key, Vec<Differing>)> {
        let key = Key { subject: "copy".into(), bytes: 64, point: String::new() };
        let calls = |n, max| Said::Calls(Typical { min: n, median: n, max, mean: n as f64 });
        let places = |all: &[&str]| Said::Places(all.iter().map(|p| (*p).to_owned()).collect());
        let differing = vec![
            Differing { what: "doorbells".into(), a: calls(1, 1), b: calls(2, 9) },
            Differing { what: "USERD of COPY2".into(), a: places(&["host"]), b: places(&["host", "video"]) },
        ];
        vec![(key, differing)]
    }

    #[test]
    fn each_difference_is_a_row() {
        let (mut text, mut markdown) = (Vec::new(), Vec::new());
        write(&mut text, &Style::default(), &cells()).unwrap();
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("doorbells") && text.contains("2 (2 .. 9)") && text.contains("host and GPU"), "{text}");
        write_markdown(&mut markdown, &cells()).unwrap();
        assert!(String::from_utf8(markdown).unwrap().contains("| copy 64 B | doorbells | 1 | 2 (2 .. 9) |"));
        assert_eq!(json(&cells())[0]["differing"][1]["b"], json!(["host", "video"]));
        let (mut none, same) = (Vec::new(), vec![(cells()[0].0.clone(), Vec::new())]);
        write(&mut none, &Style::default(), &same).unwrap();
        assert!(String::from_utf8(none).unwrap().contains("the same in 1 recorded cell"));
    }
}
